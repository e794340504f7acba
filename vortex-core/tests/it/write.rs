//! Written data is read back unchanged, through every sink and in every type, and within the memory allowed.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use bytes::Bytes;
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use proptest::prelude::*;
use vortex_core::dtype::{DType, PType};
use vortex_core::expr::{CompareOp, Expr, FieldPath, Predicate};
use vortex_core::file::OpenOptions;
use vortex_core::io::{LocalFile, LocalSink, MemorySink, ObjectFile, ObjectSink, Sink};
use vortex_core::scalar::{Scalar, Value};
use vortex_core::stats::FieldStats;
use vortex_core::write::{FileWriter, WriteOptions, write_reader};
use vortex_core::{Level, Release, Result, VortexFile};

use crate::given::{collect, opened, read_as, table, verified, written_by};
use crate::random::{Random, any_type, array, plain_types};

/// A file whose rows are written 5,000 at a time.
async fn written_in_parts(batch: &RecordBatch, options: WriteOptions) -> VortexFile {
    let (bytes, summary) = written_by(batch.schema(), options, async |writer| {
        for start in (0..batch.num_rows()).step_by(5000) {
            writer.write(&batch.slice(start, 5000.min(batch.num_rows() - start))).await?;
        }
        Ok(())
    })
    .await;
    assert_eq!(summary.row_count(), batch.num_rows() as u64);
    opened(bytes).await
}

#[tokio::test]
async fn rows_come_back_as_they_were_written() {
    for rows in [0, 1, 8192, 20_000, 300_000] {
        let batch = table(rows);
        for release in [Release::new(0, 56), Release::NEWEST] {
            // A small budget leads to many groups.
            let options = WriteOptions::new().with_min_reader(release).with_memory_budget(4 << 20);
            let file = written_in_parts(&batch, options).await;
            assert_eq!(read_as(&file, batch.schema()).await, batch, "{rows} rows for {release}");
        }
    }
}

