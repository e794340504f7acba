//! Estimates the share of rows that pass a filter from the bounds of zones.
//!
//! Values are assumed to be distributed evenly between the minimum and the maximum, and columns to be
//! independent. That is rarely true, but good enough to distinguish a filter that leaves rows everywhere
//! from one that selects only a few.

use arrow::array::ArrayRef;

use crate::dtype::DType;
use crate::expr::{CompareOp, Expr, FieldPath, Predicate};
use crate::layout::ZoneMap;
use crate::scalar::{Scalar, Value};

/// The estimated share of rows that pass, between 0 and 1; `None` if there is no estimate.
pub(crate) fn expected_share(expr: &Expr, spans: &dyn Fn(&FieldPath) -> Option<Span>) -> Option<f64> {
    match expr {
        Expr::Literal(outcome) => Some(if *outcome == Some(true) { 1.0 } else { 0.0 }),
        Expr::Field(_, Predicate::IsNotNull) => Some(1.0),
        Expr::Field(path, predicate) => of_predicate(predicate, &spans(path)?),
        Expr::And(parts) => {
            parts.iter().try_fold(1.0, |share, part| Some(share * expected_share(part, spans)?))
        }
        Expr::Or(parts) => {
            parts.iter().try_fold(0.0f64, |share, part| Some(share.max(expected_share(part, spans)?)))
        }
        Expr::Not(inner) => Some(1.0 - expected_share(inner, spans)?),
        Expr::InTurn(_) | Expr::Rows(_) | Expr::Dynamic(_) => None,
    }
}

/// The range of the values of a column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    min: f64,
    max: f64,
    /// Whether the values are integers.
    whole: bool,
}

impl Span {
    /// That of all zones; `None` if it is unknown, or values are no numbers.
    pub(crate) fn of(map: &ZoneMap) -> Option<Self> {
        let numbers = |bounds: &Option<ArrayRef>| -> Option<Vec<f64>> {
            let bounds = bounds.as_ref()?;
            let dtype = map.dtype.with_nullable(true);
            let number = |zone| {
                let bound = Scalar::from_arrow(bounds.as_ref(), zone, &dtype).ok()?;
                if bound.is_null() { Some(None) } else { Some(Some(number(&bound)?)) }
            };
            let numbers: Option<Vec<_>> = (0..bounds.len()).map(number).collect();
            Some(numbers?.into_iter().flatten().collect())
        };
        let min = numbers(&map.min)?.into_iter().reduce(f64::min)?;
        let max = numbers(&map.max)?.into_iter().reduce(f64::max)?;
        let whole = !matches!(map.dtype.storage(), DType::Primitive(ptype, _) if !ptype.is_integer());
        (min <= max).then_some(Self { min, max, whole })
    }

    /// The share of values below a bound.
    fn below(&self, bound: f64) -> f64 {
        if self.max > self.min {
            ((bound - self.min) / (self.max - self.min)).clamp(0.0, 1.0)
        } else {
            f64::from(u8::from(bound > self.min))
        }
    }

    /// The share of a single value.
    fn one(&self, value: f64) -> Option<f64> {
        if value < self.min || value > self.max {
            Some(0.0)
        } else {
            self.whole.then(|| 1.0 / (self.max - self.min + 1.0))
        }
    }
}

fn of_predicate(predicate: &Predicate, span: &Span) -> Option<f64> {
    match predicate {
        Predicate::Compare(op, constant) => {
            let constant = number(constant)?;
            Some(match op {
                CompareOp::Eq => span.one(constant)?,
                CompareOp::NotEq => 1.0 - span.one(constant)?,
                CompareOp::Lt | CompareOp::LtEq => span.below(constant),
                CompareOp::Gt | CompareOp::GtEq => 1.0 - span.below(constant),
            })
        }
        Predicate::Between(low, high) => {
            Some((span.below(number(high)?) - span.below(number(low)?)).max(0.0))
        }
        Predicate::In(list) => {
            let shares = list.values().iter().map(|value| span.one(number(value)?));
            let share = shares.sum::<Option<f64>>()?.min(1.0);
            Some(if list.negated() { 1.0 - share } else { share })
        }
        Predicate::Like(_) | Predicate::IsNull | Predicate::IsNotNull => None,
    }
}

fn number(scalar: &Scalar) -> Option<f64> {
    match scalar.value() {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::F16(value) => Some(value.to_f64()),
        Value::F32(value) => Some(f64::from(*value)),
        Value::F64(value) => Some(*value),
        Value::Decimal(value) => value.to_i128().map(|value| value as f64),
        _ => scalar.as_i128().map(|value| value as f64),
    }
    .filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int32Array;

    use super::*;
    use crate::dtype::PType;
    use crate::expr::{FieldPath, Like};

    fn int(value: i64) -> Scalar {
        Scalar::try_new(DType::Primitive(PType::I32, false), Value::Int(value)).unwrap()
    }

    /// The share among the values from 0 to 99, in two zones.
    fn share(predicate: Predicate) -> Option<f64> {
        let bounds = |values: [i32; 2]| Some(Arc::new(Int32Array::from_iter_values(values)) as ArrayRef);
        let map = ZoneMap {
            dtype: DType::Primitive(PType::I32, false),
            zone_len: 100,
            row_count: 200,
            zone_count: 2,
            min: bounds([40, 0]),
            max: bounds([99, 60]),
            null_count: None,
            nan_count: None,
            sum: None,
            is_exact: true,
        };
        let expr = Expr::Field(FieldPath::new(["c"]), predicate);
        expected_share(&expr, &|_| Span::of(&map))
    }

    #[test]
    fn values_are_taken_to_lie_evenly_between_the_bounds() {
        let about = |predicate| (share(predicate).unwrap() * 100.0).round();
        assert_eq!(about(Predicate::Compare(CompareOp::Lt, int(33))), 33.0);
        assert_eq!(about(Predicate::Compare(CompareOp::GtEq, int(33))), 67.0);
        assert_eq!(about(Predicate::Compare(CompareOp::Eq, int(33))), 1.0);
        assert_eq!(about(Predicate::Compare(CompareOp::Eq, int(100))), 0.0);
        assert_eq!(about(Predicate::Between(int(-5), int(50))), 51.0);
        assert_eq!(about(Predicate::Between(int(50), int(40))), 0.0);
    }

    #[test]
    fn of_what_has_no_bounds_nothing_is_said() {
        let like = Like::new("a%");
        assert_eq!(share(Predicate::Like(like)), None);
        let expr = Expr::Field(FieldPath::new(["c"]), Predicate::Compare(CompareOp::Lt, int(3)));
        assert_eq!(expected_share(&expr, &|_| None), None);
    }
}
