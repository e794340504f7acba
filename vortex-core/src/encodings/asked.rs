//! Predicates on values that integers stand for, asked of the integers.

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;

use crate::array::Validity;
use crate::expr::Predicate;

/// A predicate on values as one on the integers that stand for them.
#[derive(Debug)]
pub(super) enum Asked {
    /// This predicate on the integers has the same outcome.
    Integers(Predicate),
    /// No integer needs to be looked at: the outcome of all rows that are not null.
    Nothing(bool),
    /// There is no such form; the values decide.
    Values,
}

/// One outcome for all rows that are not null.
pub(super) fn uniform(outcome: bool, validity: &Validity, len: usize) -> BooleanArray {
    let bits = if outcome { BooleanBuffer::new_set(len) } else { BooleanBuffer::new_unset(len) };
    BooleanArray::new(bits, validity.to_nulls(len))
}
