//! Queries that DataFusion may not end.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};

/// Groups of numbers from two inputs, with much less memory than they take. Whether it ends, with an error.
async fn ends(config: SessionConfig) -> bool {
    let memory = Arc::new(GreedyMemoryPool::new(100 << 10));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(memory).build_arc().unwrap();
    let context = SessionContext::new_with_config_rt(config.with_target_partitions(2), runtime);
    let half = |first, last| format!("SELECT value FROM generate_series({first}, {last})");
    let halves = [half(1, 500_000), half(500_000, 1_000_000)].join(" UNION ALL ");
    let groups = format!("SELECT value % 900000 AS k, count(*) FROM ({halves}) GROUP BY k");
    let plan = context.sql(&groups).await.unwrap().create_physical_plan().await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), collect(plan, context.task_ctx())).await.is_ok()
}

/// Without the setting, about every second run waits for ever, which depends on the machine and cannot be asserted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_do_not_wait_for_ever_for_batches_in_files_of_their_own() {
    for _ in 0..30 {
        let config = SessionConfig::new().set_usize("datafusion.execution.max_spill_file_size_bytes", 1);
        assert!(ends(config).await);
    }
}
