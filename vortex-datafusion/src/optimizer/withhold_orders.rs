//! Withholds orders of scans from plans that would take them too far.
//!
//! DataFusion 55 supposes that every cast between temporal types preserves the order. If rows are in the order
//! of timestamps, it therefore removes a sort by their times of day, and joins by merging what is not sorted:
//!
//! ```text
//! ts                   2026-01-01 07:00   2026-01-01 14:00   2026-01-02 04:00
//! CAST(ts AS TIME)     07:00              14:00              04:00
//! ```
//!
//! The same applies to `date_trunc` in zones that turn their clocks back just after midnight; to `date_bin`, which is
//! null for times that nanoseconds cannot count; to `log(base, x)`, which falls if the base is below 1, or if it is the
//! column, and to `log(x)`, which is exact for powers of ten only; and to the negation of integers, of which the least
//! is its own negative; and to `AND` and `OR`, of which one side may be null: `a > 5 OR NULL` is null first, and then
//! true. DataFusion also supposes that an aggregation by several sets of columns (`ROLLUP`) keeps the order of all of
//! them, although the groups of each row include some without the first column.
//!
//! For the same reason, and because of the nulls that outer joins add, a filter such as `k = 1` below these operators
//! does not make `k` constant above them, as DataFusion supposes: it returns groups several times, or drops sorts.
//! Scans below them do not tell which filter their rows satisfy. Filters that remain above scans, and literals, are
//! beyond reach: see `docs/datafusion-55.md`.
//!
//! See `tests/it/upstream/orders.rs`: `casts_to_times_of_day_keep_the_order_of_timestamps`,
//! `truncated_dates_keep_the_order_across_clocks_that_are_turned_back`,
//! `bins_of_times_keep_the_order_although_distant_ones_are_null`,
//! `logarithms_of_decimals_keep_the_order_although_only_some_are_exact`,
//! `logarithms_keep_the_order_whatever_their_base`,
//! `negatives_are_in_the_opposite_order_although_the_least_integer_has_none`,
//! `alternatives_keep_the_order_although_one_may_be_null`,
//! `groups_of_several_sets_keep_the_order_of_all_columns`,
//! `columns_that_are_constant_stay_so_in_groups_of_several_sets`,
//! `columns_that_are_constant_stay_so_where_outer_joins_add_nulls`.
//!
//! If an operator contains such an expression, the orders that the scans below it declare end at the first column of
//! a type from which DataFusion derives an order of the expression. Other scans keep theirs, since an order reaches
//! only the operators above its scan, unless the expression is equated with a column, by a filter or by the keys of a
//! join: then the order of any values that are equal to those below is taken for that of the column. This happens
//! before all rules of DataFusion, which rely on what scans declare.

use std::ops::BitOrAssign;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion};
use datafusion_common::{JoinType, Result};
use datafusion_datasource::file_scan_config::FileScanConfigBuilder;
use datafusion_datasource::source::DataSourceExec;
use datafusion_expr::Operator;
use datafusion_expr::sort_properties::SortProperties;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, Literal, NegativeExpr, TryCastExpr};
use datafusion_physical_expr::utils::{collect_columns, split_conjunction};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::joins::{
    HashJoinExec, JoinOnRef, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};

use super::limited_windows::may_be_ordered;
use super::unordered::never_ordered;
use super::{vortex_scan, with_children};
use crate::convert::cast_is_monotonic;
use crate::orders::without_orders_of;

