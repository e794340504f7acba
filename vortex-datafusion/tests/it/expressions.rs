//! Expressions that scans evaluate: long ones, ones that may fail, and lambda functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::Array as _;
use arrow::datatypes::DataType;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};

use crate::files::{error, number, plan, run, session, show, table_of};

#[tokio::test(flavor = "multi_thread")]
async fn filters_have_a_thousand_operands() {
    const OPERANDS: i64 = 1_000;

    let context = session();
    let rows = "SELECT value AS id, value % 2 AS odd FROM generate_series(0, 19999)";
    let _folder = table_of(&context, &[rows], "").await;
    let chain = |op: &str, operand: &dyn Fn(i64) -> String| {
        (0..OPERANDS).map(operand).collect::<Vec<_>>().join(&format!(" {op} "))
    };
    for (filter, rows) in [
        (chain("OR", &|at| format!("(id BETWEEN {} AND {})", 10 * at, 10 * at + 1)), 2 * OPERANDS),
        (chain("OR", &|at| format!("(id = {} AND odd = 1)", 3 * at)), OPERANDS / 2),
        (chain("AND", &|at| format!("(id < {} OR odd = 1)", 9 * at + 1)), 10_001),
        (chain("AND", &|at| format!("id <> {}", 2 * at)), 20_000 - OPERANDS),
        (chain("OR", &|at| format!("(id > 999 AND id / (id / 1000) = {})", 1000 + at)), 19_000),
    ] {
        assert_eq!(number(&context, &format!("SELECT count(*) FROM t WHERE {filter}")).await, rows);
    }
}

#[tokio::test]
async fn conjuncts_that_may_fail_see_only_rows_that_passed_those_before_them() {
    let context = session();
    let rows = "SELECT value AS a, value % 10 AS b, CASE WHEN value % 3 = 0 THEN '-' ELSE CAST(value AS VARCHAR) END AS c
        FROM generate_series(0, 999)";
    let _folder = table_of(&context, &[rows], "").await;
    let filter = "b <> 0 AND 100 / b > 30 AND a % 3 <> 0 AND CAST(c AS BIGINT) < 500
        AND 100 / (b - 4) < 0 AND upper(c) <> '1'";
    let plan = plan(&context, &format!("SELECT a FROM t WHERE {filter}")).await;
    assert!(!plan.contains("FilterExec"), "{plan}");
    // b is 1, 2 or 3, a is not a multiple of 3, and a is neither 1 nor above 499.
    let expected = (0..500).filter(|a| (1..4).contains(&(a % 10)) && a % 3 != 0 && *a != 1).count();
    assert_eq!(number(&context, &format!("SELECT count(*) FROM t WHERE {filter}")).await, expected as i64);
    let message = error(&context, "SELECT a FROM t WHERE b <= 3 AND 100 / b > 30").await;
    assert!(message.contains("Divide by zero"), "{message}");
}

#[tokio::test]
async fn operands_that_may_fail_see_only_rows_that_those_before_them_leave_undecided() {
    let context = session();
    let rows = "SELECT value AS id, nullif(CASE WHEN value < 100000 THEN value % 5 ELSE value END, 4) AS x
                FROM generate_series(0, 149999)";
    let _folder = table_of(&context, &[rows], "").await;
    // Of 20,000 rows each, x is 0, 1, 2, 3 or null; in the last third, it is large.
    for (filter, rows) in [
        ("x = 0 OR 50 / x > 20", 60_000),
        ("CASE WHEN x = 0 THEN true ELSE 50 / x > 20 END", 60_000),
        ("CASE WHEN x <> 0 THEN 50 / x > 20 ELSE id > 99990 END", 40_003),
        ("x IS NULL OR x = 0 OR id >= 100000 OR x = 3 OR 7 / (x - 3) = -7", 130_000),
        ("id < 10 OR (x > 0 AND 50 / x = 25) OR x IS NULL", 40_006),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {filter}");
        let plan = plan(&context, &sql).await;
        assert!(!plan.contains("FilterExec"), "{plan}");
        assert_eq!(number(&context, &sql).await, rows, "{filter}");
    }
    for filter in ["x = 1 OR 50 / x > 20", "50 / x > 20 OR x = 0"] {
        let message = error(&context, &format!("SELECT count(*) FROM t WHERE {filter}")).await;
        assert!(message.contains("Divide by zero"), "{message}");
    }
}

