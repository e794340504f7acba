//! Where writing fails, the error is clear and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::random::Random;
use arrow::array::{Array as _, ArrayData, Int32Array, Int64Array, RecordBatch, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, UploadPart,
};
use vortex_core::io::{LocalSink, ObjectSink, Sink};
use vortex_core::write::{FileWriter, WriteOptions, write_stream};
use vortex_core::{Error, Result};

/// Rows that hardly compress, 400 KB.
fn batch() -> RecordBatch {
    let mut random = Random(7);
    let values = (0..50_000).map(|_| random.next().cast_signed());
    RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from_iter_values(values)) as _)]).unwrap()
}

fn small_groups() -> WriteOptions {
    WriteOptions::new().with_memory_budget(1 << 20)
}

/// A disk that is full after some bytes.
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

#[tokio::test]
async fn a_full_disk_fails_the_writer_for_good() {
    let aborted = Arc::new(AtomicBool::new(false));
    let disk = FullDisk { room: 1 << 20, aborted: Arc::clone(&aborted) };
    let mut writer = FileWriter::try_new(disk, batch().schema(), small_groups()).unwrap();
    let mut failed = None;
    for _ in 0..20 {
        if let Err(error) = writer.write(&batch()).await {
            failed = Some(error.to_string());
            break;
        }
    }
    assert!(failed.unwrap().contains("writing full disk"));
    assert!(writer.write(&batch()).await.unwrap_err().to_string().contains("failed before"));
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

/// A list whose items are null though they must not be.
#[expect(unsafe_code, reason = "nothing else makes an array that contradicts its type")]
fn poisoned() -> RecordBatch {
    let item = Arc::new(Field::new("item", DataType::Int32, false));
    let items = Int32Array::from(vec![Some(1), None, Some(3)]);
    let data = ArrayData::builder(DataType::List(item)).len(1).add_buffer(Buffer::from_slice_ref([0i32, 3]));
    // SAFETY: lengths and offsets are those of the items; that some are null is no matter of memory.
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

/// Where the child process below writes to.
const KILLED: &str = "VORTEX_TEST_WRITES_UNTIL_KILLED";

#[test]
fn a_killed_process_leaves_no_file_under_the_final_name() {
    if let Some(folder) = std::env::var_os(KILLED) {
        return write_forever(&std::path::PathBuf::from(folder));
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

/// Where the child process below writes to.
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
    // Files of 2 MB at most, and no signal when that is reached.
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

/// A process that ends with its owner.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

fn write_forever(folder: &std::path::Path) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let sink = LocalSink::create(folder.join("x.vortex")).unwrap();
        let mut writer = FileWriter::try_new(sink, batch().schema(), small_groups()).unwrap();
        loop {
            writer.write(&batch()).await.unwrap();
        }
    });
}

/// A store that fails a part of a multipart upload, and counts uploads that are open.
#[derive(Debug)]
struct Faulty {
    inner: InMemory,
    /// The part that fails.
    fails: usize,
    open: Arc<AtomicUsize>,
    started: Arc<AtomicUsize>,
}

impl Faulty {
    fn new(fails: usize) -> Arc<Self> {
        Arc::new(Self { inner: InMemory::new(), fails, open: Arc::default(), started: Arc::default() })
    }

    /// Waits until no upload is open; an aborted one ends in a task of its own.
    async fn settles(&self) -> bool {
        for _ in 0..200 {
            if self.open.load(Ordering::SeqCst) == 0 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    }
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("faulty store")
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    parts: usize,
    fails: usize,
    open: Arc<AtomicUsize>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts += 1;
        if self.parts == self.fails {
            let source = "the store is on fire".into();
            return Box::pin(async { Err(object_store::Error::Generic { store: "faulty", source }) });
        }
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.inner.abort().await
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        at: &Path,
        data: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.inner.put_opts(at, data, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.started.fetch_add(1, Ordering::SeqCst);
        let inner = self.inner.put_multipart_opts(at, options).await?;
        Ok(Box::new(FaultyUpload { inner, parts: 0, fails: self.fails, open: Arc::clone(&self.open) }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn writer_to(store: &Arc<Faulty>) -> FileWriter {
    let sink = ObjectSink::new(Arc::clone(store) as _, Path::from("x.vortex")).with_part_bytes(300_000);
    FileWriter::try_new(sink, batch().schema(), small_groups()).unwrap()
}

#[tokio::test]
async fn a_part_that_fails_ends_the_upload() {
    for fails in [1, 3, 8] {
        let store = Faulty::new(fails);
        let mut writer = writer_to(&store);
        let mut outcome = Ok(());
        for _ in 0..12 {
            outcome = writer.write(&batch()).await;
            if outcome.is_err() {
                break;
            }
        }
        let error = match outcome {
            Err(error) => error,
            Ok(()) => writer.finish().await.unwrap_err(),
        };
        assert!(error.to_string().contains("the store is on fire"), "{error}");
        assert!(store.settles().await, "part {fails}: an upload is left open");
        assert_eq!(store.list(None).count().await, 0);
    }
}

#[tokio::test]
async fn an_upload_that_is_dropped_is_aborted() {
    let store = Faulty::new(usize::MAX);
    let mut writer = writer_to(&store);
    for _ in 0..12 {
        writer.write(&batch()).await.unwrap();
    }
    assert_eq!(store.open.load(Ordering::SeqCst), 1);
    drop(writer);
    assert!(store.settles().await);
    let mut writer = writer_to(&store);
    for _ in 0..12 {
        writer.write(&batch()).await.unwrap();
    }
    writer.abort().await.unwrap();
    assert_eq!(store.open.load(Ordering::SeqCst), 0);
    assert_eq!(store.list(None).count().await, 0);
}

#[tokio::test]
async fn a_small_object_is_put_in_one_request() {
    let store = Faulty::new(usize::MAX);
    let sink = ObjectSink::new(Arc::clone(&store) as _, Path::from("x.vortex"));
    let mut writer = FileWriter::try_new(sink, batch().schema(), WriteOptions::new()).unwrap();
    writer.write(&batch()).await.unwrap();
    let summary = writer.finish().await.unwrap();
    assert_eq!(store.started.load(Ordering::SeqCst), 0);
    assert_eq!(store.list(None).next().await.unwrap().unwrap().size, summary.file_size());
}

#[tokio::test]
async fn an_object_of_more_parts_than_stores_take_is_refused() {
    let store = Faulty::new(usize::MAX);
    let mut sink = ObjectSink::new(Arc::clone(&store) as _, Path::from("x.vortex")).with_part_bytes(1);
    sink.write(vec![0; 10_001].into()).await.unwrap();
    let error = sink.finish().await.unwrap_err().to_string();
    assert!(error.contains("10000 parts") && error.contains("x.vortex"), "{error}");
    assert!(store.settles().await, "the upload is left open");
    assert_eq!(store.list(None).count().await, 0);

    let mut sink = ObjectSink::new(Arc::clone(&store) as _, Path::from("x.vortex")).with_part_bytes(1);
    sink.write(vec![0; 10_000].into()).await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(store.list(None).next().await.unwrap().unwrap().size, 10_000);
}
