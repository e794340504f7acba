//! Files of one table that differ: columns added, dropped, reordered, widened.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::TableProvider as _;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::prelude::SessionContext;
use vortex_datafusion::VortexFormat;

use crate::files::{create, error, file, folder_of, run, session, show, table_of};

#[tokio::test]
async fn files_with_different_columns_make_one_table() {
    let (orders, part) = (file("tpch_orders"), file("tpch_part"));
    let folder = folder_of(&[(&orders, "a.vortex"), (&part, "b.vortex")]);
    let context = session();
    create(&context, "both", folder.path().join("").display()).await;
    let counts = show(
        &context,
        "SELECT count(*), count(o_orderkey), count(p_partkey), count(*) FILTER (WHERE p_partkey IS NULL) FROM both",
    )
    .await;
    assert!(counts.contains("| 2300     | 1500"), "{counts}");
    let filtered = "SELECT count(*) FROM both WHERE p_partkey > 0 OR o_orderkey IS NULL";
    assert!(show(&context, filtered).await.contains("| 800 "));
    let nothing = "SELECT count(*) FROM both WHERE p_partkey > 0 AND o_orderkey > 0";
    assert!(show(&context, nothing).await.contains("| 0 "));
}

#[tokio::test]
async fn a_declared_schema_decides_types_and_columns() {
    let orders = file("tpch_orders");
    let context = session();
    let url = ListingTableUrl::parse(orders.to_str().unwrap()).unwrap();
    let inferred = ListingTableConfig::new(url.clone())
        .with_listing_options(ListingOptions::new(Arc::new(VortexFormat::new())))
        .infer_schema(&context.state())
        .await
        .unwrap();
    let own = ListingTable::try_new(inferred).unwrap().schema();
    let status = own.field_with_name("o_orderstatus").unwrap();
    assert_eq!(status.data_type(), &DataType::Utf8View);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let declared = Arc::new(Schema::new(vec![
        Field::new("added", DataType::Int64, true),
        Field::new("o_orderstatus", dictionary.clone(), true),
        Field::new("o_orderkey", DataType::Float64, true),
    ]));
    let config = ListingTableConfig::new(url)
        .with_listing_options(ListingOptions::new(Arc::new(VortexFormat::new())))
        .with_schema(declared);
    context.register_table("declared", Arc::new(ListingTable::try_new(config).unwrap())).unwrap();
    let rows =
        run(&context, "SELECT o_orderstatus, o_orderkey, added FROM declared WHERE o_orderkey >= 1.0").await;
    assert_eq!(rows.num_rows(), 1500);
    assert_eq!(rows.schema().field(0).data_type(), &dictionary);
    assert_eq!(rows.column(2).null_count(), 1500);
    let by_status = "SELECT count(*) FROM declared WHERE o_orderstatus = 'F' AND added IS NULL";
    let expected = format!("SELECT count(*) FROM '{}' WHERE o_orderstatus = 'F'", orders.display());
    assert_eq!(show(&context, by_status).await, show(&context, &expected).await);
}

#[tokio::test]
async fn fields_in_lists_are_matched_by_name() {
    for list in ["List", "LargeList"] {
        let context = session();
        let of = |first: &str, second: &str| {
            format!(
                "SELECT arrow_cast([named_struct('{first}', 1, '{second}', 2)], \
                 '{list}(Struct(\"{first}\": Int64, \"{second}\": Int64))') AS l"
            )
        };
        let _folder = table_of(&context, &[of("a", "b"), of("b", "a")], "").await;
        let shown = show(&context, "SELECT l FROM t ORDER BY l[1]['a']").await;
        assert!(shown.contains("{a: 1, b: 2}") && shown.contains("{a: 2, b: 1}"), "{list}: {shown}");
    }
}

