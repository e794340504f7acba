//! Files and folders, sessions, and what docs/ says of SQL.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Statistics;
use datafusion::execution::cache::SchemaFingerprint;
use datafusion::execution::cache::cache_manager::CachedFileMetadata;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};
use url::Url;

use super::{Plain, assert_wrong};

const DOCS: &str = "the note in docs/";

#[tokio::test]
async fn folders_are_named_after_the_value_below_a_null() {
    let plain = Plain::new(1);
    let folder = plain.folder().join("rows").display().to_string();
    let rows = "SELECT value AS a, nullif(value, 2) AS p FROM generate_series(2, 2)";
    plain.run(&format!("COPY ({rows}) TO '{folder}' STORED AS CSV PARTITIONED BY (p)")).await;
    let named = std::path::Path::new(&folder).join("p=2").is_dir();
    assert_wrong(named, true, false, "`checked` in sink/partitions.rs");
}

#[tokio::test]
async fn folders_are_named_after_the_day_of_a_time() {
    let plain = Plain::new(1);
    let folder = plain.folder().join("times").display().to_string();
    let rows = "SELECT 1 AS a, arrow_cast(TIMESTAMP '1969-12-31T23:00:00', 'Date64') AS d";
    plain.run(&format!("COPY ({rows}) TO '{folder}' STORED AS CSV PARTITIONED BY (d)")).await;
    let named = std::path::Path::new(&folder).join("d=1970-01-01").is_dir();
    assert_wrong(named, true, false, "`checked` in sink/partitions.rs");
}

#[tokio::test]
async fn rows_in_folders_with_encoded_names_are_not_found() {
    let plain = Plain::new(1);
    let folder = plain.folder().join("names").display().to_string();
    let columns = "(a BIGINT, \"größe\" INT) STORED AS CSV PARTITIONED BY (größe)";
    plain.run(&format!("CREATE EXTERNAL TABLE names {columns} LOCATION '{folder}/'")).await;
    plain.run("INSERT INTO names VALUES (1, 2)").await;
    plain
        .assert_wrong("SELECT a FROM names", &[], &["1"], "`check_partition_columns` in sink/checks.rs")
        .await;
}

#[tokio::test]
async fn listings_of_one_store_are_used_for_another() {
    let context = SessionContext::new().enable_url_table();
    let mut found = Vec::new();
    for (host, file) in [("first", "data/a.csv"), ("second", "data/b.csv")] {
        let store = InMemory::new();
        store.put(&Path::from(file), "x\n1\n".into()).await.unwrap();
        let url = Url::parse(&format!("memory://{host}")).unwrap();
        context.register_object_store(&url, Arc::new(store));
        let rows = context.sql(&format!("SELECT * FROM 'memory://{host}/data/'")).await;
        found.push(match rows {
            Ok(rows) => rows.count().await.map_err(|_| "not found"),
            Err(_) => Err("not found"),
        });
    }
    let workarounds = "`enable_url_tables` in tables/urls.rs, and the note in docs/";
    assert_wrong(found.as_slice(), &[Ok(1), Err("not found")], &[Ok(1), Ok(1)], workarounds);
}

#[test]
fn files_of_one_size_and_time_are_taken_for_the_same() {
    let version = |tag: &str| ObjectMeta {
        location: Path::from("a"),
        last_modified: Default::default(),
        size: 10,
        e_tag: Some(tag.to_owned()),
        version: None,
    };
    let schema = arrow::datatypes::Schema::empty();
    let columns = Arc::new(SchemaFingerprint::from_schema(&schema));
    let known = Arc::new(Statistics::new_unknown(&schema));
    let kept = CachedFileMetadata::new(version("one"), Arc::clone(&columns), known, None);
    let is_valid = kept.is_valid_for(&version("another"), &columns);
    assert_wrong(is_valid, true, false, "statistics/kept.rs");
}

#[test]
fn sessions_that_are_built_anew_lose_functions_named_like_aliases() {
    let one = |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(1.into()));
    let named = || create_udf("length", Vec::new(), DataType::Int32, Volatility::Immutable, Arc::new(one));
    // The order in which functions are registered is random.
    let is_lost = (0..100).any(|_| {
        let context = SessionContext::new();
        context.register_udf(ScalarUDF::clone(&named()));
        let rebuilt = SessionStateBuilder::new_from_existing(context.state()).build();
        rebuilt.scalar_functions()["length"].name() != "length"
    });
    assert_wrong(is_lost, true, false, "`keep_functions` in register.rs");
}

