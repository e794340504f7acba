//! Converts rows to the types in which they are taken in, their carrier types, as
//! [`restore`](crate::array::restore) converts them back.
//!
//! See [`dtype::stored`](crate::dtype::stored) for the carrier of each type.

use std::sync::Arc;

use arrow::array::{
    AnyDictionaryArray, Array as _, ArrayRef, AsArray as _, FixedSizeBinaryArray, FixedSizeListArray,
    GenericListArray, GenericListViewArray, LargeBinaryArray, LargeListArray, MapArray, OffsetSizeTrait,
    PrimitiveArray, StructArray, UInt64Array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat};
use arrow::datatypes::{
    ArrowNativeType as _, DataType, FieldRef, Fields, Int16Type, Int32Type, Int64Type, IntervalDayTimeType,
    IntervalMonthDayNanoType, IntervalUnit, RunEndIndexType,
};
use hashbrown::HashMap;

use super::hidden::fit_decimals;
use crate::array::masking::mask;
use crate::array::restore::{map_entries, renamed, without_nulls};
use crate::array::{has_empty_values, present, shown_items, take};
use crate::dtype::any_inner;
use crate::{Error, Result};

/// Items of views of lists are expanded together if there are at most so many for each that is shown.
const MAX_GAPS: usize = 4;

/// Converts an array to its carrier type: the [`plain_carrier`](crate::dtype::stored::plain_carrier) of
/// its type. Its decimals fit the width in which they are stored.
pub(crate) fn carry(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    fit_decimals(&carried(array, to)?, None)
}

fn carried(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let from = array.data_type();
    if from == to && !has_masked_fields(from) {
        return Ok(Arc::clone(array));
    }
    Ok(match (from, to) {
        (DataType::Dictionary(..), _) => carry_dictionary(array.as_any_dictionary(), to)?,
        (DataType::RunEndEncoded(ends, _), _) => match ends.data_type() {
            DataType::Int16 => carry_runs::<Int16Type>(array, to)?,
            DataType::Int32 => carry_runs::<Int32Type>(array, to)?,
            _ => carry_runs::<Int64Type>(array, to)?,
        },
        (DataType::Duration(_), DataType::Int64)
        | (DataType::Interval(IntervalUnit::YearMonth), DataType::Int32)
        | (DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, Some(_))) => renamed(array, to)?,
        (DataType::Interval(unit), DataType::Struct(fields)) => interval_parts(array, *unit, fields)?,
        (DataType::FixedSizeBinary(_), DataType::LargeBinary) => byte_strings(array.as_fixed_size_binary())?,
        (DataType::ListView(item), DataType::List(to_item)) if has_runs(item.data_type()) => {
            lists(&views_of_rows(array.as_list_view::<i32>(), to_item)?, to_item)?
        }
        (DataType::LargeListView(item), DataType::LargeList(to_item)) if has_runs(item.data_type()) => {
            lists(&views_of_rows(array.as_list_view::<i64>(), to_item)?, to_item)?
        }
        (DataType::ListView(item), _) => carried(&lists(array.as_list_view::<i32>(), item)?, to)?,
        (DataType::LargeListView(item), _) => carried(&lists(array.as_list_view::<i64>(), item)?, to)?,
        (DataType::List(_), DataType::List(item)) => carry_list(array.as_list::<i32>(), item)?,
        (DataType::LargeList(_), DataType::LargeList(item)) => carry_list(array.as_list::<i64>(), item)?,
        (DataType::FixedSizeList(..), DataType::LargeList(item) | DataType::FixedSizeList(item, _)) => {
            carry_fixed_size_list(array.as_fixed_size_list(), item, to)?
        }
        (DataType::Map(..), DataType::List(item) | DataType::Map(item, _)) => {
            carry_map(array.as_map(), item, to)?
        }
        (DataType::Struct(_), DataType::Struct(fields)) => carry_struct(array.as_struct(), fields)?,
        _ => present(Arc::clone(array), to)?,
    })
}

/// Replaces keys by values; text is not copied for each row but referenced by views.
fn carry_dictionary(dictionary: &dyn AnyDictionaryArray, to: &DataType) -> Result<ArrayRef> {
    if !is_text(dictionary.values().data_type()) {
        if has_runs(dictionary.values().data_type()) {
            return carry_dictionary_of_runs(dictionary, to);
        }
        // What null keys hide has the width of the type, as readers expect of fields that are not nullable.
        return carried(&take(dictionary.values(), dictionary.keys())?, to);
    }
    // A dictionary may be much longer than the slices of a batch that are taken in one after the other.
    if dictionary.values().len() / 2 > dictionary.len() {
        let (values, keys) = shown_values(dictionary)?;
        return take(&carried(&values, to)?, &keys);
    }
    take(&carried(dictionary.values(), to)?, dictionary.keys())
}

