//! Predicates on values that are represented by integers, evaluated on the integers.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;

use crate::Result;
use crate::array::EncodedArray;
use crate::dtype::DType;
use crate::expr::{CompareOp, InList, Interval, Predicate};
use crate::scalar::Scalar;

/// A predicate on values, converted to one on the integers that represent them.
#[derive(Debug)]
pub(in crate::encodings) enum IntegerTest {
    /// This predicate on the integers has the same outcome.
    Predicate(Predicate),
    /// This predicate on the integers has the opposite outcome; for nulls, both are unknown.
    Not(Predicate),
    /// All rows that are not null have this outcome, whatever their integers are.
    Uniform(bool),
}

impl IntegerTest {
    /// Converts a predicate; `None` if there is no equivalent. The order of the integers, which have type `integers`,
    /// is that of the values. `equal_to` returns the integers of the values that equal a constant, as
    /// [`Interval::of_represented`]; `None` for constants of other types.
    pub(in crate::encodings) fn of(
        predicate: &Predicate,
        integers: &DType,
        equal_to: impl Fn(&Scalar) -> Option<Range<i128>>,
    ) -> Option<Self> {
        match predicate {
            _ if predicate.is_null_test() => Some(Self::Predicate(predicate.clone())),
            // Null constants make the outcome of values unknown, and nothing is in an empty list, not even null.
            _ if !predicate.is_unknown_for_nulls_only() => None,
            Predicate::In(list) => Self::of_list(list, integers, equal_to),
            _ => {
                let interval = Interval::of_represented(predicate, integers.as_ptype()?, equal_to)?;
                Self::within(interval, integers)
            }
        }
    }

    /// A test whether integers of a type are accepted by an interval.
    pub(in crate::encodings) fn within(interval: Interval, integers: &DType) -> Option<Self> {
        let (min, max) = integers.as_ptype()?.integer_range()?;
        let Interval { low, high, outside } = interval;
        if interval.is_empty() {
            return Some(Self::Uniform(outside));
        }
        let constant = |value| Scalar::integer(integers, value);
        let inside = match (low == min, high == max) {
            (true, true) => return Some(Self::Uniform(!outside)),
            (true, false) => Predicate::Compare(CompareOp::LtEq, constant(high)?),
            (false, true) => Predicate::Compare(CompareOp::GtEq, constant(low)?),
            (false, false) if low == high => Predicate::Compare(CompareOp::Eq, constant(low)?),
            (false, false) => Predicate::Between(constant(low)?, constant(high)?),
        };
        Some(if outside { Self::Not(inside) } else { Self::Predicate(inside) })
    }

    /// Converts a list of constants, which has no nulls and is not empty.
    fn of_list(
        list: &InList,
        integers: &DType,
        equal_to: impl Fn(&Scalar) -> Option<Range<i128>>,
    ) -> Option<Self> {
        let mut constants = Vec::with_capacity(list.values().len());
        for constant in list.values() {
            let equal = equal_to(constant)?;
            match equal.end - equal.start {
                0 => {}
                // Integers beyond the type are in no row.
                1 => constants.extend(Scalar::integer(integers, equal.start)),
                _ => return None,
            }
        }
        if constants.is_empty() {
            return Some(Self::Uniform(list.negated()));
        }
        let list = InList::new(constants).with_negated(list.negated());
        Some(Self::Predicate(Predicate::In(Arc::new(list))))
    }

    /// The outcome per row of `array`; `matches` evaluates a predicate on its integers.
    ///
    /// # Errors
    /// If a bit per row exceeds the limits, or as `matches`, or as the array's `validity`.
    pub(in crate::encodings) fn answer(
        self,
        array: &dyn EncodedArray,
        matches: impl FnOnce(&Predicate) -> Result<BooleanArray>,
    ) -> Result<BooleanArray> {
        let len = array.len();
        let outcome = match self {
            Self::Predicate(predicate) => return matches(&predicate),
            Self::Not(predicate) => return Ok(arrow::compute::not(&matches(&predicate)?)?),
            Self::Uniform(outcome) => outcome,
        };
        // Rows that take no bytes are limited by nothing else. Their validity takes as many bits.
        array.limits().count_rows(len.div_ceil(8), 2)?;
        let bits = if outcome { BooleanBuffer::new_set(len) } else { BooleanBuffer::new_unset(len) };
        Ok(BooleanArray::new(bits, array.validity()?.to_nulls(len)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, ArrayRef, Int8Array};

    use super::*;
    use crate::array::Decoded;
    use crate::dtype::PType;
    use crate::limits::Limits;

    #[test]
    fn integers_are_accepted_where_their_values_are() {
        // Two integers represent each value: 6 and 7 represent 3.
        let column = |of: fn(i8) -> i8| -> ArrayRef {
            Arc::new(Int8Array::from_iter((i8::MIN..=i8::MAX).map(of).map(Some).chain([None])))
        };
        let (integers, values) = (column(|integer| integer), column(|integer| integer.div_euclid(2)));
        let equal_to = |constant: &Scalar| {
            let first = 2 * constant.as_i128()?;
            Some(first..first + 2)
        };
        let dtype = DType::Primitive(PType::I8, true);
        let array = Decoded::new(dtype.clone(), Arc::clone(&integers), &Limits::default());
        let constants = [-65i8, -64, -63, 0, 5, 63, 64].map(Scalar::from);
        let mut predicates = vec![Predicate::IsNull, Predicate::IsNotNull];
        for low in &constants {
            let ops = [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt];
            let ops = ops.into_iter().chain([CompareOp::LtEq, CompareOp::Gt, CompareOp::GtEq]);
            predicates.extend(ops.map(|op| Predicate::Compare(op, low.clone())));
            predicates.extend(constants.iter().map(|high| Predicate::Between(low.clone(), high.clone())));
        }
        for predicate in predicates {
            let test = IntegerTest::of(&predicate, &dtype, equal_to).unwrap();
            let outcome = test.answer(&array, |predicate| predicate.evaluate(&integers)).unwrap();
            assert_eq!(outcome.len(), values.len());
            assert_eq!(outcome, predicate.evaluate(&values).unwrap(), "{predicate:?}");
        }
    }

    #[test]
    fn what_is_unknown_for_values_is_left_to_them() {
        let dtype = DType::Primitive(PType::I8, true);
        let (one, null) = (Scalar::from(1i8), Scalar::null(&dtype));
        let list =
            |values: &[&Scalar]| Predicate::In(Arc::new(InList::new(values.iter().map(|v| (*v).clone()))));
        for predicate in [
            Predicate::Compare(CompareOp::Eq, null.clone()),
            Predicate::Between(one.clone(), null.clone()),
            list(&[&one, &null]),
            list(&[]),
        ] {
            let test = IntegerTest::of(&predicate, &dtype, |_| Some(1..2));
            assert!(test.is_none(), "{predicate:?}");
        }
    }
}
