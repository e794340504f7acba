//! The state of a scan during planning. Each hook of the optimizer delegates to a sibling module.

use std::fmt;
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_datasource::file::FileSource;
use datafusion_datasource::file_groups::{FileGroup, FileGroupPartitioner};
use datafusion_datasource::file_scan_config::FileScanConfig;
use datafusion_datasource::file_stream::FileOpener;
use datafusion_datasource::{PartitionedFile, TableSchema};
use datafusion_execution::config::SessionConfig;
use datafusion_execution::memory_pool::MemoryPool;
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_physical_expr::expressions::{Column, Literal, lit};
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr, conjunction,
};
use datafusion_physical_expr_common::physical_expr::fmt_sql;
use datafusion_physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion_physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_session::Session;
use object_store::ObjectStore;
use tokio::runtime::Handle;
use vortex_core::VortexFile;
use vortex_core::io::StorageProfile;
use vortex_core::scan::BestRows;

use crate::aggregation::Aggregation;
use crate::convert::{is_dynamic, needs_scan};
use crate::memory::ScanMemory;
use crate::metrics::ScanCounters;
use crate::opener::{Ahead, FilePruning, OpenFiles, OpenerState, SharedAhead, Translations, VortexOpener};
use crate::optimizer::has_rules;
use crate::options::VortexOptions;
use crate::pushdown::{BestFirst, Filters, Sorted, sorted};
use crate::reading::{Reading, SessionResources};

/// Default number of rows per batch, unless the session specifies another.
const DEFAULT_BATCH_SIZE: usize = 8192;

