use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{BinaryArray, DurationSecondArray, Int64Array, Int64Builder, MapBuilder, StringArray};
use arrow::compute::concat_batches;
use bytes::Bytes;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use test_store::TestStore;

use super::*;
use crate::VortexFile;
use crate::expr::column;
use crate::file::{OpenOptions, SegmentCompression};
use crate::given::{Stored, opened, written};
use crate::io::{MemoryFile, MemoryPool, Scheduler, StorageProfile};
use crate::kernels::random;
use crate::write::WriteOptions;

fn table() -> RecordBatch {
    let rows = 0..40_000i64;
    RecordBatch::try_from_iter([
        ("n", Arc::new(Int64Array::from_iter_values(rows.clone().map(|n| n * n % 1000))) as ArrayRef),
        ("d", Arc::new(DurationSecondArray::from_iter_values(rows.clone())) as ArrayRef),
        ("s", Arc::new(StringArray::from_iter_values(rows.map(|n| n.to_string()))) as ArrayRef),
    ])
    .unwrap()
}

/// A file whose bytes have to be fetched.
async fn open(bytes: Bytes, options: OpenOptions) -> VortexFile {
    options.open(Arc::new(Stored::new(bytes, StorageProfile::LOCAL))).await.unwrap()
}

/// As [`open`], a file with the rows of a table.
async fn stored(table: &RecordBatch) -> VortexFile {
    open(written([table], WriteOptions::new()).await, OpenOptions::new()).await
}

async fn rows_of(file: &VortexFile, rows: &[u64]) -> Result<RecordBatch> {
    let stream = file.scan().with_row_indices(rows).with_row_access(RowAccess::Single).into_stream()?;
    let schema = Arc::clone(stream.schema());
    Ok(concat_batches(&schema, &stream.try_collect::<Vec<_>>().await?)?)
}

#[tokio::test]
async fn rows_come_in_the_types_that_were_written() {
    let file = stored(&table()).await;
    let expected = concat_batches(&table().schema(), &[table().slice(3, 1), table().slice(39_999, 1)]);
    assert_eq!(rows_of(&file, &[3, 39_999]).await.unwrap(), expected.unwrap());
}

#[tokio::test]
async fn rows_larger_than_the_limit_are_decoded_in_parts() {
    let limits = crate::Limits::new().with_max_decoded_bytes(300_000);
    let bytes = written([table()], WriteOptions::new()).await;
    let file = open(bytes, OpenOptions::new().with_limits(limits)).await;
    let stream = file.scan().into_stream().unwrap();
    let batches: Vec<_> = stream.try_collect().await.unwrap();
    assert_eq!(concat_batches(&table().schema(), &batches).unwrap(), table());
}

#[tokio::test]
async fn rows_of_a_file_in_memory_are_not_read_again() {
    let bytes = written([table()], WriteOptions::new()).await;
    let file = opened(bytes.clone()).await;
    let scan = file.scan().with_row_indices([3, 39_999]).with_row_access(RowAccess::Single);
    let metrics = Arc::clone(scan.metrics());
    let batches: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
    let stored = rows_of(&open(bytes, OpenOptions::new()).await, &[3, 39_999]).await.unwrap();
    assert_eq!(concat_batches(stored.schema_ref(), &batches).unwrap(), stored);
    assert_eq!(metrics.snapshot().iter().find(|(name, _)| *name == "reads").unwrap().1, 0);
}

#[tokio::test]
async fn few_rows_are_fetched_individually_even_from_short_segments() {
    let mut next = random(5);
    let column = Arc::new(Int64Array::from_iter_values((0..200_000).map(|_| next() as i64))) as ArrayRef;
    let table = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let file = stored(&table).await;
    let every = |step| (0..200_000).step_by(step).collect::<Vec<u64>>();
    let neighbours = (0..1100).chain([199_999]).collect();
    for (rows, is_single) in [(every(600), true), (every(100), false), (neighbours, false), (vec![7], true)] {
        let scan = file.scan().with_row_indices(rows.clone());
        let metrics = Arc::clone(scan.metrics());
        let batches: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
        let taken = UInt64Array::from(rows);
        let expected = arrow::compute::take(table.column(0), &taken, None).unwrap();
        assert_eq!(concat_batches(&table.schema(), &batches).unwrap().column(0), &expected);
        let bytes = metrics.bytes_read.get();
        assert_eq!(bytes < 100_000, is_single, "{} rows: {bytes} bytes", taken.len());
    }
}

