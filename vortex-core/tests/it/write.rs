//! What is written comes back, and nothing is left behind where writing fails.

use std::sync::Arc;

use crate::random::{Random, any_type, array, plain_types};
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use futures::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use vortex_core::expr::{CompareOp, Expr, FieldPath, Predicate};
use vortex_core::file::OpenOptions;
use vortex_core::io::{LocalFile, LocalSink, MemoryFile, MemorySink, ObjectFile, ObjectSink};
use vortex_core::scalar::Value;
use vortex_core::write::{FileWriter, WriteOptions, write_reader};
use vortex_core::{DType, PType, Release, Scalar, VortexFile};

/// A table of `rows` rows: rising, null now and then, floats, text, a struct and a list.
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
        writer.write(&batch.slice(start, 5000.min(batch.num_rows() - start))).await.unwrap();
    }
    let summary = writer.finish().await.unwrap();
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
            // A small budget makes many groups.
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
    let summary = writer.finish().await.unwrap();
    let sink = ObjectSink::new(Arc::clone(&store), object.clone()).with_part_bytes(64 << 10);
    let mut writer = FileWriter::try_new(sink, batch.schema(), WriteOptions::new()).unwrap();
    writer.write(&batch).await.unwrap();
    writer.finish().await.unwrap();

    let stored = store.get(&object).await.unwrap().bytes().await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), stored);
    let source = Arc::new(ObjectFile::new(Arc::clone(&store), store.head(&object).await.unwrap()));
    let file = VortexFile::open(source).await.unwrap();
    assert_eq!(read(&file, &batch.schema(), None).await, batch);
    // The writer knows what opening would find.
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

/// Writes columns and reads them as the file presents itself.
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

#[tokio::test]
async fn random_nested_columns_come_back() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let rows = [0, 1, 50, 9000][random.below(4)];
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for at in 0..3 {
            let data_type = any_type(&mut random, 3);
            let nullable = at == 0 || data_type == DataType::Null;
            columns.push(array(&mut random, &data_type, rows, nullable));
            fields.push(Field::new(format!("c{at}"), data_type, nullable));
        }
        round_trip(Schema::new(fields), columns, WriteOptions::new().with_memory_budget(1 << 18)).await;
    }
}
