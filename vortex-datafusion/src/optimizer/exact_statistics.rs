//! Counts, sums, minima and maxima that statistics answer.
//!
//! DataFusion 55 replaces aggregates by exact statistics of their input, but what it derives from exact statistics
//! of scans may be wrong:
//! - It takes the statistics of a join's inputs for those of its output, so that the sum of a column above the
//!   join is the one below (`sums_below_joins_are_taken_for_those_above`).
//! - It casts minima and maxima together with their column, whatever the cast does to the order of values: of
//!   5, ..., 12 as text, the maximum is 9, not 12 (`extremes_are_cast_whatever_a_cast_does_to_the_order`).
//! - It keeps null counts through casts, although a cast may fail: there are as many values as before, or an error
//!   (`counts_hide_that_casts_fail`).
//!
//! The tests are in `tests/it/upstream/statistics.rs`, and show this without this crate.
//!
//! Scans therefore state these statistics as estimates only. Where nothing but an aggregation without groups
//! reads a scan, they are stated exactly, except for extremes of columns that the scan casts in a way that
//! changes the order of values, and DataFusion's own rule is applied again:
//!
//! ```text
//! AggregateExec: sum(a)
//!   CoalescePartitionsExec            ->  ProjectionExec: 4711
//!     AggregateExec: sum(a)                 PlaceholderRowExec
//!       DataSourceExec
//! ```
//!
//! Minima and maxima are taken from the statistics of files, which remain exact; they also exclude files. Null counts
//! and sums are those of the scan, and exact if those of all files are.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::physical_optimizer::PhysicalOptimizerRule as _;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion_common::config::ConfigOptions;
use datafusion_common::stats::Precision;
use datafusion_common::{Result, ScalarValue, Statistics};
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::file_scan_config::{FileScanConfig, FileScanConfigBuilder};
use datafusion_datasource::source::DataSourceExec;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{CastExpr, Column};
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::repartition::RepartitionExec;
use datafusion_physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion_physical_plan::union::UnionExec;
use datafusion_physical_plan::{ExecutionPlan, replace_children_if_necessary};

use super::vortex_scan;
use crate::convert::cast_is_monotonic;
use crate::selection::RowSelection;
use crate::source::VortexSource;

/// The answer of an aggregation, if statistics of the scans below it contain all that it needs.
pub(super) fn answer(
    node: &Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregation) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    if !aggregation.group_expr().is_empty() {
        return Ok(None);
    }
    let Some(input) = with_exact_statistics(aggregation.input())? else { return Ok(None) };
    // DataFusion 55 computes that the sum of a constant over no rows is 0, not null. See
    // `tests/it/upstream/statistics.rs`: `the_sum_of_a_constant_over_no_rows_is_zero`.
    if has_no_rows(&input)? {
        return Ok(None);
    }
    let node = replace_children_if_necessary(Arc::clone(node), vec![input])?;
    let answer = AggregateStatistics::new().optimize(node, config)?;
    Ok((!answer.is::<AggregateExec>()).then_some(answer))
}

/// Whether there is nothing to aggregate, in parts or as a whole.
fn has_no_rows(input: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if input.is::<AggregateExec>() || input.is::<CoalescePartitionsExec>() {
        return input.children().into_iter().map(has_no_rows).try_fold(true, |all, none| Ok(all && none?));
    }
    let known = StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new())?;
    Ok(known.num_rows == Precision::Exact(0))
}

