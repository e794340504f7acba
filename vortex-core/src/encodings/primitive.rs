//! Integers and floats in their little-endian memory layout.
//!
//! No metadata. Buffer: exactly `rows * width` bytes. Optional child: the validity. Values under nulls
//! are arbitrary.

use std::sync::Arc;

use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::DataType;

use super::Encoding;
use crate::Result;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, numbers, present,
};
use crate::dtype::PType;
use crate::kernels::Word;
use crate::wire::WriteNode;

/// The `vortex.primitive` encoding.
#[derive(Debug)]
pub(super) struct Primitive;

const ID: &str = "vortex.primitive";

impl Encoding for Primitive {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let ptype = node.dtype().ptype()?;
        node.no_metadata()?;
        node.expect_buffers(1)?;
        let (values, validity) = (node.values(0, ptype.byte_width()), node.validity_child(0)?);
        Ok(Arc::new(PrimitiveArray {
            header: node.header(ID),
            ptype,
            values: node.aligned(values?, ptype.byte_width())?,
            validity,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

#[derive(Debug)]
struct PrimitiveArray {
    header: Header,
    ptype: PType,
    values: Buffer,
    validity: ValidityChild,
}

impl EncodedArray for PrimitiveArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        self.validity.named().into_iter().collect()
    }

    fn buffer_bytes(&self) -> usize {
        self.values.len()
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        #[cfg(test)]
        super::shared::conformance::leaves::count(&self.values);
        present(numbers(self.ptype, &self.values, self.validity()?.to_nulls(self.len()))?, to)
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let Pick::Slice(rows) = pick else { return self.to_decoded()?.pick(pick) };
        let width = self.ptype.byte_width();
        Ok(Arc::new(Self {
            header: self.header.of_rows(rows.len()),
            ptype: self.ptype,
            values: self.values.slice_with_length(rows.start * width, rows.len() * width),
            validity: self.validity.pick(pick)?,
        }))
    }
}

/// A node of values in their memory layout.
pub(crate) fn encode<W: Word>(values: impl Into<ScalarBuffer<W>>, validity: Option<WriteNode>) -> WriteNode {
    WriteNode::new(ID).buffer(values.into().into_inner(), size_of::<W>()).children(validity)
}
