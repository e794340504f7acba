//! The bytes that rows take once they share none: limits how many rows of a batch are taken in at once, and rejects
//! values that are too large.
//!
//! Arrow can represent many values in few bytes: list views that refer to the same items over and over,
//! long runs, dictionaries of wide values, views of the same text. When they are taken in, each row gets
//! its own bytes, so only as many rows are taken in at a time as those bytes allow. Text that is shown
//! again as a whole stays shared, but not text that overlaps with other text.

use std::ops::Range;

use arrow::array::{
    Array, ArrayRef, AsArray as _, GenericByteViewArray, GenericListViewArray, OffsetSizeTrait, RecordBatch,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{
    ArrowNativeType as _, ByteViewType, DataType, Int16Type, Int32Type, Int64Type, RunEndIndexType,
};

use super::waiting_rows::{distinct_bytes, spanned};
use crate::array::shown_children;
use crate::dtype::any_inner;
use crate::{Error, Result};

/// Maximum number of rows taken in at a time.
const MAX_ROWS: usize = 64 << 10;
/// Maximum number of bytes that rows taken in together may expand to, unless it is a single row.
const MAX_BYTES: u64 = 8 << 20;
/// Text of views, per column, that need not be checked for bytes in common.
const FEW_BYTES: usize = 2 << 20;
/// Maximum number of bytes that a row may expand to: what readers with default limits decode at a time, but for a
/// mebibyte of what belongs to its values.
pub(crate) const MAX_ROW_BYTES: u64 = (2 << 30) - (1 << 20);

/// Bytes of the index of an item, by which lists are taken apart and joined.
pub(super) const POSITION_BYTES: u64 = 8;

/// The portions of a batch whose rows are taken in together.
#[derive(Debug)]
pub(crate) struct Portions<'a> {
    batch: &'a RecordBatch,
    /// Columns whose rows may share bytes.
    sharing: Vec<&'a ArrayRef>,
    start: usize,
    step: usize,
}

impl<'a> Portions<'a> {
    pub(super) fn new(batch: &'a RecordBatch) -> Self {
        let sharing = batch.columns().iter().filter(|column| may_share(column.data_type())).collect();
        Self { batch, sharing, start: 0, step: MAX_ROWS }
    }
}

impl Iterator for Portions<'_> {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        let left = self.batch.num_rows() - self.start;
        if left == 0 {
            return None;
        }
        let bytes = |rows: usize| -> u64 {
            let columns = self.sharing.iter().map(|column| own_bytes(&column.slice(self.start, rows)));
            columns.fold(0, u64::saturating_add)
        };
        let mut rows = self.step.saturating_mul(2).min(MAX_ROWS).min(left);
        while rows > 1 && bytes(rows) > MAX_BYTES {
            rows /= 2;
        }
        let taken = self.batch.slice(self.start, rows);
        self.start += rows;
        self.step = rows;
        Some(taken)
    }
}

/// Whether rows of a type may share bytes that are duplicated when they are taken in.
pub(super) fn may_share(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View
        | DataType::BinaryView
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Dictionary(..)
        | DataType::RunEndEncoded(..) => true,
        other => any_inner(other, may_share),
    }
}

/// Approximate number of bytes that rows take once they are taken in.
fn own_bytes(array: &dyn Array) -> u64 {
    let rows = array.len() as u64;
    match array.data_type() {
        DataType::Dictionary(..) => {
            let array = array.as_any_dictionary();
            repeated_or_viewed(array.values(), rows, || {
                let keys = array.normalized_keys().into_iter().enumerate();
                let keys = keys.filter(|(row, _)| array.keys().is_valid(*row));
                keys.map(|(_, key)| (key..key + 1, 1)).collect()
            })
        }
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => bytes_of_runs::<Int16Type>(array),
            DataType::Int32 => bytes_of_runs::<Int32Type>(array),
            _ => bytes_of_runs::<Int64Type>(array),
        },
        DataType::ListView(_) => bytes_of_views(array.as_list_view::<i32>()),
        DataType::LargeListView(_) => bytes_of_views(array.as_list_view::<i64>()),
        DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) | DataType::FixedSizeList(..) => {
            shown_children(array).iter().map(|items| bytes_of_items(items)).fold(0, u64::saturating_add)
        }
        DataType::Struct(_) => {
            shown_children(array).iter().map(|field| own_bytes(field)).fold(0, u64::saturating_add)
        }
        DataType::Utf8 => spanned(array.as_string::<i32>().value_offsets()) as u64 + rows * 4,
        DataType::Binary => spanned(array.as_binary::<i32>().value_offsets()) as u64 + rows * 4,
        DataType::LargeUtf8 => spanned(array.as_string::<i64>().value_offsets()) as u64 + rows * 8,
        DataType::LargeBinary => spanned(array.as_binary::<i64>().value_offsets()) as u64 + rows * 8,
        DataType::Utf8View => bytes_of_text_views(array.as_string_view()),
        DataType::BinaryView => bytes_of_text_views(array.as_binary_view()),
        DataType::FixedSizeBinary(width) => rows.saturating_mul(u64::from(width.unsigned_abs())),
        DataType::Null => 0,
        other => rows * other.primitive_width().unwrap_or(1) as u64,
    }
}

