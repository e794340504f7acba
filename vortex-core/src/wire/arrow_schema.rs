//! The Arrow schema that a file was written from, as a compressed IPC schema message.
//!
//! Arrow's own reader panics on damaged messages; this one returns an error.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, Schema, TimeUnit};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow::ipc::{self as fb, root_as_message_with_opts};
use flatbuffers::{ForwardsUOffset, Vector};

use super::{broken, verifier};
use crate::limits::Limits;
use crate::{Error, Result};

/// Maximum number of bytes of a message: as many as this for each compressed byte, within a range. Messages of
/// real schemas are a tenth to a thirtieth of their size when compressed, and a two hundred and thirtieth if all fields
/// have the same long metadata. The greatest length limits what reading takes, however well a message is compressed.
const EXPANSION: u64 = 1000;
const MAX_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=256 << 20;
const LEVEL: i32 = 3;

/// Serializes a schema as stored in a file.
///
/// # Errors
/// If it cannot be compressed.
pub(crate) fn arrow_schema_to_bytes(schema: &Schema) -> Result<Vec<u8>> {
    let message = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut DictionaryTracker::new(false),
        &IpcWriteOptions::default(),
    );
    zstd::encode_all(message.ipc_message.as_slice(), LEVEL).map_err(Error::external)
}

/// Reads a schema.
///
/// # Errors
/// If the bytes are not a valid schema.
pub(crate) fn arrow_schema_from_bytes(bytes: &[u8], limits: &Limits) -> Result<Schema> {
    let damaged = |error: std::io::Error| Error::corrupt(format!("arrow schema: {error}"));
    let mut message = Vec::new();
    let decoder = zstd::Decoder::with_buffer(bytes).map_err(damaged)?;
    let most = (bytes.len() as u64).saturating_mul(EXPANSION).clamp(*MAX_BYTES.start(), *MAX_BYTES.end());
    decoder.take(most + 1).read_to_end(&mut message).map_err(damaged)?;
    if message.len() as u64 > most {
        let stored = bytes.len();
        return Err(Error::limit(format!("arrow schema of more than {most} bytes, stored in {stored}")));
    }
    let mut options = verifier(limits, message.len());
    // Arrow's writers share nothing but vtables; whatever is shared would be copied.
    options.max_apparent_size = message.len().saturating_mul(2);
    // Nested lists take two levels of tables each.
    options.max_depth = options.max_depth.saturating_mul(2);
    let message = root_as_message_with_opts(&options, &message).map_err(broken("arrow schema"))?;
    let schema =
        message.header_as_schema().ok_or_else(|| Error::corrupt("a message without arrow schema"))?;
    let fields = schema.fields().map(|fields| read_fields(fields.iter(), limits.max_depth)).transpose()?;
    Ok(Schema::new_with_metadata(fields.unwrap_or_default(), metadata(schema.custom_metadata())))
}

type KeyValues<'a> = Option<Vector<'a, ForwardsUOffset<fb::KeyValue<'a>>>>;

fn metadata(entries: KeyValues<'_>) -> HashMap<String, String> {
    let entry = |entry: fb::KeyValue<'_>| Some((entry.key()?.to_owned(), entry.value()?.to_owned()));
    entries.unwrap_or_default().iter().filter_map(entry).collect()
}

fn read_fields<'a>(fields: impl Iterator<Item = fb::Field<'a>>, depth_left: u32) -> Result<Fields> {
    fields.map(|field| read_field(field, depth_left)).collect()
}

fn read_field(field: fb::Field<'_>, depth_left: u32) -> Result<FieldRef> {
    if depth_left == 0 {
        super::too_deep("arrow schema")?;
    }
    let plain = data_type(&field, depth_left - 1)?;
    let data_type = match field.dictionary() {
        None => plain,
        Some(dictionary) => {
            let keys = dictionary.indexType().ok_or_else(|| unknown("dictionary without keys"))?;
            DataType::Dictionary(Box::new(integer(keys)?), Box::new(plain))
        }
    };
    let name = field.name().unwrap_or_default();
    let read = Field::new(name, data_type, field.nullable()).with_metadata(metadata(field.custom_metadata()));
    Ok(Arc::new(read))
}

