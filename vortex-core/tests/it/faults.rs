//! The behaviour of scans when storage fails, stalls, returns wrong data, or throttles.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use bytes::Bytes;
use futures::StreamExt as _;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use test_store::{ReadFault as Fault, TestStore};
use vortex_core::dtype::{DType, PType};
use vortex_core::expr::{CompareOp, Expr};
use vortex_core::file::OpenOptions;
use vortex_core::io::{BlockCache, ObjectFile, ReadAt as _, Scheduler};
use vortex_core::scalar::{Scalar, Value};
use vortex_core::scan::{ScanBuilder, ScanMetrics};
use vortex_core::write::WriteOptions;
use vortex_core::{Error, Result, VortexFile};

use crate::given::{collect, lineitem, written};
use crate::random::{Random, scattered};

const OBJECT: &str = "folder/lineitem.vortex";

const FAULTS: [Fault; 6] =
    [Fault::Fails, Fault::Breaks, Fault::Short, Fault::Long, Fault::Elsewhere, Fault::Busy];

fn contents() -> Bytes {
    std::fs::read(lineitem()).unwrap().into()
}

/// An object in a store without faults yet, and its file, opened with little of its data.
async fn stored(bytes: Bytes) -> (Arc<TestStore>, VortexFile) {
    let store = TestStore::new();
    let path = Path::from(OBJECT);
    store.put(&path, bytes.into()).await.unwrap();
    let meta = store.inner.head(&path).await.unwrap();
    let source = Arc::new(ObjectFile::new(Arc::clone(&store) as _, meta).with_hedge(0));
    let file = OpenOptions::new().with_tail_size(1).open(source).await.unwrap();
    store.take();
    (store, file)
}

async fn find(store: &Arc<dyn ObjectStore>, path: &Path, bytes: u64) -> Result<ObjectFile> {
    Scheduler::shared().find_object(store, path, bytes, 0).await
}

fn some_rows(file: &VortexFile) -> ScanBuilder {
    let value = Scalar::try_new(DType::Utf8(false), Value::Utf8("AIR".into())).unwrap();
    let filter = Expr::compare("l_shipmode", CompareOp::Eq, value);
    file.scan().with_filter(filter).with_projection(["l_orderkey", "l_comment", "l_shipmode"])
}

#[tokio::test]
async fn an_object_is_opened_with_its_end_or_else_with_its_size() {
    let (store, path) = (TestStore::new(), Path::from(OBJECT));
    store.put(&path, contents().into()).await.unwrap();
    let as_store = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let by_end = VortexFile::open_object(&as_store, &path).await.unwrap();
    assert_eq!((store.reads.take(), store.heads.take()), (1, 0));
    store.refuse_ends();
    let by_size = VortexFile::open_object(&as_store, &path).await.unwrap();
    assert_eq!((store.reads.take(), store.heads.take()), (2, 1));
    assert_eq!(by_size.row_count(), by_end.row_count());
    let error = VortexFile::open_object(&as_store, &Path::from("missing.vortex")).await.unwrap_err();
    assert_eq!(error.file(), Some("missing.vortex"));
    assert!(error.is_not_found(), "{error}");
    // The first request was not sent, so the second one tells why.
    store.fail_heads();
    let error = VortexFile::open_object(&as_store, &path).await.unwrap_err();
    assert!(error.to_string().contains("403 Forbidden") && error.is_transient(), "{error}");
}

#[tokio::test]
async fn an_object_is_read_without_the_permission_to_read_old_versions() {
    let (store, path) = (TestStore::new(), Path::from(OBJECT));
    store.put(&path, contents().into()).await.unwrap();
    store.forbid_old_versions();
    let listed = store.head(&path).await.unwrap();
    assert!(listed.version.is_some());
    let file = ObjectFile::new(Arc::clone(&store) as _, listed.clone());
    assert_eq!(file.read(0..4).await.unwrap(), b"VTXF"[..]);
    // A version is better than nothing.
    let untagged = ObjectFile::new(Arc::clone(&store) as _, ObjectMeta { e_tag: None, ..listed });
    assert!(untagged.read(0..4).await.unwrap_err().to_string().contains("403 Forbidden"));
}

