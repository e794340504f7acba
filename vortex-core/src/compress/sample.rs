//! Samples of the values of a column.

use std::ops::Range;

/// Number of adjacent values in each run of a sample.
const RUN: usize = 32;

/// Number of runs in a sample.
pub(super) const RUNS: usize = 64;

/// The row ranges that make up a sample of `len` rows: all rows, or one run in each of several equal
/// parts, at varying positions, so that the sample does not miss periodic data.
pub(super) fn rows(len: usize) -> impl Iterator<Item = Range<usize>> {
    runs(len, RUN)
}

/// One run of `run` values in each of several equal parts of `len`, or all of them.
pub(super) fn runs(len: usize, run: usize) -> impl Iterator<Item = Range<usize>> {
    let (runs, run) = if len <= run * RUNS { (1, len) } else { (RUNS, run) };
    let part = len / runs;
    (0..runs).map(move |at| {
        let scattered = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let start = at * part + scattered as usize % (part - run + 1);
        start..start + run
    })
}

/// At most `count` rows from the middle of `len` rows, to be compressed for an estimate: adjacent rows are
/// representative, unlike rows far apart.
pub(super) fn middle(len: usize, count: usize) -> Range<usize> {
    let count = count.min(len);
    let start = (len - count) / 2;
    start..start + count
}

/// The sorted numbers of a sample, and estimates for all `rows` of a column.
#[derive(Debug)]
pub(super) struct Sample {
    /// In ascending order.
    pub(super) sorted: Vec<u64>,
    rows: usize,
}

impl Sample {
    pub(super) fn new(mut values: Vec<u64>, rows: usize) -> Self {
        values.sort_unstable();
        Self { sorted: values, rows }
    }

    /// Number of rows of the column.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Number of rows of the column per row of the sample.
    pub(super) fn scale(&self) -> f64 {
        self.rows as f64 / self.sorted.len().max(1) as f64
    }

    /// The most frequent value, and the share of rows that have it.
    pub(super) fn top(&self) -> (u64, f64) {
        let groups = self.sorted.chunk_by(|left, right| left == right);
        let (value, count) =
            groups.map(|group| (group[0], group.len())).max_by_key(|(_, count)| *count).unwrap_or_default();
        (value, count as f64 / self.sorted.len().max(1) as f64)
    }

    /// Approximate number of distinct values among all rows, from two estimators that both tend to be too
    /// low: values seen once in the sample represent others that it missed; and if `n` values are equally
    /// frequent, a much smaller sample of `k` contains about `k * k / 2n` repetitions.
    pub(super) fn distinct(&self) -> usize {
        let (mut once, mut more) = (0usize, 0usize);
        for group in self.sorted.chunk_by(|left, right| left == right) {
            if group.len() == 1 { once += 1 } else { more += 1 }
        }
        if self.sorted.len() >= self.rows {
            return once + more;
        }
        let missed = (once as f64 * self.scale().sqrt()) as usize + more;
        let sampled = self.sorted.len();
        let repeats = sampled - once - more;
        let alike = if once > sampled / 2 { sampled * sampled / (2 * repeats + 1) } else { 0 };
        missed.max(alike).min(self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_lie_within_the_column() {
        for len in [0, 1, 2047, 2048, 2049, 4095, 100_000] {
            let rows: Vec<_> = rows(len).collect();
            assert!(rows.iter().all(|rows| rows.end <= len));
            assert!(rows.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert_eq!(rows.iter().map(ExactSizeIterator::len).sum::<usize>(), len.min(RUN * RUNS));
        }
    }

    #[test]
    fn few_values_are_told_from_many() {
        let few = Sample::new((0..2000).map(|at| at % 50).collect(), 1_000_000);
        assert_eq!(few.distinct(), 50);
        assert_eq!(few.top().1, 0.02);
        let many = Sample::new((0..2000).collect(), 1_000_000);
        assert!(many.distinct() > 40_000);
        let hardly_repeated = Sample::new((0..2000).map(|at| at.max(20)).collect(), 1_000_000);
        assert!((90_000..110_000).contains(&hardly_repeated.distinct()));
        assert_eq!(Sample::new(vec![7, 7, 3], 3).distinct(), 2);
    }
}
