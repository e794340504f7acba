//! Scans of files that a table provider has chosen, planned by `plan_scan`.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::file_format::FileFormat as _;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{CsvSource, FileGroup, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use vortex_core::VortexFile;
use vortex_core::io::MemoryFile;
use vortex_datafusion::{RowSelection, VortexFormat, recorded_order, statistics};

use crate::files::{copy, file, number, numbers, plan, run, session};

/// A table whose catalogue knows the files.
#[derive(Debug)]
struct Chosen {
    table: TableSchema,
    files: Vec<PartitionedFile>,
}

#[async_trait]
impl TableProvider for Chosen {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.table.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let groups = FileGroup::new(self.files.clone()).split_files(session.config().target_partitions());
        let (store, table) = (ObjectStoreUrl::local_filesystem(), self.table.clone());
        VortexFormat::new().plan_scan(session, store, table, groups, projection.cloned(), limit)
    }
}

impl Chosen {
    /// Two files, of the numbers from 1 and from 1001, which are in order, of the days 1 and 2.
    async fn numbers(folder: &Path) -> Self {
        let mut files = Vec::new();
        let mut schema = None;
        for (day, first, last) in [(1, 1, 1000), (2, 1001, 3000)] {
            let path = folder.join(format!("{day}.vortex"));
            let rows =
                format!("SELECT value AS n, value % 7 AS m FROM generate_series({first}, {last}) ORDER BY n");
            copy(&session(), &rows, path.display()).await;
            let open = VortexFile::open_path(&path).await.unwrap();
            let of_file = open.schema().unwrap();
            let order = recorded_order(open.footer(), &of_file);
            assert!(order.is_some());
            let size = open.footer().file_size();
            let known = statistics(open.footer(), &of_file);
            files.push(
                PartitionedFile::new(path.to_str().unwrap(), size)
                    .with_partition_values(vec![ScalarValue::Int32(Some(day))])
                    .with_statistics(Arc::new(known))
                    .with_ordering(order),
            );
            schema = Some(of_file);
        }
        let day = Arc::new(Field::new("day", DataType::Int32, false));
        let table = TableSchema::builder(schema.unwrap()).with_table_partition_cols(vec![day]).build();
        Self { table, files }
    }

    fn register(self) -> SessionContext {
        let context = session();
        context.register_table("t", Arc::new(self)).unwrap();
        context
    }

    async fn refused(self) -> String {
        let context = self.register();
        context.sql("SELECT * FROM t").await.unwrap().collect().await.unwrap_err().to_string()
    }
}

const COUNT: &str = "SELECT count(*) FROM t";

#[tokio::test]
async fn what_files_tell_is_what_the_scan_states() {
    let folder = tempfile::tempdir().unwrap();
    let context = Chosen::numbers(folder.path()).await.register();
    assert_eq!(number(&context, COUNT).await, 3000);
    assert!(!plan(&context, COUNT).await.contains("DataSourceExec"));
    let sorted = plan(&context, "SELECT n, day FROM t ORDER BY n").await;
    assert!(!sorted.contains("SortExec"), "{sorted}");
    let filtered = "SELECT n, day FROM t WHERE n > 995 AND m = 0 AND day < 2 ORDER BY n LIMIT 3";
    let found = run(&context, filtered).await;
    assert_eq!(numbers(&found, 0), [0_i64; 0], "the last of them is 994");
    assert_eq!(number(&context, "SELECT sum(n) FROM t WHERE day = 2 AND n < 1003").await, 2003);
    assert_eq!(run(&context, "SELECT m FROM t LIMIT 1500").await.num_rows(), 1500);
}

#[tokio::test]
async fn files_of_which_nothing_is_known_are_counted_with_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Chosen::numbers(folder.path()).await;
    table.files[1].statistics = None;
    table.files[1].ordering = None;
    let context = table.register();
    assert!(plan(&context, COUNT).await.contains("DataSourceExec"));
    assert_eq!(number(&context, COUNT).await, 3000);
    assert!(plan(&context, "SELECT n FROM t ORDER BY n").await.contains("SortExec"));
    let empty = Chosen { files: Vec::new(), ..Chosen::numbers(folder.path()).await }.register();
    assert_eq!(number(&empty, COUNT).await, 0);
}

#[tokio::test]
async fn statistics_of_whole_files_may_come_with_selections_of_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Chosen::numbers(folder.path()).await;
    let deleted = RowSelection::except([0, 999]).unwrap();
    table.files[0] = table.files[0].clone().with_extension(deleted);
    let context = table.register();
    assert_eq!(number(&context, COUNT).await, 2998);
    assert_eq!(number(&context, "SELECT min(n) FROM t").await, 2);
    assert_eq!(number(&context, "SELECT count(*) FROM t WHERE n > 2999 OR n < 3").await, 2);
}

