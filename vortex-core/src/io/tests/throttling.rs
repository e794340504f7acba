//! Tests of reads that a store throttles: they are resumed later, with fewer reads in flight.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::io::{RangeRequest, ReadAt, Scheduler, StorageProfile, Urgency};
use crate::{Error, Result};

/// The time in which a read may deliver nothing: longer than reads take here.
const LONG: Duration = Duration::from_secs(1);

/// The answer of a store that is throttling.
fn busy(range: Range<u64>) -> Error {
    let source = "503 Service Unavailable".into();
    Error::read("busy", range, object_store::Error::Generic { store: "test", source })
}

/// Requests bytes that are far apart, and waits for all of them.
async fn read(scheduler: &Scheduler, source: &Arc<dyn ReadAt>, count: u64, len: u64) {
    let starts = (0..count).map(|at| at << 24);
    let range_requests =
        starts.map(|start| RangeRequest { range: start..start + len, urgency: Urgency::ZONE_MAPS });
    for pending in scheduler.read(source, range_requests.collect(), &Arc::default()) {
        assert_eq!(pending.wait().await.unwrap().len() as u64, len);
    }
}

/// A remote file that throttles its first reads, and counts how many others are in flight.
#[derive(Debug, Default)]
struct Busy {
    /// Reads that are yet to be throttled.
    throttled: AtomicUsize,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

impl Busy {
    fn first(reads: usize) -> Arc<Self> {
        Arc::new(Self { throttled: reads.into(), ..Self::default() })
    }
}

#[async_trait]
impl ReadAt for Busy {
    fn name(&self) -> &str {
        "busy"
    }

    async fn len(&self) -> Result<u64> {
        Ok(1 << 40)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let left = |left: usize| left.checked_sub(1);
        let throttled = self.throttled.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok();
        if throttled {
            tokio::time::sleep(Duration::from_millis(5)).await;
            return Err(busy(range));
        }
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        // Longer than the pauses of reads that were throttled together differ.
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        Ok(vec![0; (range.end - range.start) as usize].into())
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::REMOTE
    }
}

#[tokio::test]
async fn a_description_whose_read_is_throttled_is_read_later() {
    let source: Arc<dyn ReadAt> = Busy::first(1);
    let bytes = Scheduler::new(1 << 20).read_description(&source, 0..1000).await.unwrap();
    assert_eq!(bytes.len(), 1000);
}

#[tokio::test]
async fn reads_throttled_at_once_halve_the_reads_in_flight_once() {
    let (scheduler, file) = (Scheduler::new(1 << 20), Busy::first(32));
    let source: Arc<dyn ReadAt> = Arc::clone(&file) as _;
    read(&scheduler, &source, 32, 8).await;
    file.most_in_flight.store(0, Ordering::SeqCst);
    read(&scheduler, &source, 32, 8).await;
    // One more for each round of reads that succeeded.
    let most = file.most_in_flight.load(Ordering::SeqCst);
    assert!((16..=19).contains(&most), "{most} reads in flight");
}

#[tokio::test]
async fn a_store_that_has_not_throttled_for_long_is_used_as_before() {
    let (scheduler, file) = (Scheduler::with_stall(1 << 20, LONG), Busy::first(1));
    let source: Arc<dyn ReadAt> = Arc::clone(&file) as _;
    read(&scheduler, &source, 1, 8).await;
    let most = async |reads: u64| {
        file.most_in_flight.store(0, Ordering::SeqCst);
        read(&scheduler, &source, reads, 8).await;
        file.most_in_flight.load(Ordering::SeqCst)
    };
    assert!(most(4).await < 4);
    tokio::time::sleep(LONG).await;
    assert_eq!(most(32).await, 32);
}

#[tokio::test]
async fn reads_throttled_again_and_again_halve_the_reads_in_flight_each_time() {
    let (scheduler, file) = (Scheduler::new(1 << 20), Busy::first(32 + 16));
    let source: Arc<dyn ReadAt> = Arc::clone(&file) as _;
    read(&scheduler, &source, 32, 8).await;
    let most = file.most_in_flight.load(Ordering::SeqCst);
    assert!((1..16).contains(&most), "{most} reads in flight");
}

#[tokio::test]
async fn no_more_throttled_reads_are_resumed_than_may_be_in_flight() {
    let (scheduler, file) = (Scheduler::new(1 << 20), Busy::first(32));
    let source: Arc<dyn ReadAt> = Arc::clone(&file) as _;
    read(&scheduler, &source, 32, 8).await;
    let most = file.most_in_flight.load(Ordering::SeqCst);
    assert!((16..=18).contains(&most), "{most} reads in flight");
}

/// A remote file whose connection breaks at once, or after a while, for the first read, and no bytes of it arrive.
#[derive(Debug)]
struct Breaking {
    usual: Arc<Busy>,
    breaks: AtomicUsize,
    after: Duration,
}

#[async_trait]
impl ReadAt for Breaking {
    fn name(&self) -> &str {
        "breaking"
    }