/// Expands the runs in the values of a dictionary before its keys. Arrow looks up what null keys hide in runs, which
/// may be anything, and panics if keys repeat more rows than ends can count, or if there are no keys.
fn carry_dictionary_of_runs(dictionary: &dyn AnyDictionaryArray, to: &DataType) -> Result<ArrayRef> {
    if dictionary.is_empty() || dictionary.values().is_empty() {
        // Fields that are not nullable get values.
        return carried(&new_null_array(to, dictionary.len()), to);
    }
    let (values, keys) = shown_values(dictionary)?;
    let (_, keys, nulls) = keys.into_parts();
    let rows = take(&carried(&values, to)?, &UInt64Array::new(keys, None))?;
    let Some(nulls) = nulls else { return Ok(rows) };
    match rows.as_struct_opt() {
        // Fields that are not nullable keep values.
        Some(structs) => {
            let nulls = NullBuffer::union(structs.nulls(), Some(&nulls));
            let (fields, columns) = (structs.fields().clone(), structs.columns().to_vec());
            Ok(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, rows.len())?))
        }
        None => mask(&rows, &nulls),
    }
}

fn has_runs(data_type: &DataType) -> bool {
    matches!(data_type, DataType::RunEndEncoded(..)) || any_inner(data_type, has_runs)
}

/// Whether values become views.
fn is_text(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(data_type, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
}

/// The values that rows of a dictionary show, and keys to these.
fn shown_values(dictionary: &dyn AnyDictionaryArray) -> Result<(ArrayRef, UInt64Array)> {
    let mut positions = HashMap::new();
    let mut shown = Vec::new();
    let keys = dictionary.normalized_keys().into_iter().map(|key| {
        *positions.entry(key).or_insert_with(|| {
            shown.push(key as u64);
            shown.len() as u64 - 1
        })
    });
    // Null keys were replaced by any key; they stay null.
    let keys = UInt64Array::new(keys.collect(), dictionary.keys().nulls().cloned());
    Ok((take(dictionary.values(), &UInt64Array::from(shown))?, keys))
}

/// Expands runs to rows; text is not copied for each row but referenced by views.
fn carry_runs<R: RunEndIndexType>(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let other = || Error::invalid(format!("runs of another kind than {}", array.data_type()));
    let runs = array.as_run_opt::<R>().ok_or_else(other)?;
    // The runs of these rows only: a batch may be taken in a few rows at a time.
    let first = runs.run_ends().get_start_physical_index();
    let mut rows = Vec::with_capacity(runs.len());
    let mut count = 0;
    for end in runs.run_ends().sliced_values() {
        rows.resize(end.as_usize(), count as u64);
        count += 1;
    }
    let (values, rows) = (runs.values().slice(first, count), UInt64Array::from(rows));
    if is_text(values.data_type()) || has_runs(values.data_type()) {
        return take(&carried(&values, to)?, &rows);
    }
    // What null rows hide has the width of the type, as in dictionaries.
    carried(&take(&values, &rows)?, to)
}

fn carry_list<O: OffsetSizeTrait>(lists: &GenericListArray<O>, item: &FieldRef) -> Result<ArrayRef> {
    let (_, offsets, values, nulls) = lists.clone().into_parts();
    let (offsets, values) = shown_items(offsets, values);
    let values = carried(&values, item.data_type())?;
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
}

fn carry_fixed_size_list(lists: &FixedSizeListArray, item: &FieldRef, to: &DataType) -> Result<ArrayRef> {
    let len = lists.len();
    let (_, size, values, nulls) = lists.clone().into_parts();
    let values = carry_field(&values, item)?;
    let item = Arc::clone(item);
    Ok(if let DataType::LargeList(_) = to {
        let size = usize::try_from(size).unwrap_or(0);
        let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(size, len));
        Arc::new(LargeListArray::try_new(item, offsets, values, nulls)?)
    } else {
        Arc::new(FixedSizeListArray::try_new_with_length(item, size, values, nulls, len)?)
    })
}

