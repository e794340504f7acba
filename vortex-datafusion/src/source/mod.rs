//! The state of a scan during planning.

mod file_source;

use std::sync::Arc;

use datafusion_datasource::file::FileSource as _;
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::file_scan_config::FileScanConfig;
use datafusion_datasource::{PartitionedFile, TableSchema};
use datafusion_execution::config::SessionConfig;
use datafusion_execution::memory_pool::MemoryPool;
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_session::Session;
use vortex_core::VortexFile;

use crate::aggregation::Aggregation;
use crate::convert::needs_scan;
use crate::opener::{Ahead, OpenFiles, SharedAhead};
use crate::optimizer::has_rules;
use crate::options::VortexOptions;
use crate::pushdown::{BestFirst, Filters};
use crate::reading::SessionResources;

/// Default number of rows per batch, unless the session specifies another.
const DEFAULT_BATCH_SIZE: usize = 8192;

/// What a plan wants of a scan that reads the best rows first.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BestWanted {
    /// This many of the best rows, if known.
    First(Option<usize>),
    /// Rows in their own order.
    InOrder,
}

impl Default for BestWanted {
    fn default() -> Self {
        Self::First(None)
    }
}

/// Reads Vortex files for a `DataSourceExec`. Cheap to clone, since the optimizer clones it often.
///
/// A table provider that plans its own scans passes its files to [`plan_scan`](crate::VortexFormat::plan_scan). For
/// what that has no parameter for, such as an adapter of expressions, it builds a `FileScanConfig` on a plain source
/// and passes it to `create_physical_plan` of a [`VortexFormat`](crate::VortexFormat) rather than to `DataSourceExec`.
/// That sets the session, and the options unless [`with_options`](Self::with_options) has, states sums, minima and
/// maxima as estimates, since DataFusion 55 derives wrong answers from exact ones above joins and casts, and restricts
/// declared orders to what holds. If the scan has an adapter of expressions, which may compute columns from others, its
/// orders, and all statistics except row counts, are taken for those of files and not used.
///
/// What a provider attaches to a `PartitionedFile` (`with_extension`) changes how the file is read:
///
/// - a [`RowSelection`](crate::RowSelection) says which of its rows,
/// - an open [`VortexFile`](vortex_core::VortexFile) takes the place of the object in the store, which need not exist:
///   bytes that the provider has in memory or decrypts, or a file that it has opened to plan the scan. Such a plan
///   cannot be serialized.
///
/// ```
/// # use std::sync::Arc;
/// # use datafusion::datasource::listing::PartitionedFile;
/// # use datafusion::datasource::physical_plan::FileGroup;
/// # use datafusion::execution::object_store::ObjectStoreUrl;
/// # use datafusion::physical_plan::collect;
/// # use datafusion::prelude::SessionContext;
/// # use vortex_datafusion::{RowSelection, VortexFormat};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use vortex_datafusion::vortex_core::{VortexFile, io::MemoryFile};
///
/// # let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex"))?;
/// let open = VortexFile::open(Arc::new(MemoryFile::new(bytes))).await?;
/// let (schema, size) = (open.schema()?, open.footer().file_size());
/// let file = PartitionedFile::new("lineitem in memory", size)
///     .with_extension(open)
///     .with_extension(RowSelection::only([0, 17])?);
///
/// let context = SessionContext::new();
/// vortex_datafusion::register(&context)?;
/// let (store, groups) = (ObjectStoreUrl::local_filesystem(), vec![FileGroup::new(vec![file])]);
/// let scan = VortexFormat::new().plan_scan(&context.state(), store, &schema, groups, None, None)?;
/// let rows = collect(scan, context.task_ctx()).await?;
/// # assert_eq!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
/// # Ok(())
/// # }
/// ```
///
/// Files need a time of modification, an e-tag or a version, such as `PartitionedFile::new_from_meta` takes from a
/// listing. Otherwise, changes would go unnoticed, so that neither footers nor bytes of these files are kept for later
/// scans.
#[derive(Debug, Clone)]
pub struct VortexSource {
    pub(crate) table: TableSchema,
    projection: ProjectionExprs,
    /// The aggregation whose states the projection consists of.
    aggregation: Option<Aggregation>,
    pub(crate) filters: Filters,
    /// Whether an optimizer rule makes scans ignore wrong dynamic filters, see `optimizer/tell_scans.rs`.
    trusts_dynamic: bool,
    /// Whether the plan may know which filter the rows satisfy, see `optimizer/withhold_orders.rs`.
    tells_filter: bool,
    pub(crate) best_first: Option<BestFirst>,
    /// The options that the caller has set, which nothing else changes.
    own_options: Option<VortexOptions>,
    /// Those of the format and the session.
    session_options: VortexOptions,
    /// Whether rows keep their order, if the configuration of the scan says so for another reason.
    preserve_order: Option<bool>,
    session: SessionResources,
    /// The pool that is charged for the memory of scans.
    memory: Option<Arc<dyn MemoryPool>>,
    files: Arc<OpenFiles>,
    /// Whether partitions may take over files of each other.
    shares_files: bool,
    ahead: Arc<SharedAhead>,
    batch_size: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl VortexSource {
    /// A source that reads all columns of a table.
    pub fn new(table: impl Into<TableSchema>) -> Self {
        let table = table.into();
        Self {
            projection: all_columns(&table),
            table,
            aggregation: None,
            filters: Filters::default(),
            trusts_dynamic: false,
            tells_filter: true,
            best_first: None,
            own_options: None,
            session_options: VortexOptions::default(),
            preserve_order: None,
            session: SessionResources::default(),
            memory: None,
            files: Arc::default(),
            shares_files: true,
            ahead: Arc::default(),
            batch_size: DEFAULT_BATCH_SIZE,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Sets how files are read, whatever the format and the session say.
    #[must_use]
    pub fn with_options(mut self, options: VortexOptions) -> Self {
        self.own_options = Some(options);
        self
    }

    /// The same source for a scan of its own, which shares no files or metrics with others.
    pub(crate) fn for_scan(&self) -> Self {
        Self { files: Arc::default(), metrics: ExecutionPlanMetricsSet::new(), ..self.changed() }
    }

    /// Sets how files are read, unless [`with_options`](Self::with_options) has.
    pub(crate) fn or_options(mut self, options: VortexOptions) -> Self {
        self.session_options = options;
        self
    }

    /// Uses the caches and the memory pool of a session. Dynamic filters are used only if the session is
    /// [registered](crate::register): DataFusion 55 also offers some that drop rows which the query needs.
    #[must_use]
    pub fn with_session(mut self, session: &dyn Session) -> Self {
        self.trusts_dynamic = has_rules(session);
        self.with_runtime(session.runtime_env(), session.config())
    }

    pub(crate) fn with_runtime(mut self, runtime: &RuntimeEnv, config: &SessionConfig) -> Self {
        self.session = SessionResources::new(runtime, config);
        self.shares_files = config.options().execution.enable_file_stream_work_stealing;
        self.memory = Some(Arc::clone(&runtime.memory_pool));
        self
    }

    /// A source that ignores the dynamic filters with these ids, and knows how many of the best rows are
    /// wanted, or that they are not wanted first; `None` if that changes nothing.
    pub(crate) fn with_hints(&self, distrusted: &[u64], best_rows: BestWanted) -> Option<Self> {
        let mut told = self.changed();
        told.filters.ignore(distrusted);
        told.best_first = match best_rows {
            BestWanted::InOrder => None,
            BestWanted::First(rows) => told.best_first.map(|best_first| BestFirst { rows, ..best_first }),
        };
        let is_same =
            told.best_first == self.best_first && told.filters.hints().len() == self.filters.hints().len();
        (!is_same).then_some(told)
    }

    /// A source that returns the states of an aggregation instead of rows. It uses only filters that are not checked
    /// above it.
    pub(crate) fn aggregated(&self, aggregation: Aggregation) -> Self {
        Self {
            projection: aggregation.outputs(),
            aggregation: Some(aggregation),
            filters: self.filters.without_hints(),
            best_first: None,
            ..self.changed()
        }
    }

    /// The columns that it returns; `None` if these are states of an aggregation.
    pub(crate) fn projection_of_rows(&self) -> Option<&ProjectionExprs> {
        self.aggregation.is_none().then_some(&self.projection)
    }

    /// A source that computes other columns of the same rows.
    pub(crate) fn projecting(&self, projection: ProjectionExprs) -> Self {
        Self { projection, ..self.changed() }
    }

    /// The number of rows of a file, and of values in the dictionaries that a column refers to, if it does, given its
    /// position among those of files; `None` if it takes parsing to know.
    pub(crate) fn dictionary_values(
        &self,
        file: &PartitionedFile,
        column: usize,
    ) -> Option<(u64, Option<u64>)> {
        let footer = match file.extension::<VortexFile>() {
            Some(open) => Arc::clone(open.footer()),
            None => self.session.hint(&file.object_meta)?,
        };
        let name = self.table.file_schema().field(column).name();
        let at = footer.dtype().as_columns()?.position(name)?;
        Some((footer.row_count(), footer.column_layout(at).ok()?.dictionary_values()))
    }

    /// The aggregation that it computes, if any, and the source without it, which reads all columns.
    #[cfg(feature = "proto")]
    pub(crate) fn without_aggregation(&self) -> Option<(&Aggregation, Self)> {
        let aggregation = self.aggregation.as_ref()?;
        let rows = Self { projection: all_columns(&self.table), aggregation: None, ..self.changed() };
        Some((aggregation, rows))
    }

    /// A copy that may read other rows or columns, so that it shares no streams of opened files.
    fn changed(&self) -> Self {
        Self { ahead: Arc::default(), ..self.clone() }
    }

    /// The same source, but the plan is not told which filter its rows satisfy.
    pub(crate) fn without_telling_filter(&self) -> Self {
        Self { tells_filter: false, ..self.clone() }
    }

    /// Whether the plan is told which filter the rows satisfy.
    pub(crate) fn tells_filter(&self) -> bool {
        self.tells_filter
    }

    /// Sets whether rows keep their order, whatever the configuration of the scan says.
    #[cfg(feature = "proto")]
    pub(crate) fn preserving_order(mut self, preserve: bool) -> Self {
        self.preserve_order = Some(preserve);
        self
    }

    /// Whether the rows of a scan keep their order.
    pub(crate) fn is_ordered(&self, config: &FileScanConfig) -> bool {
        self.preserve_order.unwrap_or(config.preserve_order)
    }

    /// How files are read.
    pub fn options(&self) -> &VortexOptions {
        self.own_options.as_ref().unwrap_or(&self.session_options)
    }

    /// The files that a partition may open, in their order. DataFusion 55 decides in the same way whether these
    /// are the files of all partitions. If `few` rows are wanted, the first file of each may be enough.
    fn ahead(&self, config: &FileScanConfig, partition: usize, few: bool) -> Arc<Ahead> {
        let is_shared = self.shares_files && !config.preserve_order && config.output_partitioning.is_none();
        if !is_shared {
            let own = config.file_groups.get(partition).map(FileGroup::files).unwrap_or_default();
            return Arc::new(Ahead::new(own.to_vec(), few.then_some(1)));
        }
        let files = config.file_groups.iter().flat_map(FileGroup::iter).cloned();
        let patience = few.then_some(config.file_groups.len());
        self.ahead.get(|| Ahead::new(self.reorder_files(files.collect()), patience))
    }

    /// The order whose best rows are read first. Without a threshold that tightens, that has no benefit.
    fn best_first(&self) -> Option<&BestFirst> {
        self.best_first.as_ref().filter(|_| self.filters.is_dynamic())
    }

    /// Whether the scan should compute this projection; it always computes columns and constants.
    fn accepts(&self, projection: &ProjectionExprs) -> bool {
        self.options().projection_pushdown
            || projection.iter().any(|output| needs_scan(&output.expr))
            || projection.iter().all(|output| output.expr.is::<Column>() || output.expr.is::<Literal>())
    }
}

/// The projection of all columns of a table.
fn all_columns(table: &TableSchema) -> ProjectionExprs {
    let all: Vec<usize> = (0..table.table_schema().fields().len()).collect();
    ProjectionExprs::from_indices(&all, table.table_schema())
}
