//! Scans for the first rows of an order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::Int64Type;
use futures::StreamExt as _;
use vortex_core::expr::{CompareOp, DynamicFilter, Expr, FieldPath};
use vortex_core::io::{MemoryFile, MemorySink};
use vortex_core::scalar::Value;
use vortex_core::scan::ScanMetrics;
use vortex_core::write::{FileWriter, WriteOptions};
use vortex_core::{DType, PType, Scalar, VortexFile};

const ROWS: i64 = 1_000_000;

/// Rows whose key is at least an increasing threshold; the caller checks them again.
#[derive(Debug, Default)]
struct Threshold(AtomicI64);

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key >= {}", self.0.load(Ordering::SeqCst))
    }
}

impl DynamicFilter for Threshold {
    fn columns(&self) -> Vec<FieldPath> {
        vec!["key".into()]
    }

    fn generation(&self) -> u64 {
        self.0.load(Ordering::SeqCst).unsigned_abs()
    }

    fn current(&self) -> Option<Expr> {
        let least = self.0.load(Ordering::SeqCst);
        let least = Scalar::try_new(DType::Primitive(PType::I64, false), Value::Int(least)).ok()?;
        (self.generation() > 0).then(|| Expr::compare("key", CompareOp::GtEq, least))
    }
}

async fn file(key: impl Fn(i64) -> i64) -> VortexFile {
    let keys = Arc::new(Int64Array::from_iter_values((0..ROWS).map(key))) as ArrayRef;
    let rows = Arc::new(Int64Array::from_iter_values(0..ROWS)) as ArrayRef;
    let table = RecordBatch::try_from_iter([("key", keys), ("row", rows)]).unwrap();
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), table.schema(), WriteOptions::new()).unwrap();
    writer.write(&table).await.unwrap();
    writer.finish().await.unwrap();
    VortexFile::open(Arc::new(MemoryFile::new(sink.bytes().unwrap()))).await.unwrap()
}

/// The greatest `count` keys, determined like a top-k operator does, and the metrics of the scan.
async fn greatest(file: &VortexFile, count: usize) -> (Vec<i64>, Arc<ScanMetrics>) {
    let threshold = Arc::new(Threshold::default());
    let metrics = Arc::new(ScanMetrics::default());
    let descending = SortOptions { descending: true, nulls_first: false };
    let scan = file.scan().with_filter(Expr::Dynamic(Arc::clone(&threshold) as _));
    let scan = scan.with_best_first("key", descending).with_metrics(Arc::clone(&metrics));
    let mut batches = scan.into_stream().unwrap();
    let mut best: Vec<i64> = Vec::new();
    while let Some(batch) = batches.next().await {
        best.extend(batch.unwrap()["key"].as_primitive::<Int64Type>().values());
        best.sort_unstable_by(|a, b| b.cmp(a));
        best.truncate(count);
        if best.len() == count {
            threshold.0.store(best[count - 1], Ordering::SeqCst);
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
    assert!(metrics.splits_scanned.load(Ordering::SeqCst) <= 2, "{snapshot:?}");
    assert!(metrics.zones_pruned_dynamic.load(Ordering::SeqCst) > 0, "{snapshot:?}");
}

#[tokio::test]
async fn rows_in_no_order_are_found_all_the_same() {
    let scattered = |row: i64| (row * 7_919) % 1_000_003;
    let file = file(scattered).await;
    let mut expected: Vec<i64> = (0..ROWS).map(scattered).collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    let (best, metrics) = greatest(&file, 10).await;
    assert_eq!(best, expected[..10]);
    // Once there is a threshold, the scan returns few rows.
    assert!(metrics.rows_produced.load(Ordering::SeqCst) < ROWS as u64 / 2, "{:?}", metrics.snapshot());
}

#[tokio::test]
async fn only_splits_that_hold_one_of_the_first_rows_are_decoded() {
    // Zones say little about where the greatest keys are: each has one that is close.
    let spread =
        |row: i64| if row % 8192 == 77 { 1_000_000_000 + (row * 7_919) % 1_000_003 } else { row % 8192 };
    let file = file(spread).await;
    let mut expected: Vec<i64> = (0..ROWS).map(spread).collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    let (best, metrics) = greatest(&file, 3).await;
    assert_eq!(best, expected[..3]);
    assert!(metrics.rows_produced.load(Ordering::SeqCst) < ROWS as u64 / 4, "{:?}", metrics.snapshot());
}
