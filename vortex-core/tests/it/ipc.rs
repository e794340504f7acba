//! IPC streams: written by a real release, written by this crate, and damaged.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    FixedSizeListArray, Int32Array, Int64Array, ListBuilder, ListViewArray, RecordBatch,
    RecordBatchReader as _, StringArray, StringViewBuilder, StructArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Int64Type, IntervalUnit, Schema};
use vortex_core::ipc::{IpcReader, IpcWriter};
use vortex_core::{Level, Release};

use crate::allocations;

use crate::given::{collect_blocking, files_of, golden, open_blocking};

/// A stream of two equal batches, each of 300 rows.
fn golden_stream() -> Vec<u8> {
    std::fs::read(golden("ipc/0.91.0.stream")).unwrap()
}

fn read(stream: &[u8]) -> Result<Vec<RecordBatch>, String> {
    let reader = IpcReader::try_new(stream).map_err(|error| error.to_string())?;
    let batches: Vec<_> = reader.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    for column in batches.iter().flat_map(RecordBatch::columns) {
        column.to_data().validate_full().expect("valid Arrow");
    }
    Ok(batches)
}

fn write(batches: &[RecordBatch]) -> Result<Vec<u8>, vortex_core::Error> {
    let mut writer = IpcWriter::try_new(Vec::new(), &batches[0].schema())?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    Ok(writer.into_inner())
}

#[test]
fn streams_of_a_release_are_read() {
    let batches = read(&golden_stream()).unwrap();
    assert_eq!(batches.len(), 2);
    assert_eq!(batches[0], batches[1]);
    let batch = &batches[0];
    assert_eq!(batch.num_rows(), 300);
    assert!(batch["id"].as_primitive::<Int32Type>().values().iter().copied().eq(0..300));
    let floats = batch["f"].as_primitive::<Float64Type>();
    let (names, lists) = (batch["name"].as_string_view(), batch["l"].as_list::<i32>());
    for row in 0..300 {
        assert_eq!(floats.value(row), row as f64 / 4.0);
        let name = (row % 7 != 0).then(|| format!("name {} of some length", row % 13));
        assert_eq!(names.is_valid(row).then(|| names.value(row).to_owned()), name);
        let list =
            lists.is_valid(row).then(|| lists.value(row).as_primitive::<Int64Type>().values().to_vec());
        assert_eq!(list, (row % 5 != 0).then(|| vec![row as i64, row as i64 + 1]));
    }
}

#[test]
fn what_is_written_is_read_back() {
    let (mut same, mut unsupported) = (0, Vec::new());
    for path in files_of(&golden("0.91.0")) {
        let file = open_blocking(&path).unwrap();
        let Ok(whole) = collect_blocking(file.scan()) else { continue };
        // Slices, so that offsets do not start at zero.
        let (half, rows) = (whole.num_rows() / 2, whole.num_rows());
        let parts = [whole.slice(0, half), whole.slice(half, rows - half)];
        match write(&parts) {
            Ok(stream) => {
                let found = concat_batches(&whole.schema(), &read(&stream).unwrap()).unwrap();
                assert_eq!(found, whole, "{}", path.display());
                same += 1;
            }
            Err(error) => unsupported.push(format!("{}: {error}", path.display())),
        }
    }
    println!("{same} come back; not written: {unsupported:?}");
    assert!(same > 30, "{unsupported:?}");
}

/// A batch of one column.
fn of(column: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter([("c", Arc::new(column) as ArrayRef)]).unwrap()
}

#[test]
fn items_that_take_no_bytes_come_back() {
    let nothing = FixedSizeListArray::try_new_with_length(
        Arc::new(Field::new("item", DataType::Int32, true)),
        0,
        Arc::new(Int32Array::from(Vec::<i32>::new())),
        None,
        3,
    );
    let nothing: ArrayRef = Arc::new(nothing.unwrap());
    let structs = StructArray::from(vec![
        (
            Arc::new(Field::new("a", DataType::Int32, false)),
            Arc::new(Int32Array::from(vec![1, 2, 3])) as ArrayRef,
        ),
        (Arc::new(Field::new("f", nothing.data_type().clone(), false)), Arc::clone(&nothing)),
    ]);
    let item = |of: &dyn Array| Arc::new(Field::new("item", of.data_type().clone(), false));
    let views =
        |items: ArrayRef| ListViewArray::new(item(&items), vec![1, 0].into(), vec![2, 1].into(), items, None);
    for items in [nothing, Arc::new(structs) as ArrayRef] {
        for compression in [None, Some(Level::Default)] {
            let batch = of(views(Arc::clone(&items)));
            let mut writer = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
            if let Some(level) = compression {
                writer = writer.with_compression(level, Release::NEWEST);
            }
            writer.write(&batch).unwrap();
            let found = read(&writer.into_inner()).unwrap();
            let lists = found[0]["c"].as_list::<i32>();
            assert_eq!((&lists.value(0), &lists.value(1)), (&items.slice(1, 2), &items.slice(0, 1)));
        }
    }
}

