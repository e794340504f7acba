//! Simplification of expressions over a table once they have become expressions over a file.
//!
//! ```text
//! CAST(a AS Int64) > 5     a > 5           a is Int32: the cast preserves order and values
//! day = 3                  true            day is constant in this file
//! CAST(t AS ns) < x        t <= y          t is in milliseconds, and x is between y and the next one
//! CAST(t AS ns) = x        unchanged
//! ```
//!
//! DataFusion's own simplifier removes casts of columns by casting the literal in the opposite direction,
//! even if that rounds the literal, or if the cast rounds the column (`tests/it/upstream/pruning.rs`:
//! `the_simplifier_rounds_literals_to_the_type_of_a_column`). Here, both must be exact, or the comparison takes
//! the rounding into account. Values for which the cast would fail, such as 9999-12-31 in nanoseconds, are compared,
//! too.

use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, TimeUnit};
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode};
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
        // The table may cast what the file's column was cast to.
        let mut simplest = Transformed::no(node);
        while let Some(simpler) = without_cast(&simplest.data, schema)? {
            simplest = Transformed::yes(simpler);
        }
        Ok(simplest)
    })
    .data()
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
        if let Some(value) = cast.undo(literal.value()) {
            let (left, right) = if swapped { (lit(value), cast.inner) } else { (cast.inner, lit(value)) };
            return Ok(Some(Arc::new(BinaryExpr::new(left, *binary.op(), right))));
        }
        let op = if swapped { binary.op().swap() } else { Some(*binary.op()) };
        let op = match op {
            Some(Operator::Lt | Operator::LtEq) => Operator::LtEq,
            Some(Operator::Gt | Operator::GtEq) => Operator::Gt,
            _ => continue,
        };
        if literal.value().data_type() != cast.to {
            continue;
        }
        let Some(before) = time_before(literal.value(), &cast.from) else { continue };
        return Ok(Some(Arc::new(BinaryExpr::new(cast.inner, op, lit(before)))));
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
        // A cast to a wider float makes NaN quiet, which sorts after those that are not.
        if value.data_type() != self.to || (self.packs() && is_zero(value)) || is_nan(value) {
            return None;
        }
        let one = value.to_array().ok()?;
        let before = cast(&one, &self.from).ok()?;
        let after = cast(&before, &self.to).ok()?;
        let same = after.is_valid(0) && after == one;
        same.then(|| ScalarValue::try_from_array(&before, 0).ok())?
    }
}

/// The last value of a type of dates or times before this time; `None` if this is a value of that type itself.
fn time_before(time: &ScalarValue, data_type: &DataType) -> Option<ScalarValue> {
    let nanoseconds = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1_000_000_000i128,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    let DataType::Timestamp(unit, _) = time.data_type() else { return None };
    let Ok(ScalarValue::Int64(Some(time))) = time.cast_to(&DataType::Int64) else { return None };
    let time = i128::from(time) * nanoseconds(&unit);
    let before = |step: i128| (time.rem_euclid(step) != 0).then(|| time.div_euclid(step));
    match data_type {
        DataType::Date32 => {
            let day = before(24 * 60 * 60 * nanoseconds(&TimeUnit::Second))?;
            Some(ScalarValue::Date32(Some(i32::try_from(day).ok()?)))
        }
        DataType::Timestamp(unit, _) => {
            let time = i64::try_from(before(nanoseconds(unit))?).ok()?;
            ScalarValue::Int64(Some(time)).cast_to(data_type).ok()
        }
        _ => None,
    }
}

