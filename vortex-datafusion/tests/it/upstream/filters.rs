//! Dynamic filters that drop rows which the query needs.

use std::sync::Arc;

use super::{Plain, assert_wrong};

const TELL_SCANS: &str = "optimizer/tell_scans.rs";

/// A table sorted by `a`, of whose first rows none has a `b` above 50.
async fn sorted() -> Plain {
    let plain = Plain::new(1);
    let rows = "SELECT value AS a, value % 100 AS b FROM generate_series(1, 10000)";
    plain.sorted_table("sorted", rows, "a").await;
    plain.run("CREATE VIEW keys AS SELECT value + 50 AS k FROM generate_series(1, 3)").await;
    plain
}

#[tokio::test]
async fn filters_cross_limits_of_filters_and_joins() {
    let plain = sorted().await;
    let joined = "SELECT b FROM (SELECT value AS v FROM generate_series(1, 100)) JOIN sorted ON b = v";
    for limited in [
        "SELECT * FROM sorted WHERE random() >= 0 ORDER BY a LIMIT 10",
        &format!("{joined} ORDER BY a LIMIT 10"),
    ] {
        let sql = format!("SELECT count(*) FROM keys JOIN ({limited}) ON b = k");
        plain.assert_wrong(&sql, &["10"], &["0"], TELL_SCANS).await;
    }
}

#[tokio::test]
async fn filters_cross_limits_of_scans() {
    let sql = "SELECT count(*) FROM keys JOIN (SELECT b FROM sorted ORDER BY a LIMIT 10) ON b = k";
    let workaround = "`create_file_opener` in source/file_source.rs";
    sorted().await.assert_wrong(sql, &["10"], &["0"], workaround).await;
}

#[tokio::test]
async fn keys_that_are_found_in_others_are_replaced_wrongly() {
    let plain = Plain::new(1);
    plain.table("shadowed", "SELECT 10000 - value AS a, 5 AS b FROM generate_series(1, 10000)").await;
    let sql = "SELECT 1 AS b, a, b AS y FROM shadowed ORDER BY y, y + 1, a LIMIT 3";
    plain.assert_wrong(sql, &["1 0 5", "1 1 5", "1 9000 5"], &["1 0 5", "1 1 5", "1 2 5"], TELL_SCANS).await;
    let rows = "SELECT NULLIF(5, value) AS a, NULLIF(20000 - value, 0) AS b FROM generate_series(1, 10000)";
    plain.table("swapped", rows).await;
    let sql = "SELECT b AS a, a AS y FROM swapped WHERE a IS NOT NULL ORDER BY y, y + 1, a + 1 LIMIT 2";
    plain.assert_wrong(sql, &["19000 5", "19001 5"], &["10000 5", "10001 5"], TELL_SCANS).await;
}

#[tokio::test]
async fn columns_that_are_rounded_to_one_value_are_taken_for_constant() {
    let plain = Plain::new(1);
    // Without statistics, which leave 3 no room here.
    let place = plain.folder().join("numbers.csv").display().to_string();
    plain.run(&format!("COPY (VALUES (3.2), (3.9), (3.5)) TO '{place}'")).await;
    plain.run(&format!("CREATE EXTERNAL TABLE numbers (v DOUBLE) STORED AS CSV LOCATION '{place}'")).await;
    let sql = "SELECT v FROM numbers WHERE CAST(v AS INT) = 3 ORDER BY v DESC LIMIT 1";
    plain.assert_wrong(sql, &["3.2"], &["3.9"], "optimizer/rounded_filters.rs").await;
}

#[tokio::test]
async fn filters_of_aggregations_leave_out_expressions() {
    let plain = Plain::new(2);
    plain.table("falling", "SELECT 10000 - value AS b FROM generate_series(1, 10000)").await;
    let found = plain.rows("SELECT max(b), min(abs(b)) FROM falling").await;
    let workarounds = "optimizer/tell_scans.rs, and the setting in bin/vortex/sql/session.rs";
    // Which rows are left depends on which partition is the first.
    assert_ne!(found, ["9999 0"], "fixed upstream, remove the workarounds in {workarounds}");
}

