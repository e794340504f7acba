//! The types that the writers of formats take: columns as one of them, or refused.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, make_array};
use arrow::compute::{cast, take};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, FieldRef, IntervalUnit, Schema, SchemaRef, Time32MillisecondType,
    Time32SecondType, TimeUnit, TimestampMillisecondType, TimestampSecondType,
};

use crate::columns::with_types;
use crate::failure::{Failure, Outcome};
use crate::formats::Format;

/// The end of messages about columns that a format cannot hold.
pub(super) const LEAVE_OUT: &str = "leave it out with --exclude";

/// The rows without the dictionaries that `plain` lacks.
pub(super) fn as_plain(batch: &RecordBatch, plain: &SchemaRef) -> Outcome<RecordBatch> {
    let columns = batch.columns().iter().zip(plain.fields());
    let columns = columns.map(|(column, field)| {
        let column = unpacked(column, field.data_type());
        column.map_err(|failure| Failure::at(format!("column `{}`", field.name()), failure))
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Outcome<_>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(plain), columns, &options)?)
}

/// The array as the [`plain_type`] of its type. Arrow's cast loses lists of size zero, and converts list views.
fn unpacked(array: &ArrayRef, to: &DataType) -> Outcome<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    if let Some(dictionary) = array.as_any_dictionary_opt()
        && !matches!(to, DataType::Dictionary(..))
    {
        return Ok(take(&unpacked(dictionary.values(), to)?, dictionary.keys(), None)?);
    }
    let types: Vec<&DataType> = match to {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type()],
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        other => return stored(array, other),
    };
    let data = array.to_data();
    let children = data.child_data().iter().zip(types);
    let children = children.map(|(child, to)| Ok(unpacked(&make_array(child.clone()), to)?.to_data()));
    let children = children.collect::<Outcome<_>>()?;
    Ok(make_array(data.into_builder().data_type(to.clone()).child_data(children).build()?))
}

/// Values of one type as another, without loss.
fn stored(array: &ArrayRef, to: &DataType) -> Outcome<ArrayRef> {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let refused = |value: i64, what: &str| {
        let from = array.data_type();
        Failure::error(format!("{value} of {from} is {what} that Parquet can hold; cast it in SQL"))
    };
    Ok(match (array.data_type(), to) {
        (DataType::Timestamp(TimeUnit::Second, zone), DataType::Timestamp(TimeUnit::Millisecond, _)) => {
            let times = array.as_primitive::<TimestampSecondType>();
            let times = times.try_unary::<_, TimestampMillisecondType, _>(|time| {
                time.checked_mul(1000).ok_or_else(|| refused(time, "no timestamp"))
            })?;
            Arc::new(times.with_timezone_opt(zone.clone()))
        }
        (DataType::Time32(TimeUnit::Second), DataType::Time32(TimeUnit::Millisecond)) => {
            let times = array.as_primitive::<Time32SecondType>();
            Arc::new(times.try_unary::<_, Time32MillisecondType, _>(|time| {
                time.checked_mul(1000).ok_or_else(|| refused(time.into(), "no time of day"))
            })?)
        }
        (DataType::Date64, DataType::Date32) => {
            let days = array.as_primitive::<Date64Type>();
            Arc::new(days.try_unary::<_, Date32Type, _>(|time| match i32::try_from(time / DAY) {
                Ok(day) if time % DAY == 0 => Ok(day),
                _ => Err(refused(time, "no day")),
            })?)
        }
        _ => cast(array, to)?,
    })
}

/// The schema with the types that the writer of a format takes.
pub(super) fn plain_schema(schema: &SchemaRef, format: Format) -> Schema {
    with_types(schema, |column| plain_type(column.data_type(), format))
}

fn plain_type(data_type: &DataType, format: Format) -> DataType {
    let plain = |field: &FieldRef| {
        Arc::new(field.as_ref().clone().with_data_type(plain_type(field.data_type(), format)))
    };
    let is_parquet = format == Format::Parquet;
    match data_type {
        DataType::Dictionary(_, values) if !(is_parquet && has_offsets(values)) => plain_type(values, format),
        // Readers of Parquet refuse a dictionary of as many values as keys of 8 or 16 bits can tell apart, and each
        // batch may bring values of its own.
        DataType::Dictionary(keys, values) if keys.primitive_width().is_some_and(|bytes| bytes < 4) => {
            DataType::Dictionary(Box::new(DataType::Int32), values.clone())
        }
        DataType::Timestamp(TimeUnit::Second, zone) if is_parquet => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(TimeUnit::Second) if is_parquet => DataType::Time32(TimeUnit::Millisecond),
        DataType::Date64 if is_parquet => DataType::Date32,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain).collect()),
        DataType::List(item) => DataType::List(plain(item)),
        DataType::LargeList(item) => DataType::LargeList(plain(item)),
        DataType::ListView(item) => DataType::ListView(plain(item)),
        DataType::LargeListView(item) => DataType::LargeListView(plain(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(plain(item), *len),
        DataType::Map(entries, sorted) => DataType::Map(plain(entries), *sorted),
        DataType::RunEndEncoded(ends, values) => DataType::RunEndEncoded(Arc::clone(ends), plain(values)),
        other => other.clone(),
    }
}

/// Whether this is text or bytes other than views. Of dictionaries of other values, Arrow 59 writes Parquet files that
/// it cannot read, or whose values of fixed length begin with that length.
fn has_offsets(values: &DataType) -> bool {
    matches!(values, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary)
}

/// Refuses what the Parquet writer loses, panics on or does not know: rows without columns, values without
/// bytes, unions, structs without fields, and intervals of months, days and nanoseconds.
pub(super) fn storable_columns_only(schema: &SchemaRef) -> Outcome {
    if schema.fields().is_empty() {
        return Err(Failure::error("Parquet cannot hold rows without columns"));
    }
    for column in schema.fields() {
        for field in Schema::new(vec![Arc::clone(column)]).flattened_fields() {
            let what = match field.data_type() {
                DataType::FixedSizeBinary(0) => "has values of no bytes".to_owned(),
                DataType::Union(..) => "is a union".to_owned(),
                DataType::Struct(fields) if fields.is_empty() => "is a struct without fields".to_owned(),
                interval @ DataType::Interval(IntervalUnit::MonthDayNano) => format!("is an {interval}"),
                _ => continue,
            };
            let within =
                if field == column.as_ref() { String::new() } else { format!(": `{}`", field.name()) };
            return Err(Failure::error(format!(
                "column `{}`{within} {what}, which Parquet cannot hold; {LEAVE_OUT}",
                column.name()
            )));
        }
    }
    Ok(())
}

/// Refuses lists, structs and maps, and rows without columns.
pub(super) fn flat_columns_only(schema: &SchemaRef) -> Outcome {
    if schema.fields().is_empty() {
        return Err(Failure::error("CSV cannot hold rows without columns"));
    }
    match schema.fields().iter().find(|field| field.data_type().is_nested()) {
        None => Ok(()),
        Some(field) => Err(Failure::error(format!(
            "column `{}` is a {}, which CSV cannot hold; {LEAVE_OUT}, or write JSON",
            field.name(),
            field.data_type()
        ))),
    }
}
