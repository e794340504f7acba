//! The metrics of scans, compared with the requests to a store in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use datafusion_datasource::source::DataSourceExec;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use test_store::TestStore;

use crate::counting::over;
use crate::distant::write_large;
use crate::files::{copy, create, numbers, physical, run, show};

/// Number of rows of the table `large`.
const ROWS: usize = 500_000;
const ZONE: usize = 8192;
const ZONES: usize = ROWS.div_ceil(ZONE);

/// A session with one partition over `large`, whose footer is cached.
async fn session() -> (Arc<TestStore>, SessionContext) {
    let store = TestStore::new();
    let context = over(&store, None);
    run(&context, "SET datafusion.execution.target_partitions = 1").await;
    write_large(&context).await;
    store.take();
    (store, context)
}

/// The metrics of a query's only scan, by name.
#[derive(Debug)]
struct Found(HashMap<String, usize>);

impl Found {
    async fn of(context: &SessionContext, sql: &str) -> Self {
        let plan = physical(context, sql).await;
        collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        let metrics = scan_metrics(&plan).expect("the plan scans a file").aggregate_by_name();
        let value = |metric: &Arc<datafusion::physical_plan::Metric>| {
            (metric.value().name().to_owned(), metric.value().as_usize())
        };
        Self(metrics.iter().map(value).collect())
    }

    fn get<const N: usize>(&self, names: [&str; N]) -> [usize; N] {
        names.map(|name| *self.0.get(name).unwrap_or_else(|| panic!("no {name} among {:?}", self.0)))
    }
}

fn scan_metrics(plan: &Arc<dyn ExecutionPlan>) -> Option<MetricsSet> {
    if plan.is::<DataSourceExec>() {
        return plan.metrics();
    }
    plan.children().into_iter().find_map(scan_metrics)
}

const SPLITS: [&str; 5] =
    ["splits_planned", "splits_pruned", "splits_pruned_dynamic_filter", "splits_scanned", "splits_withdrawn"];

