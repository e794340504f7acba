//! Orders of rows from which DataFusion derives too much.

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};

use super::{Plain, assert_wrong};

const WITHHOLD_ORDERS: &str = "optimizer/withhold_orders.rs";

#[tokio::test]
async fn casts_to_times_of_day_keep_the_order_of_timestamps() {
    let plain = Plain::new(1);
    let every_seven_hours = "arrow_cast(value * 25200, 'Timestamp(Second, None)') AS t";
    plain
        .sorted_table(
            "times",
            &format!("SELECT {every_seven_hours}, value AS a FROM generate_series(0, 12)"),
            "t",
        )
        .await;
    let sql = "SELECT a FROM times ORDER BY CAST(t AS TIME) LIMIT 3";
    plain.assert_wrong(sql, &["0", "1", "2"], &["0", "7", "4"], WITHHOLD_ORDERS).await;
}

#[tokio::test]
async fn truncated_dates_keep_the_order_across_clocks_that_are_turned_back() {
    let plain = Plain::new(1);
    // A minute after midnight, it was eleven o'clock again.
    let time = "arrow_cast(1162088970 + value * 60, 'Timestamp(Second, Some(\"America/St_Johns\"))') AS t";
    plain.sorted_table("times", &format!("SELECT {time}, value AS a FROM generate_series(0, 2)"), "t").await;
    let sql = "SELECT a FROM times ORDER BY date_trunc('day', t)";
    plain.assert_wrong(sql, &["0", "1", "2"], &["0", "2", "1"], WITHHOLD_ORDERS).await;
}

#[tokio::test]
async fn bins_of_times_keep_the_order_although_distant_ones_are_null() {
    let plain = Plain::new(1);
    let rows = "SELECT arrow_cast(t, 'Timestamp(Microsecond, None)') AS t \
                FROM (VALUES ('0001-01-01'), ('2024-01-01'), ('9999-12-31')) AS t (t)";
    plain.sorted_table("times", rows, "t").await;
    let first = "SELECT date_bin(INTERVAL '1 day', t) AS bin FROM times ORDER BY bin LIMIT 1";
    plain.assert_wrong(first, &["null"], &["2024-01-01T00:00:00"], WITHHOLD_ORDERS).await;
}

#[tokio::test]
async fn logarithms_of_decimals_keep_the_order_although_only_some_are_exact() {
    let plain = Plain::new(1);
    let rows = "SELECT arrow_cast(x, 'Decimal128(20, 0)') AS x \
                FROM (VALUES (1000000000000000), (1000000000000001)) AS t (x)";
    plain.sorted_table("decimals", rows, "x").await;
    let sql = "SELECT x FROM decimals ORDER BY log(x) LIMIT 1";
    plain.assert_wrong(sql, &["1000000000000000"], &["1000000000000001"], WITHHOLD_ORDERS).await;
}

#[tokio::test]
async fn logarithms_keep_the_order_whatever_their_base() {
    let plain = Plain::new(1);
    let rows = "SELECT * FROM (VALUES (CAST(0.25 AS DOUBLE)), (0.5), (2), (4)) AS t (x)";
    plain.sorted_table("powers", rows, "x").await;
    let small_base = "SELECT x FROM powers ORDER BY log(0.5, x) LIMIT 1";
    plain.assert_wrong(small_base, &["0.25"], &["4.0"], WITHHOLD_ORDERS).await;
    let variable_base = "SELECT x FROM powers ORDER BY log(x, 16) DESC NULLS LAST LIMIT 1";
    plain.assert_wrong(variable_base, &["0.25"], &["2.0"], WITHHOLD_ORDERS).await;
}

#[tokio::test]
async fn limited_filters_cannot_be_planned_without_the_column_of_an_order() {
    let plain = Plain::new(1);
    plain.sorted_table("sorted", "SELECT value AS a, value AS b FROM generate_series(1, 10)", "a").await;
    let sql = "SELECT b FROM sorted WHERE random() >= 0 ORDER BY a LIMIT 1";
    plain.assert_fails(sql, "does not match with the projection", "the note in docs/").await;
}

