//! Rows whose order rules must not rely on.
//!
//! **Rows below some sorts**, until sorts are chosen. Whether they are in the order of the sort is known only when
//! `EnsureRequirements` has added the sorts that windows and merge joins need. If they are then, it leaves out the sort
//! above, whose limit gets below them. An operator in between, which is there for a few rules only, keeps the sort
//! where it is.
//!
//! ```text
//! SortExec: TopK(fetch=2), [a]                         SortExec: TopK(fetch=2), [a]
//!   WindowAggExec: [sum(v) PARTITION BY a]      ->       UnorderedExec
//!                                                          WindowAggExec: [sum(v) PARTITION BY a]
//! ```
//!
//! It also keeps `TopKAggregation` from leaving out groups below windows. See `tests/it/upstream/windows.rs`.
//!
//! **Build sides of hash joins**, for good (`withhold_orders.rs`): also a sort above the join relies on the order that
//! its input claims when it runs.

use std::fmt;
use std::sync::Arc;

use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion};
use datafusion_common::{Result, Statistics, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion_physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, PlanProperties,
};

/// Rows of an operator, in no order as far as rules are told.
#[derive(Debug)]
pub(crate) struct UnorderedExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    /// Whether it has to stay when sorts have been chosen.
    stays: bool,
}

impl UnorderedExec {
    fn new(input: Arc<dyn ExecutionPlan>, stays: bool) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, properties: Arc::new(properties), stays }
    }
}

/// The rows of `input`, whose order is not told while sorts are chosen.
pub(super) fn unordered(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(UnorderedExec::new(input, false))
}

/// The rows of `input`, whose order is not told.
pub(crate) fn never_ordered(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(UnorderedExec::new(input, true))
}

/// The plan without the operators that hide an order for a while.
pub(super) fn without_temporary(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        Ok(match node.downcast_ref::<UnorderedExec>() {
            Some(unordered) if !unordered.stays => Transformed::yes(Arc::clone(&unordered.input)),
            _ => Transformed::no(node),
        })
    })
    .data()
}

impl DisplayAs for UnorderedExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => f.write_str("UnorderedExec"),
            // Trees have the names of operators.
            DisplayFormatType::TreeRender => Ok(()),
        }
    }
}

impl ExecutionPlan for UnorderedExec {
    fn name(&self) -> &str {
        "UnorderedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input, self.stays))),
            Err(children) => internal_err!("{} inputs of rows in no order", children.len()),
        }
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(filters, &self.children())
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
