//! Windows whose rows are not all there.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::physical_plan::windows::BoundedWindowAggExec;
use futures::StreamExt as _;

use super::{Plain, assert_wrong};

/// A partition that returns batches, each after all other tasks had their turn so often.
#[derive(Debug)]
struct Slow {
    turns: usize,
    batches: Vec<RecordBatch>,
}

impl PartitionStream for Slow {
    fn schema(&self) -> &SchemaRef {
        self.batches[0].schema_ref()
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let turns = self.turns;
        let batches = futures::stream::iter(self.batches.clone()).then(move |batch| async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            Ok(batch)
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(self.schema()), batches))
    }
}

fn rows(p: i64, values: &[i64]) -> RecordBatch {
    let fields = ["p", "v"].map(|name| Field::new(name, DataType::Int64, false));
    let columns = [vec![p; values.len()], values.to_vec()];
    let columns = columns.map(|column| Arc::new(Int64Array::from(column)) as ArrayRef);
    RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns.to_vec()).unwrap()
}

fn windows(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if plan.is::<BoundedWindowAggExec>() { Arc::clone(plan) } else { windows(plan.children()[0]) }
}

#[tokio::test]
async fn windows_below_a_limit_lack_rows() {
    let plain = Plain::new(2);
    // Rows are passed on one by one.
    plain.run("SET datafusion.execution.batch_size = 1").await;
    // Once two rows of p = 0 are known, rows of p = 2 are no longer taken in. One has been, by then, in the other
    // partition.
    let partitions = [
        Slow { turns: 0, batches: vec![rows(2, &[100])] },
        Slow { turns: 1000, batches: vec![rows(0, &[1, 2, 3]), rows(2, &[1])] },
    ];
    let schema = Arc::clone(partitions[0].schema());
    let partitions = partitions.map(|partition| Arc::new(partition) as Arc<dyn PartitionStream>);
    let table = StreamingTable::try_new(schema, partitions.to_vec()).unwrap();
    plain.context.register_table("t", Arc::new(table)).unwrap();
    let sums = "sum(v) OVER (PARTITION BY p ORDER BY v ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)";
    let plan = plain.plan(&format!("SELECT v, {sums} FROM t LIMIT 2")).await;
    let mut found = plain.rows_of(windows(&plan)).await.unwrap();
    found.retain(|row| row.starts_with("2 100"));
    assert_wrong(found.as_slice(), &["2 100 100"], &["2 100 101"], "optimizer/limited_windows.rs");
}

#[tokio::test]
async fn limits_of_sorts_that_are_not_needed_get_below_windows() {
    let plain = Plain::new(2);
    for first in [1, 2501] {
        let rows = format!("SELECT value AS a FROM generate_series({first}, {}) ORDER BY a", first + 2499);
        let file = plain.folder().join(format!("t/{first}.parquet"));
        plain.run(&format!("COPY ({rows}) TO '{}'", file.display())).await;
    }
    let with = format!("STORED AS PARQUET WITH ORDER (a) LOCATION '{}/t/'", plain.folder().display());
    plain.run(&format!("CREATE EXTERNAL TABLE t {with}")).await;
    let sql = "SELECT a, count(*) OVER () FROM t ORDER BY a LIMIT 2";
    plain.assert_wrong(sql, &["1 2", "2 2"], &["1 5000", "2 5000"], "optimizer/limited_windows.rs").await;
    // Below a join, it leaves no rows.
    plain.run("CREATE TABLE d AS SELECT value * 5 AS k FROM generate_series(1, 100)").await;
    let windows = "(SELECT a, count(*) OVER () AS c FROM t) w";
    let sql = format!("SELECT a, c FROM d JOIN {windows} ON k = a ORDER BY a LIMIT 2");
    plain.assert_wrong(&sql, &[], &["5 5000", "10 5000"], "optimizer/limited_windows.rs").await;
}

#[tokio::test]
async fn limits_of_sorts_get_below_windows_that_look_ahead() {
    let plain = Plain::new(2);
    for (table, values) in [("equal", [1, 1, 1]), ("t", [1, 2, 3]), ("tied", [1, 2, 2])] {
        let folder = plain.folder().join(table);
        for (file, v) in values.into_iter().enumerate() {
            let file = folder.join(format!("{file}.parquet"));
            plain.run(&format!("COPY (SELECT 1 AS a, {v} AS v) TO '{}'", file.display())).await;
        }
        let create =
            format!("CREATE EXTERNAL TABLE {table} STORED AS PARQUET LOCATION '{}/'", folder.display());
        plain.run(&create).await;
    }
    for (sql, wrong, right) in [
        (
            "SELECT a, v, sum(v) OVER (PARTITION BY a) FROM equal ORDER BY a LIMIT 2",
            ["1 1 2", "1 1 2"],
            ["1 1 3", "1 1 3"],
        ),
        (
            "SELECT a, v, lead(v) OVER (PARTITION BY a ORDER BY v) FROM t ORDER BY a, v LIMIT 2",
            ["1 1 2", "1 2 null"],
            ["1 1 2", "1 2 3"],
        ),
        (
            "SELECT a, v, sum(v) OVER (PARTITION BY a ORDER BY v) FROM tied ORDER BY a, v LIMIT 2",
            ["1 1 1", "1 2 3"],
            ["1 1 1", "1 2 5"],
        ),
    ] {
        plain.assert_wrong(sql, &wrong, &right, "optimizer/limited_windows.rs").await;
    }
    // `lag` may be called to look ahead, and windows are reversed to make use of the order of others.
    for (windows, order, wrong, right) in [
        ("lag(v, -1) OVER (PARTITION BY a ORDER BY v)", "a, v", ["1 1 2", "1 2 null"], ["1 1 2", "1 2 3"]),
        (
            "lag(v) OVER (PARTITION BY a ORDER BY v DESC),
             sum(v) OVER (PARTITION BY a ORDER BY v ROWS UNBOUNDED PRECEDING)",
            "a, v DESC",
            ["1 3 null 5", "1 2 3 2"],
            ["1 3 null 6", "1 2 3 3"],
        ),
    ] {
        let sql = format!("SELECT a, v, {windows} FROM t ORDER BY {order} LIMIT 2");
        plain.assert_wrong(&sql, &wrong, &right, "optimizer/limited_windows.rs").await;
    }
}

#[tokio::test]
async fn limits_leave_out_groups_below_windows() {
    let plain = Plain::new(2);
    plain.table("t", "SELECT value AS id, value % 4 AS f FROM generate_series(1, 100)").await;
    let sql = "SELECT f, count(*) OVER () FROM t GROUP BY f ORDER BY f LIMIT 2";
    plain.assert_wrong(sql, &["0 2", "1 2"], &["0 4", "1 4"], "optimizer/unordered.rs").await;
}

#[tokio::test]
async fn limits_allow_for_the_later_rows_of_one_window_only() {
    let plain = Plain::new(1);
    plain.table("t", "SELECT value * 7 % 11 AS a FROM generate_series(1, 10)").await;
    let inner = "SELECT a, sum(a) OVER (ORDER BY a ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) AS s FROM t";
    let outer = "sum(s) OVER (ORDER BY a ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)";
    let sql = format!("SELECT a, {outer} FROM ({inner}) LIMIT 5");
    let (wrong, right) = (["1 15", "2 21", "3 27", "4 33", "5 31"], ["1 15", "2 21", "3 27", "4 33", "5 39"]);
    plain.assert_wrong(&sql, &wrong, &right, "bin/vortex/sql/session.rs").await;
}
