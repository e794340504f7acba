//! Partitions that read one file together.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::common::DataFusionError;
use datafusion::physical_plan::collect_partitioned;
use datafusion::physical_plan::common::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use test_store::{ReadFault, TestStore};

use crate::counting::over_with;
use crate::files::{create, numbers, physical, written};

const ROWS: i64 = 1 << 22;
const PARTITIONS: usize = 2;

/// Ascending numbers, and others without a pattern.
fn rows() -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let mut bits = 1u64;
    let mixed = (0..ROWS).map(|_| {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (bits >> 32) as i64
    });
    let mixed: ArrayRef = Arc::new(Int64Array::from_iter_values(mixed));
    RecordBatch::try_from_iter([("id", ids), ("mixed", mixed)]).unwrap()
}

/// A session over one file in a counting store, which two partitions read.
async fn opened() -> (Arc<TestStore>, SessionContext) {
    let store = TestStore::new();
    store.put(&Path::from("one.vortex"), written(&rows()).await.into()).await.unwrap();
    let mut config = SessionConfig::new().with_target_partitions(PARTITIONS);
    config.options_mut().optimizer.repartition_file_min_size = 1;
    // Each partition reads its own part of the file.
    config.options_mut().execution.enable_file_stream_work_stealing = false;
    let context = over_with(&store, config, Arc::default());
    create(&context, "one", "counting://store/one.vortex").await;
    (store, context)
}

/// The `id` of the rows of each partition.
async fn ids(context: &SessionContext, sql: &str) -> Vec<Vec<i64>> {
    let plan = physical(context, sql).await;
    let partitions = collect_partitioned(plan, context.task_ctx()).await.unwrap();
    let ids_of = |batches: &Vec<RecordBatch>| batches.iter().flat_map(|batch| numbers(batch, 0)).collect();
    partitions.iter().map(ids_of).collect()
}

#[tokio::test]
async fn neighbouring_rows_that_pass_a_filter_are_shared_by_all_partitions() {
    let (_, context) = opened().await;
    let partitions = ids(&context, "SELECT id FROM one WHERE id >= 2200000 AND mixed >= 0").await;
    assert_eq!(partitions.len(), PARTITIONS);
    let share = (ROWS as usize - 2_200_000) / PARTITIONS;
    for ids in &partitions {
        assert!((share / 2..share * 2).contains(&ids.len()), "{} of {share}", ids.len());
    }
    let mut all = partitions.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(2_200_000..ROWS));
}

#[tokio::test]
async fn partitions_that_run_one_after_the_other_fetch_few_chunks_twice() {
    let (store, context) = opened().await;
    let size = store.head(&Path::from("one.vortex")).await.unwrap().size;
    let plan = physical(&context, "SELECT id, mixed FROM one").await;
    store.take();
    let mut rows = 0;
    for partition in 0..PARTITIONS {
        let stream = plan.execute(partition, context.task_ctx()).unwrap();
        rows += collect(stream).await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>();
    }
    assert_eq!(rows as i64, ROWS);
    let (_, bytes) = store.take();
    assert!(bytes >= size / 2 && bytes <= size + size / 4, "{bytes} of {size} bytes");
}

#[tokio::test]
async fn a_failure_of_the_store_keeps_its_class_for_all_who_wait_for_the_bytes() {
    let (store, context) = opened().await;
    store.fail_reads(|| Some(ReadFault::Fails));
    let plan = physical(&context, "SELECT id, mixed FROM one").await;
    let error = collect_partitioned(plan, context.task_ctx()).await.unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ObjectStore(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("reading bytes") && text.contains("one.vortex"), "{text}");
}
