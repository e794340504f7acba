//! Key-value lists: lists of `struct{key, value}`, presented as maps.
//!
//! No metadata, no buffers. The only child is the list of entries, which must be a list view and carries the
//! nulls. Keys are never null. Arrow represents maps as such lists, too, so decoding only changes the type.

use std::sync::Arc;

use arrow::array::{AsArray as _, MapArray as ArrowMap};
use arrow::datatypes::DataType;

use super::{Encoding, list_view};
use crate::array::{ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, present};
use crate::dtype::DType;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.map` encoding.
#[derive(Debug)]
pub(super) struct Map;

const ID: &str = "vortex.map";

impl Encoding for Map {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let entries = node.child(0, &lists_of_entries(node)?, node.len())?;
        of_entries(node, entries)
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        let entries = node.child_rows(0, &lists_of_entries(node)?, node.len(), rows)?;
        of_entries(node, entries)
    }
}

/// The type of the only child.
fn lists_of_entries(node: &Node<'_>) -> Result<DType> {
    let DType::Map(map, nullable) = node.dtype() else {
        return Err(Error::corrupt(format!("holds maps, not {}", node.dtype())));
    };
    node.no_metadata()?;
    node.expect_buffers(0)?;
    node.expect_children(1)?;
    Ok(DType::List(Arc::new(map.entry()), *nullable))
}

fn of_entries(node: &Node<'_>, entries: EncodedRef) -> Result<EncodedRef> {
    if entries.encoding() != list_view::ID {
        return Err(Error::corrupt(format!("map entries in {}", entries.encoding())));
    }
    Ok(Arc::new(MapArray { header: node.header(ID).of_rows(entries.len()), entries }))
}

#[derive(Debug)]
struct MapArray {
    header: Header,
    entries: EncodedRef,
}

impl EncodedArray for MapArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        vec![("entries", &self.entries)]
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let DataType::Map(entry, keys_sorted) = to else {
            return present(self.decode_preferred()?, to);
        };
        let lists = self.entries.decode(&DataType::List(Arc::clone(entry)))?;
        let (_, offsets, entries, nulls) = lists.as_list::<i32>().clone().into_parts();
        let entries = entries.as_struct().clone();
        Ok(Arc::new(ArrowMap::try_new(Arc::clone(entry), offsets, entries, nulls, *keys_sorted)?))
    }

    fn validity(&self) -> Result<Validity> {
        self.entries.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(Self { header: self.header.of_rows(pick.row_count()), entries: pick.of(&self.entries)? }))
    }
}

/// A node of maps, given the [list view](list_view) of their entries.
pub(crate) fn encode(entries: WriteNode) -> WriteNode {
    WriteNode::new(ID).child(entries)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringArray, StringViewArray, StructArray, UInt8Array};
    use arrow::buffer::{Buffer, OffsetBuffer};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::dtype::{MapType, PType};
    use crate::encodings::shared::conformance;
    use crate::kernels::views::view_of;

    fn maps(nullable: bool) -> DType {
        let key = DType::Primitive(PType::U8, false);
        let value = DType::Primitive(PType::I32, true);
        DType::Map(Arc::new(MapType::try_new(key, value, false).unwrap()), nullable)
    }

    /// Three maps of 2, 0 and 1 entries.
    fn entries(id: &'static str) -> Tree {
        let values = Tree::primitive(&[10i32, 20, 30]).child(Tree::bools(&[true, false, true]));
        let pairs = Tree::new("vortex.struct").child(Tree::primitive(&[1u8, 2, 3])).child(values);
        // Three lists, with offsets and sizes of type u8.
        Tree::new(id)
            .metadata(vec![0x08, 3])
            .child(pairs)
            .child(Tree::primitive(&[0u8, 2, 2]))
            .child(Tree::primitive(&[2u8, 0, 1]))
    }

    fn expected(nulls: Option<Vec<bool>>) -> ArrayRef {
        let DataType::Map(entry, _) = data_type(&maps(true)).unwrap() else { unreachable!() };
        let DataType::Struct(fields) = entry.data_type() else { unreachable!() };
        let keys: ArrayRef = Arc::new(UInt8Array::from(vec![1, 2, 3]));
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(10), None, Some(30)]));
        let pairs = StructArray::new(fields.clone(), vec![keys, values], None);
        let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
        Arc::new(ArrowMap::new(entry, offsets, pairs, nulls.map(Into::into), false))
    }

    #[test]
    fn conforms() {
        let array = Tree::new(ID).child(entries("vortex.listview")).load(&maps(false), 3).unwrap();
        conformance::check(&array, &expected(None));
        let valid = [true, true, false];
        let nullable = Tree::new(ID).child(entries("vortex.listview").child(Tree::bools(&valid)));
        conformance::check(&nullable.load(&maps(true), 3).unwrap(), &expected(Some(valid.into())));
    }

    #[test]
    fn conforms_for_keys_of_text() {
        let map = MapType::try_new(DType::Utf8(false), DType::Utf8(true), false).unwrap();
        let dtype = DType::Map(Arc::new(map), false);
        let words = || Tree::new("vortex.varbinview").buffer(Buffer::from_vec(vec![view("a"), view("bc")]));
        let pairs = Tree::new("vortex.struct").child(words()).child(words());
        let entries = Tree::new("vortex.listview").metadata(vec![0x08, 2]).child(pairs);
        let entries = entries.child(Tree::primitive(&[0u8, 1])).child(Tree::primitive(&[1u8, 1]));
        let array = Tree::new(ID).child(entries).load(&dtype, 2).unwrap();

        let DataType::Map(entry, _) = data_type(&dtype).unwrap() else { unreachable!() };
        let DataType::Struct(fields) = entry.data_type() else { unreachable!() };
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "bc"]));
        let values: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "bc"]));
        let pairs = StructArray::new(fields.clone(), vec![keys, values], None);
        let expected = ArrowMap::new(entry, OffsetBuffer::from_lengths([1, 1]), pairs, None, false);
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    /// The view of a short text.
    fn view(text: &str) -> u128 {
        view_of(text.as_bytes(), 0, text.len() as u32, 0, 0)
    }

    #[test]
    fn entries_must_be_a_list_view() {
        let pairs = Tree::new("vortex.struct").child(Tree::primitive(&[1u8])).child(Tree::primitive(&[2i32]));
        let list = Tree::new("vortex.list").metadata(vec![0x08, 1]).child(pairs);
        let list = list.child(Tree::primitive(&[0u8, 1]));
        assert!(Tree::new(ID).child(list).load(&maps(false), 1).is_err());
        assert!(Tree::new(ID).load(&maps(false), 1).is_err());
    }
}
