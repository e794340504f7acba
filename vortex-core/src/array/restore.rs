//! Converts Arrow arrays between the types that they are written and read in, and their carrier types.
//!
//! See [`dtype::stored`](crate::dtype::stored) for the carrier of each type. Both directions preserve the
//! values; reading checks what the types do not guarantee.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayData, ArrayRef as ArrowRef, AsArray as _, FixedSizeBinaryArray, FixedSizeListArray,
    GenericListArray, GenericListViewArray, IntervalDayTimeArray, IntervalMonthDayNanoArray,
    LargeBinaryArray, LargeListArray, MapArray, OffsetSizeTrait, PrimitiveArray, StructArray, UInt64Array,
    make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::{cast, partition};
use arrow::datatypes::{
    ArrowNativeType as _, DataType, FieldRef, Fields, Int16Type, Int32Type, Int64Type, IntervalDayTime,
    IntervalDayTimeType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, RunEndIndexType,
};

use super::hidden::fit_decimals;
use super::row_bytes::reserved_bytes;
use super::taking::has_empty_values;
use super::{EncodedArray, present, take};
use crate::dtype::DType;
use crate::dtype::stored::carrier;
use crate::limits::Limits;
use crate::{Error, Result};

/// Whether [`decode_as`] decodes arrays of type `dtype` into the Arrow type `to`, as far as types tell.
pub fn can_decode_as(dtype: &DType, to: &DataType) -> bool {
    carrier(dtype, to).is_some()
}

/// Decodes all rows into the Arrow type `to`, even if the format has no such type, as for durations,
/// which are stored as integers.
///
/// # Errors
/// If `to` cannot represent the values of the array's type, or as [`EncodedArray::decode`].
pub fn decode_as(array: &dyn EncodedArray, to: &DataType) -> Result<ArrowRef> {
    let carrier = carrier(array.dtype(), to)
        .ok_or_else(|| Error::invalid(format!("{} cannot be read as {to}", array.dtype())))?;
    restore(&array.decode(&carrier)?, to, &array.limits())
}

