//! Rows that have been written but not yet encoded.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef as ArrowRef, AsArray as _};
use arrow::datatypes::DataType;

use super::ZONE_LEN;
use super::chunk::chunk_rows;
use super::intake::entries;
use crate::Result;

/// Rows as they came, column by column.
#[derive(Debug)]
pub(super) struct Pending {
    leaves: Vec<Waiting>,
    bytes: usize,
}

/// Rows of one leaf.
#[derive(Debug, Default)]
struct Waiting {
    /// Arrays, and the bytes of each.
    pieces: VecDeque<(ArrowRef, usize)>,
    rows: usize,
    bytes: usize,
    /// Which row of the file the first is.
    first_row: u64,
}

/// Rows of one leaf that are cut off together.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) leaf: usize,
    pub(super) pieces: Vec<ArrowRef>,
    pub(super) rows: usize,
    pub(super) bytes: usize,
    pub(super) first_row: u64,
}

impl Pending {
    pub(super) fn new(leaves: usize) -> Self {
        Self { leaves: (0..leaves).map(|_| Waiting::default()).collect(), bytes: 0 }
    }

    /// Bytes of the values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends rows: one array per leaf.
    pub(super) fn push(&mut self, leaves: Vec<ArrowRef>) {
        for (leaf, array) in self.leaves.iter_mut().zip(leaves) {
            let array = let_go(array);
            let bytes = value_bytes(&array);
            leaf.rows += array.len();
            leaf.bytes += bytes;
            self.bytes += bytes;
            leaf.pieces.push_back((array, bytes));
        }
    }

    /// Cuts off what is to be encoded now: of each leaf the chunks that are full and, if more than
    /// `limit` bytes would stay, what there is of the leaves that have most, whole zones first.
    pub(super) fn cut_due(&mut self, limit: usize) -> Vec<Cut> {
        let full = |leaf: &Waiting| leaf.rows / leaf.chunk_rows() * leaf.chunk_rows();
        let mut rows: Vec<usize> = self.leaves.iter().map(full).collect();
        if self.bytes <= limit && rows.iter().all(|rows| *rows == 0) {
            return Vec::new();
        }
        let left = |leaf: &Waiting, rows: usize| leaf.bytes - leaf.bytes_of(rows);
        let mut stay: usize = self.leaves.iter().zip(&rows).map(|(leaf, rows)| left(leaf, *rows)).sum();
        if stay > limit {
            let mut most: Vec<usize> = (0..rows.len()).collect();
            let order = |at: &usize| {
                let (leaf, rows) = (&self.leaves[*at], rows[*at]);
                (leaf.rows - rows < ZONE_LEN, Reverse(left(leaf, rows)))
            };
            most.sort_by_key(order);
            for at in most {
                // Some more, lest the next rows cut off a few at a time.
                if stay <= limit / 4 * 3 {
                    break;
                }
                let leaf = &self.leaves[at];
                let before = left(leaf, rows[at]);
                rows[at] += whole_zones(leaf.rows - rows[at]);
                stay -= before - left(leaf, rows[at]);
            }
        }
        let cut = rows.into_iter().enumerate().filter(|(_, rows)| *rows > 0);
        cut.map(|(at, rows)| self.cut(at, rows)).collect()
    }

    /// Cuts off all rows of all leaves.
    pub(super) fn cut_all(&mut self) -> Vec<Cut> {
        (0..self.leaves.len()).map(|at| self.cut(at, self.leaves[at].rows)).collect()
    }

    fn cut(&mut self, at: usize, rows: usize) -> Cut {
        let leaf = &mut self.leaves[at];
        let before = leaf.bytes;
        let (first_row, pieces) = (leaf.first_row, leaf.cut(rows));
        let bytes = before - leaf.bytes;
        self.bytes -= bytes;
        Cut { leaf: at, pieces, rows, bytes, first_row }
    }
}

impl Waiting {
    fn chunk_rows(&self) -> usize {
        chunk_rows(self.rows, self.bytes)
    }

    /// Bytes of so many rows, about.
    fn bytes_of(&self, rows: usize) -> usize {
        (self.bytes as u128 * rows as u128 / self.rows.max(1) as u128) as usize
    }

