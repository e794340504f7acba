//! Maps byte ranges of a file to rows.
//!
//! DataFusion cuts files by bytes, but in a columnar file "row 1000" has no single position. Rows are mapped
//! to an axis as long as the file, and each split belongs to the range that contains its first row:
//!
//! ```text
//! bytes   0 ------------ 50 ------------ 100
//! splits  |   0   |   1   |   2   |   3   |       400 rows
//! range 0..50  -> rows 0..200,  range 50..100 -> rows 200..400
//! ```
//!
//! Therefore, ranges that tile the bytes also tile the rows, regardless of which process computes them.

use std::ops::Range;

/// The rows of the splits that start in `bytes`, in a file of `file_size` bytes. The splits are adjacent and
/// ascend from row 0; the result is empty if none of them starts there.
pub(crate) fn rows_of(bytes: Range<u64>, file_size: u64, splits: &[Range<u64>]) -> Range<u64> {
    let row_count = splits.last().map_or(0, |last| last.end);
    let starts_before = |position: u64| {
        splits.partition_point(|split| first_byte(split.start, row_count, file_size) < position)
    };
    let (first, end) = (starts_before(bytes.start), starts_before(bytes.end));
    match splits.get(first..end) {
        Some([one]) => one.clone(),
        Some([first, .., last]) => first.start..last.end,
        _ => 0..0,
    }
}

/// The position of a row on the axis of the file. Row 0 is at byte 0, and all rows are before the end of the
/// file.
fn first_byte(row: u64, row_count: u64, file_size: u64) -> u64 {
    let scaled = u128::from(row) * u128::from(file_size) / u128::from(row_count.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX).min(file_size.saturating_sub(1))
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
        let mut next = 0;
        for pair in cuts.windows(2) {
            let rows = rows_of(pair[0]..pair[1], file_size, splits);
            if !rows.is_empty() {
                assert_eq!(rows.start, next, "cuts {cuts:?}");
                next = rows.end;
            }
        }
        assert_eq!(next, splits.last().unwrap().end, "cuts {cuts:?}");
    }

    #[test]
    fn any_tiling_of_the_bytes_reads_each_row_once() {
        let splits = splits(&[1, 1000, 7, 7, 300_000, 1]);
        tiles(&[0, 1000], &splits);
        tiles(&[0, 1, 2, 3, 1000], &splits);
        tiles(&[0, 500, 999, 1000], &splits);
        tiles(&(0..=97).collect::<Vec<_>>(), &splits);
        // A file smaller than its number of rows.
        tiles(&[0, 3, 5], &splits);
    }

    #[test]
    fn the_first_split_belongs_to_the_first_byte() {
        let splits = splits(&[100]);
        assert_eq!(rows_of(0..1, 1000, &splits), 0..100);
        assert!(rows_of(1..1000, 1000, &splits).is_empty());
        assert!(rows_of(0..0, 1000, &splits).is_empty());
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
