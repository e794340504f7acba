//! Filters that exclude data by bounds, or that DataFusion evaluates where SQL protects them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{binary, cast, col, lit, negative};
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_plan::metrics::Count;
use datafusion_pruning::FilePruner;

use super::{Plain, assert_wrong};

const PRUNE: &str = "`keeps_bounds` in opener/prune.rs";

#[tokio::test]
async fn bounds_are_cast_whatever_a_cast_does_to_the_order() {
    let plain = Plain::new(1);
    let every_seven_hours = "arrow_cast(value * 25200, 'Timestamp(Second, None)') AS t";
    let rows = format!("SELECT {every_seven_hours}, value AS a FROM generate_series(-3, 12)");
    plain.table("times", &rows).await;
    for cast in ["CAST", "TRY_CAST"] {
        let sql = format!("SELECT count(*) FROM times WHERE {cast}(t AS TIME) > '20:00:00'");
        plain.assert_wrong(&sql, &["0"], &["2"], PRUNE).await;
    }
    let sql = "SELECT a FROM times WHERE CAST(a AS BOOLEAN) IS DISTINCT FROM TRUE";
    plain.assert_wrong(sql, &[], &["0"], PRUNE).await;
}

/// A file of one column `c` with these bounds, as its schema.
fn bounded(min: ScalarValue, max: ScalarValue) -> (Arc<Schema>, PartitionedFile) {
    let schema = Arc::new(Schema::new(vec![Field::new("c", min.data_type(), true)]));
    let column = ColumnStatistics {
        null_count: Precision::Exact(0),
        min_value: Precision::Exact(min),
        max_value: Precision::Exact(max),
        ..ColumnStatistics::default()
    };
    let known = Statistics {
        num_rows: Precision::Exact(2),
        total_byte_size: Precision::Absent,
        column_statistics: vec![column],
    };
    (schema, PartitionedFile::new("a", 10).with_statistics(Arc::new(known)))
}

/// Whether the file is excluded by a comparison of what `operand` makes of its column.
fn excludes(
    (schema, file): &(Arc<Schema>, PartitionedFile),
    operand: impl FnOnce(Arc<dyn PhysicalExpr>, &Schema) -> Arc<dyn PhysicalExpr>,
    op: Operator,
    value: impl Into<ScalarValue>,
) -> bool {
    let operand = operand(col("c", schema).unwrap(), schema);
    let filter = binary(operand, op, lit(value.into()), schema).unwrap();
    let pruner = FilePruner::try_new(filter, schema, file, Count::new());
    pruner.is_some_and(|mut pruner| pruner.should_prune().unwrap())
}

#[test]
fn bounds_are_negated_although_the_least_integer_has_no_negative() {
    let least = bounded(i64::MIN.into(), (i64::MIN + 1).into());
    let negated = |column, schema: &Schema| negative(column, schema).unwrap();
    assert_wrong(excludes(&least, negated, Operator::Lt, 4_294_967_295i64), true, false, PRUNE);
}

#[test]
fn literals_are_rounded_to_the_type_that_bounds_are_cast_from() {
    let decimal = |value| ScalarValue::Decimal128(Some(value), 10, 2);
    let decimals = bounded(decimal(260), decimal(263));
    let whole = |column, schema: &Schema| cast(column, schema, DataType::Int32).unwrap();
    assert_wrong(excludes(&decimals, whole, Operator::LtEq, 2i32), true, false, PRUNE);
    let second = ScalarValue::TimestampSecond(Some(1), None);
    let seconds = bounded(second.clone(), second);
    let milliseconds = |column, schema: &Schema| {
        cast(column, schema, DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap()
    };
    let later = ScalarValue::TimestampMillisecond(Some(1500), None);
    assert_wrong(excludes(&seconds, milliseconds, Operator::Lt, later), true, false, PRUNE);
}

#[test]
fn the_simplifier_rounds_literals_to_the_type_of_a_column() {
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    let schema = Schema::new(vec![Field::new("s", seconds.clone(), true)]);
    let finer = DataType::Timestamp(TimeUnit::Millisecond, None);
    let operand = cast(col("s", &schema).unwrap(), &schema, finer).unwrap();
    let literal = lit(ScalarValue::TimestampMillisecond(Some(1500), None));
    let filter = binary(operand, Operator::Lt, literal, &schema).unwrap();
    let simple = PhysicalExprSimplifier::new(&schema).simplify(Arc::clone(&filter)).unwrap();
    let rounded = lit(ScalarValue::TimestampSecond(Some(1), None));
    let rounded = binary(col("s", &schema).unwrap(), Operator::Lt, rounded, &schema).unwrap();
    let workaround = "`without_cast` in convert/simplify.rs";
    assert_wrong(simple.to_string(), rounded.to_string(), filter.to_string(), workaround);
}

#[tokio::test]
async fn statements_round_literals_to_the_type_of_a_column() {
    let plain = Plain::new(1);
    plain.run("CREATE TABLE t AS SELECT CAST(2.60 AS DECIMAL(10, 2)) AS d").await;
    let workaround = "the note in docs/";
    assert_eq!(plain.rows("SELECT CAST(d AS INT) FROM t").await, ["2"]);
    plain.assert_wrong("SELECT count(*) FROM t WHERE CAST(d AS INT) <= 2", &["0"], &["1"], workaround).await;
}

#[tokio::test]
async fn conditions_do_not_protect_what_follows_them() {
    let plain = Plain::new(1);
    plain.run("CREATE TABLE t AS SELECT value % 2 AS d FROM generate_series(1, 100)").await;
    for filter in ["d = 0 OR 10 / d > 1", "(d <> 0 AND 10 / d > 1) IS TRUE"] {
        let sql = format!("SELECT count(*) FROM t WHERE {filter}");
        plain.assert_fails(&sql, "Divide by zero", "convert/guards.rs").await;
    }
}
