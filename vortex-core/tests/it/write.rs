//! Written data is read back unchanged, and nothing is left behind if writing fails.

use std::sync::Arc;

use crate::random::{Random, any_type, array, plain_types};
use arrow::array::{
    ArrayRef, BinaryArray, BinaryViewBuilder, BooleanArray, DictionaryArray, Float64Array, Int32Array,
    Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Fields, Int8Type, Int32Type, Schema, SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use proptest::prelude::*;
use vortex_core::expr::{CompareOp, Expr, FieldPath, Predicate};
use vortex_core::file::{OpenOptions, SegmentCompression};
use vortex_core::io::{LocalFile, LocalSink, MemoryFile, MemorySink, ObjectFile, ObjectSink, ReadAt, Sink};
use vortex_core::scalar::Value;
use vortex_core::write::{FileWriter, WriteOptions, write_reader};
use vortex_core::{DType, Level, PType, Release, Result, Scalar, VortexFile, verify};

/// A table of `rows` rows: ascending numbers, occasional nulls, floats, text, a struct and a list.
fn table(rows: usize) -> RecordBatch {
    let ids = Int64Array::from_iter_values(0..rows as i64);
    let some = |at: usize| !at.is_multiple_of(7);
    let nulls = NullBuffer::from_iter((0..rows).map(some));
    let numbers = Int32Array::from_iter((0..rows).map(|at| some(at).then_some((at * 7919 % 10_000) as i32)));
    let floats =
        Float64Array::from_iter_values((0..rows).map(|at| if at == 5 { f64::NAN } else { at as f64 / 8.0 }));
    let text = StringArray::from_iter((0..rows).map(|at| some(at).then(|| format!("row number {at}"))));
    let flags: ArrayRef = Arc::new(BooleanArray::from_iter((0..rows).map(|at| Some(at % 3 == 0))));
    let inner: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows as i32));
    let fields = Fields::from(vec![
        Field::new("flag", DataType::Boolean, true),
        Field::new("inner", DataType::Int32, false),
    ]);
    let structs = StructArray::new(fields, vec![flags, inner], Some(nulls));
    let elements = Arc::new(Int32Array::from_iter_values(0..(rows * 2) as i32));
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(2, rows));
    let lists = ListArray::new(Arc::new(Field::new("item", DataType::Int32, false)), offsets, elements, None);
    let field = |name, array: &dyn arrow::array::Array, nullable| {
        Field::new(name, array.data_type().clone(), nullable)
    };
    let schema = Schema::new(vec![
        field("id", &ids, false),
        field("number", &numbers, true),
        field("float", &floats, false),
        field("text", &text, true),
        field("struct", &structs, true),
        field("list", &lists, false),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ids),
        Arc::new(numbers),
        Arc::new(floats),
        Arc::new(text),
        Arc::new(structs),
        Arc::new(lists),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

async fn written(batch: &RecordBatch, options: WriteOptions) -> VortexFile {
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), options).unwrap();
    for start in (0..batch.num_rows()).step_by(5000) {
        let written = writer.write(&batch.slice(start, 5000.min(batch.num_rows() - start))).await;
        written.unwrap_or_else(|error| panic!("{error}: {:?}", batch.schema()));
    }
    let summary = writer.finish().await.unwrap_or_else(|error| panic!("{error}: {:?}", batch.schema()));
    let bytes = sink.bytes().unwrap();
    assert_eq!(summary.file_size(), bytes.len() as u64);
    assert_eq!(summary.row_count(), batch.num_rows() as u64);
    VortexFile::open(Arc::new(MemoryFile::new(bytes))).await.unwrap()
}

async fn read(file: &VortexFile, schema: &SchemaRef, filter: Option<Expr>) -> RecordBatch {
    let mut scan = file.scan().with_schema(Arc::clone(schema));
    if let Some(filter) = filter {
        scan = scan.with_filter(filter);
    }
    let batches: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
    concat_batches(schema, &batches).unwrap()
}

#[tokio::test]
async fn rows_come_back_as_they_were_written() {
    for rows in [0, 1, 8192, 20_000, 300_000] {
        let batch = table(rows);
        for release in [Release::new(0, 56), Release::NEWEST] {
            // A small budget leads to many groups.
            let options = WriteOptions::new().with_min_reader(release).with_memory_budget(4 << 20);
            let file = written(&batch, options).await;
            assert_eq!(read(&file, &batch.schema(), None).await, batch, "{rows} rows for {release}");
        }
    }
}

