//! How many requests and bytes scans need from a remote store.

use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::physical_plan::{ExecutionPlanProperties as _, displayable};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use test_store::{ReadFault, TestStore};

use crate::counting::{over, session, settle};
use crate::files::{copy, create, number, physical, plan, run, show};

#[tokio::test(flavor = "multi_thread")]
async fn a_small_file_is_read_once_whatever_is_asked_of_it() {
    let (store, context) = session(20, None).await;
    run(&context, "SELECT sum(l_quantity), min(l_comment) FROM lines WHERE l_shipmode <> 'AIR'").await;
    run(&context, "SELECT count(*), max(l_orderkey) FROM lines").await;
    assert_eq!(store.reads.get(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn footers_are_kept_of_more_small_files_than_the_cache_has_room_for() {
    let store = TestStore::new();
    let context = over(&store, None);
    let rows = "SELECT value AS a, value * value % 1000003 AS b FROM generate_series(1, 10000)";
    copy(&context, rows, "counting://store/t/00.vortex").await;
    for file in 1..60 {
        let copy = Path::from(format!("t/{file:02}.vortex"));
        store.inner.copy(&Path::from("t/00.vortex"), &copy).await.unwrap();
    }
    let size = store.inner.head(&Path::from("t/00.vortex")).await.unwrap().size as usize;
    assert!((20_000..60_000).contains(&size), "{size}");
    context.runtime_env().cache_manager.get_file_metadata_cache().update_cache_limit(30 * size);
    create(&context, "t", "counting://store/t/").await;
    for column in ["a", "b"] {
        assert_eq!(number(&context, &format!("SELECT count({column}) FROM t")).await, 600_000);
    }
    let reads = store.reads.get();
    assert!(reads < 70, "{reads} reads of 60 files");
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_share_no_files_open_only_their_own() {
    let (store, context) = session(20, None).await;
    // Otherwise, the files would be known since the table was created.
    context.runtime_env().cache_manager.get_file_metadata_cache().update_cache_limit(0);
    for (is_shared, expected) in [(false, 10), (true, 20)] {
        let share = format!("SET datafusion.execution.enable_file_stream_work_stealing = {is_shared}");
        run(&context, &share).await;
        let plan = physical(&context, "SELECT l_comment FROM lines").await;
        assert_eq!(plan.output_partitioning().partition_count(), 2);
        store.take();
        let batches = plan.execute(0, context.task_ctx()).unwrap();
        batches.try_collect::<Vec<_>>().await.unwrap();
        assert_eq!(store.reads.get(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_an_order_are_those_of_a_full_sort() {
    let (_, context) = session(3, None).await;
    for order in ["l_orderkey DESC", "l_orderkey", "l_extendedprice DESC", "l_comment", "l_shipdate DESC"] {
        let columns = "l_orderkey, l_linenumber, l_extendedprice, l_comment, l_shipdate";
        let rest = "l_orderkey, l_linenumber";
        let few = format!("SELECT {columns} FROM lines ORDER BY {order}, {rest} LIMIT 20");
        let all = format!(
            "SELECT {columns} FROM (SELECT *, row_number() OVER (ORDER BY {order}, {rest}) AS n FROM lines) \
             WHERE n <= 20 ORDER BY n"
        );
        assert_eq!(show(&context, &few).await, show(&context, &all).await, "{order}");
    }
    let plan = plan(&context, "SELECT * FROM lines ORDER BY l_orderkey LIMIT 3").await;
    assert!(plan.contains("best_first=[l_orderkey@0 ASC], best_rows=3"), "{plan}");
}

#[tokio::test]
async fn a_scan_for_a_full_sort_reads_no_rows_first() {
    let (_, context) = session(3, None).await;
    let plan = plan(&context, "SELECT * FROM lines ORDER BY l_orderkey").await;
    assert!(plan.contains("SortExec") && !plan.contains("best_first"), "{plan}");
}

#[tokio::test]
async fn a_failure_of_the_store_is_told_as_one() {
    let (store, context) = session(1, None).await;
    // Otherwise, the file would be open since the table was created.
    context.runtime_env().cache_manager.get_file_metadata_cache().update_cache_limit(0);
    store.fail_reads(|| Some(ReadFault::Fails));
    let error = context.sql("SELECT max(l_comment) FROM lines").await.unwrap().collect().await.unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ObjectStore(_)), "{error}");
    assert!(error.to_string().contains("000.vortex"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_refuses_slows_a_scan_down_and_does_not_fail_it() {
    let sql = "SELECT sum(l_quantity), sum(l_extendedprice), count(l_comment) FROM lines";
    let (_, roomy) = session(3, None).await;
    let (_, tight) = session(3, Some(100_000)).await;
    assert_eq!(show(&roomy, sql).await, show(&tight, sql).await);
    assert_eq!(tight.runtime_env().memory_pool.reserved(), 0);
}

/// Writes a table as one file of some megabytes: a sorted key, and an unsorted number and text.
pub(crate) async fn write_large(context: &SessionContext) {
    let rows = "SELECT value AS key, value * value % 1000003 AS mixed, \
                       'text ' || (value * value % 99991 * value % 1000003) AS text \
                FROM generate_series(1, 500000)";
    copy(context, rows, "counting://store/large.vortex").await;
    create(context, "large", "counting://store/large.vortex").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_ask_for_few_reads_and_no_more_bytes_than_they_need() {
    let (store, context) = session(1, None).await;
    write_large(&context).await;
    let size = store.inner.head(&Path::from("large.vortex")).await.unwrap().size;
    // Slow enough that both partitions request what they share before either has it.
    store.set_latency(Duration::from_millis(20));
    // The footer and the zone tables are cached since the table was created. All columns of the table are so
    // close that gaps between them are worth reading.
    let cases = [
        // Statistics answer the query, or exclude all rows.
        ("SELECT count(*), max(key), sum(mixed) FROM large", 0, 0),
        ("SELECT key FROM large WHERE key = 600000", 0, 0),
        // A chunk of keys determines the row; then a chunk of texts is read.
        ("SELECT text FROM large WHERE key = 400000", 2, 420_000),
        // Each partition reads its last keys; then one chunk of each other column is read.
        ("SELECT * FROM large ORDER BY key DESC LIMIT 10", 3, size * 3 / 4),
        // The numbers of each partition; then chunks of keys and texts for the rows found.
        ("SELECT key, text FROM large WHERE mixed = 12345", 4, size * 2 / 5),
        // The keys take so few bytes that they are read together with the numbers.
        ("SELECT key FROM large WHERE mixed = 12345", 2, size * 2 / 5),
        // Every byte of two columns, once; either partition may be the first to request it.
        ("SELECT sum(mixed * 2), max(text || 'x') FROM large", 2, size),
        // The first chunks of all columns.
        ("SELECT * FROM large LIMIT 10", 1, size * 4 / 5),
    ];
    let mut wrong = Vec::new();
    for (sql, reads, bytes) in cases {
        store.take();
        run(&context, sql).await;
        let found = store.take();
        if found.0 > reads || found.1 > bytes {
            wrong.push(format!("{found:?} instead of {:?}: {sql}", (reads, bytes)));
        }
    }
    assert!(wrong.is_empty(), "of {size} bytes:\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn further_files_are_read_together_once_the_first_rows_are_not_enough() {
    let (store, context) = session(1, None).await;
    for file in 0..24 {
        let rows = format!(
            "SELECT value AS key, value * value % 1000003 AS mixed FROM generate_series({}, {})",
            file * 100_000 + 1,
            (file + 1) * 100_000
        );
        copy(&context, &rows, &format!("counting://store/many/{file:02}.vortex")).await;
    }
    create(&context, "many", "counting://store/many/").await;
    store.set_latency(Duration::from_millis(20));
    for (sql, most) in [
        ("SELECT mixed FROM many WHERE mixed = 5", 6),
        ("SELECT mixed FROM many WHERE mixed = 5 LIMIT 1000", 12),
        ("SELECT key FROM many WHERE mixed = 5 ORDER BY key DESC LIMIT 1000", 18),
    ] {
        store.alone.take();
        run(&context, sql).await;
        let rounds = store.alone.take();
        assert!(rounds <= most, "{rounds} rounds of reads: {sql}");
    }
    store.take();
    run(&context, "SELECT mixed FROM many LIMIT 10").await;
    let (reads, _) = store.take();
    assert!(reads <= 2, "{reads} reads, for as many partitions");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_stalls_is_repeated() {
    let (store, context) = session(1, None).await;
    write_large(&context).await;
    store.set_latency(Duration::from_millis(2));
    // Measures the store.
    for key in 1..=15 {
        run(&context, &format!("SELECT text FROM large WHERE key = {}", key * 20_000)).await;
    }
    run(&context, "SET vortex.hedge = 4").await;
    let mut stalls = Some(ReadFault::Stalls);
    store.fail_reads(move || stalls.take());
    let rows = run(&context, "SELECT text FROM large WHERE key = 400000");
    let rows = tokio::time::timeout(Duration::from_secs(20), rows).await.expect("another read is answered");
    assert_eq!(rows.num_rows(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_much_of_the_end_of_a_file_is_read_as_asked_for() {
    let (store, context) = session(1, None).await;
    write_large(&context).await;
    for (at, asked) in [(1, 100_000), (2, 300_000)] {
        let copy = format!("{at}.vortex");
        store.inner.copy(&Path::from("large.vortex"), &Path::from(copy.as_str())).await.unwrap();
        run(&context, &format!("SET vortex.footer_read_size = {asked}")).await;
        store.take();
        create(&context, &format!("t{at}"), format!("counting://store/{copy}")).await;
        let (reads, bytes) = store.take();
        // The read starts at a multiple of 64.
        assert!(reads == 1 && (asked..=asked + 64).contains(&bytes), "{asked}: {bytes} in {reads} reads");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_is_dropped_leaves_no_request_and_no_memory() {
    let (store, context) = session(1, Some(64 << 20)).await;
    write_large(&context).await;
    let rows = "SELECT value * value % 1000003 AS mixed, value % 5 AS few FROM generate_series(1, 1000000)";
    copy(&context, rows, "counting://store/grouped.vortex").await;
    create(&context, "grouped", "counting://store/grouped.vortex").await;
    let statements = [
        "SELECT max(text) FROM large WHERE mixed > 5",
        "SELECT * FROM large ORDER BY mixed LIMIT 10",
        "SELECT sum(mixed * 2), max(text || 'x') FROM large",
        // Groups found by codes.
        "SELECT few, count(*), avg(mixed) FROM grouped GROUP BY few",
    ];
    for sql in statements {
        let plan = physical(&context, sql).await;
        let is_coded = displayable(plan.as_ref()).indent(false).to_string().contains("CodedAggregateExec");
        assert_eq!(is_coded, sql.contains("GROUP BY"));
        store.set_latency(Duration::from_secs(60));
        let query = datafusion::physical_plan::collect(plan, context.task_ctx());
        assert!(tokio::time::timeout(Duration::from_millis(100), query).await.is_err(), "{sql}");
        store.set_latency(Duration::ZERO);
        settle(&store, &context.runtime_env().memory_pool).await;
    }
}
