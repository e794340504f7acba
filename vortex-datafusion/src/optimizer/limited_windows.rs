//! Keeps limits of queries away from the sorts below windows, where they would make windows add up some rows only.
//!
//! DataFusion 55 passes a limit through window functions that look at no later row, to the sort below them
//! (`LimitPushPastWindows`), and from there below the operator that deals rows out to partitions (`TopKRepartition`). The
//! partitions of such a sort share what they have found: each drops rows that are not among the first of all partitions,
//! also rows that lie before others which it has kept. That does not matter if the partitions are merged in the order of
//! the sort, since these others are not among the first rows either. But if they are merged in any order, their windows
//! are wrong.
//!
//! ```text
//! CoalescePartitionsExec: fetch=5                            CoalescePartitionsExec: fetch=5
//!   BoundedWindowAggExec: [sum(v)]                             BoundedWindowAggExec: [sum(v)]
//!     SortExec: TopK(fetch=5), [p, v]                    ->      SortExec: [p, v]
//!       RepartitionExec: Hash([p])                                 RepartitionExec: Hash([p])
//!         SortExec: TopK(fetch=5), [p, v]                            SortExec: [p, v]
//! ```
//!
//! See `tests/it/upstream/windows.rs`: `windows_below_a_limit_lack_rows`.

use std::sync::Arc;

use datafusion_common::{Result, internal_datafusion_err};
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion_physical_plan::windows::BoundedWindowAggExec;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, replace_children_if_necessary};

/// The plan with sorts of all rows below windows whose partitions are not merged in their order.
pub(super) fn with_all_rows(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change(node, Below::Anything)
}

/// What lies above a node.
#[derive(Clone, Copy, PartialEq)]
enum Below {
    /// A merge of its partitions in their order.
    Merge,
    /// Windows over partitions that are not merged in their order.
    Windows,
    Anything,
}

fn change(node: Arc<dyn ExecutionPlan>, below: Below) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = node.output_partitioning().partition_count();
    let node = match below == Below::Windows && partitions > 1 && is_cut_by_partition(&node) {
        true => node.with_fetch(None).ok_or_else(|| internal_datafusion_err!("a sort of all rows"))?,
        false => node,
    };
    let keeps_order = node.maintains_input_order() == [true];
    let below = if node.is::<SortPreservingMergeExec>() {
        Below::Merge
    } else if node.is::<BoundedWindowAggExec>() && below != Below::Merge {
        Below::Windows
    } else if partitions > 1 && (keeps_order || below == Below::Windows && node.children().len() == 1) {
        // Rows of windows may be dealt out, and were sorted before, too.
        below
    } else {
        Below::Anything
    };
    let children = node.children().into_iter().map(|child| change(Arc::clone(child), below));
    let children = children.collect::<Result<_>>()?;
    replace_children_if_necessary(node, children)
}

/// Whether this is a sort that returns the first rows of each partition. It cannot be the limit of a query by itself.
fn is_cut_by_partition(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<SortExec>().is_some_and(|sort| sort.preserve_partitioning() && sort.fetch().is_some())
}
