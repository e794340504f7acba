//! The items of lists.

use arrow::array::{Array as _, ArrayRef, OffsetSizeTrait};
use arrow::buffer::OffsetBuffer;

/// The items between the first and the last offset, and the offsets among them: a slice of lists has all items.
pub(crate) fn shown_items<O: OffsetSizeTrait>(
    offsets: OffsetBuffer<O>,
    items: ArrayRef,
) -> (OffsetBuffer<O>, ArrayRef) {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    let count = (last - first).as_usize();
    if count == items.len() {
        return (offsets, items);
    }
    let offsets: Vec<O> = offsets.iter().map(|offset| *offset - first).collect();
    (OffsetBuffer::new(offsets.into()), items.slice(first.as_usize(), count))
}
