//! [`VortexTable`]: a table over files that are already open, from any source.
//!
//! Files in object stores do not need it: `STORED AS VORTEX`, or a `ListingTable` on a
//! [`VortexFormat`](crate::VortexFormat), lists and opens them. It is meant for sources that only the
//! application knows: bytes in memory, a cache, an encrypted volume.
//!
//! Scans are planned like other scans of files, so that file groups, filters, statistics and metrics work in
//! the same way. Each file is part of the plan as an extension of its `PartitionedFile`.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion_common::{Result, Statistics};
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::{PartitionedFile, compute_all_files_statistics};
use datafusion_execution::object_store::ObjectStoreUrl;
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_session::{Session, TableProvider};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::memory::InMemory;
use vortex_core::VortexFile;
use vortex_core::file::OpenOptions;
use vortex_core::io::ReadAt;

use crate::convert::{datafusion_error, schema};
use crate::format::VortexFormat;
use crate::options::{StringType, VortexOptions};
use crate::orders;
use crate::planning::scan_of;
use crate::statistics::statistics;

/// Number of sources opened at the same time.
const OPENED_AT_ONCE: usize = 32;

/// A table over one or several open files.
///
/// ```
/// # use std::sync::Arc;
/// # use datafusion::prelude::SessionContext;
/// # use vortex_core::io::{LocalFile, ReadAt};
/// # use vortex_datafusion::VortexTable;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::common::Result<()> {
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
/// let source: Arc<dyn ReadAt> = Arc::new(LocalFile::open(path).expect("a file"));
/// let context = SessionContext::new();
/// vortex_datafusion::register(&context)?;
/// context.register_table("lineitem", Arc::new(VortexTable::open([source]).await?))?;
/// let rows = context.sql("SELECT l_comment FROM lineitem WHERE l_quantity > 49").await?.count().await?;
/// # assert!(rows > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct VortexTable {
    files: Vec<VortexFile>,
    /// The columns in the types that files were written from.
    stored: Schema,
    schema: SchemaRef,
    options: Option<VortexOptions>,
    /// The files as plans use them, and the statistics of all of them, once a scan has needed them.
    described: OnceLock<(Vec<PartitionedFile>, Statistics)>,
}

impl VortexTable {
    /// Creates a table over files. Its columns are those of all files, by name; a column that a file lacks is
    /// null there. Numbers of different widths are widened to the narrowest type that holds all of them.
    ///
    /// # Errors
    /// If two files disagree on the type of a column.
    pub fn try_new(files: impl IntoIterator<Item = VortexFile>) -> Result<Self> {
        let files: Vec<VortexFile> = files.into_iter().collect();
        let schemas = files
            .iter()
            .map(|file| Ok((file.source().name().to_owned(), file.schema().map_err(datafusion_error)?)))
            .collect::<Result<Vec<_>>>()?;
        let stored = schema::with_nullable_fields(&schema::merge(&schemas)?);
        let schema = Arc::new(schema::with_strings(&stored, StringType::default()));
        Ok(Self { files, stored, schema, options: None, described: OnceLock::new() })
    }

    /// Opens the sources, several at a time, and creates a table over them.
    ///
    /// # Errors
    /// If a source is not a Vortex file, or two disagree on the type of a column.
    pub async fn open(sources: impl IntoIterator<Item = Arc<dyn ReadAt>>) -> Result<Self> {
        Self::open_with(sources, &OpenOptions::new()).await
    }

    /// As [`open`](Self::open), with options such as limits and the verification of checksums. The limits of a session
    /// concern only files that it opens; if it sets `verify_checksums`, scans of files that have checksums, but were
    /// opened without verifying them, fail.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(
        sources: impl IntoIterator<Item = Arc<dyn ReadAt>>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let files = sources
            .into_iter()
            .map(|source| async move { options.open(source).await.map_err(datafusion_error) });
        let files: Vec<_> = futures::stream::iter(files).buffered(OPENED_AT_ONCE).try_collect().await?;
        Self::try_new(files)
    }

    /// Sets how the files are read, regardless of the session. The types of the columns follow only the
    /// [`string_type`](VortexOptions::string_type) of these options, since they are determined before there
    /// is a session. Options of opening (`footer_read_size`, `hedge`, `segment_cache`) have no effect.
    #[must_use]
    pub fn with_options(mut self, options: VortexOptions) -> Self {
        self.schema = Arc::new(schema::with_strings(&self.stored, options.string_type));
        self.described = OnceLock::new();
        self.options = Some(options);
        self
    }

    fn described(&self) -> Result<&(Vec<PartitionedFile>, Statistics)> {
        if let Some(described) = self.described.get() {
            return Ok(described);
        }
        let files: FileGroup = self.files.iter().map(|file| described(file, &self.schema)).collect();
        let (groups, statistics) =
            compute_all_files_statistics(vec![files], Arc::clone(&self.schema), true, false)?;
        let files = groups.into_iter().flat_map(FileGroup::into_inner).collect();
        Ok(self.described.get_or_init(|| (files, statistics)))
    }
}

/// A file with its statistics.
fn described(file: &VortexFile, schema: &SchemaRef) -> PartitionedFile {
    let footer = file.footer();
    PartitionedFile::new(file.source().name(), footer.file_size())
        .with_statistics(Arc::new(statistics(footer, schema)))
        .with_extension(file.clone())
}

/// A store that exists, as scans require although they read nothing from it: that of local files or, in a
/// session without one, an empty store.
fn any_store(runtime: &RuntimeEnv) -> Result<ObjectStoreUrl> {
    let local = ObjectStoreUrl::local_filesystem();
    if runtime.object_store(&local).is_ok() {
        return Ok(local);
    }
    let empty = ObjectStoreUrl::parse("vortex-open-files://")?;
    if runtime.object_store(&empty).is_err() {
        runtime.register_object_store(empty.as_ref(), Arc::new(InMemory::new()));
    }
    Ok(empty)
}

#[async_trait]
impl TableProvider for VortexTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // The physical optimizer moves them into the scan, which determines what it can do with them.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = match &self.options {
            Some(options) => options.clone(),
            None => VortexOptions::from_session(state.config_options()),
        };
        let (files, statistics) = self.described()?;
        let with_order = |(file, open): (&PartitionedFile, &VortexFile)| {
            let order = orders::of_file(open.footer(), &self.schema, options.order_from_statistics);
            file.clone().with_ordering(order)
        };
        let files: Vec<PartitionedFile> = files.iter().zip(&self.files).map(with_order).collect();
        let ordering = orders::of_table(&files);
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        // Like `plan_scan`, which would sum up the statistics for each scan.
        let scan = scan_of(any_store(state.runtime_env())?, &self.schema)
            .with_file_groups(groups)
            .with_statistics(statistics.clone())
            .with_output_ordering(ordering.into_iter().collect());
        VortexFormat::new().with_options(options).plan_rows(state, scan, projection.cloned(), limit)
    }
}
