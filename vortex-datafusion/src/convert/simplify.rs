//! Simplification of expressions over a table once they have become expressions over a file.
//!
//! ```text
//! CAST(a AS Int64) > 5     a > 5           a is Int32: the cast preserves order and values
//! day = 3                  true            day is constant in this file
//! CAST(t AS ns) < x        t < y           t is in milliseconds, and y is the first one after x
//! CAST(t AS Date32) = x    t BETWEEN y, z  the first and the last time of the day
//! ```
//!
//! DataFusion's own simplifier removes casts of columns by casting the literal in the opposite direction,
//! even if that rounds the literal, or if the cast rounds the column (`tests/it/upstream/pruning.rs`:
//! `the_simplifier_rounds_literals_to_the_type_of_a_column`). Here, both must be exact, or the comparison takes
//! the rounding into account. Values for which the cast would fail, such as 9999-12-31 in nanoseconds, are compared,
//! too.

use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode};
use datafusion_common::utils::normalize_float_zero_scalar;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, Literal, in_list, lit,
};
use datafusion_physical_expr::simplifier::PhysicalExprSimplifier;

use super::boundary::Boundary;
use super::cast_is_strictly_monotonic;
use super::chains::joined;

/// Values of a list whose boundaries are looked for. To compare with more ranges takes longer than to cast the column
/// and look its values up.
const MOST_SEARCHED: usize = 8;

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

/// Rewrites a comparison of a cast column as one of the column itself.
fn without_cast(node: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    if let Some(list) = node.downcast_ref::<InListExpr>() {
        let Some(cast) = Cast::of(list.expr(), schema)? else { return Ok(None) };
        let values = list.list().iter().map(|item| Some(item.downcast_ref::<Literal>()?.value()));
        let Some(values) = values.collect::<Option<Vec<_>>>() else { return Ok(None) };
        return cast.in_list(&values, list.negated(), schema);
    }
    let Some(binary) = node.downcast_ref::<BinaryExpr>() else { return Ok(None) };
    if !is_comparison(*binary.op()) {
        return Ok(None);
    }
    let sides = [(binary.left(), binary.right(), false), (binary.right(), binary.left(), true)];
    for (cast, literal, swapped) in sides {
        let Some(literal) = literal.downcast_ref::<Literal>() else { continue };
        let Some(cast) = Cast::of(cast, schema)? else { continue };
        let op = if swapped { binary.op().swap() } else { Some(*binary.op()) };
        if let Some(op) = op
            && let Some(simpler) = cast.compare(op, literal.value())
        {
            return Ok(Some(simpler));
        }
    }
    Ok(None)
}

/// A column, or another expression, that is cast.
struct Cast {
    inner: Arc<dyn PhysicalExpr>,
    from: DataType,
    to: DataType,
}

impl Cast {
    fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Self>> {
        let Some(cast) = expr.downcast_ref::<CastExpr>() else { return Ok(None) };
        let (from, to) = (cast.expr().data_type(schema)?, cast.cast_type().clone());
        Ok(Some(Self { inner: Arc::clone(cast.expr()), from, to }))
    }

    /// Whether the cast packs values into a dictionary, or unpacks them. DataFusion tells the zeros of floats apart
    /// in dictionaries only.
    fn packs(&self) -> bool {
        let is_dictionary = |data_type: &DataType| matches!(data_type, DataType::Dictionary(..));
        is_dictionary(&self.from) != is_dictionary(&self.to)
    }

