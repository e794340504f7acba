//! Register the format once; then query files, folders and external tables with SQL.

use datafusion::error::Result;
use datafusion::prelude::SessionContext;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

#[tokio::main]
async fn main() -> Result<()> {
    let ctx = SessionContext::new();
    vortex_datafusion::register(&ctx)?;
    ctx.sql(&format!("CREATE EXTERNAL TABLE lineitem STORED AS VORTEX LOCATION '{FILE}'")).await?;

    ctx.sql(
        "SELECT l_returnflag, l_linestatus, count(*) AS lines, sum(l_quantity) AS quantity
         FROM lineitem WHERE l_shipdate < DATE '1997-01-01'
         GROUP BY 1, 2 ORDER BY 1, 2",
    )
    .await?
    .show()
    .await?;

    // Answered from statistics in the file; no row is read.
    ctx.sql("SELECT count(*), min(l_orderkey), max(l_orderkey) FROM lineitem").await?.show().await
}