    async fn len(&self) -> Result<u64> {
        self.usual.len().await
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.usual.read(range).await
    }

    async fn stream(&self, range: Range<u64>) -> Result<BoxStream<'static, Result<Bytes>>> {
        let left = |left: usize| left.checked_sub(1);
        if self.breaks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            tokio::time::sleep(self.after).await;
            let error = Error::read("breaking", range, "connection reset");
            return Ok(futures::stream::iter([Err(error)]).boxed());
        }
        let bytes = self.read(range).await?;
        Ok(futures::stream::iter([Ok(bytes)]).boxed())
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::REMOTE
    }
}

#[tokio::test]
async fn only_a_connection_that_breaks_after_long_slows_others_down() {
    for (after, slows_down) in [(Duration::ZERO, false), (LONG / 2, true)] {
        let usual = Busy::first(0);
        let file = Breaking { usual: Arc::clone(&usual), breaks: 2.into(), after };
        let (scheduler, source) = (Scheduler::with_stall(1 << 20, LONG), Arc::new(file) as Arc<dyn ReadAt>);
        read(&scheduler, &source, 1, 8).await;
        read(&scheduler, &source, 4, 8).await;
        let most = usual.most_in_flight.load(Ordering::SeqCst);
        assert_eq!(most < 4, slows_down, "{most} reads in flight");
    }
}

#[tokio::test]
async fn a_connection_that_always_breaks_is_given_up() {
    let file = Breaking { usual: Busy::first(0), breaks: usize::MAX.into(), after: Duration::ZERO };
    let source: Arc<dyn ReadAt> = Arc::new(file);
    let error = Scheduler::new(1 << 20).read_description(&source, 0..1000).await.unwrap_err().to_string();
    assert!(error.contains("connection reset"), "{error}");
}

/// A file that is throttled after seven eighths of a read, and delivers the rest slowly.
#[derive(Debug, Default)]
struct Interrupted {
    reads: AtomicUsize,
}

const SLOW: Duration = Duration::from_millis(50);

#[async_trait]
impl ReadAt for Interrupted {
    fn name(&self) -> &str {
        "interrupted"
    }

    async fn len(&self) -> Result<u64> {
        Ok(1 << 40)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        Ok(vec![0; (range.end - range.start) as usize].into())
    }

    async fn stream(&self, range: Range<u64>) -> Result<BoxStream<'static, Result<Bytes>>> {
        let bytes = self.read(range.clone()).await?;
        if self.reads.fetch_add(1, Ordering::SeqCst) == 0 {
            let most = bytes.slice(..bytes.len() / 8 * 7);
            return Ok(futures::stream::iter([Ok(most), Err(busy(range))]).boxed());
        }
        let slowly = async {
            tokio::time::sleep(SLOW).await;
            Ok(bytes)
        };
        Ok(futures::stream::once(slowly).boxed())
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::REMOTE
    }
}

#[tokio::test]
async fn the_bandwidth_of_a_resumed_read_is_that_of_its_last_attempt() {
    const LEN: u64 = 4 << 20;
    let scheduler = Scheduler::new(1 << 20);
    let source: Arc<dyn ReadAt> = Arc::new(Interrupted::default());
    read(&scheduler, &source, 1, LEN).await;
    // The task ends after it has answered.
    let queue = scheduler.queue(source.store());
    while !queue.is_idle() {
        tokio::task::yield_now().await;
    }
    let expected = queue.expected(LEN).unwrap();
    assert!(expected >= SLOW * 8, "{expected:?}");
}
