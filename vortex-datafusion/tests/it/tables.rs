//! Tables over files: how they are declared, found and described.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Int32Type};
use tempfile::TempDir;
use test_store::ReadFault;
use tokio::time::timeout;

use crate::counting;
use crate::files::{
    copy, create, error, file, folder_of, number, own_session, plan, run, session, show, written,
};

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
    create(&context, "orders PARTITIONED BY (day)", folder.path().join("").display()).await;
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
    let told = error(&context, &create("prun 'true'")).await;
    assert!(told.contains("`prun`") && told.contains("prune"), "{told}");
    // Nor is one of a misspelt namespace left to somebody else.
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("a.vortex");
    let copy = format!("COPY (SELECT 1 AS a) TO '{}' OPTIONS ('vortx.level' 'fast')", to.display());
    for sql in [create("'vortx.level' 'fast'"), copy] {
        let told = error(&context, &sql).await;
        assert!(told.contains("unknown Vortex option `vortx.level`; there are: "), "{told}");
    }
    run(&context, &create("prune 'false', string_type 'utf8'")).await;
    assert!(show(&context, "DESCRIBE o").await.contains("| Utf8 "));
}

#[tokio::test]
async fn a_file_that_is_not_vortex_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.vortex"), b"this is not a Vortex file at all").unwrap();
    let context = session();
    let create =
        format!("CREATE EXTERNAL TABLE bad STORED AS VORTEX LOCATION '{}/'", folder.path().display());
    let told = error(&context, &create).await;
    assert!(told.contains("bad.vortex"), "{told}");
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
    create(&context, "one WITH ORDER (l_orderkey ASC)", "counting://store/lines/000.vortex").await;
    let counted = show(&context, "SELECT count(*) AS n, max(l_orderkey) AS m FROM one").await;
    assert_eq!((store.reads.take(), store.heads.take()), (1, 0));
    assert_eq!(counted, show(&folder, "SELECT count(*) AS n, max(l_orderkey) AS m FROM lines").await);
    for (table, expected) in [
        ("LOCATION 'counting://store/lines/none.vortex'", "none.vortex"),
        ("LOCATION 'counting://store/lines/000.vortex' WITH ORDER (nothing ASC)", "nothing"),
        ("PARTITIONED BY (day) LOCATION 'counting://store/lines/000.vortex'", "single file"),
    ] {
        let sql = format!("CREATE EXTERNAL TABLE two STORED AS VORTEX {table}");
        let told = error(&context, &sql).await;
        assert!(told.contains(expected), "{table}: {told}");
    }
}

#[tokio::test]
async fn a_table_of_one_file_gives_the_rows_of_a_scan_that_asks_for_it() {
    let store = counting::store_of(&["lines/000.vortex"]).await;
    let context = counting::over(&store, None);
    create(&context, "one", "counting://store/lines/000.vortex").await;
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
    let context = own_session();
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
    create(&context, "t (code BIGINT, kind VARCHAR)", place.display()).await;
    assert_eq!(number(&context, "SELECT sum(code) FROM t WHERE kind = 'x'").await, 3);
    let message = error(&context, "SELECT code FROM t").await;
    assert!(message.contains("n/a"), "{message}");
}
