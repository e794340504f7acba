//! What a table format needs: plan scans of chosen files, without rows that were deleted since.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};
use vortex_datafusion::vortex_core::VortexFile;
use vortex_datafusion::{RowSelection, VortexFormat, statistics};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

/// A table whose catalogue lists its files and their schema.
#[derive(Debug)]
struct Snapshot {
    schema: SchemaRef,
    files: Vec<File>,
}

/// What the catalogue knows of a file.
#[derive(Debug)]
struct File {
    meta: ObjectMeta,
    /// Those of the whole file: as some rows are deleted, scans take them as estimates.
    statistics: Arc<Statistics>,
    deleted: RowSelection,
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
        let file = |File { meta, statistics, deleted }: &File| {
            PartitionedFile::new_from_meta(meta.clone())
                .with_statistics(Arc::clone(statistics))
                .with_extension(deleted.clone())
        };
        // Each group becomes a partition, which takes memory and a task: as many as the session has cores for.
        let groups = FileGroup::new(self.files.iter().map(file).collect())
            .split_files(session.config().target_partitions());
        let store = ObjectStoreUrl::local_filesystem();
        // The plan pushes filters down to the scan by itself; a catalogue may leave out files by them here.
        VortexFormat::new().plan_scan(session, store, &self.schema, groups, projection.cloned(), limit)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ctx = SessionContext::new();
    vortex_datafusion::register(&ctx)?;
    let file = VortexFile::open_path(FILE).await?;
    let schema = file.schema()?;
    let file = File {
        meta: LocalFileSystem::new().head(&Path::from_absolute_path(FILE)?).await?,
        statistics: Arc::new(statistics(file.footer(), &schema)),
        deleted: RowSelection::except((0..100).collect::<Vec<_>>())?,
    };
    ctx.register_table("lineitem", Arc::new(Snapshot { schema, files: vec![file] }))?;
    // A hundred rows fewer than the file has.
    ctx.sql("SELECT count(*), min(file_row_index()) FROM lineitem").await?.show().await?;
    Ok(())
}
