//! Strings that are stored as codes, and predicates on them, evaluated without decoding or validating text. For
//! comparisons, each row's codes are read only until the outcome is known; to find equal rows, only those of rows of the
//! same length.
//!
//! Shared by FSST and OnPair. Predicates that are not handled here are evaluated on decoded values.

mod array;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, BooleanBufferBuilder, UInt64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};

use crate::array::{Decoded, EncodedRef, decode_integers, decode_offsets};
use crate::dtype::{DType, PType};
use crate::expr::{CompareOp, InList, Pattern, Predicate};
use crate::kernels::automaton::Automaton;
use crate::kernels::needle::{Against, Needle};
use crate::limits::Limits;
use crate::mask::Mask;
use crate::scalar::{Scalar, Value};
use crate::wire::WriteNode;
use crate::{Error, Result};

pub(super) use array::{CodedTextArray, Codes};

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

/// Taking at most one in so many offsets or codes is faster than decoding all of them. Tests have fewer rows.
pub(super) const MIN_PER_TAKEN: usize = if cfg!(any(test, fuzzing)) { 16 } else { 64 };

/// Rows of codes.
pub(super) trait CodedRows {
    /// Number of rows.
    fn len(&self) -> usize;

    /// Compares a row with a needle.
    fn against(&self, row: usize, needle: &Needle) -> Against;

    /// The rows that an automaton accepts, all or those `among` them; `None` if decoding is faster, or must fail.
    fn accepted(&self, automaton: &Automaton, among: Option<&BooleanBuffer>) -> Option<BooleanBuffer>;
}

/// Whether [`matches`] supports a predicate, determined without reading rows.
pub(super) fn answers(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(_, constant) => constant.as_bytes().is_some(),
        Predicate::Between(low, high) => low.as_bytes().is_some() && high.as_bytes().is_some(),
        Predicate::In(list) => list.values().len() <= MAX_NEEDLES,
        Predicate::Like(like) => like.pattern().is_some(),
        _ => false,
    }
}