#[tokio::test]
async fn filters_of_partition_columns_that_are_null_keep_rows() {
    let plain = Plain::new(1);
    let folder = plain.folder().join("days").display().to_string();
    let rows = "SELECT value AS a, value AS day FROM generate_series(1, 7)";
    plain.run(&format!("COPY ({rows}) TO '{folder}/' STORED AS CSV PARTITIONED BY (day)")).await;
    let columns = "(a BIGINT, day INT) STORED AS CSV PARTITIONED BY (day)";
    plain.run(&format!("CREATE EXTERNAL TABLE days {columns} LOCATION '{folder}/'")).await;
    let sql = "SELECT count(*) FROM days WHERE nullif(day, 1) <= 5";
    plain.assert_wrong(sql, &["5"], &["4"], DOCS).await;
    let sql = "SELECT count(*) FROM days WHERE day NOT IN (1, 2, 3, 4, NULL)";
    plain.assert_wrong(sql, &["3"], &["0"], DOCS).await;
}

#[tokio::test]
async fn columns_within_any_are_taken_for_those_of_the_outer_query() {
    let plain = Plain::new(1);
    plain.run("CREATE TABLE t AS SELECT * FROM (VALUES (1), (2)) AS v (a)").await;
    let sql = "SELECT a FROM t WHERE a = ANY (SELECT a FROM t WHERE a = 1)";
    plain.assert_wrong(sql, &["1", "2"], &["1"], DOCS).await;
}

#[tokio::test]
async fn numbers_of_rows_in_subqueries_are_those_of_the_inner_table() {
    let plain = Plain::new(1);
    plain.table("numbers", "SELECT value AS a FROM generate_series(1, 3)").await;
    let sql = "SELECT a FROM numbers WHERE file_row_index() IN (SELECT a FROM numbers)";
    plain.assert_wrong(sql, &[], &["2", "3"], DOCS).await;
}

#[tokio::test]
async fn groups_of_partition_columns_are_returned_twice() {
    let plain = Plain::new(2);
    let folder = plain.folder().join("parts").display().to_string();
    for (file, first) in [("p=1/a", 0), ("p=2/a", 5), ("p=2/b", 10)] {
        let rows = format!("SELECT value AS a FROM generate_series({first}, {first} + 4) ORDER BY a");
        plain.run(&format!("COPY ({rows}) TO '{folder}/{file}.parquet'")).await;
    }
    let columns = "(a BIGINT, p INT) STORED AS PARQUET PARTITIONED BY (p) WITH ORDER (a)";
    plain.run(&format!("CREATE EXTERNAL TABLE parts {columns} LOCATION '{folder}/'")).await;
    plain.run("SET datafusion.optimizer.preserve_file_partitions = 1").await;
    plain.run("SET datafusion.execution.split_file_groups_by_statistics = true").await;
    let sql = "SELECT p, count(*) FROM parts GROUP BY p ORDER BY p";
    plain.assert_wrong(sql, &["1 5", "2 5", "2 5"], &["1 5", "2 10"], DOCS).await;
}

