//! Strings that are stored as codes, and predicates on them, evaluated without decoding or validating text. For
//! comparisons, each row's codes are read only until the outcome is known; to find equal rows, only those of rows of
//! the same length.
//!
//! Shared by FSST and OnPair. Predicates that are not handled here are evaluated on decoded values.

mod array;

use std::sync::Arc;

use arrow::array::{BooleanArray, BooleanBufferBuilder};
use arrow::buffer::{BooleanBuffer, NullBuffer};

use crate::array::{EncodedRef, integers_child};
use crate::dtype::PType;
use crate::expr::{CompareOp, InList, Pattern, Predicate};
use crate::kernels::automaton::Automaton;
use crate::kernels::needle::{Against, Needle};
use crate::limits::Limits;
use crate::scalar::Scalar;
use crate::wire::WriteNode;
use crate::{Error, Result};

pub(in crate::encodings) use array::{CodedTextArray, Codes, OFFSETS};

/// The parts of coded rows other than the codes, to be written.
pub(crate) struct TextParts {
    /// Decoded bytes per row.
    pub(crate) lengths: (PType, WriteNode),
    /// The start of each row's codes, and the end of the last row's.
    pub(crate) offsets: (PType, WriteNode),
    pub(crate) validity: Option<WriteNode>,
}

/// With more constants than this, decoding once and hashing is faster than comparing with each.
const MAX_NEEDLES: usize = 8;

/// Rows of codes.
pub(in crate::encodings) trait CodedRows {
    /// Number of rows.
    fn len(&self) -> usize;

    /// Compares a row with a needle.
    fn against(&self, row: usize, needle: &Needle) -> Against;

    /// The rows that an automaton accepts, all or those `among` them; `None` if decoding is faster, or must fail.
    fn accepted(&self, automaton: &Automaton, among: Option<&BooleanBuffer>) -> Option<BooleanBuffer>;
}

/// Whether [`matches`] supports a predicate, determined without reading rows.
pub(in crate::encodings) fn answers(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(_, constant) => constant.as_bytes().is_some(),
        Predicate::Between(low, high) => low.as_bytes().is_some() && high.as_bytes().is_some(),
        Predicate::In(list) => list.values().len() <= MAX_NEEDLES,
        Predicate::Like(like) => like.pattern().is_some(),
        _ => false,
    }
}

/// The constants of which a predicate looks for equal rows; `None` if it looks for others.
fn constants(predicate: &Predicate) -> Option<Vec<&[u8]>> {
    match predicate {
        Predicate::Compare(CompareOp::Eq | CompareOp::NotEq, constant) => Some(vec![constant.as_bytes()?]),
        Predicate::In(list) if list.values().len() <= MAX_NEEDLES => {
            list.values().iter().map(Scalar::as_bytes).collect()
        }
        Predicate::Like(like) => match like.pattern()? {
            Pattern::Equals(text) => Some(vec![text.as_bytes()]),
            _ => None,
        },
        _ => None,
    }
}

/// The outcome of such a predicate, given which rows equal a constant.
fn of_equal(predicate: &Predicate, found: BooleanBuffer, nulls: Option<NullBuffer>) -> BooleanArray {
    match predicate {
        Predicate::In(list) => list.outcome(found, nulls),
        Predicate::Compare(CompareOp::NotEq, _) => BooleanArray::new(!&found, nulls),
        Predicate::Like(like) if like.negated => BooleanArray::new(!&found, nulls),
        _ => BooleanArray::new(found, nulls),
    }
}

/// The rows that may be equal to a constant of the predicate, as their decoded lengths tell; `None` if it does not look
/// for equal rows.
///
/// # Errors
/// If the lengths are corrupt.
pub(in crate::encodings) fn as_long(
    lengths: &EncodedRef,
    predicate: &Predicate,
) -> Result<Option<BooleanBuffer>> {
    let Some(constants) = constants(predicate) else { return Ok(None) };
    // No row has a length that its type does not have.
    let scalar = |constant: &[u8]| Scalar::integer(lengths.dtype(), constant.len() as i128);
    let wanted: Vec<Scalar> = constants.into_iter().filter_map(scalar).collect();
    let predicate = match wanted.as_slice() {
        [] => return Ok(Some(BooleanBuffer::new_unset(lengths.len()))),
        [one] => Predicate::Compare(CompareOp::Eq, one.clone()),
        _ => Predicate::In(Arc::new(InList::new(wanted))),
    };
    Ok(Some(lengths.matches(&predicate)?.values().clone()))
}

