//! Rows are returned in the order of the file if requested, and otherwise as they become ready.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, UInt64Array};
use arrow::datatypes::Int64Type;
use vortex_core::VortexFile;
use vortex_core::io::StorageProfile;
use vortex_core::write::WriteOptions;

use crate::given::{Stored, collect, written};
use crate::random::scattered;

const ROWS: i64 = 400_000;

/// A file whose beginning takes longer to read than the rest.
async fn slow_start() -> VortexFile {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let noise: ArrayRef = Arc::new(UInt64Array::from_iter_values((0..ROWS as u64).map(scattered)));
    let table = RecordBatch::try_from_iter([("noise", noise), ("number", numbers)]).unwrap();
    let mut profile = StorageProfile::LOCAL;
    (profile.coalesce_gap, profile.max_read) = (0, 1);
    let stored = Stored::new(written([&table], WriteOptions::new()).await, profile);
    let stored = stored.with_delay(|range| Duration::from_millis(if range.start < 1000 { 300 } else { 0 }));
    VortexFile::open(Arc::new(stored)).await.unwrap()
}

/// The row numbers in the order in which a scan returns them.
async fn rows(ordered: bool) -> Vec<i64> {
    let rows = collect(slow_start().await.scan().with_ordered(ordered)).await.unwrap();
    rows["number"].as_primitive::<Int64Type>().values().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_keep_their_order_unless_it_does_not_matter() {
    assert!(rows(true).await.into_iter().eq(0..ROWS));
    let mut rows = rows(false).await;
    assert_ne!(rows[0], 0, "what is ready need not wait");
    rows.sort_unstable();
    assert!(rows.into_iter().eq(0..ROWS), "each row once");
}
