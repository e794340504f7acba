//! Predicates on values that are represented by integers, evaluated on the integers.

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;

use crate::array::Validity;
use crate::expr::Predicate;

/// A predicate on values, converted to one on the integers that represent them.
#[derive(Debug)]
pub(super) enum Asked {
    /// This predicate on the integers has the same outcome.
    Integers(Predicate),
    /// The outcome of all rows that are not null, without examining any integer.
    Nothing(bool),
    /// There is no equivalent; the predicate must be evaluated on the values.
    Values,
}

/// The same outcome for all rows that are not null.
pub(super) fn uniform(outcome: bool, validity: &Validity, len: usize) -> BooleanArray {
    let bits = if outcome { BooleanBuffer::new_set(len) } else { BooleanBuffer::new_unset(len) };
    BooleanArray::new(bits, validity.to_nulls(len))
}
