//! Maps byte ranges of a file to rows.
//!
//! DataFusion cuts files by bytes, but in a columnar file "row 1000" has no single position. Instead, the splits of a
//! scan are mapped to bytes, each to an equal share of the file. Neighbouring splits are mapped far apart, in
//! [bit-reversed order](https://en.wikipedia.org/wiki/Bit-reversal_permutation), so that any range has splits from
//! everywhere:
//!
//! ```text
//! rows    |   0   |   1   |   2   |   3   |
//! bytes   |   0   |   2   |   1   |   3   |       range 0..50 of 100 reads the splits 0 and 2
//! ```
//!
//! Therefore, partitions that read ranges of one file proceed through it side by side. They need the same chunks at the
//! same time, which are kept in memory only once, and they share the work even if all rows that pass a filter
//! are next to each other. Ranges that tile the bytes also tile the rows, regardless of which process computes them.

use std::ops::Range;

use vortex_core::scan::RowRanges;

/// The rows of the splits that belong to `bytes`, in a file of `file_size` bytes. The splits are adjacent and
/// ascend from row 0.
pub(crate) fn rows_of(bytes: Range<u64>, file_size: u64, splits: &[Range<u64>]) -> RowRanges {
    let count = splits.len();
    let before = |position: u64| share_before(position, file_size, count);
    let (first, end) = (before(bytes.start), before(bytes.end));
    let share = bit_reversed(count).take(end).skip(first);
    share.map(|at| splits[at].clone()).collect()
}

/// How many of `count` equal shares of a file start before a position; all of them, if it is the end of the file.
fn share_before(position: u64, file_size: u64, count: usize) -> usize {
    let shares = u128::from(position) * count as u128;
    let started = shares.div_ceil(u128::from(file_size.max(1)));
    usize::try_from(started).unwrap_or(count).min(count)
}

/// The numbers below `count`, in the order of their reversed bits.
fn bit_reversed(count: usize) -> impl Iterator<Item = usize> {
    let end = count.next_power_of_two();
    let unused = usize::BITS - end.trailing_zeros();
    let reversed = move |at: usize| at.reverse_bits().checked_shr(unused).unwrap_or(0);
    (0..end).map(reversed).filter(move |at| *at < count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(sizes: &[u64]) -> Vec<Range<u64>> {
        let starts = sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end - size..*end)
        });
        starts.collect()
    }

    fn tiles(cuts: &[u64], splits: &[Range<u64>]) {
        let file_size = *cuts.last().unwrap();
        let parts = cuts.windows(2).map(|pair| rows_of(pair[0]..pair[1], file_size, splits));
        let (mut rows, mut all) = (0, Vec::new());
        for part in parts {
            rows += part.row_count();
            all.extend(part.iter());
        }
        let whole = RowRanges::from(0..splits.last().unwrap().end);
        assert_eq!((rows, RowRanges::new(all)), (whole.row_count(), whole), "cuts {cuts:?}");
    }

    #[test]
    fn any_tiling_of_the_bytes_reads_each_row_once() {
        let splits = splits(&[1, 1000, 7, 7, 300_000, 1]);
        tiles(&[0, 1000], &splits);
        tiles(&[0, 1, 2, 3, 1000], &splits);
        tiles(&[0, 500, 999, 1000], &splits);
        tiles(&(0..=97).collect::<Vec<_>>(), &splits);
        // A file smaller than its number of rows, and of splits.
        tiles(&[0, 3, 5], &splits);
    }

    #[test]
    fn the_first_split_belongs_to_the_first_byte() {
        let splits = splits(&[100]);
        assert_eq!(rows_of(0..1, 1000, &splits), (0..100).into());
        assert!(rows_of(1..1000, 1000, &splits).is_empty());
        assert!(rows_of(0..0, 1000, &splits).is_empty());
    }

    #[test]
    fn halves_of_a_file_have_every_other_split() {
        let splits = splits(&[10; 6]);
        assert_eq!(rows_of(0..50, 100, &splits), RowRanges::new([0..10, 20..30, 40..50]));
        assert_eq!(rows_of(50..100, 100, &splits), RowRanges::new([10..20, 30..40, 50..60]));
    }

    #[test]
    fn equal_parts_of_a_file_have_equal_shares_of_any_rows() {
        for (count, parts) in [(31, 2), (31, 3), (100, 7), (1000, 12), (64, 64)] {
            let splits = splits(&vec![1; count]);
            let (count, size) = (count as u64, 1 << 20);
            let of = |part: u64| rows_of(size * part / parts..size * (part + 1) / parts, size, &splits);
            for part in 0..parts {
                let share = of(part).row_count();
                assert!((count / parts..=count.div_ceil(parts)).contains(&share), "{share} of {count}");
                let half = of(part).intersection(&(0..count / 2).into()).row_count();
                assert!(half.abs_diff(share - half) <= 4, "{half} of {share} in the first half");
            }
        }
    }

    #[test]
    fn large_files_do_not_overflow() {
        let splits = [0..u64::MAX / 2, u64::MAX / 2..u64::MAX - 1];
        tiles(&[0, u64::MAX / 3, u64::MAX], &splits);
    }

    #[test]
    fn a_file_without_rows_has_none() {
        assert!(rows_of(0..10, 10, &[]).is_empty());
    }
}