#[tokio::test]
async fn few_maps_take_few_of_the_entries() {
    let mut next = random(5);
    let mut maps = MapBuilder::new(None, Int64Builder::new(), Int64Builder::new());
    for row in 0..40_000 {
        for _ in 0..row % 4 {
            maps.keys().append_value(next() as i64);
            maps.values().append_value(next() as i64);
        }
        maps.append(row % 7 != 0).unwrap();
    }
    let table = RecordBatch::try_from_iter([("m", Arc::new(maps.finish()) as ArrayRef)]).unwrap();
    let file = stored(&table).await;
    for rows in [vec![3, 20_002, 39_999], vec![7, 8], vec![14]] {
        let scan = file.scan().with_row_indices(rows.clone()).with_row_access(RowAccess::Single);
        let metrics = Arc::clone(scan.metrics());
        let batches: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
        let expected = arrow::compute::take(table.column(0), &UInt64Array::from(rows), None).unwrap();
        assert_eq!(concat_batches(&batches[0].schema(), &batches).unwrap().column(0), &expected);
        let bytes = metrics.bytes_read.get();
        assert!(bytes < 50_000, "{bytes} bytes");
    }
}

#[tokio::test]
async fn what_tells_where_rows_are_is_kept_once_it_is_needed_again() {
    let runs = Arc::new(Int64Array::from_iter_values((0..40_000).map(|row| (row / 50) * 7919 % 1_000_003)))
        as ArrayRef;
    let table = RecordBatch::try_from_iter([("r", runs)]).unwrap();
    let file = stored(&table).await;
    let mut kept = Vec::new();
    for row in [5, 20_000, 30_000] {
        assert_eq!(rows_of(&file, &[row]).await.unwrap(), table.slice(row as usize, 1));
        kept.push(file.trees().array_budget().used());
    }
    assert_eq!(kept[0], 0);
    assert!(kept[1] > 0 && kept[2] == kept[1], "{kept:?}");
}

/// A pool that grants everything.
#[derive(Debug, Default)]
struct Grants {
    used: AtomicU64,
    peak: AtomicU64,
}

impl MemoryPool for Grants {
    fn try_grow(&self, bytes: u64) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.peak.fetch_max(used, Ordering::SeqCst);
        true
    }

    fn shrink(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_memory_pool_is_charged_for_rows_read_individually() {
    let file = stored(&table()).await;
    let rows: Vec<u64> = (0..40_000).step_by(1000).collect();
    let (scheduler, pool) = (Scheduler::new(1 << 30), Arc::new(Grants::default()));
    let scan = file.scan().with_row_indices(rows).with_row_access(RowAccess::Single);
    let scan = scan.with_scheduler(Arc::clone(&scheduler)).with_memory_pool(Arc::clone(&pool) as _);
    let batches: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 40);
    let peak = pool.peak.load(Ordering::SeqCst);
    assert!(peak > 0);
    assert_eq!(peak, scheduler.peak_bytes());
    assert_eq!(pool.used.load(Ordering::SeqCst), 0);
}

/// 1000 rows of 4 KiB that nothing can compress.
fn noise() -> RecordBatch {
    let mut next = random(1);
    let rows: Vec<Vec<u8>> =
        (0..1000).map(|_| (0..512).flat_map(|_| next().to_le_bytes()).collect()).collect();
    let rows = Arc::new(BinaryArray::from_iter_values(rows)) as ArrayRef;
    RecordBatch::try_from_iter([("b", rows)]).unwrap()
}

/// The same rows, numbered.
fn numbered_noise() -> RecordBatch {
    let numbers = Arc::new(Int64Array::from_iter_values(0..1000)) as ArrayRef;
    let noise = Arc::clone(noise().column(0));
    RecordBatch::try_from_iter([("n", numbers), ("b", noise)]).unwrap()
}

