//! Keeps orders of operators above the limit of a scan away from its files.
//!
//! If rows are wanted in the order in which a scan returns them anyway, the scan gets both their sort and its limit.
//! DataFusion 55 then passes the order of another sort above on to the scan as if there were no limit (`PushdownSort`):
//! it arranges the files of a partition by it, so that the limit takes the first rows of other files.
//!
//! ```text
//! SortExec: [b DESC]                                  SortExec: [b DESC]
//!   DataSourceExec: {[x, y]}, limit=3            ->     GlobalLimitExec: fetch=3
//!                   output_ordering=[a ASC]               DataSourceExec: {[x, y]}, limit=3, output_ordering=[a ASC]
//! ```
//!
//! See `tests/it/upstream/orders.rs`: `orders_cross_limits_of_scans`.
//!
//! No order crosses the operator that is added here. Several partitions need none, since the operator that merges them
//! in their order is not crossed either.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::limit::GlobalLimitExec;

use super::vortex_scan;

/// The plan with the limits of ordered scans of several files above the scans, too.
pub(super) fn add_limits_above(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        Ok(match limit_of_files_in_order(&node) {
            Some(limit) => Transformed::yes(Arc::new(GlobalLimitExec::new(node, 0, Some(limit)))),
            None => Transformed::no(node),
        })
    })
    .data()
}

/// The limit of a scan that reads several files one after the other, in the order of their rows.
fn limit_of_files_in_order(node: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let (config, _) = vortex_scan(node)?;
    let [files] = config.file_groups.as_slice() else { return None };
    config.limit.filter(|_| files.len() > 1 && !config.output_ordering.is_empty())
}
