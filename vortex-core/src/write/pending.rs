//! Rows that have been written but not yet encoded.

use std::cmp::Reverse;
use std::collections::VecDeque;

use arrow::array::{Array as _, ArrayRef};

use super::ZONE_LEN;
use super::chunk::chunk_rows;
use super::row_sizes::RowSizes;
use super::waiting_rows::WaitingRows;
use crate::Result;

/// In a column without runs, one in this many pieces is checked for runs again.
const ASKED_AGAIN: usize = 8;

/// Short pieces are joined once there are so many of them: an array takes far more memory than a few values.
const MAX_SHORT: usize = 32;

/// Rows waiting to be encoded, column by column.
#[derive(Debug)]
pub(super) struct PendingRows {
    leaves: Vec<PendingLeaf>,
    /// Bytes that everything takes.
    bytes: usize,
}

/// Rows of one leaf.
#[derive(Debug, Default)]
struct PendingLeaf {
    pieces: VecDeque<WaitingRows>,
    /// Short pieces, after all others, and the bytes that their arrays take besides the rows.
    short: Vec<WaitingRows>,
    array_bytes: usize,
    rows: usize,
    sizes: RowSizes,
    /// Number of pieces since the last one that was kept as runs.
    without_runs: usize,
    /// Position in the file of the first row.
    first_row: u64,
}

/// Rows of one leaf that are cut off and encoded together.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) leaf: usize,
    pub(super) pieces: Vec<ArrayRef>,
    pub(super) rows: usize,
    pub(super) sizes: RowSizes,
    pub(super) first_row: u64,
}

impl PendingRows {
    pub(super) fn new(leaves: usize) -> Self {
        Self { leaves: (0..leaves).map(|_| PendingLeaf::default()).collect(), bytes: 0 }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the rows, without those that are only taken until short pieces are joined.
    pub(super) fn row_bytes(&self) -> usize {
        self.leaves.iter().map(|leaf| leaf.sizes.waiting).sum()
    }

    /// Appends rows: one array per leaf.
    ///
    /// # Errors
    /// If rows of a leaf cannot be copied.
    pub(super) fn push(&mut self, leaves: Vec<ArrayRef>) -> Result<()> {
        for (leaf, array) in self.leaves.iter_mut().zip(leaves) {
            let before = leaf.taken_bytes();
            leaf.push(array)?;
            self.bytes = self.bytes - before + leaf.taken_bytes();
        }
        Ok(())
    }

    /// Cuts off the rows to encode now: of each leaf its full chunks and, if more than `limit` bytes
    /// would remain, also the rest of the leaves that take most, preferring leaves with whole zones.
    ///
    /// # Errors
    /// If rows of a leaf cannot be copied.
    pub(super) fn cut_due(&mut self, limit: usize) -> Result<Vec<Cut>> {
        // If too little would become free, the next rows would soon be joined again.
        if self.bytes > limit && self.row_bytes() <= enough(limit) {
            for leaf in &mut self.leaves {
                let before = leaf.taken_bytes();
                leaf.join_short()?;
                self.bytes = self.bytes - before + leaf.taken_bytes();
            }
        }
        let full = |leaf: &PendingLeaf| leaf.rows / leaf.chunk_rows() * leaf.chunk_rows();
        let mut rows: Vec<usize> = self.leaves.iter().map(full).collect();
        if self.bytes <= limit && rows.iter().all(|rows| *rows == 0) {
            return Ok(Vec::new());
        }
        let left = |leaf: &PendingLeaf, rows: usize| {
            if rows == leaf.rows { 0 } else { leaf.taken_bytes() - leaf.bytes_of(rows) }
        };
        let mut stay: usize = self.leaves.iter().zip(&rows).map(|(leaf, rows)| left(leaf, *rows)).sum();
        if stay > limit {
            let mut most: Vec<usize> = (0..rows.len()).collect();
            let order = |at: &usize| {
                let (leaf, rows) = (&self.leaves[*at], rows[*at]);
                (leaf.rows - rows < ZONE_LEN, Reverse(left(leaf, rows)))
            };
            most.sort_by_key(order);
            for at in most {
                if stay <= enough(limit) {
                    break;
                }
                let leaf = &self.leaves[at];
                let before = left(leaf, rows[at]);
                rows[at] += whole_zones(leaf.rows - rows[at]);
                stay -= before - left(leaf, rows[at]);
            }
        }
        let cut = rows.into_iter().enumerate().filter(|(_, rows)| *rows > 0);
        Ok(cut.map(|(at, rows)| self.cut(at, rows)).collect())
    }

    /// Cuts off all rows of all leaves.
    pub(super) fn cut_all(&mut self) -> Vec<Cut> {
        (0..self.leaves.len()).map(|at| self.cut(at, self.leaves[at].rows)).collect()
    }

    fn cut(&mut self, at: usize, rows: usize) -> Cut {
        let leaf = &mut self.leaves[at];
        let (before, taken_before) = (leaf.sizes, leaf.taken_bytes());
        let (first_row, pieces) = (leaf.first_row, leaf.cut(rows));
        self.bytes -= taken_before - leaf.taken_bytes();
        Cut { leaf: at, pieces, rows, sizes: before - leaf.sizes, first_row }
    }
}

impl PendingLeaf {
    /// Appends rows. Short pieces wait for others until they are joined.
    fn push(&mut self, array: ArrayRef) -> Result<()> {
        if array.is_empty() {
            return Ok(());
        }
        let piece = WaitingRows::new(array).owned()?;
        if !piece.is_short() {
            if let Some(before) = self.take_short()? {
                self.push_piece(before)?;
            }
            return self.push_piece(piece);
        }
        self.push_short(piece);
        if self.short.len() >= MAX_SHORT { self.join_short() } else { Ok(()) }
    }