/// Converts the carrier array to the requested type, which a file may choose, too: values of a fixed size
/// take bytes even if they are null.
pub(crate) fn restore(array: &ArrowRef, to: &DataType, limits: &Limits) -> Result<ArrowRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    Ok(match (array.data_type(), to) {
        (_, DataType::Dictionary(_, values)) => cast(&restore(array, values, limits)?, to)?,
        (_, DataType::RunEndEncoded(ends, values)) => match ends.data_type() {
            DataType::Int16 => runs::<Int16Type>(array, to, values, limits)?,
            DataType::Int32 => runs::<Int32Type>(array, to, values, limits)?,
            _ => runs::<Int64Type>(array, to, values, limits)?,
        },
        (DataType::Int64, DataType::Duration(_))
        | (DataType::Int32, DataType::Interval(IntervalUnit::YearMonth)) => renamed(array, to)?,
        (DataType::Struct(_), DataType::Interval(unit)) => interval(array.as_struct(), *unit)?,
        (DataType::LargeBinary, DataType::FixedSizeBinary(width)) => {
            fixed_size_binary(array.as_binary(), *width, limits)?
        }
        (DataType::List(_), DataType::List(_)) => list(array.as_list::<i32>(), to, limits)?,
        (DataType::LargeList(_), DataType::LargeList(_)) => list(array.as_list::<i64>(), to, limits)?,
        (DataType::LargeList(_), DataType::List(item)) => {
            // Arrow's cast loses the rows of fixed-size lists of size zero among the items.
            let lists = array.as_list::<i64>();
            let offsets = lists.value_offsets();
            let (first, last) = (offsets[0], offsets[lists.len()]);
            let items = last - first;
            if i32::try_from(items).is_err() {
                return Err(Error::limit(format!(
                    "lists of {items} items in one chunk, {} allowed",
                    i32::MAX
                )));
            }
            // No offset exceeds the last one, which fits.
            let offsets = offsets.iter().map(|offset| (offset - first) as i32).collect();
            let values = lists.values().slice(first.as_usize(), (last - first).as_usize());
            let (values, nulls) = (restore(&values, item.data_type(), limits)?, lists.nulls().cloned());
            Arc::new(GenericListArray::try_new(Arc::clone(item), OffsetBuffer::new(offsets), values, nulls)?)
        }
        (DataType::LargeList(_), DataType::FixedSizeList(..)) => {
            fixed_size_list(array.as_list(), to, limits)?
        }
        (DataType::ListView(_), DataType::ListView(item)) => {
            list_views(array.as_list_view::<i32>(), item, limits)?
        }
        (DataType::LargeListView(_), DataType::LargeListView(item)) => {
            list_views(array.as_list_view::<i64>(), item, limits)?
        }
        (
            DataType::ListView(_) | DataType::LargeListView(_),
            DataType::ListView(item) | DataType::LargeListView(item),
        ) => {
            let lists = DataType::LargeList(Arc::clone(item));
            let inner = match array.data_type() {
                DataType::ListView(item) | DataType::LargeListView(item) => Arc::clone(item),
                _ => Arc::clone(item),
            };
            let carried = present(Arc::clone(array), &DataType::LargeList(inner))?;
            present(restore(&carried, &lists, limits)?, to)?
        }
        (DataType::List(_), DataType::Map(entries, sorted)) => {
            let entries_type = DataType::List(Arc::clone(entries));
            let lists = restore(array, &entries_type, limits)?;
            let (_, offsets, values, nulls) = lists.as_list::<i32>().clone().into_parts();
            let values = map_entries(&values)?;
            Arc::new(MapArray::try_new(Arc::clone(entries), offsets, values, nulls, *sorted)?)
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let (_, offsets, values, nulls, _) = array.as_map().clone().into_parts();
            let values = restore(&(Arc::new(values) as ArrowRef), entries.data_type(), limits)?;
            let values = map_entries(&values)?;
            Arc::new(MapArray::try_new(Arc::clone(entries), offsets, values, nulls, *sorted)?)
        }
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, size)) => {
            let (_, _, values, nulls) = array.as_fixed_size_list().clone().into_parts();
            let values = restore(&values, item.data_type(), limits)?;
            let len = array.len();
            Arc::new(FixedSizeListArray::try_new_with_length(Arc::clone(item), *size, values, nulls, len)?)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => structure(array.as_struct(), fields, limits)?,
        _ => present(Arc::clone(array), to)?,
    })
}

/// The runs of equal rows. Arrow's cast loses values that take no bytes.
///
/// # Errors
/// If the ends of runs cannot count the rows: scans then decode fewer at once.
fn runs<R: RunEndIndexType>(
    rows: &ArrowRef,
    to: &DataType,
    values: &FieldRef,
    limits: &Limits,
) -> Result<ArrowRef> {
    let len = rows.len();
    if R::Native::from_usize(len).is_none() {
        return Err(Error::limit(format!("{len} rows in runs whose ends are {}", R::DATA_TYPE)));
    }
    let runs = partition(std::slice::from_ref(rows))?.ranges();
    let starts = UInt64Array::from_iter_values(runs.iter().map(|run| run.start as u64));
    let ends = PrimitiveArray::<R>::from_iter_values(runs.iter().map(|run| R::Native::usize_as(run.end)));
    let values = restore(&take(rows, &starts)?, values.data_type(), limits)?;
    let children = vec![ends.into_data(), values.to_data()];
    Ok(make_array(ArrayData::builder(to.clone()).len(len).child_data(children).build()?))
}

/// The entries of a map, whose type the caller may have chosen.
fn map_entries(values: &ArrowRef) -> Result<StructArray> {
    let no_struct = || Error::invalid(format!("a map with entries of type {}", values.data_type()));
    values.as_struct_opt().cloned().ok_or_else(no_struct)
}

