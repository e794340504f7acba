//! An optimizer rule that withholds orders of scans from plans that would take them too far.
//!
//! DataFusion 55 supposes that every cast between temporal types preserves the order. If rows are in the order
//! of timestamps, it therefore removes a sort by their times of day, and joins by merging what is not sorted:
//!
//! ```text
//! ts                   2026-01-01 07:00   2026-01-01 14:00   2026-01-02 04:00
//! CAST(ts AS TIME)     07:00              14:00              04:00
//! ```
//!
//! The same applies to `date_trunc` in zones that turn their clocks back just after midnight.
//!
//! If an operator contains such a cast, the orders that the scans below it declare end at the first temporal
//! column. Other scans keep theirs, since an order reaches only the operators above its scan, unless the cast is
//! equated with a column, by a filter or by the keys of a join: then the order of any timestamps that are equal to
//! those below is taken for that of the column. This rule runs before all others, which rely on what scans declare, and
//! pass filters on: it also holds back those that would reach other columns (`misdirected_filters.rs`).

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion_datasource::source::DataSourceExec;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, TryCastExpr};
use datafusion_physical_expr::utils::{collect_columns, split_conjunction};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::joins::utils::JoinFilter;
use datafusion_physical_plan::joins::{HashJoinExec, JoinOnRef, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion_physical_plan::{ExecutionPlan, replace_children_if_necessary};

use super::misdirected_filters::hold_back;
use crate::convert::cast_is_monotonic;
use crate::ordering::without_temporal_orders;
use crate::source::VortexSource;

/// Withholds orders of temporal columns from operators that cast such columns in ways that change the order.
#[derive(Debug, Default)]
pub(super) struct WithholdOrders;

impl WithholdOrders {
    pub(super) const NAME: &'static str = "vortex_withhold_orders";
}

impl PhysicalOptimizerRule for WithholdOrders {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_equated = plan.exists(|node| Ok(equates(node.as_ref()) && reorders(node)?))?;
        hold_back(withhold(plan, is_equated)?)
    }

    fn name(&self) -> &str {
        Self::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Withholds orders of the scans below `node` if it casts in such a way, or if that is known already.
fn withhold(node: Arc<dyn ExecutionPlan>, is_reordered: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let is_reordered = is_reordered || reorders(&node)?;
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        let scan = scan.downcast_to_file_source::<VortexSource>().filter(|_| is_reordered);
        return Ok(match scan.and_then(|(config, _)| without_temporal_orders(config)) {
            Some(config) => DataSourceExec::from_data_source(config) as Arc<_>,
            None => node,
        });
    }
    let children = node.children().into_iter().map(|child| withhold(Arc::clone(child), is_reordered));
    let children = children.collect::<Result<_>>()?;
    replace_children_if_necessary(node, children)
}

/// Whether expressions of the operator may equate columns of its input.
fn equates(node: &dyn ExecutionPlan) -> bool {
    node.is::<FilterExec>() || (node.children().len() > 1 && !node.is::<NestedLoopJoinExec>())
}

/// Whether the operator casts temporal values in a way that changes their order. Of the conjuncts of filters, and
/// of what joins compare, only those matter that equate columns: then the order of one is that of the other.
fn reorders(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        // DataFusion moves parts of its filter into projections of its inputs.
        let moved = |filter: &JoinFilter| has_reordering_cast(filter.expression(), Some(filter.schema()));
        return Ok(join.filter().is_some_and(moved));
    }
    let inputs: Vec<_> = node.children().into_iter().map(|child| child.schema()).collect();
    if let Some(keys) = join_keys(node.as_ref()) {
        let mut sides = keys.iter().flat_map(|(left, right)| [left, right]).zip(inputs.iter().cycle());
        return Ok(sides.any(|(key, input)| has_reordering_cast(key, Some(input))));
    }
    // An expression of an operator with several inputs may refer to all of them.
    let input = if let [input] = inputs.as_slice() { Some(input) } else { None };
    let is_filter = node.is::<FilterExec>();
    let matters = |part: &Arc<dyn PhysicalExpr>| !is_filter || equates_columns(part);
    let mut found = false;
    node.apply_expressions(&mut |expr| {
        let mut parts = split_conjunction(expr).into_iter();
        found = found || parts.any(|part| matters(part) && has_reordering_cast(part, input));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The pairs of expressions over its two inputs that a join equates. Its other filter is left out.
fn join_keys(node: &dyn ExecutionPlan) -> Option<JoinOnRef<'_>> {
    let hash = node.downcast_ref::<HashJoinExec>().map(HashJoinExec::on);
    hash.or_else(|| node.downcast_ref::<SortMergeJoinExec>().map(SortMergeJoinExec::on))
}

fn equates_columns(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let Some(binary) = expr.downcast_ref::<BinaryExpr>() else { return false };
    let has_columns = |side| !collect_columns(side).is_empty();
    *binary.op() == Operator::Eq && has_columns(binary.left()) && has_columns(binary.right())
}

fn has_reordering_cast(expr: &Arc<dyn PhysicalExpr>, input: Option<&SchemaRef>) -> bool {
    expr.exists(|part| Ok(is_reordering_cast(part, input))).unwrap_or(true)
}

/// Of an input that is not known, any cast is supposed to change the order.
fn is_reordering_cast(expr: &Arc<dyn PhysicalExpr>, input: Option<&SchemaRef>) -> bool {
    if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
        let is_zoned = |arg: &Arc<dyn PhysicalExpr>| {
            input.is_none_or(|input| arg.data_type(input).is_ok_and(has_clocks))
        };
        return function.name() == "date_trunc" && function.args().iter().any(is_zoned);
    }
    let (operand, to) = if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        (cast.expr(), cast.cast_type())
    } else if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
        (cast.expr(), cast.cast_type())
    } else {
        return false;
    };
    let from = input.and_then(|input| operand.data_type(input).ok());
    to.is_temporal() && from.is_none_or(|from| from.is_temporal() && !cast_is_monotonic(&from, to))
}

/// Whether this is the type of times in a zone whose clocks may be turned back.
fn has_clocks(data_type: DataType) -> bool {
    let DataType::Timestamp(_, Some(zone)) = data_type else { return false };
    !(zone.starts_with(['+', '-']) || zone.eq_ignore_ascii_case("utc"))
}
