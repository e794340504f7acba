//! Reads with which remote files are opened. They are measured, and requested again if they are late, as all others.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow::buffer::Buffer;
use bytes::Bytes;
use futures::StreamExt as _;
use object_store::path::Path;
use object_store::{Error as StoreError, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};
use tokio::runtime::Handle;

use super::blocking::OwnedTask;
use super::late::{hedged, unless_stalled};
use super::object_store::{ObjectFile, store_name};
use super::store_queue::StoreQueue;
use super::{
    READ_ALIGNMENT, RangeRequest, ReadAt, Scheduler, StorageProfile, Urgency, object_name, read_exact,
};
use crate::{Error, Result};

impl Scheduler {
    /// Finds the object at `location` by reading its end, `bytes` of it and up to 64 more, where reads for opening
    /// start: one request instead of a head request and a read. The first read of these bytes is served from memory. If
    /// the store fails to read the end of an object of unknown size (Azure cannot at all, and S3 cannot for empty
    /// objects), a head request follows. This request is not queued. It and reads of the object are repeated if they
    /// take `hedge` times as long as usual, see [`ObjectFile::with_hedge`].
    ///
    /// On a runtime of tokio, a task of it does this for remote stores, and needs timers.
    ///
    /// # Errors
    /// If the object does not exist, or the store fails, or delivers nothing for as long as other reads may.
    pub async fn find_object(
        &self,
        store: &Arc<dyn ObjectStore>,
        location: &Path,
        bytes: u64,
        hedge: u32,
    ) -> Result<ObjectFile> {
        let (store, location) = (Arc::clone(store), location.clone());
        let name = object_name(store.as_ref(), &location);
        if !StorageProfile::of(store.as_ref()).remote || Handle::try_current().is_err() {
            return Finding { store, location, bytes, name, watch: None }.object().await;
        }
        let watch = Some(Watch { queue: self.queue(&store_name(&store)), hedge });
        let finding = Finding { store, location, bytes, name: name.clone(), watch };
        // A runtime without timers panics.
        let found = OwnedTask::spawn(finding.object()).await;
        let found = found.map_err(|error| Error::read(name, 0..0, error))??;
        Ok(found.with_hedge(hedge))
    }

    /// Reads a range of a description, which is what a file is opened with, ahead of all that waits.
    ///
    /// # Errors
    /// If storage fails.
    pub(crate) async fn read_description(
        &self,
        source: &Arc<dyn ReadAt>,
        range: Range<u64>,
    ) -> Result<Buffer> {
        // Without a runtime of tokio, files can be opened, but not scanned.
        if !source.profile().remote || Handle::try_current().is_err() {
            return Ok(read_exact(source.as_ref(), range).await?.into());
        }
        let wanted = vec![RangeRequest { range, urgency: Urgency::DESCRIPTION }];
        let (pending, unsent) = self.request(source, wanted, &Arc::default());
        unsent.send();
        // There is one answer per request.
        pending[0].wait().await
    }
}

/// The search for an object.
struct Finding {
    store: Arc<dyn ObjectStore>,
    location: Path,
    bytes: u64,
    name: String,
    /// Without it, nothing is late.
    watch: Option<Watch>,
}

/// What tells that a request is late, and measures others.
struct Watch {
    queue: Arc<StoreQueue>,
    hedge: u32,
}

impl Finding {
    async fn object(self) -> Result<ObjectFile> {
        let error = match self.by_its_end().await {
            Err(error) if !error.is_not_found() && !is_stalled(&error) => error,
            found => return found,
        };
        match self.in_time(self.store.head(&self.location)).await? {
            Ok(meta) => Ok(ObjectFile::new(self.store, meta)),
            Err(why) if matches!(why, StoreError::NotFound { .. }) || is_unsupported(&error) => {
                Err(self.failed(why))
            }
            // Of two requests that fail, the first tells why: the answer to the other has no contents.
            Err(_) => Err(error),
        }
    }

    async fn by_its_end(&self) -> Result<ObjectFile> {
        // The length of the answer, once it is known.
        let answered = OnceLock::new();
        let Some(Watch { queue, hedge }) = &self.watch else { return self.read_end(&answered).await };
        let overdue = async {
            queue.overdue(*hedge, 0).await;
            if let Some(len) = answered.get() {
                queue.overdue(*hedge, *len).await;
            }
        };
        let again = || queue.may_hedge().then(|| self.read_end(&answered));
        hedged(self.read_end(&answered), overdue, again).await
    }

    async fn read_end(&self, answered: &OnceLock<u64>) -> Result<ObjectFile> {
        let started = Instant::now();
        let range = Some(GetRange::Suffix(self.bytes.saturating_add(READ_ALIGNMENT)));
        let options = GetOptions { range, ..GetOptions::default() };
        let answer = self.in_time(self.store.get_opts(&self.location, options)).await?;
        let answer = answer.map_err(|error| self.failed(error))?;
        let first_byte = started.elapsed();
        let (meta, range) = (answer.meta.clone(), answer.range.clone());
        let expected = range.end.saturating_sub(range.start);
        answered.get_or_init(|| expected);
        let (mut stream, mut pieces, mut len) = (answer.into_stream(), Vec::new(), 0);
        while let Some(piece) = self.in_time(stream.next()).await? {
            let piece = piece.map_err(|error| self.failed(error))?;
            len += piece.len() as u64;
            pieces.push(piece);
        }
        if range.end != meta.size || expected != len {
            let message = format!("the store returned {len} bytes of {range:?} of {}", meta.size);
            return Err(Error::read(&self.name, range, message));
        }
        if let Some(Watch { queue, .. }) = &self.watch {
            queue.note(first_byte, started.elapsed().saturating_sub(first_byte), len);
        }
        let end = if pieces.len() == 1 { pieces.remove(0) } else { Bytes::from(pieces.concat()) };
        Ok(ObjectFile::with_end(Arc::clone(&self.store), meta, end))
    }

    /// The output of `work`, unless the store delivers nothing for too long.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let limit = self.watch.as_ref().map(|watch| watch.queue.stall);
        unless_stalled(limit, work).await.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::read(&self.name, 0..0, error)
    }
}

/// Whether nothing was delivered for too long: another request would take as long again.
fn is_stalled(error: &Error) -> bool {
    matches!(error.root(), Error::Read { source, .. } if source.is::<std::io::Error>())
}

/// Whether a request was not sent at all, since the store has none of this kind.
fn is_unsupported(error: &Error) -> bool {
    let Error::Read { source, .. } = error.root() else { return false };
    matches!(source.downcast_ref(), Some(StoreError::NotSupported { .. }))
}
