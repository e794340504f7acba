//! Making rows null.
//!
//! ```text
//! struct rows   {a: 1}  null  {a: 3}
//! child `a`      1       7     3        as stored in the file; 7 is meaningless
//! child `a`      1      null   3        as returned by this module
//! ```
//!
//! Engines read a child of an Arrow struct without regard to its parent. Therefore, when rows become null
//! here, so do all their descendants, also those whose fields are not nullable: of these, Arrow permits nulls where the
//! parent is null. Lists and maps that are null have no items: DataFusion 55 finds keys in null maps
//! (`keys_are_found_in_maps_that_are_null` in the plugin's `tests/it/upstream/filters.rs`), and appends to null lists.

use std::sync::Arc;

use arrow::array::{
    Array as _, AsArray as _, BooleanArray, GenericListArray, GenericListViewArray, MapArray,
    MutableArrayData, OffsetSizeTrait, StructArray, UnionArray, make_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, UnionMode};

use super::ArrayRef;
use crate::dtype::DType;
use crate::{Error, Result};

/// The same values, also null where `valid` is unset.
pub(crate) fn mask(array: &ArrayRef, valid: &NullBuffer) -> Result<ArrayRef> {
    if valid.null_count() == 0 {
        return Ok(Arc::clone(array));
    }
    match array.data_type() {
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().map(|column| mask(column, valid));
            let columns = columns.collect::<Result<_>>()?;
            let nulls = NullBuffer::union(array.nulls(), Some(valid));
            Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())?))
        }
        DataType::Union(..) => mask_union(array, valid),
        DataType::Boolean => {
            let array = array.as_boolean();
            // Arrow counts both bitmaps from the first bit of the values, so that must be bit 0.
            let bits = BooleanBuffer::new(array.values().sliced(), 0, array.len());
            Ok(Arc::new(BooleanArray::new(bits, NullBuffer::union(array.nulls(), Some(valid)))))
        }
        _ => {
            let invalid = BooleanArray::new(!valid.inner(), None);
            without_hidden_items(arrow::compute::nullif(array, &invalid)?)
        }
    }
}

/// The same rows, of which lists and maps that are null have no items.
pub(crate) fn without_hidden_items(array: ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::List(_) => Arc::new(without_items(array.as_list::<i32>())?),
        DataType::LargeList(_) => Arc::new(without_items(array.as_list::<i64>())?),
        DataType::Map(..) => {
            let (entries, offsets, items, nulls, sorted) = array.as_map().clone().into_parts();
            let lists = GenericListArray::try_new(entries, offsets, Arc::new(items), nulls)?;
            let (entries, offsets, items, nulls) = without_items(&lists)?.into_parts();
            Arc::new(MapArray::try_new(entries, offsets, items.as_struct().clone(), nulls, sorted)?)
        }
        DataType::ListView(_) => Arc::new(without_views(array.as_list_view::<i32>())?),
        DataType::LargeListView(_) => Arc::new(without_views(array.as_list_view::<i64>())?),
        _ => array,
    })
}

fn without_items<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Result<GenericListArray<O>> {
    let (offsets, nulls) = (lists.offsets(), lists.nulls());
    let hides = |nulls: &NullBuffer| {
        (0..nulls.len()).any(|row| nulls.is_null(row) && offsets[row] < offsets[row + 1])
    };
    let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0 && hides(nulls)) else {
        return Ok(lists.clone());
    };
    let items = lists.values().to_data();
    // Capacities are not needed in advance, and may be far more than what is copied.
    let mut shown = MutableArrayData::new(vec![&items], false, 0);
    for (start, end) in nulls.inner().set_slices() {
        shown.try_extend(0, offsets[start].as_usize(), offsets[end].as_usize())?;
    }
    let lengths = (0..nulls.len())
        .map(|row| if nulls.is_valid(row) { (offsets[row + 1] - offsets[row]).as_usize() } else { 0 });
    let (item, ..) = lists.clone().into_parts();
    let (offsets, items) = (OffsetBuffer::from_lengths(lengths), make_array(shown.freeze()));
    Ok(GenericListArray::try_new(item, offsets, items, Some(nulls.clone()))?)
}

