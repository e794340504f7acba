//! Partial aggregations whose groups are found by codes, see `grouping`.
//!
//! Only above a scan alone, and if statistics, and the dictionaries of the first files, tell that there are few groups.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion_common::{Result, ScalarValue};
use datafusion_datasource::file::FileSource as _;
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::file_scan_config::{FileScanConfig, FileScanConfigBuilder};
use datafusion_datasource::source::DataSourceExec;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;
use datafusion_physical_expr::expressions::{CastExpr, Column};
use datafusion_physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion_physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion_physical_plan::{ExecutionPlan, replace_children_if_necessary};

use super::pushed_aggregates::kind_of;
use super::{dealt, dealt_scan};
use crate::aggregation::Kind;
use crate::convert::{is_bytes, values_of};
use crate::grouping::{CodedAggregateExec, MAX_CODES, coded, has_distances};
use crate::source::VortexSource;

/// The number of files that are asked how many values the dictionaries of a column have.
const FILES_ASKED: usize = 8;

/// The aggregation with groups that are found by codes; `None` if there may be too many of them.
pub(super) fn push(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let Some((config, source)) = dealt_scan(aggregate.input()) else { return Ok(None) };
    let Some(outputs) = source.projection_of_rows().filter(|_| source.options().aggregate_pushdown) else {
        return Ok(None);
    };
    // A limit of groups ends reading early, or keeps only the best.
    if aggregate.limit_options().is_some() {
        return Ok(None);
    }
    let of_rows = match aggregate.mode() {
        AggregateMode::Partial => aggregate.clone(),
        // In two steps, some functions differ, such as `var_pop` of great numbers.
        AggregateMode::Single if aggregate.aggr_expr().iter().all(|function| is_exact(function)) => {
            in_mode(AggregateMode::Partial, aggregate, Arc::clone(aggregate.input()))?
        }
        _ => return Ok(None),
    };
    if !CodedAggregateExec::accepts(&of_rows) {
        return Ok(None);
    }
    let Some(keys) = coded_keys(&of_rows, config, source, outputs) else { return Ok(None) };
    let input = if keys.iter().any(|key| key.text.is_some()) {
        let scan = with_dictionaries(&keys, config, source, outputs);
        match dealt(of_rows.input()) {
            Some(_) => replace_children_if_necessary(Arc::clone(of_rows.input()), vec![scan])?,
            None => scan,
        }
    } else {
        Arc::clone(of_rows.input())
    };
    let exprs = of_rows.group_expr().expr().iter().zip(&keys).map(|((expr, name), key)| {
        let expr = match &key.text {
            Some(text) => Arc::new(CastExpr::new(Arc::clone(expr), text.data_type.clone(), None)),
            None => Arc::clone(expr),
        };
        (expr, name.clone())
    });
    let schema = input.schema();
    let partial = AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(exprs.collect()),
        of_rows.aggr_expr().to_vec(),
        of_rows.filter_expr().to_vec(),
        input,
        schema,
    )?;
    if partial.schema() != of_rows.schema() || !CodedAggregateExec::accepts(&partial) {
        return Ok(None);
    }
    let coded: Arc<dyn ExecutionPlan> = Arc::new(CodedAggregateExec::try_new(partial)?);
    Ok(Some(match aggregate.mode() {
        AggregateMode::Single => Arc::new(in_mode(AggregateMode::Final, aggregate, coded)?),
        _ => coded,
    }))
}

/// Whether merging the states of one partition changes nothing. Extremes of floats begin at the greatest finite number
/// in DataFusion 55: within a step, NaN replaces it, so that an infinity after NaN is kept, but not if it is merged.
fn is_exact(function: &AggregateFunctionExpr) -> bool {
    match kind_of(function) {
        _ if function.is_distinct() => false,
        Some(Kind::Min | Kind::Max) => !function.field().data_type().is_floating(),
        kind => kind.is_some(),
    }
}

/// A part of an aggregation that was to be computed at once.
fn in_mode(
    mode: AggregateMode,
    whole: &AggregateExec,
    input: Arc<dyn ExecutionPlan>,
) -> Result<AggregateExec> {
    let keys = match mode {
        AggregateMode::Final => whole.group_expr().as_final(),
        _ => whole.group_expr().clone(),
    };
    let functions = whole.aggr_expr().to_vec();
    AggregateExec::try_new(mode, keys, functions, whole.filter_expr().to_vec(), input, whole.input_schema())
}

/// A key that has codes.
struct CodedKey {
    /// The text that is to be read as a dictionary, if it is text.
    text: Option<Text>,
    /// How many codes there may be.
    count: usize,
}

/// Text that is a key.
struct Text {
    /// Its position among the outputs of the scan.
    at: usize,
    /// The type of the key.
    data_type: DataType,
}

