//! Keeps limits of queries away from the rows of windows, which would then be computed from some of these only.
//! DataFusion 55 passes limits through windows in two ways.
//!
//! **To the sort below windows of several partitions.** If window functions look at no later row, their limit becomes
//! that of the sort (`LimitPushPastWindows`), also below the operator that deals rows out to partitions
//! (`TopKRepartition`). The partitions of such a sort share what they have found: each drops rows that are not among
//! the first of all partitions, also rows that lie before others which it has kept. That does not matter if the
//! partitions are merged in the order of the sort, since these others are not among the first rows either. But if they
//! are merged in any order, or by some of the columns only, their windows are wrong.
//!
//! ```text
//! CoalescePartitionsExec: fetch=5                            CoalescePartitionsExec: fetch=5
//!   BoundedWindowAggExec: [sum(v)]                             BoundedWindowAggExec: [sum(v)]
//!     SortExec: TopK(fetch=5), [p, v]                    ->      SortExec: [p, v]
//!       RepartitionExec: Hash([p])                                 RepartitionExec: Hash([p])
//!         SortExec: TopK(fetch=5), [p, v]                            SortExec: [p, v]
//! ```
//!
//! **With a sort that is not needed** (`EnsureRequirements`). If rows below a window are in the order of a sort above
//! it, the partitions are merged in this order, and the limit of the sort becomes that of the merge, or of a sort below
//! windows that have partition keys. Joins whose order is that of one side, and an `OFFSET`, lose rows in the same way.
//!
//! ```text
//! SortExec: TopK(fetch=3), [a]                               GlobalLimitExec: fetch=3
//!   WindowAggExec: [count(*)]                          ->      SortExec: [a]
//!     DataSourceExec: output_ordering=[a]                        WindowAggExec: [count(*)]
//!                                                                  DataSourceExec: output_ordering=[a]
//! ```
//!
//! If it is not known yet whether the sort will be needed, it stays (`unordered.rs`).
//!
//! See `tests/it/upstream/windows.rs`.

use std::sync::Arc;

use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion_common::{Result, internal_datafusion_err};
use datafusion_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion_physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::limit::GlobalLimitExec;
use datafusion_physical_plan::repartition::RepartitionExec;
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion_physical_plan::union::UnionExec;
use datafusion_physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion_physical_plan::{
    Distribution, ExecutionPlan, ExecutionPlanProperties as _, replace_children_if_necessary,
};

use super::unordered::unordered;
use super::with_children;

/// The plan with limits that stay above what is computed from all rows.
pub(super) fn hold_limits_above(
    plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = config.execution.target_partitions;
    plan.transform_up(|node| {
        let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
        let input = sort.input();
        // A limit of each partition is none of the query.
        let is_limit = sort.fetch().is_some() && !sort.preserve_partitioning();
        if !is_limit || !(needs_rows_below(input) || has_windows_of_groups(input)) {
            return Ok(Transformed::no(node));
        }
        // The sort is left out, so that the limit ends the query once there are enough rows.
        let is_ordered = input.equivalence_properties().ordering_satisfy(sort.expr().iter().cloned())?;
        if is_ordered && orders_are_given(input, partitions)? {
            let all = without_limit(&node)?;
            return Ok(Transformed::yes(Arc::new(GlobalLimitExec::new(all, 0, sort.fetch()))));
        }
        // It may still turn out that it could be.
        if is_ordered || may_be_ordered(input) {
            replace_children_if_necessary(Arc::clone(&node), vec![unordered(Arc::clone(input))])
                .map(Transformed::yes)
        } else {
            Ok(Transformed::no(node))
        }
    })
    .data()
}

/// Whether rows in order come through an operator that needs all rows of its input, or pairs, or skips them. Partitions
/// may be merged below it, and rows dealt out.
fn needs_rows_below(node: &Arc<dyn ExecutionPlan>) -> bool {
    let is_joined = node.children().len() > 1 && !node.is::<UnionExec>();
    if needs_later_rows(node) || node.is::<GlobalLimitExec>() || is_joined {
        return true;
    }
    let mut children = node.children().into_iter().zip(node.maintains_input_order());
    children
        .any(|(child, keeps_order)| (keeps_order || node.is::<RepartitionExec>()) && needs_rows_below(child))
}

/// Whether windows are computed from groups, of which `TopKAggregation` would leave some out.
fn has_windows_of_groups(node: &Arc<dyn ExecutionPlan>) -> bool {
    if is_windows(node) {
        node.exists(|below| Ok(below.is::<AggregateExec>())).unwrap_or(true)
    } else {
        node.children().into_iter().any(has_windows_of_groups)
    }
}

