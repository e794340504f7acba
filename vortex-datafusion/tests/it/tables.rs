//! Tables over files: how they are declared, found and described.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use arrow::array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::collect;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use tempfile::TempDir;
use test_store::{ReadFault, TestStore};
use tokio::time::timeout;
use url::Url;
use vortex_core::array::{EncodedRef, Node};
use vortex_core::encodings::Encoding;
use vortex_core::io::{MemoryFile, ReadAt, Scheduler};
use vortex_core::{Limits, Registry};
use vortex_datafusion::{VortexSessionExt as _, VortexTable, enable_url_tables, register};

use crate::counting;
use crate::files::{
    copy, create, error, file, folder_of, number, physical, plan, run, session, session_with, show, written,
};

#[tokio::test]
async fn a_table_is_created_from_a_folder() {
    let path = file("tpch_orders");
    let folder = folder_of(&[(&path, "a.vortex"), (&path, "b.vortex")]);
    let context = session();
    create(&context, "orders", folder.path().join("").display()).await;
    assert_eq!(number(&context, "SELECT count(*) FROM orders").await, 3000);
}

#[tokio::test]
async fn a_session_may_limit_what_files_demand() {
    let folder = folder_of(&[(&file("tpch_orders"), "a.vortex")]);
    let place = folder.path().join("").display().to_string();
    let limited = |limits: Limits| session_with(SessionConfig::new().with_extension(Arc::new(limits)));
    let table = format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{place}'");
    let message = error(&limited(Limits::new().with_max_columns(3)), &table).await;
    assert!(message.contains("a.vortex") && message.contains("too many fields"), "{message}");
    let context = limited(Limits::new().with_max_decoded_bytes(1000));
    run(&context, &table).await;
    let message = error(&context, "SELECT * FROM t").await;
    assert!(message.contains("a.vortex") && message.contains("1000"), "{message}");
}

/// An encoding that counts how often it is used.
struct Counted(Arc<dyn Encoding>, Arc<AtomicUsize>);

impl Encoding for Counted {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    fn load(&self, node: &Node<'_>) -> vortex_core::Result<EncodedRef> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.load(node)
    }
}

#[tokio::test]
async fn a_session_may_know_other_encodings() {
    let path = file("tpch_orders").display().to_string();
    let uses = Arc::new(AtomicUsize::new(0));
    let known = Registry::built_in();
    let encodings = known.encoding_ids().into_iter().filter_map(|id| known.encoding(id));
    let counted = encodings.fold(known.clone(), |registry, encoding| {
        registry.with_encoding(Arc::new(Counted(Arc::clone(encoding), Arc::clone(&uses))))
    });
    let other = session();
    let context = session_with(SessionConfig::new().with_extension(Arc::new(counted)));
    let context = SessionContext::new_with_state(
        SessionStateBuilder::from(context.state()).with_runtime_env(other.runtime_env()).build(),
    );
    // They share the cache of footers, but not what it has.
    let sql = format!("SELECT sum(length(o_comment)) FROM '{path}'");
    let sum = number(&other, &sql).await;
    assert_eq!(uses.load(Ordering::Relaxed), 0);
    assert_eq!(number(&context, &sql).await, sum);
    let used = uses.load(Ordering::Relaxed);
    assert!(used > 0);
    assert_eq!(number(&other, &sql).await, sum);
    assert_eq!(uses.load(Ordering::Relaxed), used);
}

#[tokio::test]
async fn a_session_may_have_a_scheduler_of_its_own() {
    let path = file("tpch_orders");
    let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(fs::read(&path).unwrap()));
    let open = Arc::new(VortexTable::open([source]).await.unwrap());
    for from in [format!("'{}'", path.display()), "open".to_owned()] {
        let scheduler = Scheduler::new(64 << 20);
        let context = session_with(SessionConfig::new().with_extension(Arc::clone(&scheduler)));
        context.register_table("open", Arc::clone(&open) as _).unwrap();
        run(&context, &format!("SELECT o_comment FROM {from} WHERE o_orderkey % 3 = 1")).await;
        assert!(scheduler.peak_bytes() > 0, "{from}");
        assert_eq!(scheduler.bytes_in_use(), 0);
    }
}

