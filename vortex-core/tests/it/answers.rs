//! Aggregates that statistics contain, so that rows need not be read.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int8Array, Int64Array, RecordBatch, StringArray,
    UInt64Array,
};
use vortex_core::expr::{Expr, FieldPath, column};
use vortex_core::scan::{Aggregate, Measures, ScanBuilder, ScanMetrics, WantedAggregates};
use vortex_core::write::WriteOptions;
use vortex_core::{Release, VortexFile};

use crate::given::{collect, opened, verified, written};

/// Four splits, the last of which is not whole.
const ROWS: i64 = 3 * 65_536 + 12_345;

/// A row number, and values that are scattered, beside which there are nulls.
fn table() -> RecordBatch {
    let mix = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()) >> 7;
    let rows = || 0..ROWS;
    let some = |row: i64| row % 5 > 0;
    let prices = Decimal128Array::from_iter_values(rows().map(|row| i128::from(mix(row) % 1_000_000)));
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(rows())), false),
        ("tiny", Arc::new(Int8Array::from_iter(rows().map(|row| some(row).then(|| mix(row) as i8)))), true),
        ("vast", Arc::new(Int64Array::from_iter_values(rows().map(|row| mix(row) << 4))), false),
        ("count", Arc::new(UInt64Array::from_iter_values(rows().map(|row| mix(row).unsigned_abs()))), false),
        ("price", Arc::new(prices.with_precision_and_scale(10, 2).unwrap()), false),
        ("day", Arc::new(Date32Array::from_iter_values(rows().map(|row| (row / 1000) as i32))), false),
        ("ratio", Arc::new(Float64Array::from_iter_values(rows().map(|row| mix(row) as f64 + 0.5))), false),
        ("none", Arc::new(Int64Array::from_iter(rows().map(|_| None::<i64>))), true),
        ("text", Arc::new(StringArray::from_iter_values(rows().map(|row| (row % 100).to_string()))), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// What a scan of one column finds, and how many rows it did not read.
async fn answered(scan: ScanBuilder, measures: Measures) -> (Vec<Aggregate>, u64) {
    let metrics = Arc::new(ScanMetrics::default());
    let wanted = WantedAggregates::new(true, [measures]);
    let found = scan.with_metrics(Arc::clone(&metrics)).aggregate_only(wanted).await.unwrap();
    (found.columns, metrics.rows_answered.get())
}

async fn file(options: WriteOptions) -> VortexFile {
    opened(written([&table()], options).await).await
}

#[tokio::test]
async fn rows_of_splits_that_match_wholly_are_not_read() {
    let file = file(WriteOptions::new()).await;
    let ranges =
        [(0, ROWS), (1, ROWS), (0, 65_536), (70_000, 70_001), (10_000, ROWS - 10), (65_536, 131_072)];
    for (start, end) in ranges {
        let filter = column("id").gt_eq(start).and(column("id").lt(end));
        let scan = file.scan().with_filter(filter);
        let rows = collect(scan.clone()).await.unwrap();
        let whole = (start + 65_535) / 65_536..(if end == ROWS { 4 } else { end / 65_536 });
        let whole = whole.map(|split| if split == 3 { 12_345 } else { 65_536 }).sum::<u64>();
        for (at, (name, dtype)) in file.footer().columns().enumerate() {
            let wanted = Aggregate::of(rows.column(at), dtype).unwrap();
            let scan = scan.clone().with_projection([name]);
            let (found, answered) = answered(scan.clone(), Measures::COUNTS.with_sum()).await;
            assert_eq!((found[0].null_count, found[0].sum), (wanted.null_count, wanted.sum), "{name}");
            // Sums of some zones exceed 64 bits.
            let is_known = !["vast", "count"].contains(&name) || (start, end) == (70_000, 70_001);
            assert!(!is_known || answered == whole, "{name}, {start}..{end}: {answered}, not {whole}");
            let (found, answered) = self::answered(scan, Measures::COUNTS.with_extremes()).await;
            assert_eq!((&found[0].min, &found[0].max), (&wanted.min, &wanted.max), "{name}");
            assert!(name == "text" || answered == whole, "{name}, {start}..{end}: {answered}, not {whole}");
        }
        let all = scan.clone().aggregate().await.unwrap();
        assert_eq!(all, scan.with_pruning(false).aggregate().await.unwrap());
        assert_eq!(all.row_count, (end - start).unsigned_abs());
    }
}

#[tokio::test]
async fn rows_of_a_whole_file_are_known_from_its_footer() {
    let file = file(WriteOptions::new()).await;
    let scan = file.scan().with_projection(["id", "tiny", "price", "none", "text"]);
    let metrics = Arc::new(ScanMetrics::default());
    let found = scan.clone().with_metrics(Arc::clone(&metrics)).aggregate().await.unwrap();
    assert_eq!(metrics.rows_answered.get(), ROWS.unsigned_abs());
    assert_eq!(metrics.requests.get(), 0);
    assert_eq!(found, scan.with_pruning(false).aggregate().await.unwrap());
}

#[tokio::test]
async fn rows_that_are_picked_or_left_out_are_not_taken_for_all() {
    let file = file(WriteOptions::new()).await;
    let scan = file.scan().with_projection(["id", "tiny"]);
    let picked: Vec<u64> = (0..65_536).chain([70_000]).collect();
    let scans = [
        scan.clone().with_excluded_rows([5, 70_000]),
        scan.clone().with_row_indices(picked),
        scan.clone().with_row_ranges(0..65_535),
        scan.clone().with_filter(Expr::Literal(Some(false))),
    ];
    for scan in scans {
        let expected = scan.clone().with_pruning(false).aggregate().await.unwrap();
        assert_eq!(scan.aggregate().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn sums_of_zones_are_written_for_all_readers_and_verified() {
    for min_reader in [Release::OLDEST, Release::NEWEST] {
        let bytes = written([&table()], WriteOptions::new().with_min_reader(min_reader)).await;
        let found = verified(bytes.clone()).await;
        assert_eq!(found.problems.len(), 0, "{:?}", found.problems);
        let file = opened(bytes).await;
        let filter = column("id").gt_eq(65_536);
        let scan = file.scan().with_filter(filter).with_projection([FieldPath::from("tiny")]);
        let (found, rows) = answered(scan.clone(), Measures::ALL).await;
        assert_eq!(rows, (ROWS - 65_536).unsigned_abs());
        assert_eq!(found, scan.with_pruning(false).aggregate().await.unwrap().columns);
    }
}
