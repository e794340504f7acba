//! Writers of formats other than Vortex.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::writer_types::{LEAVE_OUT, as_plain, flat_columns_only, plain_schema, storable_columns_only};
use crate::failure::{Failure, Outcome};
use crate::formats::Format;
use crate::json::JsonRows;
use crate::text::check_durations;

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
    /// Starts writing a stream. Readers cannot seek in it, so Arrow has another format for streams.
    pub(super) fn stream(format: Format, schema: &SchemaRef, out: W) -> Outcome<Self> {
        match format {
            Format::Arrow => Ok(Self::ArrowStream(Box::new(StreamWriter::try_new(out, schema)?))),
            _ => Self::file(format, schema, out),
        }
    }

    /// Starts writing a file.
    pub(super) fn file(format: Format, schema: &SchemaRef, out: W) -> Outcome<Self> {
        Ok(match format {
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

    /// About the bytes that are still in memory and take some in the file.
    pub(super) fn pending_bytes(&self) -> u64 {
        match self {
            Self::Parquet(writer, _) => writer.in_progress_size() as u64,
            Self::ArrowFile(..) | Self::ArrowStream(_) | Self::Csv(_) | Self::Json(..) => 0,
        }
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

#[cfg(test)]
mod tests {
    use arrow::array::{
        Array as _, ArrayRef, AsArray as _, DictionaryArray, FixedSizeListArray, Int32Array, ListViewArray,
        RunArray, StringArray, new_empty_array,
    };
    use arrow::compute::cast;
    use arrow::datatypes::{DataType, Field, Int8Type, Int32Type, Schema, UnionFields, UnionMode};
    use arrow::ipc::reader::FileReader;

    use super::*;

    #[test]
    fn dictionaries_of_views_go_into_parquet_as_views() {
        let keys = arrow::array::Int8Array::from(vec![Some(0), None, Some(0)]);
        let words = arrow::array::StringViewArray::from(vec!["a text that a view does not hold by itself"]);
        let words = Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(words))) as _;
        let batch = RecordBatch::try_from_iter([("a", words)]).unwrap();
        let mut file = Vec::new();
        let mut encoder = Encoder::file(Format::Parquet, &batch.schema(), &mut file).unwrap();
        encoder.write(&batch).unwrap();
        encoder.finish().unwrap();
        let read =
            parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes::Bytes::from(file), 10);
        let read = read.unwrap().next().unwrap().unwrap();
        assert_eq!((read.num_rows(), read.column(0).null_count()), (3, 1));
    }

    #[test]
    fn dictionaries_in_parquet_may_have_more_values_than_the_keys_of_a_batch() {
        // 128 values are too many for readers, too.
        let batch = |words: std::ops::Range<usize>| {
            let words: Vec<String> = words.map(|word| format!("word {word}")).collect();
            let words: DictionaryArray<Int8Type> = words.iter().map(String::as_str).collect();
            RecordBatch::try_from_iter([("a", Arc::new(words) as _)]).unwrap()
        };
        let mut file = Vec::new();
        let mut encoder = Encoder::file(Format::Parquet, &batch(0..1).schema(), &mut file).unwrap();
        for words in [0..128, 100..220] {
            encoder.write(&batch(words)).unwrap();
        }
        encoder.finish().unwrap();
        let read =
            parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes::Bytes::from(file), 10);
        let words = read.unwrap().map(|batch| cast(batch.unwrap().column(0), &DataType::Utf8).unwrap());
        let words = words.flat_map(|words| {
            words.as_string::<i32>().iter().map(|word| word.unwrap().to_owned()).collect::<Vec<_>>()
        });
        let expected = (0..128).chain(100..220).map(|word| format!("word {word}"));
        assert_eq!(words.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn columns_that_the_writer_of_parquet_panics_on_are_refused() {
        let fields = UnionFields::from_fields(vec![Field::new("n", DataType::Int32, true)]);
        let union = DataType::Union(fields, UnionMode::Dense);
        let list = DataType::List(Arc::new(Field::new("item", union.clone(), true)));
        for data_type in [union, list] {
            let schema = Arc::new(Schema::new(vec![Field::new("u", data_type, true)]));
            let refused = Encoder::file(Format::Parquet, &schema, Vec::new()).err().unwrap();
            assert!(
                matches!(&refused, Failure::Error(message) if message.contains("is a union")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn rows_and_structs_without_columns_are_refused() {
        let rows = Arc::new(Schema::empty());
        let structs = DataType::Struct(Schema::empty().fields);
        let structs = Arc::new(Schema::new(vec![Field::new("s", structs, true)]));
        for (format, schema, told) in [
            (Format::Csv, &rows, "CSV cannot hold rows without columns"),
            (Format::Parquet, &rows, "Parquet cannot hold rows without columns"),
            (Format::Parquet, &structs, "column `s` is a struct without fields"),
        ] {
            let refused = Encoder::file(format, schema, Vec::new()).err().unwrap();
            assert!(matches!(&refused, Failure::Error(message) if message.contains(told)), "{refused:?}");
        }
    }

    #[test]
    fn batches_with_dictionaries_of_their_own_make_one_arrow_file() {
        let batch = |texts: [&str; 2]| {
            let texts: DictionaryArray<Int8Type> = texts.into_iter().collect();
            RecordBatch::try_from_iter([("a", Arc::new(texts) as _)]).unwrap()
        };
        let (mut file, schema) = (Vec::new(), batch(["x", "y"]).schema());
        let mut encoder = Encoder::file(Format::Arrow, &schema, &mut file).unwrap();
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
        let mut encoder = Encoder::file(Format::Arrow, &schema, &mut file).unwrap();
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
