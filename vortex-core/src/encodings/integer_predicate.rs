//! Predicates on values that are represented by integers, evaluated on the integers.

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;

use crate::Result;
use crate::array::EncodedArray;
use crate::expr::Predicate;

/// A predicate on values, converted to one on the integers that represent them.
#[derive(Debug)]
pub(super) enum IntegerTest {
    /// This predicate on the integers has the same outcome.
    Predicate(Predicate),
    /// All rows that are not null have this outcome, whatever their integers are.
    Uniform(bool),
}

impl IntegerTest {
    /// The outcome per row of `array`; `matches` evaluates a predicate on its integers.
    ///
    /// # Errors
    /// If a bit per row exceeds the limits, or as `matches`, or as the array's `validity`.
    pub(super) fn answer(
        self,
        array: &dyn EncodedArray,
        matches: impl FnOnce(&Predicate) -> Result<BooleanArray>,
    ) -> Result<BooleanArray> {
        let len = array.len();
        let outcome = match self {
            IntegerTest::Predicate(predicate) => return matches(&predicate),
            IntegerTest::Uniform(outcome) => outcome,
        };
        // Rows that take no bytes are limited by nothing else. Their validity takes as many bits.
        array.limits().count_rows(len.div_ceil(8), 2)?;
        let bits = if outcome { BooleanBuffer::new_set(len) } else { BooleanBuffer::new_unset(len) };
        Ok(BooleanArray::new(bits, array.validity()?.to_nulls(len)))
    }
}
