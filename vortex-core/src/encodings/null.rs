//! Rows that are all null. No metadata, no children, no buffers.

use std::sync::Arc;

use arrow::array::{BooleanArray, NullArray};
use arrow::datatypes::DataType;

use super::Encoding;
use crate::array::{Aggregate, ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, present};
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::scalar::Scalar;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.null` encoding.
#[derive(Debug)]
pub(super) struct Null;

const ID: &str = "vortex.null";

impl Encoding for Null {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        if node.dtype() != &DType::Null {
            return Err(Error::corrupt(format!("holds nothing but nulls, not {}", node.dtype())));
        }
        node.no_metadata()?;
        node.expect_children(0)?;
        node.expect_buffers(0)?;
        Ok(Arc::new(NullRows { header: node.header(ID) }))
    }
}

#[derive(Debug)]
struct NullRows {
    header: Header,
}

impl EncodedArray for NullRows {
    fn header(&self) -> &Header {
        &self.header
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        if to != &DataType::Null {
            self.limits().count_rows(self.len(), to.primitive_width().unwrap_or(16))?;
        }
        present(Arc::new(NullArray::new(self.len())), to)
    }

    fn validity(&self) -> Result<Validity> {
        Ok(Validity::AllNull)
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(Self { header: self.header.of_rows(pick.row_count()) }))
    }

    // This avoids allocating one bit per row.
    fn aggregate(&self) -> Result<Aggregate> {
        Ok(Aggregate::of_value(&Scalar::null(&DType::Null), self.len() as u64))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        self.limits().count_rows(self.len(), 1)?;
        self.matches_decoded(predicate)
    }

    fn as_constant(&self) -> Option<Scalar> {
        Some(Scalar::null(&DType::Null))
    }
}

/// A node of rows that are all null.
pub(crate) fn encode() -> WriteNode {
    WriteNode::new(ID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::build::Tree;
    use crate::encodings::shared::conformance;

    #[test]
    fn conforms() {
        let array = Tree::new(ID).load(&DType::Null, 100).unwrap();
        conformance::check(&array, &(Arc::new(NullArray::new(100)) as ArrayRef));
    }

    #[test]
    fn holds_no_other_type() {
        assert!(Tree::new(ID).load(&DType::Bool(true), 1).is_err());
        assert!(Tree::new(ID).child(Tree::new(ID)).load(&DType::Null, 1).is_err());
    }

    #[test]
    fn rows_beyond_all_memory_are_refused_a_bit_each() {
        let array = Tree::new(ID).load(&DType::Null, 1 << 40).unwrap();
        assert!(array.matches(&Predicate::IsNull).is_err());
        assert_eq!(array.slice(0..3).unwrap().len(), 3);
    }
}
