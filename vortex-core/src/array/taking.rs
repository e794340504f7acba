//! Rows of Arrow arrays by index.
//!
//! Lists and flat strings are copied once per index, so that a few bytes of a file could require any
//! amount of memory; views and dictionaries share the values they refer to.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrowPrimitiveType, AsArray as _, MutableArrayData, PrimitiveArray, StructArray, UInt64Array,
    make_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType as _, DataType, UInt64Type};

use super::ArrayRef;
use super::row_bytes::{RowBytes, has_narrow_offsets, reserved_bytes};
use crate::dtype::any_inner;
use crate::limits::Limits;
use crate::{Error, Result};

/// Positions of rows, to be taken.
pub(crate) fn indices(rows: &[usize]) -> UInt64Array {
    UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64))
}

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
    limits.count_bytes(bytes.max(reserved))?;
    if i32::try_from(bytes).is_err() && has_narrow_offsets(values.data_type()) {
        return Err(Error::limit(format!("{bytes} bytes of repeated values")));
    }
    take(values, indices)
}

/// The rows at `indices`, which are integers; a null index results in a null.
///
/// Arrow 59 reserves memory for lists of average length, whichever are taken, and for the position of each item of
/// lists of a fixed size, in 32 bits; and it takes values of size zero into an array without rows. So these are copied
/// here.
///
/// # Errors
/// If an index is out of range, or the result exceeds the range of its type's offsets.
pub(crate) fn take(values: &dyn Array, indices: &dyn Array) -> Result<ArrayRef> {
    if !is_copied_here(values.data_type()) {
        return Ok(arrow::compute::take(values, indices, None)?);
    }
    let indices = cast(indices, &DataType::UInt64)?;
    let indices = indices.as_primitive::<UInt64Type>();
    match values.as_struct_opt() {
        Some(values) => take_fields(values, indices),
        None => copy(values, indices),
    }
}

/// Takes rows of each field.
fn take_fields(values: &StructArray, indices: &UInt64Array) -> Result<ArrayRef> {
    let fields = values.columns().iter().map(|field| take(field, indices)).collect::<Result<Vec<_>>>()?;
    let is_valid = |index: Option<u64>| index.is_some_and(|row| values.is_valid(row as usize));
    let nulls = (values.null_count() > 0 || indices.null_count() > 0)
        .then(|| indices.iter().map(is_valid).collect::<NullBuffer>());
    let taken = StructArray::try_new_with_length(values.fields().clone(), fields, nulls, indices.len())?;
    Ok(Arc::new(taken))
}

/// Copies adjacent rows together. No memory is reserved: a few rows of empty lists would need any amount for the items
/// of lists of a fixed size within them.
fn copy(values: &dyn Array, indices: &UInt64Array) -> Result<ArrayRef> {
    let source = values.to_data();
    let mut taken = MutableArrayData::new(vec![&source], indices.null_count() > 0, 0);
    let mut rows: Range<usize> = 0..0;
    for index in indices {
        match index.map(usize::try_from) {
            Some(Ok(row)) if row < values.len() && row == rows.end => rows.end += 1,
            Some(Ok(row)) if row < values.len() => {
                taken.try_extend(0, rows.start, rows.end)?;
                rows = row..row + 1;
            }
            Some(_) => return Err(Error::corrupt(format!("an index is beyond the {} rows", values.len()))),
            None => {
                taken.try_extend(0, rows.start, rows.end)?;
                taken.try_extend_nulls(1)?;
                rows = rows.end..rows.end;
            }
        }
    }
    taken.try_extend(0, rows.start, rows.end)?;
    Ok(make_array(taken.freeze()))
}

