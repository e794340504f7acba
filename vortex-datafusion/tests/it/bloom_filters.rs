//! Bloom filters: written on request, and asked by filters and joins.

use datafusion::prelude::{SessionConfig, SessionContext};

use vortex_datafusion::enable_url_tables;

use crate::files::{error, number, run, session, session_with, show};

/// Rows with a random key, a text made of it, and a struct that may be null.
const ROWS: &str = "SELECT row, k AS \"Key\", 'key ' || k AS text,
    CASE WHEN row % 10 > 0 THEN named_struct('zip', k) END AS place
    FROM (SELECT v AS row, v * v % 9999991 * v % 9999991 AS k FROM generate_series(0, 299999) AS t(v))";

/// A session with `t`, the rows in one file in their order, written with these options.
async fn session_of(folder: &std::path::Path, options: &str) -> SessionContext {
    let context = session_with(SessionConfig::new().with_target_partitions(1));
    enable_url_tables(&context);
    let location = folder.join("t.vortex");
    run(&context, &format!("COPY ({ROWS}) TO '{}' {options}", location.display())).await;
    let table = "CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION";
    run(&context, &format!("{table} '{}'", location.display())).await;
    context
}

/// The number of zones that Bloom filters skipped.
async fn skipped(context: &SessionContext, sql: &str) -> usize {
    let plan = show(context, &format!("EXPLAIN ANALYZE {sql}")).await;
    let counts = plan.split("zones_pruned_bloom_filter=").skip(1);
    counts.map(|rest| rest.split(',').next().unwrap().trim().parse::<usize>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn look_ups_and_joins_by_random_keys_skip_most_zones() {
    let folder = tempfile::tempdir().unwrap();
    let context = session_of(folder.path(), "OPTIONS (bloom_filters 'key, Text,place.zip')").await;
    let (other, plain) = (tempfile::tempdir().unwrap(), "");
    let without = session_of(other.path(), plain).await;
    let key = number(&context, "SELECT \"Key\" FROM t WHERE row = 123456").await;
    for (filter, least) in [
        (format!("\"Key\" = {key}"), 33),
        (format!("CAST(\"Key\" AS DECIMAL(20, 0)) = {key}"), 33),
        (format!("\"Key\" = {key} AND row > 5"), 33),
        (format!("\"Key\" IN ({key}, 10000000, -1)"), 30),
        (format!("\"Key\" = {key} OR text = 'none'"), 30),
        (format!("text = 'key {key}'"), 33),
        (format!("place['zip'] = {key}"), 33),
        ("text = 'key 5x'".to_owned(), 34),
        (format!("\"Key\" IN (SELECT column1 FROM (VALUES ({key}), (5)))"), 25),
        (format!("\"Key\" <> {key}"), 0),
        (format!("\"Key\" >= {key}"), 0),
    ] {
        let sql = format!("SELECT count(*), min(row), max(text) FROM t WHERE {filter}");
        assert_eq!(show(&context, &sql).await, show(&without, &sql).await, "{sql}");
        let rows = format!("SELECT * FROM t WHERE {filter}");
        let found = skipped(&context, &rows).await;
        assert!(found >= least && (found == 0) == (least == 0), "{found} zones: {filter}");
        assert_eq!(skipped(&without, &rows).await, 0, "{filter}");
    }
    run(&context, "SET vortex.prune = false").await;
    assert_eq!(skipped(&context, &format!("SELECT * FROM t WHERE \"Key\" = {key}")).await, 0);
    let sizes = "SELECT \"column\", bloom_filter_bytes > 500000 FROM vortex_metadata('{file}') ORDER BY 1";
    let sizes = sizes.replace("{file}", &folder.path().join("t.vortex").to_string_lossy());
    let sizes = show(&context, &sizes).await;
    for line in ["Key    | true", "place  | true", "row    | ", "text   | true"] {
        assert!(sizes.contains(line), "{line}: {sizes}");
    }
}

#[tokio::test]
async fn byte_strings_of_fixed_size_and_names_that_differ_in_case_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (context, base) = (session(), folder.path().display());
    enable_url_tables(&context);
    let rows = "SELECT k AS \"K\", -k AS k, arrow_cast(arrow_cast(lpad(CAST(k AS TEXT), 16, '0'), 'Binary'),
        'FixedSizeBinary(16)') AS f FROM
        (SELECT v * v % 9999991 * v % 9999991 AS k FROM generate_series(0, 199999) AS t(v))";
    run(&context, &format!("COPY ({rows}) TO '{base}/t.vortex' OPTIONS (bloom_filters 'K, f')")).await;
    let columns = "SELECT string_agg(\"column\", ' ') FROM vortex_metadata('{base}/t.vortex')";
    let columns = columns.replace("{base}", &base.to_string()) + " WHERE bloom_filter_bytes > 0";
    assert!(show(&context, &columns).await.contains("| K f "));
    let key =
        number(&context, &format!("SELECT min(\"K\") FROM '{base}/t.vortex' WHERE \"K\" > 5000000")).await;
    let found = format!(
        "SELECT count(*) FROM '{base}/t.vortex' WHERE f = arrow_cast(X'{{}}', 'FixedSizeBinary(16)')"
    );
    let bytes: String = format!("{key:016}").bytes().map(|byte| format!("{byte:02x}")).collect();
    let found = found.replace("{}", &bytes);
    assert_eq!(number(&context, &found).await, 1);
    assert!(skipped(&context, &found.replace("count(*)", "*")).await > 10);
}

#[tokio::test]
async fn columns_that_cannot_have_a_filter_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (context, base) = (session(), folder.path().display());
    enable_url_tables(&context);
    for (names, complaint) in [
        ("a, c", "bloom_filters: the files that are written have no column `c`; there are: a, b"),
        ("b", "column `b` of type f64"),
    ] {
        let copy = format!(
            "COPY (SELECT 1 AS a, 2.5e0 AS b) TO '{base}/x.vortex' OPTIONS (bloom_filters '{names}')"
        );
        let error = error(&context, &copy).await;
        assert!(error.contains(complaint), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    run(&context, "SET vortex.bloom_filters = 'a'").await;
    run(&context, &format!("COPY (SELECT 1 AS a, 2.5e0 AS b) TO '{base}/x.vortex'")).await;
    let sizes = format!("SELECT sum(bloom_filter_bytes) FROM vortex_metadata('{base}/x.vortex')");
    assert_eq!(
        number(&context, &sizes.replace("sum(", "arrow_cast(sum(").replace(") FROM", "), 'Int64') FROM"))
            .await,
        36
    );
}
