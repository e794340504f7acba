//! What a table format needs: plan scans of chosen files, without rows that were deleted since.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use vortex_core::VortexFile;
use vortex_datafusion::{RowSelection, VortexSource};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

/// A table whose catalogue lists files, their schema, and positions of deleted rows.
#[derive(Debug)]
struct Snapshot {
    schema: SchemaRef,
    files: Vec<(String, u64, Vec<u64>)>,
}

#[async_trait]
impl TableProvider for Snapshot {
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
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // The plan pushes filters down to the source by itself.
        let source = VortexSource::new(TableSchema::from(&self.schema)).with_session(session);
        let mut config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source));
        for (path, size, deleted) in &self.files {
            // Statistics of the whole file would not hold for the rows that are left.
            let unknown = Arc::new(Statistics::new_unknown(&self.schema));
            let file = PartitionedFile::new(path, *size).with_statistics(unknown);
            config = config.with_file(file.with_extension(RowSelection::except(deleted.clone())));
        }
        let config = config.with_projection_indices(projection.cloned())?.with_limit(limit).build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ctx = SessionContext::new();
    vortex_datafusion::register(&ctx)?;
    let schema = VortexFile::open_path(FILE).await?.schema()?;
    let deleted = (0..100).collect();
    let files = vec![(FILE.to_owned(), std::fs::metadata(FILE)?.len(), deleted)];
    ctx.register_table("lineitem", Arc::new(Snapshot { schema, files }))?;
    // A hundred rows fewer than the file has.
    ctx.sql("SELECT count(*), min(file_row_index()) FROM lineitem").await?.show().await?;
    Ok(())
}
