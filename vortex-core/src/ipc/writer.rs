//! Writing a stream of record batches.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, RecordBatch};
use arrow::datatypes::Schema;

use crate::compress::{Compressor, canonical};
use crate::dtype::arrow::from_schema;
use crate::dtype::{DType, Meaning, StructType, time_zone};
use crate::encodings::struct_;
use crate::error::ResultExt as _;
use crate::expr::FieldPath;
use crate::wire::{Ids, Message, MessageKind, dtype_to_bytes};
use crate::write::{Intake, MAX_ROW_BYTES, check_depth, raw_bytes};
use crate::{Error, Level, Release, Result};

/// Maximum number of bytes of the values of a message that has several rows: readers decode many at a time.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Writes record batches of one schema as an IPC stream, in canonical encodings unless compression is
/// requested.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow::array::{Int32Array, RecordBatch, RecordBatchReader as _};
/// use vortex_core::ipc::{IpcReader, IpcWriter};
///
/// # fn main() -> vortex_core::Result<()> {
/// let batch = RecordBatch::try_from_iter([("a", Arc::new(Int32Array::from(vec![1, 2, 3])) as _)])?;
/// let mut writer = IpcWriter::try_new(Vec::new(), &batch.schema())?;
/// writer.write(&batch)?;
/// let stream = writer.into_inner();
///
/// let reader = IpcReader::try_new(stream.as_slice())?;
/// assert_eq!(reader.schema(), batch.schema());
/// assert_eq!(reader.collect::<Result<Vec<_>, _>>()?, [batch]);
/// # Ok(())
/// # }
/// ```
///
/// Values come back as the Arrow types that readers of files prefer: views of text, 128-bit decimals, lists instead of
/// list views. A stream has no place to tell other types, so that those which files only keep because they state the
/// Arrow schema (durations, intervals, byte strings of fixed length, odd time zones) are refused.
#[derive(Debug)]
pub struct IpcWriter<W> {
    sink: W,
    intake: Intake,
    fields: Arc<StructType>,
    /// Whether a message may have been written in part.
    is_broken: bool,
    /// Without a compressor, encodings are canonical.
    compressor: Option<Compressor>,
}

impl<W: Write> IpcWriter<W> {
    /// Starts a stream: writes the type of all batches that follow.
    ///
    /// # Errors
    /// If a column has a type that Vortex lacks, a variant or a union, which are not written, or a time zone for which
    /// other readers refuse all of the stream, such as `Z`; if types nest deeper than readers accept, or writing fails.
    pub fn try_new(sink: W, schema: &Schema) -> Result<Self> {
        let dtype = from_schema(schema)?;
        check_depth(&dtype)?;
        let fields =
            dtype.as_columns().cloned().ok_or_else(|| Error::invalid("a schema must be a struct"))?;
        for (name, dtype) in fields.fields() {
            check_encodable(dtype).at(|| format!("column `{name}`"))?;
        }
        let intake = Intake::try_new(Arc::new(schema.clone()), &fields)?;
        let mut writer = Self { sink, intake, fields, is_broken: false, compressor: None };
        writer.message(MessageKind::DType, &dtype_to_bytes(&dtype))?;
        Ok(writer)
    }