/// The outcome of a predicate per row; `None` for predicates that are not supported here. If it looks for equal rows,
/// these are `among` those [as long](as_long).
pub(in crate::encodings) fn matches(
    rows: &impl CodedRows,
    among: Option<&BooleanBuffer>,
    nulls: Option<NullBuffer>,
    predicate: &Predicate,
) -> Option<BooleanArray> {
    if let Some(constants) = constants(predicate) {
        let needles: Vec<Needle> = constants.into_iter().map(Needle::new).collect();
        let is_equal = |row| needles.iter().any(|needle| rows.against(row, needle) == Against::Equal);
        return Some(of_equal(predicate, each_among(rows, among, is_equal), nulls));
    }
    let outcome = match predicate {
        Predicate::Compare(op, constant) => {
            let needle = Needle::new(constant.as_bytes()?);
            each(rows, |row| op.holds(rows.against(row, &needle).ordering()))
        }
        Predicate::Between(low, high) => {
            let (low, high) = (Needle::new(low.as_bytes()?), Needle::new(high.as_bytes()?));
            each(rows, |row| {
                rows.against(row, &low).ordering().is_ge() && rows.against(row, &high).ordering().is_le()
            })
        }
        Predicate::Like(like) => {
            let found = match like.pattern()? {
                Pattern::Equals(_) => return None,
                Pattern::StartsWith(text) => {
                    let needle = Needle::new(text.as_bytes());
                    each(rows, |row| rows.against(row, &needle).starts_with())
                }
                Pattern::Contains { start, between, end } => {
                    let between: Vec<&[u8]> = between.into_iter().map(str::as_bytes).collect();
                    let automaton = Automaton::finding(start.as_bytes(), &between, end.as_bytes())?;
                    // Few rows may start as they should, and the others are found out fast.
                    let needle = Needle::new(start.as_bytes());
                    let among = (!start.is_empty())
                        .then(|| each(rows, |row| rows.against(row, &needle).starts_with()));
                    rows.accepted(&automaton, among.as_ref())?
                }
            };
            if like.negated { !&found } else { found }
        }
        _ => return None,
    };
    Some(BooleanArray::new(outcome, nulls))
}

fn each(rows: &impl CodedRows, holds: impl Fn(usize) -> bool) -> BooleanBuffer {
    BooleanBuffer::collect_bool(rows.len(), holds)
}

/// The outcome of a predicate that looks for equal rows if there are none `among` those [as long](as_long), so that no
/// codes need to be read.
pub(in crate::encodings) fn matches_none(
    among: Option<&BooleanBuffer>,
    nulls: Option<&NullBuffer>,
    predicate: &Predicate,
) -> Option<BooleanArray> {
    let among = among.filter(|among| among.count_set_bits() == 0)?;
    constants(predicate)?;
    Some(of_equal(predicate, BooleanBuffer::new_unset(among.len()), nulls.cloned()))
}

/// As [`each`], for a property that only rows `among` these may have.
fn each_among(
    rows: &impl CodedRows,
    among: Option<&BooleanBuffer>,
    holds: impl Fn(usize) -> bool,
) -> BooleanBuffer {
    let Some(among) = among else { return each(rows, holds) };
    let mut found = BooleanBufferBuilder::new(rows.len());
    found.append_n(rows.len(), false);
    among.set_indices().filter(|row| holds(*row)).for_each(|row| found.set_bit(row, true));
    found.finish()
}

/// The number of bytes of each row of concatenated codes, as the child of an array. Single rows are loaded without the
/// stored lengths: what the codes stand for tells them, too, and takes no reads.
///
/// # Errors
/// If `decoded_len` is unable to tell the bytes of a row.
pub(in crate::encodings) fn lengths_of<T>(
    codes: &[T],
    ends: &[u64],
    decoded_len: impl Fn(&[T]) -> Option<usize>,
    limits: &Limits,
) -> Result<EncodedRef> {
    let lengths = ends.windows(2).map(|pair| {
        let codes = codes.get(usize::try_from(pair[0]).ok()?..usize::try_from(pair[1]).ok()?)?;
        decoded_len(codes).map(|len| len as u64)
    });
    let lengths: Option<Vec<u64>> = lengths.collect();
    let lengths = lengths.ok_or_else(|| Error::corrupt("codes do not decode"))?;
    Ok(integers_child(lengths, limits))
}