fn without_views<O: OffsetSizeTrait>(lists: &GenericListViewArray<O>) -> Result<GenericListViewArray<O>> {
    let Some(nulls) = lists.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(lists.clone()) };
    let (item, offsets, sizes, items, _) = lists.clone().into_parts();
    let shown = |values: &ScalarBuffer<O>| -> ScalarBuffer<O> {
        values
            .iter()
            .zip(nulls.iter())
            .map(|(value, valid)| if valid { *value } else { O::usize_as(0) })
            .collect()
    };
    Ok(GenericListViewArray::try_new(item, shown(&offsets), shown(&sizes), items, Some(nulls.clone()))?)
}

/// Arrow's unions have no validity of their own: a row is null if the variant that it selects is null.
fn mask_union(array: &ArrayRef, valid: &NullBuffer) -> Result<ArrayRef> {
    let (DataType::Union(fields, UnionMode::Sparse), Some(union)) =
        (array.data_type(), array.as_any().downcast_ref::<UnionArray>())
    else {
        return Err(Error::invalid(format!("cannot make rows of {} null", array.data_type())));
    };
    let children =
        fields.iter().map(|(id, _)| mask(union.child(id), valid)).collect::<Result<Vec<ArrayRef>>>()?;
    let ids: ScalarBuffer<i8> = union.type_ids().clone();
    Ok(Arc::new(UnionArray::try_new(fields.clone(), ids, None, children)?))
}

/// The type of field `at` after its rows become null where those of the struct are.
pub(crate) fn field_dtype(dtype: &DType, at: usize) -> Result<DType> {
    let field = dtype.as_struct().and_then(|fields| fields.dtypes().get(at));
    let field = field.ok_or_else(|| Error::invalid(format!("{dtype} has no field {at}")))?;
    Ok(if dtype.is_nullable() { field.with_nullable(true) } else { field.clone() })
}

/// Field `at` of a decoded struct, also null where the struct is.
pub(crate) fn decoded_field(array: &ArrayRef, at: usize) -> Result<ArrayRef> {
    let parent = array.as_struct_opt();
    let column = parent.and_then(|parent| parent.columns().get(at));
    let column = column.ok_or_else(|| Error::invalid(format!("{} has no field {at}", array.data_type())))?;
    match array.nulls() {
        Some(nulls) => mask(column, nulls),
        None => Ok(Arc::clone(column)),
    }
}

