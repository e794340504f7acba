//! Sorts of partitions that differ in a constant by which they are merged.
//!
//! ```text
//! SortPreservingMergeExec: [k, id], fetch=3               SortPreservingMergeExec: [k, id], fetch=3
//!   SortExec: TopK(fetch=3), expr=[id]             ──►      SortExec: TopK(fetch=3), expr=[k, id]
//!     UnionExec: k is 1 in these, and 0 in those              UnionExec
//! ```
//!
//! Such as the branches of a `UNION ALL` with a literal in each. DataFusion 55 leaves the constant out of the sort, but its
//! partitions share what they know of the best rows, so that those with better numbers of one partition rule out the only
//! ones with the better constant. See `tests/it/upstream/orders.rs`: `the_best_rows_of_partitions_that_differ_in_a_constant`.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_physical_expr::equivalence::AcrossPartitions;
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, replace_children_if_necessary};

/// Lets the sort below a merge compare all that the merge does, if some of it differs between partitions.
pub(super) fn complete(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else { return Ok(node) };
    let Some(sort) = merge.input().downcast_ref::<SortExec>() else { return Ok(node) };
    let known = sort.input().equivalence_properties();
    let is_compared = |expr| sort.expr().iter().any(|key| key.expr.eq(expr));
    let differs = |expr| known.is_expr_constant(expr) == Some(AcrossPartitions::Heterogeneous);
    let lacks_any = merge.expr().iter().any(|key| !is_compared(&key.expr) && differs(&key.expr));
    if sort.fetch().is_none() || !lacks_any {
        return Ok(node);
    }
    let complete = SortExec::new(merge.expr().clone(), Arc::clone(sort.input()))
        .with_fetch(sort.fetch())
        .with_preserve_partitioning(sort.preserve_partitioning());
    replace_children_if_necessary(Arc::clone(&node), vec![Arc::new(complete)])
}