fn is_nan(value: &ScalarValue) -> bool {
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
        let decimal = |value, scale| ScalarValue::Decimal128(Some(value), 20, scale);
        for (from, value, expected) in [
            (DataType::Int32, ScalarValue::from(5i64), "c@0 < 5"),
            (DataType::Float32, ScalarValue::from(0.5f64), "c@0 < 0.5"),
            (milliseconds, nanoseconds(2_000_000), "c@0 < 2"),
            (DataType::Decimal128(10, 2), decimal(15_000, 4), "c@0 < 1.50"),
        ] {
            assert_eq!(compared(from, value), expected);
        }
        for (from, value) in [
            (DataType::Int32, ScalarValue::from(1i64 << 40)),
            (DataType::Float32, ScalarValue::from(0.1f64)),
            (DataType::Decimal128(10, 2), decimal(15_001, 4)),
            // The cast itself rounds.
            (DataType::Decimal128(10, 2), decimal(1, 0)),
            (DataType::Float64, ScalarValue::from(1i64)),
            // Those that are not quiet become so.
            (DataType::Float32, ScalarValue::from(f64::NAN)),
        ] {
            assert!(compared(from, value).contains("CAST"), "kept");
        }
    }

    #[test]
    fn several_casts_go_one_after_the_other() {
        let schema = Schema::new(vec![Field::new("c", DataType::Int16, true)]);
        let column = cast(col("c", &schema).unwrap(), &schema, DataType::Int32).unwrap();
        let column = cast(column, &schema, DataType::Int64).unwrap();
        for (value, expected) in [(5i64, "c@0 < 5"), (70_000, "CAST(c@0 AS Int32) < 70000")] {
            let expr = binary(Arc::clone(&column), Operator::Lt, lit(value), &schema).unwrap();
            assert_eq!(simplify(expr, &schema).unwrap().to_string(), expected);
        }
    }

    fn nanoseconds(value: i64) -> ScalarValue {
        ScalarValue::TimestampNanosecond(Some(value), None)
    }

    #[test]
    fn times_between_two_values_of_the_column_are_rounded_and_none_changes_sides() {
        const DAY: i64 = 86_400_000_000_000;
        use Operator::{Eq, Gt, GtEq, Lt, LtEq};
        let seconds = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Second, zone.map(Into::into));
        let zoned = ScalarValue::TimestampNanosecond(Some(-500), Some("UTC".into()));
        for (from, value, before, after) in [
            (DataType::Date32, nanoseconds(DAY + 5), "1970-01-02", "1970-01-03"),
            (DataType::Date32, nanoseconds(-5), "1969-12-31", "1970-01-01"),
            (DataType::Date32, ScalarValue::TimestampSecond(Some(1), None), "1970-01-01", "1970-01-02"),
            (seconds(None), nanoseconds(2_000_000_500), "1970-01-01T00:00:02", "1970-01-01T00:00:03"),
            (seconds(None), nanoseconds(-2_000_000_500), "1969-12-31T23:59:57", "1969-12-31T23:59:58"),
            (seconds(Some("+02:00")), zoned, "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"),
        ] {
            let schema = Schema::new(vec![Field::new("c", from.clone(), true)]);
            let column = cast(col("c", &schema).unwrap(), &schema, value.data_type()).unwrap();
            let simple = |left: &Arc<dyn PhysicalExpr>, op, right: &Arc<dyn PhysicalExpr>| {
                let expr = binary(Arc::clone(left), op, Arc::clone(right), &schema).unwrap();
                simplify(expr, &schema).unwrap()
            };
            let literal = lit(value);
            let [kept, next] =
                [before, after].map(|value| lit(ScalarValue::from(value).cast_to(&from).unwrap()));
            for (op, swapped, expected) in
                [(Lt, Gt, LtEq), (LtEq, GtEq, LtEq), (Gt, Lt, Gt), (GtEq, LtEq, Gt)]
            {
                let expected = format!("c@0 {expected} {kept}");
                assert_eq!(simple(&column, op, &literal).to_string(), expected);
                assert_eq!(simple(&literal, swapped, &column).to_string(), expected);
            }
            assert!(simple(&column, Eq, &literal).to_string().contains("CAST"));
            // As the cast itself would compare them.
            let is_less = |value: &Arc<dyn PhysicalExpr>| {
                let cast = cast(Arc::clone(value), &schema, column.data_type(&schema).unwrap()).unwrap();
                let less = simple(&cast, Lt, &literal);
                less.downcast_ref::<Literal>().unwrap().value().clone()
            };
            assert_eq!((is_less(&kept), is_less(&next)), (true.into(), false.into()));
        }
    }

    #[test]
    fn times_of_other_types_than_the_cast_are_not_rounded() {
        assert_eq!(time_before(&nanoseconds(86_400_000_000_000), &DataType::Date32), None);
        let schema = Schema::new(vec![Field::new("c", DataType::Date32, true)]);
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let column = cast(col("c", &schema).unwrap(), &schema, seconds).unwrap();
        for literal in [nanoseconds(0), nanoseconds(5)] {
            let expr: Arc<dyn PhysicalExpr> =
                Arc::new(BinaryExpr::new(Arc::clone(&column), Operator::Lt, lit(literal)));
            assert!(simplify(expr, &schema).unwrap().to_string().contains("CAST"));
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