#[tokio::test]
async fn files_folders_and_globs_are_queried_by_path() {
    let path = file("tpch_orders");
    let folder = folder_of(&[(&path, "a.vortex"), (&path, "b.vortex")]);
    let context = session();
    let base = folder.path().display();
    for (from, rows) in
        [(format!("{base}/a.vortex"), 1500), (format!("{base}/"), 3000), (format!("{base}/*.vortex"), 3000)]
    {
        assert_eq!(number(&context, &format!("SELECT count(*) FROM '{from}'")).await, rows, "{from}");
    }
}

#[tokio::test]
async fn partition_columns_come_from_folder_names() {
    let path = file("tpch_orders");
    let folder =
        folder_of(&[(&path, "day=1/a.vortex"), (&path, "day=2/a.vortex"), (&path, "day=3/a.vortex")]);
    let context = session();
    let location = folder.path().display();
    run(
        &context,
        &format!("CREATE EXTERNAL TABLE orders STORED AS VORTEX PARTITIONED BY (day) LOCATION '{location}/'"),
    )
    .await;
    let by_day =
        show(&context, "SELECT day, count(*) FROM orders WHERE day > '1' GROUP BY day ORDER BY day").await;
    assert!(
        by_day.contains("| 2   | 1500") && by_day.contains("| 3   | 1500") && !by_day.contains("| 1 "),
        "{by_day}"
    );
    // A filter over a file's column and a partition column together.
    let both =
        "SELECT count(*) FROM orders WHERE (o_orderkey > 0 AND day = '2') OR (o_orderkey <= 0 AND day = '3')";
    assert_eq!(number(&context, both).await, 1500);
}

#[tokio::test]
async fn counts_and_bounds_need_no_data() {
    let path = file("tpch_orders");
    let context = session();
    let sql = format!("SELECT count(*), min(o_orderkey), max(o_orderkey) FROM '{}'", path.display());
    let plan = plan(&context, &sql).await;
    assert!(plan.contains("PlaceholderRowExec") && !plan.contains("DataSourceExec"), "{plan}");
}

#[tokio::test]
async fn a_file_without_rows_leaves_the_counts_of_others_known() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let place = |name: &str| format!("{}/{name}.vortex", folder.path().display());
    copy(&context, "SELECT 1 AS a WHERE false", place("none")).await;
    copy(&context, "SELECT value AS a FROM generate_series(1, 10)", place("some")).await;
    create(&context, "none", place("none")).await;
    create(&context, "some", place("some")).await;
    let counts = "SELECT count(*), count(a) FROM (SELECT a FROM none UNION ALL SELECT a FROM some)";
    let plan = plan(&context, counts).await;
    assert!(!plan.contains("DataSourceExec"), "{plan}");
    assert!(show(&context, counts).await.contains("| 10 "));
    let constants = "SELECT 5 AS a, 'new' AS b FROM none UNION ALL SELECT 7, 'archive' FROM some";
    let extremes = format!("SELECT min(a), max(b) FROM ({constants})");
    let found = show(&context, &extremes).await;
    assert!(found.contains("| 7 ") && found.contains("| archive "), "{found}");
}

#[tokio::test]
async fn a_cast_that_reorders_one_column_leaves_the_bounds_of_others_known() {
    let path = file("tpch_orders");
    let context = session();
    for (aggregates, cast, are_known) in [
        ("min(k), max(k), count(t), count(*)", "CAST(o_custkey AS VARCHAR)", true),
        ("min(k), count(t)", "CAST(o_orderdate AS VARCHAR)", true),
        ("min(k), max(t)", "CAST(o_custkey AS VARCHAR)", false),
        ("min(k), min(c), count(t)", "CAST(o_custkey AS VARCHAR)", false),
        // Reading the rows fails, and so must the query.
        ("min(k), count(t)", "CAST(o_clerk AS INT)", false),
    ] {
        let columns = format!("o_orderkey AS k, o_custkey AS c, {cast} AS t");
        let sql = format!("SELECT {aggregates} FROM (SELECT {columns} FROM '{}')", path.display());
        let plan = plan(&context, &sql).await;
        assert_eq!(plan.contains("PlaceholderRowExec"), are_known, "{plan}");
        assert_ne!(plan.contains("DataSourceExec"), are_known, "{plan}");
    }
}