#[test]
fn bytes_that_rows_share_are_not_written_for_each() {
    let text = "a long text; ".repeat(1 << 14);
    let mut views = StringViewBuilder::new().with_deduplicate_strings();
    (0..20_000).for_each(|_| views.append_value(&text));
    let keys = Int32Array::from(vec![0; 20_000]);
    let dictionary = DictionaryArray::new(keys, Arc::new(StringArray::from(vec![text.as_str()])));
    let numbers = Arc::new(Int64Array::from_iter_values(0..1 << 17));
    let lists = ListViewArray::new(
        Arc::new(Field::new("item", DataType::Int64, false)),
        vec![0; 300].into(),
        vec![1 << 17; 300].into(),
        numbers,
        None,
    );
    // Several arrays of the same buffers.
    let views = views.finish();
    let parts: Vec<_> = (0..40).map(|row| views.slice(row, 1)).collect();
    let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
    let joined = arrow::compute::concat(&parts).unwrap();
    let watch = allocations::watch(0);
    let cases: [(RecordBatch, usize); 4] = [
        (of(views), 20 << 20),
        (of(dictionary), 20 << 20),
        (RecordBatch::try_from_iter([("c", joined)]).unwrap(), 10 << 20),
        (of(lists), 310 << 20),
    ];
    for (batch, expected) in cases {
        for compression in [None, Some(Level::Fast)] {
            let mut writer = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
            if let Some(level) = compression {
                writer = writer.with_compression(level, Release::NEWEST);
            }
            writer.write(&batch).unwrap();
            let stream = writer.into_inner();
            assert!(stream.len() < expected, "{}, {compression:?}: {} bytes", batch.schema(), stream.len());
            let rows = IpcReader::try_new(stream.as_slice()).unwrap().map(|batch| batch.unwrap().num_rows());
            assert_eq!(rows.sum::<usize>(), batch.num_rows(), "{}, {compression:?}", batch.schema());
        }
    }
    assert!(watch.largest() < 700 << 20, "{}", watch.largest());
}

#[test]
fn a_row_that_no_reader_accepts_is_refused() {
    let text = "a long text; ".repeat(1 << 14);
    let list = |items: usize| -> ArrayRef {
        let mut lists = ListBuilder::new(StringViewBuilder::new().with_deduplicate_strings());
        (0..items).for_each(|_| lists.values().append_value(&text));
        lists.append(true);
        Arc::new(lists.finish())
    };
    let refused = |batch: &RecordBatch| {
        let mut writer = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(batch).unwrap_err().to_string()
    };
    let error = refused(&RecordBatch::try_from_iter([("c", list(20_000))]).unwrap());
    assert!(error.contains("column `c`") && error.contains("2 GiB"), "{error}");
    // Readers accept each of these columns, but not the message with both.
    let error = refused(&RecordBatch::try_from_iter([("c", list(6_000)), ("d", list(6_000))]).unwrap());
    assert!(error.contains("2 GiB"), "{error}");
}

#[test]
fn a_batch_that_is_written_in_part_ends_the_stream() {
    let numbers = |wrong: i128| {
        let numbers = (0..100_000).map(|row| if row == 80_000 { wrong } else { 7 });
        of(Decimal128Array::from_iter_values(numbers).with_precision_and_scale(5, 2).unwrap())
    };
    let mut writer = IpcWriter::try_new(Vec::new(), &numbers(7).schema()).unwrap();
    writer.write(&numbers(7)).unwrap();
    let error = writer.write(&numbers(1_000_000_000)).unwrap_err().to_string();
    assert!(error.contains("column `c`"), "{error}");
    assert!(writer.write(&numbers(7)).unwrap_err().to_string().contains("writing failed before"));
    // What fails in the first message leaves the stream as it is.
    let mut writer = IpcWriter::try_new(Vec::new(), &numbers(7).schema()).unwrap();
    assert!(writer.write(&numbers(1_000_000_000).slice(80_000, 3)).is_err());
    writer.write(&numbers(7)).unwrap();
    assert_eq!(read(&writer.into_inner()).unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 100_000);
}

#[test]
fn columns_in_another_order_are_refused() {
    let one = Arc::new(Int32Array::from(vec![1])) as ArrayRef;
    let batch =
        |names: [&str; 2]| RecordBatch::try_from_iter(names.map(|name| (name, Arc::clone(&one)))).unwrap();
    let mut writer = IpcWriter::try_new(Vec::new(), &batch(["a", "b"]).schema()).unwrap();
    let error = writer.write(&batch(["b", "a"])).unwrap_err().to_string();
    assert!(error.contains("column `b` is where the schema has `a`"), "{error}");
}

/// Fails once, after some bytes.
struct Fails(i64);