#[tokio::test]
async fn zone_maps_rule_out_what_cannot_match_and_nothing_else() {
    let batch = table(100_000);
    for release in [Release::new(0, 56), Release::NEWEST] {
        let file = written(&batch, WriteOptions::new().with_min_reader(release)).await;
        let int = |value| Scalar::try_new(DType::Primitive(PType::I64, false), Value::Int(value)).unwrap();
        let filter = |op, value| Expr::Field(FieldPath::new(["id"]), Predicate::Compare(op, int(value)));
        let scan = file.scan().with_filter(filter(CompareOp::Lt, 10));
        let metrics = Arc::clone(scan.metrics());
        let found: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 10);
        let pruned = metrics.zones_pruned.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(pruned, 12, "{release}");
        let found = read(&file, &batch.schema(), Some(filter(CompareOp::GtEq, 12_345))).await;
        let keep = BooleanArray::from_iter((0..100_000).map(|at| Some(at >= 12_345)));
        assert_eq!(found, filter_record_batch(&batch, &keep).unwrap());
        let stats = &file.footer().statistics().unwrap()[0];
        assert_eq!(stats.is_strict_sorted, Some(true));
        assert_eq!(stats.sum.as_ref().unwrap().as_i128(), Some(99_999 * 100_000 / 2));
    }
}

#[tokio::test]
async fn every_sink_holds_the_same_file() {
    let batch = table(50_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.vortex");
    let store: Arc<dyn object_store::ObjectStore> = Arc::new(InMemory::new());
    let object = object_store::path::Path::from("x.vortex");

    let local = LocalSink::create(&path).unwrap();
    let mut writer = FileWriter::try_new(local, batch.schema(), WriteOptions::new()).unwrap();
    writer.write(&batch).await.unwrap();
    let summary = writer.finish().await.unwrap_or_else(|error| panic!("{error}: {:?}", batch.schema()));
    let sink = ObjectSink::new(Arc::clone(&store), object.clone()).with_part_bytes(64 << 10);
    let mut writer = FileWriter::try_new(sink, batch.schema(), WriteOptions::new()).unwrap();
    writer.write(&batch).await.unwrap();
    writer.finish().await.unwrap();

    let stored = store.get(&object).await.unwrap().bytes().await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), stored);
    let source = Arc::new(ObjectFile::new(Arc::clone(&store), store.head(&object).await.unwrap()));
    let file = VortexFile::open(source).await.unwrap();
    assert_eq!(read(&file, &batch.schema(), None).await, batch);
    // The writer returns the same footer as opening the file would.
    let footer = summary.footer(&OpenOptions::new()).unwrap();
    let file = VortexFile::from_footer(Arc::new(LocalFile::open(&path).unwrap()), footer);
    assert_eq!(read(&file, &batch.schema(), None).await, batch);
}

#[test]
fn a_reader_is_written_without_a_runtime() {
    let batch = table(10_000);
    let batches =
        arrow::array::RecordBatchIterator::new([Ok(batch.clone()), Ok(batch.clone())], batch.schema());
    let sink = MemorySink::new();
    let summary = write_reader(sink.clone(), batches, WriteOptions::new()).unwrap();
    assert_eq!(summary.row_count(), 20_000);
    assert!(sink.bytes().is_some());
}

/// Storage that waits, as networks do, which takes the timer of a runtime.
#[derive(Debug)]
struct Slow(MemorySink);

#[async_trait]
impl Sink for Slow {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        self.0.write(bytes).await
    }

    async fn finish(&mut self) -> Result<()> {
        self.0.finish().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.0.abort().await
    }
}

#[test]
fn a_reader_is_written_to_storage_that_waits() {
    let batch = table(10_000);
    let batches = arrow::array::RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let sink = MemorySink::new();
    let summary = write_reader(Slow(sink.clone()), batches, WriteOptions::new()).unwrap();
    assert_eq!(sink.bytes().unwrap().len() as u64, summary.file_size());
}

