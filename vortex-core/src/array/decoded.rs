//! A decoded chunk: an Arrow array with the interface of an encoded one.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray, UInt64Array};
use arrow::datatypes::DataType;

use super::row_bytes::{RowBytes, reserved_bytes};
use super::{ArrayRef, ArrowRef, EncodedArray, Validity};
use crate::Result;
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::limits::Limits;
use crate::mask::Mask;

/// An Arrow array as an [`EncodedArray`]: the fallback of every operation.
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

    /// Checks the size of copied rows against the limits. Rows of lists and of flat strings are copied
    /// once per index, so a few indices can result in any amount of memory; for other types, memory is
    /// proportional to the number of indices.
    fn check_copies(&self, indices: &UInt64Array) -> Result<()> {
        if !copies_vary(self.array.data_type()) {
            return Ok(());
        }
        let bytes = RowBytes::of(self.array.as_ref());
        let copied = indices.values().iter().fold(0u64, |sum, at| {
            let at = usize::try_from(*at).unwrap_or(usize::MAX);
            sum.saturating_add(bytes.up_to(at.saturating_add(1)).saturating_sub(bytes.up_to(at)))
        });
        Limits::default().decoded_bytes(usize::try_from(copied).unwrap_or(usize::MAX), 1).map(drop)
    }

    /// Checks the memory that Arrow reserves for some rows against the limits, whether it will be used or not.
    fn check_reserved(&self, rows: usize) -> Result<()> {
        let bytes = reserved_bytes(self.array.data_type(), rows as u64);
        Limits::default().decoded_bytes(usize::try_from(bytes).unwrap_or(usize::MAX), 1).map(drop)
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
        self.check_reserved(mask.true_count())?;
        Ok(self.with(arrow::compute::filter(&self.array, &mask.to_filter())?))
    }

    fn take(&self, indices: &UInt64Array) -> Result<ArrayRef> {
        self.check_reserved(indices.len())?;
        self.check_copies(indices)?;
        Ok(self.with(super::take(&self.array, indices)?))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        predicate.evaluate(&self.array)
    }
}

/// Whether some rows may take much more memory than others.
fn copies_vary(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => true,
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Map(..) => true,
        DataType::Struct(fields) => fields.iter().any(|field| copies_vary(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| copies_vary(field.data_type())),
        _ => false,
    }
}

/// The same values as Arrow type `to`; casts only if the types differ.
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

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray, new_empty_array};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;
    use crate::dtype::arrow::from_field;

    #[test]
    fn empty_lists_of_huge_items_reserve_nothing() {
        let huge = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int64, true)), i32::MAX);
        let field = Arc::new(Field::new("item", huge.clone(), true));
        let lists =
            ListArray::new(field, OffsetBuffer::from_lengths([0, 0, 0]), new_empty_array(&huge), None);
        let dtype = from_field(&Field::new("l", lists.data_type().clone(), false)).unwrap();
        let array = Decoded::new(dtype, Arc::new(lists));
        assert!(array.take(&UInt64Array::from(vec![1])).is_err());
        assert!(array.filter(&Mask::from_indices(3, [1])).is_err());
        assert_eq!(array.slice(1..2).unwrap().len(), 1);
    }

    #[test]
    fn a_long_list_cannot_be_taken_too_often() {
        let field = Arc::new(Field::new("item", DataType::Int64, false));
        let elements = Arc::new(Int64Array::from(vec![7; 1 << 16]));
        let lists = ListArray::new(field, OffsetBuffer::from_lengths([1 << 16, 0]), elements, None);
        let dtype = from_field(&Field::new("l", lists.data_type().clone(), false)).unwrap();
        let array = Decoded::new(dtype, Arc::new(lists));
        let often = |row: u64| UInt64Array::from(vec![row; 1 << 15]);
        assert!(array.take(&often(0)).is_err(), "16 GiB");
        assert_eq!(array.take(&often(1)).unwrap().len(), 1 << 15);
    }
}
