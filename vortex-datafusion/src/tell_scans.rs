//! An optimizer rule that tells scans what the plan above them relies on.
//!
//! ```text
//! SortPreservingMergeExec: [a ASC], fetch=10               SortExec: TopK(fetch=10), expr=[b DESC]
//!   DataSourceExec: {[x], [y]}, output_ordering=[a ASC]      DataSourceExec: best_first=[b DESC]
//! ```
//!
//! Order: DataFusion 55 lets a partition that has finished take over files of other partitions, unless the
//! scan is told to preserve the order; and pushing down a limit resets that flag. Merges above then receive
//! rows out of order. The rule sets the flag again, after all other optimizations.
//!
//! Number of rows: a scan that reads the best rows first is not told how many of them the sort above needs,
//! nor that there is a limit below the sort, so that the best of other rows are wanted.
//!
//! Dynamic filters: an aggregation without groups produces one filter for all of its minima and maxima, which
//! keeps rows that improve any of them. DataFusion 55 leaves out those that are not of plain columns, and
//! those without a value so far, although they need rows that the filter drops. Parquet files are affected,
//! too, but whole row groups at a time. Scans are made to ignore such filters.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_datasource::file_scan_config::FileScanConfigBuilder;
use datafusion_datasource::source::DataSourceExec;
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::source::{BestWanted, VortexSource};

/// Keeps ordered files in their partitions, and passes on how many of the best rows are wanted and which
/// dynamic filters are wrong.
#[derive(Debug, Default)]
pub(crate) struct TellScans;

impl TellScans {
    pub(crate) const NAME: &'static str = "vortex_tell_scans";
}

impl PhysicalOptimizerRule for TellScans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        tell(plan, None, &[])
    }

    fn name(&self) -> &str {
        Self::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Tells the scans below `node`: the closest sort above it takes the first `wanted` rows, and the dynamic
/// filters with the ids `distrusted` must be ignored.
fn tell(
    node: Arc<dyn ExecutionPlan>,
    wanted: Option<usize>,
    distrusted: &[u64],
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(exec) = node.downcast_ref::<DataSourceExec>() {
        return Ok(tell_scan(exec, wanted, distrusted).unwrap_or(node));
    }
    let wanted = match node.downcast_ref::<SortExec>() {
        Some(sort) => sort.fetch(),
        None => wanted,
    };
    let mut distrusted = Cow::Borrowed(distrusted);
    if let Some(aggregation) = node.downcast_ref::<AggregateExec>()
        && aggregation.aggr_expr().len() > 1
    {
        let produced = aggregation.dynamic_expressions_produced();
        distrusted.to_mut().extend(produced.iter().filter_map(|filter| filter.expression_id()));
    }
    let children = node.children().into_iter().map(|child| tell(Arc::clone(child), wanted, &distrusted));
    let children = children.collect::<Result<_>>()?;
    replace_children_if_necessary(node, children)
}

/// The scan, if it is one of Vortex files and there is anything to tell.
fn tell_scan(
    exec: &DataSourceExec,
    wanted: Option<usize>,
    distrusted: &[u64],
) -> Option<Arc<dyn ExecutionPlan>> {
    let (config, source) = exec.downcast_to_file_source::<VortexSource>()?;
    let is_ordered = !config.output_ordering.is_empty() && config.file_groups.len() > 1;
    let preserves = config.preserve_order || is_ordered;
    let best = if config.limit.is_some() { BestWanted::None } else { BestWanted::Rows(wanted) };
    let told = source.told(distrusted, best);
    if told.is_none() && preserves == config.preserve_order {
        return None;
    }
    let mut builder = FileScanConfigBuilder::from(config.clone()).with_preserve_order(preserves);
    if let Some(told) = told {
        builder = builder.with_source(Arc::new(told));
    }
    Some(DataSourceExec::from_data_source(builder.build()))
}
