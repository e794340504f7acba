//! Integers and floats as words, with what is common to their schemes.

use std::cell::OnceCell;

use arrow::array::{Array as _, ArrayRef};
use arrow::buffer::{NullBuffer, ScalarBuffer};

use super::sample::{self, Sample};
use super::scheme::{Context, Kind, Plain, Scheme, choose};
use super::{boolean, float, integer, one_value, value_of};
use crate::array::values_of;
use crate::dtype::PType;
use crate::encodings::{constant, primitive};
use crate::kernels::simd::{Vectorized, vectorized};
use crate::kernels::{Word, match_word};
use crate::release::since;
use crate::scalar::Value;
use crate::wire::WriteNode;
use crate::{Level, Result};

/// Integers or floats, as bits. Null rows hold the value of their predecessor.
#[derive(Debug)]
pub(super) struct Numbers<W: Word> {
    pub(super) ptype: PType,
    pub(super) values: ScalarBuffer<W>,
    /// The validity, if some rows are null; never all of them.
    pub(super) nulls: Option<NullBuffer>,
    /// The minimum, in the order of the type if it is an integer type.
    pub(super) min: W,
    pub(super) max: W,
    /// Number of runs of equal rows; the rows of a run are either all null or all valid.
    pub(super) runs: usize,
    sample: OnceCell<Sample>,
    distinct: OnceCell<usize>,
}

impl<W: Word> Numbers<W> {
    /// Null rows must repeat the value of their predecessor.
    pub(super) fn new(ptype: PType, values: ScalarBuffer<W>, nulls: Option<NullBuffer>) -> Self {
        let lift = lift(ptype);
        let facts = vectorized(Look { values: &values, lift });
        let turns = nulls.as_ref().map_or(0, |nulls| 2 * nulls.inner().set_slices().count());
        Self {
            ptype,
            min: facts.min.minus(lift),
            max: facts.max.minus(lift),
            runs: (facts.changes + 1 + turns).min(values.len()),
            values,
            nulls,
            sample: OnceCell::new(),
            distinct: OnceCell::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of the values without any encoding.
    pub(super) fn plain_bytes(&self) -> usize {
        size_of_val(&*self.values)
    }

    /// Approximate bytes that nulls take in addition to the values.
    pub(super) fn null_bytes(&self) -> usize {
        self.nulls
            .as_ref()
            .map_or(0, |nulls| (nulls.len() / 8).min(nulls.inner().set_slices().take(64).count() * 64))
    }

    /// A number that starts at zero and, for integers, increases with the value.
    pub(super) fn rank(&self, value: W) -> u64 {
        value.minus(self.min).as_u64()
    }

    /// The difference between the maximum and the minimum.
    pub(super) fn span(&self) -> u64 {
        self.rank(self.max)
    }

    /// The ranks of a sample of rows.
    pub(super) fn sample(&self) -> &Sample {
        self.sample.get_or_init(|| {
            let rows = sample::rows(self.len()).flat_map(|rows| &self.values[rows]);
            Sample::new(rows.map(|value| self.rank(*value)).collect(), self.len())
        })
    }

    /// Approximate number of distinct values.
    pub(super) fn distinct(&self) -> usize {
        let most = usize::try_from(self.span()).unwrap_or(usize::MAX).saturating_add(1);
        *self.distinct.get_or_init(|| self.distinct_sampled().min(most).min(self.runs))
    }

    fn distinct_sampled(&self) -> usize {
        if self.runs > self.len() / 2 {
            return self.sample().distinct();
        }
        // Values repeated within a run tell nothing about those of other runs.
        let heads = sample::rows(self.len()).flat_map(|rows| {
            let runs = self.values[rows].chunk_by(|left, right| left == right);
            runs.map(|run| self.rank(run[0]))
        });
        Sample::new(heads.collect(), self.runs).distinct()
    }

    /// The value represented by some bits.
    pub(super) fn value(&self, word: W) -> Value {
        value_of(self.ptype, word.as_u64())
    }

    /// The validity child, if some rows are null.
    ///
    /// # Errors
    /// As [`compress_words`].
    pub(super) fn validity(&self, cx: &Context) -> Result<Option<WriteNode>> {
        boolean::validity(cx, self.nulls.as_ref())
    }
}

/// Number of bits of an integer that can be as large as `most`.
pub(super) fn bits(most: u64) -> usize {
    (u64::BITS - most.leading_zeros()) as usize
}

/// The offset to add to words of a type so that they have the same order as the values.
fn lift<W: Word>(ptype: PType) -> W {
    if ptype.is_signed() { W::narrow(1 << (W::BITS - 1)) } else { W::ZERO }
}

struct Look<'a, W> {
    values: &'a [W],
    lift: W,
}

struct Facts<W> {
    min: W,
    max: W,
    changes: usize,
}

impl<W: Word> Vectorized for Look<'_, W> {
    type Output = Facts<W>;

    #[inline(always)]
    fn run(self) -> Facts<W> {
        let (mut min, mut max) = (W::MAX, W::ZERO);
        for value in self.values {
            let value = value.plus(self.lift);
            min = if value < min { value } else { min };
            max = if value > max { value } else { max };
        }
        let next = self.values.get(1..).unwrap_or_default();
        let pairs = self.values.iter().zip(next);
        let changes = pairs.map(|(value, next)| usize::from(value != next)).sum();
        Facts { min, max, changes }
    }
}

/// Compresses a column of integers or floats.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress(cx: &Context, array: &ArrayRef, ptype: PType) -> Result<WriteNode> {
    match_word!(ptype, |W| compress_words(cx, ptype, values_of::<W>(array), array.nulls()))
}