    /// Cuts off the first `rows` rows.
    fn cut(&mut self, mut rows: usize) -> Vec<ArrowRef> {
        self.rows -= rows;
        self.first_row += rows as u64;
        let mut cut = Vec::new();
        while rows > 0
            && let Some((piece, bytes)) = self.pieces.pop_front()
        {
            self.bytes -= bytes;
            if piece.len() > rows {
                let rest = piece.slice(rows, piece.len() - rows);
                let bytes = value_bytes(&rest);
                self.bytes += bytes;
                self.pieces.push_front((rest, bytes));
                cut.push(piece.slice(0, rows));
                return cut;
            }
            rows -= piece.len();
            cut.push(piece);
        }
        cut
    }
}

/// As many of `rows` as are a power of two zones, so that chunks line up; all if they are no zone.
fn whole_zones(rows: usize) -> usize {
    match rows / ZONE_LEN {
        0 => rows,
        zones => ZONE_LEN << zones.ilog2(),
    }
}

/// The rows `start..start + len` of pieces, in one array.
pub(super) fn join(pieces: &[ArrowRef], start: usize, len: usize) -> Result<ArrowRef> {
    let mut skip = start;
    let mut left = len;
    let mut parts = Vec::new();
    for piece in pieces {
        if piece.len() <= skip && !piece.is_empty() {
            skip -= piece.len();
            continue;
        }
        let part = piece.slice(skip, left.min(piece.len() - skip));
        skip = 0;
        left -= part.len();
        parts.push(part);
        if left == 0 {
            break;
        }
    }
    match parts.as_slice() {
        [one] => Ok(ArrowRef::clone(one)),
        parts => {
            let parts: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
            Ok(arrow::compute::concat(&parts)?)
        }
    }
}

/// Copies views that keep much more bytes alive than they show.
fn let_go(array: ArrowRef) -> ArrowRef {
    const MUCH: usize = 64 << 10;
    let wasteful = |used: usize, held: usize| held > MUCH && held / 2 > used;
    match array.data_type() {
        DataType::Utf8View => {
            let views = array.as_string_view();
            let held = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
            if wasteful(views.total_buffer_bytes_used(), held) { Arc::new(views.gc()) } else { array }
        }
        DataType::BinaryView => {
            let views = array.as_binary_view();
            let held = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
            if wasteful(views.total_buffer_bytes_used(), held) { Arc::new(views.gc()) } else { array }
        }
        _ => array,
    }
}

/// Bytes of the values in the rows of an array, not of what lies around them.
pub(super) fn value_bytes(array: &ArrowRef) -> usize {
    let nulls = array.nulls().map_or(0, |_| array.len().div_ceil(8));
    let within = |values: &ArrowRef, start: usize, end: usize| value_bytes(&values.slice(start, end - start));
    nulls
        + match array.data_type() {
            DataType::Null => 0,
            DataType::Boolean => array.len().div_ceil(8),
            DataType::Utf8 => spanned(array.as_string::<i32>().value_offsets()) + array.len() * 4,
            DataType::LargeUtf8 => spanned(array.as_string::<i64>().value_offsets()) + array.len() * 8,
            DataType::Binary => spanned(array.as_binary::<i32>().value_offsets()) + array.len() * 4,
            DataType::LargeBinary => spanned(array.as_binary::<i64>().value_offsets()) + array.len() * 8,
            DataType::Utf8View => array.as_string_view().total_buffer_bytes_used() + array.len() * 16,
            DataType::BinaryView => array.as_binary_view().total_buffer_bytes_used() + array.len() * 16,
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let offsets = list.value_offsets();
                let ends = (offsets[0] as usize, offsets[array.len()] as usize);
                within(list.values(), ends.0, ends.1) + array.len() * 4
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let offsets = list.value_offsets();
                let ends = (offsets[0] as usize, offsets[array.len()] as usize);
                within(list.values(), ends.0, ends.1) + array.len() * 8
            }
            DataType::Map(..) => {
                let entries: ArrowRef = Arc::new(entries(array.as_map()));
                value_bytes(&entries) + array.len() * 4
            }
            DataType::FixedSizeList(..) => value_bytes(array.as_fixed_size_list().values()),
            DataType::Struct(_) => array.as_struct().columns().iter().map(value_bytes).sum(),
            other => match other.primitive_width() {
                Some(width) => array.len() * width,
                None => array.to_data().get_slice_memory_size().unwrap_or_default(),
            },
        }
}

