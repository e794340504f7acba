//! Simplification of expressions over a table once they have become expressions over a file.
//!
//! ```text
//! CAST(a AS Int64) > 5     a > 5           a is Int32: the cast preserves order and values
//! day = 3                  true            day is constant in this file
//! CAST(t AS ns) < x        unchanged       t is in milliseconds, and x is between two of them
//! ```
//!
//! DataFusion's own simplifier removes casts of columns by casting the literal in the opposite direction,
//! even if that rounds the literal, or if the cast rounds the column. Here, both must be exact.

use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, Literal, in_list, lit,
};
use datafusion_physical_expr::simplifier::PhysicalExprSimplifier;

use super::cast_is_strictly_monotonic;

/// Returns an expression over `schema` with the same value for every row: constant parts are computed, and
/// comparisons with literals are made in the column's own type if the result is the same.
///
/// # Errors
/// If an expression cannot be built with its new children.
pub(crate) fn simplify(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    let simpler = expr.transform_up(|node| {
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
        match without_cast(&node, schema)? {
            Some(simpler) => Ok(Transformed::yes(simpler)),
            None => Ok(Transformed::no(node)),
        }
    })?;
    Ok(simpler.data)
}

/// Rewrites a comparison of a cast column as a comparison of the column itself.
fn without_cast(node: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    if let Some(list) = node.downcast_ref::<InListExpr>() {
        let Some(cast) = ExactCast::of(list.expr(), schema)? else { return Ok(None) };
        let values =
            list.list().iter().map(|item| Some(lit(cast.undo(item.downcast_ref::<Literal>()?.value())?)));
        let Some(values) = values.collect::<Option<Vec<_>>>() else { return Ok(None) };
        return in_list(cast.inner, values, &list.negated(), schema).map(Some);
    }
    let Some(binary) = node.downcast_ref::<BinaryExpr>() else { return Ok(None) };
    if !is_comparison(*binary.op()) {
        return Ok(None);
    }
    let sides = [(binary.left(), binary.right(), false), (binary.right(), binary.left(), true)];
    for (cast, literal, swapped) in sides {
        let Some(literal) = literal.downcast_ref::<Literal>() else { continue };
        let Some(cast) = ExactCast::of(cast, schema)? else { continue };
        let Some(value) = cast.undo(literal.value()) else { continue };
        let (left, right) = if swapped { (lit(value), cast.inner) } else { (cast.inner, lit(value)) };
        return Ok(Some(Arc::new(BinaryExpr::new(left, *binary.op(), right))));
    }
    Ok(None)
}

/// A cast that keeps values distinct and in order.
struct ExactCast {
    inner: Arc<dyn PhysicalExpr>,
    from: DataType,
    to: DataType,
}

impl ExactCast {
    fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Self>> {
        let Some(cast) = expr.downcast_ref::<CastExpr>() else { return Ok(None) };
        let (from, to) = (cast.expr().data_type(schema)?, cast.cast_type().clone());
        Ok(cast_is_strictly_monotonic(&from, &to).then(|| Self { inner: Arc::clone(cast.expr()), from, to }))
    }

    /// Whether the cast packs values into a dictionary, or unpacks them. DataFusion tells the zeros of floats apart
    /// in dictionaries only.
    fn packs(&self) -> bool {
        let is_dictionary = |data_type: &DataType| matches!(data_type, DataType::Dictionary(..));
        is_dictionary(&self.from) != is_dictionary(&self.to)
    }

    /// The value that the cast converts to `value`.
    fn undo(&self, value: &ScalarValue) -> Option<ScalarValue> {
        if value.is_null() {
            return ScalarValue::try_from(&self.from).ok();
        }
        if value.data_type() != self.to || (self.packs() && is_zero(value)) {
            return None;
        }
        let one = value.to_array().ok()?;
        let before = cast(&one, &self.from).ok()?;
        let after = cast(&before, &self.to).ok()?;
        let same = after.is_valid(0) && after == one;
        same.then(|| ScalarValue::try_from_array(&before, 0).ok())?
    }
}

/// Whether this is a floating-point zero.
fn is_zero(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Dictionary(_, value) => is_zero(value),
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
    use arrow::datatypes::{Field, TimeUnit};
    use datafusion_physical_expr::expressions::{binary, cast, col};

    use super::*;

    /// A comparison of column `c` of type `from`, cast to the type of `value`, after simplifying.
    fn compared(from: DataType, value: ScalarValue) -> String {
        let schema = Schema::new(vec![Field::new("c", from, true)]);
        let column = cast(col("c", &schema).unwrap(), &schema, value.data_type()).unwrap();
        let expr = binary(column, Operator::Lt, lit(value), &schema).unwrap();
        simplify(expr, &schema).unwrap().to_string()
    }

    #[test]
    fn casts_go_where_literals_are_values_of_the_column() {
        let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
        let nanoseconds = |value| ScalarValue::TimestampNanosecond(Some(value), None);
        let decimal = |value, scale| ScalarValue::Decimal128(Some(value), 20, scale);
        for (from, value, expected) in [
            (DataType::Int32, ScalarValue::from(5i64), "c@0 < 5"),
            (DataType::Float32, ScalarValue::from(0.5f64), "c@0 < 0.5"),
            (milliseconds.clone(), nanoseconds(2_000_000), "c@0 < 2"),
            (DataType::Decimal128(10, 2), decimal(15_000, 4), "c@0 < 1.50"),
        ] {
            assert_eq!(compared(from, value), expected);
        }
        for (from, value) in [
            (DataType::Int32, ScalarValue::from(1i64 << 40)),
            (DataType::Float32, ScalarValue::from(0.1f64)),
            (milliseconds, nanoseconds(2_000_500)),
            (DataType::Decimal128(10, 2), decimal(15_001, 4)),
            // The cast itself rounds.
            (DataType::Decimal128(10, 2), decimal(1, 0)),
            (DataType::Float64, ScalarValue::from(1i64)),
        ] {
            assert!(compared(from, value).contains("CAST"), "kept");
        }
    }

    #[test]
    fn a_cast_that_decides_whether_zeros_are_equal_is_kept() {
        let packed = |of: DataType| DataType::Dictionary(Box::new(DataType::Int32), Box::new(of));
        let key =
            |value| ScalarValue::Dictionary(Box::new(DataType::Int64), Box::new(ScalarValue::from(value)));
        for zero in [0.0f64, -0.0] {
            assert!(compared(packed(DataType::Float64), zero.into()).contains("CAST"));
            assert!(compared(packed(DataType::Float32), zero.into()).contains("CAST"));
            assert!(compared(DataType::Float64, key(zero)).contains("CAST"));
            assert!(!compared(packed(DataType::Float64), key(zero)).contains("CAST"));
            assert!(!compared(DataType::Float32, zero.into()).contains("CAST"));
        }
        assert_eq!(compared(packed(DataType::Float64), 0.5f64.into()), "c@0 < 0.5");
    }

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
