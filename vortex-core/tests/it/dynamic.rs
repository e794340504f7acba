//! Filters that need not be checked, since the caller checks the rows again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray as _, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use vortex_core::Level;
use vortex_core::expr::{Expr, SharedFilter, column};
use vortex_core::scan::{ScanBuilder, ScanMetrics};
use vortex_core::write::WriteOptions;
use vortex_core::{Error, Result, VortexFile};

use crate::given::{collect, opened, written};

const ROWS: i64 = 1_000_000;

/// Rows whose key is a multiple of a number; counts the rows that it sees.
#[derive(Debug)]
struct Multiples {
    of: i64,
    /// All keys below this one pass as well.
    all_below: i64,
    least_seen: i64,
    /// The time that each evaluation takes.
    pause: Duration,
    column: &'static str,
    seen: Arc<AtomicUsize>,
}

impl Multiples {
    fn of(of: i64) -> Self {
        let (pause, column) = (Duration::ZERO, "key");
        Self { of, all_below: 0, least_seen: 0, pause, column, seen: Arc::default() }
    }

    /// With the number of rows seen.
    fn filter(self) -> (Arc<AtomicUsize>, Expr) {
        let (seen, name) = (Arc::clone(&self.seen), format!("{} % {} = 0", self.column, self.of));
        (seen, Expr::rows(name, [self.column], move |batch| self.evaluate(batch)))
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        self.seen.fetch_add(batch.num_rows(), Ordering::SeqCst);
        std::thread::sleep(self.pause);
        let keys = batch.column(0).as_primitive::<Int64Type>();
        assert!(keys.values().iter().all(|key| *key >= self.least_seen));
        Ok(keys.values().iter().map(|key| Some(*key < self.all_below || key % self.of == 0)).collect())
    }
}

/// A dynamic filter that is known from the beginning.
fn known(filter: Expr) -> Expr {
    let known = SharedFilter::new(["key"]);
    known.set(filter);
    Expr::Dynamic(Arc::new(known))
}

/// A file of which every zone has small and large keys.
async fn mixed() -> VortexFile {
    file(|row| row * 7919 % ROWS).await
}

async fn file(key: impl Fn(i64) -> i64) -> VortexFile {
    let keys = Int64Array::from_iter_values((0..ROWS).map(key));
    let table = RecordBatch::try_from_iter([("key", Arc::new(keys) as ArrayRef)]).unwrap();
    opened(written([&table], WriteOptions::new()).await).await
}

/// The keys returned by a scan without some rows, with a filter that need not be checked.
async fn keys_without(file: VortexFile, rows: impl Into<Arc<[u64]>>, filter: Expr) -> Vec<i64> {
    let scan = file.scan().with_filter(known(filter));
    let found = collect(scan.with_excluded_rows(rows)).await.unwrap();
    found.column(0).as_primitive::<Int64Type>().values().to_vec()
}

async fn keys(filter: Expr) -> Vec<i64> {
    keys_without(mixed().await, [], filter).await
}

#[tokio::test]
async fn a_predicate_that_rejects_nearly_all_rows_is_evaluated_on_all() {
    let (seen, multiples) = Multiples::of(10_000).filter();
    let mut found = keys(multiples).await;
    found.sort_unstable();
    assert_eq!(found, (0..100).map(|key| key * 10_000).collect::<Vec<_>>());
    assert!(seen.load(Ordering::SeqCst) >= ROWS as usize);
}

#[tokio::test]
async fn a_predicate_that_many_rows_pass_is_evaluated_on_samples() {
    let (seen, multiples) = Multiples::of(3).filter();
    assert_eq!(keys(multiples).await.len(), ROWS as usize);
    assert!((1..ROWS as usize / 8).contains(&seen.load(Ordering::SeqCst)));
}

#[tokio::test]
async fn what_encodings_answer_is_applied_even_if_the_rest_does_not_pay() {
    let (seen, multiples) = Multiples::of(3).filter();
    let found = keys(column("key").lt(ROWS / 2).and(multiples)).await;
    assert!(found.iter().all(|key| *key < ROWS / 2) && found.len() > ROWS as usize / 3);
    assert!(seen.load(Ordering::SeqCst) < ROWS as usize / 8);
}

#[tokio::test]
async fn rows_that_the_caller_has_left_out_are_not_passed_to_the_predicate() {
    for of in [3, 10_000] {
        let (seen, multiples) = Multiples { least_seen: 1, ..Multiples::of(of) }.filter();
        let found = keys_without(mixed().await, [0], multiples).await;
        assert!(found.iter().all(|key| *key != 0));
        assert!(seen.load(Ordering::SeqCst) > 0);
    }
}

#[tokio::test]
async fn a_predicate_is_tried_again_in_other_parts_of_the_file() {
    let (_, multiples) = Multiples { all_below: 10_000, ..Multiples::of(10_000) }.filter();
    let found = keys_without(file(|row| row).await, [], multiples).await;
    assert!((10_000..ROWS as usize).contains(&found.len()), "{}", found.len());
}

#[tokio::test]
async fn a_predicate_is_evaluated_once_on_a_file_with_few_rows() {
    let (seen, multiples) = Multiples::of(2).filter();
    let scan = mixed().await.scan().with_row_ranges(0..1000);
    let found = collect(scan.with_filter(known(multiples))).await.unwrap();
    assert_eq!(found.num_rows(), 500);
    assert_eq!(seen.load(Ordering::SeqCst), 1000);
}

