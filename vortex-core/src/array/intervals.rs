//! Tests whether integers lie in intervals, which all comparisons with constants can be expressed by.

use arrow::array::{Array as _, BooleanArray};

use super::ArrowRef;
use super::fixed_width::values_of;
use crate::Result;
use crate::dtype::arrow::ptype_of;
use crate::expr::{Intervals, Predicate};
use crate::kernels::within::{Within, pass_any};
use crate::kernels::{Word, match_word};

/// The test for each of several intervals.
pub(crate) fn tests_of<W: Word>(intervals: &Intervals) -> Vec<Within<W>> {
    intervals.any_of.iter().map(|one| Within::new(one.low, one.high, one.outside)).collect()
}

/// Evaluates a predicate on decoded values: as [`Predicate::evaluate`], but faster for integers.
///
/// # Errors
/// If the predicate does not fit the type of the values.
pub(super) fn matches(values: &ArrowRef, predicate: &Predicate) -> Result<BooleanArray> {
    if let Some(ptype) = ptype_of(values.data_type())
        && let Some(intervals) = Intervals::of(predicate, ptype)
    {
        let passed = match_word!(ptype, |W| pass_any::<W>(&tests_of(&intervals), &values_of(values)));
        return Ok(intervals.outcome(passed, values.nulls().cloned()));
    }
    predicate.evaluate(values)
}
