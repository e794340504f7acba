//! The values of a dictionary, and cached results about them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array as _, BooleanArray};
use arrow::datatypes::DataType;
use parking_lot::Mutex;

use crate::Result;
use crate::array::{ArrayRef, EncodedRef, Validity, encoded_bytes};
use crate::budget::Reservation;
use crate::dtype::arrow::data_type;
use crate::expr::Predicate;
use crate::limits::{Work, counted_apart};
use crate::once::get_or_try_init;
use crate::scalar::Scalar;

/// Outcomes cached per dictionary: up to this many bytes, a bit or two per value. A few are cached in any case, but
/// never so many that looking for one takes long.
const OUTCOME_BYTES: usize = 1 << 20;
const MIN_OUTCOMES: usize = 4;
const MAX_OUTCOMES: usize = 256;

/// Number of values of a dictionary that are decoded in the time that taking a single one needs.
const VALUES_PER_ROW: usize = 8;
/// The same of values that are decompressed by the thousand.
const VALUES_PER_FRAME: usize = 1024;

/// Encoded bytes of dictionaries that are decoded for splits each of which needs few rows: all values of larger ones
/// might take much more memory than these splits do.
const MOST_BYTES: usize = 4 << 20;

/// Number of Arrow types in which decoded values are cached.
const MAX_DECODED: usize = 4;

/// Values of a dictionary, shared by all arrays that have codes for them. Results computed for the values
/// are cached.
#[derive(Debug)]
pub(crate) struct SharedValues {
    pub(super) array: EncodedRef,
    validity: OnceLock<Validity>,
    decoded: Mutex<Vec<DecodedValues>>,
    outcomes: Mutex<Vec<(Predicate, BooleanArray)>>,
    /// Rows for which only their values were decoded.
    taken: AtomicUsize,
    /// What the memory of decoded values is charged to, if they are kept for other splits.
    memory: Option<Reservation>,
}

#[derive(Debug)]
struct DecodedValues {
    values: ArrayRef,
    _memory: Option<Reservation>,
}

impl SharedValues {
    /// Wraps values that are not decoded yet.
    pub(crate) fn new(array: EncodedRef) -> Self {
        Self {
            array,
            validity: OnceLock::new(),
            decoded: Mutex::default(),
            outcomes: Mutex::default(),
            taken: AtomicUsize::new(0),
            memory: None,
        }
    }

    /// The same values; the memory that they take once they are decoded is charged to `memory`.
    pub(crate) fn charged_to(self, memory: Reservation) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Whether these are the values of an array of the same segment, given its type and length.
    pub(crate) fn are_values_of(&self, array: &EncodedRef) -> bool {
        self.array.dtype() == array.dtype() && self.array.len() == array.len()
    }

    /// Which of the values are null.
    pub(super) fn validity(&self) -> Result<&Validity> {
        get_or_try_init(&self.validity, || self.array.validity())
    }

    pub(super) fn remembered(&self, to: &DataType) -> Option<ArrayRef> {
        find(&self.decoded.lock(), to)
    }

    /// Whether to decode only the values of some rows: not if all are decoded, or if there have been so many such
    /// rows, also in other splits, that decoding all for the first of them would have been faster. If all are too
    /// large, or exceed the limits, that is tried again only after as many rows.
    pub(super) fn are_few(&self, rows: usize, to: &DataType) -> bool {
        let per_row = if self.array.decodes_in_parts() { VALUES_PER_ROW } else { VALUES_PER_FRAME };
        let exceed = |rows: usize| rows.saturating_mul(per_row) > self.array.len();
        if exceed(rows) || self.remembered(to).is_some() {
            return false;
        }
        if !exceed(self.taken.fetch_add(rows, Ordering::Relaxed).saturating_add(rows)) {
            return true;
        }
        let are_too_large =
            encoded_bytes(self.array.as_ref()) > MOST_BYTES || counted_apart(|| self.decoded(to)).is_err();
        if are_too_large {
            self.taken.store(0, Ordering::Relaxed);
        }
        are_too_large
    }

    /// All values as Arrow type `to`. Decodes once; concurrent callers wait for the result.
    pub(super) fn decoded(&self, to: &DataType) -> Result<ArrayRef> {
        let mut all = self.decoded.lock();
        if let Some(found) = find(&all, to) {
            return Ok(found);
        }
        let work = Work::begin();
        let values = self.array.decode(to)?;
        // What was decompressed on the way is gone; what the segment holds anyway was not decoded.
        let bytes = work.byte_len().min(values.get_array_memory_size());
        let memory = self.memory.as_ref().map(|memory| memory.take_more(bytes as u64));
        if all.len() == MAX_DECODED {
            all.remove(0);
        }
        all.push(DecodedValues { values: Arc::clone(&values), _memory: memory });
        Ok(values)
    }

    /// The outcome of a predicate per value. It is evaluated once, unless several callers do so at the same time, or
    /// no more outcomes can be cached. Those that are cached stay: if all splits evaluated the same predicates in
    /// turn, the oldest would always be the next one needed.
    pub(super) fn outcome(&self, predicate: &Predicate) -> Result<BooleanArray> {
        let cached = |all: &[(Predicate, BooleanArray)]| {
            all.iter().find(|(known, _)| same(known, predicate)).map(|(_, found)| found.clone())
        };
        if let Some(found) = cached(&self.outcomes.lock()) {
            return Ok(found);
        }
        let outcome = match self.remembered(&data_type(self.array.dtype())?) {
            Some(values) => {
                // Decoded values take no bytes if they are all null.
                self.array.limits().count_bytes(values.len().div_ceil(8) as u64)?;
                predicate.evaluate(&values)?
            }
            None => self.array.matches(predicate)?,
        };
        let mut all = self.outcomes.lock();
        let bytes = all.iter().map(|(_, outcome)| outcome.get_buffer_memory_size()).sum::<usize>();
        let fits = all.len() < MAX_OUTCOMES && bytes + outcome.get_buffer_memory_size() <= OUTCOME_BYTES;
        if (all.len() < MIN_OUTCOMES || fits) && cached(&all).is_none() {
            all.push((predicate.clone(), outcome.clone()));
        }
        Ok(outcome)
    }
}

fn find(all: &[DecodedValues], to: &DataType) -> Option<ArrayRef> {
    all.iter().find(|decoded| decoded.values.data_type() == to).map(|decoded| Arc::clone(&decoded.values))
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