impl Write for Fails {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let before = self.0;
        self.0 -= bytes.len() as i64;
        if before > 0 && self.0 <= 0 { Err(std::io::Error::other("a hiccup")) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_does_not_go_on_after_a_failure() {
    let batch = of(Int64Array::from_iter_values(0..1000));
    let mut writer = IpcWriter::try_new(Fails(10_000), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    assert_eq!(writer.write(&batch).unwrap_err().to_string(), "writing stream: a hiccup");
    let message = "invalid argument: the stream is incomplete, because writing failed before";
    assert_eq!(writer.write(&batch).unwrap_err().to_string(), message);
}

#[test]
fn what_cannot_be_written_is_refused_with_its_name() {
    let refused =
        |field: Field| IpcWriter::try_new(Vec::new(), &Schema::new(vec![field])).unwrap_err().to_string();
    let deep = (0..40).fold(DataType::Int32, |of, _| DataType::new_list(of, true));
    let error = refused(Field::new("deep", deep, true));
    assert!(
        error.contains("readers do not accept this schema: limit exceeded: dtype is nested too deeply"),
        "{error}"
    );
    let error = refused(Field::new("span", DataType::Interval(IntervalUnit::DayTime), true));
    assert!(error.contains("span"), "{error}");
    let inner = DataType::new_list(DataType::Interval(IntervalUnit::DayTime), true);
    let error = refused(Field::new("spans", inner, true));
    assert!(error.contains("spans"), "{error}");
    let mut writer = IpcWriter::try_new(Vec::new(), &of(Int64Array::from(vec![1])).schema()).unwrap();
    let error = writer.write(&of(Int32Array::from(vec![1]))).unwrap_err().to_string();
    assert!(error.contains("column `c`") && error.contains("Int32"), "{error}");
}

#[test]
fn uuids_are_refused_for_readers_that_lack_them() {
    let ids = FixedSizeBinaryArray::try_from_iter([[7_u8; 16], [8; 16]].iter()).unwrap();
    let name = HashMap::from([("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())]);
    let field = Field::new("id", DataType::FixedSizeBinary(16), false).with_metadata(name);
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(ids)]).unwrap();
    let compressed = |min_reader| {
        let writer = IpcWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        let mut writer = writer.with_compression(Level::Fast, min_reader);
        writer.write(&batch).map(|()| writer.into_inner())
    };
    let stream = compressed(Release::NEWEST).unwrap();
    assert_eq!(read(&stream).unwrap()[0].column(0), batch.column(0));
    let error = compressed(Release::OLDEST).unwrap_err().to_string();
    assert!(error.contains("column `id`") && error.contains(&Release::OLDEST.to_string()), "{error}");
}

#[test]
fn an_empty_stream_has_a_schema_and_no_batches() {
    let whole = read(&golden_stream()).unwrap();
    let writer = IpcWriter::try_new(Vec::new(), &whole[0].schema()).unwrap();
    let stream = writer.into_inner();
    let reader = IpcReader::try_new(stream.as_slice()).unwrap();
    assert_eq!(reader.schema(), whole[0].schema());
    assert_eq!(reader.count(), 0);
    assert!(IpcReader::try_new(&[][..]).is_err());
}

#[test]
fn a_stream_cut_anywhere_but_between_messages_is_an_error() {
    let stream = golden_stream();
    let second = stream.len() - (stream.len() - 308) / 2;
    for len in 0..stream.len() {
        let outcome = read(&stream[..len]);
        match len {
            308 => assert_eq!(outcome.unwrap().len(), 0),
            _ if len == second => assert_eq!(outcome.unwrap().len(), 1),
            _ => assert!(outcome.is_err(), "cut at {len}"),
        }
    }
}

#[test]
fn damaged_streams_end_in_values_or_errors() {
    let stream = golden_stream();
    let stream = &stream[..stream.len() - (stream.len() - 308) / 2];
    for at in 0..stream.len() {
        for damage in [1, 0x80, 0xff] {
            let mut damaged = stream.to_vec();
            damaged[at] ^= damage;
            let _whatever_it_holds = read(&damaged);
        }
    }
}

#[test]
fn lengths_that_are_claims_take_no_memory() {
    let mut stream = golden_stream();
    stream[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(read(&stream).unwrap_err().contains("before its body"));
    let writer = IpcWriter::try_new(Vec::new(), &read(&golden_stream()).unwrap()[0].schema()).unwrap();
    let mut stream = writer.into_inner();
    let body_len = stream.len() as u64;
    let header_len = u64::from(u32::from_le_bytes(stream[..4].try_into().unwrap()));
    let body = body_len - header_len - 4;
    let at = stream.windows(8).position(|bytes| bytes == body.to_le_bytes()).unwrap();
    stream[at..at + 8].copy_from_slice(&(1u64 << 30).to_le_bytes());
    assert!(read(&stream).unwrap_err().contains("ends within"));
    stream[at..at + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
    assert!(read(&stream).unwrap_err().contains("message body"));
}

#[test]
fn a_batch_of_another_schema_is_refused() {
    let batches = read(&golden_stream()).unwrap();
    let mut writer = IpcWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    assert!(writer.write(&batches[0].project(&[0]).unwrap()).is_err());
}