#[tokio::test]
async fn statistics_of_whole_files_may_come_with_ranges_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Chosen::numbers(folder.path()).await;
    let (first, last) = (table.files.remove(0), table.files.remove(0));
    let (middle, end) = (first.object_meta.size as i64 / 2, first.object_meta.size as i64);
    table.files = vec![first.clone().with_range(0, middle), first.with_range(middle, end), last];
    let context = table.register();
    assert_eq!(number(&context, COUNT).await, 3000);
    assert_eq!(number(&context, "SELECT sum(n) FROM t").await, 3000 * 3001 / 2);
    assert_eq!(number(&context, "SELECT count(*) + max(n) FROM t WHERE day = 1").await, 2000);
}

#[tokio::test]
async fn the_value_of_a_partition_may_be_null() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Chosen::numbers(folder.path()).await;
    let day = Arc::new(Field::new("day", DataType::Int32, true));
    let schema = Arc::clone(table.table.file_schema());
    table.table = TableSchema::builder(schema).with_table_partition_cols(vec![day]).build();
    let unknown = &mut table.files[1];
    let mut known = Arc::unwrap_or_clone(unknown.statistics.take().unwrap());
    known.column_statistics.pop();
    *unknown = unknown
        .clone()
        .with_partition_values(vec![ScalarValue::Int32(None)])
        .with_statistics(Arc::new(known));
    let context = table.register();
    let count = async |sql: &str| number(&context, sql).await;
    assert_eq!(count("SELECT count(day) FROM t").await, 1000);
    assert_eq!(count("SELECT count(day) FROM t WHERE n > 0").await, 1000);
    assert_eq!(count("SELECT count(*) FROM t WHERE day IS NULL").await, 2000);
    assert_eq!(count("SELECT count(*) FROM t WHERE day = 1").await, 1000);
    assert_eq!(count("SELECT CAST(max(day) + min(day) AS BIGINT) FROM t").await, 2);
    assert_eq!(count(COUNT).await, 3000);
}

#[tokio::test]
async fn a_provider_may_attach_files_that_it_has_open() {
    let bytes = std::fs::read(file("tpch_orders")).unwrap();
    let open = VortexFile::open(Arc::new(MemoryFile::new(bytes))).await.unwrap();
    let table = TableSchema::from(&open.schema().unwrap());
    let size = open.footer().file_size();
    let part = PartitionedFile::new("in memory", size).with_extension(open);
    let few = part.clone().with_extension(RowSelection::only([3, 7]).unwrap());
    let context = Chosen { table, files: vec![few, part] }.register();
    assert_eq!(number(&context, COUNT).await, 1502);
}

#[tokio::test]
async fn what_is_known_of_other_columns_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Chosen::numbers(folder.path()).await;
    table.files[1].partition_values.clear();
    let error = table.refused().await;
    assert!(error.contains("2.vortex has 0 partition values for 1 partition columns"), "{error}");
    let mut table = Chosen::numbers(folder.path()).await;
    let known = table.files[0].statistics.take().unwrap();
    // The values were there, and are counted twice.
    table.files[0] = table.files[0].clone().with_statistics(known);
    let error = table.refused().await;
    assert!(error.contains("1.vortex has statistics of 4 columns, but the table has 3"), "{error}");
}

#[tokio::test]
async fn what_is_known_must_have_the_types_of_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Chosen::numbers(folder.path()).await;
    // As when the column was wider or narrower in a former version of the table.
    let mut known = Arc::unwrap_or_clone(table.files[1].statistics.take().unwrap());
    known.column_statistics[0].min_value = Precision::Exact(ScalarValue::Int32(Some(1001)));
    table.files[1].statistics = Some(Arc::new(known));
    let error = table.refused().await;
    let told = "2.vortex has a minimum of type Int32 for the column `n`, which is of type Int64";
    assert!(error.contains(told), "{error}");
    let mut table = Chosen::numbers(folder.path()).await;
    table.files[0].partition_values = vec![ScalarValue::Int64(Some(1))];
    let error = table.refused().await;
    assert!(error.contains("1.vortex has a partition value of type Int64 for the column `day`"), "{error}");
}

#[tokio::test]
async fn virtual_columns_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Chosen::numbers(folder.path()).await;
    let schema = Arc::clone(table.table.file_schema());
    let at = Arc::new(Field::new("at", DataType::Int64, false));
    table.table = TableSchema::builder(schema).with_virtual_columns(vec![at]).build();
    table.files.clear();
    let error = table.refused().await;
    assert!(error.contains("`at` is a virtual column"), "{error}");
}

#[tokio::test]
async fn scans_of_other_files_are_refused_without_blaming_datafusion() {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let source = Arc::new(CsvSource::new(TableSchema::from(&schema)));
    let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source).build();
    let refused = VortexFormat::new().create_physical_plan(&session().state(), config).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("needs a VortexSource, but has a source of `csv`"), "{error}");
    assert!(!error.contains("bug in DataFusion"), "{error}");
}
