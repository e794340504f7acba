//! The cost of copying rows of a decoded array.
//!
//! Overlapping views and repeated indices can expand a few bytes to many. The bytes of each row tell in
//! advance to how many.

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray as _, GenericByteViewArray, OffsetSizeTrait, UnionArray,
};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{ByteViewType, DataType};

use super::items::shown_children;
use crate::dtype::any_inner;
use crate::{Error, Result};

/// Bytes of the rows of an array; every row counts as at least one.
#[derive(Debug)]
pub(crate) enum RowBytes {
    /// All rows have this size.
    Each(u64),
    /// Running totals: the entry at `i` is the total of the first `i` rows.
    Totals(Vec<u64>),
}

impl RowBytes {
    /// Computes the bytes that a copy of each row of `array` takes.
    pub(crate) fn of(array: &dyn Array) -> Self {
        match array.data_type() {
            DataType::Utf8 => Self::variable(array.as_string::<i32>().offsets(), &RowBytes::Each(1)),
            DataType::LargeUtf8 => Self::variable(array.as_string::<i64>().offsets(), &RowBytes::Each(1)),
            DataType::Binary => Self::variable(array.as_binary::<i32>().offsets(), &RowBytes::Each(1)),
            DataType::LargeBinary => Self::variable(array.as_binary::<i64>().offsets(), &RowBytes::Each(1)),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Self::variable(list.offsets(), &Self::of(list.values()))
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                Self::variable(list.offsets(), &Self::of(list.values()))
            }
            DataType::Map(..) => {
                let map = array.as_map();
                Self::variable(map.offsets(), &Self::of(map.entries()))
            }
            // Any number of rows of these takes no memory, so nothing is computed for each of them.
            DataType::FixedSizeList(_, 0) => RowBytes::Each(1),
            DataType::FixedSizeList(_, size) => {
                let size = usize::try_from(*size).unwrap_or(0);
                match Self::of(array.as_fixed_size_list().values()) {
                    RowBytes::Each(bytes) => RowBytes::Each((bytes.saturating_mul(size as u64)).max(1)),
                    totals => {
                        RowBytes::Totals((0..=array.len()).map(|row| totals.up_to(row * size)).collect())
                    }
                }
            }
            DataType::Struct(_) => {
                Self::sum(array.as_struct().columns().iter().map(|c| Self::of(c)), array.len())
            }
            DataType::Union(fields, _) => match array.as_any().downcast_ref::<UnionArray>() {
                Some(union) => Self::sum(fields.iter().map(|(id, _)| Self::of(union.child(id))), array.len()),
                None => RowBytes::Each(16),
            },
            DataType::Null | DataType::Boolean => RowBytes::Each(1),
            DataType::FixedSizeBinary(width) => RowBytes::Each(u64::try_from(*width).unwrap_or(0).max(1)),
            // Views and dictionary keys are copied, but not the values they refer to.
            other => RowBytes::Each(other.primitive_width().unwrap_or(16) as u64),
        }
    }

    fn variable<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, items: &RowBytes) -> Self {
        let first = items.up_to(offsets[0].as_usize());
        let totals = offsets.iter().enumerate();
        RowBytes::Totals(
            totals
                .map(|(row, end)| {
                    (items.up_to(end.as_usize()) - first).saturating_add((row * size_of::<O>()) as u64)
                })
                .collect(),
        )
    }

    fn sum(columns: impl Iterator<Item = RowBytes>, len: usize) -> Self {
        columns.fold(RowBytes::Each(1), |sum, column| match (sum, column) {
            (RowBytes::Each(left), RowBytes::Each(right)) => RowBytes::Each(left.saturating_add(right)),
            (left, right) => RowBytes::Totals(
                (0..=len).map(|row| left.up_to(row).saturating_add(right.up_to(row))).collect(),
            ),
        })
    }

    /// The bytes of the rows at some indices; indices may repeat.
    pub(crate) fn sum_at(&self, indices: impl ExactSizeIterator<Item = usize>) -> u64 {
        match self {
            RowBytes::Each(bytes) => bytes.saturating_mul(indices.len() as u64),
            RowBytes::Totals(_) => indices.fold(0, |sum: u64, at| {
                let row = self.up_to(at.saturating_add(1)).saturating_sub(self.up_to(at));
                sum.saturating_add(row)
            }),
        }
    }

    /// The bytes of the first `rows` rows.
    pub(crate) fn up_to(&self, rows: usize) -> u64 {
        match self {
            RowBytes::Each(bytes) => bytes.saturating_mul(rows as u64),
            RowBytes::Totals(totals) => totals.get(rows).or(totals.last()).copied().unwrap_or(0),
        }
    }
}