/// Converts an array to its carrier type: the [`plain_carrier`](crate::dtype::stored::plain_carrier) of
/// its type. Its decimals fit the width in which they are stored.
pub(crate) fn carry(array: &ArrowRef, to: &DataType) -> Result<ArrowRef> {
    fit_decimals(&carried(array, to)?, None)
}

fn carried(array: &ArrowRef, to: &DataType) -> Result<ArrowRef> {
    let from = array.data_type();
    if from == to && !has_masked_fields(from) {
        return Ok(Arc::clone(array));
    }
    Ok(match (from, to) {
        (DataType::Dictionary(..), _) => {
            let dictionary = array.as_any_dictionary();
            let rows = take(&carried(dictionary.values(), to)?, dictionary.keys())?;
            // A null key makes the fields of a struct null as well, even those that are not nullable.
            if has_masked_fields(to) { carried(&rows, to)? } else { rows }
        }
        (DataType::RunEndEncoded(ends, _), _) => match ends.data_type() {
            DataType::Int16 => carry_runs::<Int16Type>(array, to)?,
            DataType::Int32 => carry_runs::<Int32Type>(array, to)?,
            _ => carry_runs::<Int64Type>(array, to)?,
        },
        (DataType::Duration(_), DataType::Int64)
        | (DataType::Interval(IntervalUnit::YearMonth), DataType::Int32) => renamed(array, to)?,
        (DataType::Interval(unit), DataType::Struct(fields)) => interval_parts(array, *unit, fields)?,
        (DataType::FixedSizeBinary(_), DataType::LargeBinary) => byte_strings(array.as_fixed_size_binary())?,
        (DataType::ListView(item), _) => carried(&lists(array.as_list_view::<i32>(), item)?, to)?,
        (DataType::LargeListView(item), _) => carried(&lists(array.as_list_view::<i64>(), item)?, to)?,
        (DataType::List(_), DataType::List(item)) => {
            let (_, offsets, values, nulls) = array.as_list::<i32>().clone().into_parts();
            let values = carried(&values, item.data_type())?;
            Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
        }
        (DataType::LargeList(_), DataType::LargeList(item)) => {
            let (_, offsets, values, nulls) = array.as_list::<i64>().clone().into_parts();
            let values = carried(&values, item.data_type())?;
            Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
        }
        (DataType::FixedSizeList(_, size), DataType::LargeList(item)) => {
            let (_, _, values, nulls) = array.as_fixed_size_list().clone().into_parts();
            let values = carry_field(&values, item)?;
            let size = usize::try_from(*size).unwrap_or(0);
            let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(size, array.len()));
            Arc::new(LargeListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
        }
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, size)) => {
            let (_, _, values, nulls) = array.as_fixed_size_list().clone().into_parts();
            let values = carry_field(&values, item)?;
            let len = array.len();
            Arc::new(FixedSizeListArray::try_new_with_length(Arc::clone(item), *size, values, nulls, len)?)
        }
        (DataType::Map(..), DataType::List(item) | DataType::Map(item, _)) => {
            let (_, offsets, values, nulls, _) = array.as_map().clone().into_parts();
            let values = carried(&(Arc::new(values) as ArrowRef), item.data_type())?;
            if let DataType::Map(_, sorted) = to {
                let values = map_entries(&values)?;
                Arc::new(MapArray::try_new(Arc::clone(item), offsets, values, nulls, *sorted)?)
            } else {
                Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
            }
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let array = array.as_struct();
            let columns =
                array.columns().iter().zip(fields).map(|(column, field)| carry_field(column, field));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let (fields, nulls) = (fields.clone(), array.nulls().cloned());
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, array.len())?)
        }
        _ => present(Arc::clone(array), to)?,
    })
}

