//! Masks of live rows.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray, BooleanBufferBuilder, UInt64Array};
use arrow::buffer::BooleanBuffer;

use crate::kernels::simd::{Vectorized, vectorized};

/// A mask with at most one live row in so many consists of positions, which then take no more memory than bits.
const MIN_ROWS_PER_POSITION: usize = 64;

/// A mask that marks the live rows of a row range. Masks with all rows or no row live take no memory, and those with
/// few live rows only memory for these, however many rows there are.
#[derive(Debug, Clone, PartialEq)]
pub struct Mask {
    rows: Rows,
    len: usize,
    true_count: usize,
}

/// The number of live rows determines the form.
#[derive(Debug, Clone, PartialEq)]
enum Rows {
    Uniform,
    /// The positions of the live rows, in ascending order.
    Few(Arc<[usize]>),
    Bits(BooleanBuffer),
}

impl Mask {
    /// All `len` rows are live.
    pub fn all(len: usize) -> Self {
        Self { rows: Rows::Uniform, len, true_count: len }
    }

    /// None of `len` rows is live.
    pub fn none(len: usize) -> Self {
        Self { rows: Rows::Uniform, len, true_count: 0 }
    }

    /// The rows whose bit is set.
    pub fn from_bits(bits: BooleanBuffer) -> Self {
        let len = bits.len();
        match bits.count_set_bits() {
            0 => Self::none(len),
            count if count == len => Self::all(len),
            count if count <= len / MIN_ROWS_PER_POSITION => Self::of_few(len, bits.set_indices().collect()),
            true_count => Self { rows: Rows::Bits(bits), len, true_count },
        }
    }

    /// The rows at these positions, in ascending order; at most one in [`MIN_ROWS_PER_POSITION`].
    fn of_few(len: usize, indices: Vec<usize>) -> Self {
        let true_count = indices.len();
        debug_assert!(true_count <= len / MIN_ROWS_PER_POSITION, "{true_count} of {len} rows are not few");
        match true_count {
            0 => Self::none(len),
            _ => Self { rows: Rows::Few(indices.into()), len, true_count },
        }
    }

    /// The rows that are true; false and null are not live.
    pub fn from_predicate(outcome: &BooleanArray) -> Self {
        match outcome.nulls() {
            Some(nulls) if nulls.null_count() > 0 => Self::from_bits(outcome.values() & nulls.inner()),
            _ => Self::from_bits(outcome.values().clone()),
        }
    }

    /// The rows at `indices`, which may be in any order and repeat.
    ///
    /// # Panics
    /// If one is not below `len`.
    pub fn from_indices(len: usize, indices: impl IntoIterator<Item = usize>) -> Self {
        let check = |index: usize| assert!(index < len, "row {index} of a mask of {len}");
        let mut indices = indices.into_iter();
        let mut few: Vec<usize> =
            indices.by_ref().take(len / MIN_ROWS_PER_POSITION).inspect(|index| check(*index)).collect();
        let Some(next) = indices.next() else {
            if !few.is_sorted_by(|a, b| a < b) {
                few.sort_unstable();
                few.dedup();
            }
            return Self::of_few(len, few);
        };
        let mut bits = BooleanBufferBuilder::new(len);
        bits.append_n(len, false);
        for index in few.into_iter().chain([next]).chain(indices) {
            check(index);
            bits.set_bit(index, true);
        }
        Self::from_bits(bits.finish())
    }

    /// The rows of these runs, which are ascending and disjoint.
    ///
    /// # Panics
    /// If one reaches past the end.
    pub(crate) fn from_runs(len: usize, runs: impl Iterator<Item = Range<usize>> + Clone) -> Self {
        let count: usize = runs.clone().map(|run| run.len()).sum();
        if count <= len / MIN_ROWS_PER_POSITION {
            return Self::from_indices(len, runs.flatten());
        }
        let mut bits = BooleanBufferBuilder::new(len);
        for run in runs {
            assert!(run.end <= len, "rows {run:?} of a mask of {len}");
            bits.append_n(run.start - bits.len(), false);
            bits.append_n(run.len(), true);
        }
        bits.append_n(len - bits.len(), false);
        Self::from_bits(bits.finish())
    }

