//! Scans for the first rows of an order.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Float64Array, Int64Array, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use futures::StreamExt as _;
use vortex_core::expr::{Expr, SharedFilter, column};
use vortex_core::file::OpenOptions;
use vortex_core::io::{MemoryPool, Scheduler, StorageProfile};
use vortex_core::scan::{BestRows, ScanBuilder, ScanMetrics};
use vortex_core::write::WriteOptions;
use vortex_core::{Limits, VortexFile};

use crate::given::{Stored, collect, opened, written};
use crate::random::scattered;

const ROWS: i64 = 1_000_000;

/// A threshold of keys that is checked on rows as well.
fn on_rows() -> SharedFilter {
    SharedFilter::new(["key"])
}

const DESCENDING: SortOptions = SortOptions { descending: true, nulls_first: false };

/// Keys in no order, each of which differs from the others.
fn shuffled(row: i64) -> i64 {
    (row * 7_919) % 1_000_003
}

/// The keys of all rows, in descending order.
fn sorted(key: impl Fn(i64) -> i64) -> Vec<i64> {
    let mut keys: Vec<i64> = (0..ROWS).map(key).collect();
    keys.sort_unstable_by(|a, b| b.cmp(a));
    keys
}

async fn file(key: impl Fn(i64) -> i64) -> VortexFile {
    opened(of_keys(key).await).await
}

async fn of_keys(key: impl Fn(i64) -> i64) -> Bytes {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(key)));
    let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let table = RecordBatch::try_from_iter([("key", keys), ("row", rows)]).unwrap();
    written([&table], WriteOptions::new()).await
}

/// A file that is treated like one in an object store.
async fn remote(bytes: Bytes) -> VortexFile {
    VortexFile::open(Arc::new(Stored::new(bytes, StorageProfile::REMOTE))).await.unwrap()
}

/// The rows that a scan returns, by their row numbers in ascending order.
async fn rows(scan: ScanBuilder) -> Vec<i64> {
    let mut rows = collect(scan).await.unwrap()["row"].as_primitive::<Int64Type>().values().to_vec();
    rows.sort_unstable();
    rows
}

/// The greatest `count` keys, determined like a top-k operator does, and the metrics of the scan, which is
/// told that about ten are wanted and prunes by statistics only.
async fn greatest(file: &VortexFile, count: usize) -> (Vec<i64>, Arc<ScanMetrics>) {
    greatest_of(file, count, Arc::default(), on_rows().for_statistics()).await
}

async fn greatest_of(
    file: &VortexFile,
    count: usize,
    found: Arc<BestRows>,
    threshold: SharedFilter,
) -> (Vec<i64>, Arc<ScanMetrics>) {
    let threshold = Arc::new(threshold);
    let metrics = Arc::new(ScanMetrics::default());
    let scan = file.scan().with_filter(Expr::Dynamic(Arc::clone(&threshold) as _));
    let scan = scan.with_best_first("key", DESCENDING).with_best_rows(found);
    let scan = scan.with_metrics(Arc::clone(&metrics));
    let mut batches = scan.into_stream().unwrap();
    let mut best: Vec<i64> = Vec::new();
    while let Some(batch) = batches.next().await {
        best.extend(batch.unwrap()["key"].as_primitive::<Int64Type>().values());
        best.sort_unstable_by(|a, b| b.cmp(a));
        best.truncate(count);
        if best.len() == count {
            threshold.set(column("key").gt_eq(best[count - 1]));
        }
    }
    (best, metrics)
}

#[tokio::test]
async fn rows_in_order_are_read_from_the_right_end() {
    let file = file(|row| row * 3).await;
    let (best, metrics) = greatest(&file, 5).await;
    assert_eq!(best, [ROWS - 1, ROWS - 2, ROWS - 3, ROWS - 4, ROWS - 5].map(|row| row * 3));
    let snapshot = metrics.snapshot();
    assert!(metrics.splits_scanned.get() <= 2, "{snapshot:?}");
    assert!(metrics.zones_pruned_dynamic.get() > 0, "{snapshot:?}");
}

#[tokio::test]
async fn rows_in_no_order_are_found_all_the_same() {
    let file = file(shuffled).await;
    let expected = sorted(shuffled);
    let (best, metrics) = greatest(&file, 10).await;
    assert_eq!(best, expected[..10]);
    // Once there is a threshold, the scan returns few rows.
    assert!(metrics.rows_produced.get() < ROWS as u64 / 10, "{:?}", metrics.snapshot());
    let (best, metrics) = greatest_of(&file, 10, Arc::default(), on_rows()).await;
    assert_eq!(best, expected[..10]);
    // Of each split, only rows that are among the best found so far.
    assert!(metrics.rows_produced.get() < 100, "{:?}", metrics.snapshot());
}

#[tokio::test]
async fn only_splits_that_hold_one_of_the_first_rows_are_decoded() {
    // Zones say little about where the greatest keys are: each has one that is close.
    let spread =
        |row: i64| if row % 8192 == 77 { 1_000_000_000 + (row * 7_919) % 1_000_003 } else { row % 8192 };
    let file = file(spread).await;
    let expected = sorted(spread);
    let (best, metrics) = greatest(&file, 3).await;
    assert_eq!(best, expected[..3]);
    assert!(metrics.rows_produced.get() < ROWS as u64 / 4, "{:?}", metrics.snapshot());
}