/// Approximate bytes that the rows of an array take when they are copied; every element counts as at least one.
pub(crate) fn copied_bytes(array: &dyn Array) -> u64 {
    let rows = array.len() as u64;
    let inner = match array.data_type() {
        DataType::Utf8View => view_bytes(array.as_string_view()),
        DataType::BinaryView => view_bytes(array.as_binary_view()),
        // Copied as a whole, whichever rows refer to them.
        DataType::ListView(_) => copied_bytes(array.as_list_view::<i32>().values()),
        DataType::LargeListView(_) => copied_bytes(array.as_list_view::<i64>().values()),
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::Map(..)
        | DataType::FixedSizeList(..)
        | DataType::Struct(_) => {
            shown_children(array).iter().map(|child| copied_bytes(child)).fold(0, u64::saturating_add)
        }
        _ => return RowBytes::of(array).up_to(array.len()),
    };
    inner.saturating_add(rows)
}

fn view_bytes<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> u64 {
    // The length of a value is in the lowest 32 bits of its view.
    array.views().iter().map(|view| u64::from(*view as u32) + size_of::<u128>() as u64).sum()
}

/// Whether values of the type are found by 32-bit offsets, which limit the bytes of all rows together.
pub(crate) fn has_narrow_offsets(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::Binary | DataType::List(_) | DataType::Map(..) => true,
        DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Struct(_) | DataType::Union(..) => {
            any_inner(data_type, has_narrow_offsets)
        }
        _ => false,
    }
}

/// Number of rows that arrays of a type have room for, if that is limited: ends of runs may be of 16 bits. The
/// items of lists may be too many for them in any number of rows. Arrow panics when it concatenates more.
pub(crate) fn max_rows(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::RunEndEncoded(ends, _) if *ends.data_type() == DataType::Int16 => Some(i16::MAX as usize),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => max_rows(item.data_type()).map(|_| 0),
        DataType::FixedSizeList(item, size) => {
            let size = usize::try_from(*size).unwrap_or(0).max(1);
            max_rows(item.data_type()).map(|items| items / size)
        }
        DataType::Struct(fields) => fields.iter().filter_map(|field| max_rows(field.data_type())).min(),
        _ => None,
    }
}

/// Checks that arrays can be concatenated: Arrow adds up offsets without checking, and with at most this many
/// elements they cannot overflow. Returns the bytes of a list of all their buffers: views keep those of each part.
pub(crate) fn check_parts(parts: &[ArrayRef]) -> Result<usize> {
    let (mut elements, mut buffers) = (0usize, 0usize);
    for part in parts {
        let part = part.to_data();
        elements = elements.saturating_add(most_rows(&part));
        buffers = buffers.saturating_add(buffer_count(&part));
    }
    if i32::try_from(elements).is_err() {
        return Err(Error::limit("chunks have more than 2^31 elements in total"));
    }
    Ok(buffers.saturating_mul(size_of::<Buffer>()))
}

/// The number of buffers of the array and of all descendants.
fn buffer_count(data: &ArrayData) -> usize {
    data.child_data().iter().map(buffer_count).fold(data.buffers().len(), usize::saturating_add)
}

/// The row count of the array or of any descendant, whichever is the greatest.
fn most_rows(data: &ArrayData) -> usize {
    data.child_data().iter().map(most_rows).fold(data.len(), usize::max)
}

