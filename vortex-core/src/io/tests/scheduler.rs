//! Tests of the scheduler: what it joins, and what happens if sources or runtimes fail.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use arrow::buffer::Buffer;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use object_store::memory::InMemory;
use object_store::{ObjectMeta, ObjectStore};
use tokio::runtime::Handle;

use crate::Result;
use crate::io::{
    BlockCache, CachedFile, MemoryFile, ObjectFile, PendingBytes, RangeRequest, ReadAt, Scheduler,
    StorageProfile, Urgency,
};
use crate::metrics::ScanMetrics;

fn range_requests<const N: usize>(ranges: [Range<u64>; N]) -> Vec<RangeRequest> {
    ranges.map(|range| RangeRequest { range, urgency: Urgency::filter(0) }).to_vec()
}

#[tokio::test]
async fn each_range_gets_its_own_bytes() {
    let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new((0..=255u8).collect::<Vec<_>>()));
    let metrics = Arc::new(ScanMetrics::default());
    let pending = Scheduler::new(1 << 20).read(&source, range_requests([200..210, 3..5, 5..8]), &metrics);
    assert_eq!(pending[0].wait().await.unwrap().as_slice(), (200..210).collect::<Vec<u8>>());
    assert_eq!(pending[1].wait().await.unwrap().as_slice(), [3, 4]);
    assert_eq!(pending[2].wait().await.unwrap().as_slice(), [5, 6, 7]);
    assert_eq!(metrics.reads.get(), 2);
}

#[tokio::test]
async fn a_failed_read_fails_all_it_serves_and_names_the_file() {
    let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(vec![0u8; 16]));
    let metrics = Arc::new(ScanMetrics::default());
    let pending = Scheduler::new(1 << 20).read(&source, range_requests([8..20, 12..24]), &metrics);
    for one in pending {
        let message = one.wait().await.unwrap_err().to_string();
        assert!(message.contains("memory"), "{message}");
    }
}

/// A file whose reads take a moment.
#[derive(Debug)]
struct Slow(StorageProfile);

#[async_trait]
impl ReadAt for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    async fn len(&self) -> Result<u64> {
        Ok(16)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(vec![0; (range.end - range.start) as usize].into())
    }

    fn profile(&self) -> StorageProfile {
        self.0
    }
}

/// A file that panics before it is read.
#[derive(Debug)]
struct Panics(StorageProfile);

#[async_trait]
impl ReadAt for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    async fn len(&self) -> Result<u64> {
        Ok(16)
    }

    async fn read(&self, _range: Range<u64>) -> Result<Bytes> {
        Ok(vec![0; 16].into())
    }

    fn widened(&self, _range: Range<u64>) -> Range<u64> {
        panic!("no blocks")
    }

    fn profile(&self) -> StorageProfile {
        self.0
    }
}

#[tokio::test]
async fn a_source_that_panics_holds_up_no_other() {
    // Requests to remote stores are dispatched by a task.
    for profile in [StorageProfile::LOCAL, StorageProfile::REMOTE] {
        let scheduler = Scheduler::new(1 << 20);
        let bad: Arc<dyn ReadAt> = Arc::new(Panics(profile));
        let far = 1 << 30;
        let ask = || {
            scheduler.read(&bad, range_requests([0..8, far..far + 8, 2 * far..2 * far + 8]), &Arc::default())
        };
        if let Ok(asked) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)) {
            for one in asked {
                assert!(one.wait().await.is_err());
            }
        }
        assert!(scheduler.queue("local").is_idle(), "no slot is lost");
        let good: Arc<dyn ReadAt> = Arc::new(Slow(profile));
        let pending = scheduler.read(&good, range_requests([0..8, 8..16]), &Arc::default());
        let bytes = tokio::time::timeout(Duration::from_secs(10), pending[0].wait()).await;
        assert_eq!(bytes.expect("it comes").unwrap().len(), 8);
    }
}