/// Carries the values of a field of structs, or the items of lists of a fixed size. Arrow allows those that
/// are not nullable to be null where the struct or list is; the format does not.
fn carry_field(values: &ArrowRef, field: &FieldRef) -> Result<ArrowRef> {
    let values = carried(values, field.data_type())?;
    if field.is_nullable() { Ok(values) } else { without_nulls(values) }
}

/// Expands runs to rows; text is not copied for each row but referenced by views.
fn carry_runs<R: RunEndIndexType>(array: &ArrowRef, to: &DataType) -> Result<ArrowRef> {
    let other = || Error::invalid(format!("runs of another kind than {}", array.data_type()));
    let runs = array.as_run_opt::<R>().ok_or_else(other)?;
    let ends = runs.run_ends();
    let mut rows = Vec::with_capacity(runs.len());
    for (run, end) in ends.values().iter().enumerate().skip(ends.get_start_physical_index()) {
        let end = end.as_usize().saturating_sub(ends.offset()).min(runs.len());
        rows.resize(end.max(rows.len()), run as u64);
    }
    take(&carried(runs.values(), to)?, &UInt64Array::from(rows))
}

/// The same views of restored items.
fn list_views<O: OffsetSizeTrait>(
    array: &GenericListViewArray<O>,
    item: &FieldRef,
    limits: &Limits,
) -> Result<ArrowRef> {
    let (_, offsets, sizes, values, nulls) = array.clone().into_parts();
    let values = restore(&values, item.data_type(), limits)?;
    Ok(Arc::new(GenericListViewArray::try_new(Arc::clone(item), offsets, sizes, values, nulls)?))
}

/// Lists over the unchanged items if these are consecutive; otherwise over copies.
fn lists<O: OffsetSizeTrait>(views: &GenericListViewArray<O>, item: &FieldRef) -> Result<ArrowRef> {
    let (starts, lengths) = (views.value_offsets(), views.value_sizes());
    let filled = || starts.iter().zip(lengths).filter(|(_, len)| **len > O::zero());
    let mut end = filled().next().map_or(O::zero(), |(start, _)| *start);
    let mut offsets = Vec::with_capacity(views.len() + 1);
    offsets.push(end);
    for (start, len) in starts.iter().zip(lengths) {
        if *len > O::zero() && *start != end {
            return match has_empty_values(item.data_type()) {
                true => copied_lists(views, item),
                false => Ok(cast(views, &GenericListArray::<O>::DATA_TYPE_CONSTRUCTOR(Arc::clone(item)))?),
            };
        }
        end += *len;
        offsets.push(end);
    }
    let (offsets, nulls) = (OffsetBuffer::new(offsets.into()), views.nulls().cloned());
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, Arc::clone(views.values()), nulls)?))
}

/// Lists over copies of items that take no bytes, which Arrow's cast loses.
fn copied_lists<O: OffsetSizeTrait>(views: &GenericListViewArray<O>, item: &FieldRef) -> Result<ArrowRef> {
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
        DataType::FixedSizeList(item, _) => !item.is_nullable() || has_masked_fields(item.data_type()),
        DataType::List(item) | DataType::LargeList(item) => has_masked_fields(item.data_type()),
        DataType::Map(entries, _) => has_masked_fields(entries.data_type()),
        _ => false,
    }
}

fn without_nulls(array: ArrowRef) -> Result<ArrowRef> {
    if array.nulls().is_none() {
        return Ok(array);
    }
    Ok(make_array(array.to_data().into_builder().nulls(None).build()?))
}

/// The same bytes with another type of the same width.
fn renamed(array: &ArrowRef, to: &DataType) -> Result<ArrowRef> {
    Ok(make_array(array.to_data().into_builder().data_type(to.clone()).build()?))
}

fn structure(array: &StructArray, fields: &Fields, limits: &Limits) -> Result<ArrowRef> {
    let columns =
        array.columns().iter().zip(fields).map(|(column, to)| restore(column, to.data_type(), limits));
    let (columns, nulls) = (columns.collect::<Result<Vec<_>>>()?, array.nulls().cloned());
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())?))
}

