//! An optimizer rule that makes scans read files with a declared order in that order.
//!
//! ```text
//! SortPreservingMergeExec: [a ASC], fetch=10
//!   DataSourceExec: file_groups={[x], [y]}, output_ordering=[a ASC]
//! ```
//!
//! DataFusion 55 lets a partition that has finished take over files of other partitions, unless the scan is
//! told to preserve the order; and pushing down a limit resets that flag. Merges above then receive rows out
//! of order. The rule sets the flag again, after all other optimizations.

use std::sync::Arc;

use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion_datasource::source::DataSourceExec;
use datafusion_physical_plan::ExecutionPlan;

use crate::source::VortexSource;

/// Keeps ordered files in their partitions.
#[derive(Debug, Default)]
pub(crate) struct KeepOrder;

impl KeepOrder {
    pub(crate) const NAME: &'static str = "vortex_keep_order";
}

impl PhysicalOptimizerRule for KeepOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let scan = node
                .downcast_ref::<DataSourceExec>()
                .and_then(|exec| exec.downcast_to_file_source::<VortexSource>());
            let ordered = scan.filter(|(config, _)| {
                !config.output_ordering.is_empty() && config.file_groups.len() > 1 && !config.preserve_order
            });
            Ok(match ordered.and_then(|_| node.with_preserve_order(true)) {
                Some(keeping) => Transformed::yes(keeping),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        Self::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}
