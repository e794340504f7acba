//! The items of lists, and what else nested arrays consist of.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, OffsetSizeTrait};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;

/// The items between the first and the last offset, and the offsets among them: a slice of lists has all items.
pub(crate) fn shown_items<O: OffsetSizeTrait>(
    offsets: OffsetBuffer<O>,
    items: ArrayRef,
) -> (OffsetBuffer<O>, ArrayRef) {
    let [first, last] = ends(&offsets);
    if last - first == items.len() {
        return (offsets, items);
    }
    let rebased: Vec<O> = offsets.iter().map(|offset| *offset - offsets[0]).collect();
    (OffsetBuffer::new(rebased.into()), items.slice(first, last - first))
}

/// The items of lists, the entries of maps or the fields of structs, cut to what the rows show. Other arrays have none:
/// not even views of lists, which show items more than once, or not at all.
pub(crate) fn shown_children(array: &dyn Array) -> Vec<ArrayRef> {
    let shown =
        |offsets: [usize; 2], items: &dyn Array| vec![items.slice(offsets[0], offsets[1] - offsets[0])];
    match array.data_type() {
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            shown(ends(lists.offsets()), lists.values())
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            shown(ends(lists.offsets()), lists.values())
        }
        DataType::Map(..) => {
            let maps = array.as_map();
            shown(ends(maps.offsets()), maps.entries())
        }
        // Slicing cuts these, too.
        DataType::FixedSizeList(..) => vec![Arc::clone(array.as_fixed_size_list().values())],
        DataType::Struct(_) => array.as_struct().columns().to_vec(),
        _ => Vec::new(),
    }
}

/// The first and the last offset.
fn ends<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> [usize; 2] {
    [offsets[0], offsets[offsets.len() - 1]].map(|offset| offset.as_usize())
}