fn carry_map(maps: &MapArray, item: &FieldRef, to: &DataType) -> Result<ArrayRef> {
    let (_, offsets, entries, nulls, _) = maps.clone().into_parts();
    let (offsets, entries) = shown_items(offsets, Arc::new(entries));
    let entries = carried(&entries, item.data_type())?;
    let item = Arc::clone(item);
    Ok(if let DataType::Map(_, sorted) = to {
        Arc::new(MapArray::try_new(item, offsets, map_entries(&entries)?, nulls, *sorted)?)
    } else {
        Arc::new(GenericListArray::try_new(item, offsets, entries, nulls)?)
    })
}

fn carry_struct(structs: &StructArray, fields: &Fields) -> Result<ArrayRef> {
    let columns = structs.columns().iter().zip(fields).map(|(column, field)| carry_field(column, field));
    let (columns, nulls) = (columns.collect::<Result<Vec<_>>>()?, structs.nulls().cloned());
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, structs.len())?))
}

/// Carries the values of a field of structs, or the items of lists of a fixed size. Arrow allows those that
/// are not nullable to be null where the struct or list is; the format does not.
fn carry_field(values: &ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
    let values = carried(values, field.data_type())?;
    if field.is_nullable() { Ok(values) } else { without_nulls(values) }
}

/// The same views of carried items: runs are expanded before lists repeat them, since their ends may be too narrow
/// then. Only the items from the first to the last one that is shown are expanded, and only those shown if these are
/// few.
fn views_of_rows<O: OffsetSizeTrait>(
    views: &GenericListViewArray<O>,
    item: &FieldRef,
) -> Result<GenericListViewArray<O>> {
    let filled = || (0..views.len()).filter(|row| views.is_valid(*row) && views.value_size(*row) > O::zero());
    let range = |row: usize| {
        let start = views.value_offset(row).as_usize();
        start..start + views.value_size(row).as_usize()
    };
    let start = filled().map(|row| range(row).start).min().unwrap_or(0);
    let end = filled().map(|row| range(row).end).max().unwrap_or(start);
    let shown = filled().map(|row| range(row).len()).fold(0, usize::saturating_add);
    let (mut starts, mut sizes) = (vec![O::zero(); views.len()], vec![O::zero(); views.len()]);
    let too_many = || Error::limit(format!("views of items {start}..{end}"));
    let offset = |at: usize| O::from_usize(at).ok_or_else(too_many);
    let values = if end - start <= shown.saturating_mul(MAX_GAPS) {
        for row in filled() {
            (starts[row], sizes[row]) = (offset(range(row).start - start)?, views.value_size(row));
        }
        carried(&views.values().slice(start, end - start), item.data_type())?
    } else {
        let mut pieces = Vec::new();
        let mut len = 0;
        for row in filled() {
            let own = range(row);
            (starts[row], sizes[row]) = (offset(len)?, views.value_size(row));
            len += own.len();
            pieces.push(carried(&views.values().slice(own.start, own.len()), item.data_type())?);
        }
        concat(&pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>())?
    };
    let nulls = views.nulls().cloned();
    Ok(GenericListViewArray::try_new(Arc::clone(item), starts.into(), sizes.into(), values, nulls)?)
}

/// Lists over the unchanged items if these are consecutive; otherwise over copies.
fn lists<O: OffsetSizeTrait>(views: &GenericListViewArray<O>, item: &FieldRef) -> Result<ArrayRef> {
    let (starts, lengths) = (views.value_offsets(), views.value_sizes());
    let filled = || starts.iter().zip(lengths).filter(|(_, len)| **len > O::zero());
    let mut end = filled().next().map_or(O::zero(), |(start, _)| *start);
    let mut offsets = Vec::with_capacity(views.len() + 1);
    offsets.push(end);
    for (start, len) in starts.iter().zip(lengths) {
        if *len > O::zero() && *start != end {
            return if has_empty_values(item.data_type()) {
                copied_lists(views, item)
            } else {
                Ok(cast(views, &GenericListArray::<O>::DATA_TYPE_CONSTRUCTOR(Arc::clone(item)))?)
            };
        }
        end += *len;
        offsets.push(end);
    }
    let (offsets, nulls) = (OffsetBuffer::new(offsets.into()), views.nulls().cloned());
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, Arc::clone(views.values()), nulls)?))
}

/// Lists over copies of items that take no bytes, which Arrow's cast loses.
fn copied_lists<O: OffsetSizeTrait>(views: &GenericListViewArray<O>, item: &FieldRef) -> Result<ArrayRef> {
    let mut items = Vec::new();
    let mut offsets = Vec::with_capacity(views.len() + 1);
    offsets.push(O::zero());
    for row in 0..views.len() {
        if views.is_valid(row) {
            let start = views.value_offset(row).as_usize() as u64;
            items.extend((start..).take(views.value_size(row).as_usize()));
        }
        let too_many = || Error::limit(format!("lists of {} items in one batch", items.len()));
        offsets.push(O::from_usize(items.len()).ok_or_else(too_many)?);
    }
    let values = take(views.values(), &UInt64Array::from(items))?;
    let (offsets, nulls) = (OffsetBuffer::new(offsets.into()), views.nulls().cloned());
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
}

