//! What queries see of files that the same session or others write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::Int64Type;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionConfig;
use futures::future::join_all;
use test_store::TestStore;

use crate::concurrent::within;
use crate::counting::{over, over_with, settle};
use crate::files::{copy, create, physical, run};

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_follow_a_write_see_it_whatever_ran_before() {
    let store = TestStore::new();
    let context = over(&store, None);
    create(&context, "w (a BIGINT)", "counting://store/w/").await;
    run(&context, "INSERT INTO w VALUES (0)").await;
    let sql = "SELECT a FROM w";
    for (at, statement) in [
        "INSERT INTO w VALUES (1)",
        "COPY (SELECT 2 AS a) TO 'counting://store/w/two.vortex'",
        "INSERT INTO w VALUES (3)",
    ]
    .into_iter()
    .enumerate()
    {
        let insert = physical(&context, statement).await;
        // DataFusion keeps the listing of the folder that this query makes.
        assert_eq!(run(&context, sql).await.num_rows(), at + 1, "{statement}");
        collect(insert, context.task_ctx()).await.unwrap();
        assert_eq!(run(&context, sql).await.num_rows(), at + 2, "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_whole_files_while_others_are_written() {
    const ROWS: i64 = 20_000;
    let sum: i64 = (1..=ROWS).map(|value| value % 7 * 2).sum();
    let store = TestStore::new();
    let writer = over(&store, Some(64 << 20));
    let runtime = writer.runtime_env();
    create(&writer, "w (a BIGINT, b BIGINT)", "counting://store/w/").await;
    // All rows of a statement go to one file, and thus appear at once.
    run(&writer, "SET datafusion.execution.minimum_parallel_output_files = 1").await;
    let done = Arc::new(AtomicBool::new(false));
    let count = move |batch: &RecordBatch| {
        let number = |at: usize| batch.column(at).as_primitive::<Int64Type>().iter().next().unwrap();
        let (rows, found) = (number(0).unwrap(), number(1).unwrap_or(0));
        assert_eq!((rows % ROWS, found), (0, rows / ROWS * sum));
        rows / ROWS
    };
    let readers = (0..4).map(|at| {
        // Some readers share the session of the writer.
        let (store, runtime, writer) = (Arc::clone(&store), Arc::clone(&runtime), writer.clone());
        let done = Arc::clone(&done);
        tokio::spawn(async move {
            let own = match at % 2 {
                0 => writer,
                _ => {
                    let own = over_with(&store, SessionConfig::new().with_target_partitions(2), runtime);
                    create(&own, "w (a BIGINT, b BIGINT)", "counting://store/w/").await;
                    own
                }
            };
            while !done.load(Ordering::SeqCst) {
                let batch = run(&own, "SELECT count(*) AS n, sum(b * 2) AS s FROM w WHERE a % 3 < 5").await;
                assert!(count(&batch) <= 12);
                tokio::task::yield_now().await;
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let rows = format!("SELECT value AS a, value % 7 AS b FROM generate_series(1, {ROWS})");
    for at in 0..6 {
        within("INSERT", run(&writer, &format!("INSERT INTO w {rows}"))).await;
        within("COPY", copy(&writer, &rows, format!("counting://store/w/{at}.vortex"))).await;
    }
    done.store(true, Ordering::SeqCst);
    within("a reader", join_all(readers)).await.into_iter().for_each(|outcome| outcome.unwrap());
    // Another table has another listing.
    create(&writer, "all_of_it (a BIGINT, b BIGINT)", "counting://store/w/").await;
    let batch = run(&writer, "SELECT count(*) AS n, sum(b * 2) AS s FROM all_of_it WHERE a % 3 < 5").await;
    assert_eq!(count(&batch), 12);
    settle(&store, &runtime.memory_pool).await;
}