#[tokio::test]
async fn zone_maps_rule_out_what_cannot_match_and_nothing_else() {
    let batch = table(100_000);
    for release in [Release::new(0, 56), Release::NEWEST] {
        let file = written_in_parts(&batch, WriteOptions::new().with_min_reader(release)).await;
        let int = |value| Scalar::try_new(DType::Primitive(PType::I64, false), Value::Int(value)).unwrap();
        let filter = |op, value| Expr::Field(FieldPath::new(["id"]), Predicate::Compare(op, int(value)));
        let scan = file.scan().with_filter(filter(CompareOp::Lt, 10));
        let metrics = Arc::clone(scan.metrics());
        assert_eq!(collect(scan).await.unwrap().num_rows(), 10);
        let pruned = metrics.zones_pruned.get();
        assert_eq!(pruned, 12, "{release}");
        let scan = file.scan().with_schema(batch.schema()).with_filter(filter(CompareOp::GtEq, 12_345));
        let found = collect(scan).await.unwrap();
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
    assert_eq!(read_as(&file, batch.schema()).await, batch);
    // The writer returns the same footer as opening the file would.
    let footer = summary.footer(&OpenOptions::new()).unwrap();
    let file = VortexFile::from_footer(Arc::new(LocalFile::open(&path).unwrap()), footer);
    assert_eq!(read_as(&file, batch.schema()).await, batch);
}

#[test]
fn a_reader_is_written_without_a_runtime() {
    let batch = table(10_000);
    let batches = RecordBatchIterator::new([Ok(batch.clone()), Ok(batch.clone())], batch.schema());
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
    let batches = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
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
    assert!(error.contains("column `number` is where the schema has `id`"), "{error}");
    let schema = batch.schema();
    let names = schema.fields().iter().map(|field| field.name());
    let renamed = RecordBatch::try_from_iter(names.zip(other.columns().iter().cloned())).unwrap();
    let error = writer.write(&renamed).await.unwrap_err().to_string();
    assert!(error.contains("column `id`") && error.contains("Int32"), "{error}");
    writer.write(&batch).await.unwrap();
    assert_eq!(writer.finish().await.unwrap().row_count(), 200);
}

/// Writes columns and reads them in the file's own schema.
async fn round_trip(schema: Schema, columns: Vec<ArrayRef>, options: WriteOptions) {
    let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    let file = written_in_parts(&batch, options).await;
    assert_eq!(file.schema().unwrap(), batch.schema());
    let found = collect(file.scan()).await.unwrap();
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
async fn what_was_flushed_at_any_row_comes_back() {
    let batch = table(30_000);
    let (bytes, _) = written_by(batch.schema(), WriteOptions::new(), async |writer| {
        for (start, rows) in [(0, 1), (1, 9000), (9001, 0), (9001, 20_999)] {
            writer.write(&batch.slice(start, rows)).await?;
            writer.flush().await?;
        }
        Ok(())
    })
    .await;
    assert_eq!(read_as(&opened(bytes.clone()).await, batch.schema()).await, batch);
    assert_eq!(verified(bytes).await.problems, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_told_to_be_full_by_what_their_rows_will_take() {
    let mut random = Random(1);
    let full_at = 2 << 20;
    // Columns that do not shrink, that shrink to little, that shrink to nothing, and that wait as runs.
    let kinds = [[0, 0, 0], [1, 1, 1], [0, 1, 2], [1, 3, 3]];
    // With less memory than a file has bytes, rows are encoded before they could be enough.
    for (kinds, memory) in kinds.into_iter().flat_map(|kinds| [(kinds, 1 << 20), (kinds, 64 << 20)]) {
        let mut batch = |start: i64| {
            let rows = start..start + 8192;
            let columns = kinds.map(|kind| {
                let values = rows.clone().map(|row| match kind {
                    0 => random.next() as i64,
                    1 => random.below(1000) as i64,
                    2 => row,
                    _ => 7,
                });
                Arc::new(Int64Array::from_iter_values(values)) as ArrayRef
            });
            RecordBatch::try_from_iter(["a", "b", "c"].into_iter().zip(columns)).unwrap()
        };
        let options = WriteOptions::new().with_memory_budget(memory);
        let mut writer = FileWriter::try_new(MemorySink::new(), batch(0).schema(), options).unwrap();
        let mut rows = 0;
        while !writer.reaches(full_at).await.unwrap() {
            writer.write(&batch(rows)).await.unwrap();
            rows += 8192;
        }
        let size = writer.finish().await.unwrap().file_size();
        assert!(
            size > full_at * 3 / 4 && size < full_at * 3 / 2,
            "{size} bytes, {rows} rows of {kinds:?}, {memory}"
        );
    }
}

#[tokio::test]
async fn metadata_may_become_known_while_rows_are_written() {
    let batch = table(10);
    let options = WriteOptions::new().with_user_metadata("a", "before").unwrap();
    let (bytes, _) = written_by(batch.schema(), options, async |writer| {
        writer.write(&batch).await?;
        writer.set_user_metadata("a", "after")?;
        writer.set_user_metadata("b", "new")?;
        assert!(writer.set_user_metadata("", "nameless").is_err());
        Ok(())
    })
    .await;
    let file = opened(bytes).await;
    let entries = file.footer().user_metadata().iter().filter(|entry| entry.key.len() == 1);
    let mut entries: Vec<_> = entries.map(|entry| (&*entry.key, entry.value.as_deref().unwrap())).collect();
    entries.sort_unstable();
    assert_eq!(entries, [("a", &b"after"[..]), ("b", b"new")]);
}

#[tokio::test]
async fn bounds_of_text_and_booleans_are_exact_unless_they_were_cut() {
    let written = async |shortest: usize, entries: usize| {
        let text = StringArray::from(vec!["b".repeat(64), "a".repeat(shortest)]);
        let flags = BooleanArray::from(vec![true, true]);
        let columns: [(_, ArrayRef); 2] = [("text", Arc::new(text)), ("flag", Arc::new(flags))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let named = |options: WriteOptions, at| options.with_user_metadata(&format!("key {at}"), "").unwrap();
        let options = (0..entries).fold(WriteOptions::new().with_checksums(true), named);
        let (bytes, _) =
            written_by(batch.schema(), options, async |writer| writer.write(&batch).await.map(drop)).await;
        let file = opened(bytes).await;
        assert!(file.footer().user_metadata().len() <= 16);
        file.footer().statistics().unwrap().to_vec()
    };
    let exact = |stats: &FieldStats| (stats.min.exact().is_some(), stats.max.exact().is_some());
    let found = written(60, 13).await;
    assert_eq!((exact(&found[0]), exact(&found[1])), ((true, true), (true, true)));
    assert_eq!(exact(&written(65, 13).await[0]), (false, true), "64 bytes are kept");
    let found = written(60, 14).await;
    assert_eq!(exact(&found[0]), (false, false), "without room for the version, it may be anyone's file");
}