#[tokio::test]
async fn rows_of_remote_storage_are_fetched_individually_if_segments_take_longer() {
    let table = numbered_noise();
    let bytes = written([&table], WriteOptions::new()).await;
    for (bytes_per_latency, is_single) in [(8 << 20, false), (64 << 10, true)] {
        let profile = StorageProfile { coalesce_gap: bytes_per_latency, ..StorageProfile::REMOTE };
        let source = Arc::new(Stored::new(bytes.clone(), profile));
        let file = VortexFile::open(source).await.unwrap();
        for filter in [None, Some(column("n").eq(7))] {
            let by_filter = filter.is_some();
            let scan = file.scan().with_scheduler(Scheduler::new(1 << 30));
            let scan = match filter {
                Some(filter) => scan.with_filter(filter),
                None => scan.with_row_indices([7]),
            };
            let metrics = Arc::clone(scan.metrics());
            let batches: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
            assert_eq!(concat_batches(&table.schema(), &batches).unwrap(), table.slice(7, 1));
            let bytes = metrics.bytes_read.get();
            assert_eq!(bytes < 100_000, is_single, "{bytes} bytes, by filter: {by_filter}");
        }
    }
}

#[tokio::test]
async fn rows_of_remote_storage_that_lie_close_share_reads() {
    let table = numbered_noise();
    let bytes = written([&table], WriteOptions::new()).await;
    let file = VortexFile::open(Arc::new(Stored::new(bytes, StorageProfile::REMOTE))).await.unwrap();
    let rows = Arc::from([3, 4, 5, 10, 12]);
    let scan = file.scan().with_row_indices(Arc::clone(&rows)).with_row_access(RowAccess::Single);
    let metrics = Arc::clone(scan.metrics());
    let batches: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
    let found = concat_batches(&table.schema(), &batches).unwrap();
    let expected = arrow::compute::take_record_batch(&table, &UInt64Array::from(rows.to_vec())).unwrap();
    assert_eq!(found, expected);
    let (requests, reads) = (metrics.requests.get(), metrics.reads.get());
    assert!(reads < requests, "{reads} reads for {requests} requests");
}

#[tokio::test]
async fn parts_of_rows_are_limited_together() {
    let bytes = written([noise()], WriteOptions::new()).await;
    let limits = crate::Limits::new().with_max_decoded_bytes(1 << 20);
    let file = open(bytes, OpenOptions::new().with_limits(limits)).await;
    let rows = |count| (0..1000).filter(|row| row % 4 > 0).take(count).collect::<Vec<u64>>();
    assert_eq!(rows_of(&file, &rows(200)).await.unwrap().num_rows(), 200);
    let error = rows_of(&file, &rows(700)).await.err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("exceed 1048576 bytes")));
}

#[tokio::test]
async fn without_memory_rows_are_read_in_smaller_parts() {
    let table = noise();
    let bytes = written([&table], WriteOptions::new()).await;
    let wanted: Vec<u64> = (0..1000).filter(|row| row % 10 > 0).collect();
    for profile in [StorageProfile::LOCAL, StorageProfile::REMOTE] {
        let file = VortexFile::open(Arc::new(Stored::new(bytes.clone(), profile))).await.unwrap();
        let mut peaks = Vec::new();
        for budget in [1 << 30, 1 << 10] {
            let scheduler = Scheduler::new(budget);
            let scan = file.scan().with_row_indices(wanted.clone()).with_row_access(RowAccess::Single);
            let stream = scan.with_scheduler(Arc::clone(&scheduler)).into_stream().unwrap();
            let schema = Arc::clone(stream.schema());
            let batches: Vec<_> = stream.try_collect().await.unwrap();
            let taken = UInt64Array::from(wanted.clone());
            let expected = arrow::compute::take(table.column(0), &taken, None).unwrap();
            let found = concat_batches(&schema, &batches).unwrap();
            assert_eq!(found.column(0), &expected);
            peaks.push(scheduler.peak_bytes());
        }
        assert!(peaks[0] > 3 << 20 && peaks[1] <= MAX_HELD_ANYWAY, "{peaks:?}");
    }
}