#[tokio::test]
async fn orders_below_offsets_without_a_limit_are_dropped() {
    let plain = Plain::new(1);
    plain.table("t", "SELECT * FROM (VALUES (3, 1), (1, 2), (2, 3)) AS t (a, b)").await;
    let sql = "SELECT b FROM (SELECT a, b FROM t ORDER BY a OFFSET 1) ORDER BY b";
    plain.assert_wrong(sql, &["2", "3"], &["1", "3"], "the note in docs/").await;
}

#[tokio::test]
async fn the_best_rows_are_told_from_others_by_what_is_equal_in_sql() {
    let plain = Plain::new(1);
    plain.run("SET datafusion.execution.batch_size = 1").await;
    let rows = "(0.0), (0.0), (CAST('-0.0' AS DOUBLE)), (CAST('-0.0' AS DOUBLE)), (1.0)";
    plain.run(&format!("CREATE TABLE zeros AS SELECT * FROM (VALUES {rows}) AS t (f)")).await;
    let sql = "SELECT f FROM zeros ORDER BY f LIMIT 2";
    let right = ["-0.0", "-0.0"];
    plain.assert_wrong(sql, &["0.0", "0.0"], &right, "the note in docs/").await;
}

#[tokio::test]
async fn the_extremes_of_groups_with_nan_are_those_of_the_numbers_after_it() {
    let plain = Plain::new(1);
    let rows = "(1, 1000.0), (1, CAST('NaN' AS DOUBLE)), (1, 9.0)";
    plain.run(&format!("CREATE TABLE numbers AS SELECT * FROM (VALUES {rows}) AS t (g, f)")).await;
    let sql = "SELECT max(f) FROM numbers GROUP BY g";
    plain.assert_wrong(sql, &["9.0"], &["NaN"], "the note in docs/").await;
}

#[tokio::test]
async fn negatives_are_in_the_opposite_order_although_the_least_integer_has_none() {
    let plain = Plain::new(1);
    let rows = "SELECT * FROM (VALUES (-9223372036854775807 - 1, 1), (-5, 2), (7, 3)) AS t (b, k)";
    plain.sorted_table("least", rows, "b").await;
    let sql = "SELECT k FROM least ORDER BY -b DESC LIMIT 1";
    plain.assert_wrong(sql, &["1"], &["2"], WITHHOLD_ORDERS).await;
}

#[tokio::test]
async fn alternatives_keep_the_order_although_one_may_be_null() {
    let plain = Plain::new(1);
    plain.sorted_table("numbers", "SELECT * FROM (VALUES (1), (9)) AS t (a)", "a").await;
    let sql = "SELECT a FROM numbers ORDER BY a > 5 OR NULL LIMIT 1";
    plain.assert_wrong(sql, &["1"], &["9"], WITHHOLD_ORDERS).await;
}

#[tokio::test]
async fn filters_cannot_be_planned_in_the_order_of_a_root_and_its_square() {
    let plain = Plain::new(1);
    let rows = "SELECT sqrt(b) AS a, b FROM (VALUES (CAST(4 AS DOUBLE)), (9)) AS t (b)";
    plain.sorted_table("roots", rows, "a, b").await;
    let sql = "SELECT a FROM roots WHERE a = sqrt(b)";
    plain.assert_fails(sql, "out-of-domain", "`reliable_orders` in orders/mod.rs").await;
    assert_eq!(plain.rows("SELECT sqrt(a) FROM roots ORDER BY sqrt(a)").await.len(), 2, "the first may be");
}