    /// Joins the short pieces, if there are several.
    fn join_short(&mut self) -> Result<()> {
        if self.short.len() < 2 {
            return Ok(());
        }
        match self.take_short()? {
            Some(joined) if joined.is_short() => self.push_short(joined),
            Some(joined) => self.push_piece(joined)?,
            None => {}
        }
        Ok(())
    }

    /// Takes the short pieces, joined.
    fn take_short(&mut self) -> Result<Option<WaitingRows>> {
        let short = std::mem::take(&mut self.short);
        self.array_bytes = 0;
        short.iter().for_each(|piece| self.remove(piece));
        let arrays: Vec<_> = short.into_iter().map(|piece| piece.array).collect();
        WaitingRows::joined(&arrays)
    }

    fn push_short(&mut self, piece: WaitingRows) {
        self.array_bytes += piece.array_bytes();
        self.add(&piece);
        self.short.push(piece);
    }

    fn push_piece(&mut self, mut piece: WaitingRows) -> Result<()> {
        if self.without_runs.is_multiple_of(ASKED_AGAIN) && piece.shorten()? {
            self.without_runs = 0;
        } else {
            self.without_runs += 1;
        }
        self.add(&piece);
        self.pieces.push_back(piece);
        Ok(())
    }

    fn add(&mut self, piece: &WaitingRows) {
        self.rows += piece.array.len();
        self.sizes += piece.sizes;
    }

    fn remove(&mut self, piece: &WaitingRows) {
        self.rows -= piece.array.len();
        self.sizes -= piece.sizes;
    }

    /// Bytes that the rows take, and their arrays.
    fn taken_bytes(&self) -> usize {
        self.sizes.waiting + self.array_bytes
    }

    fn chunk_rows(&self) -> usize {
        chunk_rows(self.rows, self.sizes.raw, self.sizes.joined)
    }

    /// Approximate number of bytes of this many rows.
    fn bytes_of(&self, rows: usize) -> usize {
        self.sizes.share(rows, self.rows).waiting
    }

