//! Rows in memory that state what they are told to, and apply the dynamic filters that they are offered.

use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan};
use futures::StreamExt as _;

/// A table of one batch.
#[derive(Debug)]
pub(super) struct Table {
    rows: RecordBatch,
    statistics: Statistics,
}

impl Table {
    /// A table of which nothing is known.
    pub(super) fn new(rows: RecordBatch) -> Self {
        let statistics = Statistics::new_unknown(&rows.schema());
        Self { rows, statistics }
    }

    /// The table with these statistics.
    pub(super) fn with_statistics(self, statistics: Statistics) -> Self {
        Self { statistics, ..self }
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = [vec![self.rows.clone()]];
        let rows = MemorySourceConfig::try_new(&partitions, self.schema(), projection.cloned())?;
        let statistics = Arc::new(self.statistics.clone().project(projection));
        Ok(DataSourceExec::from_data_source(Source { rows, statistics, filters: Vec::new() }))
    }
}

/// A scan of a table.
#[derive(Debug, Clone)]
struct Source {
    rows: MemorySourceConfig,
    statistics: Arc<Statistics>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
}

impl DataSource for Source {
    fn open(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.rows.open(partition, context)?;
        let (schema, filters) = (rows.schema(), self.filters.clone());
        let kept = rows.map(move |batch| {
            filters.iter().try_fold(batch?, |batch, filter| {
                let passes = filter.evaluate(&batch)?.into_array(batch.num_rows())?;
                Ok(filter_record_batch(&batch, passes.as_boolean())?)
            })
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, kept)))
    }

    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.rows.fmt_as(format, f)
    }

    fn output_partitioning(&self) -> Partitioning {
        self.rows.output_partitioning()
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        self.rows.eq_properties()
    }

    fn partition_statistics(&self, _partition: Option<usize>) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&self.statistics))
    }

    fn with_fetch(&self, _limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        None
    }

    fn fetch(&self) -> Option<usize> {
        None
    }

    fn try_swapping_with_projection(
        &self,
        _projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        Ok(None)
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn DataSource>>> {
        let answers = vec![PushedDown::No; filters.len()];
        let mut scan = self.clone();
        scan.filters.extend(filters);
        let scan = Arc::new(scan) as Arc<dyn DataSource>;
        Ok(FilterPushdownPropagation::with_parent_pushdown_result(answers).with_updated_node(scan))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.filters.iter().try_fold(TreeNodeRecursion::Continue, |_, filter| f(filter))
    }
}