fn list<O: OffsetSizeTrait>(array: &GenericListArray<O>, to: &DataType, limits: &Limits) -> Result<ArrowRef> {
    let (DataType::List(item) | DataType::LargeList(item)) = to else {
        return Err(Error::invalid(format!("a list cannot be read as {to}")));
    };
    let (_, offsets, values, nulls) = array.clone().into_parts();
    let values = restore(&values, item.data_type(), limits)?;
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
}

/// Lists of a fixed size, which every valid row must have. Null rows get arbitrary elements.
fn fixed_size_list(array: &LargeListArray, to: &DataType, limits: &Limits) -> Result<ArrowRef> {
    let DataType::FixedSizeList(item, size) = to else {
        return Err(Error::invalid(format!("a list cannot be read as {to}")));
    };
    let DataType::LargeList(carried) = array.data_type() else {
        return Err(Error::invalid("a list of another kind"));
    };
    let size_of_row = usize::try_from(*size).unwrap_or(0);
    let first = array.value_offsets()[0];
    let in_place = (0..array.len()).all(|row| array.value_length(row).as_usize() == size_of_row);
    let values = if in_place {
        array.values().slice(first.as_usize(), array.len() * size_of_row)
    } else {
        // Null rows take as many elements as others.
        let width = size_of::<Option<i64>>();
        let elements = limits.decoded_bytes(array.len(), size_of_row.saturating_mul(width))? / width;
        let bytes = reserved_bytes(carried.data_type(), elements as u64);
        limits.decoded_bytes(usize::try_from(bytes).unwrap_or(usize::MAX), 1)?;
        let mut indices = Vec::with_capacity(elements);
        for row in 0..array.len() {
            let (start, len) = (array.value_offsets()[row], array.value_length(row).as_usize());
            if len == size_of_row {
                indices.extend((start..).take(size_of_row).map(Some));
            } else if array.is_null(row) {
                indices.extend(std::iter::repeat_n(None, size_of_row));
            } else {
                return Err(Error::corrupt(format!("a list of {len} elements, expected {size}")));
            }
        }
        let indices = PrimitiveArray::<Int64Type>::from(indices);
        let values = take(array.values(), &indices)?;
        if carried.is_nullable() { values } else { without_nulls(values)? }
    };
    let values = restore(&values, item.data_type(), limits)?;
    let nulls = array.nulls().cloned();
    Ok(Arc::new(FixedSizeListArray::try_new_with_length(
        Arc::clone(item),
        *size,
        values,
        nulls,
        array.len(),
    )?))
}

fn fixed_size_binary(array: &LargeBinaryArray, width: i32, limits: &Limits) -> Result<ArrowRef> {
    let bytes_of_row = usize::try_from(width).unwrap_or(0);
    let mut bytes = Vec::with_capacity(limits.decoded_bytes(array.len(), bytes_of_row)?);
    for row in 0..array.len() {
        match array.value(row) {
            _ if array.is_null(row) => bytes.resize(bytes.len() + bytes_of_row, 0),
            value if value.len() == bytes_of_row => bytes.extend_from_slice(value),
            value => {
                return Err(Error::corrupt(format!("a value of {} bytes, expected {width}", value.len())));
            }
        }
    }
    let (values, nulls) = (Buffer::from(bytes), array.nulls().cloned());
    Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(width, values, nulls, array.len())?))
}

fn byte_strings(array: &FixedSizeBinaryArray) -> Result<ArrowRef> {
    let width = usize::try_from(array.value_length()).unwrap_or(0);
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(width, array.len()));
    // Values under null rows need not be stored, but storing them does no harm.
    let values = array.values().clone();
    Ok(Arc::new(LargeBinaryArray::try_new(offsets, values, array.nulls().cloned())?))
}

