//! Waiting rows of one leaf: an array, or its runs if they are far fewer.
//!
//! ```text
//! taken in     EUR EUR EUR EUR USD EUR EUR ...     8192 rows, 128 KiB
//! waiting      EUR until 4, USD until 5, EUR until 8192
//! ```
//!
//! Columns that take less memory can wait longer, so that their chunks have as many rows as those of
//! other columns.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, GenericByteViewArray, Int32Array, RunArray, UInt32Array,
};
use arrow::compute::kernels::cmp::distinct;
use arrow::datatypes::{ByteViewType, DataType, Int32Type};
use hashbrown::HashSet;

use super::carry::carry;
use super::copies::{concatenated, copied};
use super::own_bytes::POSITION_BYTES;
use super::row_sizes::RowSizes;
use crate::Result;
use crate::array::bytes::let_go_if;
use crate::array::{shown_children, take};
use crate::kernels::views::{MAX_INLINE, VIEW_BYTES, view_len};

/// Rows are kept as runs if there is at most one run per this many rows.
const ROWS_PER_RUN: usize = 16;
/// Arrays with fewer rows are not examined for runs.
const MIN_ROWS: usize = 1024;
/// Views may keep this many bytes alive, whatever they refer to.
const MUCH: usize = 64 << 10;
/// Average length of text above which it matters that views show the same bytes: with shorter text, a
/// zone is not too large for a chunk anyway.
const LONG_TEXT: usize = 1 << 10;

/// Some rows of a leaf.
#[derive(Debug)]
pub(super) struct WaitingRows {
    /// The rows, or their runs: the leaves themselves are never run-end encoded.
    pub(super) array: ArrayRef,
    pub(super) sizes: RowSizes,
}

/// How to count long text that several views show.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Counted {
    EachTime,
    Once,
}

impl WaitingRows {
    pub(super) fn new(array: ArrayRef) -> Self {
        let array = let_go(array);
        let raw = value_bytes(&array, Counted::EachTime);
        let is_short = raw <= array.len() * LONG_TEXT;
        let joined = if is_short { raw } else { value_bytes(&array, Counted::Once) };
        // Buffers may be longer than what the rows use of them.
        let waiting = joined.max(array.get_buffer_memory_size());
        Self { array, sizes: RowSizes { raw, joined, waiting } }
    }

    /// The rows of short pieces as one piece, with bytes of its own, if there are any.
    ///
    /// # Errors
    /// If rows cannot be copied.
    pub(super) fn joined(pieces: &[ArrayRef]) -> Result<Option<Self>> {
        if pieces.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self::new(copied(pieces)?)))
    }

    /// The rows, with bytes of their own if the array keeps much more in memory: a slice of a longer array, or a column
    /// whose buffers are parts of an allocation for the whole batch, as Arrow's IPC readers return them.
    ///
    /// # Errors
    /// If rows cannot be copied.
    pub(super) fn owned(self) -> Result<Self> {
        if self.array.get_buffer_memory_size() <= 2 * (self.sizes.raw + self.header_bytes()) {
            return Ok(self);
        }
        Ok(Self::new(copied(&[self.array])?))
    }

    /// Whether the array takes much more memory than its values, unless it is joined with others.
    pub(super) fn is_short(&self) -> bool {
        self.array.len() < MIN_ROWS && self.sizes.raw < MUCH
    }

    /// Bytes that the array takes besides what `sizes` count.
    pub(super) fn array_bytes(&self) -> usize {
        self.header_bytes() + self.array.get_buffer_memory_size().saturating_sub(self.sizes.waiting)
    }

    /// Bytes that the array takes besides its buffers, approximately: it and its buffers are allocated one by one.
    fn header_bytes(&self) -> usize {
        3 * self.array.get_array_memory_size().saturating_sub(self.array.get_buffer_memory_size())
    }

    /// Replaces rows by runs if there are few runs; returns whether it did.
    ///
    /// # Errors
    /// If rows cannot be copied.
    pub(super) fn shorten(&mut self) -> Result<bool> {
        let len = self.array.len();
        // Arrays of the null type take no memory.
        if len < MIN_ROWS || self.array.data_type().is_null() {
            return Ok(false);
        }
        // Arrow does not compare nested values; they stay as they are.
        let Ok(differs) = distinct(&self.array.slice(0, len - 1), &self.array.slice(1, len - 1)) else {
            return Ok(false);
        };
        if differs.true_count() >= len / ROWS_PER_RUN {
            return Ok(false);
        }
        // The rows of a batch are few enough for 32-bit positions.
        let starts = std::iter::once(0).chain(differs.values().set_indices_u32().map(|row| row + 1));
        let starts: UInt32Array = starts.collect::<Vec<_>>().into();
        let ends = starts.values()[1..].iter().map(|start| *start as i32).chain([len as i32]);
        let values = let_go(take(&self.array, &starts)?);
        let runs = RunArray::<Int32Type>::try_new(&Int32Array::from_iter_values(ends), &values)?;
        self.array = Arc::new(runs);
        self.sizes.waiting = value_bytes(&self.array, Counted::Once);
        Ok(true)
    }

    /// Cuts off the first `rows` rows, which must be fewer than all.
    pub(super) fn cut(&mut self, rows: usize) -> Self {
        let len = self.array.len();
        let first = self.array.slice(0, rows);
        self.array = self.array.slice(rows, len - rows);
        // Fewer rows may be so short on average that each counts, but never for more than all rows did.
        let waiting = value_bytes(&self.array, Counted::Once).min(self.sizes.waiting);
        let left = match self.array.data_type() {
            DataType::RunEndEncoded(..) => RowSizes { waiting, ..self.sizes.share(len - rows, len) },
            _ => {
                let raw = value_bytes(&self.array, Counted::EachTime).min(self.sizes.raw);
                RowSizes { raw, joined: waiting.min(self.sizes.joined), waiting }
            }
        };
        let cut = Self { array: first, sizes: self.sizes - left };
        self.sizes = left;
        cut
    }
}