#[tokio::test]
async fn an_object_without_e_tag_that_is_replaced_is_an_error() {
    let (store, path) = (TestStore::new(), Path::from(OBJECT));
    let time = |seconds| std::time::UNIX_EPOCH + Duration::from_secs(seconds);
    let put = async |bytes: Vec<u8>| store.put(&path, bytes.into()).await.map(drop).unwrap();
    store.hide_e_tags();
    put(vec![1; 1000]).await;
    store.set_time(time(1_000_000));
    // Table formats take times from their logs.
    let listed = ObjectMeta { last_modified: time(7).into(), ..store.head(&path).await.unwrap() };
    let of = |meta: &ObjectMeta| ObjectFile::new(Arc::clone(&store) as _, meta.clone());
    let (planned, found) = (of(&listed), find(&(Arc::clone(&store) as _), &path, 10).await.unwrap());
    assert_eq!(planned.read(0..10).await.unwrap(), vec![1; 10]);
    store.set_time(time(1_000_001));
    put(vec![2; 1000]).await;
    for file in [&planned, &found] {
        let error = file.read(10..20).await.unwrap_err().to_string();
        assert!(error.contains("replaced while it was read") && error.contains("10..20"), "{error}");
    }
    assert_eq!(of(&listed).read(10..20).await.unwrap(), vec![2; 10]);
    put(vec![3; 999]).await;
    let error = of(&listed).read(10..20).await.unwrap_err().to_string();
    assert!(error.contains("it has 999 bytes, not 1000"), "{error}");
}

#[tokio::test]
async fn blocks_of_a_replaced_object_are_not_mixed_with_later_ones() {
    let (store, path) = (TestStore::new(), Path::from(OBJECT));
    let time = |seconds| std::time::UNIX_EPOCH + Duration::from_secs(seconds);
    let put = async |byte: u8| store.put(&path, vec![byte; 40_000].into()).await.map(drop).unwrap();
    store.hide_e_tags();
    put(1).await;
    store.set_time(time(1_000_000));
    let listed = ObjectMeta { last_modified: time(7).into(), ..store.head(&path).await.unwrap() };
    let cache = BlockCache::new(1 << 20);
    let object = || ObjectFile::new(Arc::clone(&store) as _, listed.clone());
    let cached = |object: ObjectFile| object.cached(Arc::clone(&cache), 4096);
    assert_eq!(cached(object()).read(0..10).await.unwrap(), vec![1; 10]);
    store.set_time(time(1_000_001));
    put(2).await;
    let after = cached(object());
    assert_eq!(after.read(0..10).await.unwrap(), vec![1; 10], "kept");
    let error = after.read(20_000..20_010).await.unwrap_err().to_string();
    assert!(error.contains("replaced while it was read"), "{error}");
    // A reader that has seen the later object takes no blocks of the earlier one.
    let later = object();
    assert_eq!(later.read(20_000..20_010).await.unwrap(), vec![2; 10]);
    let later = cached(later);
    assert_eq!(later.read(0..10).await.unwrap(), vec![2; 10]);
    assert_eq!(cached(object()).read(0..10).await.unwrap(), vec![2; 10], "kept instead");
    assert!(after.cached(&(0..10)).is_none());
}

