//! What every array states of itself.

use std::sync::Arc;

use super::{ArrayRef, Decoded, EncodedRef, Node};
use crate::dtype::DType;
use crate::limits::Limits;

/// What every array states of itself. Copies share the type.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Header {
    /// The id of the encoding, as stored in the file.
    pub encoding: &'static str,
    /// The logical type.
    pub dtype: DType,
    /// Number of rows.
    pub len: usize,
    /// The limits for decoding and copying rows: those [of the node](Node::limits) that the array was loaded from, or
    /// of a child.
    pub limits: Limits,
}

impl Header {
    /// The header of an array without a [node](Node::header) of its own.
    pub fn new(encoding: &'static str, dtype: DType, len: usize, limits: &Limits) -> Self {
        Self { encoding, dtype, len, limits: *limits }
    }

    /// The header of `len` rows of the array.
    #[must_use]
    pub fn of_rows(&self, len: usize) -> Self {
        Self { len, ..self.clone() }
    }

    /// Rows of the array, however many, after they were decoded into the Arrow array `rows`.
    pub fn decoded(&self, rows: ArrayRef) -> EncodedRef {
        Arc::new(Decoded::new(self.dtype.clone(), rows, &self.limits))
    }
}

impl Node<'_> {
    /// The header of the array that the node represents, given the id of its encoding.
    pub fn header(&self, encoding: &'static str) -> Header {
        Header::new(encoding, self.dtype().clone(), self.len(), self.limits())
    }
}
