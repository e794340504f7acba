//! Services run futures as tasks, which may move between threads.

use std::sync::Arc;

use arrow::array::{Int32Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use object_store::ObjectStore;
use vortex_core::file::{OpenOptions, SegmentId, examine};
use vortex_core::io::{LocalSink, MemorySink, ReadAt, Scheduler};
use vortex_core::layout::Zones;
use vortex_core::scan::ScanBuilder;
use vortex_core::write::{FileWriter, WriteOptions, write_stream};
use vortex_core::{Result, VortexFile, verify};

fn is_send(_: impl Send) {}

/// Compiles only if the futures that read are `Send`.
fn reading(store: Arc<dyn ObjectStore>, source: &Arc<dyn ReadAt>, file: &VortexFile, zones: &Zones) {
    is_send(Scheduler::shared().find_object(&store, &"a.vortex".into(), 1, 0));
    is_send(OpenOptions::new().open(Arc::clone(source)));
    is_send(VortexFile::open(Arc::clone(source)));
    is_send(VortexFile::open_path("a.vortex"));
    is_send(file.scan().into_stream());
    is_send(ScanBuilder::aggregate(file.scan()));
    is_send(file.array_encodings(SegmentId(0)));
    is_send(file.zone_map(zones));
    is_send(examine(source.as_ref(), &OpenOptions::new()));
    is_send(verify(Arc::clone(source), &OpenOptions::new()));
}

/// Compiles only if the futures that write are `Send`.
fn writing(schema: SchemaRef, batch: &RecordBatch, batches: BoxStream<'static, Result<RecordBatch>>) {
    let writer = || FileWriter::try_new(MemorySink::new(), Arc::clone(&schema), WriteOptions::new()).unwrap();
    is_send(writer().write(batch));
    is_send(writer().reaches(1));
    is_send(writer().flush());
    is_send(writer().finish());
    is_send(writer().abort());
    is_send(write_stream(MemorySink::new(), Arc::clone(&schema), batches, WriteOptions::new()));
}

#[test]
fn every_future_may_run_on_any_thread() {
    let _ = (reading, writing);
}

#[test]
fn without_a_runtime_there_are_errors_instead_of_panics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.vortex");
    let column: arrow::array::ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let needs_runtime =
        |error: vortex_core::Error| assert!(error.to_string().contains("tokio runtime"), "{error}");

    let mut writer =
        FileWriter::try_new(LocalSink::create(&path).unwrap(), batch.schema(), WriteOptions::new()).unwrap();
    needs_runtime(writer.write(&batch).now_or_never().unwrap().unwrap_err());
    needs_runtime(writer.finish().now_or_never().unwrap().unwrap_err());
    needs_runtime(VortexFile::open_path(&path).now_or_never().unwrap().unwrap_err());

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut writer =
        FileWriter::try_new(LocalSink::create(&path).unwrap(), batch.schema(), WriteOptions::new()).unwrap();
    let file = runtime.block_on(async {
        writer.write(&batch).await?;
        writer.finish().await?;
        VortexFile::open_path(&path).await
    });
    let file = file.unwrap();
    let first = file.scan().into_stream().unwrap().next().now_or_never();
    needs_runtime(first.flatten().unwrap().unwrap_err());
    needs_runtime(file.scan().with_pruning(false).aggregate().now_or_never().unwrap().unwrap_err());
    assert_eq!(file.scan().into_reader().unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 10);
}