/// The plan over scans that state their statistics exactly; `None` if another operator changes the rows, or
/// casts values in a way that changes their order.
fn with_exact_statistics(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some((config, source)) = vortex_scan(node) {
        return exact_scan(config, source);
    }
    let is_partial =
        node.downcast_ref::<AggregateExec>().is_some_and(|inner| *inner.mode() == AggregateMode::Partial);
    let projection = node.downcast_ref::<ProjectionExec>();
    let keeps_rows =
        node.is::<CoalescePartitionsExec>() || node.is::<RepartitionExec>() || node.is::<UnionExec>();
    let projects_in_order = projection.is_some_and(|projection| {
        let input = projection.input().schema();
        projection.expr().iter().all(|output| keeps_order(&output.expr, &input))
    });
    if !(is_partial || keeps_rows || projects_in_order) || node.fetch().is_some() {
        return Ok(None);
    }
    let inputs = node.children().into_iter().map(with_exact_statistics).collect::<Result<Option<_>>>()?;
    let Some(inputs) = inputs else { return Ok(None) };
    let exact = replace_children_if_necessary(Arc::clone(node), inputs)?;
    let Some(projection) = projection else { return Ok(Some(exact)) };
    let input = projection.input().schema();
    let may_fail: Vec<bool> = projection.expr().iter().map(|output| may_fail(&output.expr, &input)).collect();
    without_failure(exact, &may_fail)
}

/// The scan with exact statistics. Filters that are only hints do not matter: the aggregation itself produces one
/// for its extremes.
fn exact_scan(config: &FileScanConfig, source: &VortexSource) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let files = || config.file_groups.iter().flat_map(FileGroup::iter);
    let is_whole = config.limit.is_none()
        && source.filters.accepted().is_empty()
        && files().all(|file| file.extension::<RowSelection>().is_none());
    let mut known = config.statistics();
    if files().all(|file| file.statistics.as_ref().is_some_and(|known| known.num_rows == Precision::Exact(0)))
    {
        known.num_rows = Precision::Exact(0);
    }
    // Whatever makes statistics uncertain does so for all of them.
    if !is_whole || !matches!(known.num_rows, Precision::Exact(_)) {
        return Ok(None);
    }
    let files = files().map(|file| file.statistics.as_deref());
    let Some(mut files) = files.collect::<Option<Vec<_>>>() else { return Ok(None) };
    // The value of a partition column is known even of a file in which no row has it.
    files.retain(|file| file.num_rows != Precision::Exact(0));
    let Some(projection) = config.file_source().projection() else { return Ok(None) };
    for at in projection.column_indices() {
        let Some(column) = known.column_statistics.get_mut(at) else { continue };
        let of_files =
            || files.iter().map(|file| file.column_statistics.get(at).cloned().unwrap_or_default());
        // Files that are read in parts occur several times, so that counts and sums of files cannot be added here.
        let counts_nulls = of_files().all(|file| matches!(file.null_count, Precision::Exact(_)));
        if counts_nulls && let Precision::Inexact(nulls) = column.null_count {
            column.null_count = Precision::Exact(nulls);
        }
        let minima = of_files().map(|file| file.min_value);
        let maxima = of_files().map(|file| file.max_value);
        column.min_value = minima.reduce(|least, next| least.min(&next)).unwrap_or_default();
        column.max_value = maxima.reduce(|greatest, next| greatest.max(&next)).unwrap_or_default();
        let adds_up = of_files().all(|file| matches!(file.sum_value, Precision::Exact(_)));
        if adds_up && let Precision::Inexact(sum) = &column.sum_value {
            column.sum_value = Precision::Exact(sum.clone());
        }
    }
    let table = config.file_source().table_schema().table_schema();
    let reordered = projection.iter().filter(|output| !keeps_order(&output.expr, table));
    let reordered = reordered.map(|output| reordered_column(&output.expr, table, &known));
    let Some(reordered) = reordered.collect::<Option<Vec<_>>>() else { return Ok(None) };
    for at in reordered {
        let column = &mut known.column_statistics[at];
        (column.min_value, column.max_value) = (Precision::Absent, Precision::Absent);
    }
    // Those that change the order do not fail, according to what is known of their columns.
    let may_fail =
        projection.iter().map(|output| keeps_order(&output.expr, table) && may_fail(&output.expr, table));
    let may_fail: Vec<bool> = may_fail.collect();
    let config = FileScanConfigBuilder::from(config.clone()).with_statistics(known).build();
    without_failure(DataSourceExec::from_data_source(config), &may_fail)
}

