//! Rows are returned in the order of the file if requested, and otherwise as they become ready.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use vortex_core::io::{MemoryFile, MemorySink, ReadAt, StorageProfile};
use vortex_core::write::{FileWriter, WriteOptions};
use vortex_core::{Result, VortexFile};

const ROWS: i64 = 400_000;

/// A file whose beginning takes longer to read than the rest.
#[derive(Debug)]
struct SlowStart(MemoryFile);

#[async_trait]
impl ReadAt for SlowStart {
    fn name(&self) -> &str {
        "slow start"
    }

    async fn len(&self) -> Result<u64> {
        self.0.len().await
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if range.start < 1000 {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        self.0.read(range).await
    }

    fn profile(&self) -> StorageProfile {
        let mut profile = StorageProfile::LOCAL;
        (profile.coalesce_gap, profile.max_read) = (0, 1);
        profile
    }
}

/// The row numbers in the order in which a scan returns them.
async fn rows(ordered: bool) -> Vec<i64> {
    let numbers = Arc::new(Int64Array::from_iter_values(0..ROWS)) as ArrayRef;
    // Without any order that an encoding could exploit.
    let noise = |at: i64| (at + 1).wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_mul(at ^ 0x1234_5678_9ABC);
    let noise = Arc::new(Int64Array::from_iter_values((0..ROWS).map(noise))) as ArrayRef;
    let table = RecordBatch::try_from_iter([("noise", noise), ("number", numbers)]).unwrap();
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), table.schema(), WriteOptions::new()).unwrap();
    writer.write(&table).await.unwrap();
    writer.finish().await.unwrap();
    let source = Arc::new(SlowStart(MemoryFile::new(sink.bytes().unwrap())));
    let file = VortexFile::open(source).await.unwrap();
    let batches: Vec<RecordBatch> =
        file.scan().with_ordered(ordered).into_stream().unwrap().try_collect().await.unwrap();
    batches.iter().flat_map(|batch| batch["number"].as_primitive::<Int64Type>().values().to_vec()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_keep_their_order_unless_it_does_not_matter() {
    assert!(rows(true).await.into_iter().eq(0..ROWS));
    let mut rows = rows(false).await;
    assert_ne!(rows[0], 0, "what is ready need not wait");
    rows.sort_unstable();
    assert!(rows.into_iter().eq(0..ROWS), "each row once");
}
