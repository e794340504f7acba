//! The hooks of the optimizer into a scan. Each delegates to another module.

use std::fmt;
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_datasource::file::FileSource;
use datafusion_datasource::file_groups::FileGroupPartitioner;
use datafusion_datasource::file_scan_config::FileScanConfig;
use datafusion_datasource::file_stream::FileOpener;
use datafusion_datasource::{PartitionedFile, TableSchema};
use datafusion_physical_expr::expressions::{Column, lit};
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr, conjunction,
};
use datafusion_physical_expr_common::physical_expr::fmt_sql;
use datafusion_physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion_physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use object_store::ObjectStore;
use tokio::runtime::Handle;
use vortex_core::io::StorageProfile;

use super::VortexSource;
use crate::aggregation::Aggregation;
use crate::convert::is_dynamic;
use crate::memory::ScanMemory;
use crate::metrics::ScanCounters;
use crate::opener::{FilePruning, OpenerState, Translations, VortexOpener, best_rows};
use crate::pushdown::{Sorted, sorted};
use crate::reading::Reading;

/// The rows that a split may have.
const ROWS_OF_SPLIT: usize = 64 << 10;

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
        let few = best_first.is_some() || config.limit.is_some();
        let is_remote = StorageProfile::of(store.as_ref()).remote;
        let ahead = is_remote.then(|| self.ahead(config, partition, few));
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
            best_rows: best_rows(best_first.as_ref()),
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
