//! Rows of a file as ranges of their numbers, and how ranges are merged.

use std::ops::{Range, Sub};
use std::sync::Arc;

use crate::mask::Mask;

/// Ranges of rows, counted from the start of the file: in ascending order, and apart from each other.
///
/// ```
/// use vortex_core::scan::RowRanges;
///
/// let rows = RowRanges::new([70..90, 10..20, 20..30, 5..5]);
/// assert!(rows.iter().eq([10..30, 70..90]));
/// assert_eq!(rows.row_count(), 40);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowRanges(Arc<[Range<u64>]>);

impl RowRanges {
    /// The rows that are in any of these ranges, which may come in any order and overlap. Ranges that end before they
    /// start have no rows.
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let ranges = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        Self(merged(ranges, 0).into())
    }

    /// The ranges, none of which is empty.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of rows.
    pub fn row_count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// From the first to the last row; `0..0` if there are no rows.
    pub fn bounds(&self) -> Range<u64> {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        }
    }

    /// The rows that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        Self::new(few.0.iter().flat_map(|range| many.within(range)))
    }

    /// The rows of a range that are among these, as ranges.
    pub(crate) fn within(&self, rows: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let Range { start, end } = *rows;
        let first = self.0.partition_point(|range| range.end <= start);
        let overlapping = self.0[first..].iter().take_while(move |range| range.start < end);
        overlapping.map(move |range| range.start.max(start)..range.end.min(end))
    }

    /// The range that contains a row, or the first one after it.
    pub(crate) fn at_or_after(&self, row: u64) -> Option<&Range<u64>> {
        self.0.get(self.0.partition_point(|range| range.end <= row))
    }

    /// From the first to the last row at or after `row` and before the next multiple of `step`; if there are none
    /// before that multiple, before the next one, and so on.
    pub(crate) fn step_from(&self, row: u64, step: u64) -> Option<Range<u64>> {
        let start = self.at_or_after(row)?.start.max(row);
        let step_end = (start / step + 1).saturating_mul(step);
        let end = self.within(&(start..step_end)).last()?.end;
        Some(start..end)
    }

    /// The number of steps, from one multiple of `step` to the next, with rows of a range.
    pub(crate) fn count_steps(&self, rows: &Range<u64>, step: u64) -> u64 {
        let (mut count, mut counted) = (0, 0);
        for part in self.within(rows) {
            let end = part.end.div_ceil(step);
            count += end - (part.start / step).max(counted);
            counted = end;
        }
        count
    }

    /// One bit per row of a range: whether it is among these.
    pub(crate) fn mask(&self, rows: &Range<u64>) -> Mask {
        let len = (rows.end - rows.start) as usize;
        if self.within(rows).next().is_some_and(|part| part == *rows) {
            return Mask::all(len);
        }
        let parts: Vec<_> = self.within(rows).collect();
        let place = |row: u64| (row - rows.start) as usize;
        Mask::from_runs(len, parts.iter().map(|part| place(part.start)..place(part.end)))
    }
}

impl From<Range<u64>> for RowRanges {
    fn from(rows: Range<u64>) -> Self {
        Self::new([rows])
    }
}

impl FromIterator<Range<u64>> for RowRanges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        Self::new(ranges)
    }
}

/// The ranges in ascending order, with those joined that overlap or lie at most `gap` apart.
pub(crate) fn merged<T: Copy + Ord + Sub<Output = T>>(mut ranges: Vec<Range<T>>, gap: T) -> Vec<Range<T>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let joins = next.start <= range.end || next.start - range.end <= gap;
        if joins {
            range.end = range.end.max(next.end);
        }
        joins
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges of rows below 64, and the same rows as the bits of a word.
    fn arbitrary(next: &mut impl FnMut() -> u64) -> (RowRanges, u64) {
        let count = next() % 5;
        let mut range = |_| {
            let start = next() % 64;
            start..start + next() % (65 - start)
        };
        let ranges: Vec<_> = (0..count).map(&mut range).collect();
        let bits = ranges.iter().cloned().flatten().fold(0, |bits, row| bits | 1 << row);
        (RowRanges::new(ranges), bits)
    }

    #[test]
    fn ranges_are_sets_of_rows() {
        let mut next = crate::kernels::random(7);
        for _ in 0..1000 {
            let ((one, one_bits), (other, other_bits)) = (arbitrary(&mut next), arbitrary(&mut next));
            let bits = |rows: &RowRanges| rows.iter().flatten().fold(0u64, |bits, row| bits | 1 << row);
            assert_eq!(bits(&one), one_bits);
            assert_eq!(one.row_count(), u64::from(one_bits.count_ones()));
            assert_eq!(one.is_empty(), one_bits == 0);
            assert!(one.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{one:?}");
            let both = one.intersection(&other);
            assert_eq!(bits(&both), one_bits & other_bits);
            assert_eq!(both, other.intersection(&one));
            let row = next() % 64;
            let rest = one_bits >> row << row;
            let found = one.at_or_after(row).map(|range| range.start.max(row));
            assert_eq!(found, (rest != 0).then(|| u64::from(rest.trailing_zeros())));
            let mask = one.mask(&(row..64)).to_bits();
            assert!((row..64).all(|at| mask.value((at - row) as usize) == (one_bits >> at & 1 == 1)));
        }
    }

    #[test]
    fn steps_cover_all_rows() {
        let mut next = crate::kernels::random(8);
        for _ in 0..1000 {
            let (rows, bits) = arbitrary(&mut next);
            let step = 1 + next() % 20;
            let steps = std::iter::successors(rows.step_from(0, step), |of| rows.step_from(of.end, step));
            let steps: Vec<_> = steps.collect();
            assert_eq!(rows.count_steps(&(0..64), step), steps.len() as u64);
            for of in &steps {
                assert_eq!(of.start / step, (of.end - 1) / step, "{of:?} in steps of {step}");
                assert!(bits >> of.start & 1 == 1 && bits >> (of.end - 1) & 1 == 1, "{of:?}");
            }
            assert_eq!(RowRanges::new(steps).intersection(&rows), rows);
        }
    }

    #[test]
    fn no_rows_have_no_bounds() {
        assert_eq!(RowRanges::from(7..7).bounds(), 0..0);
        assert_eq!(RowRanges::new([u64::MAX - 1..u64::MAX, 3..5]).bounds(), 3..u64::MAX);
    }
}
