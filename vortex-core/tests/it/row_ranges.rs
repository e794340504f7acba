//! Scans of several ranges of rows.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, StringArray};
use arrow::compute::SortOptions;
use arrow::datatypes::{Int64Type, UInt64Type};
use futures::StreamExt as _;
use vortex_core::expr::{Expr, SharedFilter, column};
use vortex_core::io::StorageProfile;
use vortex_core::scan::{RowRanges, ScanBuilder, ScanMetrics};
use vortex_core::write::WriteOptions;
use vortex_core::{VortexFile, io::MemoryFile};

use crate::given::{Stored, collect, opened, written};
use crate::random::{Random, scattered};

/// A bit more than five splits of the most rows that splits have.
const ROWS: u64 = (5 << 16) + 77;

async fn bytes() -> bytes::Bytes {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..ROWS).map(|row| (scattered(row) % 1000 + row / 1000) as i64),
    ));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("row {row}"))));
    let table = RecordBatch::try_from_iter([("id", ids), ("key", keys), ("text", text)]).unwrap();
    written([&table], WriteOptions::new()).await
}

/// Ranges that begin and end anywhere, and some at multiples of the length of zones.
fn ranges(random: &mut Random) -> Vec<Range<u64>> {
    let mut row = || match random.below(2) {
        0 => random.next() % (ROWS + 1),
        _ => (random.next() % (ROWS / 8192)) * 8192,
    };
    (0..1 + row() % 8).map(|_| (row(), row())).map(|(one, other)| one.min(other)..one.max(other)).collect()
}

/// The numbers of the rows that a scan returns, in ascending order.
async fn rows_of(scan: ScanBuilder) -> Vec<u64> {
    let batch = collect(scan.with_projection(["id", "text"]).with_row_numbers("row")).await.unwrap();
    let rows = batch["row"].as_primitive::<UInt64Type>().values();
    let ids = batch["id"].as_primitive::<Int64Type>().values();
    assert!(rows.iter().zip(ids).all(|(row, id)| *row == *id as u64));
    let texts = batch["text"].as_string::<i32>();
    assert!(rows.iter().zip(texts).all(|(row, text)| text == Some(&format!("row {row}"))));
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    rows
}

#[tokio::test]
async fn ranges_return_their_rows_with_any_filter_order_and_list_of_rows() {
    let file = opened(bytes().await).await;
    let keys = collect(file.scan().with_projection(["key"])).await.unwrap();
    let keys = keys["key"].as_primitive::<Int64Type>().values();
    let listed: Vec<u64> = (0..ROWS).filter(|row| scattered(*row).is_multiple_of(40_000)).collect();
    let most: Vec<u64> = (0..ROWS).filter(|row| scattered(*row).is_multiple_of(3)).collect();
    let mut random = Random(1);
    for _ in 0..25 {
        let ranges = RowRanges::new(ranges(&mut random));
        let scan = || file.scan().with_row_ranges(ranges.clone());
        let all: Vec<u64> = ranges.iter().flatten().collect();
        assert_eq!(rows_of(scan()).await, all, "{ranges:?}");
        let below = |rows: &[u64], end: i64| -> Vec<u64> {
            rows.iter().copied().filter(|row| keys[*row as usize] < end).collect()
        };
        for end in [0, 200, 1100] {
            let expected = below(&all, end);
            let filtered = scan().with_filter(column("key").lt(end));
            assert_eq!(rows_of(filtered.clone()).await, expected, "key < {end} of {ranges:?}");
            let best_first = filtered.clone().with_best_first("key", SortOptions::default());
            assert_eq!(rows_of(best_first).await, expected, "key < {end} of {ranges:?}");
            let counted = filtered.aggregate().await.unwrap();
            assert_eq!(counted.row_count, expected.len() as u64, "key < {end} of {ranges:?}");
        }
        for of in [&listed, &most] {
            let within = |row: &u64| all.binary_search(row).is_ok();
            let expected: Vec<u64> = of.iter().copied().filter(within).collect();
            let picked = scan().with_row_indices(of.as_slice());
            assert_eq!(rows_of(picked.clone()).await, expected, "{ranges:?}");
            assert_eq!(rows_of(picked.with_filter(column("key").lt(200))).await, below(&expected, 200));
            let rest: Vec<u64> = all.iter().copied().filter(|row| of.binary_search(row).is_err()).collect();
            assert_eq!(rows_of(scan().with_excluded_rows(of.as_slice())).await, rest, "{ranges:?}");
        }
        let first = rows_of(scan().with_limit(1000)).await;
        assert_eq!(first, all[..all.len().min(1000)], "{ranges:?}");
    }
}

