//! Filters that reach another column of the same name, and other operators than they concern.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{binary, col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter_pushdown::FilterPushdownPhase;
use datafusion::physical_plan::union::UnionExec;

use super::{Plain, assert_wrong};

const WORKAROUND: &str = "optimizer/misdirected_filters.rs";

/// Three orders of one client: their columns `id` are not the same.
async fn orders() -> Plain {
    let plain = Plain::new(1);
    plain.table("orders", "SELECT * FROM (VALUES (7, 2), (2, 2), (9, 2)) AS t (id, cid)").await;
    plain.table("clients", "SELECT * FROM (VALUES (2, 'x')) AS t (id, name)").await;
    plain.table("wanted", "SELECT * FROM (VALUES (2)) AS t (z)").await;
    plain
}

#[tokio::test]
async fn filters_reach_the_first_column_of_a_name() {
    let sql = "SELECT g.* FROM (
        SELECT c.id, max(o.id) AS m, count(*) AS n FROM orders o JOIN clients c ON o.cid = c.id GROUP BY c.id
    ) g JOIN wanted ON z = g.id";
    orders().await.assert_wrong(sql, &["2 2 1"], &["2 9 3"], WORKAROUND).await;
}

#[tokio::test]
async fn filters_above_groups_of_several_sets_reach_the_first_column_of_a_name() {
    let sql = "SELECT count(*) FROM (
        SELECT o.id, name FROM orders o JOIN clients c ON o.cid = c.id
        GROUP BY GROUPING SETS ((o.id, name), (o.id)) HAVING o.id > 5
    )";
    orders().await.assert_wrong(sql, &["0"], &["4"], WORKAROUND).await;
}

#[tokio::test]
async fn filters_above_swapped_joins_reach_the_first_column_of_a_name() {
    let plain = Plain::new(1);
    plain.table("numbers", "SELECT value AS id, value % 1000 AS k FROM generate_series(1, 20000)").await;
    plain.table("codes", "SELECT value AS id, value + 990 AS k FROM generate_series(0, 19)").await;
    let sql = "SELECT c.k FROM numbers n RIGHT JOIN codes c ON n.k = c.k WHERE n.k IS NULL AND c.id > 16";
    plain.assert_wrong(sql, &[], &["1007", "1008", "1009"], WORKAROUND).await;
}

#[tokio::test]
async fn filters_on_keys_of_semi_joins_reach_other_columns_of_that_name() {
    let sql = "SELECT count(*) FROM (
        SELECT cid, id FROM orders o WHERE EXISTS (
            SELECT 1 FROM (SELECT z AS k, z + 40 AS cid FROM wanted) e WHERE e.k = o.cid AND e.cid > o.id
        ) GROUP BY GROUPING SETS ((cid, id), (cid)) HAVING cid < 5
    )";
    orders().await.assert_wrong(sql, &["0"], &["4"], WORKAROUND).await;
}

#[test]
fn unions_pass_filters_on_with_names_of_other_columns() {
    let field = |name| Field::new(name, DataType::Int32, true);
    let empty = |first, second| {
        let schema = Arc::new(Schema::new(vec![field(first), field(second)]));
        Arc::new(EmptyExec::new(schema)) as Arc<dyn ExecutionPlan>
    };
    let union = UnionExec::try_new(vec![empty("a", "b"), empty("b", "a")]).unwrap();
    let filter = binary(col("b", &union.schema()).unwrap(), Operator::Gt, lit(5), &union.schema()).unwrap();
    let passed = union.gather_filters_for_pushdown(
        FilterPushdownPhase::Post,
        vec![Arc::clone(&filter)],
        &ConfigOptions::new(),
    );
    let passed = passed.unwrap().parent_filters();
    let passed: Vec<String> = passed.iter().flatten().map(|passed| passed.predicate.to_string()).collect();
    assert_wrong(passed.as_slice(), &["b@1 > 5", "b@1 > 5"], &["b@1 > 5", "a@1 > 5"], WORKAROUND);
}