    /// Compresses all batches written from now on, for readers of `min_reader` and later. Without this,
    /// nothing is compressed. Types that these readers lack are errors of [`write`](Self::write).
    ///
    /// ```no_run
    /// # use arrow::array::RecordBatch;
    /// use std::io::{BufWriter, Write as _};
    /// use std::net::TcpStream;
    ///
    /// use vortex_core::ipc::IpcWriter;
    /// use vortex_core::{Level, Release};
    ///
    /// # fn example(batches: &[RecordBatch]) -> Result<(), Box<dyn std::error::Error>> {
    /// let connection = BufWriter::new(TcpStream::connect("localhost:4711")?);
    /// let writer = IpcWriter::try_new(connection, &batches[0].schema())?;
    /// let mut writer = writer.with_compression(Level::Fast, Release::NEWEST);
    /// for batch in batches {
    ///     writer.write(batch)?;
    /// }
    /// writer.into_inner().flush()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_compression(mut self, level: Level, min_reader: Release) -> Self {
        self.compressor = Some(Compressor::new(level, min_reader));
        self
    }

    /// Compresses one column, or a field of structs given by its path, at another level than that of
    /// [the stream](Self::with_compression). The level of a struct is that of its fields, too, unless they have one of
    /// their own.
    ///
    /// # Errors
    /// If there is no such column, or compression was not requested before.
    pub fn with_column_level(mut self, path: impl Into<FieldPath>, level: Level) -> Result<Self> {
        let Some(compressor) = &mut self.compressor else {
            return Err(Error::invalid(
                "a column has a level only in a stream with compression; request that first",
            ));
        };
        compressor.set_field_level(path.into(), level, &DType::Struct(Arc::clone(&self.fields), false))?;
        Ok(self)
    }

    /// Writes a batch. It takes several messages if it has more than 65,536 rows, or if its values take more than some
    /// 64 MiB, counting bytes that rows share for each of them.
    ///
    /// # Errors
    /// If its columns do not match the schema, or it has values that cannot be written or are too long for readers. If
    /// some of its rows have been written by then, or if writing fails, further calls fail, too.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.is_broken {
            return Err(Error::invalid("the stream is incomplete, because writing failed before"));
        }
        let nothing = (batch.num_rows() == 0).then(|| batch.clone());
        for (at, rows) in self.intake.portions(batch)?.chain(nothing).enumerate() {
            let columns = self.intake.carry(&rows);
            let written = columns.and_then(|columns| self.write_rows(&columns, rows.num_rows()));
            self.is_broken |= written.is_err() && at > 0;
            written?;
        }
        Ok(())
    }

    /// Writes rows as one message, or in halves if their values take too many bytes.
    fn write_rows(&mut self, columns: &[ArrayRef], rows: usize) -> Result<()> {
        let raw_bytes = columns.iter().map(raw_bytes);
        if rows > 1 && raw_bytes.clone().fold(0, usize::saturating_add) > MAX_MESSAGE_BYTES {
            let half = |start: usize, len: usize| -> Vec<ArrayRef> {
                columns.iter().map(|column| column.slice(start, len)).collect()
            };
            self.write_rows(&half(0, rows / 2), rows / 2)?;
            let rest = self.write_rows(&half(rows / 2, rows - rows / 2), rows - rows / 2);
            self.is_broken |= rest.is_err();
            return rest;
        }
        if let Some(at) = raw_bytes.clone().position(|bytes| bytes as u64 > MAX_ROW_BYTES) {
            return Err(too_long().at(self.intake.place(at)));
        }
        // Readers limit the message as a whole.
        if raw_bytes.map(|bytes| bytes as u64).fold(0, u64::saturating_add) > MAX_ROW_BYTES {
            return Err(too_long());
        }
        let encoded =
            columns.iter().zip(self.fields.fields()).enumerate().map(|(at, (column, (name, dtype)))| {
                let encoded = match &self.compressor {
                    Some(compressor) => compressor.field(name).compress(column, dtype),
                    None => canonical(column, dtype),
                };
                encoded.at(|| self.intake.place(at))
            });
        let root = struct_::encode(encoded.collect::<Result<_>>()?, None);
        let mut ids = Ids::default();
        let blob = root.to_blob(&mut ids)?;
        let row_count = u32::try_from(rows).map_err(Error::limit)?;
        self.message(MessageKind::Array { row_count, ids: ids.into_table() }, &blob)
    }

    fn message(&mut self, kind: MessageKind, body: &[u8]) -> Result<()> {
        let header = Message { kind, body_len: body.len() as u64 }.to_bytes();
        let len = u32::try_from(header.len()).map_err(Error::limit)?;
        let failed = |error: std::io::Error| Error::write("stream", error);
        self.is_broken = true;
        self.sink.write_all(&len.to_le_bytes()).map_err(failed)?;
        self.sink.write_all(&header).map_err(failed)?;
        self.sink.write_all(body).map_err(failed)?;
        self.is_broken = false;
        Ok(())
    }

    /// Returns the sink. There is nothing to finish: the stream ends where its bytes end.
    pub fn into_inner(self) -> W {
        self.sink
    }
}

fn too_long() -> Error {
    Error::limit("a row of more than 2 GiB, which readers do not accept")
}

