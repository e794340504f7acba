//! Rows that have been written but not yet encoded.

use std::collections::VecDeque;

use arrow::array::{Array as _, ArrayRef as ArrowRef, AsArray as _};
use arrow::datatypes::DataType;

use crate::Result;

/// Rows as they came, column by column.
#[derive(Debug)]
pub(super) struct Pending {
    /// Per leaf, the arrays of the batches; the n-th of each have the same number of rows.
    pieces: Vec<VecDeque<ArrowRef>>,
    rows: usize,
    bytes: usize,
}

/// The rows of one leaf that are cut off together.
pub(super) type Pieces = Vec<ArrowRef>;

impl Pending {
    pub(super) fn new(leaves: usize) -> Self {
        Self { pieces: vec![VecDeque::new(); leaves], rows: 0, bytes: 0 }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends rows: one array per leaf.
    pub(super) fn push(&mut self, rows: usize, leaves: Vec<ArrowRef>) {
        self.rows += rows;
        for (pieces, array) in self.pieces.iter_mut().zip(leaves) {
            let array = let_go(array);
            self.bytes += value_bytes(&array);
            pieces.push_back(array);
        }
    }

    /// Cuts off the first `rows` rows.
    pub(super) fn cut(&mut self, rows: usize) -> Vec<Pieces> {
        let cut = self.pieces.iter_mut().map(|pieces| cut(pieces, rows)).collect();
        self.rows -= rows;
        self.bytes = self.pieces.iter().flatten().map(value_bytes).sum();
        cut
    }
}

fn cut(pieces: &mut VecDeque<ArrowRef>, mut rows: usize) -> Pieces {
    let mut cut = Vec::new();
    while rows > 0
        && let Some(piece) = pieces.pop_front()
    {
        if piece.len() > rows {
            pieces.push_front(piece.slice(rows, piece.len() - rows));
            cut.push(piece.slice(0, rows));
            return cut;
        }
        rows -= piece.len();
        cut.push(piece);
    }
    cut
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
            if wasteful(views.total_buffer_bytes_used(), held) {
                std::sync::Arc::new(views.gc())
            } else {
                array
            }
        }
        DataType::BinaryView => {
            let views = array.as_binary_view();
            let held = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
            if wasteful(views.total_buffer_bytes_used(), held) {
                std::sync::Arc::new(views.gc())
            } else {
                array
            }
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
    use std::sync::Arc;

    use arrow::array::{Int32Array, StringViewArray};

    use super::*;

    fn ints(values: std::ops::Range<i32>) -> ArrowRef {
        Arc::new(Int32Array::from_iter_values(values))
    }

    #[test]
    fn rows_are_cut_off_wherever_batches_end() {
        let mut pending = Pending::new(1);
        for range in [0..5, 5..5, 5..8, 8..20] {
            pending.push(range.len(), vec![ints(range)]);
        }
        assert_eq!((pending.rows(), pending.bytes()), (20, 80));
        let cut = pending.cut(9);
        assert_eq!((pending.rows(), pending.bytes()), (11, 44));
        let cut = &cut[0];
        assert_eq!(&join(cut, 0, 9).unwrap(), &ints(0..9));
        assert_eq!(&join(cut, 4, 3).unwrap(), &ints(4..7));
        assert_eq!(&join(cut, 5, 4).unwrap(), &ints(5..9));
        assert_eq!(&join(&pending.cut(11)[0], 0, 11).unwrap(), &ints(9..20));
        assert_eq!(pending.rows(), 0);
    }

    #[test]
    fn a_few_views_do_not_keep_many_bytes() {
        let long = "long enough to lie in a buffer ".repeat(100);
        let many = StringViewArray::from(vec![long.as_str(); 100]);
        let mut pending = Pending::new(1);
        pending.push(1, vec![Arc::new(many.slice(7, 1))]);
        assert_eq!(pending.bytes(), 3100 + 16);
        let kept = pending.cut(1).remove(0).remove(0);
        let held: usize = kept.as_string_view().data_buffers().iter().map(|buffer| buffer.len()).sum();
        assert_eq!(held, 3100);
    }
}
