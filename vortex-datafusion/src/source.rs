//! Plan-time state of a scan. Each hook of the optimizer delegates to a sibling module.

use std::fmt;
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_datasource::TableSchema;
use datafusion_datasource::file::FileSource;
use datafusion_datasource::file_scan_config::FileScanConfig;
use datafusion_datasource::file_stream::FileOpener;
use datafusion_execution::cache::cache_manager::FileMetadataCache;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr_adapter::DefaultPhysicalExprAdapterFactory;
use datafusion_physical_expr_common::physical_expr::fmt_sql;
use datafusion_physical_plan::DisplayFormatType;
use datafusion_physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion_physical_plan::metrics::ExecutionPlanMetricsSet;
use object_store::ObjectStore;

use crate::cache::{FooterCache, OpenFiles};
use crate::metrics::ScanCounters;
use crate::opener::{OpenerState, VortexOpener, wants_row_numbers};
use crate::options::VortexOptions;
use crate::pushdown::Filters;

/// Batches hold this many rows unless the session says otherwise.
const DEFAULT_BATCH_SIZE: usize = 8192;

/// Reads Vortex files for a `DataSourceExec`. Cheap to clone; the optimizer does so freely.
#[derive(Debug, Clone)]
pub struct VortexSource {
    table: TableSchema,
    projection: ProjectionExprs,
    filters: Filters,
    options: VortexOptions,
    footers: FooterCache,
    files: Arc<OpenFiles>,
    batch_size: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl VortexSource {
    /// A source that reads all columns of a table.
    pub fn new(table: impl Into<TableSchema>) -> Self {
        let table = table.into();
        let all: Vec<usize> = (0..table.table_schema().fields().len()).collect();
        Self {
            projection: ProjectionExprs::from_indices(&all, table.table_schema()),
            table,
            filters: Filters::default(),
            options: VortexOptions::default(),
            footers: FooterCache::default(),
            files: Arc::default(),
            batch_size: DEFAULT_BATCH_SIZE,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// How files are read.
    #[must_use]
    pub fn with_options(mut self, options: VortexOptions) -> Self {
        self.options = options;
        self
    }

    /// Where footers are kept between queries.
    #[must_use]
    pub fn with_footer_cache(mut self, footers: Arc<FileMetadataCache>) -> Self {
        self.footers = FooterCache::new(footers);
        self
    }

    /// Filters that the scan has taken over, or may use.
    #[cfg(feature = "proto")]
    pub(crate) fn filters(&self) -> &Filters {
        &self.filters
    }

    /// A source with these filters instead of those it has.
    #[cfg(feature = "proto")]
    pub(crate) fn with_filters(mut self, filters: Filters) -> Self {
        self.filters = filters;
        self
    }

    /// How files are read.
    pub fn options(&self) -> &VortexOptions {
        &self.options
    }

    /// Whether the scan should compute this projection; columns and constants always.
    fn accepts(&self, projection: &ProjectionExprs) -> bool {
        // Nobody else knows the number of a row.
        self.options.projection_pushdown
            || wants_row_numbers(projection)
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
        let adapters = match &config.expr_adapter_factory {
            Some(factory) => Arc::clone(factory),
            None => Arc::new(DefaultPhysicalExprAdapterFactory),
        };
        Ok(Arc::new(VortexOpener(Arc::new(OpenerState {
            table: self.table.clone(),
            output: Arc::new(self.projection.project_schema(self.table.table_schema())?),
            projection: self.projection.clone(),
            filters: self.filters.clone(),
            options: self.options.clone(),
            adapters,
            store,
            footers: self.footers.clone(),
            files: Arc::clone(&self.files),
            batch_size: self.batch_size,
            limit: config.limit,
            metrics: ScanCounters::new(&self.metrics, partition),
        }))))
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(Self { batch_size: batch_size.max(1), ..self.clone() })
    }

    /// What rows that come out satisfy. Filters used for skipping only are not among it.
    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.filters.accepted_conjunction()
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
                if let Some(filter) = self.filter() {
                    write!(f, ", predicate={filter}")?;
                }
                for (at, filter) in self.filters.pruning().iter().enumerate() {
                    let before = if at == 0 { ", pruning_predicate=" } else { " AND " };
                    write!(f, "{before}{filter}")?;
                }
                if self.filters.is_dynamic() {
                    f.write_str(", dynamic_pruning=eligible")?;
                }
                Ok(())
            }
            DisplayFormatType::TreeRender => match self.filter() {
                Some(filter) => writeln!(f, "predicate={}", fmt_sql(filter.as_ref())),
                None => Ok(()),
            },
        }
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let mut source = self.clone();
        let answers = filters
            .into_iter()
            .map(|filter| source.filters.offer(filter, &self.table, &self.options))
            .collect();
        Ok(FilterPushdownPropagation::with_parent_pushdown_result(answers)
            .with_updated_node(Arc::new(source)))
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        if !self.accepts(projection) {
            return Ok(None);
        }
        let projection = self.projection.try_merge(projection)?;
        Ok(Some(Arc::new(Self { projection, ..self.clone() })))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let outputs = self.projection.iter().map(|output| &output.expr);
        datafusion_physical_plan::apply_expression_roots(self.filters.all().chain(outputs), f)
    }
}