#[tokio::test]
async fn ranges_return_what_a_filter_that_tightens_leaves_of_them() {
    let file = opened(bytes().await).await;
    let mut random = Random(3);
    for round in 0..60 {
        let ranges = RowRanges::new(ranges(&mut random));
        let below = Arc::new(SharedFilter::new(["id"]));
        let mut scan = file.scan().with_row_ranges(ranges.clone()).with_projection(["id"]);
        if round % 3 == 0 {
            scan = scan.with_best_first("key", SortOptions::default());
        }
        let metrics = Arc::clone(scan.metrics());
        let mut batches = scan.with_filter(Expr::Dynamic(Arc::clone(&below) as _)).into_stream().unwrap();
        let (mut found, mut limit) = (Vec::new(), ROWS);
        while let Some(batch) = batches.next().await.transpose().unwrap() {
            found.extend(batch["id"].as_primitive::<Int64Type>().values().iter().map(|id| *id as u64));
            limit = limit.min(random.next() % (2 * ROWS));
            below.set(column("id").lt(limit as i64));
        }
        found.sort_unstable();
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "a row twice of {ranges:?}");
        let all: Vec<u64> = ranges.iter().flatten().collect();
        assert!(found.iter().all(|row| all.binary_search(row).is_ok()), "a row beyond {ranges:?}");
        let needed = all.iter().filter(|row| **row < limit);
        assert!(needed.copied().all(|row| found.binary_search(&row).is_ok()), "{limit} of {ranges:?}");
        let pruned = metrics.splits_pruned.get() + metrics.splits_pruned_dynamic.get();
        assert!(metrics.splits_scanned.get() + pruned <= metrics.splits_planned.get());
    }
}

#[tokio::test]
async fn splits_of_ranges_cover_them_and_are_all_counted() {
    let file = opened(bytes().await).await;
    let mut random = Random(2);
    for _ in 0..100 {
        let ranges = RowRanges::new(ranges(&mut random));
        for filter in [column("key").lt(50), column("key").lt(2000)] {
            let scan = file.scan().with_row_ranges(ranges.clone()).with_filter(filter);
            let splits = scan.splits().unwrap();
            assert!(splits.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
            assert_eq!(RowRanges::new(splits.clone()).intersection(&ranges), ranges);
            let metrics = Arc::clone(scan.metrics());
            collect(scan).await.unwrap();
            assert_eq!(metrics.splits_planned.get(), splits.len() as u64, "{ranges:?}");
            let done = metrics.splits_scanned.get() + metrics.splits_pruned.get();
            assert_eq!(done, splits.len() as u64, "{ranges:?}");
            assert!(metrics.rows_pruned.get() <= ranges.row_count());
        }
    }
}

#[tokio::test]
async fn scans_that_take_turns_fetch_each_chunk_once() {
    // Both scans request what they need before the first bytes arrive.
    let numbers: ArrayRef =
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| scattered(row) as i64)));
    let table = RecordBatch::try_from_iter([("number", numbers)]).unwrap();
    let bytes = written([&table], WriteOptions::new()).await;
    let stored = Stored::new(bytes, StorageProfile::REMOTE).with_delay(|_| Duration::from_millis(5));
    let file = VortexFile::open(Arc::new(stored)).await.unwrap();
    let read = |splits: &[RowRanges]| {
        let metrics = Arc::new(ScanMetrics::default());
        let scans = splits.iter().map(|rows| {
            let scan = file.scan().with_row_ranges(rows.clone()).with_metrics(Arc::clone(&metrics));
            collect(scan)
        });
        let scans = futures::future::try_join_all(scans.collect::<Vec<_>>());
        async move {
            let rows: usize = scans.await.unwrap().iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows as u64, ROWS);
            metrics.bytes_read.get()
        }
    };
    let splits = file.scan().splits().unwrap();
    let every_other = |from: usize| splits.iter().skip(from).step_by(2).cloned().collect();
    let alone = read(&[(0..ROWS).into()]).await;
    let together = read(&[every_other(0), every_other(1)]).await;
    assert!(alone > 1 << 20 && together <= alone + alone / 50, "{together} bytes instead of {alone}");
}

#[tokio::test]
async fn ranges_beyond_the_end_are_refused() {
    let file = VortexFile::open(Arc::new(MemoryFile::new(bytes().await))).await.unwrap();
    let error =
        file.scan().with_row_ranges(RowRanges::new([0..5, ROWS..ROWS + 1])).into_stream().unwrap_err();
    assert!(error.to_string().contains("are not in 0..327757"), "{error}");
}