#[tokio::test]
async fn filters_of_aggregations_leave_out_those_without_a_value() {
    let plain = Plain::new(2);
    // Each partition finds values of the first column before it finds any of the second.
    let is_first = "value % 10000 BETWEEN 1 AND 5000";
    let columns =
        format!("CASE WHEN {is_first} THEN value END AS a, CASE WHEN NOT {is_first} THEN value END AS b");
    plain.table("turns", &format!("SELECT {columns} FROM generate_series(1, 20000)")).await;
    let found = plain.rows("SELECT min(a), max(b) FROM turns WHERE coalesce(a, b) > 0").await;
    assert_wrong(found.as_slice(), &["1 null"], &["1 20000"], TELL_SCANS);
}

#[tokio::test]
async fn filters_of_aggregations_outlive_a_run() {
    let plain = Plain::new(2);
    plain.table("numbers", "SELECT value AS a FROM generate_series(1, 10000)").await;
    let sql = "WITH RECURSIVE r AS (
        SELECT CAST(1 AS BIGINT) AS n, CAST(0 AS BIGINT) AS low
        UNION ALL
        SELECT n + 1, x FROM r CROSS JOIN (SELECT min(a) AS x FROM numbers WHERE a > 5) WHERE n < 3
    ) SELECT low FROM r ORDER BY n";
    plain.assert_wrong(sql, &["0", "6", "null"], &["0", "6", "6"], TELL_SCANS).await;
}

#[tokio::test]
async fn plans_that_have_run_keep_what_their_filters_rule_out() {
    let plain = Plain::new(2);
    plain.table("numbers", "SELECT value AS a FROM generate_series(1, 10000)").await;
    let plan = plain.plan("SELECT min(a) FROM numbers WHERE a > 5").await;
    let first = plain.rows_of(Arc::clone(&plan)).await.unwrap();
    let second = plain.rows_of(plan).await.unwrap();
    assert_eq!(first, ["6"]);
    assert_wrong(second.as_slice(), &["null"], &["6"], "the notes in docs/ and codec/encode.rs");
}

/// A table `keys` of three keys and a null.
async fn keys() -> Plain {
    let plain = Plain::new(1);
    plain.table("keys", "SELECT * FROM (VALUES ('a'), ('b'), ('c'), (NULL)) AS t (k)").await;
    plain
}

#[tokio::test]
async fn nulls_are_in_neither_of_two_lists() {
    let sql = "SELECT count(*) FROM keys WHERE k NOT IN ('a', 'x') OR k NOT IN ('b', 'y')";
    keys().await.assert_wrong(sql, &["4"], &["3"], "the note in docs/").await;
}

#[tokio::test]
async fn nulls_are_not_in_a_subquery_within_alternatives() {
    let sql = "SELECT count(*) FROM keys WHERE k NOT IN (SELECT k FROM keys WHERE k = 'a') OR k = 'x'";
    keys().await.assert_wrong(sql, &["3"], &["2"], "the note in docs/").await;
}

#[tokio::test]
async fn keys_are_found_in_maps_that_are_null() {
    let plain = Plain::new(1);
    let maps =
        "SELECT value AS v, nullif(map(['a'], [value]), map(['a'], [2])) AS m FROM generate_series(1, 3)";
    plain.run(&format!("CREATE TABLE t AS {maps}")).await;
    let sql = "SELECT v, m['a'] FROM t WHERE v = 2";
    plain.assert_wrong(sql, &["2 2"], &["2 null"], "vortex-core/src/array/masking.rs").await;
}

#[tokio::test]
async fn what_follows_a_test_for_distinct_values_is_taken_for_a_part_of_it() {
    let sql = "SELECT count(*) FROM keys WHERE k = 'a' IS DISTINCT FROM true AND k = 'b'";
    keys().await.assert_wrong(sql, &["2"], &["1"], "the note in docs/").await;
}
