//! How the writer encodes a chunk of a column.

use arrow::array::ArrayRef;

use crate::array::canonical::canonical;
use crate::dtype::DType;
use crate::wire::WriteNode;
use crate::{Release, Result};

/// What writing spends time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// Encodings that are cheap to find.
    Fast,
    /// Small files that decode fast.
    #[default]
    Default,
    /// The smallest files, at the cost of decoding.
    Compact,
}

/// Encodes chunks of columns.
#[derive(Debug, Clone)]
pub(crate) struct Compressor {
    level: Level,
    min_reader: Release,
}

impl Compressor {
    /// Encodes for `min_reader` and all later releases.
    pub(crate) fn new(level: Level, min_reader: Release) -> Self {
        Self { level, min_reader }
    }

    /// The encoded form of a chunk, which has the Arrow type that
    /// [presents](crate::dtype::arrow::presents) `dtype`.
    ///
    /// # Errors
    /// If `dtype` cannot be read by the oldest release asked for.
    pub(crate) fn compress(&self, array: &ArrayRef, dtype: &DType) -> Result<WriteNode> {
        canonical(array, dtype)
    }
}