/// Whether the expression does not cast its column in a way that changes the order of its values. Of expressions
/// other than casts, DataFusion derives no minima and maxima.
fn keeps_order(expr: &Arc<dyn PhysicalExpr>, input: &Schema) -> bool {
    let Some(cast) = expr.downcast_ref::<CastExpr>() else { return true };
    let from = cast.expr().data_type(input);
    from.is_ok_and(|from| cast_is_monotonic(&from, cast.cast_type())) && keeps_order(cast.expr(), input)
}

/// The column that is cast, if its extremes show that no value fails to be cast: other statistics remain valid
/// through the cast, but must not hide such a failure.
fn reordered_column(expr: &Arc<dyn PhysicalExpr>, table: &Schema, known: &Statistics) -> Option<usize> {
    let cast = expr.downcast_ref::<CastExpr>()?;
    let at = cast.expr().downcast_ref::<Column>()?.index();
    let (from, to) = (table.fields().get(at)?.data_type(), cast.cast_type());
    let known = known.column_statistics.get(at)?;
    let can_be_cast =
        |bound: &Precision<ScalarValue>| bound.get_value().is_some_and(|value| value.cast_to(to).is_ok());
    let all_can_be_cast =
        fails_in_extremes(from, to) && can_be_cast(&known.min_value) && can_be_cast(&known.max_value);
    all_can_be_cast.then_some(at)
}

/// Whether a cast that fails for a value also fails for all above it, or for all below it: for times that are too
/// far away. Casts of text may fail for any value, and so may those to zones whose clocks leave out times.
fn fails_in_extremes(from: &DataType, to: &DataType) -> bool {
    use DataType::{Boolean, Date32, Date64, Time32, Time64, Timestamp};
    let is_ordered = from.is_numeric() || matches!(from, Date32 | Date64 | Timestamp(..));
    let is_simple = matches!(to, Boolean | Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(_, None));
    is_ordered && (is_simple || to.is_string())
}

/// Whether the expression casts a column, and the cast may fail.
fn may_fail(expr: &Arc<dyn PhysicalExpr>, input: &Schema) -> bool {
    let Some(cast) = expr.downcast_ref::<CastExpr>() else { return false };
    let widens = cast.expr().data_type(input).is_ok_and(|from| cast.is_bigger_cast(&from));
    !widens || may_fail(cast.expr(), input)
}

/// The node, unless it states something wrong:
///
/// - Constants have bounds even if there are no rows, and DataFusion 55 takes them for those of a union. See
///   `tests/it/upstream/statistics.rs`: `constants_of_no_rows_are_extremes_of_a_union`.
/// - A bound that is not known could be one that cannot be cast: then neither can rows, which must not
///   remain unnoticed. Of columns that `may_fail`, both bounds have to be known, as they are after the cast, unless no
///   row has a value; of others, both or none.
fn without_failure(
    node: Arc<dyn ExecutionPlan>,
    may_fail: &[bool],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let known = StatisticsContext::new().compute(node.as_ref(), &StatisticsArgs::new())?;
    let is_known = |bound: &Precision<ScalarValue>| bound.get_value().is_some();
    let has_bounds = known
        .column_statistics
        .iter()
        .any(|column| is_known(&column.min_value) || is_known(&column.max_value));
    if known.num_rows == Precision::Exact(0) && has_bounds {
        return Ok(None);
    }
    let are_known = known.column_statistics.iter().zip(may_fail).all(|(column, may_fail)| {
        let (min, max) = (is_known(&column.min_value), is_known(&column.max_value));
        let is_null =
            matches!(column.null_count, Precision::Exact(nulls) if known.num_rows == Precision::Exact(nulls));
        if *may_fail { (min && max) || is_null } else { min == max }
    });
    Ok(are_known.then_some(node))
}