async fn fails(filter: Expr) -> String {
    collect(mixed().await.scan().with_filter(filter)).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_dynamic_filter_is_a_conjunct() {
    let known = || known(column("key").eq(1));
    for filter in [column("key").eq(2).or(known()), !known()] {
        let error = fails(filter).await;
        assert!(error.contains("combined with others by AND only"), "{error}");
    }
    let bounds = column("key").lt_eq(1).and(column("key").gt(0));
    assert_eq!(keys_without(mixed().await, [], bounds).await, [1]);
}

#[tokio::test]
async fn columns_that_a_filter_did_not_declare_are_an_error() {
    let (_, other) = Multiples { column: "none", ..Multiples::of(1) }.filter();
    assert!(fails(known(other)).await.contains("`none`"));
}

#[tokio::test]
async fn a_predicate_has_an_outcome_for_each_row() {
    let once = Expr::rows("once", ["key"], |_| Ok(vec![true].into()));
    let error = fails(once).await;
    assert!(error.contains("`once` has 1 outcomes"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_reader_stops_a_scan_that_returns_no_rows() {
    let predicate = Multiples { pause: Duration::from_millis(50), ..Multiples::of(2 * ROWS) };
    let (seen, filter) = predicate.filter();
    drop(mixed().await.scan().with_filter(filter).into_reader().unwrap());
    let start = Instant::now();
    while Arc::strong_count(&seen) > 1 {
        assert!(start.elapsed() < Duration::from_secs(60), "still scanning");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(seen.load(Ordering::SeqCst) < ROWS as usize / 2, "{seen:?} rows seen");
}

#[tokio::test]
async fn a_limit_without_a_filter_requests_what_its_rows_need() {
    let rows = 300_000;
    let requests = |scan: ScanBuilder| async move {
        let metrics = Arc::new(ScanMetrics::default());
        let read = collect(scan.with_metrics(Arc::clone(&metrics))).await.unwrap();
        assert_eq!(read.num_rows() as u64, rows);
        metrics.requests.get()
    };
    let file = mixed().await;
    let of_range = requests(file.scan().with_row_ranges(0..rows)).await;
    assert_eq!(requests(file.scan().with_limit(rows)).await, of_range);
}

#[tokio::test]
async fn few_rows_of_a_limit_are_read_alone() {
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 16) as i64
    };
    let mut numbers = || Arc::new(Int64Array::from_iter_values((0..1 << 17).map(|_| noise()))) as ArrayRef;
    let table = RecordBatch::try_from_iter(["a", "b", "c"].map(|name| (name, numbers()))).unwrap();
    let options = WriteOptions::new().with_level(Level::Fast);
    let file = opened(written([&table], options).await).await;
    let some = table.column(0).as_primitive::<Int64Type>().value(70_000);
    for (filter, first) in [(None, 0), (Some(column("a").gt_eq(0)), 0), (Some(column("a").eq(some)), 70_000)]
    {
        let metrics = Arc::new(ScanMetrics::default());
        let scan = file.scan().with_projection(["b", "c"]).with_limit(3).with_metrics(Arc::clone(&metrics));
        let scan = filter.clone().map_or(scan.clone(), |filter| scan.with_filter(filter));
        let read = collect(scan).await.unwrap();
        let rows = if first == 0 { 3 } else { 1 };
        assert_eq!(read, table.project(&[1, 2]).unwrap().slice(first, rows), "{filter:?}");
        // Each column takes 790 kB, in two chunks.
        let filtered = if filter.is_some() { 800_000 } else { 0 };
        assert!(metrics.bytes_read.get() < filtered + 100_000, "{filter:?}: {metrics:?}");
    }
}

#[tokio::test]
async fn filters_read_nothing_of_rows_that_statistics_have_ruled_out() {
    let rows = 1i64 << 16;
    let keys = Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef;
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:016x}", state ^ state >> 31)
    };
    let texts = (0..rows).map(|_| (0..8).map(|_| noise()).collect::<String>());
    let texts = Arc::new(StringArray::from_iter_values(texts)) as ArrayRef;
    let table = RecordBatch::try_from_iter([("key", keys), ("text", texts)]).unwrap();
    let file = opened(written([&table], WriteOptions::new()).await).await;
    let bytes_for = |filter: Expr| {
        let metrics = Arc::new(ScanMetrics::default());
        let scan = file.scan().with_projection(["key"]).with_filter(filter);
        let scan = scan.with_metrics(Arc::clone(&metrics));
        async move {
            let read = collect(scan).await.unwrap();
            (read, metrics.bytes_read.get())
        }
    };
    let (found, all) = bytes_for(column("text").like("%fff%")).await;
    assert!(found.num_rows() > 1000);
    let row = found.column(0).as_primitive::<Int64Type>().value(500);
    for (filter, expected) in [(column("text").like("%fff%"), 1), (column("text").like("%xyz%"), 0)] {
        let (found, some) = bytes_for(column("key").eq(row).and(filter)).await;
        assert_eq!(found.num_rows(), expected);
        // Of the text, a quarter is read, which is half of a split.
        assert!(some * 3 < all, "{some} of {all} bytes");
    }
}

/// Which rows such a filter leaves is open, and so would be the totals.
#[tokio::test]
async fn aggregates_of_rows_that_need_not_be_checked_are_refused() {
    let file = file(|row| row).await;
    let known = known(column("key").lt(10));
    for filter in [known.clone(), column("key").gt(3).and(known.clone()), column("key").gt(3).or(known)] {
        let error = file.scan().with_filter(filter).aggregate().await.unwrap_err();
        assert!(matches!(error.root(), Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains("dynamic filter"), "{error}");
    }
    let best_first = file.scan().with_filter(column("key").lt(10)).with_best_first("key", Default::default());
    assert_eq!(best_first.aggregate().await.unwrap().row_count, 10, "best first has no effect");
}
