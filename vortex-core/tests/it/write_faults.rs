//! If writing fails, the error is clear and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{
    Array as _, ArrayData, Int32Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray, make_array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use object_store::ObjectStore as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use test_store::{TestStore, WriteFault};
use vortex_core::io::{LocalSink, ObjectSink, Sink};
use vortex_core::write::{FileWriter, WriteOptions, write_reader, write_stream};
use vortex_core::{Error, Result, VortexFile};

use crate::given::lineitem;
use crate::random::Random;

/// 400 KB of rows that hardly compress, with text whose dictionaries outlive chunks and change with `at`.
fn batch_at(at: usize) -> RecordBatch {
    let mut random = Random(7);
    let values = (0..50_000).map(|_| random.next().cast_signed());
    let words = (0..50_000).map(|row| format!("visit {} page {}", at / 4, row * 7919 % 3000));
    let words = StringArray::from_iter_values(words);
    RecordBatch::try_from_iter([
        ("a", Arc::new(Int64Array::from_iter_values(values)) as _),
        ("words", Arc::new(words) as _),
    ])
    .unwrap()
}

fn batch() -> RecordBatch {
    batch_at(0)
}

fn small_groups() -> WriteOptions {
    WriteOptions::new().with_memory_budget(1 << 20)
}

/// A disk that becomes full after some bytes.
#[derive(Debug)]
struct FullDisk {
    room: usize,
    aborted: Arc<AtomicBool>,
}