#[tokio::test]
async fn a_batch_that_does_not_fit_leaves_the_writer_as_it_was() {
    let batch = table(100);
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), WriteOptions::new()).unwrap();
    writer.write(&batch).await.unwrap();
    let other = batch.project(&[1, 0, 2, 3, 4, 5]).unwrap();
    let error = writer.write(&other).await.unwrap_err().to_string();
    assert!(error.contains("column `id`") && error.contains("Int32"), "{error}");
    writer.write(&batch).await.unwrap();
    assert_eq!(writer.finish().await.unwrap().row_count(), 200);
}

/// Writes columns and reads them in the file's own schema.
async fn round_trip(schema: Schema, columns: Vec<ArrayRef>, options: WriteOptions) {
    let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    let file = written(&batch, options).await;
    assert_eq!(file.schema().unwrap(), batch.schema());
    let batches: Vec<_> = file.scan().into_stream().unwrap().try_collect().await.unwrap();
    let found = concat_batches(&batch.schema(), &batches).unwrap();
    for (at, field) in batch.schema().fields().iter().enumerate() {
        let (found, expected) = (found.column(at).to_data(), batch.column(at).to_data());
        assert_eq!(found, expected, "{field}");
    }
}

#[tokio::test]
async fn every_type_comes_back_with_its_schema() {
    for release in [Release::OLDEST, Release::new(0, 56), Release::NEWEST] {
        for (at, data_type) in plain_types().into_iter().enumerate() {
            for nullable in [true, false] {
                let parts = matches!(data_type, DataType::Interval(_));
                if parts && nullable && release == Release::OLDEST {
                    continue;
                }
                let nullable = nullable || data_type == DataType::Null;
                let column = array(&mut Random(at as u64), &data_type, 20_000, nullable);
                let metadata = [("a key".to_owned(), at.to_string())];
                let field = Field::new("x", data_type.clone(), nullable).with_metadata(metadata.into());
                let schema = Schema::new(vec![field]).with_metadata([("k".into(), "v".into())].into());
                let options = WriteOptions::new().with_min_reader(release).with_memory_budget(1 << 20);
                round_trip(schema, vec![column], options).await;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The nesting of types and all values are determined by the seed.
    #[test]
    fn random_nested_columns_come_back(
        seed in any::<u64>(),
        depth in 0usize..4,
        rows in prop_oneof![Just(0), Just(1), 2usize..100, Just(9000)],
        cut in 0usize..100,
        release in prop_oneof![Just(Release::new(0, 56)), Just(Release::new(0, 76)), Just(Release::NEWEST)],
        level in prop_oneof![Just(Level::Fast), Just(Level::Default), Just(Level::Compact)],
    ) {
        let mut random = Random(seed);
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for at in 0..3 {
            let data_type = any_type(&mut random, depth);
            let nullable = at == 0 || data_type == DataType::Null;
            // Rows before the slice, and the values they refer to, are not written.
            let column = array(&mut random, &data_type, rows + cut, nullable);
            columns.push(column.slice(cut, rows));
            fields.push(Field::new(format!("c{at}"), data_type, nullable));
        }
        let options = WriteOptions::new().with_memory_budget(1 << 18).with_level(level).with_min_reader(release);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(round_trip(Schema::new(fields), columns, options));
    }
}

#[tokio::test]
async fn dictionaries_that_do_not_fit_into_one_come_back_with_wider_keys() {
    let batch = |start: usize| {
        let words = (start..start + 100).map(|at| format!("word {at}"));
        let keys = (0..100i8).map(|key| (key % 7 > 0).then_some(key)).collect();
        let words: ArrayRef = Arc::new(StringArray::from_iter_values(words));
        let column = DictionaryArray::<Int8Type>::try_new(keys, words).unwrap();
        RecordBatch::try_from_iter_with_nullable([("a", Arc::new(column) as ArrayRef, true)]).unwrap()
    };
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), batch(0).schema(), WriteOptions::new()).unwrap();
    for start in [0, 1000, 2000] {
        writer.write(&batch(start)).await.unwrap();
    }
    writer.finish().await.unwrap();
    let file = VortexFile::open(Arc::new(MemoryFile::new(sink.bytes().unwrap()))).await.unwrap();
    let wide = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    assert_eq!(*file.schema().unwrap().field(0).data_type(), wide);
    let found = read(&file, &file.schema().unwrap(), None).await;
    let text = |array: &ArrayRef| cast(array, &DataType::Utf8).unwrap();
    assert_eq!(&text(&found.column(0).slice(100, 100)), &text(batch(1000).column(0)));
}

/// Text with some hundred values in more rows than one chunk has, and text without repetition.
fn words(rows: usize) -> RecordBatch {
    let word = |at: usize| format!("the {}th of the words that are said again and again", at * at % 499);
    let text = StringArray::from_iter((0..rows).map(|at| (at % 13 != 0).then(|| word(at))));
    let unique = StringArray::from_iter_values((0..rows).map(|at| format!("row {at}")));
    RecordBatch::try_from_iter([("word", Arc::new(text) as ArrayRef), ("unique", Arc::new(unique))]).unwrap()
}

#[tokio::test]
async fn text_that_repeats_has_one_dictionary() {
    let batch = words(300_000);
    let file = written(&batch, WriteOptions::new()).await;
    let layout = |at| file.footer().layout().field(at).unwrap().unwrap();
    let data = |at| layout(at).children().unwrap()[0].1.id().to_owned();
    assert_eq!((data(0).as_str(), data(1).as_str()), ("vortex.dict", "vortex.chunked"));
    assert_eq!(read(&file, &batch.schema(), None).await, batch);
    let word = "the 4th of the words that are said again and again";
    let text = Scalar::try_new(DType::Utf8(false), Value::Utf8(word.into())).unwrap();
    let fourth = Expr::Field(FieldPath::new(["word"]), Predicate::Compare(CompareOp::Eq, text));
    let found = read(&file, &batch.schema(), Some(fourth)).await;
    let keep = BooleanArray::from_iter((0..300_000usize).map(|at| Some(at % 13 != 0 && at * at % 499 == 4)));
    assert_eq!(found, filter_record_batch(&batch, &keep).unwrap());
}

/// Values that change gradually: each dictionary has different ones, including nulls and empty text; late
/// ones are unique.
fn wandering(rows: std::ops::Range<usize>) -> RecordBatch {
    let word = |row: usize| match row {
        row if row % 17 == 0 => None,
        row if row % 19 == 0 => Some(String::new()),
        row if row > 200_000 => Some(format!("only once, row {row}")),
        row => Some(format!("visit {} page {}", row / 20_000, row.wrapping_mul(2_654_435_761) % 3000)),
    };
    let words: Vec<Option<String>> = rows.map(word).collect();
    let bytes = BinaryArray::from_iter(words.iter().map(|word| word.as_ref().map(String::as_bytes)));
    let words: ArrayRef = Arc::new(StringArray::from_iter(words));
    RecordBatch::try_from_iter_with_nullable([("word", words, true), ("bytes", Arc::new(bytes), true)])
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_many_dictionaries_comes_back_in_the_order_of_rows() {
    for flushed in [usize::MAX, 0, 50_000] {
        let sink = MemorySink::new();
        let options = WriteOptions::new().with_memory_budget(1 << 20);
        let mut writer = FileWriter::try_new(sink.clone(), wandering(0..1).schema(), options).unwrap();
        let batches: Vec<_> = (0..25).map(|at| wandering(at * 10_000..(at + 1) * 10_000)).collect();
        for (at, batch) in batches.iter().enumerate() {
            writer.write(batch).await.unwrap();
            if at * 10_000 == flushed {
                writer.flush().await.unwrap();
            }
        }
        writer.finish().await.unwrap();
        let file = VortexFile::open(Arc::new(MemoryFile::new(sink.bytes().unwrap()))).await.unwrap();
        let all = concat_batches(&batches[0].schema(), &batches).unwrap();
        assert_eq!(read(&file, &all.schema(), None).await, all);
        let zoned = file.footer().layout().field(0).unwrap().unwrap().children().unwrap();
        let ids: Vec<_> =
            zoned[0].1.children().unwrap().iter().map(|(_, chunk)| chunk.id().to_owned()).collect();
        assert!(ids.iter().filter(|id| *id == "vortex.dict").count() > 1, "{ids:?}");
        assert_eq!(ids.last().unwrap(), "vortex.flat", "{ids:?}");
    }
}

#[tokio::test]
async fn rows_that_are_all_alike_do_not_keep_later_ones_from_a_dictionary() {
    let word = |row: usize| {
        (row >= 150_000).then(|| format!("a page of kind {}", row.wrapping_mul(2_654_435_761) % 300))
    };
    let words: ArrayRef = Arc::new(StringArray::from_iter((0..300_000).map(word)));
    let rows = RecordBatch::try_from_iter_with_nullable([("word", words, true)]).unwrap();
    let sink = MemorySink::new();
    let options = WriteOptions::new().with_memory_budget(1 << 20);
    let mut writer = FileWriter::try_new(sink.clone(), rows.schema(), options).unwrap();
    for start in (0..rows.num_rows()).step_by(10_000) {
        if start == 150_000 {
            writer.flush().await.unwrap();
        }
        writer.write(&rows.slice(start, 10_000)).await.unwrap();
    }
    writer.finish().await.unwrap();
    let file = VortexFile::open(Arc::new(MemoryFile::new(sink.bytes().unwrap()))).await.unwrap();
    assert_eq!(read(&file, &rows.schema(), None).await, rows);
    let zoned = file.footer().layout().field(0).unwrap().unwrap().children().unwrap();
    let ids: Vec<_> = zoned[0].1.children().unwrap().iter().map(|(_, chunk)| chunk.id().to_owned()).collect();
    assert_eq!(ids.first().unwrap(), "vortex.flat", "{ids:?}");
    assert_eq!(ids.last().unwrap(), "vortex.dict", "{ids:?}");
}

#[tokio::test]
async fn memory_stays_within_the_budget_however_much_is_written() {
    let batch = table(8192);
    let budget = 8 << 20;
    let options = WriteOptions::new().with_memory_budget(budget);
    let mut writer = FileWriter::try_new(MemorySink::new(), batch.schema(), options).unwrap();
    let mut most = 0;
    for _ in 0..300 {
        writer.write(&batch).await.unwrap();
        most = most.max(writer.buffered_bytes());
    }
    assert!(writer.bytes_written() > 0, "{most}");
    assert!(most <= budget, "{most}");
    writer.flush().await.unwrap();
    assert_eq!(writer.buffered_bytes(), 0);
    assert_eq!(writer.finish().await.unwrap().row_count(), 2_457_600);
}

#[tokio::test]
async fn long_text_is_stored_once_however_many_rows_have_it() {
    let mut random = Random(5);
    for values in [1, 2] {
        let text: Vec<String> =
            (0..values).map(|_| (0..2000).map(|_| format!("{:016x}", random.next())).collect()).collect();
        let keys = Int32Array::from_iter_values((0..9000).map(|row| row % values));
        let column: DictionaryArray<Int32Type> =
            DictionaryArray::new(keys, Arc::new(StringArray::from_iter_values(&text)));
        let batch = RecordBatch::try_from_iter([("a", Arc::new(column) as ArrayRef)]).unwrap();
        for level in [Level::Fast, Level::Default, Level::Compact] {
            let sink = MemorySink::new();
            let options = WriteOptions::new().with_level(level);
            let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), options).unwrap();
            writer.write(&batch).await.unwrap();
            writer.finish().await.unwrap();
            let bytes = sink.bytes().unwrap();
            let text_bytes = text.iter().map(String::len).sum::<usize>();
            assert!(bytes.len() < text_bytes + 16_000, "{} bytes, {level}", bytes.len());
            let file = VortexFile::open(Arc::new(MemoryFile::new(bytes))).await.unwrap();
            assert_eq!(read(&file, &batch.schema(), None).await, batch);
        }
    }
}

