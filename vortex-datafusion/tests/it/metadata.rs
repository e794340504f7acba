//! Table functions over the description of files.

use vortex_datafusion::enable_url_tables;

use crate::counting;
use crate::files::{copy, error, file, folder_of, number, own_session, run, show, write_chunks};

#[tokio::test]
async fn columns_have_sizes_and_statistics() {
    let path = file("tpch_orders");
    let context = own_session();
    let sql = format!(
        "SELECT min, max, null_count, bytes > 0 AS has_bytes, row_count FROM vortex_metadata('{}')
         WHERE \"column\" = 'o_orderkey'",
        path.display()
    );
    let shown = show(&context, &sql).await;
    assert!(shown.contains("| 1   | 5988 | 0          | true      | 1500      |"), "{shown}");
    let all = format!("SELECT * FROM vortex_metadata('{}')", path.display());
    assert_eq!(run(&context, &all).await.num_rows(), 9);
}

#[tokio::test]
async fn layouts_refer_to_segments_that_are_listed() {
    let path = file("tpch_lineitem");
    let context = own_session();
    let path = path.display();
    let used = format!(
        "SELECT count(DISTINCT segment) FROM (SELECT unnest(segments) AS segment FROM vortex_layouts('{path}')) AS used
         WHERE segment IN (SELECT s.segment FROM vortex_segments('{path}') AS s)"
    );
    let all = format!("SELECT count(*) FROM vortex_segments('{path}') WHERE paths IS NOT NULL");
    let used = number(&context, &used).await;
    assert!(used > 10);
    assert_eq!(used, number(&context, &all).await);
    let encodings = format!(
        "SELECT count(*) FROM vortex_segments('{path}') WHERE array_has(encodings, 'fastlanes.bitpacked')"
    );
    assert!(number(&context, &encodings).await > 0);
    let inside = format!(
        "SELECT count(*) FROM vortex_layouts('{path}') WHERE path LIKE 'l_orderkey%' AND layout = 'vortex.flat'"
    );
    assert!(number(&context, &inside).await > 0);
}

#[tokio::test]
async fn zones_tile_the_rows_and_folders_show_all_their_files() {
    let source = tempfile::tempdir().unwrap();
    let path = write_chunks(source.path()).await;
    let folder = folder_of(&[(&path, "a.vortex"), (&path, "b.vortex")]);
    let context = own_session();
    let base = folder.path().display();
    let sql = format!(
        "SELECT count(DISTINCT file) AS files, count(DISTINCT rows) AS row_counts FROM
         (SELECT file, path, sum(row_count) AS rows FROM vortex_zones('{base}/') GROUP BY file, path)"
    );
    let shown = show(&context, &sql).await;
    assert!(shown.contains("| 2     | 1          |"), "{shown}");
    let one =
        show(&context, &format!("SELECT count(DISTINCT file) AS n FROM vortex_zones('{base}/a.*')")).await;
    assert!(one.contains("| 1 |"), "{one}");
}

#[tokio::test]
async fn files_that_a_limit_makes_needless_are_not_opened() {
    let objects: Vec<String> = (0..20).map(|at| format!("a/{at:02}.vortex")).collect();
    let store = counting::store_of(&objects).await;
    // Each file has 16 columns.
    for (rest, rows, files) in
        [("LIMIT 40", 40, 3), ("LIMIT 16", 16, 1), ("WHERE segments > 0 LIMIT 40", 40, 20)]
    {
        let context = counting::over(&store, None);
        enable_url_tables(&context);
        run(&context, "SET datafusion.execution.meta_fetch_concurrency = 1").await;
        store.take();
        let shown =
            run(&context, &format!("SELECT * FROM vortex_metadata('counting://store/a/') {rest}")).await;
        assert_eq!((shown.num_rows(), store.reads.take()), (rows, files), "{rest}");
    }
}

#[tokio::test]
async fn what_is_no_vortex_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.vortex");
    std::fs::write(&path, "not a Vortex file, but long enough to look for a footer").unwrap();
    let context = own_session();
    for (sql, named) in [
        (format!("SELECT * FROM vortex_zones('{}')", path.display()), "bad.vortex"),
        (format!("SELECT * FROM vortex_zones('{}')", folder.path().join("nosuch").display()), "nosuch"),
        ("SELECT * FROM vortex_zones(3)".to_owned(), "file"),
        ("SELECT * FROM vortex_zones()".to_owned(), "file"),
    ] {
        let error = error(&context, &sql).await;
        assert!(error.contains(named), "{sql}: {error}");
    }
}

#[tokio::test]
async fn long_names_are_cut_where_they_are_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let (context, path) = (own_session(), folder.path().join("long.vortex"));
    let name = "n".repeat(5000);
    let rows = format!("SELECT value AS \"{name}\" FROM generate_series(1, 20000)");
    copy(&context, &rows, path.display()).await;
    let longest = async |column: &str, function: &str| {
        let lengths = format!("SELECT max(length({column}))::BIGINT FROM {function}('{}')", path.display());
        number(&context, &lengths).await
    };
    assert_eq!(longest("\"column\"", "vortex_metadata").await, 5000);
    for (column, function) in [
        ("path", "vortex_layouts"),
        ("type", "vortex_layouts"),
        ("path", "vortex_zones"),
        ("array_to_string(paths, '')", "vortex_segments"),
    ] {
        let len = longest(column, function).await;
        assert!((1000..2000).contains(&len), "{function}: {len}");
    }
}
