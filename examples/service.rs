//! A service: tables by name, options of the session, a memory limit, a time limit, and metrics of a query.

use std::sync::Arc;
use std::time::Duration;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::collect;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use vortex_datafusion::{VortexContextExt as _, VortexOptions, VortexSessionExt as _};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

#[tokio::main]
async fn main() -> Result<()> {
    // Scans, joins and sorts of all queries share this amount of memory.
    let pool = Arc::new(FairSpillPool::new(256 << 20));
    // The options of all tables, like `SET vortex.segment_cache = '64 MiB'`: remote files are read once.
    let options = VortexOptions::default().with(|options| options.segment_cache = 64 << 20);
    let config = SessionConfig::new().with_target_partitions(4).with_option_extension(options);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?)
        .with_default_features()
        .with_vortex()
        .build();
    let ctx = SessionContext::new_with_state(state);
    ctx.register_vortex("lineitem", FILE).await?;

    let sql =
        "SELECT l_shipmode, count(*) AS lines FROM lineitem WHERE l_quantity > 45 GROUP BY 1 ORDER BY 1";
    let plan = ctx.sql(sql).await?.create_physical_plan().await?;
    // A query that is dropped, as this one would be after a second, stops reading immediately.
    let query = collect(Arc::clone(&plan), ctx.task_ctx());
    let batches = tokio::time::timeout(Duration::from_secs(1), query)
        .await
        .map_err(|_| DataFusionError::Execution("the query took too long".into()))??;
    println!("{}", datafusion::arrow::util::pretty::pretty_format_batches(&batches)?);
    println!("{}", DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(false));
    Ok(())
}