/// A file in memory, the beginning of which takes until both sides have come to the barrier, twice.
#[derive(Debug)]
struct SlowStart(MemoryFile, Barrier);

#[async_trait]
impl ReadAt for SlowStart {
    fn name(&self) -> &str {
        "slow start"
    }

    async fn len(&self) -> Result<u64> {
        self.0.len().await
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.0.read(range).await
    }

    fn at_hand(&self, range: &Range<u64>) -> Option<Bytes> {
        if range.start == 0 {
            self.1.wait();
            self.1.wait();
        }
        self.0.at_hand(range)
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::LOCAL
    }
}

#[tokio::test]
async fn bytes_at_hand_are_copied_by_those_who_request_them() {
    let scheduler = Scheduler::new(1 << 20);
    let slow = Arc::new(SlowStart(MemoryFile::new(vec![7u8; 1 << 20]), Barrier::new(2)));
    let source = Arc::clone(&slow) as Arc<dyn ReadAt>;
    let read = |range| scheduler.read(&source, range_requests([range]), &Arc::default()).remove(0);
    let runtime = Handle::current();
    let (early, late) = std::thread::scope(|scope| {
        let early = scope.spawn(|| {
            let _entered = runtime.enter();
            read(0..8)
        });
        slow.1.wait();
        let late = read(1 << 19..1 << 20).wait().now_or_never();
        slow.1.wait();
        (early.join().unwrap(), late)
    });
    assert_eq!(late.expect("not left to the first").unwrap().len(), 1 << 19);
    assert_eq!(early.wait().now_or_never().expect("it is there").unwrap().len(), 8);
}

/// A local file, each read of which has a buffer of its own, whose bytes are counted until it is freed.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

struct CountedBytes(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

#[async_trait]
impl ReadAt for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    async fn len(&self) -> Result<u64> {
        Ok(16 << 20)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        Ok(self.at_hand(&range).expect("it always is"))
    }

    fn at_hand(&self, range: &Range<u64>) -> Option<Bytes> {
        let len = (range.end - range.start) as usize;
        self.0.fetch_add(len, Ordering::Relaxed);
        Some(Bytes::from_owner(CountedBytes(vec![7; len], Arc::clone(&self.0))))
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::LOCAL
    }
}

#[tokio::test]
async fn bytes_at_hand_are_freed_with_their_request_although_neighbours_are_held() {
    let in_use = Arc::<AtomicUsize>::default();
    let source: Arc<dyn ReadAt> = Arc::new(Counted(Arc::clone(&in_use)));
    let metrics = Arc::new(ScanMetrics::default());
    let wanted = range_requests([0..70 << 10, 70 << 10..4 << 20]);
    let pending = Scheduler::new(8 << 20).read(&source, wanted, &metrics);
    let mut bytes: Vec<Buffer> =
        pending.into_iter().map(|one| one.wait().now_or_never().unwrap().unwrap()).collect();
    let counted = [&metrics.reads, &metrics.bytes_read].map(|count| count.get());
    assert_eq!((counted, in_use.load(Ordering::Relaxed)), ([1, 4 << 20], 4 << 20));
    bytes.truncate(1);
    assert_eq!(in_use.load(Ordering::Relaxed), 70 << 10);
}

#[tokio::test]
async fn no_gaps_are_copied_between_bytes_at_hand() {
    let source = SlowStart(MemoryFile::new(vec![7u8; 8 << 20]), Barrier::new(2));
    let source = Arc::new(source) as Arc<dyn ReadAt>;
    let metrics = Arc::new(ScanMetrics::default());
    // Gaps that would be read if one of a hundred reads had to wait for another.
    let wanted = range_requests(std::array::from_fn::<_, 100, _>(|at| {
        let start = (at as u64 + 1) * (60 << 10);
        start..start + (48 << 10)
    }));
    for pending in Scheduler::new(8 << 20).read(&source, wanted, &metrics) {
        assert_eq!(pending.wait().now_or_never().expect("it is there").unwrap().len(), 48 << 10);
    }
    let counted = [&metrics.reads, &metrics.bytes_wasted].map(|count| count.get());
    assert_eq!(counted, [100, 0]);
}

