use arrow::buffer::Buffer;

use super::*;
use crate::array::build::Tree;
use crate::dtype::DType;
use crate::encodings::shared::conformance;
use crate::kernels::{bitpack, random};

/// The packed blocks of values that start at row `offset` of the first block.
pub(in crate::encodings) fn packed<W: Word>(values: &[W], width: usize, offset: usize) -> Buffer {
    let mut padded = vec![W::narrow(0x55); offset];
    padded.extend_from_slice(values);
    padded.resize(padded.len().next_multiple_of(BLOCK), W::ZERO);
    let blocks = padded.as_chunks::<BLOCK>().0;
    Buffer::from_vec(blocks.iter().flat_map(|block| bitpack::pack(width, block)).collect::<Vec<W>>())
}

/// A `fastlanes.bitpacked` tree without patches and nulls.
pub(in crate::encodings) fn tree<W: Word>(values: &[W], width: usize, offset: usize) -> Tree {
    let metadata = Metadata { bit_width: width as u32, offset: offset as u32, patches: None };
    Tree::new(ID).message(&metadata).buffer(packed(values, width, offset))
}

/// Values of at most `width` bits.
pub(in crate::encodings) fn narrow_values<W: Word>(len: usize, width: usize, seed: u64) -> Vec<W> {
    let mut next = random(seed);
    let max = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
    (0..len).map(|_| W::narrow(next() & max)).collect()
}

pub(in crate::encodings) fn validity_of(len: usize) -> Vec<bool> {
    (0..len).map(|row| row % 7 != 2).collect()
}

#[test]
fn conforms_at_every_width_of_every_type() {
    for ptype in PType::ALL.into_iter().filter(|ptype| ptype.is_integer()) {
        match_word!(ptype, |W| for width in 0..=ptype.bit_width() {
            // All widths are decoded; for some of them, full conformance is checked.
            let thorough = [0, 1, 3, ptype.bit_width() - 1, ptype.bit_width()].contains(&width);
            let len = if thorough { 2500 } else { 1100 };
            let offset = width * 37 % BLOCK;
            let values: Vec<W> = narrow_values(len, width, width as u64);
            let array = tree(&values, width, offset).load(&DType::Primitive(ptype, false), len).unwrap();
            let expected = array_of_raw(ptype, values.clone().into(), None).unwrap();
            if thorough {
                conformance::check(&array, &expected);
                let valid = validity_of(len);
                let nullable = tree(&values, width, offset).child(Tree::bools(&valid));
                let nullable = nullable.load(&DType::Primitive(ptype, true), len).unwrap();
                let nulls = Some(valid.into());
                conformance::check(&nullable, &array_of_raw(ptype, values.into(), nulls).unwrap());
            } else {
                assert_eq!(&array.decode(expected.data_type()).unwrap(), &expected);
            }
        });
    }
}

/// Values of four bits, except every 300th and the last one, which need all bits.
fn patched<W: Word>(ptype: PType, offset: usize) -> (Tree, Vec<W>) {
    let len = 3000;
    let mut values: Vec<W> = narrow_values(len, 4, 4);
    let rows: Vec<u32> = (0..len as u32).step_by(300).chain([len as u32 - 1]).collect();
    for row in &rows {
        values[*row as usize] = W::MAX.minus(W::narrow((*row).into()));
    }
    let patch_values: Vec<W> = rows.iter().map(|row| values[*row as usize]).collect();
    let message = PatchesMessage {
        len: rows.len() as u64,
        offset: 5,
        indices_ptype: PType::U32 as i32,
        chunk_offsets_len: Some(3),
        chunk_offsets_ptype: Some(0),
    };
    let metadata = Metadata { bit_width: 4, offset: offset as u32, patches: Some(message) };
    let tree = Tree::new(ID)
        .message(&metadata)
        .buffer(packed(&values, 4, offset))
        .child(Tree::primitive(&rows.iter().map(|row| row + 5).collect::<Vec<_>>()))
        .child(Tree::primitive(&patch_values))
        .child(Tree::primitive(&[0u8, 4, 7]));
    assert_eq!(patch_values.len(), 11, "of {ptype}");
    (tree, values)
}

