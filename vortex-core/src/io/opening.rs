//! Reads with which remote files are opened. They are measured and repeated like all others, but ahead of them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::buffer::Buffer;
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::runtime::Handle;

use super::late::{hedged, unless_stalled};
use super::object_store::{ObjectFile, store_name};
use super::{RangeRequest, ReadAt, Scheduler, StorageProfile, Urgency, object_name, read_exact};
use crate::{Error, Result};

impl Scheduler {
    /// Finds the object at `location` by reading its end, `bytes` of it and up to 64 more, where reads for opening
    /// start: one request instead of a head request and a read. The first read of these bytes is served from memory. If
    /// the store fails to read the end of an object of unknown size (Azure cannot at all, and S3 cannot for empty
    /// objects), a head request follows. Reads of the object, and this one, are repeated if they take `hedge` times as
    /// long as usual, see [`ObjectFile::with_hedge`].
    ///
    /// # Errors
    /// If the object does not exist, or the store fails.
    pub async fn find_object(
        &self,
        store: &Arc<dyn ObjectStore>,
        location: &Path,
        bytes: u64,
        hedge: u32,
    ) -> Result<ObjectFile> {
        let find = || ObjectFile::find(Arc::clone(store), location, bytes);
        if !StorageProfile::of(store.as_ref()).remote || Handle::try_current().is_err() {
            return find().await.map(|found| found.object);
        }
        let queue = self.queue(&store_name(store));
        let started = Instant::now();
        let again = || queue.may_hedge().then(find);
        let found =
            unless_stalled(Some(queue.stall), hedged(find(), queue.overdue(hedge, bytes), again)).await;
        let found =
            found.map_err(|error| Error::read(object_name(store.as_ref(), location), 0..0, error))??;
        let first_byte = started.elapsed().saturating_sub(found.rest);
        queue.note(first_byte, found.rest, found.bytes);
        Ok(found.object.with_hedge(hedge))
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
