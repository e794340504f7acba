//! Writes that fail on demand, and counters of what they leave behind.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};
use parking_lot::Mutex;

use super::{Count, failure};

/// The ways in which a write can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteFault {
    /// Writes succeed.
    #[default]
    Nothing,
    /// Objects written in a single request fail.
    Put,
    /// As `Put`, but only for objects whose path contains this text.
    PutOf(&'static str),
    /// The part with this number fails in each upload.
    Part(u64),
    /// The last step of an upload fails.
    Complete,
    /// Objects appear, in whichever way they are written, but the store reports that they do not.
    Answer,
    /// Objects whose path contains this text cannot be deleted.
    Delete(&'static str),
}

/// Counters of uploads.
#[derive(Debug, Default)]
pub struct Uploads {
    /// Uploads started.
    pub started: Count,
    /// Uploads neither completed nor aborted yet.
    pub open: Count,
    /// Parts of uploads.
    pub parts: Count,
    /// Uploads aborted.
    pub aborts: Count,
    pub(super) fault: Mutex<WriteFault>,
    pub(super) part_time: Mutex<Duration>,
    pub(super) held: Mutex<Option<&'static str>>,
}

impl Uploads {
    pub(super) fn check_put(&self, path: &Path) -> Result<()> {
        let fails = match *self.fault.lock() {
            WriteFault::Put => true,
            WriteFault::PutOf(part) => path.as_ref().contains(part),
            _ => false,
        };
        if fails { full() } else { Ok(()) }
    }

    pub(super) fn check_delete(&self, path: &Path) -> Result<()> {
        match *self.fault.lock() {
            WriteFault::Delete(part) if path.as_ref().contains(part) => Err(failure("access is denied")),
            _ => Ok(()),
        }
    }

    /// Waits as long as answers about this path are held back.
    pub(super) async fn answer(&self, path: &Path) {
        while self.held.lock().is_some_and(|about| path.as_ref().contains(about)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// What the writer of an object at this path gets to know.
    pub(super) async fn outcome(&self, path: &Path, outcome: Result<PutResult>) -> Result<PutResult> {
        self.answer(path).await;
        let is_lost = *self.fault.lock() == WriteFault::Answer;
        if is_lost { Err(failure("the connection was closed")) } else { outcome }
    }

    /// Waits until no upload is open, since separate tasks abort those of dropped writers. Returns
    /// whether that was reached.
    pub async fn settle(&self) -> bool {
        for _ in 0..200 {
            if self.open.get() == 0 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    }
}

fn full<T>() -> Result<T> {
    Err(failure("the disk is full"))
}

/// An upload in progress.
#[derive(Debug)]
pub(super) struct Upload {
    inner: Box<dyn MultipartUpload>,
    path: Path,
    sent: u64,
    is_complete: bool,
    all: Arc<Uploads>,
}

impl Upload {
    pub(super) fn new(inner: Box<dyn MultipartUpload>, path: &Path, all: &Arc<Uploads>) -> Self {
        all.started.add(1);
        all.open.add(1);
        Self { inner, path: path.clone(), sent: 0, is_complete: false, all: Arc::clone(all) }
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.sent += 1;
        self.all.parts.add(1);
        if *self.all.fault.lock() == WriteFault::Part(self.sent) {
            return Box::pin(async { full() });
        }
        let (part, time) = (self.inner.put_part(data), *self.all.part_time.lock());
        Box::pin(async move {
            tokio::time::sleep(time).await;
            part.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if *self.all.fault.lock() == WriteFault::Complete {
            return full();
        }
        self.all.open.sub(1);
        self.is_complete = true;
        let result = self.inner.complete().await;
        self.all.outcome(&self.path, result).await
    }

    async fn abort(&mut self) -> Result<()> {
        if self.is_complete {
            return Err(failure("no such upload"));
        }
        let time = *self.all.part_time.lock();
        tokio::time::sleep(time).await;
        self.all.open.sub(1);
        self.all.aborts.add(1);
        self.inner.abort().await
    }
}
