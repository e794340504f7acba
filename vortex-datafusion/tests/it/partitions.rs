//! Files of one table that differ: columns added, dropped, reordered, widened.

use std::fs;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::TableProvider as _;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use vortex_datafusion::VortexFormat;

use crate::files::{file, run, session, show};

#[tokio::test]
async fn files_with_different_columns_make_one_table() {
    let (Some(orders), Some(part)) = (file("tpch_orders"), file("tpch_part")) else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::copy(orders, folder.path().join("a.vortex")).unwrap();
    fs::copy(part, folder.path().join("b.vortex")).unwrap();
    let context = session();
    let location = folder.path().display();
    run(&context, &format!("CREATE EXTERNAL TABLE both STORED AS VORTEX LOCATION '{location}/'")).await;
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
    let Some(orders) = file("tpch_orders") else { return };
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