#[test]
fn conforms_with_patches() {
    for ptype in [PType::U8, PType::I8, PType::I16, PType::U32, PType::I64] {
        match_word!(ptype, |W| for offset in [0, 1000] {
            let (tree, values) = patched::<W>(ptype, offset);
            let array = tree.load(&DType::Primitive(ptype, false), values.len()).unwrap();
            let expected = array_of_raw(ptype, values.clone().into(), None).unwrap();
            conformance::check(&array, &expected);
            let valid = validity_of(values.len());
            let nullable = tree.child(Tree::bools(&valid));
            let nullable = nullable.load(&DType::Primitive(ptype, true), values.len()).unwrap();
            let expected = array_of_raw(ptype, values.into(), Some(valid.into())).unwrap();
            conformance::check(&nullable, &expected);
        });
    }
}

#[test]
fn a_width_that_decides_a_comparison_leaves_patches_to_it() {
    use crate::expr::CompareOp;
    use crate::scalar::{Scalar, Value};
    let (tree, values) = patched::<u32>(PType::U32, 0);
    let dtype = DType::Primitive(PType::U32, false);
    let array = tree.load(&dtype, values.len()).unwrap();
    let constant = Scalar::try_new(dtype, Value::UInt(16)).unwrap();
    let outcome = array.matches(&Predicate::Compare(CompareOp::GtEq, constant)).unwrap();
    assert_eq!(outcome.true_count(), 11);
}

#[test]
fn empty_arrays_have_no_blocks() {
    let array = tree::<u16>(&[], 5, 0).load(&DType::Primitive(PType::U16, true), 0).unwrap();
    conformance::check(&array, &array_of_raw::<u16>(PType::U16, vec![].into(), None).unwrap());
}

#[test]
fn nodes_that_contradict_themselves_are_corrupt() {
    let dtype = DType::Primitive(PType::U16, false);
    let bytes = |count: usize| vec![0u8; count];
    let with = |bit_width, offset, count: usize| {
        Tree::new(ID).message(&Metadata { bit_width, offset, patches: None }).buffer(bytes(count))
    };
    assert!(with(3, 0, 384).load(&dtype, 1000).is_ok());
    assert!(with(3, 0, 384).load(&dtype, 1025).is_err(), "a block is missing");
    assert!(with(3, 1023, 384).load(&dtype, 2).is_err(), "a block is missing behind the offset");
    assert!(with(3, 1024, 384).load(&dtype, 0).is_err(), "offset beyond the block");
    assert!(with(17, 0, 17 * 128).load(&dtype, 1000).is_err(), "too wide");
    assert!(with(3, 0, 384).load(&DType::Primitive(PType::F16, false), 1000).is_err(), "floats");
    assert!(with(3, 0, 384).child(Tree::bools(&[true])).load(&dtype, 1).is_err(), "validity");
    assert!(with(0, 3, 0).load(&dtype, usize::MAX).is_err(), "rows overflow");
    let endless = with(0, 0, 0).load(&dtype, 1 << 50).unwrap();
    assert!(endless.decode(&DataType::UInt16).is_err(), "rows beyond the limit");
}

#[test]
fn misaligned_bytes_decode() {
    let values: Vec<u64> = narrow_values(1024, 9, 9);
    let mut shifted = vec![0u8];
    shifted.extend_from_slice(&packed(&values, 9, 0));
    let buffer = Buffer::from_vec(shifted).slice(1);
    let metadata = Metadata { bit_width: 9, offset: 0, patches: None };
    let dtype = DType::Primitive(PType::U64, false);
    let array = Tree::new(ID).message(&metadata).buffer(buffer).load(&dtype, 1024).unwrap();
    assert_eq!(decode_raw::<u64>(&array).unwrap().0[..], values);
}