#[tokio::test]
async fn views_that_overlap_are_written_within_the_budget() {
    let mut random = Random(6);
    let bytes: Vec<u8> = (0..9000).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut views = BinaryViewBuilder::new();
    let block = views.append_block(bytes.into());
    (0..400).for_each(|row| views.try_append_view(block, row, 64 << 10).unwrap());
    let batch = RecordBatch::try_from_iter([("a", Arc::new(views.finish()) as ArrayRef)]).unwrap();
    let options = WriteOptions::new().with_memory_budget(1 << 20);
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), options).unwrap();
    writer.write(&batch).await.unwrap();
    // 25 MiB once they are apart, of which 8 MiB are taken in at a time.
    let held = writer.buffered_bytes();
    assert!(held < 16 << 20, "{held}");
    writer.finish().await.unwrap();
    let file = VortexFile::open(Arc::new(MemoryFile::new(sink.bytes().unwrap()))).await.unwrap();
    assert_eq!(read(&file, &batch.schema(), None).await, batch);
}

#[tokio::test]
async fn what_was_flushed_at_any_row_comes_back() {
    let batch = table(30_000);
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), WriteOptions::new()).unwrap();
    for (start, rows) in [(0, 1), (1, 9000), (9001, 0), (9001, 20_999)] {
        writer.write(&batch.slice(start, rows)).await.unwrap();
        writer.flush().await.unwrap();
    }
    writer.finish().await.unwrap();
    let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(sink.bytes().unwrap()));
    let file = VortexFile::open(Arc::clone(&source)).await.unwrap();
    assert_eq!(read(&file, &batch.schema(), None).await, batch);
    assert_eq!(verify(source, &OpenOptions::new()).await.unwrap().problems, []);
}