    /// The only value that the cast converts to `value`, if it keeps values distinct and in order.
    fn undo(&self, value: &ScalarValue) -> Option<ScalarValue> {
        if !cast_is_strictly_monotonic(&self.from, &self.to) {
            return None;
        }
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

    fn is(&self, op: Operator, value: ScalarValue) -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(Arc::clone(&self.inner), op, lit(value)))
    }

    /// The comparison with a constant.
    fn compare(&self, op: Operator, constant: &ScalarValue) -> Option<Arc<dyn PhysicalExpr>> {
        if let Some(value) = self.undo(constant) {
            return Some(self.is(op, value));
        }
        let boundary = (constant.data_type() == self.to).then(|| Boundary::of(&self.from, constant))??;
        let [least, greatest] = &boundary.all;
        // Of all values; comparisons of null are null, too.
        let every = |is_true: bool| match is_true {
            // Some are not among them.
            _ if self.from.is_floating() => None,
            true => Some(self.is(Operator::LtEq, greatest.clone())),
            false => Some(self.is(Operator::Lt, least.clone())),
        };
        let side = |op, value: Option<ScalarValue>| match value {
            Some(value) => Some(self.is(op, value)),
            None => every(op == Operator::Lt),
        };
        match op {
            Operator::Lt => side(Operator::Lt, boundary.first),
            Operator::LtEq => side(Operator::Lt, boundary.after),
            Operator::Gt => side(Operator::GtEq, boundary.after),
            Operator::GtEq => side(Operator::GtEq, boundary.first),
            Operator::Eq | Operator::NotEq => {
                let is_equal = op == Operator::Eq;
                let Some((first, last)) = boundary.first.zip(boundary.last) else { return every(!is_equal) };
                if first == last {
                    return Some(self.is(op, first));
                }
                // It would be computed twice.
                if !self.inner.is::<Column>() {
                    return None;
                }
                let (ops, both) = if is_equal {
                    ([Operator::GtEq, Operator::LtEq], Operator::And)
                } else {
                    ([Operator::Lt, Operator::Gt], Operator::Or)
                };
                Some(Arc::new(BinaryExpr::new(self.is(ops[0], first), both, self.is(ops[1], last))))
            }
            _ => None,
        }
    }

    /// Whether the column is, or is not, one of these values.
    fn in_list(
        &self,
        values: &[&ScalarValue],
        negated: bool,
        schema: &Schema,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let exact = values.iter().map(|value| self.undo(value).map(lit)).collect::<Option<Vec<_>>>();
        if let Some(exact) = exact {
            return in_list(Arc::clone(&self.inner), exact, &negated, schema).map(Some);
        }
        // Comparisons take -0.0 for 0.0, lists do not.
        let is_plain = |value: &ScalarValue| normalize_float_zero_scalar(value.clone()) == *value;
        if values.len() > MOST_SEARCHED || !values.iter().all(|value| is_plain(value)) {
            return Ok(None);
        }
        let (op, all) = if negated { (Operator::NotEq, Operator::And) } else { (Operator::Eq, Operator::Or) };
        let each = values.iter().map(|value| self.compare(op, value)).collect::<Option<Vec<_>>>();
        Ok(each.filter(|each| !each.is_empty()).map(|each| joined(all, &each)))
    }
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
    use arrow::array::{ArrayRef, RecordBatch, new_null_array};
    use arrow::datatypes::{Field, TimeUnit};
    use datafusion_physical_expr::expressions::{binary, cast, col};

    use super::super::boundary::{Values, cast_each};
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
            // Otherwise, with the next value of the column.
            (DataType::Int32, ScalarValue::from(1i64 << 40), "c@0 <= 2147483647"),
            (DataType::Float32, ScalarValue::from(0.1f64), "c@0 < 0.1"),
            (DataType::Decimal128(10, 2), decimal(15_001, 4), "c@0 < 1.51"),
            (DataType::Decimal128(10, 2), decimal(1, 0), "c@0 < 0.50"),
        ] {
            assert_eq!(compared(from, value), expected);
        }
        for (from, value) in [
            // The cast fails for some values, which is an error.
            (DataType::Float64, ScalarValue::from(1i64)),
            (DataType::Int64, ScalarValue::from(1i32)),
            (DataType::Decimal128(3, 0), ScalarValue::from(100i8)),
            (DataType::Decimal128(5, 1), ScalarValue::from(100u32)),
            (DataType::Decimal128(38, 10), ScalarValue::from(1i32)),
            (DataType::UInt64, ScalarValue::Decimal64(Some(1), 18, 4)),
            // It might even panic.
            (DataType::Decimal128(5, -2), ScalarValue::from(0.5)),
            // Some would become -0.0.
            (DataType::Decimal128(38, 10), ScalarValue::Float16(Some(half_zero()))),
            // Those that are not quiet become so.
            (DataType::Float32, ScalarValue::from(f64::NAN)),
        ] {
            assert!(compared(from, value).contains("CAST"), "kept");
        }
    }

    fn half_zero() -> <arrow::datatypes::Float16Type as arrow::array::ArrowPrimitiveType>::Native {
        Default::default()
    }

    #[test]
    fn several_casts_go_one_after_the_other() {
        let schema = Schema::new(vec![Field::new("c", DataType::Int16, true)]);
        let column = cast(col("c", &schema).unwrap(), &schema, DataType::Int32).unwrap();
        let column = cast(column, &schema, DataType::Int64).unwrap();
        for (value, expected) in [(5i64, "c@0 < 5"), (70_000, "c@0 <= 32767")] {
            let expr = binary(Arc::clone(&column), Operator::Lt, lit(value), &schema).unwrap();
            assert_eq!(simplify(expr, &schema).unwrap().to_string(), expected);
        }
    }

    fn nanoseconds(value: i64) -> ScalarValue {
        ScalarValue::TimestampNanosecond(Some(value), None)
    }

    #[test]
    fn times_between_two_values_of_the_column_are_compared_with_the_next_one() {
        const DAY: i64 = 86_400_000_000_000;
        use Operator::{Eq, Gt, GtEq, Lt, LtEq};
        let seconds = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Second, zone.map(Into::into));
        let zoned = ScalarValue::TimestampNanosecond(Some(500), Some("UTC".into()));
        for (from, value, next) in [
            (DataType::Date32, nanoseconds(DAY + 5), "1970-01-03"),
            (DataType::Date32, nanoseconds(-5), "1970-01-01"),
            (DataType::Date32, ScalarValue::TimestampSecond(Some(1), None), "1970-01-02"),
            (seconds(None), nanoseconds(2_000_000_500), "1970-01-01T00:00:03"),
            (seconds(None), nanoseconds(-2_000_000_500), "1969-12-31T23:59:58"),
            (seconds(Some("+02:00")), zoned, "1970-01-01T00:00:01Z"),
        ] {
            let schema = Schema::new(vec![Field::new("c", from.clone(), true)]);
            let column = cast(col("c", &schema).unwrap(), &schema, value.data_type()).unwrap();
            let simple = |left: &Arc<dyn PhysicalExpr>, op, right: &Arc<dyn PhysicalExpr>| {
                simplify(binary(Arc::clone(left), op, Arc::clone(right), &schema).unwrap(), &schema).unwrap()
            };
            let literal = lit(value);
            let next = lit(ScalarValue::from(next).cast_to(&from).unwrap());
            for (op, swapped, expected) in
                [(Lt, Gt, Lt), (LtEq, GtEq, Lt), (Gt, Lt, GtEq), (GtEq, LtEq, GtEq)]
            {
                let expected = format!("c@0 {expected} {next}");
                assert_eq!(simple(&column, op, &literal).to_string(), expected);
                assert_eq!(simple(&literal, swapped, &column).to_string(), expected);
            }
            let least = ScalarValue::Int64(Some(i64::MIN));
            let least = if from == DataType::Date32 { ScalarValue::Int32(Some(i32::MIN)) } else { least };
            let never = format!("c@0 < {}", lit(least.cast_to(&from).unwrap()));
            assert_eq!(simple(&column, Eq, &literal).to_string(), never);
        }
    }

    /// Values of a type: some random ones, and those around its limits and zero.
    fn samples(of: &DataType, random: &mut impl FnMut() -> u64) -> ArrayRef {
        let values = Values::of(of).unwrap();
        let edges = [values.least, -1000, -2, 0, 1000, values.greatest - 1];
        let mut numbers: Vec<i128> = edges.into_iter().flat_map(|edge| [edge, edge + 1]).collect();
        for _ in 0..60 {
            numbers.push((i128::from(random()) << 64 | i128::from(random())) >> (random() % 128));
        }
        numbers.retain(|number| (values.least..=values.greatest).contains(number));
        values.array(&numbers).unwrap()
    }

    #[test]
    fn comparisons_of_casts_have_the_same_outcome_without_them() {
        use DataType::{
            Date32, Date64, Decimal32, Decimal64, Decimal128, Float16, Float32, Float64, Int8, Int16, Int32,
            Int64, Timestamp, UInt8, UInt32, UInt64,
        };
        use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        let zone = |unit| Timestamp(unit, Some("+02:00".into()));
        let mut state = 11u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut without, mut all) = (0, 0);
        for (from, to) in [
            (Timestamp(Millisecond, None), Date32),
            (Timestamp(Nanosecond, None), Date32),
            (Timestamp(Second, None), Date64),
            (Timestamp(Microsecond, None), Timestamp(Second, None)),
            (Timestamp(Second, None), Timestamp(Nanosecond, None)),
            (zone(Nanosecond), zone(Millisecond)),
            (Date32, Timestamp(Nanosecond, None)),
            (Date64, Date32),
            (Int64, Float64),
            (UInt64, Float32),
            (Int32, Float16),
            (Int8, Float64),
            (Int16, Int64),
            (UInt8, Int16),
            (UInt32, Decimal128(12, 2)),
            (Int64, Decimal128(38, 5)),
            (Float16, Float64),
            (Float32, Float64),
            (Decimal128(38, 10), Float64),
            (Decimal64(18, 4), Float32),
            (Decimal128(38, 10), Decimal128(38, 15)),
            (Decimal128(20, 4), Decimal128(18, 1)),
            (Decimal32(9, 2), Decimal128(11, 4)),
            (Decimal64(12, 3), Int64),
        ] {
            let schema = Arc::new(Schema::new(vec![Field::new("c", from.clone(), true)]));
            let values = samples(&from, &mut next);
            let casts = cast_each(&values, &to).unwrap();
            // The comparison fails for the others.
            let known = arrow::compute::is_not_null(&casts).unwrap();
            let known = arrow::compute::filter(&values, &known).unwrap();
            let values = arrow::compute::concat(&[&known, &new_null_array(&from, 1)]).unwrap();
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![values]).unwrap();
            let constants = [casts, samples(&to, &mut next)];
            for constants in constants {
                for at in (0..constants.len()).filter(|at| constants.is_valid(*at)) {
                    let constant = ScalarValue::try_from_array(&constants, at).unwrap();
                    for op in [Eq, NotEq, Lt, LtEq, Gt, GtEq] {
                        let column = cast(col("c", &schema).unwrap(), &schema, to.clone()).unwrap();
                        let expr = binary(column, op, lit(constant.clone()), &schema).unwrap();
                        let simple = simplify(Arc::clone(&expr), &schema).unwrap();
                        without += usize::from(!simple.to_string().contains("CAST"));
                        all += 1;
                        let [expected, found] = [expr, simple]
                            .map(|expr| expr.evaluate(&batch).unwrap().into_array(batch.num_rows()).unwrap());
                        assert_eq!(&expected, &found, "{from} as {to} {op} {constant}");
                    }
                }
            }
        }
        assert!(without * 10 > all * 9, "{without} of {all}");
    }

    #[test]
    fn lists_of_casts_have_the_same_outcome_without_them() {
        let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
        let days = [0, -1, 19_000].map(|day| ScalarValue::Date32(Some(day))).to_vec();
        let floats = [1.0, 2.5, 0.0].map(|value: f64| ScalarValue::from(value)).to_vec();
        const DAY: i64 = 86_400_000;
        for (from, values, list) in [
            (milliseconds, [0, DAY, DAY - 1, -1, -DAY, -DAY - 1, 19_000 * DAY, 19_001 * DAY], days),
            (DataType::Int64, [0, 1, 2, 3, -1, 1 << 53, 5, 4], floats),
        ] {
            let schema = Arc::new(Schema::new(vec![Field::new("c", from.clone(), true)]));
            let values = values.map(|value| ScalarValue::Int64(Some(value)).cast_to(&from).unwrap());
            let values = ScalarValue::iter_to_array(values.into_iter().chain([(&from).try_into().unwrap()]));
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![values.unwrap()]).unwrap();
            let to = list[0].data_type();
            for (list, negated) in [(&list, false), (&list, true), (&list[..1].to_vec(), false)] {
                let column = cast(col("c", &schema).unwrap(), &schema, to.clone()).unwrap();
                let list = list.iter().map(|value| lit(value.clone())).collect();
                let expr = in_list(column, list, &negated, &schema).unwrap();
                let simple = simplify(Arc::clone(&expr), &schema).unwrap();
                assert!(!simple.to_string().contains("CAST"), "{simple}");
                let outcome = |expr: Arc<dyn PhysicalExpr>| {
                    expr.evaluate(&batch).unwrap().into_array(batch.num_rows()).unwrap()
                };
                assert_eq!(&outcome(expr), &outcome(simple));
            }
        }
        let schema = Schema::new(vec![Field::new("c", DataType::Int64, true)]);
        let column = cast(col("c", &schema).unwrap(), &schema, DataType::Float64).unwrap();
        // 0 is not among the first, and it is faster to look for so many.
        for list in [vec![lit(-0.0), lit(0.5)], (0..50).map(|value| lit(f64::from(value) + 0.5)).collect()] {
            let expr = in_list(Arc::clone(&column), list, &false, &schema).unwrap();
            assert!(simplify(expr, &schema).unwrap().to_string().contains("CAST"));
        }
    }

    #[test]
    fn times_of_other_types_than_the_cast_are_not_rounded() {
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