/// The rows `start..start + len` of the concatenated pieces, as one array.
pub(super) fn join(pieces: &[ArrayRef], start: usize, len: usize) -> Result<ArrayRef> {
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
        parts.push(match part.data_type() {
            DataType::RunEndEncoded(_, values) => carry(&part, values.data_type())?,
            _ => part,
        });
        if left == 0 {
            break;
        }
    }
    match parts.as_slice() {
        [one] => Ok(ArrayRef::clone(one)),
        parts => {
            let parts: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
            concatenated(&parts)
        }
    }
}

/// Decoded bytes of some rows of the concatenated pieces.
pub(super) fn joined_bytes(pieces: &[ArrayRef], rows: Range<usize>) -> usize {
    let mut start = 0;
    let of_pieces = pieces.iter().map(|piece| {
        let end = start + piece.len();
        let (from, to) = (rows.start.clamp(start, end), rows.end.clamp(start, end));
        let part = piece.slice(from - start, to - from);
        start = end;
        if part.is_empty() { 0 } else { value_bytes(&part, Counted::Once) }
    });
    of_pieces.sum()
}

/// Bytes of the values in the rows of an array, each text counted as often as it is shown.
pub(crate) fn raw_bytes(array: &ArrayRef) -> usize {
    value_bytes(array, Counted::EachTime)
}

/// Copies views that keep many more bytes alive than they refer to.
fn let_go(array: ArrayRef) -> ArrayRef {
    let_go_if(array, |used, held| held > MUCH && held / 2 > used)
}

/// Bytes of the values in the rows of an array, not including those around them.
fn value_bytes(array: &ArrayRef, counted: Counted) -> usize {
    let nulls = array.nulls().map_or(0, |_| array.len().div_ceil(8));
    nulls
        + match array.data_type() {
            DataType::Null => 0,
            DataType::Boolean => array.len().div_ceil(8),
            DataType::Utf8 => spanned(array.as_string::<i32>().value_offsets()) + array.len() * 4,
            DataType::LargeUtf8 => spanned(array.as_string::<i64>().value_offsets()) + array.len() * 8,
            DataType::Binary => spanned(array.as_binary::<i32>().value_offsets()) + array.len() * 4,
            DataType::LargeBinary => spanned(array.as_binary::<i64>().value_offsets()) + array.len() * 8,
            DataType::Utf8View => view_bytes(array.as_string_view(), counted),
            DataType::BinaryView => view_bytes(array.as_binary_view(), counted),
            DataType::List(_) => item_bytes(array, counted) + array.len() * 4,
            DataType::LargeList(_) => item_bytes(array, counted) + array.len() * 8,
            // Keys are copied out of their views when they are encoded.
            DataType::Map(..) => item_bytes(array, Counted::EachTime) + array.len() * 4,
            DataType::RunEndEncoded(..) => {
                let runs = array.as_run::<Int32Type>();
                let first = runs.run_ends().get_start_physical_index();
                let count = runs.run_ends().get_end_physical_index() + 1 - first;
                value_bytes(&runs.values().slice(first, count), counted) + count * size_of::<i32>()
            }
            DataType::FixedSizeList(..) | DataType::Struct(_) => {
                shown_children(array).iter().map(|child| value_bytes(child, counted)).sum()
            }
            other => match other.primitive_width() {
                Some(width) => array.len() * width,
                None => array.to_data().get_slice_memory_size().unwrap_or_default(),
            },
        }
}

