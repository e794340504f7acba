//! Booleans, one bit each, with the least significant bit first.
//!
//! ```text
//! rows  t f t t ...   bits  0b....1101
//! ```
//!
//! Metadata: position of the first row's bit (0 to 7). Buffer: the bits. Optional child: the validity.
//! Slicing moves the position of the first bit and shares the bytes.

use std::sync::Arc;

use arrow::array::{AsArray as _, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{ArrowNativeType as _, DataType};

use super::Encoding;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, present,
};
use crate::dtype::DType;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.bool` encoding.
#[derive(Debug)]
pub(super) struct Bool;

const ID: &str = "vortex.bool";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    offset: u32,
}

impl Encoding for Bool {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let DType::Bool(_) = node.dtype() else {
            return Err(Error::corrupt(format!("holds booleans, not {}", node.dtype())));
        };
        let offset = node.message::<Metadata>()?.offset as usize;
        if offset > 7 {
            return Err(Error::corrupt(format!("first bit at {offset} of a byte")));
        }
        node.expect_buffers(1)?;
        let bits = node.bits(0, offset);
        Ok(Arc::new(BoolArray { header: node.header(ID), validity: node.validity_child(0)?, bits: bits? }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

#[derive(Debug)]
struct BoolArray {
    header: Header,
    bits: BooleanBuffer,
    validity: ValidityChild,
}

impl EncodedArray for BoolArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        self.validity.named().into_iter().collect()
    }

    fn buffer_bytes(&self) -> usize {
        self.bits.len().div_ceil(8)
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let nulls = self.validity()?.to_nulls(self.len());
        // Arrow counts both bitmaps from the first bit of the values, so that must be bit 0.
        let bits = match &nulls {
            Some(_) => BooleanBuffer::new(self.bits.sliced(), 0, self.len()),
            None => self.bits.clone(),
        };
        present(Arc::new(BooleanArray::new(bits, nulls)), to)
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let bits = match pick {
            Pick::Slice(rows) => self.bits.slice(rows.start, rows.len()),
            Pick::Filter(mask) => match mask.few() {
                Some(few) => few.values().iter().map(|row| self.bits.value(row.as_usize())).collect(),
                None => {
                    let bits = BooleanArray::new(self.bits.clone(), None);
                    arrow::compute::filter(&bits, &mask.to_filter())?.as_boolean().values().clone()
                }
            },
            Pick::Take(_) => return self.to_decoded()?.pick(pick),
        };
        let header = self.header.of_rows(pick.row_count());
        Ok(Arc::new(Self { header, bits, validity: self.validity.pick(pick)? }))
    }
}

/// A node of bits.
pub(crate) fn encode(bits: &BooleanBuffer, validity: Option<WriteNode>) -> WriteNode {
    WriteNode::new(ID).buffer(bits.sliced(), 1).children(validity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::build::Tree;
    use crate::encodings::shared::conformance;

    #[test]
    fn conforms() {
        let bits: Vec<bool> = (0..100).map(|at| at % 3 == 0).collect();
        let valid: Vec<bool> = (0..100).map(|at| at % 5 != 0).collect();
        let array = Tree::bools(&bits).load(&DType::Bool(false), 100).unwrap();
        conformance::check(&array, &(Arc::new(BooleanArray::from(bits.clone())) as ArrayRef));

        let nullable = Tree::bools(&bits).child(Tree::bools(&valid)).load(&DType::Bool(true), 100).unwrap();
        let expected = BooleanArray::new(bits.into(), Some(valid.into()));
        conformance::check(&nullable, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn the_first_bit_may_lie_inside_a_byte() {
        let tree = Tree::new(ID).message(&Metadata { offset: 3 }).buffer(vec![0b0010_1000u8]);
        let array = tree.load(&DType::Bool(false), 4).unwrap();
        let expected: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true, false]));
        conformance::check(&array, &expected);
        assert!(tree.load(&DType::Bool(false), 6).is_err(), "six bits from the fourth need nine");
        let late = Tree::new(ID).message(&Metadata { offset: 8 }).buffer(vec![0u8; 8]);
        assert!(late.load(&DType::Bool(false), 4).is_err());
    }

    #[test]
    fn a_slice_with_nulls_of_another_encoding_is_valid_arrow() {
        let some = Tree::new("vortex.runend").message(&Runs { ends_ptype: 0, num_runs: 2, offset: 0 });
        let some = some.child(Tree::primitive(&[90u8, 100])).child(Tree::bools(&[true, false]));
        let array = Tree::bools(&[true; 100]).child(some).load(&DType::Bool(true), 100).unwrap();
        let decoded = array.slice(83..95).unwrap().decode(&DataType::Boolean).unwrap();
        decoded.to_data().validate_full().unwrap();
        assert_eq!(arrow::array::Array::null_count(&decoded), 5);
    }

    /// The metadata of a run-end array.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Runs {
        #[prost(int32, tag = "1")]
        ends_ptype: i32,
        #[prost(uint64, tag = "2")]
        num_runs: u64,
        #[prost(uint64, tag = "3")]
        offset: u64,
    }

    #[test]
    fn a_non_nullable_array_refuses_a_validity() {
        let tree = Tree::bools(&[true]).child(Tree::bools(&[true]));
        assert!(tree.load(&DType::Bool(false), 1).is_err());
    }
}