#[async_trait]
impl Sink for FullDisk {
    fn name(&self) -> &str {
        "full disk"
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let full = || Error::write("full disk", std::io::Error::from(std::io::ErrorKind::StorageFull));
        self.room = self.room.checked_sub(bytes.len()).ok_or_else(full)?;
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    async fn abort(&mut self) -> Result<()> {
        self.aborted.store(true, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_the_writer_for_good() {
    let aborted = Arc::new(AtomicBool::new(false));
    let disk = FullDisk { room: 1 << 20, aborted: Arc::clone(&aborted) };
    let mut writer = FileWriter::try_new(disk, batch().schema(), small_groups()).unwrap();
    let mut failed = None;
    for at in 0..20 {
        if let Err(error) = writer.write(&batch_at(at)).await {
            failed = Some(error.to_string());
            break;
        }
    }
    assert!(failed.unwrap().contains("writing full disk"));
    assert!(writer.write(&batch()).await.unwrap_err().to_string().contains("failed earlier"));
    assert!(writer.finish().await.is_err());
    assert!(aborted.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_stream_that_fails_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let sink = LocalSink::create(folder.path().join("x.vortex")).unwrap();
    let batches = futures::stream::iter([Ok(batch()), Err(Error::invalid("no more rows"))]);
    let error = write_stream(sink, batch().schema(), batches, WriteOptions::new()).await.unwrap_err();
    assert!(error.to_string().contains("no more rows"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_writer_dropped_midway_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let sink = LocalSink::create(folder.path().join("x.vortex")).unwrap();
    let mut writer = FileWriter::try_new(sink, batch().schema(), small_groups()).unwrap();
    for _ in 0..10 {
        writer.write(&batch()).await.unwrap();
    }
    assert!(writer.bytes_written() > 0);
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A list whose items include nulls although they are not nullable.
#[expect(unsafe_code, reason = "there is no safe way to create an array that contradicts its type")]
fn poisoned() -> RecordBatch {
    let item = Arc::new(Field::new("item", DataType::Int32, false));
    let items = Int32Array::from(vec![Some(1), None, Some(3)]);
    let data = ArrayData::builder(DataType::List(item)).len(1).add_buffer(Buffer::from_slice_ref([0i32, 3]));
    // SAFETY: lengths and offsets match the items; that some are null does not affect memory safety.
    let data = unsafe { data.add_child_data(items.to_data()).build_unchecked() };
    RecordBatch::try_from_iter([
        ("sound", Arc::new(Int64Array::from(vec![7])) as _),
        ("bad", make_array(data)),
    ])
    .unwrap()
}

#[tokio::test]
async fn a_poisoned_column_is_named_and_no_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let sink = LocalSink::create(folder.path().join("x.vortex")).unwrap();
    let batches = futures::stream::iter([Ok::<_, Error>(poisoned())]);
    let error = write_stream(sink, poisoned().schema(), batches, WriteOptions::new()).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("column `bad`") && error.contains("null"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The folder that the child process below writes to.
const KILLED: &str = "VORTEX_TEST_WRITES_UNTIL_KILLED";

#[test]
fn a_killed_process_leaves_no_file_under_the_final_name() {
    if let Some(folder) = std::env::var_os(KILLED) {
        return write_long(&std::path::PathBuf::from(folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "write_faults::a_killed_process_leaves_no_file_under_the_final_name"])
        .env(KILLED, folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let is_writing = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries.flatten().any(|entry| entry.metadata().is_ok_and(|file| file.len() > 1 << 20))
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !is_writing() {
        assert!(std::time::Instant::now() < deadline, "the child writes nothing");
        assert!(child.0.try_wait().unwrap().is_none(), "the child ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(child);
    assert!(!folder.path().join("x.vortex").exists());
    // The same name can be written again.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sink = LocalSink::create(folder.path().join("x.vortex")).unwrap();
        let rows = futures::stream::iter([Ok::<_, Error>(batch())]);
        write_stream(sink, batch().schema(), rows, WriteOptions::new()).await.unwrap();
    });
    assert!(folder.path().join("x.vortex").exists());
}

/// The folder that the child process below writes to.
#[cfg(unix)]
const LIMITED: &str = "VORTEX_TEST_WRITES_UNTIL_REFUSED";

#[cfg(unix)]
#[test]
fn a_file_that_the_system_stops_from_growing_leaves_nothing() {
    const TEST: &str = "write_faults::a_file_that_the_system_stops_from_growing_leaves_nothing";
    if let Some(folder) = std::env::var_os(LIMITED) {
        let folder = std::path::PathBuf::from(folder);
        return tokio::runtime::Runtime::new().unwrap().block_on(async {
            let sink = LocalSink::create(folder.join("x.vortex")).unwrap();
            let rows = futures::stream::iter((0..100).map(|_| Ok::<_, Error>(batch())));
            let written = write_stream(sink, batch().schema(), rows, small_groups()).await;
            println!("refused: {}", written.unwrap_err());
        });
    }
    let folder = tempfile::tempdir().unwrap();
    // Limits files to 2 MB, without a signal when that is reached.
    let output = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4000; exec \"$0\" --exact --nocapture \"$1\""])
        .arg(std::env::current_exe().unwrap())
        .arg(TEST)
        .env(LIMITED, folder.path())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let refused = output.lines().find_map(|line| line.split_once("refused: ")).map(|(_, error)| error);
    assert!(refused.is_some_and(|error| error.contains("x.vortex")), "{output}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A process that is killed when its owner is dropped.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

fn write_long(folder: &std::path::Path) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let sink = LocalSink::create(folder.join("x.vortex")).unwrap();
        let mut writer = FileWriter::try_new(sink, batch().schema(), small_groups()).unwrap();
        // Not for ever, should nobody be left to end it.
        for _ in 0..2000 {
            writer.write(&batch()).await.unwrap();
        }
    });
}

fn sink_to(store: &Arc<TestStore>) -> ObjectSink {
    ObjectSink::new(Arc::clone(store) as _, Path::from("x.vortex")).with_part_bytes(300_000)
}

fn writer_to(store: &Arc<TestStore>) -> FileWriter {
    FileWriter::try_new(sink_to(store), batch().schema(), small_groups()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_ends_the_upload() {
    for fails in [1, 3, 8] {
        let store = TestStore::new();
        store.fail_writes(WriteFault::Part(fails));
        let mut writer = writer_to(&store);
        let mut outcome = Ok(());
        for at in 0..12 {
            outcome = writer.write(&batch_at(at)).await;
            if outcome.is_err() {
                break;
            }
        }
        let error = match outcome {
            Err(error) => error,
            Ok(()) => writer.finish().await.unwrap_err(),
        };
        assert!(error.to_string().contains("the disk is full"), "{error}");
        assert!(store.uploads.settle().await, "part {fails}: an upload is left open");
        assert_eq!(store.list(None).count().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_dropped_is_aborted() {
    let store = TestStore::new();
    let mut writer = writer_to(&store);
    for _ in 0..12 {
        writer.write(&batch()).await.unwrap();
    }
    assert_eq!(store.uploads.open.get(), 1);
    drop(writer);
    assert!(store.uploads.settle().await);
    let mut writer = writer_to(&store);
    for _ in 0..12 {
        writer.write(&batch()).await.unwrap();
    }
    writer.abort().await.unwrap();
    assert_eq!(store.uploads.open.get(), 0);
    assert_eq!(store.list(None).count().await, 0);
}

#[tokio::test]
async fn an_upload_is_aborted_also_if_nobody_waits_for_that() {
    let store = TestStore::new();
    let mut sink = sink_to(&store);
    for _ in 0..2 {
        sink.write(Bytes::from(vec![0; 300_000])).await.unwrap();
    }
    store.set_part_time(Duration::from_millis(50));
    assert!(tokio::time::timeout(Duration::from_millis(5), sink.abort()).await.is_err());
    assert!(store.uploads.settle().await);
    assert_eq!(uploads(&store), [1, 1, 0]);
}

/// Uploads of a store: those started, aborted, and still open.
fn uploads(store: &TestStore) -> [u64; 3] {
    [store.uploads.started.get(), store.uploads.aborts.get(), store.uploads.open.get()]
}

#[tokio::test]
async fn the_upload_of_a_stream_that_fails_is_aborted_before_the_error_is_returned() {
    let store = TestStore::new();
    let rows = (0..12).map(|_| Ok(batch())).chain([Err(Error::invalid("no more rows"))]);
    let rows = futures::stream::iter(rows);
    let error = write_stream(sink_to(&store), batch().schema(), rows, small_groups()).await.unwrap_err();
    assert!(error.to_string().contains("no more rows"), "{error}");
    assert_eq!(uploads(&store), [1, 1, 0]);
}

#[test]
fn the_error_of_a_damaged_file_that_is_copied_says_so() {
    let mut bytes = std::fs::read(lineitem()).unwrap();
    let middle = bytes.len() / 2;
    bytes[..middle].fill(0xff);
    let file = VortexFile::open_bytes(bytes).unwrap();
    let store = TestStore::new();
    let rows = file.scan().into_reader().unwrap();
    let error = write_reader(sink_to(&store), rows, small_groups()).unwrap_err();
    assert!(matches!(error.root(), Error::Corrupt(_)), "{error:?}");
}

#[test]
fn the_upload_of_a_reader_that_fails_is_aborted_before_its_runtime_ends() {
    let store = TestStore::new();
    let broken = ArrowError::ComputeError("no more rows".into());
    let rows = (0..12).map(|_| Ok(batch())).chain([Err(broken)]);
    let rows = RecordBatchIterator::new(rows, batch().schema());
    let error = write_reader(sink_to(&store), rows, small_groups()).unwrap_err();
    assert!(error.to_string().contains("no more rows"), "{error}");
    assert_eq!(uploads(&store), [1, 1, 0]);
}

#[test]
fn the_upload_of_a_reader_that_panics_is_aborted_before_its_runtime_ends() {
    let store = TestStore::new();
    let rows = (0..13).map(|at| if at < 12 { Ok(batch()) } else { panic!("no more rows") });
    let rows = RecordBatchIterator::new(rows, batch().schema());
    let write = || write_reader(sink_to(&store), rows, small_groups());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"no more rows"));
    assert_eq!(uploads(&store), [1, 1, 0]);
}

/// Drops a write once its request has been carried out, but not answered.
async fn cut_off(store: &TestStore, write: impl Future, is_carried_out: impl AsyncFn() -> bool) {
    store.hold_answers(Some("x.vortex"));
    let carried_out = async {
        while !is_carried_out().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = write => panic!("the write has got its answer"),
        () = carried_out => {}
    }
    store.hold_answers(None);
}

#[tokio::test]
async fn an_upload_that_starts_although_its_writer_was_dropped_is_aborted() {
    let store = TestStore::new();
    let mut writer = writer_to(&store);
    let write = async {
        for at in 0..12 {
            writer.write(&batch_at(at)).await.unwrap();
        }
    };
    cut_off(&store, write, async || store.uploads.open.get() == 1).await;
    assert!(store.uploads.settle().await, "the upload is left open");
    assert_eq!(uploads(&store), [1, 1, 0]);
}

async fn becomes_empty(store: &TestStore) -> bool {
    for _ in 0..40 {
        if store.list(None).count().await == 0 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[tokio::test]
async fn an_object_that_appears_although_its_sink_was_dropped_is_removed_if_nobody_else_writes_there() {
    // In one request, and in parts.
    for bytes in [1000, 1_000_000] {
        for is_unique in [true, false] {
            let store = TestStore::new();
            let mut sink = sink_to(&store);
            if is_unique {
                sink = sink.with_unique_path();
            }
            sink.write(vec![7; bytes].into()).await.unwrap();
            cut_off(&store, sink.finish(), async || store.list(None).count().await == 1).await;
            drop(sink);
            assert_eq!(becomes_empty(&store).await, is_unique, "{bytes} bytes");
        }
    }
}

#[tokio::test]
async fn an_object_that_appears_although_its_sink_was_told_otherwise_is_removed_if_nobody_else_writes_there()
{
    // In one request, and in parts.
    for bytes in [1000, 1_000_000] {
        for is_unique in [true, false] {
            let store = TestStore::new();
            store.fail_writes(WriteFault::Answer);
            let mut sink = sink_to(&store);
            if is_unique {
                sink = sink.with_unique_path();
            }
            sink.write(vec![7; bytes].into()).await.unwrap();
            let error = sink.finish().await.unwrap_err().to_string();
            assert!(error.contains("connection was closed"), "{error}");
            assert_eq!(store.list(None).count().await, usize::from(!is_unique), "{bytes} bytes");
        }
    }
}

#[tokio::test]
async fn an_object_with_a_unique_path_stays_once_its_sink_knows_of_it() {
    for bytes in [1000, 1_000_000] {
        let store = TestStore::new();
        let mut sink = sink_to(&store).with_unique_path();
        sink.write(vec![7; bytes].into()).await.unwrap();
        sink.finish().await.unwrap();
        drop(sink);
        assert!(!becomes_empty(&store).await);
    }
}

#[tokio::test]
async fn a_small_object_is_put_in_one_request() {
    let store = TestStore::new();
    let sink = ObjectSink::new(Arc::clone(&store) as _, Path::from("x.vortex"));
    let mut writer = FileWriter::try_new(sink, batch().schema(), WriteOptions::new()).unwrap();
    writer.write(&batch()).await.unwrap();
    let summary = writer.finish().await.unwrap();
    assert_eq!(store.uploads.started.get(), 0);
    assert_eq!(store.list(None).next().await.unwrap().unwrap().size, summary.file_size());
}

#[tokio::test]
async fn a_local_file_may_have_any_number_of_parts() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let mut sink = ObjectSink::new(store, Path::from("x.vortex")).with_part_bytes(1);
    sink.write(vec![7; 10_001].into()).await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(std::fs::read(folder.path().join("x.vortex")).unwrap(), vec![7; 10_001]);
}

#[tokio::test]
async fn an_object_of_more_parts_than_buckets_take_is_refused() {
    let store = TestStore::new();
    let mut sink = ObjectSink::new(Arc::clone(&store) as _, Path::from("x.vortex")).with_part_bytes(1);
    sink.write(vec![0; 10_001].into()).await.unwrap();
    let error = sink.finish().await.unwrap_err().to_string();
    assert!(error.contains("10000 parts") && error.contains("x.vortex"), "{error}");
    assert!(store.uploads.settle().await, "the upload is left open");
    assert_eq!(store.list(None).count().await, 0);

    let mut sink = ObjectSink::new(Arc::clone(&store) as _, Path::from("x.vortex")).with_part_bytes(1);
    sink.write(vec![0; 10_000].into()).await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(store.list(None).next().await.unwrap().unwrap().size, 10_000);
}