    /// Maximum number of bytes of a mask with so many live rows.
    pub(crate) fn max_bytes(len: usize, true_count: usize) -> usize {
        len.div_ceil(8).min(true_count.saturating_mul(size_of::<usize>()))
    }

    /// Number of rows, live or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range has no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of live rows.
    pub fn true_count(&self) -> usize {
        self.true_count
    }

    /// Whether every row is live.
    pub fn is_all(&self) -> bool {
        self.true_count == self.len
    }

    /// Whether no row is live.
    pub fn is_none(&self) -> bool {
        self.true_count == 0
    }

    /// Whether any of `rows` is live; the range may extend beyond the last row.
    pub(crate) fn any_within(&self, rows: &Range<usize>) -> bool {
        let rows = rows.start.min(self.len)..rows.end.min(self.len);
        match &self.rows {
            Rows::Uniform => !self.is_none() && !rows.is_empty(),
            Rows::Few(few) => !within(few, &rows).is_empty(),
            Rows::Bits(bits) => bits.slice(rows.start, rows.len()).count_set_bits() > 0,
        }
    }

    /// Whether a row is live.
    ///
    /// # Panics
    /// If there is no such row.
    fn is_live(&self, row: usize) -> bool {
        match &self.rows {
            Rows::Uniform => self.is_all(),
            Rows::Few(few) => few.binary_search(&row).is_ok(),
            Rows::Bits(bits) => bits.value(row),
        }
    }

    /// The positions of the live rows, if these are few.
    pub(crate) fn few(&self) -> Option<UInt64Array> {
        match &self.rows {
            Rows::Few(few) => Some(UInt64Array::from_iter_values(few.iter().map(|at| *at as u64))),
            _ => None,
        }
    }

    /// Share of live rows, 0 to 1; 1 for no rows.
    pub fn density(&self) -> f64 {
        if self.len == 0 { 1.0 } else { self.true_count as f64 / self.len as f64 }
    }

    /// One bit per row.
    pub fn to_bits(&self) -> BooleanBuffer {
        match &self.rows {
            Rows::Bits(bits) => bits.clone(),
            Rows::Few(few) => {
                let mut bits = BooleanBufferBuilder::new(self.len);
                bits.append_n(self.len, false);
                few.iter().for_each(|at| bits.set_bit(*at, true));
                bits.finish()
            }
            Rows::Uniform if self.is_none() => BooleanBuffer::new_unset(self.len),
            Rows::Uniform => BooleanBuffer::new_set(self.len),
        }
    }

    /// The mask as an Arrow filter.
    pub fn to_filter(&self) -> BooleanArray {
        BooleanArray::new(self.to_bits(), None)
    }

    /// Positions of the live rows, in ascending order.
    pub fn indices(&self) -> Vec<usize> {
        match &self.rows {
            Rows::Bits(bits) => bits.set_indices().collect(),
            Rows::Few(few) => few.to_vec(),
            Rows::Uniform => (0..self.true_count).collect(),
        }
    }