#[tokio::test]
async fn dictionaries_within_structs_may_have_more_values_than_one_file() {
    let context = session();
    let file = |letter: &str| {
        format!(
            "SELECT named_struct('k', arrow_cast('{letter}' || value, 'Dictionary(Int8, Utf8)')) AS s \
             FROM generate_series(1, 100)"
        )
    };
    let _folder = table_of(&context, &[file("a"), file("b")], "").await;
    let rows = run(&context, "SELECT s FROM t ORDER BY s['k'] LIMIT 150 OFFSET 20").await;
    assert_eq!(rows.num_rows(), 150);
    run(&context, "SELECT array_agg(s) FROM t").await;
}

#[tokio::test]
async fn types_that_the_format_lacks_are_read_as_they_were_written() {
    let context = session();
    let rows = "SELECT INTERVAL '1 day' AS i, arrow_cast(arrow_cast('abcd', 'Binary'), 'FixedSizeBinary(4)') AS f, \
                [INTERVAL '2 months'] AS l, named_struct('i', INTERVAL '3 hours') AS s";
    let _folder = table_of(&context, &[rows], "").await;
    let shown = show(&context, "SELECT * FROM t WHERE i > INTERVAL '1 hour' OR f IS NULL").await;
    assert!(["1 days", "61626364", "2 mons", "3 hours"].iter().all(|value| shown.contains(value)), "{shown}");
    let filtered = "SELECT count(*) AS n FROM t WHERE f = arrow_cast(arrow_cast('abcd', 'Binary'), 'FixedSizeBinary(4)')";
    assert!(show(&context, filtered).await.contains("| 1 "));
}

#[tokio::test]
async fn constants_between_the_values_of_a_coarser_file_are_not_rounded() {
    let context = session();
    let seconds =
        "SELECT arrow_cast(value * 1000, 'Timestamp(Millisecond, None)') AS c FROM generate_series(1, 5)";
    let _folder = table_of(&context, &[seconds], "(c TIMESTAMP)").await;
    let between = "TIMESTAMP '1970-01-01T00:00:02.0000005'";
    for (filter, expected) in [
        (format!("c < {between}"), 2),
        (format!("c <= {between}"), 2),
        (format!("c = {between}"), 0),
        (format!("c <> {between}"), 5),
        (format!("c >= {between}"), 3),
        (format!("c IN ({between}, TIMESTAMP '1970-01-01T00:00:03')"), 1),
        (format!("c BETWEEN {between} AND TIMESTAMP '1970-01-01T00:00:04'"), 2),
        (format!("c IS DISTINCT FROM {between}"), 5),
    ] {
        let shown = show(&context, &format!("SELECT count(*) AS n FROM t WHERE {filter}")).await;
        assert!(shown.contains(&format!("| {expected} ")), "{filter}: {shown}");
    }
}

#[tokio::test]
async fn values_that_the_table_rounds_are_compared_as_rounded() {
    let context = session();
    let halves =
        "SELECT CAST(value AS DECIMAL(10, 2)) / CAST(2 AS DECIMAL(1, 0)) AS c FROM generate_series(1, 5)";
    let halves = format!("SELECT CAST(c AS DECIMAL(10, 2)) AS c FROM ({halves})");
    let _folder = table_of(&context, &[halves], "(c DECIMAL(10, 0))").await;
    // 0.5 and 1.0, of 0.5 to 2.5.
    let shown = show(&context, "SELECT count(*) AS n FROM t WHERE c = 1").await;
    assert!(shown.contains("| 2 "), "{shown}");
}

#[tokio::test]
async fn rows_of_any_type_are_sorted_for_the_first_of_them() {
    let context = session();
    let rows = "SELECT named_struct('x', value) AS st, [CAST(value AS VARCHAR)] AS l, NULL AS n FROM generate_series(1, 3)";
    let _folder = table_of(&context, &[rows], "").await;
    assert!(show(&context, "SELECT st FROM t ORDER BY st DESC LIMIT 1").await.contains("{x: 3}"));
    assert!(show(&context, "SELECT l FROM t ORDER BY l DESC LIMIT 1").await.contains("[3]"));
    assert!(show(&context, "SELECT n FROM t ORDER BY n LIMIT 1").await.contains("| n |"));
}

