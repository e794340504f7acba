//! Simplification of expressions over a table once they have become expressions over a file.
//!
//! ```text
//! CAST(a AS Int64) > 5             a > 5       a is Int32: the cast preserves order and values
//! day = 3                          true        day is constant in this file
//! date_trunc('day', t) < x         t < y       y is the first time of the day after x: see `steps`
//! left(s, 2) = 'ab'                s LIKE 'ab%'    see `prefixes.rs`
//! ```
//!
//! DataFusion's own simplifier removes casts of columns by casting the literal in the opposite direction,
//! even if that rounds the literal, or if the cast rounds the column (`tests/it/upstream/pruning.rs`:
//! `the_simplifier_rounds_literals_to_the_type_of_a_column`). Here, both must be exact, or the comparison takes
//! the rounding into account.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal};
use datafusion_physical_expr::simplifier::PhysicalExprSimplifier;

use super::prefixes::Prefix;
use super::steps::Step;

/// Returns an expression over `schema` with the same value for every row: constant parts are computed, and
/// comparisons with literals are made in the column's own type if the result is the same.
///
/// # Errors
/// If an expression cannot be built with its new children.
pub(crate) fn simplify(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    expr.transform_up(|node| {
        if node.is::<Literal>() {
            return Ok(Transformed::no(node));
        }
        // Operands come first, so that constant ones are literals by now.
        if !node.is::<Column>() && node.children().into_iter().all(|operand| operand.is::<Literal>()) {
            let constant = PhysicalExprSimplifier::new(schema).simplify(Arc::clone(&node))?;
            return Ok(if constant.is::<Literal>() {
                Transformed::yes(constant)
            } else {
                Transformed::no(node)
            });
        }
        Ok(match simplest(&node, schema)? {
            Some(simplest) => Transformed::yes(simplest),
            None => Transformed::no(node),
        })
    })
    .data()
}

/// The expression without the [steps](Step) from a column to what it compares; `None` if it has none.
pub(super) fn simplest(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    // The table may cast what the file's column was cast to.
    let mut simpler = without_step(expr, schema)?;
    while let Some(simplest) = &simpler
        && let Some(simplest) = without_step(simplest, schema)?
    {
        simpler = Some(simplest);
    }
    Ok(simpler)
}

/// Rewrites a comparison of what a step makes of an operand as one of the operand.
fn without_step(node: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    if let Some(list) = node.downcast_ref::<InListExpr>() {
        let values = list.list().iter().map(|item| Some(item.downcast_ref::<Literal>()?.value()));
        let Some(values) = values.collect::<Option<Vec<_>>>() else { return Ok(None) };
        return match Step::of(list.expr(), schema)? {
            Some(step) => step.in_list(&values, list.negated(), schema),
            None => {
                Ok(Prefix::of(list.expr(), schema)?
                    .and_then(|prefix| prefix.in_list(&values, list.negated())))
            }
        };
    }
    let Some(binary) = node.downcast_ref::<BinaryExpr>() else { return Ok(None) };
    if !is_comparison(*binary.op()) {
        return Ok(None);
    }
    let sides = [(binary.left(), binary.right(), false), (binary.right(), binary.left(), true)];
    for (operand, literal, swapped) in sides {
        let Some(literal) = literal.downcast_ref::<Literal>() else { continue };
        let op = if swapped { binary.op().swap() } else { Some(*binary.op()) };
        let Some(op) = op else { continue };
        let simpler = match Step::of(operand, schema)? {
            Some(step) => step.compare(op, literal.value(), schema)?,
            None => Prefix::of(operand, schema)?.and_then(|prefix| prefix.compare(op, literal.value())),
        };
        if simpler.is_some() {
            return Ok(simpler);
        }
    }
    Ok(None)
}

pub(super) fn is_nan(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Dictionary(_, value) | ScalarValue::RunEndEncoded(_, _, value) => is_nan(value),
        ScalarValue::Float16(Some(value)) => value.is_nan(),
        ScalarValue::Float32(Some(value)) => value.is_nan(),
        ScalarValue::Float64(Some(value)) => value.is_nan(),
        _ => false,
    }
}

/// Whether this is a floating-point zero.
pub(crate) fn is_zero(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Dictionary(_, value) | ScalarValue::RunEndEncoded(_, _, value) => is_zero(value),
        ScalarValue::Float16(Some(value)) => value.to_f32() == 0.0,
        ScalarValue::Float32(Some(value)) => *value == 0.0,
        ScalarValue::Float64(Some(value)) => *value == 0.0,
        _ => false,
    }
}

fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion_physical_expr::expressions::{binary, cast, col, in_list, lit};

    use super::*;

    #[test]
    fn what_is_constant_is_computed() {
        let schema = Schema::new(vec![Field::new("c", DataType::Int32, true)]);
        let four = binary(lit(1i32), Operator::Plus, lit(3i32), &schema).unwrap();
        let expr = binary(col("c", &schema).unwrap(), Operator::Eq, four, &schema).unwrap();
        assert_eq!(simplify(expr, &schema).unwrap().to_string(), "c@0 = 4");
        let wide = cast(col("c", &schema).unwrap(), &schema, DataType::Int64).unwrap();
        let listed = in_list(wide, vec![lit(1i64), lit(2i64)], &false, &schema).unwrap();
        assert!(!simplify(listed, &schema).unwrap().to_string().contains("CAST"));
    }
}
