//! Tests of what the block cache keeps of reads whose bytes arrive in small pieces.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _, PutPayload};
use test_store::TestStore;

use crate::io::{BlockCache, CachedFile, ObjectFile, RangeRequest, ReadAt, Scheduler, Urgency};
use crate::metrics::ScanMetrics;

const LEN: u64 = 100_000;
const BLOCK: u64 = 16 << 10;

fn contents() -> Vec<u8> {
    (0..LEN).map(|at| (at % 251) as u8).collect()
}

/// A file of several blocks, in a store that delivers bytes in small pieces, and its cache.
async fn file(cache: &Arc<BlockCache>) -> (Arc<TestStore>, CachedFile) {
    let store = TestStore::new();
    let path = Path::from("file");
    store.put(&path, PutPayload::from(contents())).await.unwrap();
    store.set_piece_len(1000);
    let meta = store.inner.head(&path).await.unwrap();
    let source = ObjectFile::new(Arc::clone(&store) as _, meta).with_hedge(0);
    (store, source.cached(Arc::clone(cache), BLOCK))
}

fn range_request(range: std::ops::Range<u64>) -> RangeRequest {
    RangeRequest { range, urgency: Urgency::filter(0) }
}

async fn settled(store: &TestStore) {
    while store.in_flight.get() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_read_goes_on_to_the_end_of_its_last_block() {
    let (store, file) = file(&BlockCache::new(1 << 20)).await;
    let file: Arc<dyn ReadAt> = Arc::new(file);
    let metrics = Arc::new(ScanMetrics::default());
    let scheduler = Scheduler::new(1 << 20);
    for range in [0..10, BLOCK + 100..2 * BLOCK + 100, LEN - 10..LEN - 5] {
        let pending = scheduler.read(&file, vec![range_request(range.clone())], &metrics);
        let bytes = pending[0].wait().await.unwrap();
        assert_eq!(bytes.as_slice(), &contents()[range.start as usize..range.end as usize]);
        settled(&store).await;
    }
    for range in [0..BLOCK, BLOCK..3 * BLOCK, LEN - 10..LEN] {
        let expected = &contents()[range.start as usize..range.end as usize];
        assert_eq!(file.cached(&range).expect("kept"), expected, "{range:?}");
    }
    assert_eq!(store.reads.get(), 3);
}

#[tokio::test]
async fn what_nobody_asked_for_is_counted_as_wasted() {
    let (store, file) = file(&BlockCache::new(1 << 20)).await;
    let file: Arc<dyn ReadAt> = Arc::new(file);
    let metrics = Arc::new(ScanMetrics::default());
    let pending = Scheduler::new(1 << 20).read(&file, vec![range_request(10..110)], &metrics);
    pending[0].wait().await.unwrap();
    settled(&store).await;
    let counted = [&metrics.bytes_read, &metrics.bytes_wasted].map(|count| count.get());
    assert_eq!(counted, [BLOCK, BLOCK - 100]);
}

#[tokio::test]
async fn stores_of_the_same_name_share_nothing() {
    let cache = BlockCache::new(1 << 20);
    let ((_, first), (_, second)) = (file(&cache).await, file(&cache).await);
    first.read(0..10).await.unwrap();
    assert!(first.cached(&(0..10)).is_some());
    assert!(second.cached(&(0..10)).is_none());
}

#[tokio::test]
async fn an_object_that_may_change_without_a_sign_is_not_kept() {
    let (store, _) = file(&BlockCache::new(1 << 20)).await;
    let listed = store.inner.head(&Path::from("file")).await.unwrap();
    let cache = BlockCache::new(1 << 20);
    let unknown = ObjectMeta { e_tag: None, version: None, last_modified: Default::default(), ..listed };
    let object = |meta: &ObjectMeta| ObjectFile::new(Arc::clone(&store) as _, meta.clone());
    assert!(!object(&unknown).is_versioned());
    let file = object(&unknown).cached(Arc::clone(&cache), BLOCK);
    assert_eq!(file.widened(5..6), 5..6);
    file.read(0..LEN).await.unwrap();
    assert_eq!(cache.bytes_in_use(), 0);
    assert!(object(&ObjectMeta { e_tag: Some("1".into()), ..unknown }).is_versioned());
}

#[tokio::test]
async fn a_read_that_nobody_waited_for_ends() {
    let (store, file) = file(&BlockCache::new(1 << 20)).await;
    let file: Arc<dyn ReadAt> = Arc::new(file);
    let metrics = Arc::new(ScanMetrics::default());
    let scheduler = Scheduler::new(1 << 20);
    let pending = scheduler.read(&file, vec![range_request(BLOCK - 10..BLOCK)], &metrics);
    while store.in_flight.get() == 0 {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    drop(pending);
    settled(&store).await;
    assert!(file.cached(&(0..1)).is_none());
}