    /// Cuts off the first `rows` rows.
    fn cut(&mut self, mut rows: usize) -> Vec<ArrayRef> {
        self.first_row += rows as u64;
        let mut cut = Vec::new();
        while rows > 0 {
            if self.pieces.is_empty() {
                self.pieces.extend(self.short.drain(..));
                self.array_bytes = 0;
            }
            let Some(first) = self.pieces.front_mut() else { break };
            let piece =
                if first.array.len() > rows { Some(first.cut(rows)) } else { self.pieces.pop_front() };
            let Some(piece) = piece else { break };
            self.remove(&piece);
            rows -= piece.array.len();
            cut.push(piece.array);
        }
        cut
    }
}

/// Bytes that may stay once `limit` is exceeded: a bit fewer, lest the next rows are cut off a few at a time.
fn enough(limit: usize) -> usize {
    limit / 4 * 3
}

/// The part of `rows` that is a power of two of zones, so that chunks are aligned with each other; all
/// rows if there are fewer than a zone.
fn whole_zones(rows: usize) -> usize {
    match rows / ZONE_LEN {
        0 => rows,
        zones => ZONE_LEN << zones.ilog2(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        AsArray as _, Decimal128Array, Decimal256Array, Int32Array, StringViewArray, StringViewBuilder,
    };
    use arrow::datatypes::i256;

    use super::*;
    use crate::write::waiting_rows::join;

    fn ints(values: std::ops::Range<i32>) -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(values))
    }

    fn rows_of(cuts: &[Cut]) -> Vec<(usize, u64, usize)> {
        cuts.iter().map(|cut| (cut.leaf, cut.first_row, cut.rows)).collect()
    }

    #[test]
    fn rows_are_cut_off_wherever_batches_end() {
        let mut pending = PendingRows::new(1);
        for range in [0..5, 5..5, 5..8, 8..20] {
            pending.push(vec![ints(range)]).unwrap();
        }
        let arrays = pending.bytes() - 80;
        assert!((800..2000).contains(&arrays), "of three arrays: {arrays}");
        let cut = pending.cut(0, 9);
        assert_eq!((cut.sizes.waiting, pending.bytes()), (36, 44));
        assert_eq!(&join(&cut.pieces, 0, 9).unwrap(), &ints(0..9));
        assert_eq!(&join(&cut.pieces, 4, 3).unwrap(), &ints(4..7));
        assert_eq!(&join(&cut.pieces, 5, 4).unwrap(), &ints(5..9));
        let rest = pending.cut_all();
        assert_eq!((rows_of(&rest), pending.bytes()), (vec![(0, 9, 11)], 0));
        assert_eq!(&join(&rest[0].pieces, 0, 11).unwrap(), &ints(9..20));
    }

    #[test]
    fn short_pieces_are_joined_and_count_what_their_arrays_take() {
        let mut pending = PendingRows::new(2);
        let mut expected = 0;
        for batch in 0..3000 {
            let rows = ints(batch * 3..batch * 3 + 3);
            let text: ArrayRef = Arc::new(StringViewArray::from(vec!["longer than a view holds"; 3]));
            pending.push(vec![rows, text]).unwrap();
            expected += 3 * (4 + 16 + 24);
            let held = pending.leaves.iter().map(|leaf| leaf.pieces.len() + leaf.short.len()).sum::<usize>();
            assert!(held <= 2 * (batch as usize * 3 / 1024 + 64), "{held} after {batch}");
            let short: usize = pending.leaves.iter().map(|leaf| leaf.short.len()).sum();
            let arrays = pending.bytes() - pending.row_bytes();
            assert!((short * 200..=short * 500).contains(&arrays), "{arrays} for {short} arrays");
        }
        assert_eq!(pending.leaves.iter().map(|leaf| leaf.sizes.raw).sum::<usize>(), expected);
        let cuts = pending.cut_all();
        assert_eq!((rows_of(&cuts), pending.bytes()), (vec![(0, 0, 9000), (1, 0, 9000)], 0));
        assert_eq!(&join(&cuts[0].pieces, 0, 9000).unwrap(), &ints(0..9000));
        assert_eq!(
            join(&cuts[1].pieces, 0, 9000).unwrap().as_string_view().value(8999),
            "longer than a view holds"
        );
    }

    #[test]
    fn short_pieces_are_joined_before_rows_are_cut_off_for_want_of_memory() {
        let mut pending = PendingRows::new(2);
        for row in 0..20 {
            pending.push(vec![ints(row..row + 1), ints(row..row + 2)]).unwrap();
        }
        assert!(pending.bytes() > 4000);
        assert_eq!(rows_of(&pending.cut_due(4000).unwrap()), []);
        assert!(pending.bytes() < 2000, "{}", pending.bytes());
        assert_eq!(pending.row_bytes(), 20 * (4 + 8));
        assert_eq!(
            rows_of(&pending.cut_due(200).unwrap()),
            [(0, 0, 20), (1, 0, 40)],
            "rows take more than this"
        );
    }

