//! Converts Arrow arrays from their carrier types, into which they are decoded, to the types that are asked
//! for.
//!
//! See [`dtype::stored`](crate::dtype::stored) for the carrier of each type; `write::carry` is the other
//! direction. Values are preserved; what the types do not guarantee is checked.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayData, ArrayRef, AsArray as _, FixedSizeBinaryArray, FixedSizeListArray,
    GenericListArray, GenericListViewArray, IntervalDayTimeArray, IntervalMonthDayNanoArray,
    LargeBinaryArray, LargeListArray, MapArray, OffsetSizeTrait, PrimitiveArray, StructArray, UInt64Array,
    make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::{cast, partition};
use arrow::datatypes::{
    ArrowNativeType as _, DataType, FieldRef, Fields, Int16Type, Int32Type, Int64Type, IntervalDayTime,
    IntervalMonthDayNano, IntervalUnit, RunEndIndexType, UInt64Type,
};

use super::bytes::present_views;
use super::row_bytes::reserved_bytes;
use super::{EncodedArray, present, shown_items, take, take_within};
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
pub fn decode_as(array: &dyn EncodedArray, to: &DataType) -> Result<ArrayRef> {
    let carrier = carrier(array.dtype(), to)
        .ok_or_else(|| Error::invalid(format!("{} cannot be read as {to}", array.dtype())))?;
    restore(&array.decode(&carrier)?, to, array.limits())
}

/// Converts the carrier array to the requested type, which a file may choose, too: values of a fixed size
/// take bytes even if they are null, and text that rows share as views is copied for each of them.
pub(crate) fn restore(array: &ArrayRef, to: &DataType, limits: &Limits) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    Ok(match (array.data_type(), to) {
        (_, DataType::Dictionary(_, values)) => cast(&restore(array, values, limits)?, to)?,
        (DataType::Dictionary(..), _) => {
            let dictionary = array.as_any_dictionary();
            let keys = cast(dictionary.keys(), &DataType::UInt64)?;
            // Many rows may share a long value.
            let values = take_within(dictionary.values(), keys.as_primitive::<UInt64Type>(), limits)?;
            restore(&values, to, limits)?
        }
        (_, DataType::RunEndEncoded(ends, values)) => match ends.data_type() {
            DataType::Int16 => runs::<Int16Type>(array, to, values, limits)?,
            DataType::Int32 => runs::<Int32Type>(array, to, values, limits)?,
            _ => runs::<Int64Type>(array, to, values, limits)?,
        },
        (DataType::Int64, DataType::Duration(_))
        | (DataType::Int32, DataType::Interval(IntervalUnit::YearMonth))
        | (DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, Some(_))) => renamed(array, to)?,
        (DataType::Struct(_), DataType::Interval(unit)) => interval(array.as_struct(), *unit)?,
        (DataType::LargeBinary, DataType::FixedSizeBinary(width)) => {
            fixed_size_binary(array.as_binary(), *width, limits)?
        }
        (DataType::List(_), DataType::List(item)) => list(array.as_list::<i32>(), item, limits)?,
        (DataType::LargeList(_), DataType::LargeList(item)) => list(array.as_list::<i64>(), item, limits)?,
        (DataType::LargeList(_), DataType::List(item)) => {
            // Arrow's cast loses the rows of fixed-size lists of size zero among the items.
            let (_, offsets, values, nulls) = array.as_list::<i64>().clone().into_parts();
            let (offsets, values) = shown_items(offsets, values);
            if i32::try_from(values.len()).is_err() {
                let (items, most) = (values.len(), i32::MAX);
                return Err(Error::limit(format!("lists of {items} items in one chunk, {most} allowed")));
            }
            // No offset exceeds the last one, which fits.
            let offsets = offsets.iter().map(|offset| *offset as i32).collect();
            let values = restore(&values, item.data_type(), limits)?;
            Arc::new(GenericListArray::try_new(Arc::clone(item), OffsetBuffer::new(offsets), values, nulls)?)
        }
        (DataType::LargeList(carried), DataType::FixedSizeList(item, size)) => {
            fixed_size_list(array.as_list(), carried, item, *size, limits)?
        }
        (DataType::ListView(_), DataType::ListView(item)) => {
            list_views(array.as_list_view::<i32>(), item, limits)?
        }
        (DataType::LargeListView(_), DataType::LargeListView(item)) => {
            list_views(array.as_list_view::<i64>(), item, limits)?
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
            let (offsets, values) = shown_items(offsets, Arc::new(values));
            let values = restore(&values, entries.data_type(), limits)?;
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
        (
            DataType::List(from) | DataType::LargeList(from),
            DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item),
        ) => {
            // The items first: Arrow's cast to another kind of list then leaves them as they are.
            let item = Arc::new(from.as_ref().clone().with_data_type(item.data_type().clone()));
            let same_kind = match array.data_type() {
                DataType::List(_) => DataType::List(item),
                _ => DataType::LargeList(item),
            };
            present(restore(array, &same_kind, limits)?, to)?
        }
        _ => present_views(Arc::clone(array), to, limits)?,
    })
}

