//! Statistics from which DataFusion derives wrong answers, or fails.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::source::Table;
use super::{Plain, assert_wrong};

const EXACT_STATISTICS: &str = "optimizer/exact_statistics.rs and statistics/scan.rs";

/// A session with a table `t` of two columns, each with the numbers from 1 to 10, which states everything exactly.
fn with_exact_statistics() -> Plain {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(1..=10));
    let column = ColumnStatistics {
        null_count: Precision::Exact(0),
        min_value: Precision::Exact(1i64.into()),
        max_value: Precision::Exact(10i64.into()),
        sum_value: Precision::Exact(55i64.into()),
        distinct_count: Precision::Exact(10),
        byte_size: Precision::Exact(80),
    };
    let statistics = Statistics {
        num_rows: Precision::Exact(10),
        total_byte_size: Precision::Exact(160),
        column_statistics: vec![column.clone(), column],
    };
    let table =
        Table::new(RecordBatch::try_from_iter([("a", Arc::clone(&numbers)), ("b", numbers)]).unwrap());
    let plain = Plain::new(1);
    plain.context.register_table("t", Arc::new(table.with_statistics(statistics))).unwrap();
    plain
}

#[tokio::test]
async fn sums_below_joins_are_taken_for_those_above() {
    let sql = "SELECT sum(a) FROM t JOIN (VALUES (5), (6)) AS v (k) ON a = k";
    with_exact_statistics().assert_wrong(sql, &["55"], &["11"], EXACT_STATISTICS).await;
}

#[tokio::test]
async fn distinct_values_below_joins_are_taken_for_those_above() {
    // Of a single count, DataFusion makes groups.
    let sql = "SELECT count(DISTINCT a), count(DISTINCT b) FROM t JOIN (VALUES (5), (6)) AS v (k) ON a = k";
    let workaround = "`distinct` in statistics/footer.rs and statistics/scan.rs";
    with_exact_statistics().assert_wrong(sql, &["10 10"], &["2 2"], workaround).await;
}

#[tokio::test]
async fn statistics_of_a_partition_are_those_of_its_files_whatever_a_limit_leaves() {
    let plain = Plain::new(1);
    plain.table("numbers", "SELECT value AS a FROM generate_series(1, 1000)").await;
    let plan = plain.plan("SELECT a FROM numbers LIMIT 3").await;
    let of_first = StatisticsArgs::new().with_partition(Some(0));
    let known = StatisticsContext::new().compute(plan.as_ref(), &of_first).unwrap();
    let workaround = "`with_estimates` in statistics/scan.rs";
    assert_wrong(known.num_rows, Precision::Exact(1000), Precision::Exact(3), workaround);
}

#[tokio::test]
async fn extremes_are_cast_whatever_a_cast_does_to_the_order() {
    let sql = "SELECT max(x) FROM (SELECT CAST(a AS VARCHAR) AS x FROM t)";
    with_exact_statistics().assert_wrong(sql, &["10"], &["9"], EXACT_STATISTICS).await;
}

#[tokio::test]
async fn counts_hide_that_casts_fail() {
    let plain = Plain::new(1);
    plain.table("numbers", "SELECT value AS a FROM generate_series(1, 1000)").await;
    let found = plain.try_rows("SELECT count(x) FROM (SELECT CAST(a AS TINYINT) AS x FROM numbers)").await;
    let found = found.unwrap_or_else(|_| vec!["an error".to_owned()]);
    assert_wrong(found.as_slice(), &["1000"], &["an error"], EXACT_STATISTICS);
}

#[tokio::test]
async fn the_sum_of_a_constant_over_no_rows_is_zero() {
    let plain = Plain::new(1);
    plain.table("nothing", "SELECT 1 AS a WHERE false").await;
    let sql = "SELECT sum(x) FROM (SELECT 5 AS x FROM nothing)";
    plain.assert_wrong(sql, &["0"], &["null"], EXACT_STATISTICS).await;
}

#[tokio::test]
async fn constants_of_no_rows_are_extremes_of_a_union() {
    let plain = Plain::new(1);
    plain.table("nothing", "SELECT 1 AS a WHERE false").await;
    plain.table("something", "SELECT 1 AS a").await;
    let sql = "SELECT min(x) FROM (SELECT 5 AS x FROM nothing UNION ALL SELECT 7 FROM something)";
    plain.assert_wrong(sql, &["5"], &["7"], "`without_failure` in optimizer/exact_statistics.rs").await;
}

#[test]
fn a_null_value_of_a_folder_is_no_null() {
    let rows = Statistics { num_rows: Precision::Exact(10), ..Statistics::default() };
    let file = PartitionedFile::new("x", 1).with_partition_values(vec![ScalarValue::Int32(None)]);
    let known = file.with_statistics(Arc::new(rows)).statistics.unwrap();
    let nulls = known.column_statistics[0].null_count;
    let workaround = "`without_null_folders` in statistics/scan.rs";
    assert_wrong(nulls, Precision::Exact(0), Precision::Exact(10), workaround);
}

#[tokio::test]
async fn filters_cannot_be_planned_if_nanoseconds_cannot_express_a_bound() {
    let plain = Plain::new(1);
    plain.table("never", "SELECT DATE '9999-12-31' AS d UNION ALL SELECT DATE '2020-01-01'").await;
    let sql = "SELECT d FROM never WHERE d < TIMESTAMP '2021-01-01T12:00:00'";
    plain.assert_fails(sql, "overflow", "`lacks_nanoseconds` in statistics/scan.rs").await;
}

#[tokio::test]
async fn filters_cannot_be_planned_if_a_bound_has_no_negative() {
    let plain = Plain::new(1);
    plain.table("least", "SELECT -9223372036854775807 - value AS a FROM generate_series(0, 1)").await;
    let sql = "SELECT a FROM least WHERE -a < 5";
    plain.assert_fails(sql, "overflow", "`lacks_negative` in statistics/scan.rs").await;
}

#[test]
fn a_projection_keeps_the_size_of_a_whole_table_with_text() {
    let mut known = Statistics::new_unknown(&Schema::empty());
    (known.num_rows, known.total_byte_size) = (Precision::Exact(10), Precision::Exact(1_000_000));
    let text = Schema::new(vec![Field::new("t", DataType::Utf8, true)]);
    known.calculate_total_byte_size(&text);
    let right = Precision::Absent;
    let workaround = "`total_bytes` in statistics/footer.rs";
    assert_wrong(known.total_byte_size, Precision::Inexact(1_000_000), right, workaround);
}

#[tokio::test]
async fn statistics_of_parquet_files_leave_out_nan() {
    let plain = Plain::new(1);
    plain.table("floats", "SELECT CAST('NaN' AS DOUBLE) AS f UNION ALL SELECT 1.0").await;
    let workaround = "bin/vortex/formats/parquet.rs and the note in docs/";
    plain.assert_wrong("SELECT f FROM floats", &["1.0", "1.0"], &["NaN", "1.0"], workaround).await;
    plain.assert_wrong("SELECT max(f) FROM floats", &["1.0"], &["NaN"], workaround).await;
}