/// Bytes of the items of lists. Where these take none, their positions do: chunks must not have too many.
fn item_bytes(lists: &ArrayRef, counted: Counted) -> usize {
    let of_items = |items: &ArrayRef| match value_bytes(items, counted) {
        0 => items.len().saturating_mul(POSITION_BYTES as usize),
        bytes => bytes,
    };
    shown_children(lists).iter().map(of_items).sum()
}

/// Bytes of views and of the text that they show.
fn view_bytes<V: ByteViewType>(array: &GenericByteViewArray<V>, counted: Counted) -> usize {
    let text = array.total_buffer_bytes_used();
    let is_long = text > array.len() * LONG_TEXT;
    let text = if is_long && counted == Counted::Once { distinct_bytes(array) } else { text };
    text + array.len() * VIEW_BYTES
}

/// Bytes of the text of views, where views of the same bytes count once.
pub(super) fn distinct_bytes<V: ByteViewType>(array: &GenericByteViewArray<V>) -> usize {
    let mut seen = HashSet::new();
    let long = array.views().iter().filter(|view| view_len(**view) > MAX_INLINE);
    long.filter(|view| seen.insert(**view)).fold(0, |sum: usize, view| sum.saturating_add(view_len(*view)))
}

/// Bytes between the first and the last offset.
pub(super) fn spanned<O: arrow::array::OffsetSizeTrait>(offsets: &[O]) -> usize {
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => last.as_usize() - first.as_usize(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Float64Array, ListArray, NullArray, RecordBatch, StringArray, StringViewArray,
        StringViewBuilder, StructArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;
    use crate::kernels::random;

    /// Arrays of several types in which most rows repeat the previous one.
    fn repeating(rows: usize, seed: u64) -> [ArrayRef; 5] {
        let mut next = random(seed);
        let mut value = 0;
        let mut step = || {
            if next().is_multiple_of(100) {
                value = next() % 7;
            }
            value
        };
        let values: Vec<u64> = (0..rows).map(|_| step()).collect();
        let text = |value: &u64| (*value != 3).then(|| "a text, and a long one ".repeat(*value as usize));
        let float = |value: &u64| [0.0, -0.0, f64::NAN, 1.5][*value as usize % 4];
        [
            Arc::new(values.iter().map(|value| Some(*value as i32)).collect::<Int32Array>()),
            Arc::new(
                values.iter().map(|value| (*value != 5).then(|| float(value))).collect::<Float64Array>(),
            ),
            Arc::new(
                values.iter().map(|value| (*value != 1).then_some(*value == 2)).collect::<BooleanArray>(),
            ),
            Arc::new(values.iter().map(text).collect::<StringViewArray>()),
            Arc::new(values.iter().map(text).collect::<StringArray>()),
        ]
    }

    #[test]
    fn rows_come_out_as_they_went_in_wherever_they_are_cut() {
        let mut next = random(9);
        for array in repeating(5000, 1) {
            let mut piece = WaitingRows::new(ArrayRef::clone(&array));
            let before = (piece.sizes.raw, piece.sizes.waiting);
            assert!(piece.shorten().unwrap(), "{}", array.data_type());
            assert!(piece.sizes.waiting * 4 < before.1 && piece.sizes.raw == before.0);
            let (mut cuts, mut raw_bytes) = (Vec::new(), 0);
            while piece.array.len() > 1200 {
                let cut = piece.cut(next() as usize % 1100);
                raw_bytes += cut.sizes.raw;
                cuts.push(cut.array);
            }
            assert_eq!(raw_bytes + piece.sizes.raw, before.0);
            cuts.push(piece.array);
            for _ in 0..20 {
                let start = next() as usize % 5000;
                let len = next() as usize % (5001 - start);
                let rows = array.slice(start, len);
                assert_eq!(&join(&cuts, start, len).unwrap().to_data(), &rows.to_data());
            }
        }
    }

    #[test]
    fn nested_rows_and_nulls_by_themselves_stay_rows() {
        let structs = StructArray::from(
            RecordBatch::try_from_iter([("a", ArrayRef::clone(&repeating(2000, 2)[0]))]).unwrap(),
        );
        for array in [Arc::new(structs) as ArrayRef, Arc::new(NullArray::new(2000))] {
            assert!(!WaitingRows::new(array).shorten().unwrap());
        }
    }

    #[test]
    fn rows_that_differ_stay_rows() {
        for rows in [0, 1, 5000] {
            let mut piece = WaitingRows::new(Arc::new(Int32Array::from_iter_values(0..rows)));
            assert!(!piece.shorten().unwrap());
            assert_eq!(piece.sizes.waiting, rows as usize * 4);
        }
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
        let maps: ArrayRef = Arc::new(maps.finish());
        let of = |start, rows| value_bytes(&maps.slice(start, rows), Counted::EachTime);
        assert_eq!(of(0, 1) + of(1, 1), of(0, 2));
        assert!(of(1, 1) > 2 * of(0, 1));
    }

    #[test]
    fn rows_of_items_that_take_no_bytes_count_their_positions() {
        let item = Arc::new(Field::new("item", DataType::Null, true));
        let lists =
            ListArray::new(item, OffsetBuffer::from_lengths([5, 1000]), Arc::new(NullArray::new(1005)), None);
        let mut piece = WaitingRows::new(Arc::new(lists));
        assert_eq!(piece.sizes.raw, 1005 * 8 + 2 * 4);
        assert_eq!(piece.cut(1).sizes.raw, 5 * 8 + 4);
    }

    #[test]
    fn views_of_the_same_long_text_count_once_where_they_share_it() {
        let text = |len: usize, rows: usize| -> ArrayRef {
            let mut views = StringViewBuilder::new();
            let block = views.append_block("x".repeat(len).into_bytes().into());
            (0..rows).for_each(|_| views.try_append_view(block, 0, len as u32).unwrap());
            Arc::new(views.finish())
        };
        let sizes = |piece: &WaitingRows| (piece.sizes.raw, piece.sizes.joined, piece.sizes.waiting);
        let (mib, rows) = (1 << 20, 2000);
        let long = text(mib, rows);
        // Views are collected in a buffer that is a little too large.
        let held = long.get_buffer_memory_size();
        let mut long = WaitingRows::new(long);
        assert_eq!(sizes(&long), (rows * (16 + mib), rows * 16 + mib, held));
        let half = long.cut(1000);
        assert_eq!(sizes(&half), (1000 * (16 + mib), 1000 * 16, held - 1000 * 16 - mib));
        assert_eq!(sizes(&long), (1000 * (16 + mib), 1000 * 16 + mib, 1000 * 16 + mib));
        let mut runs = WaitingRows::new(text(mib, rows));
        assert!(runs.shorten().unwrap());
        assert_eq!(sizes(&runs), (rows * (16 + mib), rows * 16 + mib, 20 + mib));
        let short = WaitingRows::new(text(1 << 10, 2000));
        assert_eq!(sizes(&short), (rows * 1040, rows * 1040, rows * 1040), "as if it were not shared");
    }

    #[test]
    fn bytes_that_views_keep_alive_count_even_if_they_show_few_of_them() {
        let mut views = StringViewBuilder::new();
        for text in ["x", "y"] {
            let block = views.append_block(text.repeat(1 << 20).into_bytes().into());
            // The second block is not shown.
            (0..if text == "x" { 10 } else { 0 }).for_each(|_| {
                views.try_append_view(block, 0, 1 << 20).unwrap();
            });
        }
        let piece = WaitingRows::new(Arc::new(views.finish()));
        assert_eq!(piece.sizes.joined, 160 + (1 << 20));
        assert!((2 << 20..=piece.sizes.raw).contains(&piece.sizes.waiting), "{}", piece.sizes.waiting);
    }

    #[test]
    fn a_few_views_do_not_keep_many_bytes() {
        let long = "long enough to lie in a buffer ".repeat(100);
        let many = StringViewArray::from(vec![long.as_str(); 100]);
        let piece = WaitingRows::new(Arc::new(many.slice(7, 1)));
        assert_eq!(piece.sizes.waiting, 3100 + 16);
        let kept = piece.array;
        let held: usize = kept.as_string_view().data_buffers().iter().map(|buffer| buffer.len()).sum();
        assert_eq!(held, 3100);
    }
}