fn unknown(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("arrow schema: {what}"))
}

fn integer(int: fb::Int<'_>) -> Result<DataType> {
    Ok(match (int.bitWidth(), int.is_signed()) {
        (8, true) => DataType::Int8,
        (8, false) => DataType::UInt8,
        (16, true) => DataType::Int16,
        (16, false) => DataType::UInt16,
        (32, true) => DataType::Int32,
        (32, false) => DataType::UInt32,
        (64, true) => DataType::Int64,
        (64, false) => DataType::UInt64,
        (bits, _) => return Err(unknown(format!("integers of {bits} bits"))),
    })
}

fn time_unit(unit: fb::TimeUnit) -> Result<TimeUnit> {
    Ok(match unit {
        fb::TimeUnit::SECOND => TimeUnit::Second,
        fb::TimeUnit::MILLISECOND => TimeUnit::Millisecond,
        fb::TimeUnit::MICROSECOND => TimeUnit::Microsecond,
        fb::TimeUnit::NANOSECOND => TimeUnit::Nanosecond,
        other => return Err(unknown(format!("time unit {}", other.0))),
    })
}

fn data_type(field: &fb::Field<'_>, depth_left: u32) -> Result<DataType> {
    let lacks = || unknown("a type without its parameters");
    let child = |at: usize, count: usize| -> Result<FieldRef> {
        let children = field.children().filter(|children| children.len() == count);
        read_field(children.ok_or_else(|| unknown(format!("not {count} children")))?.get(at), depth_left)
    };
    Ok(match field.type_type() {
        fb::Type::Null => DataType::Null,
        fb::Type::Bool => DataType::Boolean,
        fb::Type::Int => integer(field.type_as_int().ok_or_else(lacks)?)?,
        fb::Type::FloatingPoint => match field.type_as_floating_point().ok_or_else(lacks)?.precision() {
            fb::Precision::HALF => DataType::Float16,
            fb::Precision::SINGLE => DataType::Float32,
            fb::Precision::DOUBLE => DataType::Float64,
            other => return Err(unknown(format!("float precision {}", other.0))),
        },
        fb::Type::Decimal => decimal(field.type_as_decimal().ok_or_else(lacks)?)?,
        fb::Type::Binary => DataType::Binary,
        fb::Type::LargeBinary => DataType::LargeBinary,
        fb::Type::BinaryView => DataType::BinaryView,
        fb::Type::Utf8 => DataType::Utf8,
        fb::Type::LargeUtf8 => DataType::LargeUtf8,
        fb::Type::Utf8View => DataType::Utf8View,
        fb::Type::FixedSizeBinary => {
            DataType::FixedSizeBinary(field.type_as_fixed_size_binary().ok_or_else(lacks)?.byteWidth())
        }
        fb::Type::Date => match field.type_as_date().ok_or_else(lacks)?.unit() {
            fb::DateUnit::DAY => DataType::Date32,
            fb::DateUnit::MILLISECOND => DataType::Date64,
            other => return Err(unknown(format!("date unit {}", other.0))),
        },
        fb::Type::Time => {
            let time = field.type_as_time().ok_or_else(lacks)?;
            match (time.bitWidth(), time_unit(time.unit())?) {
                (32, unit @ (TimeUnit::Second | TimeUnit::Millisecond)) => DataType::Time32(unit),
                (64, unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond)) => DataType::Time64(unit),
                (bits, unit) => return Err(unknown(format!("{unit:?} in {bits} bits"))),
            }
        }
        fb::Type::Timestamp => {
            let timestamp = field.type_as_timestamp().ok_or_else(lacks)?;
            DataType::Timestamp(time_unit(timestamp.unit())?, timestamp.timezone().map(Into::into))
        }
        fb::Type::Duration => {
            DataType::Duration(time_unit(field.type_as_duration().ok_or_else(lacks)?.unit())?)
        }
        fb::Type::Interval => match field.type_as_interval().ok_or_else(lacks)?.unit() {
            fb::IntervalUnit::YEAR_MONTH => DataType::Interval(IntervalUnit::YearMonth),
            fb::IntervalUnit::DAY_TIME => DataType::Interval(IntervalUnit::DayTime),
            fb::IntervalUnit::MONTH_DAY_NANO => DataType::Interval(IntervalUnit::MonthDayNano),
            other => return Err(unknown(format!("interval unit {}", other.0))),
        },
        fb::Type::List => DataType::List(child(0, 1)?),
        fb::Type::LargeList => DataType::LargeList(child(0, 1)?),
        fb::Type::ListView => DataType::ListView(child(0, 1)?),
        fb::Type::LargeListView => DataType::LargeListView(child(0, 1)?),
        fb::Type::FixedSizeList => {
            let size = field.type_as_fixed_size_list().ok_or_else(lacks)?.listSize();
            DataType::FixedSizeList(child(0, 1)?, size)
        }
        fb::Type::Map => DataType::Map(child(0, 1)?, field.type_as_map().ok_or_else(lacks)?.keysSorted()),
        fb::Type::RunEndEncoded => DataType::RunEndEncoded(child(0, 2)?, child(1, 2)?),
        fb::Type::Struct_ => {
            DataType::Struct(read_fields(field.children().unwrap_or_default().iter(), depth_left)?)
        }
        // Unions are not written.
        other => return Err(unknown(format!("type {}", other.0))),
    })
}