#[tokio::test]
async fn an_object_that_is_replaced_is_an_error_even_if_the_store_ignores_e_tags_in_requests() {
    let (store, path) = (TestStore::new(), Path::from(OBJECT));
    let put = async |bytes: Vec<u8>| store.put(&path, bytes.into()).await.map(drop).unwrap();
    store.ignore_conditions();
    put(vec![1; 1000]).await;
    let listed = store.head(&path).await.unwrap();
    let file = ObjectFile::new(Arc::clone(&store) as _, listed.clone());
    assert_eq!(file.read(0..10).await.unwrap(), vec![1; 10]);
    put(vec![2; 1000]).await;
    let error = file.read(10..20).await.unwrap_err().to_string();
    assert!(error.contains("replaced while it was read") && error.contains("10..20"), "{error}");
    put(vec![3; 1001]).await;
    let error = ObjectFile::new(Arc::clone(&store) as _, listed).read(10..20).await.unwrap_err().to_string();
    assert!(error.contains("it has 1001 bytes, not 1000"), "{error}");
}

#[tokio::test]
async fn a_reader_that_nobody_drains_holds_up_no_other() {
    let rows = 500_000;
    let column: ArrayRef = Arc::new(UInt64Array::from_iter_values((0..rows).map(scattered)));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let (store, file) = stored(written([&batch], WriteOptions::new()).await).await;
    // Bytes arrive one chunk after the other, so that the first reader gets some of them and waits then.
    store.set_piece_len(4 << 10);
    let scheduler = Scheduler::new(1 << 30);
    let budget = Arc::clone(&scheduler);

    let read = std::thread::spawn(move || {
        let scan = || file.scan().with_scheduler(Arc::clone(&scheduler));
        let mut waits = scan().with_batch_size(100).into_reader().unwrap();
        waits.next().unwrap().unwrap();
        let (sender, count) = std::sync::mpsc::channel();
        let reader = scan().into_reader().unwrap();
        std::thread::spawn(move || {
            let counted: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
            sender.send(counted).unwrap();
        });
        let counted = count.recv_timeout(Duration::from_secs(60)).expect("the second reader is not held up");
        (counted, waits.map(|batch| batch.unwrap().num_rows()).sum::<usize>())
    });
    let (counted, rest) = tokio::task::spawn_blocking(|| read.join().unwrap()).await.unwrap();
    assert_eq!((counted as u64, rest as u64 + 100), (rows, rows));
    assert_eq!(budget.bytes_in_use(), 0);
}

#[tokio::test]
async fn reads_of_a_reader_arrive_while_its_caller_is_busy() {
    let column: ArrayRef = Arc::new(UInt64Array::from_iter_values((0..500_000).map(scattered)));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let (store, file) = stored(written([&batch], WriteOptions::new()).await).await;
    store.set_piece_len(4 << 10);
    let scheduler = Scheduler::new(1 << 30);
    let mut reader = file.scan().with_scheduler(scheduler).with_batch_size(100).into_reader().unwrap();
    // Waits on this thread, as callers do.
    reader.next().unwrap().unwrap();
    let start = std::time::Instant::now();
    while store.in_flight.get() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "connections to stores time out");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 499_900);
}

async fn settled(scheduler: &Scheduler, store: &TestStore) {
    for _ in 0..100 {
        if scheduler.bytes_in_use() == 0 && store.in_flight.get() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{} bytes in use, {:?} reads in flight", scheduler.bytes_in_use(), store.in_flight);
}

#[tokio::test]
async fn any_mixture_of_faults_ends_in_the_right_answer_or_an_error_with_file_and_range() {
    let (store, file) = stored(contents()).await;
    let expected = collect(some_rows(&file)).await.unwrap();
    let (mut right, mut failed) = (0, 0);
    for seed in 0..60 {
        let mut random = Random(seed);
        store.fail_reads(move || random.one_in(4).then(|| FAULTS[random.below(FAULTS.len())]));
        let scheduler = Scheduler::new(1 << 30);
        let scan = collect(some_rows(&file).with_scheduler(Arc::clone(&scheduler)));
        match tokio::time::timeout(Duration::from_secs(30), scan).await.expect("it ends") {
            Ok(rows) => {
                assert_eq!(rows, expected, "seed {seed}");
                right += 1;
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(OBJECT) && message.contains("reading bytes"), "{message}");
                failed += 1;
            }
        }
        settled(&scheduler, &store).await;
    }
    assert!(right > 0 && failed > 0, "{right} right, {failed} failed");
}

