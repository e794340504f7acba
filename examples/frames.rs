//! Data frames instead of SQL: read files, compute, write files.

use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::prelude::{SessionContext, col, lit};
use vortex_datafusion::vortex_core::Level;
use vortex_datafusion::{VortexContextExt as _, VortexDataFrameExt as _, VortexOptions};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

#[tokio::main]
async fn main() -> Result<()> {
    let ctx = SessionContext::new();
    vortex_datafusion::register(&ctx)?;
    let lineitem = ctx.read_vortex(FILE).await?;
    let totals = lineitem
        .clone()
        .filter(col("l_quantity").gt(lit(45)))?
        .aggregate(vec![col("l_shipmode")], vec![count(lit(1)), sum(col("l_extendedprice"))])?;
    totals.sort(vec![col("l_shipmode").sort(true, false)])?.show().await?;

    let folder = std::env::temp_dir().join(format!("vortex-frames-{}", std::process::id()));
    let mut options = VortexOptions::default();
    options.level = Level::Compact;
    // The order of the rows is recorded, so that reading them in this order needs no sort.
    let sorted = lineitem.clone().sort(vec![col("l_shipdate").sort(true, false)])?;
    let path = folder.join("by-date.vortex").display().to_string();
    println!("{} rows, sorted", sorted.write_vortex(&path, Some(options)).await?);

    let parts = folder.join("by-mode/").display().to_string();
    let rows = lineitem.write_vortex_partitioned(&parts, &["l_shipmode"], None).await?;
    println!("{rows} rows, in a folder per mode");
    let air = ctx.read_vortex(&parts).await?.filter(col("l_shipmode").eq(lit("AIR")))?;
    println!("{} of them by air", air.count().await?);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