#[tokio::test]
async fn more_rows_than_expected_are_found_all_the_same() {
    let expected = sorted(shuffled);
    let bytes = of_keys(shuffled).await;
    for file in [opened(bytes.clone()).await, remote(bytes).await] {
        for (wanted, told) in [(2_000, 10), (3, 1), (50, 5_000), (1, 0)] {
            for threshold in [on_rows().for_statistics(), on_rows()] {
                let (best, _) = greatest_of(&file, wanted, Arc::new(BestRows::new(told)), threshold).await;
                assert_eq!(best, expected[..wanted], "{wanted} wanted, {told} told");
            }
        }
    }
}

#[tokio::test]
async fn of_a_remote_file_only_the_wanted_rows_are_decoded() {
    let file = remote(of_keys(shuffled).await).await;
    let expected = sorted(shuffled);
    let (best, metrics) = greatest_of(&file, 3, Arc::new(BestRows::new(3)), on_rows()).await;
    assert_eq!(best, expected[..3]);
    assert_eq!(metrics.rows_produced.get(), 3, "{:?}", metrics.snapshot());
}

/// A pool without memory.
#[derive(Debug)]
struct Refuses;

impl MemoryPool for Refuses {
    fn try_grow(&self, _: u64) -> bool {
        false
    }

    fn shrink(&self, _: u64) {}
}

#[tokio::test]
async fn without_memory_the_best_rows_are_decoded_one_split_at_a_time() {
    // Numbers that cannot be compressed, so that the file is larger than what is read to open it.
    let incompressible = |row: i64| scattered(row as u64) as i64;
    let file = remote(of_keys(incompressible).await).await;
    let expected = sorted(incompressible);
    let scheduler = Scheduler::new(1 << 10);
    let mut peaks = Vec::new();
    for scan in
        [file.scan(), file.scan().with_memory_pool(Arc::new(Refuses)).with_scheduler(Arc::clone(&scheduler))]
    {
        let metrics = Arc::new(ScanMetrics::default());
        let scan = scan.with_filter(Expr::Dynamic(Arc::new(on_rows()))).with_best_first("key", DESCENDING);
        let found = collect(scan.with_metrics(Arc::clone(&metrics))).await.unwrap();
        let mut keys = found["key"].as_primitive::<Int64Type>().values().to_vec();
        keys.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(keys, expected, "all rows, since no threshold rules any out");
        peaks.push(metrics.peak_bytes.get());
    }
    assert!(peaks[1] < peaks[0] / 2, "{peaks:?}");
    assert_eq!(scheduler.bytes_in_use(), 0);
}

#[tokio::test]
async fn nulls_nan_and_few_rows_are_each_returned_once() {
    let many: Vec<Option<f64>> = (0..200_000i64)
        .map(|row| match row % 7 {
            0 => None,
            1 => Some(f64::NAN),
            2 => Some(-0.0),
            _ => Some((row * 7_919 % 1_003) as f64),
        })
        .collect();
    for keys in [vec![], vec![None], vec![Some(f64::NAN)], vec![None; 30], many] {
        let count = keys.len() as i64;
        let keys: ArrayRef = Arc::new(Float64Array::from(keys));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
        let table = RecordBatch::try_from_iter([("key", keys), ("row", numbers)]).unwrap();
        let bytes = written([&table], WriteOptions::new()).await;
        let (local, remote) = (opened(bytes.clone()).await, remote(bytes).await);
        for (file, at) in [(&local, 0), (&local, 1), (&local, 2), (&remote, 0), (&remote, 1), (&remote, 3)] {
            let options = SortOptions { descending: at & 1 == 0, nulls_first: at & 2 == 0 };
            let filter = Expr::Dynamic(Arc::new(on_rows()));
            let scan = file.scan().with_filter(filter).with_best_first("key", options);
            assert!(rows(scan).await.into_iter().eq(0..count), "{count} rows, {options:?}");
        }
    }
}

#[tokio::test]
async fn splits_too_large_to_be_ranked_are_read_all_the_same() {
    let (bytes, expected) = (of_keys(shuffled).await, sorted(shuffled));
    // Less than the keys of a split take.
    let options = OpenOptions::new().with_limits(Limits::new().with_max_decoded_bytes(300_000));
    for profile in [StorageProfile::LOCAL, StorageProfile::REMOTE] {
        let file = options.open(Arc::new(Stored::new(bytes.clone(), profile))).await.unwrap();
        let (best, _) = greatest_of(&file, 10, Arc::default(), on_rows()).await;
        assert_eq!(best, expected[..10]);
    }
}

#[tokio::test]
async fn rows_of_one_key_are_all_returned() {
    let file = file(|row| row % 2).await;
    let filter = Expr::Dynamic(Arc::new(on_rows().for_statistics()));
    let scan = file.scan().with_filter(filter).with_best_first("key", DESCENDING);
    assert!(rows(scan).await.into_iter().eq(0..ROWS), "each row once, as long as no filter tightens");
}

#[tokio::test]
async fn what_one_file_has_given_is_not_sought_in_the_next() {
    let best = Arc::new(BestRows::new(5));
    let high = file(|row| 10_000_000 + row % 1_000).await;
    let (found, _) = greatest_of(&high, 5, Arc::clone(&best), on_rows()).await;
    assert_eq!(found, [10_000_999; 5]);
    let low = file(|row| row % 1_000).await;
    let (found, _) = greatest_of(&low, 5, best, on_rows()).await;
    assert_eq!(found, [999; 5], "rows that are worse than those found are returned nevertheless");
}
