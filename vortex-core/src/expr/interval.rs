//! Comparisons of integers as intervals, which encodings of integers can evaluate.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::{BooleanBuffer, NullBuffer};

use super::{CompareOp, InList, Predicate};
use crate::dtype::PType;
use crate::scalar::Scalar;

/// The integers that a predicate accepts: those in `low..=high`, or all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) low: i128,
    /// Less than `low` if the interval is empty.
    pub(crate) high: i128,
    /// Whether the interval contains the rejected values instead of the accepted ones.
    pub(crate) outside: bool,
}

impl Interval {
    /// The interval of a comparison of values of an integer type with non-null constants; `None` for all
    /// other predicates.
    pub(crate) fn of(predicate: &Predicate, ptype: PType) -> Option<Self> {
        Self::of_represented(predicate, ptype, |constant| {
            let constant = constant.as_i128()?;
            Some(constant..constant + 1)
        })
    }

    /// As [`of`](Self::of), for values that integers represent, preserving their order. `equal_to` returns the integers
    /// of the values that equal a constant; an empty range begins with the first integer of a larger value. They may
    /// exceed the type.
    pub(crate) fn of_represented(
        predicate: &Predicate,
        ptype: PType,
        equal_to: impl Fn(&Scalar) -> Option<Range<i128>>,
    ) -> Option<Self> {
        let (min, max) = ptype.integer_range()?;
        let accepted = match predicate {
            Predicate::Compare(op, constant) => {
                let equal = equal_to(constant)?;
                match op {
                    CompareOp::Eq | CompareOp::NotEq => equal,
                    CompareOp::Lt => min..equal.start,
                    CompareOp::LtEq => min..equal.end,
                    CompareOp::Gt => equal.end..max + 1,
                    CompareOp::GtEq => equal.start..max + 1,
                }
            }
            Predicate::Between(low, high) => equal_to(low)?.start..equal_to(high)?.end,
            _ => return None,
        };
        let outside = matches!(predicate, Predicate::Compare(CompareOp::NotEq, _));
        Some(Self { low: accepted.start.max(min), high: (accepted.end - 1).min(max), outside })
    }

    /// Whether no value or, with `outside`, every non-null value is accepted.
    pub(crate) fn is_empty(self) -> bool {
        self.low > self.high
    }

    /// Whether a value is accepted.
    #[cfg(test)]
    fn contains(self, value: i128) -> bool {
        (self.low <= value && value <= self.high) != self.outside
    }
}

/// Several intervals, of which a value must be in at least one; this also represents lists of constants.
#[derive(Debug)]
pub(crate) struct Intervals {
    pub(crate) any_of: Vec<Interval>,
    /// The list, if the intervals are its constants.
    list: Option<Arc<InList>>,
}

impl Intervals {
    /// Maximum number of constants; with more of them, hashing is faster than testing each.
    pub(crate) const MOST: usize = 16;

    /// The intervals of a predicate on an integer type; `None` if it cannot be expressed by intervals.
    pub(crate) fn of(predicate: &Predicate, ptype: PType) -> Option<Self> {
        let Predicate::In(list) = predicate else {
            let any_of = vec![Interval::of(predicate, ptype)?];
            return Some(Self { any_of, list: None });
        };
        if !(1..=Self::MOST).contains(&list.values().len()) {
            return None;
        }
        let equal = |value: &Scalar| Interval::of(&Predicate::Compare(CompareOp::Eq, value.clone()), ptype);
        Some(Self {
            any_of: list.values().iter().map(equal).collect::<Option<_>>()?,
            list: Some(Arc::clone(list)),
        })
    }

    /// The outcome per row, given which rows are in any of the intervals and which are null.
    pub(crate) fn outcome(&self, found: BooleanBuffer, nulls: Option<NullBuffer>) -> BooleanArray {
        match &self.list {
            Some(list) => list.outcome(found, nulls),
            None => BooleanArray::new(found, nulls),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::scalar::Value;

    fn i8(value: i64) -> Scalar {
        Scalar::try_new(DType::Primitive(PType::I8, true), Value::Int(value)).unwrap()
    }

    #[test]
    fn intervals_hold_where_comparisons_do() {
        for op in
            [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::LtEq, CompareOp::Gt, CompareOp::GtEq]
        {
            for constant in [-128, -127, 0, 5, 126, 127] {
                let interval = Interval::of(&Predicate::Compare(op, i8(constant)), PType::I8).unwrap();
                for value in -128..=127i64 {
                    assert_eq!(interval.contains(value.into()), op.holds(value.cmp(&constant)));
                }
            }
        }
    }

    #[test]
    fn reversed_bounds_are_empty_and_nulls_no_interval() {
        assert!(Interval::of(&Predicate::Between(i8(3), i8(2)), PType::I8).unwrap().is_empty());
        let null = Scalar::null(i8(0).dtype());
        assert_eq!(Interval::of(&Predicate::Between(null, i8(2)), PType::I8), None);
        assert_eq!(Interval::of(&Predicate::IsNull, PType::I8), None);
        assert_eq!(Interval::of(&Predicate::Compare(CompareOp::Eq, i8(1)), PType::F32), None);
    }
}
