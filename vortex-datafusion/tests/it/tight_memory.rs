//! Scans with a memory pool that is small, or used up by others.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryPool};
use datafusion::prelude::SessionContext;
use tempfile::TempDir;
use vortex_datafusion::register;

use crate::files::{copy, create, number, physical, plan, session_within, show};
use crate::ordered;

const POOL: usize = 256 << 20;

/// A file of less than a megabyte that decodes to more than the pool holds.
async fn expanding() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("expanding.vortex").display().to_string();
    let context = SessionContext::new();
    register(&context).expect("the format registers");
    let rows =
        "SELECT value AS n, repeat('abcdefg', 300) || (value % 10) AS text FROM generate_series(1, 150000)";
    copy(&context, rows, &path).await;
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size * 500 < 150_000 * 2101, "{size} bytes");
    (folder, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_decodes_to_more_than_the_pool_is_scanned_within_it() {
    let (_folder, path) = expanding().await;
    let pools: [Arc<dyn MemoryPool>; 2] =
        [Arc::new(FairSpillPool::new(POOL)), Arc::new(GreedyMemoryPool::new(POOL))];
    for pool in pools {
        let context = session_within(&pool);
        create(&context, "t", &path).await;
        let sums = "SELECT count(*) AS rows, sum(length(text)) AS bytes, sum(n) AS sum FROM t";
        let sums = show(&context, sums).await;
        assert!(
            sums.contains("150000") && sums.contains("315150000") && sums.contains("11250075000"),
            "{sums}"
        );
        let groups = "SELECT n % 3 AS k, count(*), max(text) <> min(text) FROM t GROUP BY k ORDER BY k";
        let groups = show(&context, groups).await;
        assert_eq!(groups.matches("50000").count(), 3, "{groups}");
        assert_eq!(pool.reserved(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_goes_on_while_others_hold_all_memory() {
    let (_folder, path) = expanding().await;
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
    let context = session_within(&pool);
    create(&context, "t", &path).await;
    let all = MemoryConsumer::new("others").register(&pool);
    all.grow(1 << 20);
    let plan = physical(&context, "SELECT n, text FROM t WHERE n % 1000 = 7").await;
    let batches = datafusion::physical_plan::collect(plan, context.task_ctx());
    let batches = tokio::time::timeout(Duration::from_secs(60), batches).await.expect("it ends").unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 150);
    assert_eq!(pool.reserved(), 1 << 20);
    drop(all);
    assert_eq!(pool.reserved(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_aggregates_while_others_hold_all_memory() {
    let (_folder, path) = expanding().await;
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
    let context = session_within(&pool);
    create(&context, "t", &path).await;
    let sql = "SELECT sum(n) + count(text) FROM t WHERE n > 100 AND text LIKE '%7'";
    let told = plan(&context, sql).await;
    assert!(!told.contains("mode=Partial"), "the scan returns states: {told}");
    let free = number(&context, sql).await;
    // All but what the operator above the scan takes for the states.
    let others = MemoryConsumer::new("others").register(&pool);
    others.grow((1 << 20) - (4 << 10));
    let starved = tokio::time::timeout(Duration::from_secs(60), number(&context, sql)).await;
    assert_eq!(starved.expect("it ends"), free);
    assert_eq!(pool.reserved(), (1 << 20) - (4 << 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_each_of_many_files_takes_little_of_the_pool() {
    const FILES: i64 = 200;
    let folder = tempfile::tempdir().unwrap();
    let path = |at: i64| folder.path().join(format!("{at:03}.vortex"));
    let context = SessionContext::new();
    register(&context).expect("the format registers");
    let rows =
        "SELECT value AS k, value * 2 AS a, value * 3 AS b, value * 5 AS c FROM generate_series(1, 200)";
    copy(&context, rows, path(0).display()).await;
    for at in 1..FILES {
        std::fs::copy(path(0), path(at)).unwrap();
    }
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(4 << 20));
    let context = session_within(&pool);
    create(&context, "t", folder.path().join("").display()).await;
    // The join keeps all rows of one side.
    let sql = "SELECT sum(x.a + x.b + x.c + y.a + y.b) FROM t AS x JOIN t AS y ON x.c = y.c WHERE x.k = 7 AND y.k = 7";
    assert!(plan(&context, sql).await.contains("mode=CollectLeft"));
    assert_eq!(number(&context, sql).await, FILES * FILES * 7 * (2 + 3 + 5 + 2 + 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_without_memory_ends_in_one_error_and_leaves_the_pool_empty() {
    let folder = tempfile::tempdir().unwrap();
    ordered::write(folder.path(), 2).await;
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 10));
    let context = session_within(&pool);
    create(&context, "t", folder.path().join("").display()).await;
    let sql = "SELECT a, b FROM t WHERE b = 3 ORDER BY a";
    let merged = plan(&context, sql).await;
    assert!(merged.contains("SortPreservingMergeExec") && !merged.contains("SortExec"), "{merged}");
    assert!(merged.contains("output_ordering=[a@0 ASC") && !merged.contains("FilterExec"), "{merged}");
    for _ in 0..5 {
        let error = context.sql(sql).await.unwrap().collect().await.unwrap_err();
        let told = error.to_string();
        assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{told}");
        assert!(told.contains("SortPreservingMergeExec"), "{told}");
        assert_eq!(told.matches("Resources exhausted").count(), 1, "{told}");
        // Scans that are dropped end a moment later.
        let settled = async {
            while pool.reserved() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), settled).await.expect("nothing is kept");
    }
}
