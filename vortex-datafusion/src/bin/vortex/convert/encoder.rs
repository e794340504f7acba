//! Writers of formats other than Vortex.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, make_array};
use arrow::compute::{cast, take};
use arrow::csv;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, FieldRef, IntervalUnit, Schema, SchemaRef, Time32MillisecondType,
    Time32SecondType, TimeUnit, TimestampMillisecondType, TimestampSecondType,
};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::failure::{Failure, Outcome};
use crate::formats::Format;
use crate::json::JsonRows;
use crate::text::{INVALID, whole_number};

/// The end of messages about columns that a format cannot hold.
const LEAVE_OUT: &str = "leave it out with --columns";

/// Parquet row groups are buffered until they have about this many bytes, or this many rows.
const ROW_GROUP_BYTES: usize = 64 << 20;
const ROW_GROUP_ROWS: usize = 1 << 20;

/// Writes batches in a format.
pub(super) enum Encoder<W: Write + Send> {
    /// An Arrow file allows only one dictionary per column for all batches, so columns are written without
    /// dictionaries.
    ArrowFile(Box<FileWriter<W>>, SchemaRef),
    ArrowStream(Box<StreamWriter<W>>),
    /// The Parquet writer does not take dictionaries of views, and makes bare numbers of times in seconds, which
    /// Parquet does not have.
    Parquet(Box<ArrowWriter<W>>, SchemaRef),
    Csv(Box<csv::Writer<W>>),
    Json(JsonRows, W),
}

impl<W: Write + Send> Encoder<W> {
    /// Starts writing. Readers cannot seek in a stream, so the streaming format of Arrow is used there.
    pub(super) fn open(format: Format, schema: &SchemaRef, out: W, as_stream: bool) -> Outcome<Self> {
        Ok(match format {
            Format::Arrow if as_stream => Self::ArrowStream(Box::new(StreamWriter::try_new(out, schema)?)),
            Format::Arrow => {
                let plain = Arc::new(plain_schema(schema, format));
                Self::ArrowFile(Box::new(FileWriter::try_new(out, &plain)?), plain)
            }
            Format::Parquet => {
                storable_columns_only(schema)?;
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
                    .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
                    .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
                    .build();
                let plain = Arc::new(plain_schema(schema, format));
                let writer = ArrowWriter::try_new(out, Arc::clone(&plain), Some(properties))?;
                Self::Parquet(Box::new(writer), plain)
            }
            Format::Csv => {
                flat_columns_only(schema)?;
                let mut writer = csv::WriterBuilder::new().with_header(true).build(out);
                // The header is written with the first batch, and there may be none.
                writer.write(&RecordBatch::new_empty(Arc::clone(schema)))?;
                Self::Csv(Box::new(writer))
            }
            Format::Json => Self::Json(JsonRows::new(), out),
            Format::Vortex => return Err(Failure::error("Vortex files are not written by this encoder")),
        })
    }

    /// Writes a batch.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Outcome {
        match self {
            Self::ArrowFile(writer, plain) => writer.write(&as_plain(batch, plain)?)?,
            Self::ArrowStream(writer) => writer.write(batch)?,
            Self::Csv(writer) => {
                check_durations(batch)?;
                writer.write(batch)?;
            }
            Self::Json(rows, out) => {
                let write = |row: &[u8]| out.write_all(row).and_then(|()| out.write_all(b"\n"));
                rows.write(batch, write).map_err(|failure| match failure {
                    Failure::Error(message) if message.starts_with("column ") => {
                        Failure::Error(format!("{message}, or {LEAVE_OUT}"))
                    }
                    other => other,
                })?;
            }
            Self::Parquet(writer, plain) => writer.write(&as_plain(batch, plain)?)?,
        }
        Ok(())
    }

    /// Writes the end of the format, and all buffered data.
    pub(super) fn finish(self) -> Outcome {
        let mut out = match self {
            Self::ArrowFile(writer, _) => writer.into_inner()?,
            Self::ArrowStream(writer) => writer.into_inner()?,
            Self::Parquet(writer, _) => writer.into_inner()?,
            Self::Csv(writer) => writer.into_inner(),
            Self::Json(_, out) => out,
        };
        Ok(out.flush()?)
    }
}