#[tokio::test]
async fn a_read_that_breaks_off_goes_on_where_it_was_if_it_had_got_anywhere() {
    let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values((0..500_000).map(scattered)));
    let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let (store, file) = stored(written([&rows], WriteOptions::new()).await).await;
    let breaks = |times: usize| {
        let mut left = times;
        store.fail_reads(move || {
            left = left.saturating_sub(1);
            (left > 0).then_some(Fault::Breaks)
        });
    };
    breaks(3);
    assert_eq!(collect(file.scan()).await.unwrap(), rows);
    // Half of the rest each time, and in the end nearly nothing.
    breaks(usize::MAX);
    let message = collect(file.scan()).await.unwrap_err().to_string();
    assert!(message.contains("connection reset") && message.contains(OBJECT), "{message}");
}

#[tokio::test]
async fn an_object_whose_end_is_late_is_asked_for_again_or_given_up() {
    let (store, _) = stored(contents()).await;
    let (shared, path) = (Arc::clone(&store) as Arc<dyn ObjectStore>, Path::from(OBJECT));
    for (fault, hedge, expected) in [
        (Fault::Stalls, 4, Some(3)),
        (Fault::StallsMidway, 4, Some(3)),
        (Fault::Stalls, 0, None),
        (Fault::StallsMidway, 0, None),
    ] {
        let scheduler = Scheduler::with_stall(1 << 20, Duration::from_millis(500));
        // More than any read by which the bandwidth was measured.
        let find = async || scheduler.find_object(&shared, &path, 512 << 10, hedge).await;
        let first = find().await.unwrap();
        let mut fault = Some(fault);
        store.fail_reads(move || fault.take());
        match (find().await, expected) {
            (Ok(found), Some(reads)) => {
                assert_eq!((found.meta(), store.reads.take()), (first.meta(), reads));
            }
            (found, _) => {
                let error = found.map(|_| ()).unwrap_err();
                let message = error.to_string();
                assert!(message.contains("no data received") && message.contains(OBJECT), "{message}");
                assert!(error.is_transient(), "{message}");
                assert_eq!(expected, None);
            }
        }
    }
}

#[tokio::test]
async fn an_end_that_arrives_slowly_is_waited_for() {
    let (store, _) = stored(contents()).await;
    let (shared, path) = (Arc::clone(&store) as Arc<dyn ObjectStore>, Path::from(OBJECT));
    let stall = Duration::from_millis(500);
    store.set_piece_len(1000);
    store.set_piece_time(stall / 5);
    let started = std::time::Instant::now();
    let found = Scheduler::with_stall(1 << 20, stall).find_object(&shared, &path, 10_000, 0).await.unwrap();
    assert_eq!((found.meta().size, store.reads.take()), (contents().len() as u64, 1));
    assert!(started.elapsed() > stall, "no piece took as long");
}

#[test]
fn an_object_is_not_found_by_a_runtime_without_timers() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let shared = TestStore::new() as Arc<dyn ObjectStore>;
    let found = runtime.block_on(find(&shared, &Path::from(OBJECT), 10));
    assert!(found.unwrap_err().to_string().contains(OBJECT));
}

#[tokio::test]
async fn an_end_that_is_read_is_not_requested_again_by_a_cache() {
    let (store, _) = stored(contents()).await;
    let (shared, path) = (Arc::clone(&store) as Arc<dyn ObjectStore>, Path::from(OBJECT));
    let object = find(&shared, &path, 1 << 30).await.unwrap();
    let cached = object.cached(BlockCache::new(64 << 20), 1 << 20);
    let options = OpenOptions::new().with_file_size(contents().len() as u64);
    options.open(Arc::new(cached)).await.unwrap();
    assert_eq!(store.reads.take(), 1);
}