fn interval(parts: &StructArray, unit: IntervalUnit) -> Result<ArrowRef> {
    let missing = || Error::invalid("an interval without its parts");
    let ints = |at: usize| parts.column(at).as_primitive_opt::<Int32Type>().ok_or_else(missing);
    let nulls: Option<NullBuffer> = parts.nulls().cloned();
    match (unit, parts.num_columns()) {
        (IntervalUnit::DayTime, 2) => {
            let (days, milliseconds) = (ints(0)?.values(), ints(1)?.values());
            let values = days.iter().zip(milliseconds).map(|(d, m)| IntervalDayTime::new(*d, *m));
            Ok(Arc::new(IntervalDayTimeArray::try_new(values.collect(), nulls)?))
        }
        (IntervalUnit::MonthDayNano, 3) => {
            let (months, days) = (ints(0)?.values(), ints(1)?.values());
            let nanos = parts.column(2).as_primitive_opt::<Int64Type>().ok_or_else(missing)?.values();
            let values = months.iter().zip(days).zip(nanos);
            let values = values.map(|((m, d), n)| IntervalMonthDayNano::new(*m, *d, *n));
            Ok(Arc::new(IntervalMonthDayNanoArray::try_new(values.collect(), nulls)?))
        }
        _ => Err(missing()),
    }
}