    #[test]
    fn full_chunks_are_due_and_narrow_columns_have_longer_ones() {
        let mut pending = PendingRows::new(2);
        let wide =
            || Arc::new(Decimal256Array::from_iter_values((0..40_000).map(i256::from_i128))) as ArrayRef;
        pending.push(vec![ints(0..40_000), wide()]).unwrap();
        assert_eq!(rows_of(&pending.cut_due(usize::MAX).unwrap()), []);
        pending.push(vec![ints(0..40_000), wide()]).unwrap();
        assert_eq!(rows_of(&pending.cut_due(usize::MAX).unwrap()), [(1, 0, 64 << 10)]);
        pending.push(vec![ints(0..60_000), wide().slice(0, 1)]).unwrap();
        assert_eq!(rows_of(&pending.cut_due(usize::MAX).unwrap()), [(0, 0, 128 << 10)]);
    }

    #[test]
    fn the_columns_with_most_bytes_go_first_if_there_are_too_many() {
        let mut pending = PendingRows::new(3);
        let wide = |rows| Arc::new(Decimal128Array::from_iter_values(0..rows)) as ArrayRef;
        pending.push(vec![ints(0..20_000), wide(20_000), ints(0..20_000)]).unwrap();
        assert_eq!(pending.bytes(), 480_000);
        let due = pending.cut_due(400_000).unwrap();
        assert_eq!(rows_of(&due), [(1, 0, 16 << 10)], "whole zones");
        assert_eq!(pending.bytes(), 480_000 - (16 << 14));
        assert_eq!(rows_of(&pending.cut_due(1000).unwrap()).len(), 3);
    }

    #[test]
    fn columns_that_repeat_themselves_wait_until_their_chunks_are_full() {
        let mut pending = PendingRows::new(2);
        let repeated = |rows| Arc::new(Decimal256Array::from(vec![i256::from_i128(7); rows])) as ArrayRef;
        for batch in 0..7 {
            pending.push(vec![ints(batch * 8192..(batch + 1) * 8192), repeated(8192)]).unwrap();
            assert!(rows_of(&pending.cut_due(64 << 10).unwrap()).iter().all(|cut| cut.0 == 0));
        }
        pending.push(vec![ints(0..8192), repeated(8192)]).unwrap();
        let due = pending.cut_due(usize::MAX).unwrap();
        assert_eq!(rows_of(&due), [(1, 0, 64 << 10)], "a chunk of two mebibytes");
        assert_eq!((due[0].sizes.raw, due[0].sizes.waiting), (2 << 20, 8 * (32 + 4)));
    }

    #[test]
    fn rows_that_share_long_text_before_rows_that_share_short_text_are_cut_off() {
        let mut views = StringViewBuilder::new();
        // The last thousand bytes are not shown, but take memory, too.
        let text = [("a", 3000), ("b", 3000), ("c", 500), ("d", 500), ("e", 1000)];
        let text = text.map(|(letter, len)| letter.repeat(len)).concat();
        let block = views.append_block(text.into_bytes().into());
        for row in 0..20_000 {
            let (start, len) =
                if row < 10_000 { (row % 2 * 3000, 3000) } else { (6000 + row % 2 * 500, 500) };
            views.try_append_view(block, start, len).unwrap();
        }
        let mut pending = PendingRows::new(1);
        pending.push(vec![Arc::new(views.finish())]).unwrap();
        let all = pending.leaves[0].sizes;
        assert_eq!((all.raw, all.joined), (20_000 * 16 + 10_000 * 3500, 20_000 * 16 + 7000));
        assert!(all.waiting > all.joined, "{all:?}");
        let mut cuts = pending.cut_due(usize::MAX).unwrap();
        // The other rows are short on average: each would count, were that not more than all rows take.
        cuts.append(&mut pending.cut_all());
        assert_eq!(rows_of(&cuts), [(0, 0, 16 << 10), (0, 16 << 10, 20_000 - (16 << 10))]);
        let mut sum = RowSizes::default();
        cuts.iter().for_each(|cut| sum += cut.sizes);
        assert_eq!((sum, pending.bytes()), (all, 0));
    }
}