/// The rows that may be equal to a constant of the predicate, as their decoded lengths tell; `None` if it does not look
/// for equal rows.
///
/// # Errors
/// If the lengths are corrupt.
pub(super) fn as_long(lengths: &EncodedRef, predicate: &Predicate) -> Result<Option<BooleanBuffer>> {
    let wanted: Vec<usize> = match predicate {
        Predicate::Compare(CompareOp::Eq | CompareOp::NotEq, constant) => {
            constant.as_bytes().map(<[u8]>::len).into_iter().collect()
        }
        Predicate::In(list) => list.values().iter().filter_map(Scalar::as_bytes).map(<[u8]>::len).collect(),
        Predicate::Like(like) => match like.pattern() {
            Some(Pattern::Equals(text)) => vec![text.len()],
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let dtype = lengths.dtype();
    let scalar = |len: usize| {
        let value = match dtype {
            DType::Primitive(ptype, _) if ptype.is_signed() => Value::Int(i64::try_from(len).ok()?),
            _ => Value::UInt(len as u64),
        };
        // No row has a length that its type does not have.
        Scalar::try_new(dtype.clone(), value).ok()
    };
    let wanted: Vec<Scalar> = wanted.into_iter().filter_map(scalar).collect();
    let predicate = match wanted.as_slice() {
        [] => return Ok(Some(BooleanBuffer::new_unset(lengths.len()))),
        [one] => Predicate::Compare(CompareOp::Eq, one.clone()),
        _ => Predicate::In(Arc::new(InList::new(wanted))),
    };
    Ok(Some(lengths.matches(&predicate)?.values().clone()))
}

/// The outcome of a predicate per row; `None` for predicates that are not supported here. If it looks for equal rows,
/// these are `among` those [as long](as_long).
pub(super) fn matches(
    rows: &impl CodedRows,
    among: Option<&BooleanBuffer>,
    nulls: Option<NullBuffer>,
    predicate: &Predicate,
) -> Option<BooleanArray> {
    let outcome = match predicate {
        Predicate::Compare(op, constant) => {
            let needle = Needle::new(constant.as_bytes()?);
            let equal = || each_among(rows, among, |row| rows.against(row, &needle) == Against::Equal);
            match op {
                CompareOp::Eq => equal(),
                CompareOp::NotEq => !&equal(),
                op => each(rows, |row| op.holds(rows.against(row, &needle).ordering())),
            }
        }
        Predicate::Between(low, high) => {
            let (low, high) = (Needle::new(low.as_bytes()?), Needle::new(high.as_bytes()?));
            each(rows, |row| {
                rows.against(row, &low).ordering().is_ge() && rows.against(row, &high).ordering().is_le()
            })
        }
        Predicate::In(list) => return is_in(rows, among, nulls, list),
        Predicate::Like(like) => {
            let found = match like.pattern()? {
                Pattern::Equals(text) => {
                    let needle = Needle::new(text.as_bytes());
                    each_among(rows, among, |row| rows.against(row, &needle) == Against::Equal)
                }
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
pub(super) fn matches_none(
    among: Option<&BooleanBuffer>,
    nulls: Option<&NullBuffer>,
    predicate: &Predicate,
) -> Option<BooleanArray> {
    let among = among.filter(|among| among.count_set_bits() == 0)?;
    matches(&Unread(among.len()), Some(among), nulls.cloned(), predicate)
}

/// Rows of which none is compared.
struct Unread(usize);

impl CodedRows for Unread {
    fn len(&self) -> usize {
        self.0
    }

    fn against(&self, _row: usize, _needle: &Needle) -> Against {
        Against::Below
    }

    fn accepted(&self, _automaton: &Automaton, _among: Option<&BooleanBuffer>) -> Option<BooleanBuffer> {
        None
    }
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

fn is_in(
    rows: &impl CodedRows,
    among: Option<&BooleanBuffer>,
    nulls: Option<NullBuffer>,
    list: &InList,
) -> Option<BooleanArray> {
    if list.values().len() > MAX_NEEDLES {
        return None;
    }
    let needles: Vec<Needle> =
        list.values().iter().map(|value| value.as_bytes().map(Needle::new)).collect::<Option<_>>()?;
    let found = each_among(rows, among, |row| {
        needles.iter().any(|needle| rows.against(row, needle) == Against::Equal)
    });
    Some(list.outcome(found, nulls))
}

/// Where the codes of chosen rows are.
pub(super) struct Places {
    /// Offsets that do not decrease within a run.
    offsets: Vec<usize>,
    /// The chosen rows, as positions of offsets. Offset `run.end` is where the codes of the last row end.
    runs: Vec<Range<usize>>,
}

impl Places {
    /// The places of rows, given the offsets of all rows, none of which may exceed `end`. Of few rows, only their own
    /// offsets are decoded.
    ///
    /// # Errors
    /// If offsets decrease or exceed `end`.
    pub(super) fn of(all: &EncodedRef, chosen: Chosen<'_>, end: usize) -> Result<Self> {
        let what = "codes offsets";
        let mut runs = chosen.runs();
        if chosen.len().saturating_add(runs.len()) > all.len() / MIN_PER_TAKEN {
            return Ok(Self { offsets: decode_offsets(all, what, end)?, runs });
        }
        let needed = runs.iter().flat_map(|run| run.start..=run.end).map(|at| at as u64);
        let taken = all.take(&UInt64Array::from_iter_values(needed))?;
        let offsets = decode_integers(&taken, what, |offset| {
            let within = usize::try_from(offset).ok().filter(|offset| *offset <= end);
            within.ok_or_else(|| Error::corrupt(format!("{what} reach {offset}, beyond {end}")))
        })?;
        let mut next = 0;
        for run in &mut runs {
            *run = next..next + run.len();
            next = run.end + 1;
            if !offsets[run.start..next].is_sorted() {
                return Err(Error::corrupt(format!("{what} decrease")));
            }
        }
        Ok(Self { offsets, runs })
    }

    /// The number of codes, saturated at `usize::MAX`: rows may repeat.
    pub(super) fn code_count(&self) -> usize {
        self.runs.iter().fold(0, |count, run| count.saturating_add(self.codes_of(run).len()))
    }

    /// From the first to the last code of these rows.
    pub(super) fn span(&self) -> Range<usize> {
        let codes = self.runs.iter().map(|run| self.codes_of(run));
        codes.reduce(|span, codes| span.start.min(codes.start)..span.end.max(codes.end)).unwrap_or_default()
    }

    fn codes_of(&self, run: &Range<usize>) -> Range<usize> {
        self.offsets[run.start]..self.offsets[run.end]
    }

    /// Passes all ranges of codes to `append`, and returns the end of each row after these are concatenated: one more
    /// offset than rows, starting with 0.
    pub(super) fn join(&self, mut append: impl FnMut(Range<usize>)) -> Vec<u64> {
        let mut ends = Vec::with_capacity(1 + self.runs.iter().map(Range::len).sum::<usize>());
        ends.push(0);
        let mut before = 0;
        for run in &self.runs {
            let codes = self.codes_of(run);
            ends.extend(
                self.offsets[run.start + 1..=run.end].iter().map(|end| (before + end - codes.start) as u64),
            );
            before += codes.len();
            append(codes);
        }
        ends
    }

    /// The concatenated codes of the rows, and the end of each row, as [`join`](Self::join). `codes` are those from
    /// position `first` on.
    ///
    /// # Errors
    /// If copies of rows that repeat exceed the limits.
    pub(super) fn gather<T: Copy>(
        &self,
        codes: &[T],
        first: usize,
        limits: &Limits,
    ) -> Result<(Vec<T>, Vec<u64>)> {
        let count = self.code_count();
        limits.decoded_bytes(count, size_of::<T>())?;
        let mut gathered = Vec::with_capacity(count);
        let ends = self.join(|own| gathered.extend_from_slice(&codes[own.start - first..own.end - first]));
        Ok((gathered, ends))
    }
}

/// The rows to keep, and their order.
#[derive(Clone, Copy)]
pub(super) enum Chosen<'a> {
    Mask(&'a Mask),
    Indices(&'a UInt64Array),
}

impl Chosen<'_> {
    /// The rows as runs.
    pub(super) fn runs(self) -> Vec<Range<usize>> {
        match self {
            Chosen::Mask(mask) => mask.runs(),
            // Indices are in range of an array in memory, so they fit `usize`.
            Chosen::Indices(indices) => {
                indices.values().iter().map(|at| *at as usize..*at as usize + 1).collect()
            }
        }
    }

    /// Selects the same rows of another array of the same length.
    pub(super) fn of(self, array: &EncodedRef) -> Result<EncodedRef> {
        match self {
            Chosen::Mask(mask) => array.filter(mask),
            Chosen::Indices(indices) => array.take(indices),
        }
    }

    pub(super) fn len(self) -> usize {
        match self {
            Chosen::Mask(mask) => mask.true_count(),
            Chosen::Indices(indices) => indices.len(),
        }
    }
}

/// The type of a child of integers, none of them null, from its number in the metadata.
pub(super) fn integers(number: i32) -> Result<DType> {
    Ok(DType::Primitive(PType::try_from_number(number.into())?, false))
}

/// The offsets of ranges after they are concatenated, starting with 0.
pub(super) fn ends(ranges: &[Range<usize>]) -> Vec<u64> {
    let ends = ranges.iter().scan(0, |end, range| {
        *end += range.len() as u64;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// The number of bytes of each row of concatenated codes, as the child of an array. Single rows are loaded without the
/// stored lengths: what the codes stand for tells them, too, and takes no reads.
///
/// # Errors
/// If `decoded_len` is unable to tell the bytes of a row.
pub(super) fn lengths_of<T>(
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

/// Wraps offsets or lengths as the child of an array with these limits.
pub(super) fn integers_child(integers: Vec<u64>, limits: &Limits) -> EncodedRef {
    let array = UInt64Array::from(integers);
    Arc::new(Decoded::new(DType::Primitive(PType::U64, false), Arc::new(array)).with_limits(*limits))
}
