//! Rows that are decoded when they are taken.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, AsArray as _, BooleanArray, Decimal128Array, Float64Array, Int64Array, ListArray, RecordBatch,
    StringArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int32Type, Int64Type};
use futures::TryStreamExt as _;
use vortex_core::expr::{Expr, column};
use vortex_core::file::OpenOptions;
use vortex_core::io::{MemoryFile, Scheduler};
use vortex_core::write::WriteOptions;
use vortex_core::{Error, Level, Limits, VortexFile};

use crate::given::{opened, written};

const ROWS: i64 = 300_000;

/// A column for each way in which values are stored.
fn table() -> RecordBatch {
    let some = |row: i64| row % 7 != 3;
    let lists =
        (0..ROWS).map(|row| some(row).then(|| (0..row % 4).map(move |item| Some((row + item) as i32))));
    let columns: [(&str, ArrayRef); 8] = [
        ("key", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        ("number", Arc::new((0..ROWS).map(|n| some(n).then_some(n * n % 1009)).collect::<Int64Array>())),
        (
            "float",
            Arc::new(Float64Array::from_iter_values((0..ROWS).map(|n| (n * 31 % 10_007) as f64 / 100.0))),
        ),
        ("flag", Arc::new((0..ROWS).map(|n| some(n).then_some(n % 3 == 0)).collect::<BooleanArray>())),
        (
            "word",
            Arc::new((0..ROWS).map(|n| some(n).then(|| format!("word {}", n % 97))).collect::<StringArray>()),
        ),
        ("text", Arc::new(StringArray::from_iter_values((0..ROWS).map(|n| format!("{} is squared", n * n))))),
        (
            "price",
            Arc::new(Decimal128Array::from_iter_values((0..ROWS).map(|n| i128::from(n * 37 % 90_001)))),
        ),
        ("items", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

async fn rows(file: &VortexFile, filter: Option<Expr>, late: bool) -> Result<Vec<RecordBatch>, Error> {
    let mut scan = file.scan().with_late_decoding(late);
    if let Some(filter) = filter {
        scan = scan.with_filter(filter);
    }
    scan.into_stream()?.try_collect().await
}

#[tokio::test]
async fn rows_are_the_same_in_the_same_order_however_late_they_are_decoded() {
    let table = table();
    for level in [Level::Fast, Level::Default, Level::Compact] {
        let file = opened(written([&table], WriteOptions::new().with_level(level)).await).await;
        // All rows, most of them, a few in each split, and none.
        let filters = [
            None,
            Some(column("number").not_eq(5)),
            Some(column("number").lt(500).or(column("flag").eq(true))),
            Some(column("number").lt(5)),
            Some(column("key").gt(250_000)),
            Some(column("key").lt(0)),
        ];
        for filter in filters {
            let early = rows(&file, filter.clone(), false).await.unwrap();
            let late = rows(&file, filter.clone(), true).await.unwrap();
            assert!(late.iter().all(|batch| (1..=8192).contains(&batch.num_rows())));
            for column in late.iter().flat_map(RecordBatch::columns) {
                column.to_data().validate_full().unwrap();
            }
            let schema = file.schema().unwrap();
            let [early, late] = [early, late].map(|batches| concat_batches(&schema, &batches).unwrap());
            assert!(early == late, "{level:?}, {filter:?}");
        }
    }
}

#[tokio::test]
async fn a_caller_that_stops_has_only_decoded_what_it_took() {
    let file = opened(written([&table()], WriteOptions::new()).await).await;
    let scan = file.scan().with_projection(["text"]).with_late_decoding(true);
    let metrics = Arc::clone(scan.metrics());
    let mut stream = scan.into_stream().unwrap();
    stream.try_next().await.unwrap().unwrap();
    drop(stream);
    assert_eq!(metrics.rows_produced.get(), 8192);
}

#[tokio::test]
async fn limits_and_scans_without_order_are_served_as_well() {
    let table = table();
    let file = opened(written([&table], WriteOptions::new().with_level(Level::Fast)).await).await;
    let scan = || file.scan().with_projection(["key"]).with_late_decoding(true);
    let keys = async |scan: vortex_core::scan::ScanBuilder| {
        let batches: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
        let keys =
            batches.iter().flat_map(|batch| batch["key"].as_primitive::<Int64Type>().values().to_vec());
        keys.collect::<Vec<i64>>()
    };
    for limit in [1, 8192, 8193, 100_000] {
        assert!(keys(scan().with_limit(limit as u64)).await.into_iter().eq(0..limit));
        let most = scan().with_filter(column("number").not_eq(5)).with_limit(limit as u64);
        assert_eq!(keys(most).await.len() as i64, limit);
    }
    let mut found = keys(scan().with_ordered(false)).await;
    found.sort_unstable();
    assert!(found.into_iter().eq(0..ROWS));
}

#[tokio::test]
async fn rows_that_were_rejected_are_not_kept_by_those_that_passed() {
    let long = |row: i64| if row % 5 < 3 { format!("row {row}, short") } else { "rejected ".repeat(40) };
    let columns: [(&str, ArrayRef); 2] = [
        ("n", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row % 5)))),
        ("text", Arc::new(StringArray::from_iter_values((0..ROWS).map(long)))),
    ];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    for level in [Level::Fast, Level::Default] {
        let file = opened(written([&table], WriteOptions::new().with_level(level)).await).await;
        let mut bytes = [0, 0];
        for (late, bytes) in bytes.iter_mut().enumerate() {
            let batches = rows(&file, Some(column("n").lt(3)), late == 1).await.unwrap();
            *bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
        }
        assert!(bytes[1] < 60 * ROWS as usize, "{level:?}: {bytes:?}");
    }
}

#[tokio::test]
async fn a_tiny_budget_changes_no_row_and_reads_zero_at_the_end_of_a_scan_and_of_a_dropped_one() {
    let table = table();
    let file = opened(written([&table], WriteOptions::new().with_level(Level::Fast)).await).await;
    let whole = rows(&file, None, false).await.unwrap();
    for budget in [1, 1 << 20, 1 << 30] {
        let scheduler = Scheduler::new(budget);
        let scan = || file.scan().with_late_decoding(true).with_scheduler(Arc::clone(&scheduler));
        let found: Vec<RecordBatch> = scan().into_stream().unwrap().try_collect().await.unwrap();
        let schema = file.schema().unwrap();
        assert!(concat_batches(&schema, &found).unwrap() == concat_batches(&schema, &whole).unwrap());
        assert_eq!(scheduler.bytes_in_use(), 0, "{budget}");
        // The rest of a split waits to be decoded, and others have been read ahead.
        let mut stream = scan().into_stream().unwrap();
        stream.try_next().await.unwrap().unwrap();
        assert!(scheduler.bytes_in_use() > 0, "{budget}");
        drop(stream);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(scheduler.bytes_in_use(), 0, "{budget}, dropped");
    }
}

#[tokio::test]
async fn pieces_that_exceed_the_limits_are_decoded_in_halves() {
    let bytes = written([&table()], WriteOptions::new().with_level(Level::Fast)).await;
    let open = async |max_decoded_bytes| {
        let limits = Limits::new().with_max_decoded_bytes(max_decoded_bytes);
        let source = Arc::new(MemoryFile::new(bytes.clone()));
        OpenOptions::new().with_limits(limits).open(source).await.unwrap()
    };
    let (strict, lax) = (open(250_000).await, open(2 << 30).await);
    let scan = |file: &VortexFile| file.scan().with_projection(["text"]).with_late_decoding(true);
    let schema = Arc::clone(scan(&lax).into_stream().unwrap().schema());
    let mut found = Vec::new();
    for file in [&strict, &lax] {
        let batches: Vec<RecordBatch> = scan(file).into_stream().unwrap().try_collect().await.unwrap();
        found.push(concat_batches(&schema, &batches).unwrap());
    }
    assert!(found[0] == found[1]);
    let hopeless = open(20).await;
    let error = scan(&hopeless).into_stream().unwrap().try_collect::<Vec<_>>().await.unwrap_err();
    assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
    assert!(error.to_string().contains("column `text`"), "{error}");
}
