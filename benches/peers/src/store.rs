//! Simulates a remote object store: every request waits for its first byte, every stream is paced, and
//! all requests are counted.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::time::{Instant, sleep, sleep_until};

/// Number of bytes that arrive at once; pacing is accurate to the time that this takes.
const CHUNK_BYTES: usize = 128 << 10;

/// The simulated distance of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Distance {
    /// Time from the request to its first byte.
    pub(crate) first_byte: Duration,
    /// Bandwidth of each stream; streams do not slow each other down.
    pub(crate) bytes_per_second: f64,
    /// One in this many reads is late; none by default.
    pub(crate) late_every: Option<NonZeroU64>,
    /// Time to the first byte of those.
    pub(crate) late_first_byte: Duration,
}

impl Distance {
    /// Time to the first byte of the read of this number.
    fn first_byte(&self, read: u64) -> Duration {
        // Multiplied by an odd constant, so that late reads are spread, but the same in each run.
        let is_late = |every: NonZeroU64| (read.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % every == 0;
        if self.late_every.is_some_and(is_late) { self.late_first_byte } else { self.first_byte }
    }
}

/// Counters of the requests to a store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    /// Requests for bytes.
    pub(crate) reads: u64,
    /// Bytes that arrived.
    pub(crate) bytes: u64,
    /// Requests that list or describe objects.
    pub(crate) lookups: u64,
}

/// Slows down and counts reads from `inner`. Writes are passed through.
#[derive(Debug)]
pub(crate) struct DistantStore<S> {
    inner: S,
    distance: Distance,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    bytes: AtomicU64,
    lookups: AtomicU64,
}

impl<S: ObjectStore> DistantStore<S> {
    /// Puts `inner` at a simulated distance.
    pub(crate) fn new(inner: S, distance: Distance) -> Self {
        Self { inner, distance, counters: Arc::default() }
    }

    /// The traffic so far.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            reads: self.counters.reads.load(Ordering::Relaxed),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
            lookups: self.counters.lookups.load(Ordering::Relaxed),
        }
    }

    async fn look_up(&self) {
        self.counters.lookups.fetch_add(1, Ordering::Relaxed);
        sleep(self.distance.first_byte).await;
    }

    /// Yields chunks of `bytes`, each at the time when a stream with the store's bandwidth would have
    /// delivered it.
    fn paced(&self, bytes: Bytes) -> BoxStream<'static, Result<Bytes>> {
        let (start, pace, counters) =
            (Instant::now(), self.distance.bytes_per_second, Arc::clone(&self.counters));
        let chunks = futures::stream::unfold(0, move |at| {
            let (bytes, counters) = (bytes.clone(), Arc::clone(&counters));
            async move {
                let end = bytes.len().min(at + CHUNK_BYTES);
                if at == end {
                    return None;
                }
                sleep_until(start + Duration::from_secs_f64(end as f64 / pace)).await;
                counters.bytes.fetch_add((end - at) as u64, Ordering::Relaxed);
                Some((Ok(bytes.slice(at..end)), end))
            }
        });
        chunks.boxed()
    }
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            bytes: self.bytes - before.bytes,
            lookups: self.lookups - before.lookups,
        }
    }
}

impl<S: ObjectStore> fmt::Display for DistantStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Distant({})", self.inner)
    }
}

/// `get_ranges` uses the default implementation, which merges neighbouring ranges and reads them
/// concurrently: an underlying local store would answer it without any of that.
#[async_trait]
impl<S: ObjectStore> ObjectStore for DistantStore<S> {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            self.look_up().await;
            return self.inner.get_opts(location, options).await;
        }
        let read = self.counters.reads.fetch_add(1, Ordering::Relaxed);
        sleep(self.distance.first_byte(read)).await;
        let result = self.inner.get_opts(location, options).await?;
        let (meta, range, attributes) =
            (result.meta.clone(), result.range.clone(), result.attributes.clone());
        let payload = GetResultPayload::Stream(self.paced(result.bytes().await?));
        Ok(GetResult { payload, meta, range, attributes })
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.counters.lookups.fetch_add(1, Ordering::Relaxed);
        let first_byte = self.distance.first_byte;
        let listing = self.inner.list(prefix);
        futures::stream::once(async move {
            sleep(first_byte).await;
            listing
        })
        .flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.look_up().await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn a_read_takes_its_first_byte_and_its_bytes_and_is_counted() -> Result<()> {
        let distance = Distance {
            first_byte: Duration::from_millis(20),
            bytes_per_second: 10e6,
            late_every: None,
            late_first_byte: Duration::ZERO,
        };
        let store = DistantStore::new(InMemory::new(), distance);
        let path = Path::from("object");
        store.put(&path, PutPayload::from(vec![7; 400_000])).await?;

        let start = Instant::now();
        assert_eq!(store.get_range(&path, 100_000..400_000).await?.len(), 300_000);
        assert!(start.elapsed() >= Duration::from_millis(50), "{:?}", start.elapsed());
        store.head(&path).await?;

        let traffic = store.traffic();
        assert_eq!((traffic.reads, traffic.bytes, traffic.lookups), (1, 300_000, 1));
        Ok(())
    }

    #[test]
    fn about_one_in_so_many_reads_is_late() {
        let distance = Distance {
            first_byte: Duration::from_millis(20),
            bytes_per_second: 10e6,
            late_every: NonZeroU64::new(50),
            late_first_byte: Duration::from_millis(500),
        };
        let late = (0..10_000).filter(|read| distance.first_byte(*read) > distance.first_byte).count();
        assert!((100..400).contains(&late), "{late}");
    }
}