#[tokio::test]
async fn segments_can_be_compressed_and_checked() {
    let batch = table(20_000);
    for scheme in [SegmentCompression::Lz4, SegmentCompression::Zlib, SegmentCompression::Zstd] {
        let options = WriteOptions::new().with_segment_compression(scheme).with_checksums(true);
        let file = written(&batch, options.with_metadata("app", "x").unwrap()).await;
        assert!(file.footer().segments().iter().all(|segment| segment.compression == Some(scheme)));
        assert_eq!(read(&file, &batch.schema(), None).await, batch);
        let encodings = file.array_encodings(vortex_core::file::SegmentId(0)).await.unwrap();
        assert_eq!(encodings[0].0, 0);
    }
}

#[tokio::test]
async fn no_release_is_named_as_a_reader_of_compressed_segments() {
    let batch = table(10);
    let release = Release::new(0, 56);
    let options = WriteOptions::new().with_min_reader(release);
    let compressed = options.clone().with_segment_compression(SegmentCompression::Zstd);
    for (options, expected) in [(options, Some(release)), (compressed, None)] {
        let mut writer = FileWriter::try_new(MemorySink::new(), batch.schema(), options).unwrap();
        assert_eq!(writer.min_reader(), expected);
        writer.write(&batch).await.unwrap();
        assert_eq!(writer.finish().await.unwrap().min_reader(), expected);
    }
}

