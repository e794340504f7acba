//! Bit-packing with a separate width for each block.
//!
//! ```text
//! packed          [ 128 * w0 bytes ][ 128 * w1 bytes ][ ... ]
//! block_offsets   b0                b1                b2     ...  (bytes; widths follow)
//! ```
//!
//! Metadata: offset, type of the block offsets, description of the patches. Buffer: the blocks. Children:
//! those of the patches, optionally the validity, and last the block offsets, one more than there are
//! blocks. Slices keep the offsets unchanged, so they need not start at zero. Everything else is as in
//! the [first version](super).

use std::sync::Arc;

use super::blocks::BlockPositions;
use super::{BitPackedArray, Frame};
use crate::Result;
use crate::array::{EncodedRef, Node, unsigned_type};
use crate::encodings::Encoding;
use crate::encodings::shared::patches::PatchesMessage;

/// The `fastlanes.bitpacked.v2` encoding.
#[derive(Debug)]
pub(in crate::encodings) struct BitPackedV2;

const ID: &str = "fastlanes.bitpacked.v2";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    offset: u32,
    #[prost(int32, tag = "2")]
    block_offsets_ptype: i32,
    #[prost(message, optional, tag = "3")]
    patches: Option<PatchesMessage>,
}

impl Encoding for BitPackedV2 {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let metadata = node.message::<Metadata>()?;
        let frame = Frame::of(node, metadata.offset)?;
        let offsets = unsigned_type(metadata.block_offsets_ptype, "block offsets")?;
        node.expect_buffers(1)?;
        let packed = node.aligned(node.buffer(0)?, frame.ptype.byte_width())?;
        let (patches, after) = frame.patches(node, metadata.patches.as_ref())?;
        let validity = node.optional_validity(after, after + 1)?;
        let offsets = node.child(node.child_count() - 1, &offsets, frame.rows.block_count() + 1)?;
        node.limits().count::<usize>(offsets.len())?;
        Ok(Arc::new(BitPackedArray {
            header: node.header(ID),
            ptype: frame.ptype,
            rows: frame.rows,
            blocks: BlockPositions::uneven(packed, offsets, frame.ptype.bit_width()),
            patches,
            validity,
        }))
    }
}

#[cfg(test)]
pub(in crate::encodings) mod tests {
    use std::any::Any;
    use std::cell::Cell;

    use super::super::tests::{narrow_values, packed, validity_of};
    use super::*;
    use crate::array::array_of_raw;
    use crate::array::build::Tree;
    use crate::dtype::{DType, PType};
    use crate::encodings::shared::conformance;
    use crate::kernels::{BLOCK, Word};
    use arrow::array::Array as _;

    /// Blocks of the given widths, of which the first `offset` rows are hidden, with offsets starting at
    /// `first`.
    pub(in crate::encodings) fn blocks<W: Word>(
        widths: &[usize],
        offset: usize,
        first: u32,
    ) -> (Tree, Vec<W>, Vec<u32>) {
        let (mut bytes, mut values, mut offsets) = (Vec::new(), Vec::new(), vec![first]);
        for (at, width) in widths.iter().enumerate() {
            let block: Vec<W> = narrow_values(BLOCK, *width, at as u64);
            bytes.extend_from_slice(&packed(&block, *width, 0));
            values.extend(block);
            offsets.push(first + u32::try_from(bytes.len()).unwrap());
        }
        let metadata =
            Metadata { offset: offset as u32, block_offsets_ptype: PType::U32 as i32, patches: None };
        let tree = Tree::new(ID).message(&metadata).buffer(bytes);
        (tree, values.split_off(offset), offsets)
    }

    #[test]
    fn conforms_with_a_width_per_block() {
        for (ptype, widths) in [(PType::I32, [3, 0, 32]), (PType::U8, [8, 1, 5])] {
            crate::kernels::match_word!(ptype, |W| for (offset, first) in [(0, 0), (700, 256)] {
                let (tree, values, offsets) = blocks::<W>(&widths, offset, first);
                let len = values.len() - 10;
                let values = values[..len].to_vec();
                let plain = tree.clone().child(Tree::primitive(&offsets));
                let array = plain.load(&DType::Primitive(ptype, false), len).unwrap();
                conformance::check(&array, &array_of_raw(ptype, values.clone().into(), None).unwrap());
                let valid = validity_of(len);
                let nullable = tree.child(Tree::bools(&valid)).child(Tree::primitive(&offsets));
                let array = nullable.load(&DType::Primitive(ptype, true), len).unwrap();
                let expected = array_of_raw(ptype, values.into(), Some(valid.into())).unwrap();
                conformance::check(&array, &expected);
            });
        }
    }