/// Bytes of the items of lists. Where these take none, as nulls by themselves, their positions do.
fn bytes_of_items(items: &dyn Array) -> u64 {
    match own_bytes(items) {
        0 => (items.len() as u64).saturating_mul(POSITION_BYTES),
        bytes => bytes,
    }
}

/// Bytes of values that are referenced `times` times in total; `shown` tells which ones, and how often.
fn repeated(values: &dyn Array, times: u64, shown: impl FnOnce() -> Vec<(Range<usize>, u64)>) -> u64 {
    if values.is_empty() {
        return 0;
    }
    if !sizes_differ(values.data_type()) {
        return bytes_of_items(values).div_ceil(values.len() as u64).saturating_mul(times);
    }
    let parts = counted(shown()).into_iter();
    let bytes = parts
        .map(|(range, times)| bytes_of_items(&values.slice(range.start, range.len())).saturating_mul(times));
    bytes.fold(0, u64::saturating_add)
}

/// As [`repeated`], for values that become views if they are text or byte strings.
fn repeated_or_viewed(
    values: &dyn Array,
    times: u64,
    shown: impl FnOnce() -> Vec<(Range<usize>, u64)>,
) -> u64 {
    match values.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            times.saturating_mul(16)
        }
        _ => repeated(values, times, shown),
    }
}

/// Whether some values of a type take more bytes than others.
fn sizes_differ(data_type: &DataType) -> bool {
    let views = matches!(data_type, DataType::Utf8View | DataType::BinaryView);
    let fixed = matches!(data_type, DataType::Boolean | DataType::Null | DataType::FixedSizeBinary(_));
    !views && !fixed && data_type.primitive_width().is_none()
}

/// Converts overlapping ranges to disjoint ones, each with the number of times that it is referenced.
fn counted(shown: Vec<(Range<usize>, u64)>) -> Vec<(Range<usize>, u64)> {
    let mut ends = Vec::with_capacity(2 * shown.len());
    for (range, times) in shown.into_iter().filter(|(range, _)| !range.is_empty()) {
        ends.extend([(range.start, i128::from(times)), (range.end, -i128::from(times))]);
    }
    ends.sort_unstable();
    let mut parts = Vec::new();
    let (mut start, mut times) = (0, 0i128);
    for (at, change) in ends {
        if times > 0 && at > start {
            parts.push((start..at, u64::try_from(times).unwrap_or(u64::MAX)));
        }
        (start, times) = (at, times + change);
    }
    parts
}

/// Bytes of views and, if these overlap or show more than a row may have, of the text that they show. Otherwise it is
/// in memory already.
fn bytes_of_text_views<V: ByteViewType>(array: &GenericByteViewArray<V>) -> u64 {
    let (shown, views) = (array.total_buffer_bytes_used(), array.len() * 16);
    if shown <= FEW_BYTES {
        return views as u64;
    }
    let range = |buffer: &Buffer| buffer.as_ptr() as usize..buffer.as_ptr() as usize + buffer.len();
    // Buffers may overlap as well.
    let held = counted(array.data_buffers().iter().map(|buffer| (range(buffer), 1)).collect());
    let in_memory = held.iter().map(|(range, _)| range.len()).sum::<usize>().max(FEW_BYTES);
    let is_shared = shown > in_memory;
    let text = if is_shared { distinct_bytes(array) } else { shown };
    (if text > in_memory || text as u64 > MAX_ROW_BYTES { text + views } else { views }) as u64
}

