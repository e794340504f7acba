//! An object store for tests: it works in memory, counts requests, and is slow or fails on demand. It
//! appears as remote storage and can deliver bytes in small pieces, as a network does.

mod uploads;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use uploads::Upload;
pub use uploads::{Uploads, WriteFault};

/// The ways in which a read can fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReadFault {
    /// Returns an error.
    Fails,
    /// Returns an error after half of the bytes.
    Breaks,
    /// Ends early.
    Short,
    /// Returns more bytes than requested.
    Long,
    /// Returns bytes of another range, labelled correctly.
    Elsewhere,
    /// Reports that the store is too busy.
    Busy,
    /// Never returns anything.
    Stalls,
    /// Returns half of the bytes, and nothing after them.
    StallsMidway,
}

/// Determines the fault of the next read.
type Plan = Box<dyn FnMut() -> Option<ReadFault> + Send>;

/// A store in memory.
#[derive(Default)]
pub struct TestStore {
    /// The underlying store; direct accesses to it are not counted.
    pub inner: InMemory,
    /// Requests for bytes.
    pub reads: Count,
    /// Requests that describe an object.
    pub heads: Count,
    /// Bytes requested.
    pub bytes: Count,
    /// Requests for bytes currently in progress.
    pub in_flight: Arc<Count>,
    /// Peak number of these requests.
    pub most_in_flight: Count,
    /// Requests for bytes made while no other was in progress: as many as rounds, if answers take equally long.
    pub alone: Count,
    /// Counters of uploads.
    pub uploads: Arc<Uploads>,
    latency: Mutex<Duration>,
    listing_time: Mutex<Duration>,
    piece_len: AtomicUsize,
    piece_time: Mutex<Duration>,
    plan: Mutex<Option<Plan>>,
    time: Mutex<Option<SystemTime>>,
    without_e_tags: AtomicBool,
    without_conditions: AtomicBool,
    without_old_versions: AtomicBool,
    without_heads: AtomicBool,
    without_ends: AtomicBool,
}

/// A counter.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns the count and resets it.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::SeqCst)
    }

    fn add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Ordering::SeqCst) + value
    }

    fn sub(&self, value: u64) {
        self.0.fetch_sub(value, Ordering::SeqCst);
    }
}

/// A request in progress.
struct InFlight(Arc<Count>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.sub(1);
    }
}

fn failure(message: &str) -> Error {
    Error::Generic { store: "test", source: message.into() }
}

impl TestStore {
    /// An empty store without faults.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The numbers of requests for bytes and of bytes since the last call.
    pub fn take(&self) -> (u64, u64) {
        (self.reads.take(), self.bytes.take())
    }

    /// Sets how long listings take from now on; they tell what there is at their start.
    pub fn set_listing_time(&self, time: Duration) {
        *self.listing_time.lock() = time;
    }

    /// Sets the time that each request for bytes waits for its answer from now on.
    pub fn set_latency(&self, latency: Duration) {
        *self.latency.lock() = latency;
    }

    /// Delivers bytes in pieces of this length from now on; no piece is available before it is awaited.
    pub fn set_piece_len(&self, bytes: usize) {
        self.piece_len.store(bytes, Ordering::SeqCst);
    }

    /// Sets the time that each of these pieces takes from now on.
    pub fn set_piece_time(&self, time: Duration) {
        *self.piece_time.lock() = time;
    }

    /// Sets the fault of each read from now on.
    pub fn fail_reads(&self, plan: impl FnMut() -> Option<ReadFault> + Send + 'static) {
        *self.plan.lock() = Some(Box::new(plan));
    }

    /// Sets the fault of writes from now on.
    pub fn fail_writes(&self, fault: WriteFault) {
        *self.uploads.fault.lock() = fault;
    }

    /// Sets the time that each part of an upload takes from now on, and so does aborting one.
    pub fn set_part_time(&self, time: Duration) {
        *self.uploads.part_time.lock() = time;
    }

    /// States this as the time when each object was modified, from now on: many stores state whole seconds, in
    /// which an object may be written twice.
    pub fn set_time(&self, time: SystemTime) {
        *self.time.lock() = Some(time);
    }

    /// States no e-tags from now on, as many web servers do.
    pub fn hide_e_tags(&self) {
        self.without_e_tags.store(true, Ordering::SeqCst);
    }

    /// Answers requests that are for another e-tag, too, as some web servers do.
    pub fn ignore_conditions(&self) {
        self.without_conditions.store(true, Ordering::SeqCst);
    }

    /// Keeps old versions from now on, but forbids to ask for a version, as S3 does without a permission for it.
    pub fn forbid_old_versions(&self) {
        self.without_old_versions.store(true, Ordering::SeqCst);
    }

    /// Makes all requests for metadata fail.
    pub fn fail_heads(&self) {
        self.without_heads.store(true, Ordering::SeqCst);
    }

    /// Refuses to read the end of an object of unknown size from now on, as Azure does.
    pub fn refuse_ends(&self) {
        self.without_ends.store(true, Ordering::SeqCst);
    }