#[tokio::test]
async fn an_unknown_option_is_an_error() {
    let path = file("tpch_orders");
    let context = session();
    let create = |options: &str| {
        format!("CREATE EXTERNAL TABLE o STORED AS VORTEX LOCATION '{}' OPTIONS ({options})", path.display())
    };
    let error = context.sql(&create("prun 'true'")).await.unwrap_err().to_string();
    assert!(error.contains("`prun`") && error.contains("prune"), "{error}");
    // Nor is one of a misspelt namespace left to somebody else.
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("a.vortex");
    let copy = format!("COPY (SELECT 1 AS a) TO '{}' OPTIONS ('vortx.level' 'fast')", to.display());
    for sql in [create("'vortx.level' 'fast'"), copy] {
        let error = crate::files::error(&context, &sql).await;
        assert!(error.contains("unknown Vortex option `vortx.level`; there are: "), "{error}");
    }
    run(&context, &create("prune 'false', string_type 'utf8'")).await;
    assert!(show(&context, "DESCRIBE o").await.contains("| Utf8 "));
}

#[tokio::test]
async fn a_session_is_built_with_the_format() {
    let path = file("tpch_orders");
    let state = SessionStateBuilder::new()
        .with_config(SessionConfig::new().set_bool("datafusion.catalog.information_schema", true))
        .with_default_features()
        .with_vortex()
        .build();
    let context = SessionContext::new_with_state(state);
    create(&context, "o", path.display()).await;
    run(&context, "SET vortex.prune = false").await;
    assert!(show(&context, "SHOW vortex.prune").await.contains("false"));
    assert_eq!(number(&context, "SELECT count(*) FROM o").await, 1500);
}

#[tokio::test]
async fn a_plan_runs_more_than_once() {
    let path = file("tpch_orders");
    let context = session();
    let sql = format!("SELECT o_orderkey FROM '{}' WHERE o_custkey > 10", path.display());
    let plan = physical(&context, &sql).await;
    let mut counts = Vec::new();
    for _ in 0..3 {
        // Files shared by partitions are distributed once per reset.
        let plan = reset_plan_states(Arc::clone(&plan)).unwrap();
        let batches = collect(plan, context.task_ctx()).await.unwrap();
        counts.push(batches.iter().map(RecordBatch::num_rows).sum::<usize>());
    }
    assert!(counts[0] > 0 && counts == [counts[0]; 3], "{counts:?}");
}

#[tokio::test]
async fn settings_of_the_session_apply() {
    let path = file("tpch_orders");
    let context = session();
    run(&context, "SET vortex.predicate_pushdown = false").await;
    let sql = format!("SELECT * FROM '{}' WHERE o_orderkey = 7", path.display());
    assert!(plan(&context, &sql).await.contains("FilterExec"));
    run(&context, "SET vortex.predicate_pushdown = true").await;
    assert!(!plan(&context, &sql).await.contains("FilterExec"));
    assert!(context.sql("SET vortex.nonsense = 1").await.is_err());
}

#[tokio::test]
async fn a_file_that_is_not_vortex_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.vortex"), b"this is not a Vortex file at all").unwrap();
    let context = session();
    let create =
        format!("CREATE EXTERNAL TABLE bad STORED AS VORTEX LOCATION '{}/'", folder.path().display());
    let error = context.sql(&create).await.unwrap_err().to_string();
    assert!(error.contains("bad.vortex"), "{error}");
}