/// Compresses words that are integers or floats. Null rows may contain anything.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress_words<W: Word>(
    cx: &Context,
    ptype: PType,
    values: ScalarBuffer<W>,
    nulls: Option<&NullBuffer>,
) -> Result<WriteNode> {
    if values.is_empty() {
        return Ok(primitive::encode(values, None));
    }
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    if nulls.is_some_and(|nulls| nulls.null_count() == nulls.len()) {
        return constant::encode(&Value::Null);
    }
    let values = match nulls {
        Some(nulls) => without_garbage(&values, nulls).into(),
        None => values,
    };
    let numbers = Numbers::new(ptype, values, nulls.cloned());
    if numbers.min == numbers.max {
        return uniform(cx, &numbers);
    }
    let plain = || Ok(primitive::encode(numbers.values.clone(), numbers.validity(cx)?));
    let decoded = Plain { rows: numbers.len(), bytes: numbers.plain_bytes() + numbers.null_bytes() };
    if ptype.is_float() {
        choose(&float::schemes(), &numbers, cx, decoded, plain)
    } else {
        choose(&integer::schemes(), &numbers, cx, decoded, plain)
    }
}

/// Encodes a column whose valid rows are all equal.
fn uniform<W: Word>(cx: &Context, numbers: &Numbers<W>) -> Result<WriteNode> {
    match one_value(cx, &numbers.value(numbers.min), numbers.nulls.as_ref())? {
        Some(node) => Ok(node),
        None if numbers.ptype.is_float() => {
            Ok(primitive::encode(numbers.values.clone(), numbers.validity(cx)?))
        }
        None => integer::without_bits(numbers, numbers.validity(cx)?),
    }
}

/// Encodes integers whose valid rows are all equal, but not as a constant.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn equal_rows(cx: &Context, array: &ArrayRef, ptype: PType) -> Result<WriteNode> {
    match_word!(ptype, |W| {
        let values = values_of::<W>(array);
        let values = array.nulls().map(|nulls| without_garbage(&values, nulls).into()).unwrap_or(values);
        let numbers =
            Numbers::new(ptype, values, array.nulls().filter(|nulls| nulls.null_count() > 0).cloned());
        integer::without_bits(&numbers, numbers.validity(cx)?)
    })
}

/// The values, with null rows repeating the preceding value, or at the start the first one.
pub(super) fn without_garbage<W: Word>(values: &[W], nulls: &NullBuffer) -> Vec<W> {
    let mut out = Vec::with_capacity(values.len());
    let first = nulls.valid_indices().next().map_or(W::ZERO, |row| values[row]);
    for (start, end) in nulls.inner().set_slices() {
        let before = out.last().copied().unwrap_or(first);
        out.resize(start, before);
        out.extend_from_slice(&values[start..end]);
    }
    let before = out.last().copied().unwrap_or(first);
    out.resize(values.len(), before);
    out
}

/// Compresses unsigned integers that are part of another array, such as codes, offsets or lengths.
/// Returns the smallest type that can hold them.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress_positions(
    cx: &Context,
    values: Vec<u32>,
    nulls: Option<&NullBuffer>,
) -> Result<(PType, WriteNode)> {
    let largest = values.iter().copied().max().unwrap_or_default();
    compress_up_to(cx, values, largest, nulls)
}

/// Compresses the codes of a dictionary of `count` values, as [`compress_positions`] does.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress_codes(
    cx: &Context,
    codes: Vec<u32>,
    count: u32,
    nulls: Option<&NullBuffer>,
) -> Result<(PType, WriteNode)> {
    // Older readers convert the number of values to the type of the codes.
    let has_count = cx.reader() < since::FULL_DICTIONARIES;
    compress_up_to(cx, codes, if has_count { count } else { count.saturating_sub(1) }, nulls)
}

/// Compresses integers of the smallest type that can hold `largest`.
fn compress_up_to(
    cx: &Context,
    values: Vec<u32>,
    largest: u32,
    nulls: Option<&NullBuffer>,
) -> Result<(PType, WriteNode)> {
    let ptype = PType::for_unsigned(largest.into());
    let compress = |ptype| compress_as(cx, ptype, values.iter().map(|value| (*value).into()), nulls);
    let narrow = compress(ptype)?;
    if ptype == PType::U8 && cx.level() == Level::Compact && cx.allows(Kind::Pco) {
        // Only wider integers can be entropy-coded.
        let wide = compress(PType::U16)?;
        if wide.byte_len() < narrow.byte_len() {
            return Ok((PType::U16, wide));
        }
    }
    Ok((ptype, narrow))
}

/// Compresses integers as values of a type that can hold them; they are given as the low bits of words.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress_as(
    cx: &Context,
    ptype: PType,
    values: impl Iterator<Item = u64>,
    nulls: Option<&NullBuffer>,
) -> Result<WriteNode> {
    match_word!(ptype, |W| {
        let words: Vec<W> = values.map(W::narrow).collect();
        compress_words(cx, ptype, words.into(), nulls)
    })
}

/// Compresses integers in the smallest type that can hold them.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress_narrowed(
    cx: &Context,
    values: &[i64],
    nulls: Option<&NullBuffer>,
) -> Result<(PType, WriteNode)> {
    let (min, max) = (values.iter().min().copied().unwrap_or(0), values.iter().max().copied().unwrap_or(0));
    if PType::U32.holds(min.into(), max.into()) {
        // The cast is lossless, given the range.
        return compress_positions(cx, values.iter().map(|value| *value as u32).collect(), nulls);
    }
    let ptype = PType::for_signed(min, max);
    Ok((ptype, compress_as(cx, ptype, values.iter().map(|value| value.cast_unsigned()), nulls)?))
}

/// The schemes of a kind, in the form in which they are chosen from.
pub(super) type Schemes<W, const N: usize> = [&'static dyn Scheme<Numbers<W>>; N];
