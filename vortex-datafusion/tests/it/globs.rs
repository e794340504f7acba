//! Globs in URLs of object stores.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use test_store::TestStore;
use url::Url;
use vortex_datafusion::{VortexContextExt as _, enable_url_tables};

use crate::counting::{over, store_of};
use crate::files::{create, error, number, plan, run};

/// Number of rows of each object; all objects are copies of the example file.
const ROWS: i64 = 8300;

/// A session that accepts URLs as tables, over a store with these objects.
async fn session(objects: &[&str]) -> SessionContext {
    session_over(&store_of(objects).await)
}

fn session_over(store: &Arc<TestStore>) -> SessionContext {
    let context = over(store, None);
    enable_url_tables(&context);
    context
}

async fn count(context: &SessionContext, from: &str) -> i64 {
    number(context, &format!("SELECT count(*) FROM {from}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_glob_names_the_objects_that_match() {
    let context = session(&["a/x1.vortex", "a/x2.vortex", "a/y1.vortex", "a/b/x3.vortex", "x4.vortex"]).await;
    for (glob, objects) in [
        ("*.vortex", 1),
        ("a/*.vortex", 3),
        ("a/x*.vortex", 2),
        ("a/?1.vortex", 2),
        ("a/x[2-9].vortex", 1),
        ("a/b/*", 1),
        ("a/b*", 1),
        ("a/[bx]*", 3),
        ("a/x1.vortex", 1),
    ] {
        assert_eq!(count(&context, &format!("'counting://store/{glob}'")).await, objects * ROWS, "{glob}");
    }
    let message = error(&context, "SELECT * FROM 'counting://store/a/z*.vortex'").await;
    assert!(message.contains("no file at counting://store/a/z*.vortex"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_spans_folders_is_refused_unless_folders_are_looked_into() {
    let context = session(&["a/b/x.vortex", "a/c/x.vortex", "a/c/y.vortex"]).await;
    let table = "'counting://store/a/*/x.vortex'";
    for sql in [
        format!("SELECT * FROM {table}"),
        format!("SELECT * FROM vortex_segments({table})"),
        format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION {table}"),
    ] {
        let message = error(&context, &sql).await;
        assert!(message.contains("*/x.vortex below counting://store/a/ spans folders"), "{message}");
        assert!(message.contains("listing_table_ignore_subdirectory = false"), "{message}");
    }
    run(&context, "SET datafusion.execution.listing_table_ignore_subdirectory = false").await;
    assert_eq!(count(&context, table).await, 2 * ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_for_partition_folders_is_refused() {
    let context = session(&["h/y=1/x.vortex", "h/y=2/x.vortex"]).await;
    let message = error(&context, "SELECT * FROM 'counting://store/h/y=*'").await;
    assert!(
        message.contains("y=* below counting://store/h/ cannot match folders named key=value"),
        "{message}"
    );
    assert_eq!(count(&context, "'counting://store/h/*.vortex' WHERE y = '2'").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_folder_contains_does_not_keep_a_table_from_its_name() {
    let context = session(&[]).await;
    // Tests run in the folder of the crate.
    assert!(std::path::Path::new("src/lib.rs").is_file());
    run(&context, "CREATE TABLE src AS SELECT 1 AS a").await;
    assert_eq!(count(&context, "src").await, 1);
    let message = error(&context, "SELECT * FROM tests").await;
    assert!(message.contains("table 'datafusion.public.tests' not found"), "{message}");
    let message = error(&context, "SELECT * FROM './tests'").await;
    assert!(message.contains("./tests"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_created_over_a_glob() {
    let context = session(&["a/x1.vortex", "a/x2.vortex", "a/y1.vortex"]).await;
    create(&context, "x", "counting://store/a/x*.vortex").await;
    assert_eq!(count(&context, "x WHERE l_orderkey > 0").await, 2 * ROWS);
    let few = "few (l_orderkey BIGINT, l_comment VARCHAR) OPTIONS (predicate_pushdown 'false')";
    create(&context, few, "counting://store/a/[xy]1.vortex").await;
    let plan = plan(&context, "SELECT * FROM few WHERE l_orderkey > 7").await;
    assert!(plan.contains("FilterExec"), "{plan}");
    assert_eq!(run(&context, "SELECT * FROM few LIMIT 3").await.num_columns(), 2);
    assert_eq!(count(&context, "few").await, 2 * ROWS);
    let none = "CREATE EXTERNAL TABLE none STORED AS VORTEX LOCATION 'counting://store/a/z*'";
    let message = error(&context, none).await;
    assert!(message.contains("No files found"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn partition_columns_lie_behind_a_glob() {
    let context = session(&["t/day=1/a.vortex", "t/day=1/b.vortex", "t/day=2/a.vortex"]).await;
    create(&context, "t PARTITIONED BY (day)", "counting://store/t/a*").await;
    assert_eq!(count(&context, "t").await, 2 * ROWS);
    assert_eq!(count(&context, "t WHERE day = '2'").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_needs_no_slash() {
    let context =
        session(&["t/day=1/a.vortex", "t/day=2/a.vortex", "t/day=2/_tmp.vortex", "u/a.vortex"]).await;
    create(&context, "t", "counting://store/t").await;
    assert_eq!(count(&context, "t").await, 2 * ROWS);
    assert_eq!(count(&context, "t WHERE day = '2'").await, ROWS);
    context.register_vortex("r", "counting://store/t").await.unwrap();
    assert_eq!(count(&context, "r WHERE day = '1'").await, ROWS);
    assert_eq!(count(&context, "'counting://store/t' WHERE day = '1'").await, ROWS);
    for place in ["counting://store/t", "counting://store/t/"] {
        let files = format!("(SELECT DISTINCT file FROM vortex_metadata('{place}'))");
        assert_eq!(count(&context, &files).await, 2, "{place}");
    }
    let context = session(&["data.vortex/day=1/a.vortex", "data.vortex/day=2/a.vortex"]).await;
    create(&context, "v", "counting://store/data.vortex").await;
    for from in ["'counting://store/data.vortex'", "v"] {
        assert_eq!(count(&context, &format!("{from} WHERE day = '1'")).await, ROWS, "{from}");
    }
    let context = session(&["a.vortex", "u/a.vortex"]).await;
    create(&context, "root", "counting://store").await;
    assert_eq!(count(&context, "root").await, ROWS);
    create(&context, "u (l_orderkey BIGINT)", "counting://store/u").await;
    run(&context, "INSERT INTO u VALUES (1)").await;
    assert_eq!(count(&context, "u").await, ROWS + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_over_files_take_globs() {
    let context = session(&["a/x1.vortex", "a/x2.vortex", "a/y1.vortex"]).await;
    let files = "SELECT count(DISTINCT file) FROM vortex_segments('counting://store/a/x*.vortex')";
    assert_eq!(number(&context, files).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_two_stores_are_listed_apart_although_their_paths_are_equal() {
    let context = session(&["a/x.vortex"]).await;
    let other = store_of(&["a/x.vortex", "a/y.vortex"]).await;
    context.register_object_store(&Url::parse("counting://other").unwrap(), other);
    for (store, objects) in [("store", 1), ("other", 2)] {
        for place in [format!("counting://{store}/a/"), format!("counting://{store}/a/*.vortex")] {
            assert_eq!(count(&context, &format!("'{place}'")).await, objects * ROWS, "{place}");
            let files = run(&context, &format!("SELECT DISTINCT file FROM vortex_segments('{place}')")).await;
            assert_eq!(files.num_rows() as i64, objects, "{place}");
            let read = context.read_vortex(&place).await.unwrap().count().await.unwrap();
            assert_eq!(read as i64, objects * ROWS, "{place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_with_the_same_paths_keep_footers_for_each() {
    let (one, two) = (store_of(&["a/x.vortex"]).await, store_of(&["a/x.vortex"]).await);
    let context = session_over(&one);
    context.register_object_store(&Url::parse("counting://other").unwrap(), Arc::clone(&two) as _);
    for round in 0..3 {
        for store in ["store", "other"] {
            assert_eq!(count(&context, &format!("'counting://{store}/a/x.vortex'")).await, ROWS);
        }
        let reads = if round == 0 { 1 } else { 0 };
        assert_eq!((one.reads.take(), two.reads.take()), (reads, reads), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_server_has_no_globs() {
    let context = session(&[]).await;
    let message = error(&context, "SELECT * FROM 'https://example.com/a/*.vortex'").await;
    assert!(message.contains("a web server cannot list files"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_url_of_a_file_is_one_read_and_then_one_question() {
    let store = store_of(&["a/x.vortex"]).await;
    let context = session_over(&store);
    assert_eq!(count(&context, "'counting://store/a/x.vortex'").await, ROWS);
    assert_eq!((store.reads.take(), store.heads.take()), (1, 0));
    assert_eq!(count(&context, "'counting://store/a/x.vortex'").await, ROWS);
    assert_eq!((store.reads.take(), store.heads.take()), (0, 1));
    let message = error(&context, "SELECT * FROM 'counting://store/a/none.vortex'").await;
    assert!(message.contains("none.vortex"), "{message}");
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_is_told_and_not_a_missing_table() {
    let context = session(&[]).await;
    let told = error(&context, "SELECT * FROM 'nosuch://store/a.vortex'").await;
    assert!(told.contains("nosuch://store") && !told.contains("table '"), "{told}");
    let told = error(&context, "SELECT * FROM nosuch").await;
    assert!(told.contains("table '") && told.contains("not found"), "{told}");
}
