//! Objects written to any object store.
//!
//! Bytes are collected into parts of equal size, which some stores require. An object that fits into one
//! part is written in a single request; a longer one becomes a multipart upload with several parts in
//! flight at once.
//!
//! A store may carry out a request although its sender no longer waits for the answer:
//!
//! - The request that starts an upload is a task that outlives the sink; it aborts what nobody waits for.
//! - So is the request that makes an object visible, if nobody else writes to its path: it removes what
//!   nobody waits for, and what is there although the request failed, whose answer may have been lost. At any other
//!   path, the object could be one that a second attempt has written since. There, the request is cancelled with the
//!   sink, and may or may not have replaced the object as a whole.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload, Result as StoreResult};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::Sink;
use crate::io::names::{LocalStore, object_name};
use crate::{Error, Result};

/// Bytes per part.
const PART_BYTES: usize = 8 << 20;
/// Bytes per part of local stores. Buckets require larger parts, which take more memory.
const LOCAL_PART_BYTES: usize = 1 << 20;
/// Maximum number of parts that buckets accept; with parts of the default size, an object has up to 78 GiB. Local
/// stores accept any number.
const MAX_PARTS: usize = 10_000;
/// Parts in flight at once. Memory for one more is needed.
const PARTS_IN_FLIGHT: usize = 2;

/// An object of an object store, which becomes visible once it is complete. Needs a tokio runtime, on
/// which an upload that is dropped midway is aborted.
///
/// If [`finish`](Sink::finish) is dropped before it returns, the object may be complete or as it was before;
/// see also [`with_unique_path`](Self::with_unique_path).
///
/// If a local file of more than one part cannot be renamed to its final name, `object_store` 0.13 leaves it behind,
/// with `#` and a number after its name.
#[derive(Debug)]
pub struct ObjectSink {
    store: Arc<dyn ObjectStore>,
    path: Path,
    is_unique: bool,
    /// The name in messages.
    name: String,
    part_bytes: usize,
    max_parts: usize,
    /// Bytes of the part being collected.
    growing: Vec<Bytes>,
    growing_bytes: usize,
    upload: Upload,
    /// Whether the object is finished, failed or aborted, so that nothing more can be written.
    is_closed: bool,
}

/// A multipart upload, aborted unless it is completed.
#[derive(Debug, Default)]
struct Upload {
    started: Option<Box<dyn MultipartUpload>>,
    path: Path,
    parts: JoinSet<StoreResult<()>>,
    /// Number of parts sent, whether they have arrived or not.
    sent: usize,
    runtime: Option<Handle>,
}

impl Upload {
    async fn start(store: Arc<dyn ObjectStore>, path: Path) -> StoreResult<Self> {
        let started = store.put_multipart(&path).await?;
        Ok(Self {
            started: Some(started),
            path,
            parts: JoinSet::new(),
            sent: 0,
            runtime: Some(Handle::current()),
        })
    }

    /// Makes the object visible, or removes all parts.
    async fn complete(mut self) -> StoreResult<()> {
        let Some(upload) = &mut self.started else { return Ok(()) };
        let completed = upload.complete().await;
        if completed.is_ok() {
            self.started = None;
        } else {
            // The task has told if it failed.
            let _ = self.abort().await;
        }
        completed.map(drop)
    }

    /// Stops the parts in flight, then removes those that have arrived: also if the caller stops waiting for it.
    async fn abort(&mut self) -> StoreResult<()> {
        match self.start_abort() {
            Some(aborted) => aborted.await?,
            None => Ok(()),
        }
    }

    /// Starts to abort, as a task; `None` if there is nothing to abort.
    fn start_abort(&mut self) -> Option<JoinHandle<StoreResult<()>>> {
        let (mut upload, mut parts) = (self.started.take()?, std::mem::take(&mut self.parts));
        let path = self.path.clone();
        let abort = async move {
            parts.shutdown().await;
            let aborted = upload.abort().await;
            aborted
                .inspect_err(|error| tracing::warn!(%path, %error, "failed to remove the parts of an upload"))
        };
        Some(self.runtime.as_ref()?.spawn(abort))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        drop(self.start_abort());
    }
}

/// An object that is complete, but whose sink does not know that yet; removed when it is dropped.
#[derive(Debug)]
struct Unclaimed {
    object: Option<(Arc<dyn ObjectStore>, Path)>,
    runtime: Handle,
}

impl Unclaimed {
    fn new(store: Arc<dyn ObjectStore>, path: Path) -> Self {
        Self { object: Some((store, path)), runtime: Handle::current() }
    }

    fn claim(mut self) {
        self.object = None;
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let Some((store, path)) = self.object.take() else { return };
        self.runtime.spawn(async move { remove_if_there(&store, &path).await });
    }
}

async fn remove_if_there(store: &Arc<dyn ObjectStore>, path: &Path) {
    match store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
        Err(error) => tracing::warn!(%path, %error, "failed to remove an object that nobody waited for"),
    }
}

impl ObjectSink {
    /// Starts an object. An existing object of that name is replaced.
    pub fn new(store: Arc<dyn ObjectStore>, path: Path) -> Self {
        let name = object_name(store.as_ref(), &path);
        let (part_bytes, max_parts) = match LocalStore::named(&store.to_string()) {
            Some(local) if !local.is_wrapped => (LOCAL_PART_BYTES, usize::MAX),
            Some(_) => (PART_BYTES, usize::MAX),
            None => (PART_BYTES, MAX_PARTS),
        };
        Self {
            store,
            path,
            is_unique: false,
            name,
            part_bytes,
            max_parts,
            growing: Vec::new(),
            growing_bytes: 0,
            upload: Upload::default(),
            is_closed: false,
        }
    }

