//! What a table format needs: plan scans of files chosen by their statistics, without rows that were deleted since.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::pruning::PrunableStatistics;
use datafusion::common::{DFSchema, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
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

impl Snapshot {
    /// The files that may have rows for which the filters are true.
    fn chosen(&self, session: &dyn Session, filters: &[Expr]) -> Result<Vec<&File>> {
        let Some(filter) = conjunction(filters.to_vec()) else { return Ok(self.files.iter().collect()) };
        let filter = session.create_physical_expr(filter, &DFSchema::try_from(Arc::clone(&self.schema))?)?;
        let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(&self.schema));
        let predicate = builder.try_build(filter)?;
        let statistics = self.files.iter().map(|file| Arc::clone(&file.statistics)).collect();
        let may = predicate.prune(&PrunableStatistics::new(statistics, Arc::clone(&self.schema)))?;
        Ok(self.files.iter().zip(may).filter(|(_, may)| *may).map(|(file, _)| file).collect())
    }
}

#[async_trait]
impl TableProvider for Snapshot {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Without this, `scan` gets no filters.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Footers are kept for later scans only of files whose time or e-tag tells their versions apart.
        let file = |File { meta, statistics, deleted }: &File| {
            PartitionedFile::new_from_meta(meta.clone())
                .with_statistics(Arc::clone(statistics))
                .with_extension(deleted.clone())
        };
        // Each group becomes a partition, which takes memory and a task: as many as the session has cores for.
        let files = self.chosen(session, filters)?.into_iter().map(file).collect();
        let groups = FileGroup::new(files).split_files(session.config().target_partitions());
        let store = ObjectStoreUrl::local_filesystem();
        // The plan pushes the filters down to the scan by itself.
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
    // No file may have such rows, so that none is part of the plan.
    ctx.sql("EXPLAIN SELECT * FROM lineitem WHERE l_quantity > 50").await?.show().await?;
    Ok(())
}
