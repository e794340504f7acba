//! Maps byte ranges of a file to rows.
//!
//! DataFusion cuts files by bytes, but in a columnar file "row 1000" has no single position. Instead, the splits of a
//! scan are mapped to bytes, each to an equal share of the file. Blocks of neighbouring splits come in [bit-reversed
//! order](https://en.wikipedia.org/wiki/Bit-reversal_permutation), so that a range has blocks from all over the file:
//!
//! ```text
//! blocks, in the order of rows    |   0   |   1   |   2   |   3   |
//! blocks, in the order of bytes   |   0   |   2   |   1   |   3   |       range 0..50 of 100 reads the blocks 0 and 2
//! ```
//!
//! Therefore, partitions that read ranges of one file share the work even if all rows that pass a filter are next to
//! each other. Blocks are longer than most chunks: partitions would wait for each other while one loads a chunk that
//! they share, or fetch it several times if they do not proceed at the same pace. Ranges that tile the bytes also tile
//! the rows, regardless of which process computes them.

use std::ops::Range;

use vortex_core::scan::RowRanges;

/// The least number of rows of a block: several chunks, of which those written here have at most 131,072 rows.
const BLOCK_ROWS: u64 = 1 << 20;

/// The most blocks of a file.
const MAX_BLOCKS: usize = 256;

/// The rows of the splits that belong to `bytes`, in a file of `file_size` bytes. The splits are adjacent and
/// ascend from row 0.
pub(crate) fn rows_of(bytes: Range<u64>, file_size: u64, splits: &[Range<u64>]) -> RowRanges {
    let before = |position: u64| share_before(position, file_size, splits.len());
    let (first, end) = (before(bytes.start), before(bytes.end));
    in_order_of_bytes(splits).take(end).skip(first).cloned().collect()
}

/// How many of `count` equal shares of a file start before a position; all of them, if it is the end of the file.
fn share_before(position: u64, file_size: u64, count: usize) -> usize {
    let shares = u128::from(position) * count as u128;
    let started = shares.div_ceil(u128::from(file_size.max(1)));
    usize::try_from(started).unwrap_or(count).min(count)
}

/// The splits in the order in which they are mapped to bytes.
fn in_order_of_bytes(splits: &[Range<u64>]) -> impl Iterator<Item = &Range<u64>> {
    let split_rows = splits.iter().map(|rows| rows.end - rows.start).max().unwrap_or(0).max(1);
    let per_block = usize::try_from(BLOCK_ROWS.div_ceil(split_rows)).unwrap_or(usize::MAX);
    let per_block = per_block.max(splits.len().div_ceil(MAX_BLOCKS));
    bit_reversed(splits.len().div_ceil(per_block)).flat_map(move |block| {
        let start = block * per_block;
        &splits[start..splits.len().min(start.saturating_add(per_block))]
    })
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
    fn halves_of_a_file_have_every_other_block() {
        let block = BLOCK_ROWS;
        let splits = splits(&[block / 2; 12]);
        let starting = |blocks: [u64; 3]| RowRanges::new(blocks.map(|at| at * block..(at + 1) * block));
        assert_eq!(rows_of(0..50, 100, &splits), starting([0, 2, 4]));
        assert_eq!(rows_of(50..100, 100, &splits), starting([1, 3, 5]));
    }

    #[test]
    fn parts_smaller_than_a_block_are_contiguous() {
        let splits = splits(&[BLOCK_ROWS / 4; 8]);
        let rows = |part: u64| rows_of(part * 10..(part + 1) * 10, 80, &splits);
        assert!((0..4).all(|part| rows(part) == splits[part as usize].clone().into()));
        assert_eq!(rows_of(0..20, 80, &splits), (0..BLOCK_ROWS / 2).into());
    }

    #[test]
    fn equal_parts_of_a_file_have_equal_shares_of_any_rows() {
        for (count, parts) in [(31, 2), (31, 3), (100, 7), (1000, 12), (64, 64), (5000, 9)] {
            let splits = splits(&vec![BLOCK_ROWS; count]);
            let (count, size) = (count as u64, 1 << 20);
            let of = |part: u64| rows_of(size * part / parts..size * (part + 1) / parts, size, &splits);
            // Blocks may be longer, and begin and end within parts.
            let block = count.div_ceil(MAX_BLOCKS as u64);
            for part in 0..parts {
                let share = of(part).row_count() / BLOCK_ROWS;
                assert!((count / parts..=count.div_ceil(parts)).contains(&share), "{share} of {count}");
                let half =
                    of(part).intersection(&(0..count / 2 * BLOCK_ROWS).into()).row_count() / BLOCK_ROWS;
                assert!(half.abs_diff(share - half) <= 4 * block, "{half} of {share} in the first half");
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
