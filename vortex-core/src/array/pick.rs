//! Which rows of an array to keep.

use std::ops::Range;

use arrow::array::UInt64Array;

use super::EncodedRef;
use crate::Result;
use crate::mask::Mask;

/// The rows of an array to keep, and their order, to keep the same ones of several arrays.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Pick<'a> {
    /// As `slice` of an [array](super::EncodedArray) takes them.
    Slice(&'a Range<usize>),
    /// As `filter` takes them.
    Filter(&'a Mask),
    /// As `take` takes them.
    Take(&'a UInt64Array),
}

impl Pick<'_> {
    /// These rows of an array.
    ///
    /// # Errors
    /// If the bytes contradict the format.
    pub fn of(self, array: &EncodedRef) -> Result<EncodedRef> {
        match self {
            Pick::Slice(rows) => array.slice(rows.clone()),
            Pick::Filter(mask) => array.filter(mask),
            Pick::Take(indices) => array.take(indices),
        }
    }

    /// Number of rows to keep.
    pub fn row_count(self) -> usize {
        match self {
            Pick::Slice(rows) => rows.len(),
            Pick::Filter(mask) => mask.true_count(),
            Pick::Take(indices) => indices.len(),
        }
    }

    /// The rows to keep, as runs of adjacent ones.
    pub(crate) fn runs(self) -> Vec<Range<usize>> {
        match self {
            Pick::Slice(rows) => vec![rows.clone()],
            Pick::Filter(mask) => mask.runs(),
            // Indices are in range of an array in memory, so they fit `usize`.
            Pick::Take(indices) => indices.values().iter().map(|at| *at as usize..*at as usize + 1).collect(),
        }
    }
}
