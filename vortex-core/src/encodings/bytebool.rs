//! Booleans, one byte each: zero is false, any other value is true.
//!
//! No metadata. Buffer: exactly one byte per row. Optional child: the validity.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;

use super::Encoding;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, present,
};
use crate::dtype::DType;
use crate::kernels::within::not_zero;
use crate::{Error, Result};

/// The `vortex.bytebool` encoding.
#[derive(Debug)]
pub(super) struct ByteBool;

const ID: &str = "vortex.bytebool";

impl Encoding for ByteBool {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let DType::Bool(_) = node.dtype() else {
            return Err(Error::corrupt(format!("holds booleans, not {}", node.dtype())));
        };
        node.no_metadata()?;
        node.expect_buffers(1)?;
        let bytes = node.buffer(0)?;
        if bytes.len() != node.len() {
            return Err(Error::corrupt(format!("{} bytes for {} rows", bytes.len(), node.len())));
        }
        Ok(Arc::new(ByteBoolArray { header: node.header(ID), bytes, validity: node.validity_child(0)? }))
    }
}

#[derive(Debug)]
struct ByteBoolArray {
    header: Header,
    bytes: Buffer,
    validity: ValidityChild,
}

impl EncodedArray for ByteBoolArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        self.validity.named().into_iter().collect()
    }

    fn buffer_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        self.limits().count_bytes(self.bytes.len().div_ceil(8) as u64)?;
        let bits = not_zero(self.bytes.as_slice());
        let nulls = self.validity()?.to_nulls(self.len());
        present(Arc::new(BooleanArray::new(bits, nulls)), to)
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let Pick::Slice(rows) = pick else { return self.to_decoded()?.pick(pick) };
        Ok(Arc::new(Self {
            header: self.header.of_rows(rows.len()),
            bytes: self.bytes.slice_with_length(rows.start, rows.len()),
            validity: self.validity.pick(pick)?,
        }))
    }
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
        let tree = || Tree::new(ID).buffer(bits.iter().map(|bit| u8::from(*bit) * 7).collect::<Vec<u8>>());
        let array = tree().load(&DType::Bool(false), 100).unwrap();
        conformance::check(&array, &(Arc::new(BooleanArray::from(bits.clone())) as ArrayRef));

        let nullable = tree().child(Tree::bools(&valid)).load(&DType::Bool(true), 100).unwrap();
        let expected = BooleanArray::new(bits.clone().into(), Some(valid.into()));
        conformance::check(&nullable, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn needs_exactly_a_byte_per_row() {
        let tree = Tree::new(ID).buffer(vec![1u8, 0]);
        assert!(tree.load(&DType::Bool(false), 1).is_err());
        assert!(tree.load(&DType::Bool(false), 3).is_err());
    }
}