#[tokio::test]
async fn every_flipped_bit_is_noticed() {
    let batch = table(9000);
    let sink = MemorySink::new();
    let options = WriteOptions::new().with_checksums(true).with_metadata("app", "user bytes").unwrap();
    let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), options).unwrap();
    writer.write(&batch).await.unwrap();
    writer.finish().await.unwrap();
    let bytes = sink.bytes().unwrap();
    let source = |bytes: &[u8]| Arc::new(MemoryFile::new(bytes.to_vec())) as Arc<dyn ReadAt>;
    let sound = verify(source(&bytes), &OpenOptions::new()).await.unwrap();
    assert_eq!(sound.problems, []);
    assert!(sound.checked_segments > 5 && sound.checked_zones > 5, "{sound:?}");
    let file = OpenOptions::new().with_checksums(true).open(source(&bytes)).await.unwrap();
    let segments = file.footer().segments().to_vec();
    for segment in &segments {
        for at in [segment.offset, segment.range().end - 1] {
            let mut damaged = bytes.to_vec();
            damaged[at as usize] ^= 4;
            let found = verify(source(&damaged), &OpenOptions::new()).await.unwrap();
            assert!(found.problems.iter().any(|p| p.place.starts_with("segment ")), "{:?}", found.problems);
            let file = OpenOptions::new().with_checksums(true).open(source(&damaged)).await.unwrap();
            let is_zone_map = at >= segments[segments.len() - 6].offset;
            let scanned = file.scan().into_stream().unwrap().try_collect::<Vec<_>>().await;
            assert!(scanned.is_err() || is_zone_map, "byte {at}");
        }
    }
    // The description, and user metadata. The postscript after it has no checksum.
    let start = (segments.last().unwrap().range().end as usize).next_multiple_of(8);
    let postscript_len = usize::from(u16::from_le_bytes(*bytes[bytes.len() - 6..].first_chunk().unwrap()));
    for at in (start..bytes.len() - 8 - postscript_len).step_by(7) {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1;
        let found = verify(source(&damaged), &OpenOptions::new()).await.unwrap();
        assert!(!found.problems.is_empty(), "byte {at} of {}", bytes.len());
    }
}