    /// Runs of live rows, ascending and disjoint.
    pub fn runs(&self) -> Vec<Range<usize>> {
        match &self.rows {
            Rows::Bits(bits) => bits.set_slices().map(|(start, end)| start..end).collect(),
            Rows::Few(few) => {
                few.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[0] + run.len()).collect()
            }
            Rows::Uniform if self.is_none() => Vec::new(),
            Rows::Uniform => std::iter::once(0..self.len).collect(),
        }
    }

    /// The number of runs of live rows.
    pub(crate) fn run_count(&self) -> usize {
        match &self.rows {
            Rows::Bits(bits) => bits.set_slices().count(),
            Rows::Few(few) => few.chunk_by(|a, b| a + 1 == *b).count(),
            Rows::Uniform => usize::from(!self.is_none()),
        }
    }

    /// The number of live rows below each of `rows`.
    pub(crate) fn live_below(&self, rows: impl Iterator<Item = usize>) -> Vec<usize> {
        match &self.rows {
            Rows::Uniform => rows.map(|row| row.min(self.true_count)).collect(),
            Rows::Few(few) => rows.map(|row| few.partition_point(|at| *at < row)).collect(),
            Rows::Bits(bits) => vectorized(SetBelow { ranks: &WordRanks::of(bits), rows }),
        }
    }

    /// The range from the first to the last live row; empty if there is none.
    pub fn span(&self) -> Range<usize> {
        match &self.rows {
            Rows::Uniform if self.is_none() => 0..0,
            Rows::Uniform => 0..self.len,
            Rows::Few(few) => few.first().zip(few.last()).map_or(0..0, |(first, last)| *first..last + 1),
            Rows::Bits(bits) => match bits.set_indices().next() {
                Some(first) => first..end_of_set(bits, first),
                None => 0..0,
            },
        }
    }

    /// The mask of a part of the rows.
    ///
    /// # Panics
    /// If `rows` reaches past the end.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Mask {
        assert!(rows.start <= rows.end && rows.end <= self.len, "mask slice out of bounds");
        match &self.rows {
            Rows::Bits(bits) => Self::from_bits(bits.slice(rows.start, rows.len())),
            Rows::Few(few) => {
                Self::from_indices(rows.len(), within(few, &rows).iter().map(|at| at - rows.start))
            }
            Rows::Uniform if self.is_none() => Self::none(rows.len()),
            Rows::Uniform => Self::all(rows.len()),
        }
    }

    /// Rows live in both.
    ///
    /// # Panics
    /// If the lengths differ.
    #[must_use]
    pub fn and(&self, other: &Mask) -> Mask {
        assert_eq!(self.len, other.len, "masks of different lengths");
        match (&self.rows, &other.rows) {
            _ if self.is_none() || other.is_none() => Self::none(self.len),
            _ if self.is_all() => other.clone(),
            _ if other.is_all() => self.clone(),
            (Rows::Bits(left), Rows::Bits(right)) => Self::from_bits(left & right),
            (Rows::Few(few), _) => Self::of_few(self.len, filtered(few, |at| other.is_live(at))),
            (_, Rows::Few(few)) => Self::of_few(self.len, filtered(few, |at| self.is_live(at))),
            (Rows::Uniform, _) | (_, Rows::Uniform) => unreachable!("uniform masks are all or none"),
        }
    }

    /// Rows live in this mask, but not in the other one.
    ///
    /// # Panics
    /// If the lengths differ.
    #[must_use]
    pub fn without(&self, other: &Mask) -> Mask {
        assert_eq!(self.len, other.len, "masks of different lengths");
        if self.is_none() || other.is_none() {
            return self.clone();
        }
        if other.is_all() {
            return Self::none(self.len);
        }
        if let Rows::Few(few) = &self.rows {
            return Self::of_few(self.len, filtered(few, |at| !other.is_live(at)));
        }
        Self::from_bits(&self.to_bits() & &!&other.to_bits())
    }

    /// Narrows this mask by one that has a row per live row of this mask.
    ///
    /// # Panics
    /// If `inner` does not have `true_count` rows.
    #[must_use]
    pub fn refine(&self, inner: &Mask) -> Mask {
        assert_eq!(self.true_count, inner.len, "refining mask has one row per live row");
        if self.is_all() {
            return inner.clone();
        }
        if inner.is_all() {
            return self.clone();
        }
        let live = self.indices();
        Self::from_indices(self.len, inner.indices().into_iter().map(|at| live[at]))
    }

    /// Keeps the first `count` live rows.
    #[must_use]
    pub fn limit(&self, count: usize) -> Mask {
        if count >= self.true_count {
            return self.clone();
        }
        Self::from_indices(self.len, self.indices().into_iter().take(count))
    }
}

