//! Tables of other crates that plan their own scans.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use vortex_core::VortexFile;
use vortex_datafusion::VortexSource;

use crate::files::{file, run, session};

/// A table that plans its own scans of a file, and estimates the sums of its columns.
#[derive(Debug)]
struct Estimating {
    path: PathBuf,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for Estimating {
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
        let mut known = Statistics::new_unknown(&self.schema);
        known.num_rows = Precision::Exact(1500);
        for column in &mut known.column_statistics {
            column.sum_value = Precision::Inexact(ScalarValue::Int64(Some(1)));
        }
        let size = self.path.metadata()?.len();
        let file = PartitionedFile::new(self.path.to_str().unwrap(), size);
        let source = VortexSource::new(TableSchema::from(&self.schema)).with_session(session);
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
            .with_file(file.with_statistics(Arc::new(known.clone())))
            .with_statistics(known)
            .with_projection_indices(projection.cloned())?
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

#[tokio::test]
async fn sums_that_a_provider_estimates_are_computed() {
    let path = file("tpch_orders").canonicalize().unwrap();
    let schema = VortexFile::open_path(&path).await.unwrap().schema().unwrap();
    let context = session();
    let sql = |table: String| format!("SELECT sum(o_custkey), count(*) FROM {table}");
    let known = run(&context, &sql(format!("'{}'", path.display()))).await;
    context.register_table("t", Arc::new(Estimating { path, schema })).unwrap();
    assert_eq!(run(&context, &sql("t".to_owned())).await.columns(), known.columns());
}