/// Bytes between the first and the last offset.
fn spanned<O: arrow::array::OffsetSizeTrait>(offsets: &[O]) -> usize {
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => last.as_usize() - first.as_usize(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringViewArray};

    use super::*;

    fn ints(values: std::ops::Range<i32>) -> ArrowRef {
        Arc::new(Int32Array::from_iter_values(values))
    }

    fn rows_of(cuts: &[Cut]) -> Vec<(usize, u64, usize)> {
        cuts.iter().map(|cut| (cut.leaf, cut.first_row, cut.rows)).collect()
    }

    #[test]
    fn rows_are_cut_off_wherever_batches_end() {
        let mut pending = Pending::new(1);
        for range in [0..5, 5..5, 5..8, 8..20] {
            pending.push(vec![ints(range)]);
        }
        assert_eq!(pending.bytes(), 80);
        let cut = pending.cut(0, 9);
        assert_eq!((cut.bytes, pending.bytes()), (36, 44));
        assert_eq!(&join(&cut.pieces, 0, 9).unwrap(), &ints(0..9));
        assert_eq!(&join(&cut.pieces, 4, 3).unwrap(), &ints(4..7));
        assert_eq!(&join(&cut.pieces, 5, 4).unwrap(), &ints(5..9));
        let rest = pending.cut_all();
        assert_eq!((rows_of(&rest), pending.bytes()), (vec![(0, 9, 11)], 0));
        assert_eq!(&join(&rest[0].pieces, 0, 11).unwrap(), &ints(9..20));
    }

    #[test]
    fn full_chunks_are_due_and_narrow_columns_have_longer_ones() {
        let mut pending = Pending::new(2);
        let wide = || Arc::new(arrow::array::Decimal128Array::from(vec![7; 40_000])) as ArrowRef;
        pending.push(vec![ints(0..40_000), wide()]);
        assert_eq!(rows_of(&pending.cut_due(usize::MAX)), []);
        pending.push(vec![ints(0..40_000), wide()]);
        assert_eq!(rows_of(&pending.cut_due(usize::MAX)), [(1, 0, 64 << 10)]);
        pending.push(vec![ints(0..60_000), wide().slice(0, 1)]);
        assert_eq!(rows_of(&pending.cut_due(usize::MAX)), [(0, 0, 128 << 10)]);
    }

    #[test]
    fn the_columns_with_most_bytes_go_first_if_there_are_too_many() {
        let mut pending = Pending::new(3);
        let wide = |rows| Arc::new(arrow::array::Decimal128Array::from(vec![7; rows])) as ArrowRef;
        pending.push(vec![ints(0..20_000), wide(20_000), ints(0..20_000)]);
        assert_eq!(pending.bytes(), 480_000);
        let due = pending.cut_due(400_000);
        assert_eq!(rows_of(&due), [(1, 0, 16 << 10)], "whole zones");
        assert_eq!(pending.bytes(), 480_000 - (16 << 14));
        assert_eq!(rows_of(&pending.cut_due(1000)).len(), 3);
    }

    #[test]
    fn rows_of_maps_count_their_own_entries() {
        use arrow::array::{Int32Builder, MapBuilder};
        let mut maps = MapBuilder::new(None, Int32Builder::new(), Int32Builder::new());
        for rows in [1, 3] {
            for at in 0..rows {
                maps.keys().append_value(at);
                maps.values().append_value(at);
            }
            maps.append(true).unwrap();
        }
        let maps: ArrowRef = Arc::new(maps.finish());
        let of = |start, rows| value_bytes(&maps.slice(start, rows));
        assert_eq!(of(0, 1) + of(1, 1), of(0, 2));
        assert!(of(1, 1) > 2 * of(0, 1));
    }

    #[test]
    fn a_few_views_do_not_keep_many_bytes() {
        let long = "long enough to lie in a buffer ".repeat(100);
        let many = StringViewArray::from(vec![long.as_str(); 100]);
        let mut pending = Pending::new(1);
        pending.push(vec![Arc::new(many.slice(7, 1))]);
        assert_eq!(pending.bytes(), 3100 + 16);
        let kept = pending.cut(0, 1).pieces.remove(0);
        let held: usize = kept.as_string_view().data_buffers().iter().map(|buffer| buffer.len()).sum();
        assert_eq!(held, 3100);
    }
}