/// Bytes that Arrow's kernels reserve for a copy of `rows` rows before their contents are known: for each
/// row as many items as a fixed-size list has, even if that is within a list that may be empty.
pub(crate) fn reserved_bytes(data_type: &DataType, rows: u64) -> u64 {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => reserved_bytes(item.data_type(), rows).saturating_add(rows),
        DataType::FixedSizeList(item, size) => {
            let items = rows.saturating_mul(u64::try_from(*size).unwrap_or(0));
            reserved_bytes(item.data_type(), items)
        }
        DataType::Struct(fields) => fields
            .iter()
            .fold(0, |sum: u64, field| sum.saturating_add(reserved_bytes(field.data_type(), rows))),
        DataType::Union(fields, _) => fields
            .iter()
            .fold(0, |sum: u64, (_, field)| sum.saturating_add(reserved_bytes(field.data_type(), rows))),
        DataType::FixedSizeBinary(width) => rows.saturating_mul(u64::try_from(*width).unwrap_or(0)),
        DataType::Utf8View | DataType::BinaryView => rows.saturating_mul(size_of::<u128>() as u64),
        other => rows.saturating_mul(other.primitive_width().unwrap_or(1) as u64),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{FixedSizeListArray, Int64Array, ListArray, StringArray};
    use arrow::datatypes::{Field, Int64Type};

    use super::*;

    #[test]
    fn fixed_sizes_multiply_whatever_lists_are_around_them() {
        let list = |of: DataType| DataType::List(Arc::new(Field::new("item", of, true)));
        let fixed =
            |of: DataType, size| DataType::FixedSizeList(Arc::new(Field::new("item", of, true)), size);
        assert_eq!(reserved_bytes(&DataType::Int32, 5), 20);
        assert_eq!(reserved_bytes(&list(fixed(DataType::Int64, 1000)), 5), 5 * 8000 + 5);
        assert_eq!(reserved_bytes(&fixed(fixed(DataType::Int64, i32::MAX), i32::MAX), 1 << 10), u64::MAX);
    }

    #[test]
    fn rows_without_items_take_no_memory_to_count() {
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, Vec<_>, _>([]));
        let item = Arc::new(Field::new("item", lists.data_type().clone(), true));
        let rows = FixedSizeListArray::try_new_with_length(item, 0, lists, None, 1 << 46).unwrap();
        assert_eq!(RowBytes::of(&rows).up_to(7), 7);
    }

    #[test]
    fn ends_of_runs_limit_rows_wherever_they_are() {
        let field = |of: DataType| Arc::new(Field::new("x", of, false));
        let runs = |of| DataType::RunEndEncoded(field(of), field(DataType::Int64));
        assert_eq!(max_rows(&runs(DataType::Int32)), None);
        let short = || field(runs(DataType::Int16));
        assert_eq!(max_rows(short().data_type()), Some(32_767));
        assert_eq!(max_rows(&DataType::Struct(vec![field(DataType::Int64), short()].into())), Some(32_767));
        assert_eq!(max_rows(&DataType::FixedSizeList(short(), 2)), Some(16_383));
        assert_eq!(max_rows(&DataType::List(short())), Some(0));
        assert_eq!(max_rows(&DataType::List(field(DataType::FixedSizeList(field(DataType::Int8), 2)))), None);
    }

    #[test]
    fn counts_what_a_copy_takes() {
        assert_eq!(RowBytes::of(&Int64Array::from(vec![1, 2, 3])).up_to(2), 16);
        let strings = StringArray::from(vec!["", "four", "x"]);
        let bytes = RowBytes::of(&strings);
        assert_eq!([0, 1, 2, 3].map(|row| bytes.up_to(row)), [0, 4, 12, 17]);
        let field = Arc::new(Field::new("item", DataType::Utf8, true));
        let lists = ListArray::new(field, OffsetBuffer::from_lengths([2, 0, 1]), Arc::new(strings), None);
        let bytes = RowBytes::of(&lists.slice(1, 2));
        assert_eq!([0, 1, 2].map(|row| bytes.up_to(row)), [0, 4, 13]);
    }
}