    /// Sets the number of bytes of each part but the last; 8 MiB by default, and 1 MiB on local disks. Most buckets
    /// require at least 5 MiB, and accept up to 10,000 parts.
    #[must_use]
    pub fn with_part_bytes(mut self, bytes: usize) -> Self {
        self.part_bytes = bytes.max(1);
        self
    }

    /// Promises that nobody else ever writes to the path, for example because a part of it is random. If
    /// [`finish`](Sink::finish) then fails, or is dropped before it returns, an object that appears nevertheless is
    /// removed, as long as the runtime lasts.
    #[must_use]
    pub fn with_unique_path(mut self) -> Self {
        self.is_unique = true;
        self
    }

    fn failed(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::write(&self.name, error)
    }

    fn check_open(&self) -> Result<()> {
        if self.is_closed { Err(self.failed("was already aborted or finished")) } else { Ok(()) }
    }

    /// Sends the collected part.
    async fn send(&mut self) -> Result<()> {
        if self.upload.sent == self.max_parts {
            let (parts, bytes) = (self.max_parts, self.part_bytes);
            return Err(self.failed(format!(
                "stores accept at most {parts} parts, of {bytes} bytes here: write larger parts or several files"
            )));
        }
        if self.upload.started.is_none() {
            let start = Upload::start(Arc::clone(&self.store), self.path.clone());
            let started = tokio::spawn(start).await;
            self.upload = self.joined(started)?;
        }
        while self.upload.parts.len() >= PARTS_IN_FLIGHT {
            self.part_arrived().await?;
        }
        let part = PutPayload::from_iter(self.growing.drain(..));
        self.growing_bytes = 0;
        if let Some(upload) = &mut self.upload.started {
            self.upload.parts.spawn(upload.put_part(part));
            self.upload.sent += 1;
        }
        Ok(())
    }

    /// Waits for one of the parts in flight.
    async fn part_arrived(&mut self) -> Result<()> {
        match self.upload.parts.join_next().await {
            Some(arrived) => self.joined(arrived),
            None => Ok(()),
        }
    }

    fn joined<T>(&self, task: std::result::Result<StoreResult<T>, JoinError>) -> Result<T> {
        task.map_err(|error| self.failed(error))?.map_err(|error| self.failed(error))
    }

    async fn append(&mut self, mut bytes: Bytes) -> Result<()> {
        self.check_open()?;
        // Parts that have arrived no longer take up memory, and failures are reported early.
        while let Some(arrived) = self.upload.parts.try_join_next() {
            self.joined(arrived)?;
        }
        while self.growing_bytes + bytes.len() > self.part_bytes {
            let head = bytes.split_to(self.part_bytes - self.growing_bytes);
            self.growing.push(head);
            self.send().await?;
        }
        self.growing_bytes += bytes.len();
        self.growing.push(bytes);
        Ok(())
    }

    async fn complete(&mut self) -> Result<()> {
        self.check_open()?;
        self.is_closed = true;
        if self.upload.started.is_none() {
            let (store, path) = (Arc::clone(&self.store), self.path.clone());
            let whole = PutPayload::from_iter(self.growing.drain(..));
            return self.appear(async move { store.put(&path, whole).await.map(drop) }).await;
        }
        if self.growing_bytes > 0 {
            self.send().await?;
        }
        while !self.upload.parts.is_empty() {
            self.part_arrived().await?;
        }
        let upload = std::mem::take(&mut self.upload);
        self.appear(upload.complete()).await
    }

    /// Sends the request that makes the object visible.
    async fn appear(
        &mut self,
        request: impl Future<Output = StoreResult<()>> + Send + 'static,
    ) -> Result<()> {
        if !self.is_unique {
            return request.await.map_err(|error| self.failed(error));
        }
        let (store, path) = (Arc::clone(&self.store), self.path.clone());
        let appear = async move {
            let outcome = request.await;
            // The store may have carried out the request, and only its answer was lost: what is there is removed then.
            let appeared = Unclaimed::new(store, path);
            outcome.map(|()| appeared)
        };
        let appeared = tokio::spawn(appear).await;
        self.joined(appeared).map(Unclaimed::claim)
    }

    /// Removes everything after a failure, and returns that failure to the caller.
    async fn or_abort(&mut self, outcome: Result<()>) -> Result<()> {
        self.is_closed |= outcome.is_err();
        if outcome.is_err() {
            // The task has told if it failed.
            let _ = self.upload.abort().await;
        }
        outcome
    }
}

#[async_trait]
impl Sink for ObjectSink {
    fn name(&self) -> &str {
        &self.name
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let outcome = self.append(bytes).await;
        self.or_abort(outcome).await
    }

    fn buffered_bytes(&self) -> usize {
        self.growing_bytes + self.upload.parts.len() * self.part_bytes
    }

    async fn finish(&mut self) -> Result<()> {
        let outcome = self.complete().await;
        self.or_abort(outcome).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.is_closed = true;
        self.growing.clear();
        self.growing_bytes = 0;
        self.upload.abort().await.map_err(|error| Error::write(&self.name, error))
    }
}
