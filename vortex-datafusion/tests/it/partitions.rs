//! Files of one table that differ: columns added, dropped, reordered, widened.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::TableProvider as _;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::prelude::SessionContext;
use tempfile::TempDir;
use vortex_datafusion::VortexFormat;

use crate::files::{copy, create, file, folder_of, run, session, show};

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

/// A table of files written by queries, one file per query.
async fn table_of(context: &SessionContext, queries: &[&str], columns: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (at, query) in queries.iter().enumerate() {
        let path = folder.path().join(format!("{at}.vortex"));
        copy(context, query, path.display()).await;
    }
    create(context, &format!("t {columns}"), folder.path().join("").display()).await;
    folder
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
        let _folder = table_of(&context, &[&of("a", "b"), &of("b", "a")], "").await;
        let shown = show(&context, "SELECT l FROM t ORDER BY l[1]['a']").await;
        assert!(shown.contains("{a: 1, b: 2}") && shown.contains("{a: 2, b: 1}"), "{list}: {shown}");
    }
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
    let _folder = table_of(&context, &[&halves], "(c DECIMAL(10, 0))").await;
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
