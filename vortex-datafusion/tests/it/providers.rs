//! Tables of other crates that plan their own scans.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _};
use arrow::datatypes::{Int64Type, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::datasource::file_format::FileFormat as _;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use vortex_core::VortexFile;
use vortex_datafusion::{RowSelection, VortexFormat, VortexOptions, VortexSource, statistics};

use crate::files::{copy, file, run, session};

/// A table that plans its own scans of a file.
#[derive(Debug)]
struct Planned {
    file: PartitionedFile,
    schema: SchemaRef,
    statistics: Statistics,
    /// Whether the format finishes the plan, as the documentation recommends.
    by_format: bool,
}

#[async_trait]
impl TableProvider for Planned {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let source = VortexSource::new(TableSchema::from(&self.schema)).with_session(session);
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
            .with_file(self.file.clone().with_statistics(Arc::new(self.statistics.clone())))
            .with_statistics(self.statistics.clone())
            .with_projection_indices(projection.cloned())?
            .build();
        if self.by_format {
            VortexFormat::new().create_physical_plan(session, config).await
        } else {
            Ok(DataSourceExec::from_data_source(config))
        }
    }
}

/// The orders of TPC-H, which have 1,500 rows, and their place.
async fn orders() -> (Planned, PathBuf) {
    let path = file("tpch_orders").canonicalize().unwrap();
    (planned(&path).await, path)
}

/// A table over one file, of which nothing is known.
async fn planned(path: &Path) -> Planned {
    let schema = VortexFile::open_path(path).await.unwrap().schema().unwrap();
    let size = path.metadata().unwrap().len();
    let file = PartitionedFile::new(path.to_str().unwrap(), size);
    Planned { file, statistics: Statistics::new_unknown(&schema), schema, by_format: false }
}

#[tokio::test]
async fn sums_that_a_provider_estimates_are_computed() {
    for by_format in [false, true] {
        let (mut table, path) = orders().await;
        table.by_format = by_format;
        table.statistics.num_rows = Precision::Exact(1500);
        for column in &mut table.statistics.column_statistics {
            column.sum_value = Precision::Inexact(ScalarValue::Int64(Some(1)));
        }
        let context = session();
        let sql = |table: String| format!("SELECT sum(o_custkey), count(*) FROM {table}");
        let known = run(&context, &sql(format!("'{}'", path.display()))).await;
        context.register_table("t", Arc::new(table)).unwrap();
        let found = run(&context, &sql("t".to_owned())).await;
        assert_eq!(found.columns(), known.columns(), "by the format: {by_format}");
    }
}

#[tokio::test]
async fn sums_of_files_answer_what_is_asked_of_a_table_and_nothing_above_a_join() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.vortex");
    let context = session();
    copy(&context, "SELECT value AS key FROM generate_series(1, 1000)", path.display()).await;
    let mut table = planned(&path).await;
    let file = VortexFile::open_path(&path).await.unwrap();
    table.statistics = statistics(file.footer(), &table.schema);
    let sum = &table.statistics.column_statistics[0].sum_value;
    assert_eq!(sum, &Precision::Exact(ScalarValue::Int64(Some(500_500))));
    table.by_format = true;
    context.register_table("t", Arc::new(table)).unwrap();
    let plan = context.sql("SELECT sum(key) FROM t").await.unwrap().create_physical_plan().await.unwrap();
    assert!(!displayable(plan.as_ref()).indent(false).to_string().contains("DataSourceExec"));
    assert_eq!(numbers(run(&context, "SELECT sum(key) FROM t").await.column(0)), [500_500]);
    let joined = "SELECT sum(t.key) FROM t JOIN (VALUES (1), (2), (3)) AS thrice(n) ON n > 0";
    assert_eq!(numbers(run(&context, joined).await.column(0)), [3 * 500_500]);
}

#[tokio::test]
async fn statistics_of_whole_files_answer_nothing_about_selected_rows() {
    let context = session();
    let (mut table, path) = orders().await;
    let file = VortexFile::open_path(&path).await.unwrap();
    table.statistics = statistics(file.footer(), &table.schema);
    table.file = table.file.with_extension(RowSelection::only([3, 7, 700]).unwrap());
    table.by_format = true;
    context.register_table("t", Arc::new(table)).unwrap();
    let found = run(&context, "SELECT count(*), count(o_custkey) FROM t").await;
    assert_eq!([numbers(found.column(0)), numbers(found.column(1))], [[3], [3]]);
    let selected = "(SELECT o_custkey FROM t)";
    let found = run(&context, &format!("SELECT max(o_custkey), sum(o_custkey) FROM {selected}")).await;
    let rows = run(&context, "SELECT o_custkey FROM t").await;
    let keys = numbers(rows.column(0));
    let expected = [keys.iter().copied().max().unwrap(), keys.iter().sum()];
    assert_eq!([numbers(found.column(0)), numbers(found.column(1))], expected.map(|number| vec![number]));
}

#[tokio::test]
async fn filters_on_numbers_of_rows_read_none_that_a_selection_leaves_out() {
    let context = session();
    let few = [3, 7, 700, 1400];
    for (selection, is_selected) in
        [(RowSelection::only(few), [true, false]), (RowSelection::except(few), [false, true])]
    {
        let (mut table, _) = orders().await;
        table.file = table.file.with_extension(selection.unwrap());
        context.deregister_table("t").unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        for filter in ["n < 8", "n IN (3, 4, 1400, 1499)", "n = 700", "n BETWEEN 100 AND 1450", "n >= 1401"] {
            let rows = "SELECT n FROM (SELECT file_row_index() AS n, o_orderkey FROM t)";
            let found = run(&context, &format!("{rows} WHERE {filter} ORDER BY n")).await;
            let series = "SELECT n FROM (SELECT value AS n FROM generate_series(0, 1499))";
            let all = run(&context, &format!("{series} WHERE {filter} ORDER BY n")).await;
            let selected = |n: &i64| is_selected[usize::from(!few.contains(&(*n as u64)))];
            let all: Vec<i64> = numbers(all.column(0)).into_iter().filter(selected).collect();
            assert_eq!(numbers(found.column(0)), all, "{filter}");
        }
    }
}

#[tokio::test]
async fn options_of_a_source_win_over_those_of_the_format_and_these_over_those_of_the_session() {
    let schema = VortexFile::open_path(file("tpch_orders")).await.unwrap().schema().unwrap();
    let context = session();
    run(&context, "SET vortex.footer_read_size = 1000").await;
    let reading = |size: u64| VortexOptions::default().with(|options| options.footer_read_size = size);
    for (of_source, of_format, expected) in [
        (None, None, 1000),
        (None, Some(2000), 2000),
        (Some(3000), None, 3000),
        (Some(3000), Some(2000), 3000),
    ] {
        let source = VortexSource::new(TableSchema::from(&schema));
        let source = match of_source {
            Some(size) => source.with_options(reading(size)),
            None => source,
        };
        let format = match of_format {
            Some(size) => VortexFormat::new().with_options(reading(size)),
            None => VortexFormat::new(),
        };
        let store = ObjectStoreUrl::local_filesystem();
        let config = FileScanConfigBuilder::new(store, Arc::new(source)).build();
        let plan = format.create_physical_plan(&context.state(), config).await.unwrap();
        let scan = plan.downcast_ref::<DataSourceExec>().unwrap();
        let (_, source) = scan.downcast_to_file_source::<VortexSource>().unwrap();
        assert_eq!(source.options().footer_read_size, expected);
    }
}

fn numbers(column: &ArrayRef) -> Vec<i64> {
    column.as_primitive::<Int64Type>().values().to_vec()
}
