//! A store in memory that fails when told to, and counts what writers leave behind.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    /// Objects put in one request.
    Put,
    /// The part of this number, in each upload.
    Part(usize),
    /// The last step of an upload.
    Complete,
    /// Objects put in one request whose path contains `b=2`.
    PutOfOne,
}

/// What writers did.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    /// Uploads neither completed nor aborted.
    pub(crate) open_uploads: AtomicUsize,
    pub(crate) parts: AtomicUsize,
    pub(crate) aborts: AtomicUsize,
}

/// A store that fails.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: InMemory,
    fault: Fault,
    traces: Arc<Traces>,
    /// How long each part takes.
    part_time: Duration,
}

impl FaultyStore {
    pub(crate) fn new(fault: Fault) -> (Arc<Self>, Arc<Traces>) {
        Self::slow(fault, Duration::ZERO)
    }

    pub(crate) fn slow(fault: Fault, part_time: Duration) -> (Arc<Self>, Arc<Traces>) {
        let traces = Arc::<Traces>::default();
        (Arc::new(Self { inner: InMemory::new(), fault, traces: Arc::clone(&traces), part_time }), traces)
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

fn full<T>() -> Result<T> {
    Err(object_store::Error::Generic { store: "faulty", source: "the disk is full".into() })
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    fault: Fault,
    sent: usize,
    traces: Arc<Traces>,
    part_time: Duration,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.sent += 1;
        self.traces.parts.fetch_add(1, Ordering::SeqCst);
        if self.fault == Fault::Part(self.sent) {
            return Box::pin(async { full() });
        }
        let (part, time) = (self.inner.put_part(data), self.part_time);
        Box::pin(async move {
            tokio::time::sleep(time).await;
            part.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if self.fault == Fault::Complete {
            return full();
        }
        self.traces.open_uploads.fetch_sub(1, Ordering::SeqCst);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.traces.open_uploads.fetch_sub(1, Ordering::SeqCst);
        self.traces.aborts.fetch_add(1, Ordering::SeqCst);
        self.inner.abort().await
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let fails = match self.fault {
            Fault::Put => true,
            Fault::PutOfOne => path.as_ref().contains("b=2"),
            _ => false,
        };
        if fails { full() } else { self.inner.put_opts(path, payload, options).await }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(path, options).await?;
        self.traces.open_uploads.fetch_add(1, Ordering::SeqCst);
        let traces = Arc::clone(&self.traces);
        Ok(Box::new(Upload { inner, fault: self.fault, sent: 0, traces, part_time: self.part_time }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