/// How the codes of all keys are found; `None` if there may be too many.
fn coded_keys(
    aggregate: &AggregateExec,
    config: &FileScanConfig,
    source: &VortexSource,
    outputs: &ProjectionExprs,
) -> Option<Vec<CodedKey>> {
    let read_by_functions = read_by_functions(aggregate)?;
    let key = |expr: &Arc<dyn PhysicalExpr>| {
        let at = expr.downcast_ref::<Column>()?.index();
        let column = outputs.iter().nth(at)?.expr.downcast_ref::<Column>()?.index();
        let data_type = source.table_schema().table_schema().field(column).data_type();
        let nulls = 1usize;
        if *data_type == DataType::Boolean {
            return Some(CodedKey { text: None, count: 2 + nulls });
        }
        if has_distances(data_type) {
            let distances = distances(config, column, data_type)?.checked_next_power_of_two()?;
            return Some(CodedKey { text: None, count: distances.checked_add(nulls)? });
        }
        let values = values_of(data_type);
        if !(values.is_string() || is_bytes(values)) || read_by_functions.contains(&at) {
            return None;
        }
        let count = if column < source.table_schema().file_schema().fields().len() {
            dictionary_values(config, source, column)?
        } else {
            // Of partition columns, each file has one value.
            1
        };
        let count = usize::try_from(count).ok()?.checked_add(nulls)?;
        Some(CodedKey { text: Some(Text { at, data_type: data_type.clone() }), count })
    };
    let keys = aggregate.group_expr().expr().iter().map(|(expr, _)| key(expr));
    let keys: Vec<CodedKey> = keys.collect::<Option<_>>()?;
    let count = keys.iter().try_fold(1usize, |all, key| all.checked_mul(key.count))?;
    (count <= MAX_CODES).then_some(keys)
}

/// How many values the dictionaries of a column have in any of the first files; `None` if more than a quarter of their
/// rows refer to none, or nothing is known.
fn dictionary_values(config: &FileScanConfig, source: &VortexSource, column: usize) -> Option<u64> {
    let files = config.file_groups.iter().flat_map(FileGroup::iter).take(FILES_ASKED);
    let (mut most, mut without, mut all) = (None, 0u64, 0u64);
    for (rows, values) in files.filter_map(|file| source.dictionary_values(file, column)) {
        all = all.saturating_add(rows);
        match values {
            Some(values) => most = most.max(Some(values)),
            None => without = without.saturating_add(rows),
        }
    }
    most.filter(|_| without <= all / 4)
}

/// The columns that functions and their filters read; `None` if they read the result of a subquery.
fn read_by_functions(aggregate: &AggregateExec) -> Option<Vec<usize>> {
    let arguments = aggregate.aggr_expr().iter().flat_map(|function| function.expressions());
    let filters = aggregate.filter_expr().iter().flatten().cloned();
    let (mut read, mut reads_subquery) = (Vec::new(), false);
    for expr in arguments.chain(filters) {
        expr.apply(|node| {
            read.extend(node.downcast_ref::<Column>().map(Column::index));
            // Serialized, its result would be that of another plan.
            reads_subquery |= node.is::<ScalarSubqueryExpr>();
            Ok(TreeNodeRecursion::Continue)
        })
        .ok()?;
    }
    (!reads_subquery).then_some(read)
}

/// How many integers there are between the bounds of a column, or in its type.
fn distances(config: &FileScanConfig, column: usize, data_type: &DataType) -> Option<usize> {
    let known = config.statistics();
    let bounds = known.column_statistics.get(column).and_then(|known| {
        Some((integer(known.min_value.get_value()?)?, integer(known.max_value.get_value()?)?))
    });
    match (bounds, data_type) {
        (Some((first, last)), _) => usize::try_from(last.checked_sub(first)?).ok()?.checked_add(1),
        (None, DataType::Int8 | DataType::UInt8) => Some(1 << 8),
        _ => None,
    }
}

/// An integer, or the one of which a time consists.
fn integer(value: &ScalarValue) -> Option<i64> {
    // Arrow casts times of 32 bits only to integers of 32 bits.
    let narrow = matches!(value.data_type(), DataType::Time32(_)).then(|| value.cast_to(&DataType::Int32));
    match narrow.unwrap_or_else(|| Ok(value.clone())).and_then(|value| value.cast_to(&DataType::Int64)) {
        Ok(ScalarValue::Int64(value)) => value,
        _ => None,
    }
}

/// The scan, with dictionaries of the texts that are keys.
fn with_dictionaries(
    keys: &[CodedKey],
    config: &FileScanConfig,
    source: &VortexSource,
    outputs: &ProjectionExprs,
) -> Arc<dyn ExecutionPlan> {
    let text_at = |at: usize| keys.iter().filter_map(|key| key.text.as_ref()).find(|text| text.at == at);
    let outputs = outputs.iter().enumerate().map(|(at, output)| match text_at(at) {
        Some(text) => {
            let cast = CastExpr::new(Arc::clone(&output.expr), coded(values_of(&text.data_type)), None);
            ProjectionExpr::new(Arc::new(cast), output.alias.clone())
        }
        None => output.clone(),
    });
    let source = source.projecting(ProjectionExprs::new(outputs));
    let config = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source)).build();
    DataSourceExec::from_data_source(config)
}
