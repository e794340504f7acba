//! Masks of live rows.

use std::ops::Range;

use arrow::array::{Array as _, BooleanArray};
use arrow::buffer::BooleanBuffer;

use crate::kernels::simd::{Vectorized, vectorized};

/// A mask that marks the live rows of a row range. Masks with all rows or no row live take no memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Mask {
    rows: Rows,
    len: usize,
    true_count: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Rows {
    Uniform,
    Bits(BooleanBuffer),
}

/// The number of live rows before each word of 64 rows.
#[derive(Debug)]
pub(crate) struct Ranks {
    words: Vec<u64>,
    before: Vec<usize>,
    total: usize,
}

impl Ranks {
    /// Number of live rows below each of `rows`.
    pub(crate) fn below_all(&self, rows: impl Iterator<Item = usize>) -> Vec<usize> {
        vectorized(BelowAll { ranks: self, rows })
    }

    /// Number of live rows below `row`.
    #[inline(always)]
    pub(crate) fn below(&self, row: usize) -> usize {
        match (self.words.get(row / 64), self.before.get(row / 64)) {
            (Some(word), Some(before)) => before + (word & !(u64::MAX << (row % 64))).count_ones() as usize,
            _ => self.total,
        }
    }
}

struct BelowAll<'a, R> {
    ranks: &'a Ranks,
    rows: R,
}

impl<R: Iterator<Item = usize>> Vectorized for BelowAll<'_, R> {
    type Output = Vec<usize>;

    #[inline(always)]
    fn run(self) -> Vec<usize> {
        self.rows.map(|row| self.ranks.below(row)).collect()
    }
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
            true_count => Self { rows: Rows::Bits(bits), len, true_count },
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
        let mut bits = arrow::array::BooleanBufferBuilder::new(len);
        bits.append_n(len, false);
        for index in indices {
            assert!(index < len, "row {index} of a mask of {len}");
            bits.set_bit(index, true);
        }
        Self::from_bits(bits.finish())
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
            Rows::Bits(bits) => bits.slice(rows.start, rows.len()).count_set_bits() > 0,
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
            Rows::Uniform => (0..self.true_count).collect(),
        }
    }

    /// Runs of live rows, ascending and disjoint.
    pub fn runs(&self) -> Vec<Range<usize>> {
        match &self.rows {
            Rows::Bits(bits) => bits.set_slices().map(|(start, end)| start..end).collect(),
            Rows::Uniform if self.is_none() => Vec::new(),
            Rows::Uniform => std::iter::once(0..self.len).collect(),
        }
    }

    /// Cumulative counts of live rows, for repeatedly determining how many come before a row.
    pub(crate) fn ranks(&self) -> Ranks {
        let bits = self.to_bits();
        let words: Vec<u64> = bits.bit_chunks().iter_padded().collect();
        let before = words.iter().scan(0, |total, word| {
            let before = *total;
            *total += word.count_ones() as usize;
            Some(before)
        });
        Ranks { before: before.collect(), words, total: self.true_count }
    }

    /// The range from the first to the last live row; empty if there is none.
    pub fn span(&self) -> Range<usize> {
        match &self.rows {
            Rows::Uniform if self.is_none() => 0..0,
            Rows::Uniform => 0..self.len,
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

    #[test]
    fn refine_counts_rows_among_the_live_ones() {
        let outer = Mask::from_indices(6, [1, 3, 5]);
        let inner = Mask::from_indices(3, [0, 2]);
        assert_eq!(outer.refine(&inner).indices(), [1, 5]);
        assert_eq!(outer.refine(&Mask::none(3)).true_count(), 0);
        assert_eq!(Mask::all(3).refine(&inner).indices(), [0, 2]);
    }

    #[test]
    fn ranks_count_the_live_rows_before_each() {
        let sparse = Mask::from_indices(200, (0..200).step_by(3)).slice(1..190);
        for mask in [sparse, Mask::all(64), Mask::none(65), Mask::all(0)] {
            let ranks = mask.ranks();
            let indices = mask.indices();
            for row in 0..=mask.len() {
                assert_eq!(ranks.below(row), indices.iter().filter(|index| **index < row).count());
            }
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
