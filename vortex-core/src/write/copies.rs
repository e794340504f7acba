//! Copies of rows, which keep nothing else in memory.
//!
//! An array may keep far more bytes than its rows have: a builder reserves memory for rows that do not come, a
//! slice keeps the rows around it, and views keep all text of the buffers that they refer to.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    StructArray,
};
use arrow::compute::concat;
use arrow::datatypes::DataType;

use crate::array::shown_children;
use crate::{Error, Result};

/// The rows of all pieces as one array, in memory of its own.
///
/// # Errors
/// If there are no pieces, or one array cannot hold them.
pub(super) fn copied(pieces: &[ArrayRef]) -> Result<ArrayRef> {
    let mut parts: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
    // Arrow copies nothing if there is only one array.
    let nothing = pieces.first().map(|piece| piece.slice(0, 0));
    parts.extend(nothing.as_deref());
    with_own_text(&concatenated(&parts)?)
}

/// The rows of all parts as one array.
///
/// # Errors
/// If one array cannot hold them.
pub(super) fn concatenated(parts: &[&dyn Array]) -> Result<ArrayRef> {
    // Arrow panics if offsets overflow.
    let items = parts.iter().map(|part| most_items(*part)).fold(0, usize::saturating_add);
    if i32::try_from(items).is_err() {
        return Err(Error::limit(format!(
            "lists of {items} items to write together, {} allowed; write fewer rows between flushes",
            i32::MAX
        )));
    }
    Ok(concat(parts)?)
}

/// The number of items of lists with 32-bit offsets, at the level that has most.
fn most_items(array: &dyn Array) -> usize {
    let counts = matches!(array.data_type(), DataType::List(_) | DataType::Map(..));
    let of_child = |child: &ArrayRef| most_items(child).max(if counts { child.len() } else { 0 });
    shown_children(array).iter().map(of_child).max().unwrap_or(0)
}

/// The array with a copy of all text that views refer to.
fn with_own_text(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        DataType::List(_) => with_own_items(array.as_list::<i32>())?,
        DataType::LargeList(_) => with_own_items(array.as_list::<i64>())?,
        DataType::FixedSizeList(..) => {
            let (item, size, items, nulls) = array.as_fixed_size_list().clone().into_parts();
            let (items, len) = (with_own_text(&items)?, array.len());
            Arc::new(FixedSizeListArray::try_new_with_length(item, size, items, nulls, len)?)
        }
        DataType::Map(..) => {
            let (field, offsets, entries, nulls, sorted) = array.as_map().clone().into_parts();
            Arc::new(MapArray::try_new(field, offsets, with_own_fields(&entries)?, nulls, sorted)?)
        }
        DataType::Struct(_) => Arc::new(with_own_fields(array.as_struct())?),
        _ => Arc::clone(array),
    })
}

fn with_own_items<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Result<ArrayRef> {
    let (item, offsets, items, nulls) = lists.clone().into_parts();
    Ok(Arc::new(GenericListArray::try_new(item, offsets, with_own_text(&items)?, nulls)?))
}

fn with_own_fields(structs: &StructArray) -> Result<StructArray> {
    let columns = structs.columns().iter().map(with_own_text).collect::<Result<_>>()?;
    let (fields, nulls) = (structs.fields().clone(), structs.nulls().cloned());
    Ok(StructArray::try_new_with_length(fields, columns, nulls, structs.len())?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        FixedSizeListBuilder, Int64Array, Int64Builder, LargeListBuilder, ListArray, ListBuilder, MapBuilder,
        NullArray, StringViewArray, StringViewBuilder,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;

    const LONG: &str = "a text that is longer than a view";

    /// Rows of each kind that has text in views: one in three is null, others have up to two texts.
    fn nested(rows: usize) -> Vec<ArrayRef> {
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        let mut large = LargeListBuilder::new(StringViewBuilder::new());
        let mut fixed = FixedSizeListBuilder::new(StringViewBuilder::new(), 2);
        let mut maps =
            MapBuilder::new(None, StringViewBuilder::new(), ListBuilder::new(StringViewBuilder::new()));
        for row in 0..rows {
            let texts = (0..row % 3).map(|at| Some(format!("{LONG} {row} {at}")));
            lists.append_option((row % 3 > 0).then(|| texts.clone()));
            large.append_option((row % 3 > 0).then(|| texts.clone()));
            fixed.values().append_value(LONG);
            fixed.values().append_null();
            fixed.append(row % 3 > 0);
            for text in texts.flatten() {
                maps.keys().append_value(&text);
                maps.values().append_value([Some(text)]);
            }
            maps.append(row % 3 > 0).unwrap();
        }
        let lists: ArrayRef = Arc::new(lists.finish());
        let fields = vec![Field::new("a", lists.data_type().clone(), true)];
        let structs = StructArray::new(fields.into(), vec![Arc::clone(&lists)], lists.nulls().cloned());
        let text = StringViewArray::from_iter((0..rows).map(|row| (row % 3 > 0).then_some(LONG)));
        let maps = Arc::new(maps.finish());
        vec![
            lists,
            Arc::new(large.finish()),
            Arc::new(fixed.finish()),
            maps,
            Arc::new(structs),
            Arc::new(text),
        ]
    }

    #[test]
    fn copies_hold_the_same_rows_in_little_more_than_their_bytes() {
        for array in nested(1000) {
            let pieces: Vec<ArrayRef> = (0..4).map(|at| array.slice(at * 3, 3)).collect();
            for pieces in [&pieces[..], &pieces[1..2]] {
                let copy = copied(pieces).unwrap();
                let start = if pieces.len() == 1 { 3 } else { 0 };
                assert_eq!(&copy, &array.slice(start, 3 * pieces.len()));
                copy.to_data().validate_full().unwrap();
                let (held, all) = (copy.get_buffer_memory_size(), array.get_buffer_memory_size());
                assert!(held < 4096 && all > 20_000, "{held} of {all} bytes of {}", array.data_type());
            }
        }
    }

    #[test]
    fn lists_whose_items_are_too_many_for_offsets_are_an_error() {
        let item = Arc::new(Field::new("item", DataType::Null, true));
        let lists = |items: i32| -> ArrayRef {
            let (offsets, items) = (OffsetBuffer::new(vec![0, items].into()), NullArray::new(items as usize));
            Arc::new(ListArray::new(Arc::clone(&item), offsets, Arc::new(items), None))
        };
        assert_eq!(copied(&[lists(1 << 30), lists((1 << 30) - 1)]).unwrap().len(), 2);
        let error = copied(&[lists(1 << 30), lists(1 << 30)]).unwrap_err().to_string();
        assert!(error.contains("lists of 2147483648 items"), "{error}");
        let field = vec![Field::new("lists", lists(0).data_type().clone(), true)];
        let nested = |items| StructArray::new(field.clone().into(), vec![lists(items)], None);
        assert!(copied(&[Arc::new(nested(i32::MAX)), Arc::new(nested(1))]).is_err());
    }

    #[test]
    fn memory_that_a_builder_reserved_is_not_copied() {
        let mut numbers = Int64Builder::new();
        numbers.append_value(7);
        let numbers: ArrayRef = Arc::new(numbers.finish());
        let copy = copied(std::slice::from_ref(&numbers)).unwrap();
        assert_eq!(&copy, &(Arc::new(Int64Array::from(vec![7])) as ArrayRef));
        assert!((copy.get_buffer_memory_size(), numbers.get_buffer_memory_size()) < (100, 8192));
    }
}