/// The runs of equal rows. Arrow's cast loses values that take no bytes.
///
/// # Errors
/// If the ends of runs cannot count the rows: scans then decode fewer at once.
fn runs<R: RunEndIndexType>(
    rows: &ArrayRef,
    to: &DataType,
    values: &FieldRef,
    limits: &Limits,
) -> Result<ArrayRef> {
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
pub(crate) fn map_entries(values: &ArrayRef) -> Result<StructArray> {
    let no_struct = || Error::invalid(format!("a map with entries of type {}", values.data_type()));
    values.as_struct_opt().cloned().ok_or_else(no_struct)
}

/// The same views of restored items.
fn list_views<O: OffsetSizeTrait>(
    array: &GenericListViewArray<O>,
    item: &FieldRef,
    limits: &Limits,
) -> Result<ArrayRef> {
    let (_, offsets, sizes, values, nulls) = array.clone().into_parts();
    let values = restore(&values, item.data_type(), limits)?;
    Ok(Arc::new(GenericListViewArray::try_new(Arc::clone(item), offsets, sizes, values, nulls)?))
}

/// The same values, none of them null.
pub(crate) fn without_nulls(array: ArrayRef) -> Result<ArrayRef> {
    if array.nulls().is_none() {
        return Ok(array);
    }
    Ok(make_array(array.to_data().into_builder().nulls(None).build()?))
}

/// The same bytes with another type of the same width.
pub(crate) fn renamed(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    Ok(make_array(array.to_data().into_builder().data_type(to.clone()).build()?))
}

fn structure(array: &StructArray, fields: &Fields, limits: &Limits) -> Result<ArrayRef> {
    let columns =
        array.columns().iter().zip(fields).map(|(column, to)| restore(column, to.data_type(), limits));
    let (columns, nulls) = (columns.collect::<Result<Vec<_>>>()?, array.nulls().cloned());
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())?))
}

fn list<O: OffsetSizeTrait>(
    array: &GenericListArray<O>,
    item: &FieldRef,
    limits: &Limits,
) -> Result<ArrayRef> {
    let (_, offsets, values, nulls) = array.clone().into_parts();
    let (offsets, values) = shown_items(offsets, values);
    let values = restore(&values, item.data_type(), limits)?;
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
}

/// Lists of a fixed size, which every valid row must have. Null rows get arbitrary elements.
fn fixed_size_list(
    array: &LargeListArray,
    carried: &FieldRef,
    item: &FieldRef,
    size: i32,
    limits: &Limits,
) -> Result<ArrayRef> {
    let size_of_row = usize::try_from(size).unwrap_or(0);
    let first = array.value_offsets()[0];
    let in_place = (0..array.len()).all(|row| array.value_length(row).as_usize() == size_of_row);
    let values = if in_place {
        array.values().slice(first.as_usize(), array.len() * size_of_row)
    } else {
        // Null rows take as many elements as others.
        let width = size_of::<Option<i64>>();
        let elements = limits.count_rows(array.len(), size_of_row.saturating_mul(width))? / width;
        let bytes = reserved_bytes(carried.data_type(), elements as u64);
        limits.count_bytes(bytes)?;
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
    let (item, nulls) = (Arc::clone(item), array.nulls().cloned());
    Ok(Arc::new(FixedSizeListArray::try_new_with_length(item, size, values, nulls, array.len())?))
}

fn fixed_size_binary(array: &LargeBinaryArray, width: i32, limits: &Limits) -> Result<ArrayRef> {
    let bytes_of_row = usize::try_from(width).unwrap_or(0);
    let mut bytes = Vec::with_capacity(limits.count_rows(array.len(), bytes_of_row)?);
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

fn interval(parts: &StructArray, unit: IntervalUnit) -> Result<ArrayRef> {
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

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray, new_empty_array, new_null_array};
    use arrow::datatypes::Field;

    use super::*;
    use crate::array::Decoded;
    use crate::limits::Work;

    #[test]
    fn null_rows_of_a_huge_fixed_size_are_not_reserved() {
        let bytes = new_null_array(&DataType::LargeBinary, 8192);
        let bytes = Decoded::new(DType::Binary(true), bytes, &Limits::default());
        assert!(decode_as(&bytes, &DataType::FixedSizeBinary(i32::MAX)).is_err());
        assert_eq!(decode_as(&bytes, &DataType::FixedSizeBinary(16)).unwrap().len(), 8192);

        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let lists = new_null_array(&DataType::LargeList(Arc::clone(&item)), 8192);
        let dtype = DType::List(Arc::new(DType::Primitive(crate::dtype::PType::I64, true)), true);
        let lists = Decoded::new(dtype, lists, &Limits::default());
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

    fn runs_of(ends: DataType, values: DataType) -> DataType {
        let ends = Arc::new(Field::new("run_ends", ends, false));
        DataType::RunEndEncoded(ends, Arc::new(Field::new("values", values, true)))
    }

    #[test]
    fn runs_have_as_many_rows_as_their_ends_can_count() {
        let rows = |len: i64| Arc::new(Int64Array::from_iter_values((0..len).map(|n| n / 100))) as ArrayRef;
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
            let rows: ArrayRef = match values {
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
            let restored = decode_as(&Decoded::new(dtype, rows, &Limits::default()), &to).unwrap();
            assert_eq!((restored.len(), restored.logical_null_count()), (4, 1), "{to}");
            assert_eq!(restored.as_run::<Int32Type>().values().len(), 3, "{to}");
        }
    }

    #[test]
    fn a_map_needs_entries() {
        let item = Arc::new(Field::new("entries", DataType::Int32, false));
        let lists = ListArray::new_null(Arc::clone(&item), 2);
        let map = DataType::Map(item, false);
        assert!(restore(&(Arc::new(lists) as ArrayRef), &map, &Limits::default()).is_err());
    }
}
