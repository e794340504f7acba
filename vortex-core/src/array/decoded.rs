//! A decoded chunk: an Arrow array behind the interface of an encoded one.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray, UInt64Array};
use arrow::datatypes::DataType;

use super::{ArrayRef, ArrowRef, EncodedArray, Validity};
use crate::Result;
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::mask::Mask;

/// An Arrow array as an [`EncodedArray`]: what every operation can fall back to.
#[derive(Debug, Clone)]
pub struct Decoded {
    dtype: DType,
    array: ArrowRef,
}

impl Decoded {
    /// Wraps an array that presents `dtype`.
    pub fn new(dtype: DType, array: ArrowRef) -> Self {
        Self { dtype, array }
    }

    /// The Arrow array.
    pub fn arrow(&self) -> &ArrowRef {
        &self.array
    }

    fn with(&self, array: ArrowRef) -> ArrayRef {
        Arc::new(Self { dtype: self.dtype.clone(), array })
    }
}

impl EncodedArray for Decoded {
    fn encoding(&self) -> &str {
        "arrow"
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn len(&self) -> usize {
        self.array.len()
    }

    fn own_bytes(&self) -> usize {
        self.array.get_array_memory_size()
    }

    fn decode(&self, to: &DataType) -> Result<ArrowRef> {
        present(Arc::clone(&self.array), to)
    }

    fn validity(&self) -> Result<Validity> {
        Ok(Validity::from_nulls(self.array.logical_nulls()))
    }

    fn slice(&self, rows: Range<usize>) -> Result<ArrayRef> {
        Ok(self.with(self.array.slice(rows.start, rows.len())))
    }

    fn filter(&self, mask: &Mask) -> Result<ArrayRef> {
        if mask.is_all() {
            return Ok(self.with(Arc::clone(&self.array)));
        }
        Ok(self.with(arrow::compute::filter(&self.array, &mask.to_filter())?))
    }

    fn take(&self, indices: &UInt64Array) -> Result<ArrayRef> {
        Ok(self.with(arrow::compute::take(&self.array, indices, None)?))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        predicate.evaluate(&self.array)
    }
}

/// The same values as Arrow type `to`; a cast only where the types differ.
///
/// # Errors
/// If Arrow cannot cast between them.
pub fn present(array: ArrowRef, to: &DataType) -> Result<ArrowRef> {
    if array.data_type() == to {
        return Ok(array);
    }
    let options = arrow::compute::CastOptions { safe: false, ..Default::default() };
    Ok(arrow::compute::cast_with_options(&array, to, &options)?)
}