fn bytes_of_views<O: OffsetSizeTrait>(views: &GenericListViewArray<O>) -> u64 {
    let sizes = views.value_sizes().iter().map(|len| len.as_usize());
    let times = sizes.clone().fold(0u64, |sum, len| sum.saturating_add(len as u64));
    repeated(views.values(), times, || {
        let starts = views.value_offsets().iter().map(|start| start.as_usize());
        starts.zip(sizes).map(|(start, len)| (start..start + len, 1)).collect()
    })
}

fn bytes_of_runs<R: RunEndIndexType>(array: &dyn Array) -> u64 {
    let Some(runs) = array.as_run_opt::<R>() else { return 0 };
    repeated_or_viewed(runs.values(), runs.len() as u64, || {
        let (first, mut start) = (runs.run_ends().get_start_physical_index(), 0);
        let ends = runs.run_ends().sliced_values().map(|end| end.as_usize()).enumerate();
        let shown = |(at, end): (usize, usize)| {
            let len = end - std::mem::replace(&mut start, end);
            (first + at..first + at + 1, len as u64)
        };
        ends.map(shown).collect()
    })
}

/// Rejects values that readers refuse by default.
///
/// # Errors
/// If a text or byte string has about 2 GiB or more.
pub(super) fn check_lengths(array: &dyn Array) -> Result<()> {
    match array.data_type() {
        DataType::Utf8 => check_offsets(array.as_string::<i32>().value_offsets()),
        DataType::Binary => check_offsets(array.as_binary::<i32>().value_offsets()),
        DataType::LargeUtf8 => check_offsets(array.as_string::<i64>().value_offsets()),
        DataType::LargeBinary => check_offsets(array.as_binary::<i64>().value_offsets()),
        DataType::Dictionary(..) => check_lengths(array.as_any_dictionary().values()),
        DataType::ListView(_) => check_lengths(array.as_list_view::<i32>().values()),
        DataType::LargeListView(_) => check_lengths(array.as_list_view::<i64>().values()),
        DataType::RunEndEncoded(..) => {
            let data = array.to_data();
            data.child_data()
                .iter()
                .try_for_each(|child| check_lengths(&arrow::array::make_array(child.clone())))
        }
        _ => shown_children(array).iter().try_for_each(|child| check_lengths(child)),
    }
}

/// Rejects rows that expand to more bytes than are read by default.
///
/// # Errors
/// If a row takes about 2 GiB or more once its bytes are no longer shared.
pub(super) fn check_rows(array: &dyn Array) -> Result<()> {
    let may_be_long = array.data_type().is_nested() || may_share(array.data_type());
    if may_be_long { check_rows_from(array, 0) } else { Ok(()) }
}

/// Checks rows of which the first has this number: in halves, as long as they have more bytes than a row may.
fn check_rows_from(array: &dyn Array, row: usize) -> Result<()> {
    let bytes = own_bytes(array);
    if bytes <= MAX_ROW_BYTES {
        return Ok(());
    }
    if array.len() <= 1 {
        return Err(Error::limit(format!("row {row} has {bytes} bytes, {MAX_ROW_BYTES} allowed")));
    }
    let half = array.len() / 2;
    check_rows_from(&array.slice(0, half), row)?;
    check_rows_from(&array.slice(half, array.len() - half), row + half)
}

