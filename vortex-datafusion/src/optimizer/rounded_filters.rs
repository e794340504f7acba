//! Keeps sorts above filters from which DataFusion 55 concludes that a column has only one value.
//!
//! It calculates which values of columns pass a filter, and takes the inverse of a cast for exact, that of the division
//! of integers, and others of operations that round or wrap. If only one value seems to pass, it removes sorts by the
//! column:
//!
//! ```text
//! SELECT v FROM t WHERE CAST(v AS INT) = 3 ORDER BY v DESC       3.2  3.9  3.5
//! SELECT a FROM t WHERE a / 10 = 6 ORDER BY a                    69  60  64
//! ```
//!
//! Filters with a test for nulls are not calculated with. One of a column of such an expression changes nothing: if the
//! column is null, so is the expression. Such tests are added between two rules of DataFusion: the one that passes
//! filters to scans, which may take over some parts of a filter, and the one that removes sorts.
//!
//! See `tests/it/upstream/filters.rs`: `columns_that_are_rounded_to_one_value_are_taken_for_constant`.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, Column, is_not_null};
use datafusion_physical_expr::intervals::utils::check_support;
use datafusion_physical_expr::utils::{collect_columns, split_conjunction};
use datafusion_physical_expr::{PhysicalExpr, conjunction};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::filter::{FilterExec, FilterExecBuilder};

use crate::convert::cast_is_strictly_monotonic;

/// The plan with tests for nulls in filters that round.
pub(super) fn with_null_tests(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
        let (predicate, input) = (filter.predicate(), filter.input().schema());
        let conjuncts = split_conjunction(predicate);
        let rounded = if check_support(predicate, &input) {
            conjuncts.iter().find_map(|conjunct| rounded_column(conjunct, &input))
        } else {
            None
        };
        let Some(column) = rounded else { return Ok(Transformed::no(node)) };
        let is_known = is_not_null(Arc::new(column))?;
        let all = conjunction(conjuncts.into_iter().cloned().chain([is_known]));
        let filter = FilterExecBuilder::from(filter).with_predicate(all).build()?;
        Ok(Transformed::yes(Arc::new(filter) as _))
    })
    .data()
}

/// A column of which the conjunct rounds values; none if it may be true although the column is null.
fn rounded_column(conjunct: &Arc<dyn PhysicalExpr>, input: &SchemaRef) -> Option<Column> {
    let has = |wanted: &dyn Fn(&Arc<dyn PhysicalExpr>) -> bool| {
        conjunct.exists(|part| Ok(wanted(part))).unwrap_or_default()
    };
    let is_and = |part: &Arc<dyn PhysicalExpr>| operator(part) == Some(Operator::And);
    let rounds = |part: &Arc<dyn PhysicalExpr>| {
        // Products of integers wrap, and sums of floats are rounded.
        let is_float = || part.data_type(input).is_ok_and(|data_type| data_type.is_floating());
        match operator(part) {
            Some(Operator::Divide | Operator::Multiply) => return true,
            Some(Operator::Plus | Operator::Minus) if is_float() => return true,
            _ => {}
        }
        part.downcast_ref::<CastExpr>().is_some_and(|cast| {
            let from = cast.expr().data_type(input);
            !from.is_ok_and(|from| cast_is_strictly_monotonic(&from, cast.cast_type()))
        })
    };
    if has(&rounds) && !has(&is_and) {
        collect_columns(conjunct).into_iter().min_by_key(Column::index)
    } else {
        None
    }
}

fn operator(expr: &Arc<dyn PhysicalExpr>) -> Option<Operator> {
    expr.downcast_ref::<BinaryExpr>().map(|binary| *binary.op())
}