/// The rows that a split may have.
const ROWS_OF_SPLIT: usize = 64 << 10;

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
    /// are the files of all partitions.
    fn ahead(&self, config: &FileScanConfig, partition: usize) -> Arc<Ahead> {
        let is_shared = self.shares_files && !config.preserve_order && config.output_partitioning.is_none();
        if !is_shared {
            let own = config.file_groups.get(partition).map(FileGroup::files).unwrap_or_default();
            return Arc::new(Ahead::new(own.to_vec()));
        }
        let files = config.file_groups.iter().flat_map(FileGroup::iter).cloned();
        self.ahead.get(|| self.reorder_files(files.collect()))
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

impl FileSource for VortexSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        // A limit takes the first rows that pass the accepted filters. Whatever is above it applies to these
        // rows only, although DataFusion offers it to the scan. See `tests/it/upstream/filters.rs`:
        // `filters_cross_limits_of_scans`.
        let (filters, best_first) = match config.limit {
            Some(_) => (self.filters.without_hints(), None),
            None => (self.filters.clone(), self.best_first().cloned()),
        };
        // A query that needs few rows may need none of the next file.
        let few = best_first.is_some() || config.limit.is_some();
        let ahead =
            (StorageProfile::of(store.as_ref()).remote && !few).then(|| self.ahead(config, partition));
        let outputs = match &self.aggregation {
            Some(aggregation) => aggregation.arguments(),
            None => self.projection.clone(),
        };
        // What was found in files that are read ahead may go to another execution of the plan.
        let functions = self.aggregation.as_ref().filter(|_| ahead.is_none());
        let functions = functions.map_or(&[][..], Aggregation::functions);
        let extremes = functions.iter().map(|_| Arc::default()).collect();
        let adapters = config.expr_adapter_factory.clone();
        let state = Arc::new(OpenerState {
            table: self.table.clone(),
            pruning: FilePruning::new(&filters, &self.table, self.options().prune),
            translations: Translations::new(&filters, &self.table, adapters.as_ref()),
            output_schema: Arc::new(outputs.project_schema(self.table.table_schema())?),
            outputs,
            aggregation: self.aggregation.clone(),
            extremes,
            adapters,
            store,
            limit: config.limit,
            // Parallel partitions have no order among them that a plan could rely on.
            ordered: self.is_ordered(config)
                || !config.output_ordering.is_empty()
                || config.file_groups.len() == 1,
            late: Handle::try_current()
                .is_ok_and(|runtime| config.file_groups.len() >= runtime.metrics().num_workers()),
            best_rows: Arc::new(
                best_first.as_ref().and_then(|best| best.rows).map_or_else(BestRows::default, BestRows::new),
            ),
            filters,
            best_first,
            reading: Reading::new(self.session.clone(), self.options().clone()),
            files: Arc::clone(&self.files),
            batch_size: self.batch_size,
            memory: self.memory.as_ref().map(|pool| Arc::new(ScanMemory::new(pool, partition))),
            metrics: ScanCounters::new(&self.metrics, partition),
        });
        Ok(Arc::new(VortexOpener { state, ahead }))
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(Self { batch_size: batch_size.max(1), ..self.clone() })
    }

    /// The filter that returned rows satisfy, from which DataFusion derives which columns are constant or equal, and
    /// that not all rows may be returned. It does not include filters that are only used for skipping.
    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        let filter = self.filters.accepted_conjunction()?;
        Some(if self.tells_filter { filter } else { lit(true) })
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection)
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        "vortex"
    }

    fn fmt_extra(&self, kind: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                if let Some(filter) = self.filters.accepted_conjunction() {
                    write!(f, ", predicate={filter}")?;
                }
                if !self.filters.hints().is_empty() {
                    write!(f, ", pruning_predicate={}", conjunction(self.filters.hints().iter().cloned()))?;
                }
                if self.filters.is_dynamic() {
                    f.write_str(", dynamic_pruning=eligible")?;
                }
                if let Some(order) = self.best_first() {
                    write!(f, ", best_first=[{order}]")?;
                    if let Some(rows) = order.rows {
                        write!(f, ", best_rows={rows}")?;
                    }
                }
                Ok(())
            }
            DisplayFormatType::TreeRender => match self.filters.accepted_conjunction() {
                Some(filter) => writeln!(f, "predicate={}", fmt_sql(filter.as_ref())),
                None => Ok(()),
            },
        }
    }

    /// If one split is enough for the limit, the file is not divided: other partitions would read their parts for
    /// nothing. Rows that pass a filter are looked for in several places at once.
    fn repartitioned(
        &self,
        target_partitions: usize,
        repartition_file_min_size: usize,
        output_ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        let is_reached = config.limit.is_some_and(|limit| limit <= ROWS_OF_SPLIT);
        if is_reached && self.filters.accepted().is_empty() {
            return Ok(None);
        }
        let partitioned = FileGroupPartitioner::new()
            .with_target_partitions(target_partitions)
            .with_repartition_file_min_size(repartition_file_min_size)
            .with_preserve_order_within_groups(output_ordering.is_some())
            .repartition_file_groups(&config.file_groups);
        Ok(partitioned.map(|file_groups| {
            let mut config = config.clone();
            config.file_groups = file_groups;
            config
        }))
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let mut source = self.changed();
        let answers = filters
            .into_iter()
            .map(|filter| {
                if self.trusts_dynamic || !is_dynamic(&filter) {
                    source.filters.offer(filter, &self.table, self.options())
                } else {
                    // Those that produce it are right without it.
                    PushedDown::Yes
                }
            })
            .collect();
        Ok(FilterPushdownPropagation::with_parent_pushdown_result(answers)
            .with_updated_node(Arc::new(source)))
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        known: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        Ok(match sorted(order, known, &self.projection, &self.table)? {
            // DataFusion would sort files by bounds of other columns, although they are in order. See
            // `tests/it/upstream/orders.rs`: `files_in_order_are_sorted_by_other_columns_if_one_is_computed`.
            Sorted::Exactly if !self.projection.iter().all(|output| output.expr.is::<Column>()) => {
                SortOrderPushdownResult::Unsupported
            }
            Sorted::Exactly => SortOrderPushdownResult::Exact { inner: Arc::new(self.clone()) },
            // Nothing would rule out the other rows, and a limit in between may want rows in their own order.
            Sorted::BestFirst(_) if !self.trusts_dynamic => SortOrderPushdownResult::Unsupported,
            Sorted::BestFirst(best_first) => {
                let inner = Arc::new(Self { best_first: Some(best_first), ..self.changed() });
                SortOrderPushdownResult::Inexact { inner }
            }
            Sorted::No => SortOrderPushdownResult::Unsupported,
        })
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        match self.best_first() {
            Some(best_first) => best_first.files(files),
            None => files,
        }
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        if self.aggregation.is_some() || !self.accepts(projection) {
            return Ok(None);
        }
        let projection = self.projection.try_merge(projection)?;
        Ok(Some(Arc::new(Self { projection, ..self.changed() })))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let outputs = self.projection.iter().map(|output| &output.expr);
        datafusion_physical_plan::apply_expression_roots(self.filters.all().chain(outputs), f)
    }
}

/// The projection of all columns of a table.
fn all_columns(table: &TableSchema) -> ProjectionExprs {
    let all: Vec<usize> = (0..table.table_schema().fields().len()).collect();
    ProjectionExprs::from_indices(&all, table.table_schema())
}
