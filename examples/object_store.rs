//! Tables in an object store. This one is in memory; S3, GCS, Azure and HTTP work the same way.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt as _, path::Path};
use url::Url;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(InMemory::new());
    for year in [2023, 2024] {
        let path = Path::from(format!("lines/year={year}/part.vortex"));
        store.put(&path, std::fs::read(FILE)?.into()).await?;
    }

    let ctx = SessionContext::new();
    vortex_datafusion::register(&ctx)?;
    ctx.register_object_store(&Url::parse("lake://warehouse")?, store);
    ctx.sql(
        "CREATE EXTERNAL TABLE lines STORED AS VORTEX PARTITIONED BY (year)
         LOCATION 'lake://warehouse/lines/'",
    )
    .await?;
    ctx.sql("SELECT year, count(*) FROM lines WHERE l_shipmode = 'AIR' GROUP BY year ORDER BY year")
        .await?
        .show()
        .await?;
    Ok(())
}