#[test]
fn a_request_of_a_runtime_that_ended_fails() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let wait = |pending: PendingBytes| {
        tokio::time::timeout(Duration::from_secs(10), async move { pending.wait().await })
    };
    // Requests to remote stores wait for others, in a task that ends with the runtime.
    for profile in [StorageProfile::LOCAL, StorageProfile::REMOTE] {
        let scheduler = Scheduler::new(1 << 20);
        let source: Arc<dyn ReadAt> = Arc::new(Slow(profile));
        let first = runtime();
        let pending = {
            let _entered = first.enter();
            scheduler.read(&source, range_requests([0..8, 8..16]), &Arc::default())
        };
        drop(first);
        let second = runtime();
        second.block_on(async {
            for one in pending {
                assert!(wait(one).await.expect("it is aborted").is_err());
            }
            // Other runtimes are not held up.
            let again = scheduler.read(&source, range_requests([0..8, 8..16]), &Arc::default());
            assert_eq!(wait(again[1].clone()).await.expect("it comes").unwrap().len(), 8);
        });
    }
}

#[test]
fn a_request_of_a_runtime_without_timers_fails() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let scheduler = Scheduler::new(1 << 20);
    let source: Arc<dyn ReadAt> = Arc::new(Slow(StorageProfile::REMOTE));
    runtime.block_on(async {
        // The second request does not rely on a task that has panicked.
        for _ in 0..2 {
            let pending = scheduler.read(&source, range_requests([0..8, 8..16]), &Arc::default());
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            for one in pending {
                let outcome = one.wait().now_or_never().expect("it is aborted");
                assert!(outcome.unwrap_err().to_string().contains("aborted"));
            }
        }
    });
}

#[tokio::test]
async fn a_profile_without_any_slot_has_one() {
    let profile = StorageProfile { concurrency: 0, ..StorageProfile::LOCAL };
    let source: Arc<dyn ReadAt> = Arc::new(Slow(profile));
    let far = 1 << 30;
    let pending =
        Scheduler::new(1 << 20).read(&source, range_requests([0..8, far..far + 8]), &Arc::default());
    for one in pending {
        let bytes = tokio::time::timeout(Duration::from_secs(10), one.wait()).await;
        assert_eq!(bytes.expect("it comes").unwrap().len(), 8);
    }
}

#[test]
fn a_queue_outlives_those_of_other_runtimes_and_while_requests_are_on_their_way() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scheduler = Scheduler::new(1 << 20);
    let source: Arc<dyn ReadAt> = Arc::new(Slow(StorageProfile::REMOTE));
    let (one, other) = (runtime(), runtime());
    let (pending, unsent) =
        one.block_on(async { scheduler.request(&source, range_requests([0..8, 8..16]), &Arc::default()) });
    for name in 0..100 {
        other.block_on(async { scheduler.queue(&name.to_string()) });
        runtime().block_on(async { scheduler.queue(&name.to_string()) });
    }
    one.block_on(async {
        let queue = scheduler.queue(source.store());
        unsent.send();
        for pending in pending {
            assert_eq!(pending.wait().await.unwrap().len(), 8);
        }
        assert!(Arc::ptr_eq(&queue, &scheduler.queue(source.store())));
        assert!(queue.expected(8).is_some(), "it was this one that read");
    });
}

#[test]
fn queues_of_ended_runtimes_are_forgotten() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scheduler = Scheduler::new(1 << 20);
    let source: Arc<dyn ReadAt> = Arc::new(Slow(StorageProfile::REMOTE));
    for _ in 0..50 {
        runtime().block_on(async {
            // Withdrawn before it is due.
            drop(scheduler.read(&source, range_requests([0..8, 8..16]), &Arc::default()));
        });
    }
    assert!(scheduler.queues.lock().len() <= 9);
}