#[tokio::test]
async fn durations_are_cast_from_what_they_are_and_not_from_what_is_stored() {
    let context = session();
    let rows = "SELECT arrow_cast(3, 'Duration(Second)') AS c, named_struct('x', arrow_cast(3, 'Duration(Second)')) AS s";
    let _folder = table_of(&context, &[rows], "(c VARCHAR, s STRUCT<x VARCHAR>)").await;
    let shown = show(&context, "SELECT c, s FROM t WHERE s['x'] LIKE '% 3 secs'").await;
    assert_eq!(shown.matches("0 days 0 hours 0 mins 3 secs").count(), 2, "{shown}");
}

#[tokio::test]
async fn a_null_that_becomes_a_list_of_one_null_is_no_null() {
    let context = session();
    let rows = "SELECT value AS id, CASE WHEN value = 2 THEN 5 END AS c FROM generate_series(1, 3)";
    let _folder = table_of(&context, &[rows], "(id BIGINT, c BIGINT[])").await;
    assert!(show(&context, "SELECT count(c) AS n FROM t").await.contains("| 3 "));
    assert!(show(&context, "SELECT count(*) AS n FROM t WHERE c IS NOT NULL").await.contains("| 3 "));
    assert!(show(&context, "SELECT count(id) AS n FROM t WHERE c IS NULL").await.contains("| 0 "));
}

#[tokio::test]
async fn nulls_of_a_column_that_has_none_by_declaration_are_not_hidden_by_statistics() {
    let context = session();
    let rows = "SELECT value AS id, nullif(value, 2) AS c FROM generate_series(1, 3)";
    let _folder = table_of(&context, &[rows], "(id BIGINT NOT NULL, c BIGINT NOT NULL)").await;
    for aggregate in ["count(c)", "sum(c)", "min(c)", "max(c)", "count(id), max(c)"] {
        let failure = error(&context, &format!("SELECT {aggregate} FROM t")).await;
        assert!(failure.contains("non-nullable"), "{aggregate}: {failure}");
    }
    let shown = show(&context, "SELECT count(id), count(*), sum(id), max(id) FROM t").await;
    assert!(shown.contains("| 3           | 3        | 6         | 3         |"), "{shown}");
}

#[tokio::test]
async fn a_file_without_a_column_that_is_never_null_is_an_error_whatever_is_asked_of_it() {
    let context = session();
    let rows = ["SELECT 1 AS id, 2 AS c", "SELECT 3 AS id"];
    let _folder = table_of(&context, &rows, "(id BIGINT, c BIGINT NOT NULL)").await;
    for aggregate in ["count(c)", "sum(c)", "max(c)"] {
        let failure = error(&context, &format!("SELECT {aggregate} FROM t")).await;
        assert!(failure.contains("'c'"), "{aggregate}: {failure}");
    }
}

#[tokio::test]
async fn a_value_that_the_table_cannot_hold_is_reported_with_its_file_and_column() {
    let context = session();
    let _folder = table_of(&context, &["SELECT 1 AS id, 70000 AS c"], "(id BIGINT, c SMALLINT)").await;
    for query in ["SELECT c FROM t", "SELECT id, c FROM t", "SELECT c + 1 AS d FROM t"] {
        let failure = error(&context, query).await;
        let parts = ["0.vortex", "CAST(c@", "70000", "Int16"];
        assert!(parts.iter().all(|part| failure.contains(part)), "{query}: {failure}");
    }
}