/// Withholds orders of columns from operators with expressions that change them, although DataFusion supposes that they
/// do not.
pub(super) fn withhold(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut equated = Reordered::default();
    plan.apply(|node| {
        if equates(node.as_ref()) {
            equated |= reordered(node)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    withhold_below(plan, equated, true)
}

/// Withholds orders of the build sides of hash joins, once the sides are chosen. DataFusion takes the rows of a join
/// for ordered by the probe side and then by the build side, which they are not where rows of the probe side are equal
/// in their order. See `tests/it/upstream/orders.rs`: `joins_claim_the_order_of_their_build_side`.
pub(super) fn withhold_build_sides(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let claims = node
            .downcast_ref::<HashJoinExec>()
            .is_some_and(|join| matches!(join.join_type(), JoinType::Inner | JoinType::Right));
        if !claims {
            return Ok(Transformed::no(node));
        }
        let without_order = |at, child| match at {
            0 => without_order(child),
            _ => Ok(child),
        };
        with_children(&node, without_order).map(Transformed::yes)
    })
    .data()
}

/// The rows of a build side in no order: scans do not declare theirs, and what is ordered by other means, or may be
/// once sorts are added, does not tell.
fn without_order(side: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let side = without_unused_orders(side)?;
    let is_ordered = side.output_ordering().is_some() || may_be_ordered(&side);
    Ok(if is_ordered { never_ordered(side) } else { side })
}

/// The node above scans that do not declare orders which it passes on, unless an operator in between requires them.
fn without_unused_orders(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some((config, _)) = vortex_scan(&node) {
        let changed = without_orders_of(config, |_| true);
        return Ok(changed.map_or(node, |config| DataSourceExec::from_data_source(config) as _));
    }
    let (keeps_order, required) = (node.maintains_input_order(), node.required_input_ordering());
    with_children(&node, |at, child| {
        if keeps_order[at] && required[at].is_none() { without_unused_orders(child) } else { Ok(child) }
    })
}

/// The columns whose order must be withheld, by their types: those from which DataFusion derives an order of
/// expressions that change it. It does so through all casts between numbers, and through all between times.
#[derive(Debug, Clone, Copy, Default)]
struct Reordered {
    numbers: bool,
    times: bool,
    /// Columns of any type: aggregations by several sets of them leave them out of some, and what compares them may be
    /// combined with nulls.
    all: bool,
}

impl Reordered {
    fn includes(self, data_type: &DataType) -> bool {
        let is_number = data_type.is_numeric() || *data_type == DataType::Boolean;
        self.all || (self.numbers && is_number) || (self.times && data_type.is_temporal())
    }
}

impl BitOrAssign for Reordered {
    fn bitor_assign(&mut self, other: Self) {
        self.numbers |= other.numbers;
        self.times |= other.times;
        self.all |= other.all;
    }
}

/// Withholds orders of the scans below `node`: of the columns that it or an operator above reorders. Unless
/// `keeps_values`, an operator above replaces values by nulls, and scans do not tell their filters.
fn withhold_below(
    node: Arc<dyn ExecutionPlan>,
    above: Reordered,
    keeps_values: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut all = above;
    all |= reordered(&node)?;
    if let Some((config, source)) = vortex_scan(&node) {
        let mut changed = without_orders_of(config, |column| all.includes(column));
        if !keeps_values && source.tells_filter() {
            let config = FileScanConfigBuilder::from(changed.unwrap_or_else(|| config.clone()));
            changed = Some(config.with_source(Arc::new(source.without_telling_filter())).build());
        }
        return Ok(changed.map_or(node, |config| DataSourceExec::from_data_source(config) as _));
    }
    with_children(&node, |at, child| {
        withhold_below(child, all, keeps_values && keeps_values_of(node.as_ref(), at))
    })
}

/// Whether the rows of the input `at` of an operator have their own values in its output, as far as these are there at
/// all. Outer joins have rows with nulls instead, and so have aggregations by several sets of columns.
fn keeps_values_of(node: &dyn ExecutionPlan, at: usize) -> bool {
    let join = if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        Some(*join.join_type())
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        Some(*join.join_type())
    } else if let Some(join) = node.downcast_ref::<PiecewiseMergeJoinExec>() {
        Some(join.join_type())
    } else {
        node.downcast_ref::<SortMergeJoinExec>().map(SortMergeJoinExec::join_type)
    };
    match join {
        Some(JoinType::Left) => at == 0,
        Some(JoinType::Right) => at == 1,
        Some(JoinType::Full) => false,
        Some(_) => true,
        None => {
            node.downcast_ref::<AggregateExec>().is_none_or(|aggregate| aggregate.group_expr().is_single())
        }
    }
}

/// Whether expressions of the operator may equate columns of its input.
fn equates(node: &dyn ExecutionPlan) -> bool {
    node.is::<FilterExec>() || (node.children().len() > 1 && !node.is::<NestedLoopJoinExec>())
}

