//! Faults of DataFusion 55 that this project works around, shown without any of its code: plain sessions, which have
//! none of its optimizer rules, over Parquet files and rows in memory.
//!
//! The SQL suites prove that answers are right with the workarounds, whether or not these are still needed. Each test
//! here asserts what DataFusion gets wrong today, and fails once a new version gets it right. Its message then names
//! the file whose workaround can be removed, together with the test. The comment at a workaround names its test.
//!
//! Parquet files have row groups of 1,000 rows, and filters are applied to their rows, so that it shows which of them
//! are wrong. The feature `cli` brings Parquet along: `cargo all-tests` runs these tests, `cargo test` does not.

mod files;
mod filters;
mod keys;
mod memory;
mod names;
mod orders;
mod pruning;
mod source;
mod statistics;
mod windows;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;

/// A session of DataFusion alone, and a folder for its files.
struct Plain {
    context: SessionContext,
    folder: TempDir,
}

impl Plain {
    fn new(partitions: usize) -> Self {
        let mut config = SessionConfig::new().with_target_partitions(partitions);
        let options = config.options_mut();
        options.execution.parquet.pushdown_filters = true;
        options.execution.parquet.max_row_group_size = 1000;
        // Partitions share files of any size.
        options.optimizer.repartition_file_min_size = 1;
        let context = SessionContext::new_with_config(config);
        Self { context, folder: tempfile::tempdir().unwrap() }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A table of one Parquet file with the rows of a query.
    async fn table(&self, name: &str, query: &str) {
        let file = self.folder().join(format!("{name}.parquet"));
        self.run(&format!("COPY ({query}) TO '{}'", file.display())).await;
        let place = file.display();
        self.run(&format!("CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{place}'")).await;
    }

    /// A table of one Parquet file with the rows of a query in an order, which is declared.
    async fn sorted_table(&self, name: &str, query: &str, order: &str) {
        let file = self.folder().join(format!("{name}.parquet"));
        self.run(&format!("COPY ({query} ORDER BY {order}) TO '{}'", file.display())).await;
        let with = format!("STORED AS PARQUET WITH ORDER ({order}) LOCATION '{}'", file.display());
        self.run(&format!("CREATE EXTERNAL TABLE {name} {with}")).await;
    }

    async fn run(&self, sql: &str) {
        self.try_rows(sql).await.unwrap();
    }

    async fn plan(&self, sql: &str) -> Arc<dyn ExecutionPlan> {
        self.context.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
    }

    /// The rows of a query: values separated by spaces.
    async fn rows(&self, sql: &str) -> Vec<String> {
        self.try_rows(sql).await.unwrap()
    }

    async fn try_rows(&self, sql: &str) -> Result<Vec<String>> {
        let plan = self.context.sql(sql).await?.create_physical_plan().await?;
        self.rows_of(plan).await
    }

    async fn rows_of(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Vec<String>> {
        let options = FormatOptions::new().with_null("null");
        let mut rows = Vec::new();
        for batch in collect(plan, self.context.task_ctx()).await? {
            let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            rows.extend((0..batch.num_rows()).map(|row| {
                let values: Vec<_> = columns.iter().map(|column| column.value(row).to_string()).collect();
                values.join(" ")
            }));
        }
        Ok(rows)
    }

    /// Asserts that the rows of a query are still `wrong` ones.
    async fn assert_wrong(&self, sql: &str, wrong: &[&str], right: &[&str], workaround: &str) {
        assert_wrong(self.rows(sql).await.as_slice(), wrong, right, workaround);
    }

    /// Asserts that a query still fails, with a message that contains `part`.
    async fn assert_fails(&self, sql: &str, part: &str, workaround: &str) {
        match self.try_rows(sql).await {
            Ok(rows) => {
                panic!("fixed upstream, remove the workaround in {workaround}: `{sql}` returns {rows:?}")
            }
            Err(error) => assert!(error.to_string().contains(part), "{error}"),
        }
    }
}

/// Asserts that what DataFusion finds is still `wrong`, and neither right nor wrong in another way.
fn assert_wrong<F, W>(found: F, wrong: W, right: W, workaround: &str)
where
    F: Debug + PartialEq<W>,
    W: Debug,
{
    assert!(found != right, "fixed upstream, remove the workaround in {workaround}: {right:?}");
    assert!(found == wrong, "neither right nor as wrong as before, see {workaround}: {found:?}");
}
