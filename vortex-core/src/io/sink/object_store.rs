//! Objects written to any object store.
//!
//! Bytes are collected into parts of equal size, which some stores require. An object that fits into one
//! part is written in a single request; a longer one becomes a multipart upload with several parts in
//! flight at once.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

use super::Sink;
use crate::io::object_name;
use crate::{Error, Result};

/// Bytes per part.
const PART_BYTES: usize = 8 << 20;
/// Maximum number of parts that stores accept; with parts of the default size, an object has up to 78
/// GiB.
const MAX_PARTS: usize = 10_000;
/// Parts in flight at once.
const PARTS_IN_FLIGHT: usize = 2;

/// An object of an object store, which becomes visible once it is complete. Needs a tokio runtime, on
/// which an upload that is dropped midway is aborted.
#[derive(Debug)]
pub struct ObjectSink {
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// The name in messages.
    name: String,
    part_bytes: usize,
    parts_in_flight: usize,
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
    parts: JoinSet<object_store::Result<()>>,
    /// Number of parts sent, whether they have arrived or not.
    sent: usize,
    runtime: Option<Handle>,
}

impl Upload {
    /// Stops the parts in flight, then removes those that have arrived.
    async fn abort(&mut self) -> object_store::Result<()> {
        self.parts.shutdown().await;
        match self.started.take() {
            Some(mut upload) => upload.abort().await,
            None => Ok(()),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let (Some(_), Some(runtime)) = (&self.started, self.runtime.take()) else { return };
        let mut upload = std::mem::take(self);
        // The upload dropped with the task has nothing left to abort.
        runtime.spawn(async move {
            if let Err(error) = upload.abort().await {
                tracing::warn!(%error, "failed to remove the parts of a dropped upload");
            }
        });
    }
}

impl ObjectSink {
    /// Starts an object. An existing object of that name is replaced.
    pub fn new(store: Arc<dyn ObjectStore>, path: Path) -> Self {
        let name = object_name(store.as_ref(), &path);
        Self {
            store,
            path,
            name,
            part_bytes: PART_BYTES,
            parts_in_flight: PARTS_IN_FLIGHT,
            growing: Vec::new(),
            growing_bytes: 0,
            upload: Upload::default(),
            is_closed: false,
        }
    }

    /// Sets the number of bytes of each part but the last; 8 MiB by default. Most stores require at
    /// least 5 MiB.
    #[must_use]
    pub fn with_part_bytes(mut self, bytes: usize) -> Self {
        self.part_bytes = bytes.max(1);
        self
    }

    /// Sets the maximum number of parts in flight; 2 by default. Memory for one more is needed.
    #[must_use]
    pub fn with_parts_in_flight(mut self, parts: usize) -> Self {
        self.parts_in_flight = parts.max(1);
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
        if self.upload.sent == MAX_PARTS {
            let bytes = self.part_bytes;
            return Err(self.failed(format!(
                "stores accept at most {MAX_PARTS} parts, of {bytes} bytes here: write larger parts or several files"
            )));
        }
        if self.upload.started.is_none() {
            let upload = self.store.put_multipart(&self.path).await.map_err(|error| self.failed(error))?;
            self.upload.started = Some(upload);
            self.upload.runtime = Some(Handle::current());
        }
        while self.upload.parts.len() >= self.parts_in_flight {
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
            Some(arrived) => self.arrived(arrived),
            None => Ok(()),
        }
    }

    fn arrived(&self, part: std::result::Result<object_store::Result<()>, JoinError>) -> Result<()> {
        part.map_err(|error| self.failed(error))?.map_err(|error| self.failed(error))
    }

    async fn append(&mut self, mut bytes: Bytes) -> Result<()> {
        self.check_open()?;
        // Parts that have arrived no longer take up memory, and failures are reported early.
        while let Some(arrived) = self.upload.parts.try_join_next() {
            self.arrived(arrived)?;
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
            let whole = PutPayload::from_iter(self.growing.drain(..));
            return match self.store.put(&self.path, whole).await {
                Ok(_) => Ok(()),
                Err(error) => Err(self.failed(error)),
            };
        }
        if self.growing_bytes > 0 {
            self.send().await?;
        }
        while !self.upload.parts.is_empty() {
            self.part_arrived().await?;
        }
        if let Some(upload) = &mut self.upload.started {
            upload.complete().await.map_err(|error| Error::write(&self.name, error))?;
        }
        self.upload.started = None;
        Ok(())
    }

    /// Removes everything after a failure, and returns that failure to the caller.
    async fn or_abort(&mut self, outcome: Result<()>) -> Result<()> {
        self.is_closed |= outcome.is_err();
        if outcome.is_err()
            && let Err(error) = self.upload.abort().await
        {
            tracing::warn!(object = %self.path, %error, "failed to remove the parts of a failed upload");
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