/// The columns that expressions of the operator reorder. Of the conjuncts of filters, and of what joins compare, only
/// those matter that equate columns: then the order of one is that of the other.
fn reordered(node: &Arc<dyn ExecutionPlan>) -> Result<Reordered> {
    let mut found = Reordered::default();
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        // DataFusion moves parts of its filter into projections of its inputs.
        if let Some(filter) = join.filter() {
            found |= reordered_by(filter.expression(), Some(filter.schema()), None)?;
        }
        return Ok(found);
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        found.all = !aggregate.group_expr().is_single();
    }
    let inputs: Vec<_> = node.children().into_iter().map(|child| child.schema()).collect();
    if let Some(keys) = join_keys(node.as_ref()) {
        for (key, input) in keys.iter().flat_map(|(left, right)| [left, right]).zip(inputs.iter().cycle()) {
            found |= reordered_by(key, Some(input), None)?;
        }
        return Ok(found);
    }
    // An expression of an operator with several inputs may refer to all of them.
    let input = if let [input] = inputs.as_slice() { Some(input) } else { None };
    let orders =
        if let [child] = node.children().as_slice() { Some(child.equivalence_properties()) } else { None };
    let is_filter = node.is::<FilterExec>();
    node.apply_expressions(&mut |expr| {
        let parts = if is_filter { split_conjunction(expr) } else { vec![expr] };
        for part in parts {
            if !is_filter || equates_columns(part) {
                found |= reordered_by(part, input, orders)?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The pairs of expressions over its two inputs that a join equates. Its other filter is left out.
fn join_keys(node: &dyn ExecutionPlan) -> Option<JoinOnRef<'_>> {
    let hash = node.downcast_ref::<HashJoinExec>().map(HashJoinExec::on);
    hash.or_else(|| node.downcast_ref::<SortMergeJoinExec>().map(SortMergeJoinExec::on))
}

fn equates_columns(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let Some(binary) = expr.downcast_ref::<BinaryExpr>() else { return false };
    let has_columns = |side| !collect_columns(side).is_empty();
    *binary.op() == Operator::Eq && has_columns(binary.left()) && has_columns(binary.right())
}

/// The columns that an expression over `input`, whose rows are in these orders, reorders if it reads them.
fn reordered_by(
    expr: &Arc<dyn PhysicalExpr>,
    input: Option<&SchemaRef>,
    orders: Option<&EquivalenceProperties>,
) -> Result<Reordered> {
    let mut found = Reordered { all: claims_order_of_logic(expr, orders)?, ..Reordered::default() };
    expr.apply(|part| {
        found.numbers |= reorders_numbers(part, input);
        found.times |= reorders_times(part, input);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Of an input that is not known, any negation is supposed to be one of integers.
fn reorders_numbers(expr: &Arc<dyn PhysicalExpr>, input: Option<&SchemaRef>) -> bool {
    if let Some(negation) = expr.downcast_ref::<NegativeExpr>() {
        let operand = input.and_then(|input| negation.arg().data_type(input).ok());
        return operand.is_none_or(|operand| operand.is_integer());
    }
    let function = expr.downcast_ref::<ScalarFunctionExpr>();
    function.is_some_and(|function| function.name() == "log")
}

fn is_logic(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let binary = expr.downcast_ref::<BinaryExpr>();
    binary.is_some_and(|binary| matches!(binary.op(), Operator::And | Operator::Or))
}

/// Whether the expression contains an `AND` or `OR` of which DataFusion supposes that it is in an order, given those of
/// its input, although one side may be null where the other is not. Of an input that is not known, one with a null is
/// supposed to be.
fn claims_order_of_logic(
    expr: &Arc<dyn PhysicalExpr>,
    orders: Option<&EquivalenceProperties>,
) -> Result<bool> {
    if orders.is_some_and(|orders| orders.oeq_class().is_empty()) {
        return Ok(false);
    }
    let mut claims = false;
    expr.apply(|part| {
        if !is_logic(part) {
            return Ok(TreeNodeRecursion::Continue);
        }
        claims |= match orders {
            Some(orders) => {
                let known = orders.get_expr_properties(Arc::clone(part)).sort_properties;
                matches!(known, SortProperties::Ordered(_))
            }
            None => part.exists(|part| Ok(is_null(part)))?,
        };
        // What is within has no order, or gives this one its own.
        Ok(TreeNodeRecursion::Jump)
    })?;
    Ok(claims)
}

fn is_null(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<Literal>().is_some_and(|literal| literal.value().is_null())
}

/// Of an input that is not known, any cast is supposed to change the order.
fn reorders_times(expr: &Arc<dyn PhysicalExpr>, input: Option<&SchemaRef>) -> bool {
    if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
        let is_zoned = |arg: &Arc<dyn PhysicalExpr>| {
            input.is_none_or(|input| arg.data_type(input).is_ok_and(has_clocks))
        };
        return function.name() == "date_bin"
            || (function.name() == "date_trunc" && function.args().iter().any(is_zoned));
    }
    let (operand, to) = if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        (cast.expr(), cast.cast_type())
    } else if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
        (cast.expr(), cast.cast_type())
    } else {
        return false;
    };
    let from = input.and_then(|input| operand.data_type(input).ok());
    to.is_temporal() && from.is_none_or(|from| from.is_temporal() && !cast_is_monotonic(&from, to))
}

/// Whether this is the type of times in a zone whose clocks may be turned back.
fn has_clocks(data_type: DataType) -> bool {
    let DataType::Timestamp(_, Some(zone)) = data_type else { return false };
    !(zone.starts_with(['+', '-']) || zone.eq_ignore_ascii_case("utc"))
}