#[tokio::test]
async fn a_footer_that_needs_no_reading_verifies_checksums_if_asked_to() {
    let batch = table(9000);
    let sink = MemorySink::new();
    let options = WriteOptions::new().with_checksums(true);
    let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), options).unwrap();
    writer.write(&batch).await.unwrap();
    let summary = writer.finish().await.unwrap();
    let bytes = sink.bytes().unwrap().to_vec();
    let strict = OpenOptions::new().with_checksums(true);

    let footer = summary.footer(&strict).unwrap();
    assert!(footer.verifies_checksums());
    assert!(!summary.footer(&OpenOptions::new()).unwrap().verifies_checksums());
    assert!(strict.parse(bytes.clone().into()).unwrap().verifies_checksums());
    let mut damaged = bytes.clone();
    damaged[footer.segments()[0].offset as usize] ^= 4;
    for (bytes, is_sound) in [(bytes.clone(), true), (damaged, false)] {
        let file = VortexFile::from_footer(Arc::new(MemoryFile::new(bytes)), Arc::clone(&footer));
        let scanned = file.scan().into_stream().unwrap().try_collect::<Vec<_>>().await;
        assert_eq!(scanned.is_ok(), is_sound);
    }
    // The description lies between metadata and postscript.
    let start = footer.user_metadata().iter().map(|entry| entry.range.end).max().unwrap() as usize;
    let postscript_len = usize::from(u16::from_le_bytes(*bytes[bytes.len() - 6..].first_chunk().unwrap()));
    for at in (start..bytes.len() - 8 - postscript_len).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(strict.parse(damaged.into()).is_err(), "byte {at} of {}", bytes.len());
    }
}

#[tokio::test]
async fn wrong_statistics_are_found() {
    let batch = table(20_000);
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), WriteOptions::new()).unwrap();
    writer.write(&batch).await.unwrap();
    writer.finish().await.unwrap();
    let bytes = sink.bytes().unwrap();
    // The maximum of `id` as a scalar: changes 19,999 in zigzag to 11,807.
    let at = bytes.windows(4).rposition(|window| window == [0x18, 0xbe, 0xb8, 0x02]).unwrap();
    let mut damaged = bytes.to_vec();
    damaged[at + 3] = 1;
    let found = verify(Arc::new(MemoryFile::new(damaged)), &OpenOptions::new()).await.unwrap();
    let [problem, _] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
    assert_eq!(
        problem.to_string(),
        "statistics of column `id`: Int(19999) lies above the stated maximum Int(11807)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_told_to_be_full_by_what_their_rows_will_take() {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (state >> 20) as i64
    };
    let full_at = 2 << 20;
    // Columns that do not shrink, that shrink to little, that shrink to nothing, and that wait as runs.
    let kinds = [[0, 0, 0], [1, 1, 1], [0, 1, 2], [1, 3, 3]];
    // With less memory than a file has bytes, rows are encoded before they could be enough.
    for (kinds, memory) in kinds.into_iter().flat_map(|kinds| [(kinds, 1 << 20), (kinds, 64 << 20)]) {
        let sink = MemorySink::new();
        let mut columns = |start: i64| -> Vec<ArrayRef> {
            let rows = start..start + 8192;
            let column = kinds.map(|kind| {
                let values = rows.clone().map(|row| match kind {
                    0 => next() << 20 ^ next(),
                    1 => next() % 1000,
                    2 => row,
                    _ => 7,
                });
                Arc::new(Int64Array::from_iter_values(values)) as ArrayRef
            });
            column.to_vec()
        };
        let batch = |columns: Vec<ArrayRef>| {
            RecordBatch::try_from_iter(["a", "b", "c"].into_iter().zip(columns)).unwrap()
        };
        let first = batch(columns(0));
        let options = WriteOptions::new().with_memory_budget(memory);
        let mut writer = FileWriter::try_new(sink.clone(), first.schema(), options).unwrap();
        let mut rows = 0;
        while !writer.reaches(full_at).await.unwrap() {
            writer.write(&batch(columns(rows))).await.unwrap();
            rows += 8192;
        }
        let size = writer.finish().await.unwrap().file_size();
        assert!(
            size > full_at * 3 / 4 && size < full_at * 3 / 2,
            "{size} bytes, {rows} rows of {kinds:?}, {memory}"
        );
    }
}
