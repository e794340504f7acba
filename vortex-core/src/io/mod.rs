//! Reading and writing bytes of storage: the only module that waits for it.
//!
//! A source implements [`ReadAt`]; [`LocalFile`], [`MemoryFile`] and [`ObjectFile`] do. The
//! [`Scheduler`] turns the segments that scans want into few reads, and keeps their bytes under
//! a budget. A [`CachedFile`] keeps what is read of another source in a [`BlockCache`].
//!
//! A file is written to a [`Sink`]; [`LocalSink`], [`MemorySink`] and [`ObjectSink`] are.

mod budget;
mod cache;
mod coalesce;
mod delivery;
mod local;
mod memory;
mod object_store;
mod pace;
mod recycled;
mod scheduler;
mod sink;
mod urgency;
mod waiting;

use std::fmt::Debug;
use std::ops::Range;

use arrow::buffer::Buffer;
use async_trait::async_trait;
pub use budget::MemoryPool;
pub(crate) use budget::{Budget, Share};
use bytes::Bytes;
pub use cache::{BlockCache, CachedFile};
use futures::StreamExt as _;
use futures::stream::BoxStream;
pub use local::LocalFile;
pub use memory::MemoryFile;
pub use object_store::{ObjectFile, object_name};
pub(crate) use scheduler::Unsent;
pub use scheduler::{Pending, Scheduler, Wish};
pub use sink::{LocalSink, MemorySink, ObjectSink, Sink, local_target};
pub use urgency::Urgency;

use crate::Result;

/// A source of bytes that can be read at any position, concurrently.
#[async_trait]
#[expect(clippy::len_without_is_empty, reason = "an empty source is an error when opened, not a question")]
pub trait ReadAt: Debug + Send + Sync + 'static {
    /// What errors call it: a path or a URL.
    fn name(&self) -> &str;

    /// Length in bytes.
    ///
    /// # Errors
    /// If storage fails.
    async fn len(&self) -> Result<u64>;

    /// Exactly the bytes of `range`, which lies within the length.
    ///
    /// # Errors
    /// If storage fails, or has fewer bytes.
    async fn read(&self, range: Range<u64>) -> Result<Bytes>;

    /// The same bytes in pieces, in order, each as it arrives. One piece by default.
    ///
    /// # Errors
    /// If storage fails before the first byte; what fails later fails its piece.
    async fn stream(&self, range: Range<u64>) -> Result<BoxStream<'static, Result<Bytes>>> {
        let bytes = self.read(range).await?;
        Ok(futures::stream::once(async move { Ok(bytes) }).boxed())
    }

    /// The bytes of `range` if getting them takes no waiting at all.
    fn at_hand(&self, _range: &Range<u64>) -> Option<Bytes> {
        None
    }

    /// The bytes of `range` if they were kept from an earlier read, so that none is needed.
    fn cached(&self, _range: &Range<u64>) -> Option<Bytes> {
        None
    }

    /// What to read instead of `range`: more, if all of it will be kept.
    fn widened(&self, range: Range<u64>) -> Range<u64> {
        range
    }

    /// The storage behind. Sources of the same one share what is learnt of its pace, and a limit
    /// of reads in flight.
    fn store(&self) -> &str {
        "local"
    }

    /// The bytes of many ranges, each within the length. By default all are read at once; a
    /// source for which a small read costs little does better.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    async fn read_many(&self, ranges: &[Range<u64>]) -> Result<Vec<Buffer>> {
        let reads = ranges.iter().map(|range| self.read(range.clone()));
        Ok(futures::future::try_join_all(reads).await?.into_iter().map(Buffer::from).collect())
    }

    /// How reads of this source are best cut.
    fn profile(&self) -> StorageProfile;
}

/// How reads are best cut for one class of storage.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct StorageProfile {
    /// Ranges at most this many bytes apart are read together: roughly latency times bandwidth
    /// of one stream.
    pub coalesce_gap: u64,
    /// Largest read that coalescing may make.
    pub max_read: u64,
    /// Most reads in flight at once.
    pub concurrency: usize,
    /// Most bytes to read from the end of a file when opening it; fewer of a small one.
    pub tail_read: u64,
    /// Whether it is far away: a request costs more than many bytes, and may bring nothing for
    /// long.
    pub remote: bool,
    /// A read that has not ended after this many times what latency and bandwidth, as measured,
    /// predict is asked for a second time from where it stands, and whichever stream brings the
    /// next piece goes on; 0 for never. At most one read of 20 is.
    pub hedge: u32,
}

impl StorageProfile {
    /// How reads of an object store are best cut.
    pub fn of(store: &dyn ::object_store::ObjectStore) -> Self {
        if store.to_string().starts_with("LocalFileSystem") { Self::LOCAL } else { Self::REMOTE }
    }

    /// Bytes in memory: no reason to join anything.
    pub const MEMORY: Self = Self {
        coalesce_gap: 0,
        max_read: u64::MAX,
        concurrency: 64,
        tail_read: 64 << 10,
        remote: false,
        hedge: 0,
    };
    /// A local disk.
    pub const LOCAL: Self = Self {
        coalesce_gap: 16 << 10,
        max_read: 4 << 20,
        concurrency: 32,
        tail_read: 64 << 10,
        remote: false,
        hedge: 0,
    };
    /// An object store.
    pub const REMOTE: Self = Self {
        coalesce_gap: 3 << 19,
        max_read: 8 << 20,
        concurrency: 64,
        tail_read: 1 << 20,
        remote: true,
        hedge: 0,
    };
}