#[tokio::test]
async fn a_store_that_is_busy_for_a_while_only_takes_longer() {
    let (store, file) = stored(contents()).await;
    let expected = collect(some_rows(&file)).await.unwrap();
    let mut left = 3;
    store.fail_reads(move || {
        left -= i32::from(left > 0);
        (left > 0).then_some(Fault::Busy)
    });
    assert_eq!(collect(some_rows(&file)).await.unwrap(), expected);
}

#[tokio::test]
async fn a_store_that_is_always_busy_is_given_up() {
    let (store, file) = stored(contents()).await;
    store.fail_reads(|| Some(Fault::Busy));
    let message = collect(some_rows(&file)).await.unwrap_err().to_string();
    assert!(message.contains("503") && message.contains(OBJECT), "{message}");
}

#[tokio::test]
async fn a_read_that_stalls_fails_in_the_time_declared() {
    let (store, file) = stored(contents()).await;
    store.fail_reads(|| Some(Fault::Stalls));
    let scheduler = Scheduler::with_stall(1 << 30, Duration::from_millis(50));
    let scan = collect(some_rows(&file).with_scheduler(Arc::clone(&scheduler)));
    let outcome = tokio::time::timeout(Duration::from_secs(10), scan).await.expect("must not hang");
    let error = outcome.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("no data received") && message.contains(OBJECT), "{message}");
    assert!(error.is_transient());
    settled(&scheduler, &store).await;
}

#[tokio::test]
async fn an_object_that_changes_between_reads_is_an_error_and_not_a_mixture() {
    let (store, file) = stored(contents()).await;
    store.put(&Path::from(OBJECT), contents().into()).await.unwrap();
    let error = collect(file.scan()).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains(OBJECT) && message.contains("match"), "{message}");
    assert_replaced(&error);
}

#[tokio::test]
async fn an_object_that_became_shorter_is_an_error() {
    let (store, file) = stored(contents()).await;
    let path = Path::from(OBJECT);
    store.put(&path, contents().slice(..1000).into()).await.unwrap();
    let meta = ObjectMeta { size: contents().len() as u64, ..store.inner.head(&path).await.unwrap() };
    let source = Arc::new(ObjectFile::new(Arc::clone(&store) as _, meta));
    let file = VortexFile::from_footer(source, Arc::clone(file.footer()));
    let error = collect(file.scan()).await.unwrap_err();
    assert!(error.to_string().contains(OBJECT), "{error}");
    assert_replaced(&error);
}

#[tokio::test]
async fn an_object_with_a_weak_tag_is_read_although_servers_find_that_it_does_not_match() {
    let (store, _) = stored(contents()).await;
    let meta = store.inner.head(&Path::from(OBJECT)).await.unwrap();
    let meta = ObjectMeta { e_tag: Some("W/\"1\"".into()), ..meta };
    let source = Arc::new(ObjectFile::new(Arc::clone(&store) as _, meta));
    let file = VortexFile::open(source).await.unwrap();
    assert_eq!(collect(file.scan()).await.unwrap().num_rows() as u64, file.row_count());
}

/// It must be told from failures after which the same request may succeed.
fn assert_replaced(error: &Error) {
    let Error::Read { source, .. } = error.root() else { panic!("{error}") };
    let is_replaced = matches!(source.downcast_ref(), Some(object_store::Error::Precondition { .. }));
    assert!(is_replaced && !error.is_transient(), "{error:?}");
}

#[tokio::test]
async fn a_dropped_scan_leaves_no_read_in_flight_and_its_budget_empty() {
    let (store, file) = stored(contents()).await;
    store.set_latency(Duration::from_secs(60));
    let scheduler = Scheduler::new(1 << 30);
    let mut stream = some_rows(&file).with_scheduler(Arc::clone(&scheduler)).into_stream().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), stream.next()).await.is_err());
    assert!(store.in_flight.get() > 0);
    drop(stream);
    settled(&scheduler, &store).await;
    let reads = store.reads.get();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.reads.get(), reads, "nothing is asked for afterwards");
}

