//! What a table format needs: plan scans of chosen files, without rows that were deleted since.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::datasource::file_format::FileFormat as _;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};
use vortex_datafusion::vortex_core::VortexFile;
use vortex_datafusion::{RowSelection, VortexFormat, VortexSource};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

/// A table whose catalogue lists files, their schema, and positions of deleted rows.
#[derive(Debug)]
struct Snapshot {
    schema: SchemaRef,
    files: Vec<(ObjectMeta, Vec<u64>)>,
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
        // Footers are kept for later scans only of files whose time or e-tag tells their versions apart.
        let file = |(meta, deleted): &(ObjectMeta, Vec<u64>)| {
            let file = PartitionedFile::new_from_meta(meta.clone())
                // Statistics of the whole file would not hold for the rows that are left.
                .with_statistics(Arc::new(Statistics::new_unknown(&self.schema)));
            Ok(file.with_extension(RowSelection::except(deleted.clone())?))
        };
        // Each group becomes a partition, which takes memory and a task: as many as the session has cores for.
        let groups = FileGroup::new(self.files.iter().map(file).collect::<Result<_>>()?)
            .split_files(session.config().target_partitions());
        // The plan pushes filters down to the source by itself.
        let source = Arc::new(VortexSource::new(TableSchema::from(&self.schema)));
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_groups(groups)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        VortexFormat::new().create_physical_plan(session, config).await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ctx = SessionContext::new();
    vortex_datafusion::register(&ctx)?;
    let schema = VortexFile::open_path(FILE).await?.schema()?;
    let deleted = (0..100).collect();
    let meta = LocalFileSystem::new().head(&Path::from_absolute_path(FILE)?).await?;
    let files = vec![(meta, deleted)];
    ctx.register_table("lineitem", Arc::new(Snapshot { schema, files }))?;
    // A hundred rows fewer than the file has.
    ctx.sql("SELECT count(*), min(file_row_index()) FROM lineitem").await?.show().await?;
    Ok(())
}
