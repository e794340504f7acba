//! Aggregations that scans compute.

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::not_impl_err;
use datafusion::logical_expr::{AggregateUDF, Volatility, create_udaf};
use datafusion::prelude::{SessionConfig, SessionContext};
use vortex_core::VortexFile;
use vortex_core::io::MemoryFile;
use vortex_datafusion::{VortexContextExt as _, VortexReadOptions, VortexTable};

use crate::files::{
    copy, create, error, file, number, plan, pushed_answer, run, session, session_with, show, table_of,
    written,
};

const ALL: &str = "count(*), count(a), sum(a), avg(a), min(a), max(a)";

/// Whether the scan returns states, given the plan.
fn is_pushed(plan: &str) -> bool {
    plan.contains("mode=Final") && !plan.contains("mode=Partial")
}

/// The answer with the scan computing the aggregation, which must be the same without.
async fn answer(context: &SessionContext, sql: &str) -> String {
    pushed_answer(context, sql, is_pushed).await
}

#[tokio::test]
async fn files_that_store_other_types_are_aggregated_row_by_row() {
    let context = session();
    let files = [
        "SELECT CAST(value AS INT) AS a, value AS b FROM generate_series(1, 10)",
        "SELECT value AS a, value AS b FROM generate_series(100, 120)",
        "SELECT value AS b FROM generate_series(1, 7)",
    ];
    let _folder = table_of(&context, &files, "").await;
    let sql = format!("SELECT {ALL} FROM t WHERE b > 3");
    let found = answer(&context, &sql).await;
    assert!(found.contains("| 32 ") && found.contains("| 28 ") && found.contains("| 2359 "), "{found}");
}

#[tokio::test]
async fn partition_columns_are_aggregated_too() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    for day in [3, 5] {
        let rows = format!("SELECT value AS b FROM generate_series(1, {day}00)");
        copy(&context, &rows, folder.path().join(format!("a={day}/rows.vortex")).display()).await;
    }
    create(&context, "t (b BIGINT, a INT) PARTITIONED BY (a)", folder.path().join("").display()).await;
    let found = answer(&context, &format!("SELECT {ALL}, sum(b) FROM t WHERE b > 50")).await;
    assert!(found.contains("| 700 ") && found.contains("| 3000 "), "{found}");
    assert!(answer(&context, &format!("SELECT {ALL} FROM t WHERE b > 5000")).await.contains("| 0 "));
}

#[tokio::test]
async fn nulls_of_a_column_that_is_declared_without_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let place = format!("{}/a.vortex", folder.path().display());
    copy(&context, "SELECT nullif(value, 5) AS a, value AS b FROM generate_series(1, 10)", &place).await;
    let fields = vec![Field::new("a", DataType::Int64, false), Field::new("b", DataType::Int64, true)];
    let told = VortexReadOptions::new().with_schema(Arc::new(Schema::new(fields)));
    context.register_vortex_with("t", &[&place], told).await.unwrap();
    let sql = "SELECT count(a), sum(b) FROM t WHERE b > 2";
    assert!(is_pushed(&plan(&context, sql).await));
    let message = error(&context, sql).await;
    assert!(message.contains("a.vortex") && message.contains("`a` is declared as non-nullable"), "{message}");
    assert_eq!(number(&context, "SELECT count(a) + sum(b) FROM t WHERE b > 5").await, 45);
}

#[tokio::test]
async fn extremes_of_several_files_are_those_of_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    // Long text, of which statistics have bounds only; nulls; a file without a column, and one with another type.
    for (file, first) in [("day=1/a", 70_000), ("day=1/b", 0), ("day=2/c", 210_000), ("day=2/d", 140_000)] {
        let rows = format!(
            "SELECT value AS a, nullif(lpad(CAST(value AS VARCHAR), 12, '0') || repeat('x', 80), '') AS text, \
             nullif(value % 7, 3) AS few FROM generate_series({first}, {})",
            first + 69_999
        );
        copy(&context, &rows, format!("{}/{file}.vortex", folder.path().display())).await;
    }
    let place = format!("{}/day=3/e.vortex", folder.path().display());
    copy(&context, "SELECT CAST(value AS INT) AS a FROM generate_series(5, 10)", &place).await;
    let table = "t (a BIGINT, text VARCHAR, few BIGINT, day INT) PARTITIONED BY (day)";
    create(&context, table, folder.path().join("").display()).await;
    for partitions in [1, 3] {
        run(&context, &format!("SET datafusion.execution.target_partitions = {partitions}")).await;
        for aggregates in [
            "min(text)",
            "max(text)",
            "max(day), min(text), max(text), min(day)",
            "max(few), max(text), min(few), min(a), max(a)",
            "count(*), max(text)",
            "count(text), min(text), sum(few)",
        ] {
            for filter in
                ["few > 4", "a % 1000 = 17", "day = 2 AND few IS NULL", "a BETWEEN 60000 AND 150000"]
            {
                answer(&context, &format!("SELECT {aggregates} FROM t WHERE {filter}")).await;
            }
        }
    }
}

