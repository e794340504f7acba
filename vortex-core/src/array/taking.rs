//! Rows of Arrow arrays by index.
//!
//! Lists and flat strings are copied once per index, so that a few bytes of a file could require any
//! amount of memory; views and dictionaries share the values they refer to.

use arrow::array::{Array, ArrowPrimitiveType, AsArray as _, MutableArrayData, PrimitiveArray, make_array};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType as _, DataType, UInt64Type};

use super::ArrayRef;
use super::row_bytes::{RowBytes, has_narrow_offsets, reserved_bytes};
use crate::dtype::any_inner;
use crate::limits::Limits;
use crate::{Error, Result};

/// As [`take`], if the copies of the rows are within the limits.
///
/// # Errors
/// If the result exceeds a limit, or as [`take`].
pub(crate) fn take_within<T: ArrowPrimitiveType>(
    values: &dyn Array,
    indices: &PrimitiveArray<T>,
    limits: &Limits,
) -> Result<ArrayRef> {
    let bytes = RowBytes::of(values).sum_at(indices.values().iter().map(|index| index.as_usize()));
    let reserved = reserved_bytes(values.data_type(), indices.len() as u64);
    limits.decoded_bytes(usize::try_from(bytes.max(reserved)).unwrap_or(usize::MAX), 1)?;
    if i32::try_from(bytes).is_err() && has_narrow_offsets(values.data_type()) {
        return Err(Error::limit(format!("{bytes} bytes of repeated values")));
    }
    take(values, indices)
}

/// The rows at `indices`, which are integers; a null index results in a null.
///
/// Arrow 59 takes values of size zero into an array without rows (`take_fixed_size_list` derives the number of
/// rows from the elements, `take_fixed_size_binary` from the bytes), so these are handled separately.
///
/// # Errors
/// If an index is out of range, or the result exceeds the range of its type's offsets.
pub(crate) fn take(values: &dyn Array, indices: &dyn Array) -> Result<ArrayRef> {
    if !has_empty_values(values.data_type()) {
        return Ok(arrow::compute::take(values, indices, None)?);
    }
    let indices = cast(indices, &DataType::UInt64)?;
    let indices = indices.as_primitive::<UInt64Type>();
    let source = values.to_data();
    let mut taken = MutableArrayData::new(vec![&source], indices.null_count() > 0, indices.len());
    for index in indices {
        match index.map(usize::try_from) {
            None => taken.try_extend_nulls(1)?,
            Some(Ok(row)) if row < values.len() => taken.try_extend(0, row, row + 1)?,
            Some(_) => return Err(Error::corrupt(format!("an index is beyond the {} rows", values.len()))),
        }
    }
    Ok(make_array(taken.freeze()))
}

/// Whether the type contains fixed-size lists or binary values of size zero.
pub(crate) fn has_empty_values(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeBinary(size) => *size == 0,
        DataType::FixedSizeList(_, 0) => true,
        other => any_inner(other, has_empty_values),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        FixedSizeListArray, LargeListArray, ListArray, StringArray, StringViewArray, StructArray,
        UInt32Array, new_empty_array,
    };
    use arrow::datatypes::{Field, Int64Type};

    use super::*;

    #[test]
    fn lists_of_size_zero_keep_their_rows() {
        let item = Arc::new(Field::new("item", DataType::Int8, true));
        let elements = new_empty_array(&DataType::Int8);
        let nulls = Some(vec![true, false, true].into());
        for nulls in [None, nulls] {
            let lists = FixedSizeListArray::try_new_with_length(
                Arc::clone(&item),
                0,
                Arc::clone(&elements),
                nulls,
                3,
            );
            let lists: ArrayRef = Arc::new(lists.unwrap());
            let field = Arc::new(Field::new("lists", lists.data_type().clone(), true));
            let around: ArrayRef = Arc::new(StructArray::from(vec![(field, Arc::clone(&lists))]));
            for values in [lists, around] {
                let rows = take(&values, &UInt32Array::from(vec![2, 0, 0, 2, 0])).unwrap();
                assert_eq!((rows.len(), rows.null_count()), (5, 0));
                rows.to_data().validate_full().unwrap();
                let rows = take(&values, &UInt32Array::from(vec![Some(2), None])).unwrap();
                assert_eq!((rows.len(), rows.null_count()), (2, 1));
                assert!(take(&values, &UInt32Array::from(vec![3])).is_err());
            }
        }
    }

    #[test]
    fn other_rows_are_those_at_the_indices() {
        let values: ArrayRef = Arc::new(UInt32Array::from(vec![10, 20, 30]));
        let rows = take(&values, &UInt32Array::from(vec![Some(2), None, Some(0)])).unwrap();
        assert_eq!(rows.as_primitive(), &UInt32Array::from(vec![Some(30), None, Some(10)]));
    }

    #[test]
    fn only_copies_count_against_the_limit() {
        let long = "a string of more than twelve bytes, which views do not copy";
        let tight = Limits::new().with_max_decoded_bytes(1000);
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some(long), None]));
        assert_eq!(take_within(&views, &UInt32Array::from(vec![0; 40]), &tight).unwrap().len(), 40);
        let strings: ArrayRef = Arc::new(StringArray::from(vec![Some(long), None]));
        assert!(take_within(&strings, &UInt32Array::from(vec![0; 40]), &tight).is_err());
        assert_eq!(take_within(&strings, &UInt32Array::from(vec![1; 40]), &tight).unwrap().null_count(), 40);
    }

    #[test]
    fn elements_of_lists_count() {
        let rows = [Some((0..100).map(Some).collect::<Vec<_>>()), None];
        let tight = Limits::new().with_max_decoded_bytes(10_000);
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone()));
        assert!(take_within(&lists, &UInt32Array::from(vec![0; 20]), &tight).is_err());
        assert_eq!(take_within(&lists, &UInt32Array::from(vec![0, 1, 0]), &tight).unwrap().len(), 3);
        let lists: ArrayRef = Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(rows));
        assert!(take_within(&lists, &UInt32Array::from(vec![0; 20]), &tight).is_err());
    }
}
