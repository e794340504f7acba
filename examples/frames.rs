//! Data frames instead of SQL: read files, compute, write files.

use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::prelude::{SessionContext, col, lit};
use vortex_datafusion::vortex_core::Level;
use vortex_datafusion::{VortexContextExt as _, VortexDataFrameExt as _, VortexOptions, VortexWriteOptions};

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
    // The order of the rows is recorded, so that reading them in this order needs no sort.
    let by_date = VortexWriteOptions::new()
        .with_sort_by(vec![col("l_shipdate").sort(true, false)])
        .with_options(VortexOptions::default().with(|options| options.level = Level::Compact));
    let path = folder.join("by-date.vortex").display().to_string();
    let files = lineitem.clone().write_vortex(&path, by_date).await?;
    println!("{} rows, sorted", files[0].summary.row_count());

    let parts = folder.join("by-mode/").display().to_string();
    let by_mode = VortexWriteOptions::new().with_partition_by(["l_shipmode"]);
    for file in lineitem.write_vortex(&parts, by_mode).await? {
        println!("{} rows of mode {}", file.summary.row_count(), file.partition_values[0]);
    }
    let air = ctx.read_vortex(&parts).await?.filter(col("l_shipmode").eq(lit("AIR")))?;
    println!("{} of them by air", air.count().await?);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