/// Whether the type contains lists whose items are copied, or fixed-size values of size zero.
fn is_copied_here(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) | DataType::FixedSizeList(..) => true,
        // Items of views and values of dictionaries are shared.
        DataType::ListView(_) | DataType::LargeListView(_) | DataType::Dictionary(..) => false,
        DataType::FixedSizeBinary(size) => *size == 0,
        other => any_inner(other, is_copied_here),
    }
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
    use arrow::array::{
        FixedSizeListArray, Int8Array, LargeListArray, ListArray, StringArray, StringViewArray, UInt32Array,
        new_empty_array,
    };
    use arrow::buffer::OffsetBuffer;
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
    fn nested_rows_are_those_that_arrow_takes() {
        let mut next = crate::kernels::random(7);
        let mut number = |most: usize| next() as usize % most;
        let item = |of: &DataType| Arc::new(Field::new("item", of.clone(), true));
        let mut lists = |items: ArrayRef, rows: usize| -> ArrayRef {
            let mut ends: Vec<i32> = (1..rows).map(|_| number(items.len()) as i32).collect();
            ends.extend([0, items.len() as i32]);
            ends.sort_unstable();
            let nulls = NullBuffer::from_iter((0..rows).map(|row| row % 5 != 3));
            let offsets = OffsetBuffer::new(ends.into());
            Arc::new(ListArray::new(item(items.data_type()), offsets, items, Some(nulls)))
        };
        let numbers: ArrayRef =
            Arc::new(UInt32Array::from_iter((0..6000).map(|at| (at % 3 > 0).then_some(at))));
        let fixed: ArrayRef =
            Arc::new(FixedSizeListArray::new(item(numbers.data_type()), 4, Arc::clone(&numbers), None));
        let of_fixed = lists(Arc::clone(&fixed), 300);
        let inner = lists(numbers, 1000);
        let of_lists = lists(inner, 300);
        let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..300).map(|at| at.to_string())));
        let columns = [("a", of_fixed), ("b", of_lists), ("c", text)]
            .map(|(name, column)| (Arc::new(Field::new(name, column.data_type().clone(), true)), column));
        let rows: ArrayRef = Arc::new(StructArray::from(columns.to_vec()));
        let few = |rows: &ArrayRef| rows.slice(100, 150);
        let indices: UInt64Array = (0..1000)
            .map(|at| (at % 7 > 0).then(|| if at < 500 { at % 150 } else { number(150) as u64 }))
            .collect();
        for values in columns.iter().map(|(_, column)| few(column)).chain([few(&rows), few(&fixed)]) {
            let taken = take(&values, &indices).unwrap();
            taken.to_data().validate_full().unwrap();
            assert_eq!(&taken, &arrow::compute::take(&values, &indices, None).unwrap());
            assert!(take(&values, &UInt64Array::new_scalar(0).into_inner()).is_ok());
            assert_eq!(take(&values, &UInt64Array::from(Vec::<u64>::new())).unwrap().len(), 0);
        }
    }

    #[test]
    fn memory_is_not_reserved_for_items_of_other_rows() {
        // Arrow reserves half a mebibyte for each of these rows.
        let items: ArrayRef = Arc::new(Int8Array::from(vec![0; 1 << 20]));
        let item = Arc::new(Field::new("item", DataType::Int8, false));
        let offsets = OffsetBuffer::new(vec![0, 1 << 20, 1 << 20].into());
        let lists = ListArray::new(item, offsets, items, None);
        let empty = UInt32Array::from(vec![1; 1 << 20]);
        assert_eq!(take_within(&lists, &empty, &Limits::default()).unwrap().len(), 1 << 20);
        // An empty list whose items would be large.
        let item = |of| Arc::new(Field::new("item", of, false));
        let large = DataType::FixedSizeList(item(DataType::Int64), i32::MAX);
        let offsets = OffsetBuffer::new(vec![0, 0].into());
        let lists = ListArray::new(item(large.clone()), offsets, new_empty_array(&large), None);
        assert_eq!(take(&lists, &UInt32Array::from(vec![0; 8192])).unwrap().len(), 8192);
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
