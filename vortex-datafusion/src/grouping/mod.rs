//! Partial aggregations that find the groups of rows by codes, instead of hashing and comparing keys.
//!
//! ```text
//! AggregateExec: mode=FinalPartitioned, gby=[country]   AggregateExec: mode=FinalPartitioned, gby=[country]
//!   RepartitionExec: Hash([country])              ->      RepartitionExec: Hash([country])
//!     AggregateExec: mode=Partial, gby=[country]            CodedAggregateExec: gby=[CAST(country AS Utf8View)]
//!       DataSourceExec: projection=[country]                  DataSourceExec: projection=[CAST(country AS Dictionary)]
//! ```
//!
//! Text that files store as dictionaries is read as dictionaries, and their indices are the codes; of integers that are
//! close to each other, codes are distances to the least one. A table maps the combined codes of a row (`codes.rs`) to
//! its group (`groups.rs`). Everything else is DataFusion's: its groups see each code once per dictionary, and its
//! functions compute the states, in the order of rows. So the states are the same to the last bit, and any function for
//! groups is supported. Rows with too many codes are grouped by DataFusion. If memory runs out, or groups are too many,
//! states are returned early.
//!
//! States are not computed on encoded data: that takes more code, and saves less than finding groups.

mod codes;
mod groups;
mod stream;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, Statistics, internal_datafusion_err, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::CastExpr;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::execution_plan::CardinalityEffect;
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties,
    replace_children_if_necessary,
};

pub(crate) use self::codes::coded;
pub(crate) use self::codes::{MAX_CODES, has_distances};
use self::stream::Aggregating;
use crate::convert::values_of;

/// A partial aggregation that finds groups by codes.
#[derive(Debug)]
pub(crate) struct CodedAggregateExec {
    /// The same as DataFusion computes it.
    partial: Arc<AggregateExec>,
    metrics: ExecutionPlanMetricsSet,
}

impl CodedAggregateExec {
    /// Computes what `partial` does.
    ///
    /// # Errors
    /// If it is another aggregation than one of [those](Self::accepts).
    pub(crate) fn try_new(partial: AggregateExec) -> Result<Self> {
        if !Self::accepts(&partial) {
            return internal_err!("groups of this aggregation are not found by codes");
        }
        Ok(Self { partial: Arc::new(partial), metrics: ExecutionPlanMetricsSet::new() })
    }

    /// Whether this is a partial aggregation of rows in groups that come in any order, with functions for groups.
    pub(crate) fn accepts(partial: &AggregateExec) -> bool {
        let keys = partial.group_expr();
        *partial.mode() == AggregateMode::Partial
            && keys.is_single()
            && !keys.is_empty()
            && partial.limit_options().is_none()
            && *partial.input_order_mode() == InputOrderMode::Linear
            && partial
                .aggr_expr()
                .iter()
                .all(|function| function.groups_accumulator_supported() && function.order_bys().is_empty())
    }

    /// The same as DataFusion computes it.
    #[cfg(feature = "proto")]
    pub(crate) fn partial(&self) -> &AggregateExec {
        &self.partial
    }

    /// The same over another input, as DataFusion computes it.
    ///
    /// # Errors
    /// If the input has other columns.
    pub(crate) fn partial_over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let partial: Arc<dyn ExecutionPlan> = Arc::<AggregateExec>::clone(&self.partial);
        replace_children_if_necessary(partial, vec![input])
    }
}

/// What is read to find the code of a key: the dictionary, if the key is the text of one.
fn source_of<'a>(key: &'a Arc<dyn PhysicalExpr>, input: &Schema) -> &'a Arc<dyn PhysicalExpr> {
    let Some(cast) = key.downcast_ref::<CastExpr>() else { return key };
    match cast.expr().data_type(input) {
        Ok(from) if from == coded(values_of(cast.cast_type())) => cast.expr(),
        _ => key,
    }
}

impl DisplayAs for CodedAggregateExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(t, DisplayFormatType::Default | DisplayFormatType::Verbose) {
            write!(f, "Coded")?;
        }
        self.partial.fmt_as(t, f)
    }
}

impl ExecutionPlan for CodedAggregateExec {
    fn name(&self) -> &'static str {
        "CodedAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.partial.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.partial.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.partial.maintains_input_order()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.partial.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = <[_; 1]>::try_from(children)
            .map_err(|children| internal_datafusion_err!("{} inputs of an aggregation", children.len()))?;
        let partial = self.partial_over(input)?;
        match partial.downcast_ref::<AggregateExec>() {
            Some(partial) if Self::accepts(partial) => Ok(Arc::new(Self::try_new(partial.clone())?)),
            _ => Ok(partial),
        }
    }

    fn execute(&self, partition: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let partial = &self.partial;
        let input = partial.input().execute(partition, Arc::clone(&task))?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let states = Aggregating::try_new(partial, metrics, partition, &task)?.run(input);
        Ok(Box::pin(RecordBatchStreamAdapter::new(partial.schema(), states)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.partial.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        input: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.partial.statistics_from_inputs(input, args)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.partial.cardinality_effect()
    }
}