#[tokio::test]
async fn tables_of_folders_contain_hidden_files() {
    let plain = Plain::new(1);
    for name in ["a.csv", "_b.csv", ".c.csv"] {
        std::fs::write(plain.folder().join(name), "x\n1\n").unwrap();
    }
    let place = plain.folder().display();
    plain.run(&format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{place}/'")).await;
    let workarounds = "tables/factory.rs, and the note in docs/";
    plain.assert_wrong("SELECT count(*) FROM t", &["3"], &["1"], workarounds).await;
}

#[tokio::test]
async fn patterns_match_no_file_whose_name_contains_an_equals_sign() {
    let plain = Plain::new(1);
    for name in ["a.csv", "z=1.csv"] {
        std::fs::write(plain.folder().join(name), "x\n1\n").unwrap();
    }
    let place = plain.folder().display();
    plain.run(&format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{place}/*.csv'")).await;
    let workarounds = "`listed_files` in tables/places.rs, and the note in docs/";
    plain.assert_wrong("SELECT count(*) FROM t", &["1"], &["2"], workarounds).await;
}

#[tokio::test]
async fn columns_of_arrow_files_are_read_by_position() {
    let plain = Plain::new(1);
    let place = plain.folder().join("positions.arrow").display().to_string();
    plain.run(&format!("COPY (SELECT 1 AS a, 20 AS b) TO '{place}' STORED AS ARROW")).await;
    plain
        .run(&format!("CREATE EXTERNAL TABLE t (b BIGINT, a BIGINT) STORED AS ARROW LOCATION '{place}'"))
        .await;
    plain.assert_wrong("SELECT b, a FROM t", &["1 20"], &["20 1"], DOCS).await;
}

#[tokio::test]
async fn files_of_no_bytes_are_skipped_although_their_format_has_none() {
    let plain = Plain::new(1);
    plain.table("one", "SELECT 1 AS a").await;
    std::fs::write(plain.folder().join("none.parquet"), "").unwrap();
    let place = plain.folder().display();
    plain.run(&format!("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{place}/'")).await;
    let found = plain.try_rows("SELECT count(*) FROM t").await;
    let found = found.unwrap_or_else(|_| vec!["an error".to_owned()]);
    assert_wrong(found.as_slice(), &["1"], &["an error"], DOCS);
}

#[tokio::test]
async fn listings_are_kept_without_a_time_limit() {
    let plain = Plain::new(1);
    let file = |name: &str| std::fs::write(plain.folder().join(name), "x\n1\n").unwrap();
    file("a.csv");
    let place = plain.folder().display();
    plain.run(&format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{place}/'")).await;
    assert_eq!(plain.rows("SELECT count(*) FROM t").await, ["1"]);
    file("b.csv");
    let workarounds = "bin/vortex/sql/statement.rs, and the note in docs/";
    plain.assert_wrong("SELECT count(*) FROM t", &["1"], &["2"], workarounds).await;
}

#[tokio::test]
async fn columns_of_one_name_in_csv_files_are_taken_for_one() {
    let plain = Plain::new(1);
    std::fs::write(plain.folder().join("a.csv"), "a,a\n1,2\n").unwrap();
    let place = plain.folder().display();
    plain.run(&format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{place}/a.csv'")).await;
    plain
        .assert_fails(
            "SELECT * FROM t",
            "incorrect number of fields",
            "`check_names` in bin/vortex/formats/csv.rs",
        )
        .await;
}

#[tokio::test]
async fn folders_are_looked_for_by_one_of_the_names_that_a_value_has() {
    let plain = Plain::new(1);
    let folder = plain.folder().join("months");
    let file = folder.join("month=01/a.csv");
    plain.run(&format!("COPY (SELECT 7 AS a) TO '{}' STORED AS CSV", file.display())).await;
    let columns = "(a BIGINT, month INT) STORED AS CSV PARTITIONED BY (month)";
    plain.run(&format!("CREATE EXTERNAL TABLE t {columns} LOCATION '{}/'", folder.display())).await;
    plain.assert_wrong("SELECT a FROM t WHERE month = 1", &[], &["7"], "tables/listed.rs").await;
}

#[tokio::test]
async fn arrow_files_of_rust_are_not_found_in_remote_stores() {
    let plain = Plain::new(1);
    let bucket = Url::parse("remote://bucket").unwrap();
    plain.context.register_object_store(&bucket, Arc::new(InMemory::new()));
    plain.run("COPY (SELECT 1 AS a) TO 'remote://bucket/a.arrow'").await;
    let statement = "CREATE EXTERNAL TABLE t STORED AS ARROW LOCATION 'remote://bucket/a.arrow'";
    let is_found = plain.context.sql(statement).await.is_ok();
    assert_wrong(is_found, false, true, "`schema` in formats/ipc.rs of the command line");
}

#[tokio::test]
async fn samples_of_tables_are_whole_tables() {
    let plain = Plain::new(1);
    plain.table("t", "SELECT value AS a FROM generate_series(1, 1000)").await;
    let rows = plain.rows("SELECT count(*) FROM t TABLESAMPLE (0 PERCENT)").await;
    assert_wrong(rows.as_slice(), &["1000"], &["0"], "bin/vortex/sql/ignored.rs, and the note in docs/");
}

#[tokio::test]
async fn a_copy_that_fails_replaces_the_file() {
    let plain = Plain::new(1);
    let file = plain.folder().join("a.csv");
    std::fs::write(&file, "a\n7\n").unwrap();
    let rows = "SELECT 100 / (9000 - value) AS a FROM generate_series(1, 9000)";
    let copy = format!("COPY ({rows}) TO '{}' STORED AS CSV", file.display());
    assert!(plain.try_rows(&copy).await.is_err());
    let is_kept = std::fs::read_to_string(&file).unwrap() == "a\n7\n";
    assert_wrong(is_kept, false, true, "bin/vortex/formats/whole_files.rs");
}