fn interval_parts(array: &ArrowRef, unit: IntervalUnit, fields: &Fields) -> Result<ArrowRef> {
    let ints = |values: Vec<i32>| Arc::new(PrimitiveArray::<Int32Type>::from(values)) as ArrowRef;
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
        DictionaryArray, Int8Array, Int64Array, ListArray, ListViewArray, new_empty_array, new_null_array,
    };
    use arrow::buffer::ScalarBuffer;
    use arrow::datatypes::Field;

    use super::*;
    use crate::array::Decoded;
    use crate::limits::Work;

    #[test]
    fn null_rows_of_a_huge_fixed_size_are_not_reserved() {
        let bytes = new_null_array(&DataType::LargeBinary, 8192);
        let bytes = Decoded::new(DType::Binary(true), bytes);
        assert!(decode_as(&bytes, &DataType::FixedSizeBinary(i32::MAX)).is_err());
        assert_eq!(decode_as(&bytes, &DataType::FixedSizeBinary(16)).unwrap().len(), 8192);

        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let lists = new_null_array(&DataType::LargeList(Arc::clone(&item)), 8192);
        let dtype = DType::List(Arc::new(DType::Primitive(crate::dtype::PType::I64, true)), true);
        let lists = Decoded::new(dtype, lists);
        let of_size = |size| DataType::FixedSizeList(Arc::clone(&item), size);
        assert!(decode_as(&lists, &of_size(i32::MAX)).is_err());
        assert_eq!(decode_as(&lists, &of_size(3)).unwrap().len(), 8192);
    }

    #[test]
    fn elements_of_null_rows_count_once_and_so_do_their_indices() {
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let lists = new_null_array(&DataType::LargeList(Arc::clone(&item)), 100);
        let fixed = DataType::FixedSizeList(item, 2);
        let within = |bytes| {
            let _work = Work::begin();
            restore(&lists, &fixed, &Limits::new().with_max_decoded_bytes(bytes))
        };
        assert_eq!(within(200 * (8 + 16)).unwrap().len(), 100);
        assert!(within(200 * (8 + 16) - 1).is_err());
    }

    #[test]
    fn fields_of_structs_behind_null_keys_are_not_null() {
        let field = Arc::new(Field::new("a", DataType::Int64, false));
        let structs = StructArray::from(vec![(field, Arc::new(Int64Array::from(vec![1])) as ArrowRef)]);
        let to = structs.data_type().clone();
        let keys = Int8Array::from(vec![Some(0), None]);
        let dictionary = DictionaryArray::new(keys, Arc::new(structs));
        let carried = carry(&(Arc::new(dictionary) as ArrowRef), &to).unwrap();
        assert_eq!((carried.null_count(), carried.as_struct().column(0).null_count()), (1, 0));
    }

    fn runs_of(ends: DataType, values: DataType) -> DataType {
        let ends = Arc::new(Field::new("run_ends", ends, false));
        DataType::RunEndEncoded(ends, Arc::new(Field::new("values", values, true)))
    }

    #[test]
    fn runs_have_as_many_rows_as_their_ends_can_count() {
        let rows = |len: i64| Arc::new(Int64Array::from_iter_values((0..len).map(|n| n / 100))) as ArrowRef;
        let short = runs_of(DataType::Int16, DataType::Int64);
        let restored = restore(&rows(32_767), &short, &Limits::default()).unwrap();
        assert_eq!(restored.data_type(), &short);
        assert_eq!(&cast(&restored, &DataType::Int64).unwrap(), &rows(32_767));
        let error = restore(&rows(32_768), &short, &Limits::default()).unwrap_err();
        assert!(matches!(error, Error::LimitExceeded(_)), "so that fewer rows are decoded at once: {error}");
        let long = runs_of(DataType::Int32, DataType::Int64);
        assert_eq!(restore(&rows(32_768), &long, &Limits::default()).unwrap().len(), 32_768);
        assert_eq!(restore(&rows(0), &long, &Limits::default()).unwrap().data_type(), &long);
    }

    #[test]
    fn runs_of_values_that_take_no_bytes_keep_their_rows() {
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        for values in [DataType::FixedSizeBinary(0), DataType::FixedSizeList(item, 0)] {
            let to = runs_of(DataType::Int32, values.clone());
            let dtype = crate::dtype::arrow::from_field(&Field::new("x", values.clone(), true));
            let dtype = dtype.unwrap_or(DType::Binary(true));
            let nulls = NullBuffer::from(vec![true, true, false, true]);
            let rows: ArrowRef = match values {
                DataType::FixedSizeList(item, _) => {
                    let nothing = new_empty_array(&DataType::Int64);
                    let lists = FixedSizeListArray::try_new_with_length(item, 0, nothing, Some(nulls), 4);
                    Arc::new(lists.unwrap())
                }
                _ => {
                    let offsets = OffsetBuffer::from_lengths([0; 4]);
                    Arc::new(LargeBinaryArray::new(offsets, Buffer::default(), Some(nulls)))
                }
            };
            let restored = decode_as(&Decoded::new(dtype, rows), &to).unwrap();
            assert_eq!((restored.len(), restored.logical_null_count()), (4, 1), "{to}");
            assert_eq!(restored.as_run::<Int32Type>().values().len(), 3, "{to}");
        }
    }

    #[test]
    fn list_views_in_any_order_keep_items_that_take_no_bytes() {
        let nothing = new_empty_array(&DataType::Int64);
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let empty = FixedSizeListArray::try_new_with_length(item, 0, nothing, None, 3).unwrap();
        let bytes = FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), None, 3).unwrap();
        for items in [Arc::new(empty) as ArrowRef, Arc::new(bytes)] {
            let item = Arc::new(Field::new("item", items.data_type().clone(), true));
            let (starts, lengths) = (ScalarBuffer::from(vec![1, 0]), ScalarBuffer::from(vec![2, 1]));
            let views = ListViewArray::try_new(Arc::clone(&item), starts, lengths, items, None).unwrap();
            let copies = lists(&views, &item).unwrap();
            assert_eq!(copies.as_list::<i32>().value_offsets(), [0, 2, 3]);
            assert_eq!(copies.as_list::<i32>().values().len(), 3);
        }
    }

    #[test]
    fn a_map_needs_entries() {
        let item = Arc::new(Field::new("entries", DataType::Int32, false));
        let lists = ListArray::new_null(Arc::clone(&item), 2);
        let map = DataType::Map(item, false);
        assert!(restore(&(Arc::new(lists) as ArrowRef), &map, &Limits::default()).is_err());
    }
}