#[tokio::test]
async fn a_dropped_aggregation_leaves_no_read_in_flight_and_its_budget_empty() {
    let (store, file) = stored(contents()).await;
    store.set_latency(Duration::from_secs(60));
    let scheduler = Scheduler::new(1 << 30);
    let aggregation = some_rows(&file).with_scheduler(Arc::clone(&scheduler)).aggregate();
    assert!(tokio::time::timeout(Duration::from_millis(50), aggregation).await.is_err());
    let reads = store.reads.get();
    assert!(reads > 0);
    settled(&scheduler, &store).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.reads.get(), reads, "nothing is asked for afterwards");
}

#[tokio::test]
async fn a_scan_takes_few_reads_and_counts_them() {
    let (store, file) = stored(contents()).await;
    let metrics = Arc::new(ScanMetrics::default());
    collect(file.scan().with_metrics(Arc::clone(&metrics))).await.unwrap();
    let bytes = metrics.bytes_read.get();
    assert_eq!(store.reads.get(), 1, "all columns are adjacent");
    assert_eq!(metrics.reads.get(), 1);
    assert_eq!(store.bytes.get(), bytes);
    assert!(bytes <= file.footer().file_size(), "{bytes}");
    assert!(metrics.bytes_wasted.get() * 10 <= bytes);

    let metrics = Arc::new(ScanMetrics::default());
    collect(some_rows(&file).with_metrics(Arc::clone(&metrics))).await.unwrap();
    let snapshot = metrics.snapshot();
    assert!(metrics.reads.get() <= 3, "one for the filter, two for the rest: {snapshot:?}");
}

#[tokio::test]
async fn a_limit_stops_reading() {
    let (_, file) = stored(contents()).await;
    let metrics = Arc::new(ScanMetrics::default());
    let never = Scalar::try_new(DType::Primitive(PType::I64, false), Value::Int(0)).unwrap();
    let filter = Expr::compare("l_orderkey", CompareOp::Gt, never);
    let scan = file.scan().with_filter(filter).with_limit(5).with_metrics(Arc::clone(&metrics));
    assert_eq!(collect(scan).await.unwrap().num_rows(), 5);
    assert!(metrics.splits_scanned.get() <= 2);
}

/// Ranges that are not needed must not be requested.
#[tokio::test]
async fn an_empty_projection_reads_nothing() {
    let (store, file) = stored(contents()).await;
    let none: [&str; 0] = [];
    let rows = collect(file.scan().with_projection(none)).await.unwrap();
    assert_eq!(rows.num_rows() as u64, file.row_count());
    assert_eq!(store.reads.get(), 0);
}

#[tokio::test]
async fn a_file_is_found_by_its_end_which_is_read_once() {
    let store = TestStore::new();
    let path = Path::from("x");
    // The end that is read begins up to 64 bytes sooner than asked for.
    let bytes: Vec<u8> = (0..200).collect();
    store.put(&path, bytes.clone().into()).await.unwrap();
    let shared: Arc<dyn ObjectStore> = Arc::clone(&store) as _;

    let object = find(&shared, &path, 0).await.unwrap();
    assert_eq!((object.meta().size, store.reads.take()), (200, 1));
    assert_eq!(object.read(100..140).await.unwrap(), bytes[100..140], "begins before the end");
    assert_eq!(store.reads.take(), 1);
    assert_eq!(object.read(160..190).await.unwrap(), bytes[160..190]);
    assert_eq!(store.reads.take(), 0);
    assert_eq!(object.read(160..190).await.unwrap(), bytes[160..190], "is not kept");
    assert_eq!(store.reads.take(), 1);
    let small = find(&shared, &path, 1000).await.unwrap();
    assert_eq!(small.read(0..200).await.unwrap(), bytes);
    assert!(small.read(150..250).await.is_err());

    let error = find(&shared, &Path::from("none"), 50).await.unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
}