/// Whether operators get their rows in the orders that they require. Otherwise sorts will be added, and the order above
/// them is another one. Nor are rows to be dealt out by keys to so many partitions, which leaves them in no order.
fn orders_are_given(node: &Arc<dyn ExecutionPlan>, partitions: usize) -> Result<bool> {
    let orders = node.required_input_ordering();
    let dealt = node.input_distribution_requirements().into_per_child();
    let keeps_order = node.maintains_input_order();
    for (at, child) in node.children().into_iter().enumerate() {
        let by_keys =
            !matches!(dealt[at], Distribution::UnspecifiedDistribution | Distribution::SinglePartition);
        let is_given = match &orders[at] {
            Some(required) => {
                child.equivalence_properties().ordering_satisfy_requirement(required.clone().into_single())?
            }
            None => partitions == 1 || !by_keys || !keeps_order[at],
        };
        if !is_given || !orders_are_given(child, partitions)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether rows may be in another order in the end: there are windows, operators that require an order, or rows are
/// dealt out, which is undone if that does not help.
pub(super) fn may_be_ordered(node: &Arc<dyn ExecutionPlan>) -> bool {
    is_windows(node)
        || node.is::<RepartitionExec>()
        || node.required_input_ordering().iter().any(Option::is_some)
        || node.children().into_iter().any(may_be_ordered)
}

/// Whether these are windows of one partition, or windows that depend on rows that follow.
fn needs_later_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(windows) = node.downcast_ref::<BoundedWindowAggExec>() else {
        return node.is::<WindowAggExec>();
    };
    // Windows are reversed if that makes use of an order that rows have, or get for other windows.
    let may_be_reversed = windows.input().output_ordering().is_some() || has_windows(windows.input());
    windows.partition_keys().is_empty()
        || windows.window_expr().iter().any(|window| {
            let reversed = window.get_reverse_expr().filter(|_| may_be_reversed);
            looks_ahead(window) || reversed.is_some_and(|reversed| looks_ahead(&reversed))
        })
}

fn is_windows(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<BoundedWindowAggExec>() || node.is::<WindowAggExec>()
}

fn has_windows(node: &Arc<dyn ExecutionPlan>) -> bool {
    is_windows(node) || node.children().into_iter().any(has_windows)
}

/// Whether the value of a row depends on rows that follow, or may be in the same place of the order.
fn looks_ahead(window: &Arc<dyn WindowExpr>) -> bool {
    if let Some(window) = window.as_any().downcast_ref::<StandardWindowExpr>() {
        match window.get_standard_func_expr().create_evaluator() {
            Ok(evaluator) if !evaluator.uses_window_frame() => return !evaluator.is_causal(),
            Ok(_) => {}
            Err(_) => return true,
        }
    }
    let frame = window.get_window_frame();
    let ends_here = matches!(frame.end_bound, WindowFrameBound::Preceding(_) | WindowFrameBound::CurrentRow);
    !(frame.units == WindowFrameUnits::Rows && ends_here)
}

fn without_limit(sort: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    sort.with_fetch(None).ok_or_else(|| internal_datafusion_err!("sorts may return all rows"))
}

/// The plan with sorts of all rows below windows whose partitions are not merged in their order.
pub(super) fn with_all_rows(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change(node, Above::Anything)
}

/// What lies above a node.
#[derive(Clone, Copy, PartialEq)]
enum Above {
    /// A merge of its partitions in their order, by so many columns.
    Merge(usize),
    /// Windows over partitions that are merged by so many columns, in their order.
    Windows(usize),
    Anything,
}

fn change(node: Arc<dyn ExecutionPlan>, above: Above) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = node.output_partitioning().partition_count();
    let is_cut = match above {
        Above::Windows(merged_by) if partitions > 1 => is_cut_by_partition(&node, merged_by),
        _ => false,
    };
    let node = if is_cut { without_limit(&node)? } else { node };
    let keeps_order = node.maintains_input_order() == [true];
    let is_unary = node.children().len() == 1;
    let merge = node.downcast_ref::<SortPreservingMergeExec>().map(|merge| merge.expr().len());
    let is_window = node.is::<BoundedWindowAggExec>();
    let below = match (merge, above) {
        (Some(columns), _) => Above::Merge(columns),
        (None, Above::Merge(columns)) if is_window => Above::Windows(columns),
        (None, _) if is_window => Above::Windows(0),
        (None, Above::Merge(_)) if keeps_order && partitions > 1 => above,
        // Rows of windows may be dealt out, and were sorted before, too.
        (None, Above::Windows(_)) if is_unary && partitions > 1 => above,
        _ => Above::Anything,
    };
    with_children(&node, |_, child| change(child, below))
}

/// Whether this is a sort that returns the first rows of each partition, by more columns than these. It cannot be the
/// limit of a query by itself.
fn is_cut_by_partition(node: &Arc<dyn ExecutionPlan>, columns: usize) -> bool {
    let Some(sort) = node.downcast_ref::<SortExec>() else { return false };
    sort.preserve_partitioning() && sort.fetch().is_some() && sort.expr().len() > columns
}