/// Checks queries over `t` against the same queries over its rows in memory.
async fn check(context: &SessionContext, rows: &str, queries: &[&str]) {
    run(context, &format!("CREATE OR REPLACE TABLE expected AS {rows}")).await;
    for query in queries {
        let expected = show(context, &query.replace("FROM t", "FROM expected t")).await;
        assert_eq!(show(context, query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn decimals_and_integers_of_different_files_become_decimals_with_the_digits_of_all() {
    let context = session();
    let files = [
        "SELECT CAST(value AS DECIMAL(5, 2)) / 4 AS c FROM generate_series(1, 9)",
        "SELECT CAST(value AS DECIMAL(9, 3)) / 8 + 100000 AS c FROM generate_series(1, 9)",
        "SELECT CAST(value AS INT) AS c FROM generate_series(-2, 2147483, 1000000)",
    ];
    let types = ["Decimal128(5, 2)", "Decimal128(9, 3)", "Int32"];
    let typed = |at: usize| format!("SELECT arrow_cast(c, '{}') AS c FROM ({})", types[at], files[at]);
    let stored = [typed(0), typed(1), typed(2)];
    let _folder = table_of(&context, &stored, "").await;
    let rows = stored.each_ref().map(|rows| format!("SELECT CAST(c AS DECIMAL(13, 3)) AS c FROM ({rows})"));
    check(
        &context,
        &rows.join(" UNION ALL "),
        &[
            "SELECT arrow_typeof(c) AS type, count(*) AS n FROM t GROUP BY 1",
            "SELECT count(c), min(c), max(c), sum(c) FROM t",
            "SELECT c FROM t WHERE c = 1.5",
            "SELECT c FROM t WHERE c > 2.245 ORDER BY c",
            "SELECT c FROM t WHERE c <= 0.5 ORDER BY c",
            "SELECT c FROM t WHERE c IN (0.375, 100000.375, 999998, 0.25) ORDER BY c",
            "SELECT c FROM t WHERE c <> 100000.125 ORDER BY c DESC LIMIT 5",
        ],
    )
    .await;
}

#[tokio::test]
async fn timestamps_of_different_files_take_the_finest_unit() {
    let context = session();
    let of = |unit: &str, values: &str| {
        format!("SELECT arrow_cast(value, 'Timestamp({unit}, Some(\"UTC\"))') AS c FROM ({values})")
    };
    let files = [
        of("Second", "SELECT value FROM generate_series(1, 5)"),
        of("Millisecond", "SELECT value * 700 AS value FROM generate_series(1, 5)"),
    ];
    let _folder = table_of(&context, &files, "").await;
    let milliseconds = "'Timestamp(Millisecond, Some(\"UTC\"))'";
    let rows =
        files.each_ref().map(|rows| format!("SELECT arrow_cast(c, {milliseconds}) AS c FROM ({rows})"));
    check(
        &context,
        &rows.join(" UNION ALL "),
        &[
            "SELECT arrow_typeof(c) AS type, count(*) AS n FROM t GROUP BY 1",
            "SELECT count(c), min(c), max(c) FROM t",
            "SELECT c FROM t WHERE c > '1970-01-01T00:00:01.500Z' ORDER BY c",
            "SELECT c FROM t WHERE c = '1970-01-01T00:00:02Z'",
            "SELECT c FROM t WHERE c <= '1970-01-01T00:00:02.100Z' ORDER BY c DESC LIMIT 2",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_timestamp_beyond_the_unit_of_the_table_is_neither_excluded_nor_hidden() {
    let context = session();
    let seconds = "SELECT arrow_cast(value, 'Timestamp(Second, None)') AS c, value AS id \
                   FROM (VALUES (1), (9223372036854775)) AS v(value)";
    let milliseconds = "SELECT arrow_cast(5000, 'Timestamp(Nanosecond, None)') AS c, 2 AS id";
    let _folder = table_of(&context, &[seconds, milliseconds], "").await;
    // A constant of whole seconds is compared in the unit of the file.
    let shown = show(&context, "SELECT id FROM t WHERE c > '1970-01-01T00:00:00' ORDER BY id").await;
    assert!(shown.contains("| 9223372036854775 |"), "{shown}");
    for query in ["SELECT count(c) FROM t", "SELECT max(c) FROM t", "SELECT c FROM t WHERE c > '1970-01-01'"]
    {
        let failure = error(&context, query).await;
        assert!(failure.contains("9223372036854775"), "{query}: {failure}");
    }
}