#[tokio::test]
async fn a_dropped_scan_withdraws_the_rows_that_it_requested() {
    let store = TestStore::new();
    let path = Path::from("file");
    store.put(&path, written([numbered_noise()], WriteOptions::new()).await.into()).await.unwrap();
    let file = VortexFile::open_object(&(Arc::clone(&store) as _), &path).await.unwrap();
    store.set_latency(Duration::from_secs(3600));
    let scheduler = Scheduler::new(1 << 30);
    let scan = file.scan().with_row_indices([7, 900]).with_row_access(RowAccess::Single);
    let mut stream = scan.with_scheduler(Arc::clone(&scheduler)).into_stream().unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(100), stream.try_next()).await;
    assert!(waited.is_err() && scheduler.bytes_in_use() > 0);
    drop(stream);
    for _ in 0..1000 {
        if scheduler.bytes_in_use() == 0 && store.in_flight.get() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{} bytes of {} reads", scheduler.bytes_in_use(), store.in_flight.get());
}

#[tokio::test]
async fn segments_that_are_only_read_as_a_whole_are_not_read_for_each_row() {
    let table = noise();
    let options = WriteOptions::new().with_segment_compression(SegmentCompression::Lz4);
    let file = open(written([&table], options).await, OpenOptions::new()).await;
    let wanted: Vec<u64> = (0..1000).step_by(20).collect();
    let scheduler = Scheduler::new(1 << 10);
    let scan = file.scan().with_row_indices(wanted.clone()).with_row_access(RowAccess::Single);
    let scan = scan.with_scheduler(scheduler);
    let metrics = Arc::clone(scan.metrics());
    let batches: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
    let expected = arrow::compute::take(table.column(0), &UInt64Array::from(wanted), None).unwrap();
    assert_eq!(concat_batches(&batches[0].schema(), &batches).unwrap().column(0), &expected);
    let bytes = metrics.bytes_read.get();
    assert!(bytes < 5 * (4 << 20), "{bytes} bytes");
}

#[tokio::test]
async fn no_rows_take_no_bytes() {
    let file = stored(&table()).await;
    let mut have = PieceSet::new(&file.footer().table, file.trees());
    assert_eq!(file.footer().layout().read_rows(&[], &have).unwrap().len(), 0);
    assert_eq!(have.take_missing(), (vec![], vec![]));
}

#[tokio::test]
async fn segments_that_are_only_read_as_a_whole_are_not_read_for_each_split() {
    let mut next = random(5);
    let names: Vec<String> = (0..32).map(|at| format!("c{at}")).collect();
    let mut noise = || Arc::new(Int64Array::from_iter_values((0..65_536).map(|_| next() as i64 >> 8)));
    let mut columns: Vec<_> = names.iter().map(|name| (name, noise() as ArrayRef)).collect();
    let is_wanted = |row| i64::from(row % 8192 == 4000);
    columns[0].1 = Arc::new(Int64Array::from_iter_values((0..65_536).map(is_wanted)));
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let bytes = written([&table], WriteOptions::new().with_checksums(true)).await;
    let len = bytes.len() as u64;
    let file = open(bytes, OpenOptions::new().with_verify_checksums(true)).await;
    let scan = file.scan().with_filter(column("c0").eq(1));
    let metrics = Arc::clone(scan.metrics());
    let batches: Vec<_> = scan.into_stream().unwrap().try_collect().await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 8);
    let bytes = metrics.bytes_read.get();
    assert!(bytes <= len, "{bytes} of {len} bytes");
}

#[tokio::test]
async fn rows_of_compressed_segments_are_read_from_whole_segments() {
    for scheme in [SegmentCompression::Lz4, SegmentCompression::Zstd] {
        let options = WriteOptions::new().with_segment_compression(scheme);
        let file = open(written([table()], options).await, OpenOptions::new()).await;
        assert_eq!(rows_of(&file, &[20_000]).await.unwrap(), table().slice(20_000, 1));
    }
}

#[tokio::test]
async fn rows_are_not_handed_out_of_segments_whose_checksum_was_not_verified() {
    let bytes = written([table()], WriteOptions::new().with_checksums(true)).await;
    let file = open(bytes.clone(), OpenOptions::new()).await;
    let segment = file.footer().segment(crate::file::SegmentId(0)).unwrap();
    let mut bytes = bytes.to_vec();
    bytes[segment.offset as usize] ^= 1;
    let options = OpenOptions::new().with_verify_checksums(true);
    let damaged = options.open(Arc::new(MemoryFile::new(bytes))).await.unwrap();
    let message = rows_of(&damaged, &[30_000]).await.unwrap_err().to_string();
    assert!(message.contains("checksum"), "{message}");
}