#[tokio::test]
async fn bounds_that_overflow_in_another_unit_fail_no_plan() {
    let context = session();
    let rows = "SELECT value AS id, CASE WHEN value < 900 THEN date '2020-01-01' ELSE date '9999-12-31' END AS day,
                arrow_cast(CASE WHEN value < 900 THEN value ELSE 9223372036854775807 END, 'Timestamp(Second, None)')
                    AS second,
                arrow_cast(value, 'Timestamp(Millisecond, None)') AS milli
                FROM generate_series(1, 1000)";
    let _folder = table_of(&context, &[rows], "").await;
    for (filter, rows) in [
        ("id = 3 AND day > timestamp '2019-01-01 10:00:00'", 1),
        ("id < 5 AND day < now()", 4),
        ("id < 5 AND second > milli", 4),
        ("id < 5 AND second < now()", 4),
        // Nothing is cast.
        ("day > timestamp '2020-01-01'", 101),
        ("day > timestamp '2020-01-01 10:00:00'", 101),
        ("timestamp '2019-12-31 10:00:00' >= day", 0),
        ("day >= now()", 101),
        ("second <= timestamp '1970-01-01 00:00:10.5'", 10),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {filter}");
        assert_eq!(number(&context, &sql).await, rows, "{filter}");
    }
    // Its extremes are known all the same.
    let sql = "SELECT max(day) FROM t";
    assert!(plan(&context, sql).await.contains("PlaceholderRowExec"), "{}", plan(&context, sql).await);
    assert!(show(&context, sql).await.contains("9999-12-31"));
}

#[tokio::test]
async fn each_of_many_conjuncts_that_may_fail_is_evaluated_once() {
    const ROWS: usize = 1_000;
    const CONJUNCTS: usize = 50;

    let context = session();
    let evaluated = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&evaluated);
    let counted = move |args: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        counter.fetch_add(arrays[0].len(), Ordering::Relaxed);
        Ok(ColumnarValue::Array(Arc::clone(&arrays[0])))
    };
    let (int, counted) = (DataType::Int64, Arc::new(counted));
    context.register_udf(create_udf("counted", vec![int.clone()], int, Volatility::Immutable, counted));
    let rows = format!("SELECT value AS a FROM generate_series(1, {ROWS})");
    let _folder = table_of(&context, &[rows], "").await;
    // Each rejects one row.
    let conjuncts: Vec<_> = (0..CONJUNCTS).map(|at| format!("counted(a + {at}) <> {}", 2 * at + 1)).collect();
    let sql = format!("SELECT count(*) FROM t WHERE {}", conjuncts.join(" AND "));
    assert_eq!(number(&context, &sql).await, (ROWS - CONJUNCTS) as i64);
    let evaluated = evaluated.load(Ordering::Relaxed);
    assert!((ROWS..=CONJUNCTS * ROWS).contains(&evaluated), "{evaluated}");
}

#[tokio::test]
async fn columns_of_conjuncts_that_may_fail_are_decoded_for_rows_that_passed_those_before_them() {
    let context = session();
    let decoded = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&decoded);
    let measured = move |args: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        // Filtering an array of views leaves their bytes as they are.
        counter.fetch_add(arrays[0].get_buffer_memory_size(), Ordering::Relaxed);
        Ok(ColumnarValue::Array(Arc::clone(&arrays[0])))
    };
    let (text, measured) = (DataType::Utf8View, Arc::new(measured));
    context.register_udf(create_udf("measured", vec![text.clone()], text, Volatility::Immutable, measured));
    let rows = "SELECT value AS k, repeat(md5(CAST(value AS VARCHAR)), 32) AS payload
        FROM generate_series(0, 4999)";
    let _folder = table_of(&context, &[rows], "").await;
    let wide = "length(measured(payload)) = 1024";
    for (filter, passed) in [(wide.to_owned(), 5_000), (format!("abs(k) = 7 AND {wide}"), 1)] {
        assert_eq!(number(&context, &format!("SELECT count(*) FROM t WHERE {filter}")).await, passed);
        let decoded = decoded.swap(0, Ordering::Relaxed);
        assert_eq!(decoded > 1 << 20, passed > 1, "{decoded} bytes for {passed} rows");
    }
}

#[tokio::test]
async fn lambda_functions_are_computed_next_to_fields_and_numbers_of_rows() {
    let context = session();
    let rows = "SELECT named_struct('a', v, 'b', v * 10) AS s, make_array(v, v + 1) AS tags, v
        FROM (VALUES (1), (5)) u (v)";
    let _folder = table_of(&context, &[rows], "").await;
    run(&context, "SET datafusion.sql_parser.dialect = 'duckdb'").await;
    for (columns, expected) in [
        ("s['a'] AS a, s['b'] AS b, array_transform(tags, x -> x + 1) AS l", "| 5 | 50 | [6, 7] |"),
        (
            "file_row_index() AS n, array_transform(tags, x -> x + 1) AS l, v, s['b'] AS b",
            "| 1 | [6, 7] | 5 | 50 |",
        ),
        ("s['a'] AS a, s['b'] AS b, array_transform(tags, x -> x + v) AS l", "| 5 | 50 | [10, 11] |"),
    ] {
        let shown = show(&context, &format!("SELECT {columns} FROM t")).await;
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(expected), "{shown}");
    }
}
