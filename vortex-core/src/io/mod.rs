//! Reading and writing bytes of storage: the only module that waits for storage.
//!
//! Sources implement [`ReadAt`], such as [`LocalFile`], [`MemoryFile`] and [`ObjectFile`]. The
//! [`Scheduler`] turns the segments that scans want into few reads, and holds their bytes under a budget.
//! A [`CachedFile`] keeps bytes read from another source in a [`BlockCache`].
//!
//! Files are written to a [`Sink`], such as [`LocalSink`], [`MemorySink`] or [`ObjectSink`].

mod block_cache;
mod blocking;
mod cause;
mod coalesce;
mod delivery;
mod descriptor;
mod late;
mod local;
mod memory;
mod names;
mod object_store;
mod opening;
mod pace;
mod pending;
mod receiving;
mod recycled;
mod scattered;
mod scheduler;
mod sink;
mod store_id;
mod store_queue;
#[cfg(test)]
mod tests;
mod urgency;
mod waiting;

use std::fmt::Debug;
use std::io::ErrorKind;
use std::ops::Range;

use arrow::buffer::Buffer;
use async_trait::async_trait;
pub use block_cache::{BlockCache, CachedFile};
pub(crate) use blocking::{OwnedTask, block_on_thread, runtime};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
pub use local::LocalFile;
pub use memory::MemoryFile;
use names::LocalStore;
pub use names::object_name;
pub use object_store::{FirstAnswer, ObjectFile, is_versioned};
pub(crate) use pending::PendingBytes;
use scattered::read_each;
pub(crate) use scattered::read_scattered;
pub use scheduler::Scheduler;
pub(crate) use scheduler::{RangeRequest, Unsent};
pub use sink::{LocalSink, MemorySink, ObjectSink, PartialFile, Sink, local_target};
pub use store_id::StoreId;
pub(crate) use urgency::Urgency;

pub use crate::budget::MemoryPool;
use crate::{Error, Result};

/// Coalesced reads start at a multiple of this, so that most arrays are aligned in memory as in the file. It is no
/// promise: decoders copy what is not.
pub(crate) const READ_ALIGNMENT: u64 = 64;

/// A source of bytes that can be read at any position, concurrently.
///
/// A source that reads from another one forwards all methods but those that it changes, also those that have a default:
/// otherwise, what the other one can do without waiting, or all at once, is lost.
#[async_trait]
#[expect(clippy::len_without_is_empty, reason = "an empty source is an error when opened, not a question")]
pub trait ReadAt: Debug + Send + Sync + 'static {
    /// The name used in error messages: a path or a URL.
    fn name(&self) -> &str;

    /// Length in bytes.
    ///
    /// # Errors
    /// If storage fails.
    async fn len(&self) -> Result<u64>;

    /// Reads exactly the bytes of `range`, which lies within the length.
    ///
    /// # Errors
    /// If storage fails, or has fewer bytes.
    async fn read(&self, range: Range<u64>) -> Result<Bytes>;

    /// Reads the same bytes in pieces, in order, each as it arrives. Delivers a single piece by default.
    ///
    /// # Errors
    /// If storage fails before the first byte; a later failure is returned in place of a piece.
    async fn stream(&self, range: Range<u64>) -> Result<BoxStream<'static, Result<Bytes>>> {
        let bytes = self.read(range).await?;
        Ok(futures::stream::once(async move { Ok(bytes) }).boxed())
    }

    /// The bytes of `range`, if copying them does not wait, as from the page cache of the operating system. Those that
    /// were kept from an earlier read are [`cached`](Self::cached) instead, and take no copy.
    fn at_hand(&self, _range: &Range<u64>) -> Option<Bytes> {
        None
    }

    /// All bytes, if they are in memory and take no copy.
    fn contents(&self) -> Option<Bytes> {
        None
    }

    /// The bytes of `range`, if they were kept from an earlier read.
    fn cached(&self, _range: &Range<u64>) -> Option<Bytes> {
        None
    }

    /// The range to read instead of `range`: a larger one, if all of it will be kept.
    fn widened(&self, range: Range<u64>) -> Range<u64> {
        range
    }

    /// What identifies the underlying store. Sources of the same store share the measured latency and bandwidth, and a
    /// limit of reads in flight. By default, each remote source is a store of its own, and all others are one: a source
    /// that reads from another one should return what that one does, and remote sources of one server the same.
    fn store(&self) -> &str {
        if self.profile().remote { self.name() } else { "local" }
    }

    /// Reads many ranges, each within the length. By default, each is a read of its own, with as many of them
    /// in flight as the [profile](Self::profile) allows; sources for which a small read is cheap can do better.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    async fn read_many(&self, ranges: &[Range<u64>]) -> Result<Vec<Buffer>> {
        read_each(self, ranges).await
    }

    /// The profile that determines how reads of this source are coalesced.
    fn profile(&self) -> StorageProfile;
}

