//! Files that are complete.

use std::sync::Arc;

use datafusion_common::ScalarValue;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use vortex_core::write::WriteSummary;

use super::file::Destination;

/// A file that is complete.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WrittenFile {
    /// Its path in the store.
    pub path: Path,
    /// The values of the partition columns in its rows as its folders name them, in the order of these columns and of
    /// their types, as `PartitionedFile::with_partition_values` takes them: a `Date64` is the start of its day. None is
    /// null. Empty without partition columns.
    pub partition_values: Vec<ScalarValue>,
    /// Its row count and size, and its [footer](WriteSummary::footer) with statistics.
    pub summary: Arc<WriteSummary>,
}

/// Complete files, which are removed unless the whole statement succeeds. Only a single file with a given name
/// stays when this is dropped: it may have replaced another one, and a second attempt may replace it before
/// it is removed.
#[derive(Debug)]
pub(super) struct Written {
    destination: Arc<Destination>,
    files: Vec<WrittenFile>,
}

impl Written {
    pub(super) fn of(destination: Arc<Destination>, files: Vec<WrittenFile>) -> Self {
        Self { destination, files }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn add(&mut self, mut other: Self) {
        self.files.append(&mut other.files);
    }

    /// Removes the files; returns when they are gone. They also go if nobody waits for that.
    pub(super) async fn remove(mut self) {
        let files = std::mem::take(&mut self.files);
        let removed = remove(Arc::clone(&self.destination), files);
        if let Err(error) = self.destination.runtime.spawn(removed).await {
            tracing::warn!(%error, "files of a failed statement were not removed");
        }
    }

    /// Keeps the files, since the statement has succeeded.
    pub(super) fn keep(mut self) -> Vec<WrittenFile> {
        self.destination.forget(&self.files);
        std::mem::take(&mut self.files)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let files = std::mem::take(&mut self.files);
        let Destination { has_unique_paths, runtime, .. } = &*self.destination;
        if files.is_empty() {
            return;
        }
        if *has_unique_paths {
            drop(runtime.spawn(remove(Arc::clone(&self.destination), files)))
        } else {
            // They may have replaced others.
            self.destination.forget(&files)
        }
    }
}

async fn remove(destination: Arc<Destination>, files: Vec<WrittenFile>) {
    for WrittenFile { path, .. } in &files {
        if let Err(error) = destination.store.delete(path).await {
            tracing::warn!(%path, %error, "a file of a failed statement was not removed");
        }
    }
    destination.forget(&files);
}