/// The words of a bitmap, and how many bits are set before each of them.
struct WordRanks {
    words: Vec<u64>,
    before: Vec<usize>,
    total: usize,
}

impl WordRanks {
    fn of(bits: &BooleanBuffer) -> Self {
        let words: Vec<u64> = bits.bit_chunks().iter_padded().collect();
        let mut total = 0;
        let before = words.iter().map(|word| {
            let before = total;
            total += word.count_ones() as usize;
            before
        });
        let before = before.collect();
        Self { words, before, total }
    }

    /// Number of set bits below `row`.
    #[inline(always)]
    fn below(&self, row: usize) -> usize {
        match (self.words.get(row / 64), self.before.get(row / 64)) {
            (Some(word), Some(before)) => before + (word & !(u64::MAX << (row % 64))).count_ones() as usize,
            _ => self.total,
        }
    }
}

/// [`WordRanks::below`] for each of `rows`.
struct SetBelow<'a, R> {
    ranks: &'a WordRanks,
    rows: R,
}

impl<R: Iterator<Item = usize>> Vectorized for SetBelow<'_, R> {
    type Output = Vec<usize>;

    #[inline(always)]
    fn run(self) -> Vec<usize> {
        self.rows.map(|row| self.ranks.below(row)).collect()
    }
}

/// Those of some ascending positions that are in a range.
fn within<'a>(positions: &'a [usize], range: &Range<usize>) -> &'a [usize] {
    let rest = &positions[positions.partition_point(|at| *at < range.start)..];
    &rest[..rest.partition_point(|at| *at < range.end)]
}

fn filtered(positions: &[usize], keep: impl Fn(usize) -> bool) -> Vec<usize> {
    positions.iter().copied().filter(|at| keep(*at)).collect()
}