fn check_offsets<O: OffsetSizeTrait>(offsets: &[O]) -> Result<()> {
    let len = |first: O, last: O| last.as_usize().saturating_sub(first.as_usize()) as u64;
    if offsets.last().zip(offsets.first()).is_none_or(|(last, first)| len(*first, *last) <= MAX_ROW_BYTES) {
        return Ok(());
    }
    let longest = offsets.windows(2).map(|ends| len(ends[0], ends[1])).max().unwrap_or(0);
    if longest > MAX_ROW_BYTES {
        return Err(Error::limit(format!("a value of {longest} bytes, {MAX_ROW_BYTES} allowed")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryViewBuilder, DictionaryArray, Int32Array, Int64Array, ListArray, ListViewArray, NullArray,
        RunArray, StringArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;

    fn taken(column: ArrayRef) -> Vec<usize> {
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        Portions::new(&batch).map(|rows| rows.num_rows()).collect()
    }

    #[test]
    fn rows_that_share_many_bytes_are_taken_in_one_by_one() {
        let item = Arc::new(Field::new("item", DataType::Int64, false));
        let items: ArrayRef = Arc::new(Int64Array::from_value(7, 1 << 20));
        let views = |rows: usize, len: i32| -> ArrayRef {
            let (starts, lengths) = (vec![0; rows].into(), vec![len; rows].into());
            Arc::new(ListViewArray::new(Arc::clone(&item), starts, lengths, Arc::clone(&items), None))
        };
        assert_eq!(taken(views(5, 1 << 20)), [1; 5]);
        assert_eq!(taken(views(64, 1 << 18)), [4; 16]);
        assert_eq!(taken(views(100_000, 2)), [65_536, 34_464]);
    }

    #[test]
    fn items_that_take_no_bytes_count_for_their_positions() {
        let views = |rows: usize, len: i32| -> ArrayRef {
            let item = Arc::new(Field::new("item", DataType::Null, true));
            let (starts, lengths) = (vec![1; rows].into(), vec![len; rows].into());
            let nulls = Arc::new(NullArray::new(len as usize + 1));
            Arc::new(ListViewArray::new(item, starts, lengths, nulls, None))
        };
        assert_eq!(taken(views(4, 1 << 20)), [1; 4]);
        assert_eq!(taken(views(1000, 1)), [1000]);
        assert!(check_rows(&views(4, 100_000_000)).is_ok());
        let error = check_rows(&views(4, i32::MAX - 10)).unwrap_err().to_string();
        assert!(error.contains("row 0 has 17179869096 bytes"), "{error}");
    }

    #[test]
    fn text_of_items_that_lists_share_is_copied_for_each() {
        let item = Arc::new(Field::new("item", DataType::Utf8, false));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1 << 20), String::new()]));
        let views = |start: i32| -> ArrayRef {
            let (starts, lengths) = (vec![start; 64].into(), vec![1; 64].into());
            Arc::new(ListViewArray::new(Arc::clone(&item), starts, lengths, Arc::clone(&texts), None))
        };
        assert!(taken(views(0)).iter().all(|rows| *rows <= 8));
        assert_eq!(taken(views(1)), [64]);
    }

    #[test]
    fn a_long_value_among_many_short_ones_counts_for_the_rows_that_show_it() {
        let item = Arc::new(Field::new("item", DataType::Int64, false));
        let lengths = std::iter::once(1 << 17).chain([1; 10_000]);
        let numbers = Arc::new(Int64Array::from_value(7, (1 << 17) + 10_000));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths(lengths), numbers, None);
        let ends = Int32Array::from_iter_values(64..64 + 10_001);
        let runs: ArrayRef = Arc::new(RunArray::<Int32Type>::try_new(&ends, &lists).unwrap());
        assert!(taken(runs.slice(0, 64)).iter().all(|rows| *rows <= 8));
        assert_eq!(taken(runs.slice(64, 10_000)).len(), 1);
        let keys = Int32Array::from_value(0, 64);
        let dictionary = DictionaryArray::<Int32Type>::new(keys, Arc::new(lists));
        assert!(taken(Arc::new(dictionary)).iter().all(|rows| *rows <= 8));
    }

    #[test]
    fn text_of_a_dictionary_stays_shared() {
        let long = StringArray::from(vec!["x".repeat(1 << 20)]);
        let keys = Int32Array::from_value(0, 50_000);
        assert_eq!(taken(Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(long)))), [50_000]);
    }

    /// `rows` views of `len` bytes in a buffer, each `step` bytes after the previous one.
    fn views(rows: usize, len: u32, step: u32) -> ArrayRef {
        let mut views = BinaryViewBuilder::new();
        let block = views.append_block(vec![7; len as usize + rows * step as usize].into());
        (0..rows as u32).for_each(|row| views.try_append_view(block, row * step, len).unwrap());
        Arc::new(views.finish())
    }

    #[test]
    fn views_that_overlap_are_taken_in_few_at_a_time() {
        assert!(taken(views(900, 1 << 20, 1)).iter().all(|rows| *rows <= 8));
        let (buffer, mut views_of_many) = (Buffer::from(vec![7; (1 << 20) + 900]), BinaryViewBuilder::new());
        for row in 0..900 {
            let block = views_of_many.append_block(buffer.clone());
            views_of_many.try_append_view(block, row, 1 << 20).unwrap();
        }
        assert!(taken(Arc::new(views_of_many.finish())).iter().all(|rows| *rows <= 8));
        let item = Arc::new(Field::new("item", DataType::BinaryView, false));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths([1; 64]), views(64, 1 << 20, 1), None);
        assert!(taken(Arc::new(lists)).iter().all(|rows| *rows <= 8));
    }

    #[test]
    fn views_of_the_same_text_or_of_apart_text_are_taken_in_at_once() {
        assert_eq!(taken(views(50_000, 1 << 20, 0)), [50_000], "shared");
        assert_eq!(taken(views(1000, 16 << 10, 16 << 10)), [1000], "apart");
        assert_eq!(taken(views(50_000, 40, 1)), [50_000], "few bytes");
    }

    #[test]
    fn a_row_of_views_counts_their_text_if_it_is_too_long_for_readers() {
        const GIB: u32 = 1 << 30;
        let views = |lengths: &[u32]| {
            let mut views = BinaryViewBuilder::new();
            // Pages of zeroes that are not touched take no memory.
            let block = views.append_block(vec![0u8; 3 << 30].into());
            let mut start = 0;
            for len in lengths {
                views.try_append_view(block, start, *len).unwrap();
                start += len;
            }
            Arc::new(views.finish()) as ArrayRef
        };
        assert!(check_rows(&views(&[GIB; 3])).is_ok());
        assert!(check_rows(&one_row(views(&[GIB]))).is_ok());
        for too_long in [views(&[GIB, GIB * 2]), Arc::new(one_row(views(&[GIB; 3])))] {
            let error = check_rows(&too_long).unwrap_err().to_string();
            assert!(error.contains("2146435072 allowed"), "{error}");
        }
    }

    /// Two lists, one of a million numbers and an empty one.
    fn one_long_one_empty() -> ListArray {
        let item = Arc::new(Field::new("item", DataType::Int64, false));
        let numbers = Arc::new(Int64Array::from_value(7, 1 << 20));
        ListArray::new(item, OffsetBuffer::from_lengths([1 << 20, 0]), numbers, None)
    }

    /// One row, which is a list of the items.
    fn one_row(items: ArrayRef) -> ListArray {
        let item = Arc::new(Field::new("item", items.data_type().clone(), true));
        ListArray::new(item, OffsetBuffer::from_lengths([items.len()]), items, None)
    }

    #[test]
    fn a_row_counts_the_values_that_it_shows() {
        let dictionary = |keys: Int32Array| -> ArrayRef {
            Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(one_long_one_empty())))
        };
        let nulls = Int32Array::from_iter((0..1100).map(|_| None::<i32>));
        let views = |start: i32| -> ArrayRef {
            let item = Arc::new(Field::new("item", one_long_one_empty().data_type().clone(), false));
            let (starts, lengths) = (vec![start; 1100].into(), vec![1; 1100].into());
            Arc::new(ListViewArray::new(item, starts, lengths, Arc::new(one_long_one_empty()), None))
        };
        let runs = |ends: [i32; 2]| -> ArrayRef {
            let ends = Int32Array::from(ends.to_vec());
            Arc::new(RunArray::<Int32Type>::try_new(&ends, &one_long_one_empty()).unwrap().slice(1, 1100))
        };
        for (items, is_refused) in [
            (dictionary(Int32Array::from_value(1, 1100)), false),
            (dictionary(nulls), false),
            (dictionary(Int32Array::from_value(0, 1100)), true),
            (views(1), false),
            (views(0), true),
            (runs([2, 1101]), false),
            (runs([1100, 1101]), true),
        ] {
            let data_type = items.data_type().clone();
            let outcome = check_rows(&one_row(items));
            assert_eq!(outcome.is_err(), is_refused, "{data_type}: {outcome:?}");
        }
    }

    #[test]
    fn a_row_that_default_limits_do_not_decode_is_refused_whatever_it_holds() {
        let list = |items: usize| {
            let item = Arc::new(Field::new("item", DataType::Int64, false));
            let offsets = OffsetBuffer::new(vec![0, 1, i32::try_from(items).unwrap()].into());
            // Zeros that nobody reads take no memory.
            ListArray::new(item, offsets, Arc::new(Int64Array::from(vec![0; items])), None)
        };
        assert!(check_rows(&list(1 << 20)).is_ok());
        let error = check_rows(&list(1 << 28)).unwrap_err().to_string();
        assert!(error.contains("row 1 has 2147483640 bytes"), "{error}");
    }

    #[test]
    fn ranges_that_overlap_are_counted_apart() {
        let parts = counted(vec![(0..4, 1), (2..6, 2), (8..8, 5), (9..10, 1), (10..11, 1)]);
        assert_eq!(parts, [(0..2, 1), (2..4, 3), (4..6, 2), (9..10, 1), (10..11, 1)]);
    }
}