/// Checks that there are no variants and unions, which have no encoding that is written, and no time zones for which
/// other readers refuse all of the stream.
fn check_encodable(dtype: &DType) -> Result<()> {
    match dtype {
        DType::Variant(_) | DType::Union(..) => Err(Error::unsupported("type to write", dtype)),
        DType::Struct(fields, _) => fields.dtypes().iter().try_for_each(check_encodable),
        DType::List(element, _) | DType::FixedSizeList(element, ..) => check_encodable(element),
        DType::Map(map, _) => check_encodable(map.key()).and_then(|()| check_encodable(map.value())),
        DType::Extension(extension) => match extension.meaning() {
            Meaning::Timestamp(_, Some(zone)) if !time_zone::is_known(zone) => {
                let message = format!("{dtype}: other readers lack this time zone; write UTC");
                Err(Error::unsupported("type to write", message))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        ArrayRef, AsArray as _, BooleanArray, FixedSizeListArray, Float64Array, Int32Array, Int64Array,
        ListArray, StringViewArray, StructArray, new_empty_array,
    };
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::datatypes::{DataType, Field, TimeUnit, UnionFields, UnionMode};

    use super::*;
    use crate::ipc::IpcReader;
    use crate::kernels::random;

    /// Columns that compress well, each in another way.
    fn batch() -> RecordBatch {
        let rows = 0..5000;
        let maybe = |row: i64| row % 7 != 0;
        let text = |row: i64| maybe(row).then(|| format!("the name of number {}", row % 100));
        let columns: [(&str, ArrayRef, bool); 6] = [
            ("rising", Arc::new(Int64Array::from_iter_values(rows.clone())), false),
            (
                "small",
                Arc::new(Int32Array::from_iter(
                    rows.clone().map(|row| maybe(row).then_some((row * 31 % 50) as i32)),
                )),
                true,
            ),
            (
                "quarters",
                Arc::new(Float64Array::from_iter_values(rows.clone().map(|row| row as f64 / 4.0))),
                false,
            ),
            ("text", Arc::new(StringViewArray::from_iter(rows.clone().map(text))), true),
            (
                "flag",
                Arc::new(BooleanArray::from_iter(rows.map(|row| maybe(row).then_some(row < 1000)))),
                true,
            ),
            ("none", Arc::new(Int32Array::new_null(5000)), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    #[test]
    fn what_is_compressed_at_any_level_comes_back() {
        let batch = batch();
        // A slice does not start at offset zero, and empty batches have nothing to compress.
        let batches = [batch.clone(), batch.slice(1234, 2345), batch.slice(7, 0)];
        let written = |compression: Option<(Level, Release)>| {
            let mut writer = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
            if let Some((level, release)) = compression {
                writer = writer.with_compression(level, release);
            }
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.into_inner()
        };
        let canonical = written(None).len();
        for level in [Level::Fast, Level::Default, Level::Compact] {
            for release in [Release::OLDEST, Release::NEWEST] {
                let stream = written(Some((level, release)));
                assert!(stream.len() * 2 < canonical, "{level}, {release}: {} bytes", stream.len());
                let found = IpcReader::try_new(stream.as_slice()).unwrap();
                assert_eq!(found.collect::<Result<Vec<_>, _>>().unwrap(), batches, "{level}, {release}");
            }
        }
    }

    #[test]
    fn columns_and_fields_of_a_stream_are_compressed_at_their_own_levels() {
        let mut next = random(1);
        let mut climbing = || -> ArrayRef {
            let mut sum = 0;
            Arc::new(Int64Array::from_iter_values((0..5000).map(|_| {
                sum += (next() % 1000) as i64;
                sum
            })))
        };
        let inner = ["x", "y"].map(|name| (Arc::new(Field::new(name, DataType::Int64, false)), climbing()));
        let columns = [("a", climbing()), ("s", Arc::new(StructArray::from(inner.to_vec())) as ArrayRef)];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let fast = || {
            let writer = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
            writer.with_compression(Level::Fast, Release::NEWEST)
        };
        let stream_len = |levels: &[(FieldPath, Level)]| {
            let levels = levels.iter().cloned();
            let mut writer =
                levels.fold(fast(), |writer, (path, level)| writer.with_column_level(path, level).unwrap());
            writer.write(&batch).unwrap();
            let stream = writer.into_inner();
            let found = IpcReader::try_new(stream.as_slice()).unwrap();
            assert_eq!(found.collect::<Result<Vec<_>, _>>().unwrap(), std::slice::from_ref(&batch));
            stream.len()
        };
        let compact = |path: FieldPath| (path, Level::Compact);
        let y_fast = (FieldPath::from(["s", "y"]), Level::Fast);
        let none = stream_len(&[]);
        let one = stream_len(&[compact("a".into())]);
        let two = stream_len(&[compact("a".into()), compact("s".into()), y_fast]);
        let three = stream_len(&[compact("a".into()), compact("s".into())]);
        assert!(none > one + 500 && one > two + 500 && two > three + 500, "{none}, {one}, {two}, {three}");

        let error = fast().with_column_level("b", Level::Compact).unwrap_err().to_string();
        assert!(error.contains("no column `b`; there are: a, s"), "{error}");
        let plain = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        assert!(plain.with_column_level("a", Level::Compact).is_err(), "without compression");
    }

    #[test]
    fn values_that_are_null_only_where_their_struct_or_list_is_are_written() {
        let number = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])) as ArrayRef;
        let nulls = NullBuffer::from(vec![true, false, true]);
        let of = |name: &str, column: &ArrayRef| -> ArrayRef {
            let field = Field::new(name, column.data_type().clone(), false);
            Arc::new(StructArray::new(vec![field].into(), vec![Arc::clone(column)], Some(nulls.clone())))
        };
        let inner = of("number", &number);
        let item = Arc::new(Field::new("item", inner.data_type().clone(), false));
        let lists = FixedSizeListArray::new(item, 1, Arc::clone(&inner), Some(nulls.clone()));
        let columns = [("struct", of("inner", &inner), true), ("list", Arc::new(lists) as ArrayRef, true)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        for compression in [None, Some(Level::Default)] {
            let mut writer = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
            if let Some(level) = compression {
                writer = writer.with_compression(level, Release::NEWEST);
            }
            writer.write(&batch).unwrap();
            let stream = writer.into_inner();
            let found = IpcReader::try_new(stream.as_slice()).unwrap();
            assert_eq!(
                found.collect::<Result<Vec<_>, _>>().unwrap(),
                std::slice::from_ref(&batch),
                "{compression:?}"
            );
        }
    }

    #[test]
    fn lists_of_fixed_size_zero_are_written_with_and_without_compression() {
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let empty =
            FixedSizeListArray::try_new_with_length(item, 0, new_empty_array(&DataType::Utf8), None, 3);
        let empty: ArrayRef = Arc::new(empty.unwrap());
        let item = Arc::new(Field::new("item", empty.data_type().clone(), false));
        let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
        let lists = ListArray::new(Arc::clone(&item), offsets, Arc::clone(&empty), None);
        let structs = StructArray::new(vec![item].into(), vec![empty], None);
        let columns = [("lists", Arc::new(lists) as ArrayRef), ("structs", Arc::new(structs))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        for compression in [None, Some(Level::Default)] {
            let mut writer = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
            if let Some(level) = compression {
                writer = writer.with_compression(level, Release::NEWEST);
            }
            writer.write(&batch).unwrap();
            let stream = writer.into_inner();
            let mut found = IpcReader::try_new(stream.as_slice()).unwrap();
            let found = found.next().unwrap().unwrap();
            assert_eq!(found.column(0).as_list::<i32>().value_offsets(), [0, 2, 2, 3], "{compression:?}");
            assert_eq!(found.column(1).as_struct().column(0).len(), 3);
        }
    }

    #[test]
    fn types_that_are_never_written_are_refused_at_the_start() {
        let union = UnionFields::try_new([0], [Field::new("x", DataType::Int32, true)]).unwrap();
        let union = Field::new("item", DataType::Union(union, UnionMode::Sparse), true);
        let bytes = |name| Field::new(name, DataType::BinaryView, name == "value");
        let variant = Field::new_struct("item", vec![bytes("metadata"), bytes("value")], true);
        let name = ("ARROW:extension:name".to_owned(), "arrow.parquet.variant".to_owned());
        let variant = variant.with_metadata([name].into());
        let zone = DataType::Timestamp(TimeUnit::Second, Some("Z".into()));
        for field in [union, variant, Field::new("item", zone, true)] {
            let list = Field::new("a", DataType::List(Arc::new(field.clone())), true);
            for field in [field.with_name("a"), list] {
                let mut sink = Vec::new();
                let error = IpcWriter::try_new(&mut sink, &Schema::new(vec![field])).unwrap_err().to_string();
                assert!(error.contains("column `a`") && error.contains("type to write"), "{error}");
                assert!(sink.is_empty(), "the reader has been told of a column that does not come");
            }
        }
    }

    #[test]
    fn a_stream_that_takes_no_more_bytes_is_an_error_of_writing() {
        let mut room = [0; 10];
        let error = IpcWriter::try_new(room.as_mut_slice(), &batch().schema()).unwrap_err();
        assert!(matches!(error, Error::Write { .. }), "{error}");
        assert_eq!(error.to_string(), "writing stream: failed to write whole buffer");
    }
}
