//! Sums that statistics answer.
//!
//! DataFusion 55 takes the statistics of a join's inputs for those of its output, and replaces a sum above the
//! join by the exact sum of a column below it. Scans therefore state sums as estimates only. Where nothing
//! but an aggregation without groups reads a scan, they are stated exactly, and DataFusion's own rule is
//! applied again:
//!
//! ```text
//! AggregateExec: sum(a)
//!   CoalescePartitionsExec            ->  ProjectionExec: 4711
//!     AggregateExec: sum(a)                 PlaceholderRowExec
//!       DataSourceExec
//! ```

use std::sync::Arc;

use datafusion::physical_optimizer::PhysicalOptimizerRule as _;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion_common::config::ConfigOptions;
use datafusion_common::stats::Precision;
use datafusion_common::{Result, Statistics};
use datafusion_datasource::file_scan_config::FileScanConfigBuilder;
use datafusion_datasource::source::DataSourceExec;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::repartition::RepartitionExec;
use datafusion_physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::source::VortexSource;

/// The answer of an aggregation, if statistics of the scan below it contain all that it needs.
pub(crate) fn answer(
    node: &Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregation) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    if !aggregation.group_expr().is_empty() {
        return Ok(None);
    }
    let Some(input) = with_exact_sums(aggregation.input())? else { return Ok(None) };
    let node = replace_children_if_necessary(Arc::clone(node), vec![input])?;
    let answer = AggregateStatistics::new().optimize(node, config)?;
    Ok((!answer.is::<AggregateExec>()).then_some(answer))
}

/// The plan over a scan that states its sums exactly; `None` if another operator changes the rows.
fn with_exact_sums(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        return Ok(exact_scan(scan));
    }
    let is_partial =
        node.downcast_ref::<AggregateExec>().is_some_and(|inner| *inner.mode() == AggregateMode::Partial);
    let keeps_rows =
        node.is::<CoalescePartitionsExec>() || node.is::<RepartitionExec>() || node.is::<ProjectionExec>();
    match node.children().as_slice() {
        [child] if is_partial || keeps_rows => match with_exact_sums(child)? {
            Some(child) => replace_children_if_necessary(Arc::clone(node), vec![child]).map(Some),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

fn exact_scan(scan: &DataSourceExec) -> Option<Arc<dyn ExecutionPlan>> {
    let (config, source) = scan.downcast_to_file_source::<VortexSource>()?;
    let mut known: Statistics = config.statistics();
    let is_whole = config.limit.is_none() && source.filters.all().next().is_none();
    // Whatever makes statistics uncertain does so for all of them.
    if !is_whole || !matches!(known.num_rows, Precision::Exact(_)) {
        return None;
    }
    for column in &mut known.column_statistics {
        if let Precision::Inexact(sum) = &column.sum_value {
            column.sum_value = Precision::Exact(sum.clone());
        }
    }
    let config = FileScanConfigBuilder::from(config.clone()).with_statistics(known).build();
    Some(DataSourceExec::from_data_source(config))
}
