//! Layouts of unknown kind: they fail only when their rows are needed.

use std::ops::Range;
use std::sync::Arc;

use super::{Layout, LayoutRef, SegmentSet};
use crate::array::EncodedRef;
use crate::dtype::DType;
use crate::segments::SegmentId;
use crate::{Error, Result};

#[derive(Debug)]
struct Unknown {
    id: Arc<str>,
    dtype: DType,
    row_count: u64,
}

/// A layout whose id is not registered.
pub(super) fn layout(id: &str, dtype: DType, row_count: u64) -> LayoutRef {
    Arc::new(Unknown { id: id.into(), dtype, row_count })
}

impl Layout for Unknown {
    fn id(&self) -> &str {
        &self.id
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn row_count(&self) -> u64 {
        self.row_count
    }

    fn request(&self, _: &Range<u64>, _: &SegmentSet<'_>, _: &mut Vec<SegmentId>) -> Result<()> {
        Err(Error::unsupported("layout", &self.id))
    }

    fn read(&self, _: &Range<u64>, _: &SegmentSet<'_>) -> Result<EncodedRef> {
        Err(Error::unsupported("layout", &self.id))
    }
}