#[tokio::test]
async fn extremes_of_floats_include_nan_and_the_sign_of_zero() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    // Of `b`, every tenth value: the numbers, both zeros, NaN above and below all numbers.
    for (file, rare) in
        [("a", "b"), ("b", "-0.0"), ("c", "0.0"), ("d", "'NaN'::DOUBLE"), ("e", "-('NaN'::DOUBLE)")]
    {
        let rows = format!(
            "SELECT a, CASE WHEN a % 10 = 3 THEN {rare} ELSE b END AS b, CAST(b AS REAL) AS c, \
             a % 3 = 0 AS d, CAST(a AS DECIMAL(50, 2)) AS e \
             FROM (SELECT value AS a, abs(value - 15000) / 8.0 AS b FROM generate_series(1, 30000))"
        );
        copy(&context, &rows, format!("{}/{file}.vortex", folder.path().display())).await;
    }
    for files in ["", "a.vortex", "b.vortex", "c.vortex", "d.vortex", "e.vortex"] {
        create(&context, "t", format!("{}/{files}", folder.path().display())).await;
        for partitions in [1, 3] {
            run(&context, &format!("SET datafusion.execution.target_partitions = {partitions}")).await;
            for aggregates in ["min(b)", "max(b)", "count(b), min(b), max(c), min(d), max(d), min(e), max(e)"]
            {
                for filter in ["a > 20000", "a % 10 = 3", "a % 10 <> 3 AND d", "a = 15000", "a > 7 AND a < 7"]
                {
                    answer(&context, &format!("SELECT {aggregates} FROM t WHERE {filter}")).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn averages_whose_sums_are_rounded_are_those_of_the_rows() {
    let context = session();
    // The sum of these differs from that of the same numbers as floats.
    let rows = "SELECT 9007199254740993 + value % 3 AS a, value AS b FROM generate_series(1, 100000)";
    let _folder = table_of(&context, &[rows], "").await;
    run(&context, "SET datafusion.execution.target_partitions = 1").await;
    answer(&context, "SELECT avg(a), count(b) FROM t WHERE b >= 0").await;
    answer(&context, "SELECT avg(b), sum(a) FROM t WHERE b >= 0").await;
}

#[tokio::test]
async fn a_type_that_only_another_program_knows_is_added_by_its_storage() {
    let bytes = fs::read(file("dates_times")).unwrap();
    // Of the same length, so that the file remains consistent.
    let known = b"vortex.date";
    let starts: Vec<usize> =
        (0..bytes.len() - known.len()).filter(|at| bytes[*at..].starts_with(known)).collect();
    let mut renamed = bytes;
    starts.iter().for_each(|at| renamed[*at..*at + known.len()].copy_from_slice(b"acme.ticks1"));
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("ticks.vortex");
    fs::write(&place, renamed).unwrap();
    let context = session();
    create(&context, "t", place.display()).await;
    let found = answer(&context, "SELECT sum(date32), avg(date32), min(date32), count(date32) FROM t").await;
    assert!(!starts.is_empty() && !found.contains("|  "), "{found}");
}

#[tokio::test]
async fn rows_that_statistics_describe_are_not_read() {
    let context = session_with(SessionConfig::new().with_target_partitions(1));
    let rows = "SELECT value AS a, value % 7 AS b FROM generate_series(0, 299999)";
    let _folder = table_of(&context, &[rows], "").await;
    let sql = "SELECT count(*), sum(b), avg(b), max(a) FROM t WHERE a BETWEEN 65000 AND 270000";
    let found = answer(&context, sql).await;
    assert!(found.contains("| 205001 "), "{found}");
    let explained = show(&context, &format!("EXPLAIN ANALYZE {sql}")).await;
    assert!(explained.contains("rows_answered_statistics=196.6 K"), "three splits: {explained}");
}

#[tokio::test]
async fn open_files_are_aggregated() {
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter((0..1000).map(|at| (at % 10 > 0).then_some(at))));
    let rows = RecordBatch::try_from_iter_with_nullable([("a", numbers, true)]).unwrap();
    let open = VortexFile::open(Arc::new(MemoryFile::new(written(&rows).await)));
    let table = VortexTable::try_new(vec![open.await.unwrap()]).unwrap();
    let context = session();
    context.register_table("t", Arc::new(table)).unwrap();
    let found = answer(&context, &format!("SELECT {ALL} FROM t WHERE a < 500")).await;
    assert!(found.contains("| 450 ") && found.contains("| 112500 "), "{found}");
}

#[tokio::test]
async fn only_functions_of_datafusion_are_computed_by_the_scan() {
    let path = file("tpch_lineitem");
    let context = session();
    create(&context, "t", path.display()).await;
    let is_pushed = async |sql: &str| is_pushed(&plan(&context, sql).await);
    assert!(is_pushed("SELECT sum(l_linenumber) FROM t WHERE l_orderkey > 7").await);
    assert!(is_pushed("SELECT min(l_orderkey), max(l_orderkey) FROM t WHERE l_linenumber = 1").await);
    for sql in [
        "SELECT count(*) FROM t WHERE l_orderkey > 7",
        "SELECT sum(DISTINCT l_linenumber) FROM t WHERE l_orderkey > 7",
        "SELECT sum(l_linenumber) FILTER (WHERE l_tax > 0) FROM t WHERE l_orderkey > 7",
        "SELECT sum(l_linenumber) FROM t WHERE l_orderkey > 7 GROUP BY l_shipmode",
        "SELECT sum(l_linenumber + 1) FROM t WHERE l_orderkey > 7",
        "SELECT sum(CAST(l_linenumber AS DOUBLE)) FROM t WHERE l_orderkey > 7",
        "SELECT sum(l_linenumber) FROM t WHERE random() < 2",
        "SELECT sum(l_linenumber) FROM (SELECT l_linenumber FROM t LIMIT 10)",
    ] {
        assert!(!is_pushed(sql).await, "{sql}");
    }
    // A function of another kind that has the name of a known one.
    let product: AggregateUDF = create_udaf(
        "sum",
        vec![DataType::Int64],
        Arc::new(DataType::Int64),
        Volatility::Immutable,
        Arc::new(|_| not_impl_err!("only planned")),
        Arc::new(vec![DataType::Int64]),
    );
    context.register_udaf(product);
    assert!(!is_pushed("SELECT sum(l_orderkey) FROM t WHERE l_orderkey > 7").await);
}