fn decimal(decimal: fb::Decimal<'_>) -> Result<DataType> {
    let narrow = |_| unknown("precision or scale of a decimal");
    let (precision, scale) =
        (u8::try_from(decimal.precision()).map_err(narrow)?, i8::try_from(decimal.scale()).map_err(narrow)?);
    Ok(match decimal.bitWidth() {
        32 => DataType::Decimal32(precision, scale),
        64 => DataType::Decimal64(precision, scale),
        128 => DataType::Decimal128(precision, scale),
        256 => DataType::Decimal256(precision, scale),
        bits => return Err(unknown(format!("decimals of {bits} bits"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_does_not_expand_without_limit() {
        let zeros = zstd::encode_all(vec![0; 300 << 20].as_slice(), LEVEL).unwrap();
        assert!(arrow_schema_from_bytes(&zeros, &Limits::default()).is_err());
    }

    #[test]
    fn metadata_that_every_field_repeats_is_read() {
        let text = "{\"description\": \"a field as its producer describes it\"} ".repeat(80);
        let field = |at: usize| {
            let metadata = HashMap::from([("producer".to_owned(), text.clone())]);
            Field::new(format!("column {at}"), DataType::Int8, true).with_metadata(metadata)
        };
        let schema = Schema::new((0..4000).map(field).collect::<Vec<_>>());
        let bytes = arrow_schema_to_bytes(&schema).unwrap();
        assert!(bytes.len() < (16 << 20) / 64, "{}", bytes.len());
        assert_eq!(arrow_schema_from_bytes(&bytes, &Limits::default()).unwrap(), schema);
    }

    #[test]
    fn metadata_that_many_fields_share_is_refused() {
        use flatbuffers::FlatBufferBuilder;

        let mut builder = FlatBufferBuilder::new();
        let (key, value) = (builder.create_string("key"), builder.create_string(&"v".repeat(100_000)));
        let entry = fb::KeyValueArgs { key: Some(key), value: Some(value) };
        let entry = fb::KeyValue::create(&mut builder, &entry);
        let metadata = builder.create_vector(&[entry]);
        let null = fb::Null::create(&mut builder, &fb::NullArgs {}).as_union_value();
        let fields: Vec<_> = (0..50)
            .map(|_| {
                let field = fb::FieldArgs {
                    type_type: fb::Type::Null,
                    type_: Some(null),
                    custom_metadata: Some(metadata),
                    ..fb::FieldArgs::default()
                };
                fb::Field::create(&mut builder, &field)
            })
            .collect();
        let fields = builder.create_vector(&fields);
        let schema = fb::SchemaArgs { fields: Some(fields), ..fb::SchemaArgs::default() };
        let schema = fb::Schema::create(&mut builder, &schema).as_union_value();
        let message = fb::MessageArgs {
            header_type: fb::MessageHeader::Schema,
            header: Some(schema),
            ..fb::MessageArgs::default()
        };
        let message = fb::Message::create(&mut builder, &message);
        builder.finish(message, None);
        let bytes = zstd::encode_all(builder.finished_data(), LEVEL).unwrap();
        assert!(arrow_schema_from_bytes(&bytes, &Limits::default()).is_err(), "5 MB of 100 kB");
    }

    fn schema() -> Schema {
        let item = |data_type| Arc::new(Field::new("it\u{e9}m", data_type, true));
        let entries = Field::new_struct(
            "entries",
            vec![Field::new("k", DataType::Utf8, false), Field::new("v", DataType::Int8, true)],
            false,
        );
        let dictionary = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::LargeUtf8));
        let runs = Arc::new(Field::new("run_ends", DataType::Int16, false));
        let types = [
            DataType::Null,
            DataType::UInt64,
            DataType::Float16,
            DataType::Decimal64(12, -2),
            DataType::Decimal256(76, 3),
            DataType::BinaryView,
            DataType::FixedSizeBinary(7),
            DataType::Date64,
            DataType::Time32(TimeUnit::Millisecond),
            DataType::Time64(TimeUnit::Nanosecond),
            DataType::Timestamp(TimeUnit::Second, Some("Europe/Paris".into())),
            DataType::Duration(TimeUnit::Microsecond),
            DataType::Interval(IntervalUnit::MonthDayNano),
            DataType::LargeListView(item(DataType::Duration(TimeUnit::Second))),
            DataType::FixedSizeList(item(dictionary.clone()), 3),
            DataType::Map(Arc::new(entries), true),
            DataType::RunEndEncoded(runs, item(DataType::Utf8)),
            DataType::Struct(vec![Field::new("x", dictionary, true)].into()),
        ];
        let fields = types.into_iter().enumerate().map(|(at, data_type)| {
            let metadata = HashMap::from([("of".to_owned(), at.to_string())]);
            Field::new(at.to_string(), data_type, at % 2 == 0).with_metadata(metadata)
        });
        let metadata = HashMap::from([("a".to_owned(), "b".to_owned())]);
        Schema::new_with_metadata(fields.collect::<Vec<_>>(), metadata)
    }

    #[test]
    fn a_schema_comes_back_as_it_was_written() {
        let bytes = arrow_schema_to_bytes(&schema()).unwrap();
        assert_eq!(arrow_schema_from_bytes(&bytes, &Limits::default()).unwrap(), schema());
    }

    #[test]
    fn damage_is_an_error() {
        let bytes = arrow_schema_to_bytes(&schema()).unwrap();
        let message = zstd::decode_all(bytes.as_slice()).unwrap();
        for at in 0..message.len() {
            for damage in [0, 1, 0x80, 0xff] {
                let mut message = message.clone();
                message[at] ^= damage;
                let bytes = zstd::encode_all(message.as_slice(), 1).unwrap();
                // Reading a different schema is acceptable, a panic is not.
                drop(arrow_schema_from_bytes(&bytes, &Limits::default()));
            }
        }
        for len in 0..bytes.len() {
            assert!(arrow_schema_from_bytes(&bytes[..len], &Limits::default()).is_err());
        }
    }
}
