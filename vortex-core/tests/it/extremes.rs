//! Minima and maxima: which rows need not be read to find them.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use proptest::prelude::*;
use vortex_core::VortexFile;
use vortex_core::expr::{Expr, column};
use vortex_core::io::StorageProfile;
use vortex_core::scan::{
    Aggregate, Extremes, Measures, RowRanges, ScanBuilder, ScanMetrics, WantedAggregate, WantedAggregates,
};
use vortex_core::write::WriteOptions;

use crate::given::{Stored, opened, written};

/// Rows of a split, and of the table.
const SPLIT: usize = 65_536;
const ROWS: usize = 4 * SPLIT + 5000;

fn mix(row: usize) -> usize {
    (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) as usize
}

/// Text in the order of the numbers, which is so long that its bounds are cut.
fn long(number: usize) -> String {
    let number = number % 10_000_000;
    format!("{:07}{:a>70}", number / 100, number)
}

/// Values that rise, fall, are scattered, have nulls or NaN; and text that is short, long, and as bytes.
fn table(from: usize) -> RecordBatch {
    let rows = move || from..from + ROWS;
    let some = |row: usize| !mix(row).is_multiple_of(7);
    let float = |row: usize| match mix(row) % 1000 {
        0 => f64::NAN,
        1 => -0.0,
        _ => row as f64 / 8.0,
    };
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("row", Arc::new(Int64Array::from_iter_values(rows().map(|row| row as i64))), false),
        (
            "falling",
            Arc::new(Int64Array::from_iter(rows().map(|row| some(row).then(|| -(row as i64))))),
            true,
        ),
        ("scattered", Arc::new(Int64Array::from_iter_values(rows().map(|row| mix(row) as i64))), false),
        ("float", Arc::new(Float64Array::from_iter_values(rows().map(float))), false),
        (
            "few",
            Arc::new(BooleanArray::from_iter(rows().map(|row| some(row / 9000).then_some(row > SPLIT)))),
            true,
        ),
        (
            "short",
            Arc::new(StringArray::from_iter_values(rows().map(|row| (mix(row) % 5000).to_string()))),
            false,
        ),
        ("long", Arc::new(StringArray::from_iter_values(rows().map(|row| long(row * 3)))), false),
        (
            "mixed",
            Arc::new(StringArray::from_iter(rows().map(|row| some(row).then(|| long(mix(row)))))),
            true,
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from_iter_values(rows().map(|row| vec![(row >> 14) as u8; 90]))),
            false,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

async fn file(from: usize) -> VortexFile {
    opened(written([&table(from)], WriteOptions::new()).await).await
}

/// What a scan of one column finds, and how many splits it reads.
async fn found(scan: ScanBuilder, wanted: impl Into<WantedAggregate>) -> (Vec<Aggregate>, u64) {
    let metrics = Arc::new(ScanMetrics::default());
    let wanted = WantedAggregates::new(false, [wanted]);
    let found = scan.with_metrics(Arc::clone(&metrics)).aggregate_only(wanted).await.unwrap();
    (found.columns, metrics.splits_scanned.get())
}

fn max_of(found: &[Aggregate]) -> String {
    found[0].max.as_ref().unwrap().to_string()
}

#[tokio::test]
async fn only_splits_that_may_hold_the_maximum_are_read() {
    let file = file(0).await;
    let scan = file.scan().with_projection(["long"]);
    let (all, splits) = found(scan.clone(), Measures::MAX).await;
    assert!(max_of(&all).contains(&long((ROWS - 1) * 3)), "{}", max_of(&all));
    assert_eq!((all[0].min.as_ref(), splits), (None, 1));
    // A filter of which statistics tell nothing.
    let even = column("scattered").gt(0);
    let (passing, splits) = found(scan.with_filter(even), Measures::MIN).await;
    let first = (0..).find(|row| mix(*row) as i64 > 0).unwrap();
    assert!(passing[0].min.as_ref().unwrap().to_string().contains(&long(first * 3)));
    assert_eq!(splits, 1);
}

#[tokio::test]
async fn rows_are_counted_if_that_is_wanted_too() {
    let file = file(0).await;
    let scan = file.scan().with_projection(["long"]).with_filter(column("scattered").gt(0));
    let counted = scan.clone().aggregate_only(WantedAggregates::new(true, [Measures::MAX])).await.unwrap();
    let all = scan.with_pruning(false).aggregate().await.unwrap();
    assert_eq!((counted.row_count, &counted.columns[0].max), (all.row_count, &all.columns[0].max));
}

#[tokio::test]
async fn files_whose_values_lie_between_those_found_before_are_not_read() {
    let (high, low) = (file(ROWS).await, file(0).await);
    let extremes = Arc::new(Extremes::default());
    let scan = |file: &VortexFile| file.scan().with_projection(["long"]);
    let wanted = |measures| WantedAggregate { measures, extremes: Arc::clone(&extremes) };
    let (first, splits) = found(scan(&high), wanted(Measures::MAX)).await;
    assert!(max_of(&first).contains(&long((2 * ROWS - 1) * 3)) && splits > 0);
    let (second, splits) = found(scan(&low), wanted(Measures::MAX)).await;
    assert_eq!((second[0].max.as_ref(), splits), (None, 0));
    // Lower values have not been found yet.
    let (second, splits) = found(scan(&low), wanted(Measures::MIN)).await;
    assert!(second[0].min.is_some() && splits > 0);
    let both = scan(&low).with_projection(["long", "short"]);
    let error = both.aggregate_only(WantedAggregates::new(true, [Measures::ALL])).await.unwrap_err();
    let expected = "invalid argument: aggregates of 1 columns are wanted, but 2 are projected";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn on_remote_storage_the_rest_of_a_column_is_not_requested() {
    let bytes = written([&table(0)], WriteOptions::new()).await;
    let stored = Arc::new(Stored::new(bytes, StorageProfile::REMOTE));
    let file = VortexFile::open(stored).await.unwrap();
    let read = async |measures| {
        let metrics = Arc::new(ScanMetrics::default());
        let scan = file.scan().with_projection(["mixed", "long"]).with_metrics(Arc::clone(&metrics));
        scan.aggregate_only(WantedAggregates::new(false, [measures; 2])).await.unwrap();
        metrics.bytes_read.get()
    };
    let (all, some) = (read(Measures::ALL).await, read(Measures::MIN).await);
    assert!(some * 2 < all, "{some} of {all} bytes");
}

fn filter() -> impl Strategy<Value = Expr> {
    let at = 0..ROWS as i64;
    prop_oneof![
        Just(Expr::Literal(Some(true))),
        at.clone().prop_map(|row| column("row").gt_eq(row)),
        at.clone().prop_map(|row| column("row").lt(row)),
        Just(column("scattered").lt(i64::MIN / 2)),
        Just(column("falling").is_null()),
        Just(column("few").eq(true).or(column("short").eq("17"))),
        (at.clone(), at).prop_map(|(a, b)| column("row").gt(a).and(column("scattered").gt(b << 40))),
    ]
}

fn measures() -> impl Strategy<Value = Measures> {
    prop::sample::select(vec![
        Measures::MIN,
        Measures::MAX,
        Measures::MIN.or(Measures::MAX),
        Measures::COUNTS,
        Measures::ALL,
    ])
}

#[test]
fn extremes_are_those_of_all_rows() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let files = [runtime.block_on(file(0)), runtime.block_on(file(ROWS / 2))];
    let names = || files[0].footer().columns().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    let column = (prop::sample::select(names()), measures());
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    let cut = (0..ROWS as u64, 0..ROWS as u64);
    let input = (prop::collection::vec(column, 1..4), filter(), any::<bool>(), cut);
    proptest!(config, |((columns, filter, count_rows, (a, b)) in input)| {
        let measures = || columns.iter().map(|(_, measures)| *measures);
        let shared: Vec<_> = columns.iter().map(|_| Arc::new(Extremes::default())).collect();
        let (mut together, mut expected) = (Vec::new(), Vec::new());
        for file in &files {
            let scan = file.scan().with_projection(columns.iter().map(|(name, _)| name.as_str()));
            let scan = scan.with_filter(filter.clone()).with_row_ranges(RowRanges::new([0..a.min(b), a.max(b)..ROWS as u64]));
            let all = runtime.block_on(scan.clone().with_pruning(false).aggregate()).unwrap();
            let wanted = WantedAggregates::new(count_rows, measures());
            let alone = runtime.block_on(scan.clone().aggregate_only(wanted)).unwrap();
            let of_column =
                |(measures, extremes): (_, &Arc<_>)| WantedAggregate { measures, extremes: Arc::clone(extremes) };
            let wanted = WantedAggregates::new(count_rows, measures().zip(&shared).map(of_column));
            let after = runtime.block_on(scan.aggregate_only(wanted)).unwrap();
            for (at, (name, measures)) in columns.iter().enumerate() {
                let (all, alone) = (&all.columns[at], &alone.columns[at]);
                let only = |wanted: bool, found: &Option<_>| found.clone().filter(|_| wanted);
                prop_assert_eq!(&alone.min, &only(measures.min, &all.min), "{}", name);
                prop_assert_eq!(&alone.max, &only(measures.max, &all.max), "{}", name);
                if measures.counts {
                    prop_assert_eq!(alone.null_count, all.null_count, "{}", name);
                }
            }
            prop_assert!(!count_rows || (alone.row_count, after.row_count) == (all.row_count, all.row_count));
            together.push(after.columns);
            expected.push(all.columns);
        }
        for (at, (name, measures)) in columns.iter().enumerate() {
            let merged = |found: &[Vec<Aggregate>]| found[0][at].clone().merge(found[1][at].clone());
            let (found, all) = (merged(&together), merged(&expected));
            prop_assert!(!measures.min || found.min == all.min, "min of {name}: {:?}, not {:?}", found.min, all.min);
            prop_assert!(!measures.max || found.max == all.max, "max of {name}: {:?}, not {:?}", found.max, all.max);
        }
    });
}