/// The rows without the dictionaries that `plain` lacks.
fn as_plain(batch: &RecordBatch, plain: &SchemaRef) -> Outcome<RecordBatch> {
    let columns = batch.columns().iter().zip(plain.fields());
    let columns = columns.map(|(column, field)| unpacked(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Outcome<_>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(plain), columns, &options)?)
}

/// The array as the [`plain_type`] of its type. Arrow's cast loses lists of size zero, and converts list views.
fn unpacked(array: &ArrayRef, to: &DataType) -> Outcome<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    if let Some(dictionary) = array.as_any_dictionary_opt() {
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
fn plain_schema(schema: &SchemaRef, format: Format) -> Schema {
    let fields = schema.fields().iter().map(|field| plain(field, format));
    Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())
}

fn plain(field: &FieldRef, format: Format) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(plain_type(field.data_type(), format)))
}

fn plain_type(data_type: &DataType, format: Format) -> DataType {
    let plain = |field: &FieldRef| plain(field, format);
    let is_parquet = format == Format::Parquet;
    match data_type {
        DataType::Dictionary(_, values) if !(is_parquet && has_offsets(values)) => plain_type(values, format),
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

/// Whether this is text or bytes other than views. Of dictionaries of other values, Arrow 59 writes Parquet files that it
/// cannot read, or whose values of fixed length begin with that length.
fn has_offsets(values: &DataType) -> bool {
    matches!(values, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary)
}

/// Refuses what the Parquet writer loses, panics on or does not know: rows without columns, values without
/// bytes, unions, and intervals of months, days and nanoseconds.
fn storable_columns_only(schema: &SchemaRef) -> Outcome {
    if schema.fields().is_empty() {
        return Err(Failure::error("Parquet cannot hold rows without columns"));
    }
    for field in schema.flattened_fields() {
        let what = match field.data_type() {
            DataType::FixedSizeBinary(0) => "has values of no bytes".to_owned(),
            DataType::Union(..) => "is a union".to_owned(),
            interval @ DataType::Interval(IntervalUnit::MonthDayNano) => format!("is an {interval}"),
            _ => continue,
        };
        return Err(Failure::error(format!(
            "column `{}` {what}, which Parquet cannot hold; {LEAVE_OUT}",
            field.name()
        )));
    }
    Ok(())
}

/// Refuses durations that Arrow writes as `<invalid>`.
fn check_durations(batch: &RecordBatch) -> Outcome {
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if !matches!(field.data_type(), DataType::Duration(_)) {
            continue;
        }
        let formatter = ArrayFormatter::try_new(column, &FormatOptions::new())?;
        let is_invalid = |row: &usize| column.is_valid(*row) && formatter.value(*row).to_string() == INVALID;
        if let Some(row) = (0..column.len()).find(is_invalid) {
            return Err(Failure::error(format!(
                "column `{}`: {} is no {} that CSV can hold; {LEAVE_OUT}",
                field.name(),
                whole_number(column, row).unwrap_or_default(),
                field.data_type()
            )));
        }
    }
    Ok(())
}

fn flat_columns_only(schema: &SchemaRef) -> Outcome {
    match schema.fields().iter().find(|field| field.data_type().is_nested()) {
        None => Ok(()),
        Some(field) => Err(Failure::error(format!(
            "column `{}` is a {}, which CSV cannot hold; {LEAVE_OUT}, or write JSON",
            field.name(),
            field.data_type()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        DictionaryArray, FixedSizeListArray, Int32Array, ListViewArray, RunArray, StringArray,
        new_empty_array,
    };
    use arrow::datatypes::{Field, Int8Type, Int32Type, UnionFields, UnionMode};
    use arrow::ipc::reader::FileReader;

    use super::*;

    #[test]
    fn dictionaries_of_views_go_into_parquet_as_views() {
        let keys = arrow::array::Int8Array::from(vec![Some(0), None, Some(0)]);
        let words = arrow::array::StringViewArray::from(vec!["a text that a view does not hold by itself"]);
        let words = Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(words))) as _;
        let batch = RecordBatch::try_from_iter([("a", words)]).unwrap();
        let mut file = Vec::new();
        let mut encoder = Encoder::open(Format::Parquet, &batch.schema(), &mut file, false).unwrap();
        encoder.write(&batch).unwrap();
        encoder.finish().unwrap();
        let read =
            parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes::Bytes::from(file), 10);
        let read = read.unwrap().next().unwrap().unwrap();
        assert_eq!((read.num_rows(), read.column(0).null_count()), (3, 1));
    }

    #[test]
    fn columns_that_the_writer_of_parquet_panics_on_are_refused() {
        let fields = UnionFields::from_fields(vec![Field::new("n", DataType::Int32, true)]);
        let union = DataType::Union(fields, UnionMode::Dense);
        let list = DataType::List(Arc::new(Field::new("item", union.clone(), true)));
        for data_type in [union, list] {
            let schema = Arc::new(Schema::new(vec![Field::new("u", data_type, true)]));
            let refused = Encoder::open(Format::Parquet, &schema, Vec::new(), false).err().unwrap();
            assert!(
                matches!(&refused, Failure::Error(message) if message.contains("is a union")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn batches_with_dictionaries_of_their_own_make_one_arrow_file() {
        let batch = |texts: [&str; 2]| {
            let texts: DictionaryArray<Int8Type> = texts.into_iter().collect();
            RecordBatch::try_from_iter([("a", Arc::new(texts) as _)]).unwrap()
        };
        let (mut file, schema) = (Vec::new(), batch(["x", "y"]).schema());
        let mut encoder = Encoder::open(Format::Arrow, &schema, &mut file, false).unwrap();
        encoder.write(&batch(["x", "y"])).unwrap();
        encoder.write(&batch(["z", "y"])).unwrap();
        encoder.finish().unwrap();
        let read = FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
        let texts = |batch: RecordBatch| {
            let texts = batch.column(0).as_string::<i32>();
            (0..texts.len()).map(|row| texts.value(row).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(read.flat_map(|batch| texts(batch.unwrap())).collect::<String>(), "xyzy");
    }

    #[test]
    fn nested_dictionaries_are_unpacked_whatever_is_around_them() {
        let texts =
            |texts: [&str; 2]| -> ArrayRef { Arc::new(DictionaryArray::<Int8Type>::from_iter(texts)) };
        let item = Arc::new(Field::new("item", texts(["x", "y"]).data_type().clone(), true));
        let none = new_empty_array(item.data_type());
        let none = FixedSizeListArray::try_new_with_length(Arc::clone(&item), 0, none, None, 2).unwrap();
        let none: ArrayRef = Arc::new(none);
        let batch = |words: [&str; 2]| {
            let (starts, lengths) = (vec![1, 0].into(), vec![1, 2].into());
            let views = ListViewArray::new(Arc::clone(&item), starts, lengths, texts(words), None);
            let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2]), &texts(words)).unwrap();
            let columns: [(_, ArrayRef); 3] =
                [("none", Arc::clone(&none)), ("views", Arc::new(views)), ("runs", Arc::new(runs))];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let (mut file, schema) = (Vec::new(), batch(["x", "y"]).schema());
        let mut encoder = Encoder::open(Format::Arrow, &schema, &mut file, false).unwrap();
        encoder.write(&batch(["x", "y"])).unwrap();
        encoder.write(&batch(["z", "y"]).slice(1, 1)).unwrap();
        encoder.finish().unwrap();
        let read = FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
        let read: Vec<RecordBatch> = read.map(Result::unwrap).collect();
        assert_eq!(read.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [2, 1]);
        let last = read[1].column(1).as_list_view::<i32>().value(0);
        assert_eq!(last.as_string::<i32>(), &StringArray::from(vec!["z", "y"]));
        let last = cast(&read[1].column(2), &DataType::Utf8).unwrap();
        assert_eq!(last.as_string::<i32>(), &StringArray::from(vec!["y"]));
    }
}
