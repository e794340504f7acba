//! Sorts of partitions that differ in a constant by which they are merged.
//!
//! ```text
//! SortPreservingMergeExec: [k, id], fetch=3               SortPreservingMergeExec: [k, id], fetch=3
//!   SortExec: TopK(fetch=3), expr=[id]             ──►      SortExec: TopK(fetch=3), expr=[k, id]
//!     UnionExec: k is 1 in these, and 0 in those              UnionExec
//! ```
//!
//! Such as the branches of a `UNION ALL` with a literal in each. DataFusion 55 leaves the constant out of the sort, but
//! its partitions share what they know of the best rows, so that those with better numbers of one partition rule out
//! the only ones with the better constant. See `tests/it/upstream/orders.rs`:
//! `the_best_rows_of_partitions_that_differ_in_a_constant`.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_physical_expr::equivalence::AcrossPartitions;
use datafusion_physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, replace_children_if_necessary};

/// Lets the sort below a merge compare all that the merge does, if some of it differs between partitions.
pub(super) fn complete(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else { return Ok(node) };
    match completed(merge.input(), merge.expr())? {
        Some(input) => replace_children_if_necessary(Arc::clone(&node), vec![input]),
        None => Ok(node),
    }
}

/// The input of a merge by these keys, whose sort compares all of them; `None` if it need not.
fn completed(input: &Arc<dyn ExecutionPlan>, keys: &LexOrdering) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(projection) = input.downcast_ref::<ProjectionExec>() {
        let below = |key: &PhysicalSortExpr| {
            let expr = projection.projection_expr().unproject_expr(&key.expr).ok()?;
            Some(PhysicalSortExpr::new(expr, key.options))
        };
        let keys = keys.iter().map(below).collect::<Option<Vec<_>>>().and_then(LexOrdering::new);
        let Some(keys) = keys else { return Ok(None) };
        let Some(sorted) = completed(projection.input(), &keys)? else { return Ok(None) };
        return replace_children_if_necessary(Arc::clone(input), vec![sorted]).map(Some);
    }
    let Some(sort) = input.downcast_ref::<SortExec>() else { return Ok(None) };
    let known = sort.input().equivalence_properties();
    let is_compared = |expr| sort.expr().iter().any(|key| key.expr.eq(expr));
    let differs = |expr| known.is_expr_constant(expr) == Some(AcrossPartitions::Heterogeneous);
    let lacks_any = keys.iter().any(|key| !is_compared(&key.expr) && differs(&key.expr));
    if sort.fetch().is_none() || !lacks_any {
        return Ok(None);
    }
    let complete = SortExec::new(keys.clone(), Arc::clone(sort.input()))
        .with_fetch(sort.fetch())
        .with_preserve_partitioning(sort.preserve_partitioning());
    Ok(Some(Arc::new(complete)))
}