    #[test]
    fn every_block_is_examined_about_once_whatever_the_widths() {
        const BLOCKS: usize = 500;
        let widths: Vec<usize> = (0..BLOCKS).map(|at| at % 2).collect();
        let (tree, values, offsets) = blocks::<u8>(&widths, 0, 0);
        let tree = tree.child(Tree::primitive(&offsets));
        let array = tree.load(&DType::Primitive(PType::U8, false), values.len()).unwrap();
        let packed = (array.as_ref() as &dyn Any).downcast_ref::<BitPackedArray>().unwrap();
        let examined = Cell::new(0);
        let reference = |_| {
            examined.set(examined.get() + 1);
            0
        };
        assert_eq!(packed.unpack::<u8>(reference).unwrap(), values);
        assert!(examined.get() <= 2 * BLOCKS, "{} for {BLOCKS} blocks", examined.get());
    }

    #[test]
    fn patches_come_before_the_validity() {
        let (_, mut values, offsets) = blocks::<u16>(&[2, 5], 0, 0);
        let metadata = Metadata {
            offset: 0,
            block_offsets_ptype: PType::U32 as i32,
            patches: Some(PatchesMessage { len: 2, indices_ptype: PType::U16 as i32, ..Default::default() }),
        };
        let bytes: Vec<u8> = [packed(&values[..BLOCK], 2, 0), packed(&values[BLOCK..], 5, 0)]
            .iter()
            .flat_map(|buffer| buffer.to_vec())
            .collect();
        let valid = validity_of(2048);
        let tree = Tree::new(ID)
            .message(&metadata)
            .buffer(bytes)
            .child(Tree::primitive(&[1023u16, 1024]))
            .child(Tree::primitive(&[7u16, 9999]))
            .child(Tree::bools(&valid))
            .child(Tree::primitive(&offsets));
        (values[1023], values[1024]) = (7, 9999);
        let array = tree.load(&DType::Primitive(PType::U16, true), 2048).unwrap();
        let expected = array_of_raw(PType::U16, values.into(), Some(valid.into())).unwrap();
        conformance::check(&array, &expected);
    }

    #[test]
    fn empty_arrays_have_one_block_offset() {
        let (tree, _, offsets) = blocks::<u16>(&[], 0, 0);
        let array = tree.child(Tree::primitive(&offsets)).load(&DType::Primitive(PType::U16, false), 0);
        let expected = array_of_raw::<u16>(PType::U16, vec![].into(), None).unwrap();
        conformance::check(&array.unwrap(), &expected);
    }

    #[test]
    fn bytes_that_are_no_whole_words_are_corrupt() {
        let (_, values, offsets) = blocks::<u64>(&[2, 5], 0, 0);
        let metadata = Metadata { offset: 0, block_offsets_ptype: PType::U32 as i32, patches: None };
        let tree = Tree::new(ID).message(&metadata).buffer(vec![7u8; 897]).child(Tree::primitive(&offsets));
        let array = tree.load(&DType::Primitive(PType::U64, false), values.len()).unwrap();
        assert!(array.decode(&arrow::datatypes::DataType::UInt64).is_err());
    }

    #[test]
    fn block_offsets_that_are_no_widths_are_corrupt() {
        let (tree, values, _) = blocks::<u16>(&[2, 5], 0, 0);
        for offsets in [[0u32, 256, 895], [0, 255, 896], [0, 1024, 896], [0, 256, 1024], [1, 256, 896]] {
            let tree = tree.clone().child(Tree::primitive(&offsets));
            let array = tree.load(&DType::Primitive(PType::U16, false), values.len()).unwrap();
            let expected = array_of_raw(PType::U16, values.clone().into(), None).unwrap();
            assert!(array.decode(expected.data_type()).is_err(), "{offsets:?}");
        }
    }
}
