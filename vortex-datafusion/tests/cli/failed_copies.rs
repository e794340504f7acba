//! What is left where a `COPY` or an `INSERT` of SQL fails.

use crate::*;

/// Ends in an error after some rows.
const FAILS: &str = "SELECT 100 / (9000 - value) AS a, 'some text' AS b FROM generate_series(1, 9000)";

#[test]
fn a_copy_that_fails_leaves_the_file_as_it_was() {
    for format in ["vortex", "parquet", "csv", "json", "arrow"] {
        let folder = TempDir::new().unwrap();
        let file = path(&folder, &format!("a.{format}"));
        copy("SELECT 7 AS a, 'x' AS b", &file);
        let before = fs::read(&file).unwrap();
        let line = fails(&["sql", "-c", &format!("COPY ({FAILS}) TO '{file}'")], 1);
        assert!(line.contains("Divide by zero"), "{line}");
        assert_eq!(fs::read(&file).unwrap(), before, "{format}");
        assert_eq!(names(&folder), [format!("a.{format}")]);
    }
}

#[test]
fn an_insert_that_fails_adds_no_rows() {
    for format in ["vortex", "parquet", "csv"] {
        let folder = TempDir::new().unwrap();
        let place = folder.path().display();
        copy("SELECT 7 AS a, 'x' AS b", &path(&folder, &format!("a.{format}")));
        let create =
            format!("CREATE EXTERNAL TABLE t (a BIGINT, b VARCHAR) STORED AS {format} LOCATION '{place}/'");
        fails(&["sql", "-q", "-c", &create, "-c", &format!("INSERT INTO t {FAILS}")], 1);
        assert_eq!(names(&folder), [format!("a.{format}")]);
    }
}

#[test]
fn what_csv_cannot_hold_replaces_no_file() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "a.csv");
    copy("SELECT 7 AS a", &file);
    let late = "SELECT CASE value WHEN 90000 THEN arrow_cast(9223372036854775, 'Timestamp(Second, None)') END AS t \
                FROM generate_series(1, 100000)";
    for rows in ["SELECT [1, 2] AS a", "SELECT named_struct('a', 1) AS s", late] {
        fails(&["sql", "-c", &format!("COPY ({rows}) TO '{file}'")], 1);
        assert_eq!(fs::read_to_string(&file).unwrap(), "a\n7\n", "{rows}");
    }
    copy("SELECT DATE '2020-01-02' AS d, TIMESTAMP '2020-01-02T03:04:05' AS t, 'x' AS b", &file);
    assert_eq!(fs::read_to_string(&file).unwrap(), "d,t,b\n2020-01-02,2020-01-02T03:04:05,x\n");
}

#[test]
fn json_of_values_that_it_cannot_hold_is_an_error() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "a.json");
    copy("SELECT 1.5 AS a", &file);
    for value in ["'NaN'::DOUBLE", "'-inf'::FLOAT"] {
        let sql = format!("COPY (SELECT 1 AS n, {value} AS x UNION ALL SELECT 2, 0.5) TO '{file}'");
        let line = fails(&["sql", "-c", &sql], 1);
        assert!(line.contains("column `x`") && line.contains("JSON can hold"), "{line}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"a\":1.5}\n");
    }
}
