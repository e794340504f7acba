//! The values of a dictionary, and cached results about them.

use std::sync::{Arc, OnceLock};

use arrow::array::BooleanArray;
use arrow::datatypes::DataType;
use parking_lot::Mutex;

use crate::Result;
use crate::array::{ArrayRef, ArrowRef, Validity};
use crate::dtype::arrow::data_type;
use crate::expr::Predicate;
use crate::once::get_or_try_init;
use crate::scalar::Scalar;

/// Number of outcomes cached per dictionary: a query has few predicates on one column.
const MAX_OUTCOMES: usize = 16;

/// Number of Arrow types in which decoded values are cached.
const MAX_DECODED: usize = 4;

/// Values of a dictionary, shared by all arrays that have codes for them. Results computed for the values
/// are cached.
#[derive(Debug)]
pub(crate) struct SharedValues {
    pub(super) array: ArrayRef,
    validity: OnceLock<Validity>,
    decoded: Mutex<Vec<ArrowRef>>,
    outcomes: Mutex<Vec<(Predicate, BooleanArray)>>,
}

impl SharedValues {
    /// Wraps values that are not decoded yet.
    pub(crate) fn new(array: ArrayRef) -> Self {
        Self { array, validity: OnceLock::new(), decoded: Mutex::default(), outcomes: Mutex::default() }
    }

    /// Whether these are the values of an array of the same segment, given its type and length.
    pub(crate) fn are_values_of(&self, array: &ArrayRef) -> bool {
        self.array.dtype() == array.dtype() && self.array.len() == array.len()
    }

    /// Which of the values are null.
    pub(super) fn validity(&self) -> Result<&Validity> {
        get_or_try_init(&self.validity, || self.array.validity())
    }

    pub(super) fn remembered(&self, to: &DataType) -> Option<ArrowRef> {
        self.decoded.lock().iter().find(|array| array.data_type() == to).cloned()
    }

    /// All values as Arrow type `to`. Decodes once; concurrent callers wait for the result.
    pub(super) fn decoded(&self, to: &DataType) -> Result<ArrowRef> {
        let mut all = self.decoded.lock();
        if let Some(found) = all.iter().find(|array| array.data_type() == to) {
            return Ok(Arc::clone(found));
        }
        let decoded = self.array.decode(to)?;
        if all.len() == MAX_DECODED {
            all.remove(0);
        }
        all.push(Arc::clone(&decoded));
        Ok(decoded)
    }

    /// The outcome of a predicate per value.
    pub(super) fn outcome(&self, predicate: &Predicate) -> Result<BooleanArray> {
        let mut all = self.outcomes.lock();
        if let Some((_, found)) = all.iter().find(|(known, _)| same(known, predicate)) {
            return Ok(found.clone());
        }
        let outcome = match self.remembered(&data_type(self.array.dtype())?) {
            Some(values) => predicate.evaluate(&values)?,
            None => self.array.matches(predicate)?,
        };
        if all.len() == MAX_OUTCOMES {
            all.remove(0);
        }
        all.push((predicate.clone(), outcome.clone()));
        Ok(outcome)
    }
}

/// Whether two predicates are certain to have the same outcome.
fn same(left: &Predicate, right: &Predicate) -> bool {
    // Compared by order, not by `==`: zero and minus zero are different constants.
    let equal = |l: &Scalar, r: &Scalar| l.dtype() == r.dtype() && l.compare(r).is_some_and(|o| o.is_eq());
    match (left, right) {
        (Predicate::Compare(l_op, l), Predicate::Compare(r_op, r)) => l_op == r_op && equal(l, r),
        (Predicate::Between(l_low, l_high), Predicate::Between(r_low, r_high)) => {
            equal(l_low, r_low) && equal(l_high, r_high)
        }
        (Predicate::In(l), Predicate::In(r)) => Arc::ptr_eq(l, r),
        (Predicate::Like(l), Predicate::Like(r)) => l == r,
        _ => false,
    }
}