/// Whether a non-nullable field may have nulls because an enclosing struct or list of a fixed size has some.
fn has_masked_fields(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(_) => true,
        DataType::FixedSizeList(item, _) if !item.is_nullable() => true,
        other => any_inner(other, has_masked_fields),
    }
}

fn byte_strings(array: &FixedSizeBinaryArray) -> Result<ArrayRef> {
    let width = usize::try_from(array.value_length()).unwrap_or(0);
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(width, array.len()));
    // Values under null rows need not be stored, but storing them does no harm.
    let values = array.values().clone();
    Ok(Arc::new(LargeBinaryArray::try_new(offsets, values, array.nulls().cloned())?))
}

fn interval_parts(array: &ArrayRef, unit: IntervalUnit, fields: &Fields) -> Result<ArrayRef> {
    let ints = |values: Vec<i32>| Arc::new(PrimitiveArray::<Int32Type>::from(values)) as ArrayRef;
    let columns = match unit {
        IntervalUnit::DayTime => {
            let values = array.as_primitive::<IntervalDayTimeType>().values();
            let days = values.iter().map(|v| v.days).collect();
            vec![ints(days), ints(values.iter().map(|v| v.milliseconds).collect())]
        }
        IntervalUnit::MonthDayNano => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>().values();
            let months = values.iter().map(|v| v.months).collect();
            let days = values.iter().map(|v| v.days).collect();
            let nanos: Vec<i64> = values.iter().map(|v| v.nanoseconds).collect();
            vec![ints(months), ints(days), Arc::new(PrimitiveArray::<Int64Type>::from(nanos))]
        }
        IntervalUnit::YearMonth => return Err(Error::invalid("an interval of one part")),
    };
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns, array.nulls().cloned())?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        DictionaryArray, FixedSizeBinaryArray, Int8Array, Int32Array, Int64Array, ListViewArray, RunArray,
        StringArray, new_empty_array,
    };
    use arrow::buffer::{Buffer, ScalarBuffer};
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn fields_of_structs_behind_null_keys_are_not_null() {
        let field = Arc::new(Field::new("a", DataType::Int64, false));
        let structs = StructArray::from(vec![(field, Arc::new(Int64Array::from(vec![1])) as ArrayRef)]);
        let to = structs.data_type().clone();
        let keys = Int8Array::from(vec![Some(0), None]);
        let dictionary = DictionaryArray::new(keys, Arc::new(structs));
        let carried = carry(&(Arc::new(dictionary) as ArrayRef), &to).unwrap();
        assert_eq!((carried.null_count(), carried.as_struct().column(0).null_count()), (1, 0));
    }

    #[test]
    fn fields_of_structs_behind_keys_of_no_values_are_not_null() {
        let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1]), &Int64Array::from(vec![7]));
        let field = Field::new("a", runs.unwrap().data_type().clone(), false);
        let nothing = new_empty_array(&DataType::Struct(vec![field].into()));
        let dictionary: ArrayRef = Arc::new(DictionaryArray::new(Int8Array::from(vec![None, None]), nothing));
        let to = DataType::Struct(vec![Field::new("a", DataType::Int64, false)].into());
        let rows = carry(&dictionary, &to).unwrap();
        assert_eq!((rows.null_count(), rows.as_struct().column(0).null_count()), (2, 0));
    }

    #[test]
    fn values_of_runs_that_null_lists_hide_have_their_width() {
        let values = [Some(b"abcd"), None].into_iter();
        let values = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 4).unwrap();
        let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 4]), &values).unwrap();
        let item = Arc::new(Field::new("item", runs.data_type().clone(), false));
        let nulls = Some(vec![true, false].into());
        let lists = FixedSizeListArray::try_new_with_length(item, 2, Arc::new(runs), nulls, 2).unwrap();
        let item = Arc::new(Field::new("item", DataType::LargeBinary, false));
        let to = DataType::FixedSizeList(item, 2);
        let rows = carry(&(Arc::new(lists) as ArrayRef), &to).unwrap();
        let items = rows.as_fixed_size_list().values().as_binary::<i64>().clone();
        assert_eq!((items.null_count(), items.value(1), items.value_length(3)), (0, b"abcd".as_slice(), 4));
    }

    #[test]
    fn runs_in_structs_are_not_looked_up_for_what_null_keys_hide() {
        let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1]), &Int64Array::from(vec![7]));
        let runs: ArrayRef = Arc::new(runs.unwrap());
        let field = Arc::new(Field::new("a", runs.data_type().clone(), true));
        let structs: ArrayRef = Arc::new(StructArray::from(vec![(field, runs)]));
        let to = DataType::Struct(vec![Field::new("a", DataType::Int64, true)].into());
        for (values, keys, valid) in [
            (&structs, vec![0, 5], vec![true, false]),
            (&new_empty_array(structs.data_type()), vec![5], vec![false]),
        ] {
            let keys = Int8Array::new(keys.into(), Some(valid.clone().into()));
            let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::clone(values)));
            let rows = carry(&dictionary, &to).unwrap();
            assert_eq!((0..rows.len()).map(|row| rows.is_valid(row)).collect::<Vec<_>>(), valid);
            let numbers = rows.as_struct().column(0);
            assert!(rows.is_null(0) || numbers.as_primitive::<Int64Type>().value(0) == 7);
        }
    }

    #[test]
    fn slices_show_the_same_rows_as_the_whole() {
        let texts: ArrayRef = Arc::new(StringArray::from_iter(
            (0..5000).map(|at| (at % 7 != 0).then(|| format!("the value of number {at}"))),
        ));
        let keys = (0..3000).map(|row| (row % 11 != 0).then_some(row * 37 % 5000));
        let dictionary = DictionaryArray::new(Int32Array::from_iter(keys), Arc::clone(&texts));
        let ends = Int32Array::from_iter_values((1..=5000).map(|run| run * 3 / 2));
        let runs = RunArray::<Int32Type>::try_new(&ends, &texts).unwrap();
        for array in [Arc::new(dictionary) as ArrayRef, Arc::new(runs)] {
            let whole = carry(&array, &DataType::Utf8View).unwrap();
            for (start, len) in
                [(0, 0), (0, 1), (5, 1), (1, 100), (1234, 777), (2999, 1), (3000, 0), (0, 3000)]
            {
                let rows = carry(&array.slice(start, len), &DataType::Utf8View).unwrap();
                assert_eq!(&rows, &whole.slice(start, len), "{start}, {len}");
            }
        }
    }

    #[test]
    fn slices_of_lists_have_their_own_items() {
        let texts = Arc::new(StringArray::from_iter_values((0..100).map(|at| at.to_string())));
        let item = |of: &DataType| Arc::new(Field::new("item", of.clone(), true));
        let offsets = OffsetBuffer::from_lengths([10; 10]);
        let lists = GenericListArray::<i32>::new(item(&DataType::Utf8), offsets, texts, None);
        let lists: ArrayRef = Arc::new(lists);
        let to = DataType::List(item(&DataType::Utf8View));
        let rows = carry(&lists.slice(3, 2), &to).unwrap();
        assert_eq!(&rows, &carry(&lists, &to).unwrap().slice(3, 2));
        assert_eq!(rows.as_list::<i32>().values().len(), 20);
    }

    #[test]
    fn few_rows_do_not_pay_for_values_that_they_do_not_show() {
        let texts = StringArray::from_iter_values((0..10_000).map(|at| format!("the value of number {at}")));
        let keys = Int32Array::from(vec![7, 9000, 7]);
        let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(texts)));
        let rows = carry(&dictionary, &DataType::Utf8View).unwrap();
        assert!(rows.get_buffer_memory_size() < 1000, "{}", rows.get_buffer_memory_size());
    }

    #[test]
    fn list_views_in_any_order_keep_items_that_take_no_bytes() {
        let nothing = new_empty_array(&DataType::Int64);
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let empty = FixedSizeListArray::try_new_with_length(item, 0, nothing, None, 3).unwrap();
        let bytes = FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), None, 3).unwrap();
        for items in [Arc::new(empty) as ArrayRef, Arc::new(bytes)] {
            let item = Arc::new(Field::new("item", items.data_type().clone(), true));
            let (starts, lengths) = (ScalarBuffer::from(vec![1, 0]), ScalarBuffer::from(vec![2, 1]));
            let views = ListViewArray::try_new(Arc::clone(&item), starts, lengths, items, None).unwrap();
            let copies = lists(&views, &item).unwrap();
            assert_eq!(copies.as_list::<i32>().value_offsets(), [0, 2, 3]);
            assert_eq!(copies.as_list::<i32>().values().len(), 3);
        }
    }
}