#[tokio::test]
async fn a_file_replaced_by_another_is_read_anew() {
    let (orders, part) = (file("tpch_orders"), file("tpch_part"));
    let folder = folder_of(&[(&orders, "a.vortex")]);
    let path = folder.path().join("a.vortex");
    let context = session();
    let sql = format!("SELECT count(*) FROM '{}'", path.display());
    assert_eq!(number(&context, &sql).await, 1500);
    fs::copy(part, &path).unwrap();
    assert_eq!(number(&context, &sql).await, 800);
}

#[tokio::test]
async fn a_file_that_is_replaced_after_planning_is_an_error_although_its_store_has_no_e_tags() {
    let (store, place) = (TestStore::new(), Path::from("a.vortex"));
    let time = |seconds| store.set_time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    // Too large to be read along with its end.
    let scattered = (0..300_000u64).map(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let numbers = scattered.map(|number| (number ^ number >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) as i64);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let rows = RecordBatch::try_from_iter([("a", numbers)]).unwrap();
    let mut bytes = written(&rows).await.to_vec();
    assert!(bytes.len() > 2 << 20);
    store.hide_e_tags();
    store.put(&place, bytes.clone().into()).await.unwrap();
    time(1_000_000);
    let context = session();
    context.register_object_store(&Url::parse("test://bucket").unwrap(), Arc::clone(&store) as _);
    create(&context, "t", "test://bucket/a.vortex").await;
    let plan = physical(&context, "SELECT sum(a % 1000) FROM t").await;
    bytes[1000] ^= 1;
    store.put(&place, bytes.into()).await.unwrap();
    time(1_000_001);
    let error = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap_err().to_string();
    assert!(error.contains("a.vortex") && error.contains("replaced while it was read"), "{error}");
    // What is known of the old version is not kept, although the plan knows no better.
    let plan = reset_plan_states(plan).unwrap();
    assert_eq!(collect(plan, context.task_ctx()).await.unwrap()[0].num_rows(), 1);
}

#[tokio::test]
async fn the_footer_is_cached_with_its_size_in_memory() {
    let path = file("tpch_orders");
    let context = session();
    run(&context, &format!("SELECT o_orderkey FROM '{}'", path.display())).await;
    let cache = context.runtime_env().cache_manager.get_file_metadata_cache();
    let entries = cache.list_entries();
    assert_eq!(entries.len(), 1);
    let entry = entries.values().next().unwrap();
    assert!(entry.value.file_metadata.memory_size() > 1000);
    assert_eq!(entry.value.file_metadata.extra_info()["row_count"], "1500");
}

#[tokio::test]
async fn roots_that_are_not_structs_are_one_column() {
    let path = file("root_i64");
    let context = session();
    let columns = show(&context, &format!("DESCRIBE '{}'", path.display())).await;
    assert!(columns.contains("| value       | Int64     | NO          |"), "{columns}");
    let all = run(&context, &format!("SELECT * FROM '{}' WHERE value = value", path.display())).await;
    assert_eq!((all.num_columns(), all.num_rows()), (1, 1500));
    let distinct = format!("SELECT count(DISTINCT value) FROM '{}'", path.display());
    assert_eq!(number(&context, &distinct).await, 1499);
}

#[tokio::test]
async fn a_table_of_one_file_is_made_and_scanned_with_one_read_of_its_end() {
    let (store, folder) = counting::session(1, None).await;
    store.take();
    store.heads.take();
    // Another session, which has no footers cached.
    let context = counting::over(&store, None);
    run(
        &context,
        "CREATE EXTERNAL TABLE one STORED AS VORTEX LOCATION 'counting://store/lines/000.vortex' \
         WITH ORDER (l_orderkey ASC)",
    )
    .await;
    let counted = show(&context, "SELECT count(*) AS n, max(l_orderkey) AS m FROM one").await;
    assert_eq!((store.reads.take(), store.heads.take()), (1, 0));
    assert_eq!(counted, show(&folder, "SELECT count(*) AS n, max(l_orderkey) AS m FROM lines").await);
    for (table, expected) in [
        ("LOCATION 'counting://store/lines/none.vortex'", "none.vortex"),
        ("LOCATION 'counting://store/lines/000.vortex' WITH ORDER (nothing ASC)", "nothing"),
        ("PARTITIONED BY (day) LOCATION 'counting://store/lines/000.vortex'", "single file"),
    ] {
        let sql = format!("CREATE EXTERNAL TABLE two STORED AS VORTEX {table}");
        let error = context.sql(&sql).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{table}: {error}");
    }
}

/// A table of one object that was found a moment ago.
async fn found() -> (Arc<TestStore>, SessionContext) {
    let store = counting::session(1, None).await.0;
    store.heads.take();
    store.take();
    let context = counting::over(&store, None);
    create(&context, "one", "counting://store/lines/000.vortex").await;
    (store, context)
}

#[tokio::test]
async fn a_table_of_one_file_gives_the_rows_of_a_scan_that_asks_for_it() {
    let (store, context) = found().await;
    for sql in [
        "SELECT sum(l_quantity) AS q FROM one",
        "SELECT l_orderkey, l_comment FROM one WHERE l_quantity > 49 ORDER BY l_comment, l_orderkey LIMIT 5",
        "SELECT count(*) AS n FROM one AS a JOIN one AS b USING (l_orderkey)",
    ] {
        let asked = {
            let folder = counting::over(&store, None);
            create(&folder, "one", "counting://store/lines/").await;
            show(&folder, sql).await
        };
        assert_eq!(show(&context, sql).await, asked, "{sql}");
    }
}

#[tokio::test]
async fn a_file_that_changes_within_the_moment_is_an_error_and_later_another_table() {
    let store = TestStore::new();
    let writer = counting::over(&store, None);
    let rows = |count| {
        format!(
            "SELECT value * value % 1000003 AS b, 'text ' || (value * value % 99991 * value % 1000003) AS t \
             FROM generate_series(1, {count})"
        )
    };
    // Longer than what is kept with its footer.
    copy(&writer, &rows(500_000), "counting://store/long.vortex").await;
    let smaller = run(&writer, &rows(10)).await;
    let context = counting::over(&store, None);
    create(&context, "one", "counting://store/long.vortex").await;
    store.put(&object_store::path::Path::from("long.vortex"), written(&smaller).await.into()).await.unwrap();

    let sql = "SELECT sum(b * 2 + length(t) - length(t)) FROM one";
    let outcome = async { context.sql(sql).await?.collect().await }.await;
    match outcome {
        Err(error) => assert!(error.to_string().contains("long.vortex"), "{error}"),
        // On a slow machine, the moment may already have passed.
        Ok(_) => assert_eq!(number(&context, sql).await, 770),
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(number(&context, "SELECT count(*) FROM one").await, 10);
}

#[tokio::test]
async fn a_file_that_this_session_writes_anew_is_another_table_at_once() {
    let (_store, context) = found().await;
    run(
        &context,
        "COPY (SELECT * FROM one LIMIT 10) TO 'counting://store/lines/000.vortex' STORED AS VORTEX",
    )
    .await;
    assert_eq!(number(&context, "SELECT count(*) FROM one").await, 10);
    assert_eq!(run(&context, "SELECT * FROM one").await.num_rows(), 10);
}

#[tokio::test]
async fn a_file_written_anew_is_another_table_at_once_if_another_store_has_its_path() {
    let stores = [TestStore::new(), TestStore::new()];
    for store in &stores {
        copy(
            &counting::over(store, None),
            "SELECT 1 AS a UNION ALL SELECT 2",
            "counting://store/t/one.vortex",
        )
        .await;
    }
    let [one, other] = &stores;
    let context = counting::over(one, None);
    context.register_object_store(&Url::parse("counting://other").unwrap(), Arc::clone(other) as _);
    // The first store's footer has the place of the path.
    create(&context, "a", "counting://store/t/one.vortex").await;
    create(&context, "b", "counting://other/t/one.vortex").await;
    assert_eq!(number(&context, "SELECT sum(a) FROM b").await, 3);
    copy(&context, "SELECT 7 AS a", "counting://other/t/one.vortex").await;
    assert_eq!(number(&context, "SELECT count(*) FROM b").await, 1);
    assert_eq!(number(&context, "SELECT sum(a) FROM b").await, 7);
    assert_eq!(number(&context, "SELECT sum(a) FROM a").await, 3);
}

#[tokio::test]
async fn files_that_agree_in_size_and_time_are_told_apart() {
    for location in ["t/one.vortex", "t/", "t/*.vortex"] {
        for writes_in_session in [true, false] {
            let case = format!("{location}, written by the session itself: {writes_in_session}");
            let store = TestStore::new();
            store.set_time(SystemTime::now());
            let (context, other) = (counting::over(&store, None), counting::over(&store, None));
            let writer = if writes_in_session { &context } else { &other };
            let mut sizes = Vec::new();
            for value in [1, 2] {
                copy(writer, &format!("SELECT {value} AS a"), "counting://store/t/one.vortex").await;
                sizes.push(store.head(&"t/one.vortex".into()).await.unwrap().size);
                if value == 1 {
                    create(&context, "t", format!("counting://store/{location}")).await;
                } else if !writes_in_session {
                    // Listings, and what is found of one file, are kept for a while.
                    context.runtime_env().cache_manager.get_list_files_cache().unwrap().clear();
                    tokio::time::sleep(Duration::from_millis(1100)).await;
                }
                assert_eq!(number(&context, "SELECT max(a) FROM t").await, value, "{case}");
                let rows = format!("SELECT count(*) FROM t WHERE a = {value}");
                assert_eq!(number(&context, &rows).await, 1, "{case}");
            }
            assert_eq!(sizes[0], sizes[1], "{case}");
        }
    }
}

#[tokio::test]
async fn files_of_two_stores_that_agree_in_all_but_their_content_are_told_apart() {
    let time = SystemTime::now();
    let stores = [TestStore::new(), TestStore::new()];
    for (value, store) in stores.iter().enumerate() {
        store.set_time(time);
        copy(&counting::over(store, None), &format!("SELECT {value} AS a"), "counting://store/t/one.vortex")
            .await;
    }
    let [one, other] = &stores;
    let path = "t/one.vortex".into();
    assert_eq!(one.head(&path).await.unwrap(), other.head(&path).await.unwrap());
    let context = counting::over(one, None);
    let url = Url::parse("counting://other").unwrap();
    context.register_object_store(&url, Arc::clone(other) as _);
    for location in ["t/one.vortex", "t/"] {
        for (value, store) in ["store", "other"].iter().enumerate() {
            let table = format!("t_{store}_{}", location.len());
            create(&context, &table, format!("counting://{store}/{location}")).await;
            assert_eq!(
                number(&context, &format!("SELECT max(a) FROM {table}")).await,
                value as i64,
                "{table}"
            );
            let rows = format!("SELECT count(*) FROM {table} WHERE a = {value}");
            assert_eq!(number(&context, &rows).await, 1, "{table}");
        }
    }
}

#[tokio::test]
async fn a_store_that_cannot_read_the_end_is_asked_as_others_are() {
    let store = counting::session(1, None).await.0;
    store.heads.take();
    store.take();
    let context = counting::over(&store, None);
    let mut refusals = 1;
    store.fail_reads(move || {
        refusals -= 1;
        (refusals >= 0).then_some(ReadFault::Fails)
    });
    create(&context, "one", "counting://store/lines/000.vortex").await;
    assert_eq!((store.reads.take(), store.heads.take()), (2, 1));
    assert_eq!(number(&context, "SELECT count(*) FROM one").await, 8300);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn no_statement_waits_for_a_pipe() {
    let folder = folder_of(&[(&file("tpch_orders"), "a.vortex")]);
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (pipe, other) = (place("pipe.vortex"), place("a.vortex"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let context = SessionContext::new();
    register(&context).unwrap();
    enable_url_tables(&context);
    for sql in [
        format!("SELECT * FROM '{pipe}'"),
        format!("SELECT * FROM vortex_metadata('{pipe}')"),
        format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{pipe}'"),
        format!("CREATE EXTERNAL TABLE t (a INT) STORED AS VORTEX LOCATION '{pipe}'"),
        format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION ('{other}', '{pipe}')"),
    ] {
        let message = timeout(Duration::from_secs(60), error(&context, &sql)).await.expect("it ends");
        assert!(message.contains("pipe.vortex: is neither a file nor a folder"), "{sql}: {message}");
    }
}

#[tokio::test]
async fn every_one_of_several_locations_is_checked() {
    let folder = folder_of(&[(&file("tpch_orders"), "a.vortex")]);
    let place = |name: &str| folder.path().join(name).display().to_string();
    fs::write(place("zero.vortex"), "").unwrap();
    let context = session();
    for (other, told) in [
        ("zero.vortex", "0 bytes are too few for a Vortex file"),
        ("day=*/a.vortex", "cannot match folders named key=value"),
    ] {
        let sql = format!(
            "CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION ('{}', '{}')",
            place("a.vortex"),
            place(other)
        );
        let message = error(&context, &sql).await;
        assert!(message.contains(told), "{message}");
    }
}

#[tokio::test]
async fn fields_of_a_struct_that_one_of_several_places_lacks_may_be_null() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let number: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let fields = vec![(Arc::new(Field::new("x", DataType::Int64, false)), Arc::clone(&number))];
    let nested: ArrayRef = Arc::new(StructArray::from(fields));
    for (name, columns) in
        [("a.vortex", vec![("n", Arc::clone(&number)), ("s", nested)]), ("b.vortex", vec![("n", number)])]
    {
        let columns = columns.into_iter().map(|(name, column)| (name, column, false));
        let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        fs::write(place(name), written(&rows).await).unwrap();
    }
    let context = session();
    let places = format!("('{}', '{}')", place("a.vortex"), place("b.vortex"));
    run(&context, &format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION {places}")).await;
    let rows = show(&context, "SELECT unnest(s) FROM t").await;
    assert!(rows.contains("| 7"), "{rows}");
}

#[tokio::test]
async fn values_of_a_dictionary_are_cast_only_where_rows_have_them() {
    let codes: DictionaryArray<Int32Type> = ["1", "2", "n/a"].into_iter().collect();
    let kinds = Arc::new(StringArray::from(vec!["x", "x", "y"])) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("code", Arc::new(codes) as ArrayRef), ("kind", kinds)]).unwrap();
    let folder = TempDir::new().unwrap();
    let place = folder.path().join("a.vortex");
    fs::write(&place, written(&rows).await).unwrap();
    let context = session();
    let place = place.display();
    run(
        &context,
        &format!("CREATE EXTERNAL TABLE t (code BIGINT, kind VARCHAR) STORED AS VORTEX LOCATION '{place}'"),
    )
    .await;
    assert_eq!(number(&context, "SELECT sum(code) FROM t WHERE kind = 'x'").await, 3);
    let message = error(&context, "SELECT code FROM t").await;
    assert!(message.contains("n/a"), "{message}");
}

#[tokio::test]
async fn registering_changes_nothing_else_of_a_session() {
    let context = SessionContext::new();
    run(&context, "CREATE TABLE before AS SELECT 1 AS a").await;
    let (id, config) = (context.state().session_id().to_owned(), context.copied_config());
    register(&context).unwrap();
    register(&context).unwrap();
    assert_eq!(context.state().session_id(), id);
    assert_eq!(run(&context, "SELECT a FROM before").await.num_rows(), 1);
    let settings = |config: &SessionConfig| {
        let entries =
            config.options().entries().into_iter().filter(|entry| !entry.key.starts_with("vortex."));
        entries.map(|entry| (entry.key, entry.value)).collect::<Vec<_>>()
    };
    assert_eq!(settings(&context.copied_config()), settings(&config));
    let state = context.state();
    let rules = state.physical_optimizers().iter().map(|rule| rule.name());
    let ours: Vec<_> = rules.filter(|rule| rule.contains("vortex")).collect();
    assert_eq!(
        ours,
        [
            "vortex_first",
            "vortex_before_requirements",
            "vortex_before_window_limits",
            "vortex_before_pushdown_sort",
            "vortex_last"
        ]
    );
}