#[test]
fn queues_of_many_runtimes_that_go_on_are_kept_with_their_measurements() {
    let scheduler = Scheduler::new(1 << 20);
    let source: Arc<dyn ReadAt> = Arc::new(Slow(StorageProfile::REMOTE));
    let runtimes = [(); 32].map(|()| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for pending in scheduler.read(&source, range_requests([0..8, 8..16]), &Arc::default()) {
                pending.wait().await.unwrap();
            }
        });
        runtime
    });
    for runtime in &runtimes {
        let queue = runtime.block_on(async { scheduler.queue(source.store()) });
        assert!(queue.expected(8).is_some());
    }
}

/// A remote file that arrives in pieces.
#[derive(Debug)]
struct InPieces(Vec<u8>);

#[async_trait]
impl ReadAt for InPieces {
    fn name(&self) -> &str {
        "in pieces"
    }

    async fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        Ok(self.0[range.start as usize..range.end as usize].to_vec().into())
    }

    async fn stream(&self, range: Range<u64>) -> Result<BoxStream<'static, Result<Bytes>>> {
        let pieces: Vec<_> =
            self.read(range).await?.chunks(1000).map(Bytes::copy_from_slice).map(Ok).collect();
        Ok(futures::stream::iter(pieces).boxed())
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::REMOTE
    }
}

#[tokio::test]
async fn requests_that_overlap_share_their_bytes() {
    const LEN: u64 = 300_000;
    let contents: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let remote = Arc::new(InPieces(contents.clone())) as Arc<dyn ReadAt>;
    let local = Arc::new(MemoryFile::new(contents.clone())) as Arc<dyn ReadAt>;
    let kept = CachedFile::new(Arc::clone(&remote), "a", LEN, BlockCache::new(8 << 20), 4096);
    // Of a malicious file, all segments may be the same, or nearly.
    let wanted = range_requests(std::array::from_fn::<_, 100, _>(|at| at as u64..LEN - 3 * at as u64));
    let few = range_requests(std::array::from_fn::<_, 100, _>(|at| {
        if at == 0 { 0..LEN } else { at as u64..at as u64 + 9000 }
    }));
    let kept = Arc::new(kept) as Arc<dyn ReadAt>;
    for (source, wanted) in
        [(&remote, &wanted), (&local, &wanted), (&local, &few), (&kept, &wanted), (&kept, &wanted)]
    {
        let scheduler = Scheduler::new(1 << 30);
        let mut starts = Vec::new();
        let pending = scheduler.read(source, wanted.clone(), &Arc::default());
        for (pending, range_request) in pending.iter().zip(wanted) {
            let bytes = pending.wait().await.unwrap();
            assert_eq!(
                bytes.as_slice(),
                &contents[range_request.range.start as usize..range_request.range.end as usize]
            );
            starts.push(bytes.as_ptr() as u64 - range_request.range.start);
        }
        starts.dedup();
        assert_eq!(starts.len(), 1, "copies of {source:?}");
    }
}

#[test]
fn stores_of_the_same_name_have_queues_of_their_own() {
    let object = |store: &Arc<dyn ObjectStore>| {
        let meta = ObjectMeta {
            location: "a".into(),
            last_modified: Default::default(),
            size: 1,
            e_tag: None,
            version: None,
        };
        ObjectFile::new(Arc::clone(store), meta).store().to_owned()
    };
    let (one, other): (Arc<dyn ObjectStore>, Arc<dyn ObjectStore>) =
        (Arc::new(InMemory::new()), Arc::new(InMemory::new()));
    assert_eq!(object(&one), object(&one));
    assert_ne!(object(&one), object(&other));
}