/// The position after the last set bit; the bit at `low` is set.
fn end_of_set(bits: &BooleanBuffer, mut low: usize) -> usize {
    let mut high = bits.len();
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if bits.slice(middle, high - middle).count_set_bits() > 0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_false_rows_are_not_live() {
        let outcome = BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]);
        assert_eq!(Mask::from_predicate(&outcome).indices(), [0, 3]);
    }

    #[test]
    fn indices_may_repeat_in_any_order() {
        assert_eq!(Mask::from_indices(6, [5, 1, 5, 3]).indices(), [1, 3, 5]);
    }

    #[test]
    #[should_panic(expected = "row 6 of a mask of 6")]
    fn an_index_beyond_the_rows_panics() {
        Mask::from_indices(6, [2, 6]);
    }

    /// Masks of all forms: with no, few, many and all rows live.
    fn masks(len: usize) -> Vec<Mask> {
        let mut next = crate::kernels::random(9);
        let mut some =
            |one_in: u64| -> Vec<usize> { (0..len).filter(|_| next().is_multiple_of(one_in)).collect() };
        let chosen = [some(500), some(100), some(66), some(60), some(2)];
        let chosen = chosen.into_iter().map(|rows| Mask::from_indices(len, rows));
        chosen.chain([Mask::all(len), Mask::none(len)]).collect()
    }

    fn bools(mask: &Mask) -> Vec<bool> {
        mask.to_bits().iter().collect()
    }

    #[test]
    fn few_rows_are_like_many() {
        let masks = masks(1000);
        assert!(masks[0].few().is_some() && masks[4].few().is_none());
        for one in &masks {
            let rows = bools(one);
            let indices: Vec<usize> = (0..1000).filter(|row| rows[*row]).collect();
            assert_eq!((one.indices(), one.true_count()), (indices.clone(), indices.len()));
            assert_eq!(&Mask::from_bits(one.to_bits()), one, "the form depends on the rows alone");
            assert_eq!(&Mask::from_indices(1000, indices.iter().rev().chain(&indices).copied()), one);
            assert_eq!(&Mask::from_runs(1000, one.runs().into_iter()), one);
            assert_eq!(one.few().map_or(indices.len(), |few| few.len()), indices.len());
            let span = indices.first().zip(indices.last()).map_or(0..0, |(first, last)| *first..last + 1);
            assert_eq!(one.span(), span);
            assert!(Mask::max_bytes(1000, indices.len()) <= 125);
            for part in [0..1000, 3..3, 7..70, 500..1000] {
                assert_eq!(bools(&one.slice(part.clone())), rows[part.clone()]);
                assert_eq!(one.any_within(&part), rows[part].contains(&true));
            }
            for row in [0, 1, 64, 555, 1000] {
                let below = indices.partition_point(|index| *index < row);
                assert_eq!(one.live_below([row].into_iter()), [below]);
            }
            assert_eq!(one.limit(3).indices(), indices[..indices.len().min(3)]);
            for other in &masks {
                let both = rows.iter().zip(bools(other));
                let and: Vec<bool> = both.clone().map(|(one, other)| *one && other).collect();
                let without: Vec<bool> = both.map(|(one, other)| *one && !other).collect();
                assert_eq!(one.and(other), Mask::from_bits(and.into()));
                assert_eq!(one.without(other), Mask::from_bits(without.into()));
            }
            let inner = Mask::from_indices(indices.len(), (0..indices.len()).step_by(70));
            assert_eq!(one.refine(&inner).indices(), indices.iter().step_by(70).copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn refine_counts_rows_among_the_live_ones() {
        let outer = Mask::from_indices(6, [1, 3, 5]);
        let inner = Mask::from_indices(3, [0, 2]);
        assert_eq!(outer.refine(&inner).indices(), [1, 5]);
        assert_eq!(outer.refine(&Mask::none(3)).true_count(), 0);
        assert_eq!(Mask::all(3).refine(&inner).indices(), [0, 2]);
    }

    #[test]
    fn live_rows_below_each_row_are_counted() {
        let sparse = Mask::from_indices(200, (0..200).step_by(3)).slice(1..190);
        for mask in [sparse, Mask::all(64), Mask::none(65), Mask::all(0)] {
            let indices = mask.indices();
            let below = (0..=mask.len()).map(|row| indices.iter().filter(|index| **index < row).count());
            assert_eq!(mask.live_below(0..=mask.len()), below.collect::<Vec<_>>());
        }
    }

    #[test]
    fn limit_keeps_the_first_live_rows() {
        assert_eq!(Mask::from_indices(6, [1, 3, 5]).limit(2).indices(), [1, 3]);
        assert_eq!(Mask::all(4).limit(2).indices(), [0, 1]);
    }

    #[test]
    fn uniform_masks_slice_and_combine() {
        assert!(Mask::all(5).slice(1..3).is_all());
        assert!(Mask::none(5).and(&Mask::all(5)).is_none());
        assert_eq!(Mask::from_indices(4, [0, 2]).and(&Mask::from_indices(4, [2, 3])).indices(), [2]);
        assert_eq!(Mask::from_indices(4, [0, 2]).without(&Mask::from_indices(4, [2, 3])).indices(), [0]);
        assert_eq!(Mask::all(3).without(&Mask::from_indices(3, [1])).indices(), [0, 2]);
        assert!(
            Mask::all(5).without(&Mask::all(5)).is_none() && Mask::all(5).without(&Mask::none(5)).is_all()
        );
        assert_eq!(Mask::from_indices(8, [2, 3, 6]).runs(), [2..4, 6..7]);
        for (first, last) in [(0, 0), (0, 99), (7, 8), (63, 64), (99, 99)] {
            assert_eq!(Mask::from_indices(100, [first, last]).span(), first..last + 1);
        }
        assert_eq!((Mask::all(5).span(), Mask::none(5).span()), (0..5, 0..0));
        assert_eq!(Mask::from_bits(BooleanBuffer::new_unset(9)).span(), 0..0);
    }
}