    /// Changes descriptions of objects to what is to be stated.
    fn dated(&self) -> impl Fn(ObjectMeta) -> ObjectMeta + Send + use<> {
        let time = *self.time.lock();
        let without_e_tags = self.without_e_tags.load(Ordering::SeqCst);
        let version = self.without_old_versions.load(Ordering::SeqCst).then(|| "newest".to_owned());
        move |meta| ObjectMeta {
            last_modified: time.map_or(meta.last_modified, Into::into),
            e_tag: meta.e_tag.filter(|_| !without_e_tags),
            version: version.clone(),
            ..meta
        }
    }

    /// Holds back answers to requests that write to paths which contain a text, until this is called again.
    /// What they request has been done by then: an object appears, or an upload starts.
    pub fn hold_answers(&self, about: Option<&'static str>) {
        *self.uploads.held.lock() = about;
    }

    fn fault(&self) -> Option<ReadFault> {
        self.plan.lock().as_mut().and_then(|plan| plan())
    }
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestStore").finish_non_exhaustive()
    }
}

impl fmt::Display for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestStore")
    }
}

#[async_trait]
impl ObjectStore for TestStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            self.heads.add(1);
            if self.without_heads.load(Ordering::SeqCst) {
                return Err(failure("403 Forbidden"));
            }
            let result = self.inner.get_opts(location, options).await?;
            return Ok(GetResult { meta: self.dated()(result.meta.clone()), ..result });
        }
        self.reads.add(1);
        if options.version.is_some() && self.without_old_versions.load(Ordering::SeqCst) {
            return Err(failure("403 Forbidden"));
        }
        if matches!(options.range, Some(GetRange::Suffix(_))) && self.without_ends.load(Ordering::SeqCst) {
            return Err(Error::NotSupported { source: "ranges must have a start".into() });
        }
        let now = self.in_flight.add(1);
        self.most_in_flight.0.fetch_max(now, Ordering::SeqCst);
        self.alone.add(u64::from(now == 1));
        let in_flight = InFlight(Arc::clone(&self.in_flight));
        let latency = *self.latency.lock();
        tokio::time::sleep(latency).await;
        let fault = self.fault();
        match fault {
            Some(ReadFault::Fails) => return Err(failure("the network is down")),
            Some(ReadFault::Busy) => return Err(failure("503 Service Unavailable: SlowDown")),
            Some(ReadFault::Stalls) => std::future::pending().await,
            _ => {}
        }
        let if_match = options.if_match.filter(|_| !self.without_conditions.load(Ordering::SeqCst));
        let result = self.inner.get_opts(location, GetOptions { if_match, ..options }).await?;
        let (meta, mut range, attributes) =
            (self.dated()(result.meta.clone()), result.range.clone(), result.attributes.clone());
        let bytes = result.bytes().await?;
        self.bytes.add(bytes.len() as u64);
        let half = bytes.len() / 2;
        let pieces: Vec<Result<Bytes>> = match fault {
            Some(ReadFault::Breaks) => vec![Ok(bytes.slice(..half)), Err(failure("connection reset"))],
            Some(ReadFault::Short) => vec![Ok(bytes.slice(..half))],
            Some(ReadFault::Long) => vec![Ok(bytes), Ok(Bytes::from_static(b"more"))],
            Some(ReadFault::Elsewhere) => {
                range.start += 1;
                vec![Ok(bytes)]
            }
            _ => {
                let step = match self.piece_len.load(Ordering::SeqCst) {
                    0 => bytes.len().div_ceil(2).max(1),
                    step => step,
                };
                let starts = (0..bytes.len()).step_by(step);
                starts.map(|at| Ok(bytes.slice(at..bytes.len().min(at + step)))).collect()
            }
        };
        let stalls = fault == Some(ReadFault::StallsMidway);
        let trickles = self.piece_len.load(Ordering::SeqCst) > 0;
        let piece_time = (*self.piece_time.lock()).max(Duration::from_micros(10));
        let pieces = futures::stream::iter(pieces.into_iter().enumerate()).then(move |(at, piece)| {
            let _ = &in_flight;
            async move {
                if stalls && at > 0 {
                    std::future::pending::<()>().await;
                }
                if trickles {
                    tokio::time::sleep(piece_time).await;
                }
                piece
            }
        });
        let payload = GetResultPayload::Stream(pieces.boxed());
        Ok(GetResult { payload, meta, range, attributes })
    }

    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.uploads.check_put(path)?;
        let result = self.inner.put_opts(path, payload, options).await;
        self.uploads.outcome(path, result).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(path, options).await?;
        let upload = Upload::new(inner, path, &self.uploads);
        self.uploads.answer(path).await;
        Ok(Box::new(upload))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (dated, time) = (self.dated(), *self.listing_time.lock());
        let listed = self.inner.list(prefix).map(move |meta| meta.map(&dated));
        if time.is_zero() {
            return listed.boxed();
        }
        let listed = futures::FutureExt::now_or_never(listed.collect::<Vec<_>>()).unwrap_or_default();
        let later = async move {
            tokio::time::sleep(time).await;
            futures::stream::iter(listed)
        };
        futures::FutureExt::flatten_stream(later).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listed = self.inner.list_with_delimiter(prefix).await?;
        listed.objects = listed.objects.into_iter().map(self.dated()).collect();
        Ok(listed)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let uploads = Arc::clone(&self.uploads);
        let checked = paths.map(move |path| path.and_then(|path| uploads.check_delete(&path).map(|()| path)));
        self.inner.delete_stream(checked.boxed())
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
