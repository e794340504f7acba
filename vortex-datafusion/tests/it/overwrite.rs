//! `INSERT OVERWRITE`, which replaces the files of a table.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::prelude::SessionContext;
use tempfile::TempDir;
use test_store::{TestStore, WriteFault};

use crate::failed_writes::session_over;
use crate::files::{create, error, number, run, session, session_within};

/// A table of the numbers from 1 to 10, in two files.
async fn table_of_ten(context: &SessionContext, place: &str) {
    create(context, "t (a BIGINT)", place).await;
    for start in [1, 6] {
        run(context, &format!("INSERT INTO t SELECT value FROM generate_series({start}, {start} + 4)")).await;
    }
    assert_eq!(state(context).await, (10, 55));
}

fn folder() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("{}/", folder.path().display());
    (folder, place)
}

/// The count and the sum of the table.
async fn state(context: &SessionContext) -> (i64, i64) {
    let count = number(context, "SELECT count(*) FROM t").await;
    (count, number(context, "SELECT coalesce(sum(a), 0) FROM t").await)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn rows_take_the_place_of_all_others() {
    let (folder, place) = folder();
    let context = session();
    table_of_ten(&context, &place).await;
    let before = names(folder.path());
    run(&context, "INSERT OVERWRITE t VALUES (100), (200)").await;
    assert_eq!(state(&context).await, (2, 300));
    assert!(names(folder.path()).iter().all(|name| !before.contains(name)));
    // Other sessions see the same.
    let other = session();
    create(&other, "t", &place).await;
    assert_eq!(state(&other).await, (2, 300));
}

#[tokio::test]
async fn a_statement_may_read_what_it_replaces() {
    let (folder, place) = folder();
    let context = session();
    table_of_ten(&context, &place).await;
    run(&context, "INSERT OVERWRITE t SELECT a FROM t WHERE a <> 4 ORDER BY a DESC").await;
    assert_eq!(state(&context).await, (9, 51));
    assert_eq!(names(folder.path()).len(), 1);
}

#[tokio::test]
async fn no_rows_leave_an_empty_table() {
    let (folder, place) = folder();
    let context = session();
    table_of_ten(&context, &place).await;
    run(&context, "INSERT OVERWRITE t SELECT a FROM t WHERE a > 10").await;
    assert_eq!(state(&context).await, (0, 0));
    run(&context, "INSERT INTO t VALUES (7)").await;
    assert_eq!(state(&context).await, (1, 7));
    assert!(!names(folder.path()).is_empty());
}

#[tokio::test]
async fn partitions_without_new_rows_go_too_and_other_files_stay() {
    let (folder, place) = folder();
    let context = session();
    create(&context, "t (a BIGINT, day INT) PARTITIONED BY (day)", &place).await;
    run(&context, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)").await;
    for name in ["readme.txt", "day=1/notes.csv"] {
        fs::write(folder.path().join(name), "kept").unwrap();
    }
    run(&context, "INSERT OVERWRITE t SELECT a, day FROM t WHERE day = 2 UNION ALL VALUES (5, 5)").await;
    assert_eq!(state(&context).await, (2, 7));
    assert_eq!(names(&folder.path().join("day=1")), ["notes.csv"]);
    assert_eq!(names(&folder.path().join("day=2")).len(), 1);
    assert!(names(&folder.path().join("day=3")).is_empty());
    assert!(folder.path().join("readme.txt").is_file());
}

#[tokio::test]
async fn a_statement_that_fails_or_is_only_explained_changes_nothing() {
    let (folder, place) = folder();
    let context = session();
    table_of_ten(&context, &place).await;
    let before = names(folder.path());
    let failing = "INSERT OVERWRITE t SELECT CAST(CASE WHEN a = 9 THEN 'x' ELSE '1' END AS BIGINT) FROM t";
    let message = error(&context, failing).await;
    assert!(message.contains("'x'"), "{message}");
    run(&context, "EXPLAIN INSERT OVERWRITE t VALUES (1)").await;
    assert_eq!(names(folder.path()), before);
    assert_eq!(state(&context).await, (10, 55));
}

#[tokio::test]
async fn files_added_meanwhile_stay() {
    let (_folder, place) = folder();
    let context = session();
    table_of_ten(&context, &place).await;
    let planned = context.sql("INSERT OVERWRITE t VALUES (100)").await.unwrap();
    let plan = planned.create_physical_plan().await.unwrap();
    let other = session();
    create(&other, "t", &place).await;
    run(&other, "INSERT INTO t VALUES (1000)").await;
    datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap();
    assert_eq!(state(&context).await, (2, 1100));
}

#[tokio::test]
async fn a_plan_that_runs_again_replaces_what_it_has_written() {
    let (_folder, place) = folder();
    let context = session();
    table_of_ten(&context, &place).await;
    let planned = context.sql("INSERT OVERWRITE t VALUES (100)").await.unwrap();
    let plan = planned.create_physical_plan().await.unwrap();
    for _ in 0..2 {
        datafusion::physical_plan::collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        assert_eq!(state(&context).await, (1, 100));
    }
}

#[tokio::test]
async fn of_two_statements_at_once_the_second_one_tells_that_there_are_the_rows_of_both() {
    let (_folder, place) = folder();
    let context = session();
    table_of_ten(&context, &place).await;
    let mut plans = Vec::new();
    for value in [100, 1000] {
        let planned = context.sql(&format!("INSERT OVERWRITE t VALUES ({value})")).await.unwrap();
        plans.push(planned.create_physical_plan().await.unwrap());
    }
    let second = plans.pop().unwrap();
    datafusion::physical_plan::collect(plans.pop().unwrap(), context.task_ctx()).await.unwrap();
    let error = datafusion::physical_plan::collect(second, context.task_ctx()).await.unwrap_err();
    assert!(error.to_string().contains("2 of 2 files of replaced rows were gone"), "{error}");
    assert_eq!(state(&context).await, (2, 1100));
}

#[tokio::test]
async fn files_that_cannot_be_removed_are_an_error() {
    let store = TestStore::new();
    let context = session_over(&store);
    table_of_ten(&context, "faulty://x/t/").await;
    store.fail_writes(WriteFault::Delete("t/"));
    let message = error(&context, "INSERT OVERWRITE t VALUES (100)").await;
    assert!(message.contains("2 of 2 files of replaced rows"), "{message}");
    assert!(message.contains("access is denied"), "{message}");
    // The new rows are there, besides those that could not be replaced.
    assert_eq!(state(&context).await, (11, 155));
    store.fail_writes(WriteFault::Nothing);
    run(&context, "INSERT OVERWRITE t VALUES (100)").await;
    assert_eq!(state(&context).await, (1, 100));
}

#[tokio::test]
async fn a_dropped_statement_changes_nothing() {
    let store = TestStore::new();
    let context = session_over(&store);
    table_of_ten(&context, "faulty://x/t/").await;
    // New files are there, but the store does not say so.
    store.hold_answers(Some(".vortex"));
    let statement = context.sql("INSERT OVERWRITE t VALUES (100)").await.unwrap();
    let running = tokio::spawn(statement.collect());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!running.is_finished());
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    store.hold_answers(None);
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if state(&context).await == (10, 55) {
            return;
        }
    }
    panic!("{:?}", state(&context).await);
}

#[tokio::test]
async fn a_statement_without_enough_memory_changes_nothing() {
    let (folder, place) = folder();
    let context = session();
    table_of_ten(&context, &place).await;
    let before = names(folder.path());
    let tight = session_within(&(Arc::new(GreedyMemoryPool::new(10_000)) as _));
    create(&tight, "t (a BIGINT)", &place).await;
    let message = error(&tight, "INSERT OVERWRITE t SELECT value FROM generate_series(1, 1000000)").await;
    assert!(message.contains("allocat"), "{message}");
    assert_eq!(names(folder.path()), before);
    assert_eq!(state(&context).await, (10, 55));
}