/// Replaces the outcome in rows that `valid` makes null by `null_outcome`, the outcome of the predicate
/// for a null.
pub(crate) fn mask_outcome(
    outcome: &BooleanArray,
    valid: &NullBuffer,
    null_outcome: Option<bool>,
) -> BooleanArray {
    let invalid = || !valid.inner();
    match null_outcome {
        None => BooleanArray::new(outcome.values().clone(), NullBuffer::union(outcome.nulls(), Some(valid))),
        Some(known) => {
            let values = if known { outcome.values() | &invalid() } else { outcome.values() & valid.inner() };
            let nulls = outcome.nulls().map(|nulls| NullBuffer::new(nulls.inner() | &invalid()));
            BooleanArray::new(values, nulls)
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, new_null_array};
    use arrow::datatypes::{Field, Fields, Int32Type};

    use super::*;

    #[test]
    fn slices_of_booleans_are_valid_arrow_data_once_they_are_masked() {
        let bits: ArrayRef = Arc::new(BooleanArray::from(vec![true; 100]));
        let masked = mask(&bits.slice(90, 10), &NullBuffer::from(vec![false; 10])).unwrap();
        masked.to_data().validate_full().unwrap();
        assert_eq!(masked.null_count(), 10);
    }

    #[test]
    fn lists_and_maps_that_become_null_have_no_items() {
        let item = || Arc::new(Field::new("item", DataType::Int32, true));
        let numbers = || Arc::new(Int32Array::from(vec![9, 1, 2, 3, 4, 9])) as ArrayRef;
        let offsets = || OffsetBuffer::new(vec![1, 3, 4, 5].into());
        let list: ArrayRef = Arc::new(GenericListArray::new(item(), offsets(), numbers(), None));
        let (starts, sizes) = (vec![1, 3, 4].into(), vec![2, 1, 1].into());
        let views: ArrayRef = Arc::new(GenericListViewArray::new(item(), starts, sizes, numbers(), None));
        let keys = Arc::new(Field::new("key", DataType::Int32, false));
        let entries = StructArray::new(vec![keys, item()].into(), vec![numbers(), numbers()], None);
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let map: ArrayRef = Arc::new(MapArray::new(field, offsets(), entries, None, false));
        for array in [list, views, map] {
            let masked = mask(&array, &NullBuffer::from(vec![true, false, true])).unwrap();
            masked.to_data().validate_full().unwrap();
            assert_eq!((masked.null_count(), masked.is_null(1)), (1, true));
            let len = |row| match masked.data_type() {
                DataType::Map(..) => masked.as_map().value_length(row),
                DataType::List(_) => masked.as_list::<i32>().value_length(row),
                _ => masked.as_list_view::<i32>().value_size(row),
            };
            assert_eq!([0, 1, 2].map(len), [2, 0, 1], "{:?}", masked.data_type());
            for row in [0, 2] {
                assert_eq!(masked.slice(row, 1).as_ref(), array.slice(row, 1).as_ref());
            }
        }
    }

    #[test]
    fn a_null_parent_takes_its_descendants_along() {
        let leaf = Fields::from(vec![Field::new("leaf", DataType::Int32, true)]);
        let fields = Fields::from(vec![
            Field::new("free", DataType::Int32, true),
            Field::new("fixed", DataType::Int32, false),
            Field::new("inner", DataType::Struct(leaf.clone()), false),
        ]);
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let inner: ArrayRef = Arc::new(StructArray::new(leaf, vec![Arc::clone(&numbers)], None));
        let columns = vec![Arc::clone(&numbers), Arc::clone(&numbers), inner];
        let array: ArrayRef = Arc::new(StructArray::new(fields, columns, None));
        let masked = mask(&array, &NullBuffer::from(vec![true, false, true])).unwrap();
        masked.to_data().validate_full().unwrap();
        let masked = masked.as_struct();
        assert_eq!(masked.null_count(), 1);
        let inner = masked.column(2);
        assert_eq!(inner.null_count(), 1);
        for numbers in [masked.column(0), masked.column(1), inner.as_struct().column(0)] {
            let expected = Int32Array::from(vec![Some(1), None, Some(3)]);
            assert_eq!(numbers.as_primitive::<Int32Type>(), &expected);
        }
    }

    #[test]
    fn masked_rows_get_the_outcome_of_a_null() {
        let outcome = BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]);
        let valid = NullBuffer::from(vec![true, true, false, false]);
        let rows = |known| mask_outcome(&outcome, &valid, known).iter().collect::<Vec<_>>();
        assert_eq!(rows(None), [Some(true), Some(false), None, None]);
        assert_eq!(rows(Some(true)), [Some(true), Some(false), Some(true), Some(true)]);
        assert_eq!(rows(Some(false)), [Some(true), Some(false), Some(false), Some(false)]);
    }

    #[test]
    fn nulls_stay_nulls() {
        let nulls = new_null_array(&DataType::Null, 2);
        let masked = mask(&nulls, &NullBuffer::from(vec![true, false])).unwrap();
        assert_eq!(masked.data_type(), &DataType::Null);
    }
}
