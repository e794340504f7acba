//! Aggregations that scans compute, see `aggregation`.
//!
//! Only where nothing but the aggregation reads the scan, and only functions of DataFusion itself: others of the same
//! name may compute something else.

use std::sync::Arc;

use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion_common::{Result, Statistics};
use datafusion_datasource::file::FileSource as _;
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::file_scan_config::FileScanConfigBuilder;
use datafusion_datasource::source::DataSourceExec;
use datafusion_expr::AggregateUDFImpl;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;
use datafusion_physical_expr::expressions::Literal;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};

use super::dealt_scan;
use crate::aggregation::{Aggregation, Function, Kind};
use crate::source::VortexSource;

/// The final aggregation over a scan that computes the states; `None` if the scan cannot, or had better not.
pub(super) fn push(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(first) = first_part(node) else { return Ok(None) };
    let Some((config, source)) = dealt_scan(first.input()) else { return Ok(None) };
    let has_filter = first.filter_expr().iter().any(Option::is_some);
    if !source.options().aggregate_pushdown || config.limit.is_some() || has_filter {
        return Ok(None);
    }
    let functions = first.aggr_expr().iter().map(|function| over_table(function, source));
    let Some(functions) = functions.collect::<Result<Option<Vec<_>>>>()? else { return Ok(None) };
    let aggregation = Aggregation::new(functions);
    if !aggregation.pays() {
        return Ok(None);
    }
    let nothing_known = Statistics::new_unknown(source.table_schema().table_schema());
    // Groups may state the number of their rows.
    let groups = config.file_groups.iter().map(|group| FileGroup::new(group.files().to_vec())).collect();
    let config = FileScanConfigBuilder::from(config.clone())
        .with_source(Arc::new(source.aggregated(aggregation)))
        .with_file_groups(groups)
        .with_statistics(nothing_known)
        .with_output_ordering(Vec::new())
        .with_output_partitioning(None)
        .with_preserve_order(false)
        .build();
    let mut states: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(config);
    if states.output_partitioning().partition_count() > 1 {
        states = Arc::new(CoalescePartitionsExec::new(states));
    }
    let merged = AggregateExec::try_new(
        AggregateMode::Final,
        first.group_expr().clone(),
        first.aggr_expr().to_vec(),
        first.filter_expr().to_vec(),
        states,
        first.input_schema(),
    )?;
    Ok(Some(Arc::new(merged)))
}

/// The aggregation of rows, which may be the one that returns the result.
fn first_part(node: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let last = node.downcast_ref::<AggregateExec>()?;
    let first = match last.mode() {
        AggregateMode::Single => last,
        AggregateMode::Final => {
            let below = last.input();
            let below = below.downcast_ref::<CoalescePartitionsExec>().map_or(below, |merge| merge.input());
            below.downcast_ref::<AggregateExec>().filter(|below| *below.mode() == AggregateMode::Partial)?
        }
        _ => return None,
    };
    let is_plain = |part: &AggregateExec| {
        part.group_expr().is_true_no_grouping() && part.limit_options().is_none() && part.fetch().is_none()
    };
    (is_plain(first) && is_plain(last)).then_some(first)
}

/// A function over the output of a scan as one over the columns of its table.
fn over_table(function: &AggregateFunctionExpr, source: &VortexSource) -> Result<Option<Function>> {
    let (Some(kind), Some(projection)) = (kind_of(function), source.projection()) else { return Ok(None) };
    if !function.order_bys().is_empty() || function.is_reversed() {
        return Ok(None);
    }
    let arguments = function.expressions().into_iter().map(|argument| {
        if argument.is::<Literal>() { Ok(argument) } else { projection.unproject_expr(&argument) }
    });
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let Some(function) = function.with_new_expressions(arguments, Vec::new()) else { return Ok(None) };
    Function::try_new(kind, Arc::new(function), source.table_schema().table_schema())
}

/// What a function computes, if it is DataFusion's.
pub(super) fn kind_of(function: &AggregateFunctionExpr) -> Option<Kind> {
    fn is<F: AggregateUDFImpl>(function: &AggregateFunctionExpr) -> bool {
        function.fun().inner().downcast_ref::<F>().is_some()
    }
    let kinds = [
        (is::<Count>(function), Kind::Count),
        (is::<Sum>(function), Kind::Sum),
        (is::<Min>(function), Kind::Min),
        (is::<Max>(function), Kind::Max),
        (is::<Avg>(function), Kind::Average),
    ];
    kinds.into_iter().find(|(is_kind, _)| *is_kind).map(|(_, kind)| kind)
}
