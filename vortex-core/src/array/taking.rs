//! Rows of Arrow arrays by index.

use arrow::array::{Array, AsArray as _, MutableArrayData, make_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, UInt64Type};

use super::ArrowRef;
use crate::{Error, Result};

/// The rows at `indices`, which are integers; a null index results in a null.
///
/// Arrow 59 takes lists of size zero into an array without rows (`take_fixed_size_list` derives the
/// number of rows from the elements), so these are handled separately.
///
/// # Errors
/// If an index is out of range, or the result exceeds the range of its type's offsets.
pub(crate) fn take(values: &dyn Array, indices: &dyn Array) -> Result<ArrowRef> {
    if !has_empty_lists(values.data_type()) {
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

/// Whether the type contains fixed-size lists of size zero.
fn has_empty_lists(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, size) => *size == 0 || has_empty_lists(item.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => has_empty_lists(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_empty_lists(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| has_empty_lists(field.data_type())),
        DataType::Dictionary(_, values) => has_empty_lists(values),
        DataType::RunEndEncoded(_, values) => has_empty_lists(values.data_type()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{FixedSizeListArray, StructArray, UInt32Array, new_empty_array};
    use arrow::datatypes::Field;

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
            let lists: ArrowRef = Arc::new(lists.unwrap());
            let field = Arc::new(Field::new("lists", lists.data_type().clone(), true));
            let around: ArrowRef = Arc::new(StructArray::from(vec![(field, Arc::clone(&lists))]));
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
        let values: ArrowRef = Arc::new(UInt32Array::from(vec![10, 20, 30]));
        let rows = take(&values, &UInt32Array::from(vec![Some(2), None, Some(0)])).unwrap();
        assert_eq!(rows.as_primitive(), &UInt32Array::from(vec![Some(30), None, Some(10)]));
    }
}