/// Reads `range`, also from sources that may return fewer or more bytes than that.
///
/// # Errors
/// If storage fails, or if the source returned another number of bytes.
pub(crate) async fn read_exact(source: &dyn ReadAt, range: Range<u64>) -> Result<Bytes> {
    let bytes = source.read(range.clone()).await?;
    check_len(source, &range, bytes.len())?;
    Ok(bytes)
}

/// The bytes of `range` if they are available without waiting; a source that returns another number of bytes has none.
fn bytes_at_hand(source: &dyn ReadAt, range: &Range<u64>) -> Option<Bytes> {
    source.at_hand(range).filter(|bytes| check_len(source, range, bytes.len()).is_ok())
}

/// The bytes of `range` if they were kept from an earlier read; a source that returns another number of bytes has none.
fn kept_bytes(source: &dyn ReadAt, range: &Range<u64>) -> Option<Bytes> {
    source.cached(range).filter(|bytes| check_len(source, range, bytes.len()).is_ok())
}

/// Checks that a source returned as many bytes as it was asked for.
///
/// # Errors
/// If not.
fn check_len(source: &dyn ReadAt, range: &Range<u64>, len: usize) -> Result<()> {
    match range.end.checked_sub(range.start) {
        Some(wanted) if wanted == len as u64 => Ok(()),
        wanted => {
            let is_short = wanted.is_some_and(|wanted| wanted > len as u64);
            let kind = if is_short { ErrorKind::UnexpectedEof } else { ErrorKind::InvalidData };
            let error = std::io::Error::new(kind, format!("got {len} bytes"));
            Err(Error::read(source.name(), range.clone(), error))
        }
    }
}

/// How reads are coalesced and issued for one class of storage. A profile is one of the constants, possibly
/// changed:
///
/// ```
/// use vortex_core::io::StorageProfile;
///
/// const SLOW_DISK: StorageProfile = {
///     let mut profile = StorageProfile::LOCAL;
///     profile.coalesce_gap = 1 << 20;
///     profile.concurrency = 2;
///     profile
/// };
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct StorageProfile {
    /// Ranges at most this many bytes apart are read together: roughly latency times the bandwidth of one
    /// stream. Once both have been measured, only smaller gaps may be read, but never less than an eighth
    /// of this.
    pub coalesce_gap: u64,
    /// Largest read that coalescing may create.
    pub max_read: u64,
    /// Maximum number of reads in flight, but for rows that are [fetched individually](crate::scan::RowAccess::Single)
    /// from storage that is not remote, of which each column has so many; 0 counts as 1.
    pub concurrency: usize,
    /// Maximum number of bytes to read from the end of a file when opening it; of a remote file, all if it has at most
    /// twice as many.
    pub tail_size: u64,
    /// Whether the store is remote: a request costs more than many bytes, and may take a long time to
    /// return anything.
    pub remote: bool,
    /// A remote read that takes more than this many times what the measured latency and bandwidth predict, for its
    /// first byte or for all of them, is hedged: its missing bytes are requested a second time, and the stream that
    /// delivers the next piece first is used from then on. At most one read in 20 is hedged, and none sooner than after
    /// 100 ms. 0, as in all constants, disables it: a source must [stream](ReadAt::stream) for first bytes to tell
    /// anything.
    pub hedge: u32,
}

impl StorageProfile {
    /// The profile of an object store. A store that wraps one of local files counts as remote, since it may
    /// delay or limit requests.
    pub fn of(store: &dyn ::object_store::ObjectStore) -> Self {
        match LocalStore::named(&store.to_string()) {
            Some(LocalStore { is_wrapped: false, .. }) => Self::LOCAL,
            _ => Self::REMOTE,
        }
    }

    /// Bytes in memory: no gaps, as joining reads has no benefit; 64 reads at once, 64 KiB from the end.
    pub const MEMORY: Self = Self {
        coalesce_gap: 0,
        max_read: u64::MAX,
        concurrency: 64,
        tail_size: 64 << 10,
        remote: false,
        hedge: 0,
    };
    /// A local disk: gaps of up to 16 KiB, reads of up to 4 MiB, 32 reads at once, 64 KiB from the end.
    pub const LOCAL: Self = Self {
        coalesce_gap: 16 << 10,
        max_read: 4 << 20,
        concurrency: 32,
        tail_size: 64 << 10,
        remote: false,
        hedge: 0,
    };
    /// An object store: gaps of up to 1.5 MiB, reads of up to 8 MiB, 64 reads at once, 512 KiB from the end.
    pub const REMOTE: Self = Self {
        coalesce_gap: 3 << 19,
        max_read: 8 << 20,
        concurrency: 64,
        tail_size: 512 << 10,
        remote: true,
        hedge: 0,
    };

    /// Maximum number of reads in flight; at least one, since no read would ever start otherwise.
    pub(crate) fn slots(&self) -> usize {
        self.concurrency.max(1)
    }
}