#[tokio::test]
async fn the_best_rows_of_partitions_that_differ_in_a_constant() {
    let plain = Plain::new(2);
    let branch = |k: i32, rows: i32| format!("SELECT value AS id, {k} AS k FROM generate_series(1, {rows})");
    let sql = format!(
        "SELECT id FROM ({} UNION ALL {}) ORDER BY k, id DESC LIMIT 3",
        branch(1, 9000),
        branch(0, 9)
    );
    let plan = displayable(plain.plan(&sql).await.as_ref()).indent(false).to_string();
    let sorts_by = |keys: &str| plan.contains(&format!("SortExec: TopK(fetch=3), expr=[{keys}]"));
    let found = (sorts_by("id@0 DESC"), sorts_by("k@1 ASC NULLS LAST, id@0 DESC"));
    assert_wrong(found, (true, false), (false, true), "optimizer/merged_sorts.rs");
}

#[tokio::test]
async fn columns_that_are_constant_stay_so_in_groups_of_several_sets() {
    let plain = Plain::new(1);
    plain.table("constant", "SELECT value % 2 AS k, value AS a FROM generate_series(1, 6)").await;
    let sql = "SELECT k, count(*) FROM constant WHERE k = 1 GROUP BY ROLLUP(k) ORDER BY k LIMIT 1";
    plain.assert_wrong(sql, &["null 3"], &["1 3"], WITHHOLD_ORDERS).await;
}

#[tokio::test]
async fn columns_that_are_constant_stay_so_where_outer_joins_add_nulls() {
    let plain = Plain::new(1);
    plain.run("CREATE TABLE padded AS SELECT value AS a, value % 3 AS u FROM generate_series(1, 9)").await;
    let sql = "SELECT r.a, l.u FROM padded r LEFT JOIN padded l ON l.a = r.a AND l.u = 1
        ORDER BY l.u NULLS FIRST, r.a LIMIT 3";
    plain
        .assert_wrong(sql, &["1 1", "2 null", "3 null"], &["2 null", "3 null", "5 null"], WITHHOLD_ORDERS)
        .await;
}

#[tokio::test]
async fn groups_of_several_sets_keep_the_order_of_all_columns() {
    let plain = Plain::new(1);
    let rows = "SELECT value / 100 AS p, value % 3 AS g FROM generate_series(0, 799)";
    plain.sorted_table("grouped", rows, "p, g").await;
    let sql = "SELECT p, count(*) FROM grouped GROUP BY ROLLUP(p) ORDER BY p LIMIT 1";
    plain.assert_wrong(sql, &["null 800"], &["0 100"], WITHHOLD_ORDERS).await;
}

#[tokio::test]
async fn rows_that_are_equal_in_sql_are_taken_for_neighbours() {
    let plain = Plain::new(1);
    let zeros = "(CAST('-0.0' AS DOUBLE), 3), (CAST('-0.0' AS DOUBLE), 4), (0.0, 1), (0.0, 2)";
    plain.sorted_table("zeros", &format!("SELECT * FROM (VALUES {zeros}) AS t (f, i)"), "f, i").await;
    let sql = "SELECT i FROM zeros WHERE f = 0 ORDER BY i LIMIT 1";
    plain.assert_wrong(sql, &["3"], &["1"], "`reliable_orders` in orders/mod.rs").await;
}

/// A table `turns` of two files, each sorted by `id`.
async fn two_files(partitions: usize, first: &str, second: &str) -> Plain {
    let plain = Plain::new(partitions);
    let folder = plain.folder().join("turns");
    for (file, rows) in [("a", first), ("b", second)] {
        plain.run(&format!("COPY ({rows} ORDER BY id) TO '{}/{file}.parquet'", folder.display())).await;
    }
    let with = format!("STORED AS PARQUET WITH ORDER (id) LOCATION '{}/'", folder.display());
    plain.run(&format!("CREATE EXTERNAL TABLE turns {with}")).await;
    plain
}