#[tokio::test(flavor = "multi_thread")]
async fn reads_and_bytes_are_those_that_the_store_has_seen() {
    let (store, context) = session().await;
    let size = store.inner.head(&Path::from("large.vortex")).await.unwrap().size;
    for sql in [
        "SELECT sum(mixed * 2) FROM large",
        "SELECT sum(mixed * 2), max(text || 'x') FROM large",
        "SELECT text FROM large WHERE key = 400000",
        "SELECT key, text FROM large WHERE mixed = 12345",
        "SELECT * FROM large ORDER BY key DESC LIMIT 10",
        "SELECT key FROM large WHERE key > 900000",
    ] {
        store.take();
        let found = Found::of(&context, sql).await;
        let (reads, bytes) = store.take();
        assert_eq!(
            found.get(["reads", "bytes_scanned"]),
            [reads, bytes].map(|count| count as usize),
            "{sql}"
        );
        let [requests, wasted] = found.get(["requests", "bytes_wasted_gap"]);
        assert!(requests as u64 >= reads && wasted <= bytes as usize && bytes <= size, "{sql}: {found:?}");
        let [peak] = found.get(["peak_inflight_bytes"]);
        assert_eq!(peak > 0, reads > 0, "{sql}: {found:?}");
        assert!(peak as u64 <= size, "{sql}: {found:?}");
        assert_eq!(found.get(["cache_hits", "reads_hedged"]), [0, 0], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_gaps_are_wasted() {
    let (store, context) = session().await;
    // Separate queries read each column by itself; a query for all of them also reads the gaps in between.
    let mut wanted = 0;
    for column in ["key", "text"] {
        let found = Found::of(&context, &format!("SELECT max({column} || 'x') FROM large")).await;
        let [bytes, wasted] = found.get(["bytes_scanned", "bytes_wasted_gap"]);
        wanted += bytes - wasted;
    }
    store.take();
    let both = "SELECT max(key || 'x'), max(text || 'x') FROM large";
    let [bytes, wasted] = Found::of(&context, both).await.get(["bytes_scanned", "bytes_wasted_gap"]);
    assert_eq!((store.take().1 as usize, bytes - wasted), (bytes, wanted));
    assert!(wasted > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_of_everything_prunes_nothing() {
    let (store, context) = session().await;
    store.set_latency(Duration::from_millis(200));
    let found = Found::of(&context, "SELECT sum(mixed * 2) FROM large").await;
    let [planned, by_statistics, by_filter, scanned, withdrawn] = found.get(SPLITS);
    assert!(planned > 0);
    assert_eq!([by_statistics, by_filter, scanned, withdrawn], [0, 0, planned, 0]);
    let rows = ["pushdown_rows_matched", "pushdown_rows_pruned", "rows_pruned_statistics"];
    assert_eq!(found.get(rows), [ROWS, 0, 0]);
    let [decoding, waiting] = found.get(["decode_time", "io_wait_time"]);
    assert!(decoding > 0 && waiting > 10_000_000, "{found:?}");
    assert_eq!(found.get(["zones_pruned_statistics", "zones_fully_matched"]), [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_prune_zones_splits_and_rows() {
    let (_, context) = session().await;
    let found = Found::of(&context, "SELECT text FROM large WHERE key = 400000").await;
    let [planned, by_statistics, by_filter, scanned, _] = found.get(SPLITS);
    assert_eq!([by_statistics, by_filter, scanned], [planned - 1, 0, 1]);
    let rows = ["pushdown_rows_matched", "pushdown_rows_pruned", "rows_pruned_statistics"];
    assert_eq!(found.get(rows), [1, ZONE - 1, ROWS - ZONE]);
    assert_eq!(found.get(["zones_pruned_statistics", "zones_fully_matched"]), [ZONES - 1, 0]);
    assert!(found.get(["predicate_eval_time"])[0] > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_prune_by_comparisons_of_what_keeps_the_order_of_a_column() {
    let (_, context) = session().await;
    let time = "arrow_cast(key, 'Timestamp(Second, None)')";
    let times = format!(
        "COPY (SELECT {time} AS time, arrow_cast({time}, 'Timestamp(Second, Some(\"UTC\"))') AS utc, key, \
         lpad(key::varchar, 6, '0') AS code FROM large) TO 'counting://store/times.vortex' STORED AS VORTEX"
    );
    run(&context, &times).await;
    create(&context, "times", "counting://store/times.vortex").await;
    for (condition, rows) in [
        ("time::date = '1970-01-03'", 86_400),
        ("time::date IN ('1970-01-01', '1970-01-02')", 2 * 86_400 - 1),
        ("'1970-01-01' = time::date", 86_399),
        ("time::date > '1970-01-05'", ROWS + 1 - 5 * 86_400),
        ("key < 500.5", 500),
        ("key = 7.0", 1),
        ("key IN (7.0, 8.0)", 2),
        ("key::double BETWEEN 10 AND 20", 11),
        ("time::date = (SELECT min(time)::date FROM times)", 86_399),
        ("utc::date = '1970-01-03'", 86_400),
        ("date_trunc('day', time) = '1970-01-03'", 86_400),
        ("date_trunc('day', utc)::date IN ('1970-01-03', '1970-01-04')", 2 * 86_400),
        ("date_trunc('hour', time::date) <= '1970-01-01'", 86_399),
        ("time + INTERVAL '2 hours' < '1970-01-01T03:00:00'", 3_599),
        ("to_timestamp(key) BETWEEN '1970-01-01T01:00:00' AND '1970-01-01T01:59:59'", 3_600),
        ("key / 1000 = 5", 1_000),
        ("left(code, 3) = '005'", 1_000),
        ("substr(code, 1, 4) IN ('0051', '0052')", 200),
    ] {
        let sql = format!("SELECT key % 2 FROM times WHERE {condition}");
        let found = Found::of(&context, &sql).await;
        let [matched, pruned, scanned] =
            found.get(["pushdown_rows_matched", "rows_pruned_statistics", "pushdown_rows_pruned"]);
        assert_eq!((matched, matched + pruned + scanned), (rows, ROWS), "{condition}");
        assert!(scanned <= 2 * ZONE, "{condition}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_that_match_as_a_whole_are_counted() {
    let (_, context) = session().await;
    // Half of zone 30 matches.
    let first = 30 * ZONE + ZONE / 2;
    let found = Found::of(&context, &format!("SELECT text FROM large WHERE key > {first}")).await;
    let zones = ["zones_pruned_statistics", "zones_fully_matched", "zones_pruned_dynamic_filter"];
    assert_eq!(found.get(zones), [30, ZONES - 31, 0]);
    let rows = ["pushdown_rows_matched", "pushdown_rows_pruned", "rows_pruned_statistics"];
    assert_eq!(found.get(rows), [ROWS - first, ZONE / 2, 30 * ZONE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamic_filters_prune_zones_and_splits() {
    let (_, context) = session().await;
    let found = Found::of(&context, "SELECT text FROM large ORDER BY key DESC LIMIT 10").await;
    let [planned, by_statistics, by_filter, scanned, withdrawn] = found.get(SPLITS);
    assert_eq!(by_statistics, 0);
    assert!(by_filter > 0 && by_filter + scanned == planned, "{found:?}");
    assert!(withdrawn < scanned, "{found:?}");
    let [by_statistics, by_filter] = found.get(["zones_pruned_statistics", "zones_pruned_dynamic_filter"]);
    assert!(by_statistics == 0 && by_filter > ZONES / 2 && by_filter < ZONES, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_scan_decodes_only_as_many_of_the_best_rows_as_are_wanted() {
    let (_, context) = session().await;
    for wanted in [1, 20] {
        let sql = format!("SELECT * FROM large ORDER BY mixed DESC LIMIT {wanted}");
        let found = Found::of(&context, &sql).await;
        assert_eq!(found.get(["output_rows"]), [wanted], "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_join_would_reject_are_not_decoded() {
    let (_, context) = session().await;
    let of_partitions = [
        "SET datafusion.execution.target_partitions = 2",
        "SET datafusion.optimizer.hash_join_single_partition_threshold = 0",
        "SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0",
    ];
    for (settings, mode) in [(&of_partitions[..0], "CollectLeft"), (&of_partitions, "Partitioned")] {
        for setting in settings {
            run(&context, setting).await;
        }
        // DataFusion passes on a list of the keys, or a look-up in the table that it has built of them.
        for (keys, filter) in [(100, "IN (SET)"), (998, "hash_lookup")] {
            let keyed = format!("(SELECT value * 499 AS k FROM generate_series(1, {keys})) JOIN large");
            for on in ["key = k", "key = k AND mixed < k * 1000000"] {
                let sql = format!("SELECT text, k FROM {keyed} ON {on}");
                let plan = show(&context, &format!("EXPLAIN ANALYZE {sql}")).await;
                assert!(plan.contains(filter) && plan.contains(mode), "{plan}");
                assert_eq!(Found::of(&context, &sql).await.get(["output_rows"]), [keys], "{sql}");
                assert_eq!(run(&context, &sql).await.num_rows(), keys, "{sql}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_with_keys_for_most_rows_is_not_done_twice() {
    let (_, context) = session().await;
    let sql =
        "SELECT text FROM (SELECT value * 2 AS k FROM generate_series(1, 200000)) JOIN large ON key = k";
    let found = Found::of(&context, sql).await;
    let [read, rejected] = found.get(["output_rows", "pushdown_rows_pruned"]);
    assert!(read > 390_000 && rejected < 50_000, "{found:?}");
    assert_eq!(run(&context, sql).await.num_rows(), 200_000);
    // Nor is anything decoded for it that only DataFusion can evaluate, if the session does not want that.
    run(&context, "SET vortex.fallback_filter_eval = false").await;
    let sql = "SELECT text FROM (SELECT value * 499 AS k FROM generate_series(1, 998)) JOIN large ON key = k";
    let found = Found::of(&context, sql).await;
    assert!(found.get(["output_rows"]) > [490_000], "{found:?}");
    assert_eq!(run(&context, sql).await.num_rows(), 998);
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_of_a_cache_are_hits_and_no_reads() {
    let (store, context) = session().await;
    run(&context, "SET vortex.segment_cache = 100000000").await;
    let sql = "SELECT sum(mixed * 2), max(text || 'x') FROM large";
    let first = Found::of(&context, sql).await;
    let [reads, hits] = first.get(["reads", "cache_hits"]);
    assert_eq!((reads as u64, hits), (store.take().0, 0));
    let second = Found::of(&context, sql).await;
    let [reads, bytes, requests, hits] = second.get(["reads", "bytes_scanned", "requests", "cache_hits"]);
    assert_eq!((reads, bytes, hits), (0, 0, requests));
    assert!(hits > 0);
    assert_eq!(store.take(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_may_not_prune_reads_all_and_answers_the_same() {
    let (_, pruned) = session().await;
    let (_, whole) = session().await;
    run(&whole, "SET vortex.prune = false").await;
    for sql in [
        "SELECT text FROM large WHERE key = 400000",
        "SELECT count(text), sum(mixed * 2) FROM large WHERE key > 250000 AND mixed < 1000",
        "SELECT text FROM large WHERE key > 900000",
        "SELECT key, text FROM large ORDER BY key DESC LIMIT 10",
        "SELECT key FROM large WHERE key IN (7, 300000) OR text = 'text 0' ORDER BY key",
    ] {
        assert_eq!(show(&whole, sql).await, show(&pruned, sql).await, "{sql}");
        let found = Found::of(&whole, sql).await;
        let [planned, by_statistics, by_filter, scanned, withdrawn] = found.get(SPLITS);
        assert_eq!([by_statistics, by_filter, scanned, withdrawn], [0, 0, planned, 0], "{sql}");
        let zones = ["zones_pruned_statistics", "zones_pruned_dynamic_filter", "zones_fully_matched"];
        assert_eq!(found.get(zones), [0, 0, 0], "{sql}");
        assert_eq!(found.get(["rows_pruned_statistics"]), [0], "{sql}");
        assert_eq!(found.0.get("files_ranges_pruned_statistics"), Some(&0), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_shows_them_all() {
    let (_, context) = session().await;
    let plan = show(&context, "EXPLAIN ANALYZE SELECT text FROM large WHERE mixed < 7").await;
    for name in [
        "reads",
        "requests",
        "bytes_scanned",
        "bytes_wasted_gap",
        "splits_planned",
        "splits_pruned",
        "splits_pruned_dynamic_filter",
        "splits_scanned",
        "pushdown_rows_pruned",
        "zones_fully_matched",
        "peak_inflight_bytes",
        "io_wait_time",
        "decode_time",
        "predicate_eval_time",
        "cache_hits",
    ] {
        assert!(plan.contains(&format!("{name}=")), "{name} in {plan}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_files_of_one_day_the_last_hour_is_read_first() {
    let store = TestStore::new();
    let context = over(&store, None);
    run(&context, "SET datafusion.execution.target_partitions = 1").await;
    for hour in 10..20 {
        let rows = format!("SELECT 7 AS day, {hour} * 1000 + value AS time FROM generate_series(1, 1000)");
        copy(&context, &rows, format!("counting://store/log/{hour}.vortex")).await;
    }
    create(&context, "log", "counting://store/log/").await;
    let sql = "SELECT day, time FROM log ORDER BY day DESC, time DESC LIMIT 3";
    assert_eq!(numbers(&run(&context, sql).await, 1), [20_000, 19_999, 19_998]);
    let found = Found::of(&context, sql).await;
    assert!(found.get(["output_rows"])[0] <= 1000, "{found:?}");
}

#[tokio::test]
async fn files_excluded_by_their_constants_count_as_pruned() {
    let store = TestStore::new();
    let context = over(&store, None);
    let rows = "SELECT value AS key, value % 2 AS part FROM generate_series(1, 10)";
    run(
        &context,
        &format!("COPY ({rows}) TO 'counting://store/parts/' STORED AS VORTEX PARTITIONED BY (part)"),
    )
    .await;
    create(&context, "parts", "counting://store/parts/").await;
    let sql = "SELECT key FROM parts WHERE input_file_name() LIKE '%part=1%'";
    for prune in [true, false] {
        run(&context, &format!("SET vortex.prune = {prune}")).await;
        let plan = physical(&context, sql).await;
        let rows = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
        let metrics = scan_metrics(&plan).unwrap().aggregate_by_name();
        let files = metrics.iter().find(|metric| metric.value().name() == "files_ranges_pruned_statistics");
        let files = files.unwrap().value().to_string();
        assert!(files.starts_with("2 total → 1 matched"), "{files}");
    }
}