/// Two files of which the first has the smaller values of both columns.
async fn two_ranges(partitions: usize) -> Plain {
    let rows = |first, last| format!("SELECT value AS id, value AS v FROM generate_series({first}, {last})");
    two_files(partitions, &rows(1, 4), &rows(5, 8)).await
}

#[tokio::test]
async fn bounds_of_files_are_compared_without_their_nulls() {
    let plain = two_files(1, "SELECT * FROM (VALUES (1), (NULL)) AS t (id)", "SELECT 2 AS id").await;
    let workaround = "`reliable_orders` in orders/mod.rs";
    plain
        .assert_wrong(
            "SELECT id FROM turns ORDER BY id",
            &["1", "null", "2"],
            &["1", "2", "null"],
            workaround,
        )
        .await;
}

#[tokio::test]
async fn orders_cross_limits_of_scans() {
    let sql = "SELECT id FROM (SELECT id, v FROM turns ORDER BY id LIMIT 3) ORDER BY v DESC";
    let workaround = "optimizer/limited_scans.rs";
    two_ranges(1).await.assert_wrong(sql, &["7", "6", "5"], &["3", "2", "1"], workaround).await;
}

#[tokio::test]
async fn files_in_order_are_sorted_by_other_columns_if_one_is_computed() {
    let plain = Plain::new(2);
    let folder = plain.folder().join("falling");
    for file in 0..4 {
        // Bounds of `v` are compared instead of those of `g`.
        let rows = format!("SELECT {} AS v, {file} AS g, value AS id FROM generate_series(1, 2)", 4 - file);
        plain.run(&format!("COPY ({rows} ORDER BY id) TO '{}/{file}.parquet'", folder.display())).await;
    }
    let with = format!("STORED AS PARQUET WITH ORDER (g, id) LOCATION '{}/'", folder.display());
    plain.run(&format!("CREATE EXTERNAL TABLE falling {with}")).await;
    let number = "row_number() OVER (PARTITION BY g ORDER BY id ROWS UNBOUNDED PRECEDING) AS n";
    let sql = format!(
        "SELECT g, n, k FROM (SELECT *, {number} FROM (SELECT g, id, 'x' AS k FROM falling)) ORDER BY g, id LIMIT 1"
    );
    let workaround = "`try_pushdown_sort` in source/file_source.rs";
    plain.assert_wrong(&sql, &["1 1 x"], &["0 1 x"], workaround).await;
}

#[tokio::test]
async fn limits_let_partitions_take_over_files_whose_order_a_merge_relies_on() {
    let plain = two_ranges(2).await;
    let plan = plain.plan("SELECT id FROM turns ORDER BY id LIMIT 3").await;
    let scan = scan_of(plan.as_ref()).unwrap();
    assert!(scan.file_groups.len() == 2 && !scan.output_ordering.is_empty());
    assert_wrong(scan.preserve_order, false, true, "`tell_scan` in optimizer/tell_scans.rs");
}

fn scan_of(node: &dyn ExecutionPlan) -> Option<FileScanConfig> {
    match node.downcast_ref::<DataSourceExec>() {
        Some(scan) => scan.data_source().downcast_ref::<FileScanConfig>().cloned(),
        None => node.children().into_iter().find_map(|child| scan_of(child.as_ref())),
    }
}

#[tokio::test]
async fn joins_claim_the_order_of_their_build_side() {
    let plain = Plain::new(1);
    let rows = "SELECT value / 4 AS g, 20 - value AS id FROM generate_series(1, 12)";
    plain.sorted_table("o", rows, "g").await;
    plain.sorted_table("k", "SELECT value AS k FROM generate_series(1, 20)", "k").await;
    let sql = "SELECT g, id FROM o JOIN k ON id = k ORDER BY g, id LIMIT 3";
    plain
        .assert_wrong(
            sql,
            &["0 19", "0 18", "0 17"],
            &["0 17", "0 18", "0 19"],
            "optimizer/withhold_orders.rs",
        )
        .await;
}
