//! Self-describing values, in whatever encoding holds them.
//!
//! Metadata: optionally the dtype of a typed projection. No buffers. Children: the core
//! storage, of the same variant type, and the projection if there is a dtype for it. The core
//! storage is complete by itself and carries the nulls, so operations go there.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, UInt64Array};
use arrow::datatypes::DataType;

use super::Encoding;
use crate::array::{ArrayRef, ArrowRef, EncodedArray, Node, Validity};
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::mask::Mask;
use crate::scalar::Scalar;
use crate::wire::{dtype_from_proto, proto};
use crate::{Error, Result};

/// The `vortex.variant` encoding.
#[derive(Debug)]
pub(super) struct Variant;

const ID: &str = "vortex.variant";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    shredded_dtype: Option<proto::DType>,
}

impl Encoding for Variant {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<ArrayRef> {
        let DType::Variant(_) = node.dtype() else {
            return Err(Error::corrupt(format!("holds variants, not {}", node.dtype())));
        };
        let metadata = node.message::<Metadata>()?;
        node.expect_buffers(0)?;
        node.expect_children(1 + usize::from(metadata.shredded_dtype.is_some()))?;
        let shredded = metadata.shredded_dtype.map(|dtype| {
            let dtype = dtype_from_proto(&dtype, node.limits())?;
            node.child(1, &dtype, node.len())
        });
        let core = node.child(0, node.dtype(), node.len())?;
        Ok(Arc::new(VariantArray { core, shredded: shredded.transpose()? }))
    }
}

#[derive(Debug)]
struct VariantArray {
    core: ArrayRef,
    shredded: Option<ArrayRef>,
}

impl VariantArray {
    fn map(&self, rows: impl Fn(&ArrayRef) -> Result<ArrayRef>) -> Result<ArrayRef> {
        let shredded = self.shredded.as_ref().map(&rows).transpose()?;
        Ok(Arc::new(Self { core: rows(&self.core)?, shredded }))
    }
}

impl EncodedArray for VariantArray {
    fn encoding(&self) -> &str {
        ID
    }

    fn dtype(&self) -> &DType {
        self.core.dtype()
    }

    fn len(&self) -> usize {
        self.core.len()
    }

    fn children(&self) -> Vec<(&'static str, ArrayRef)> {
        let shredded = self.shredded.iter().map(|child| ("shredded", Arc::clone(child)));
        std::iter::once(("core", Arc::clone(&self.core))).chain(shredded).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrowRef> {
        self.core.decode(to)
    }

    fn validity(&self) -> Result<Validity> {
        self.core.validity()
    }

    fn slice(&self, rows: Range<usize>) -> Result<ArrayRef> {
        self.map(|child| child.slice(rows.clone()))
    }

    fn filter(&self, mask: &Mask) -> Result<ArrayRef> {
        self.map(|child| child.filter(mask))
    }

    fn take(&self, indices: &UInt64Array) -> Result<ArrayRef> {
        self.map(|child| child.take(indices))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        self.core.matches(predicate)
    }

    fn as_constant(&self) -> Option<Scalar> {
        self.core.as_constant()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;

    /// A variant scalar: dtype i8, value 3.
    fn three() -> Tree {
        let scalar = [0x5au8, 10, 0x0a, 4, 0x1a, 2, 0x08, 4, 0x12, 2, 0x18, 6];
        Tree::new("vortex.constant").buffer(scalar.to_vec())
    }

    #[test]
    fn shows_its_core_storage() {
        let array = Tree::new(ID).child(three()).load(&DType::Variant(false), 3).unwrap();
        let decoded = array.decode(&data_type(array.dtype()).unwrap()).unwrap();
        assert_eq!(decoded.len(), 3);
        assert_eq!(decoded.as_struct().column(0).as_binary_view().value(2), [1, 0, 0]);
        assert_eq!(decoded.as_struct().column(1).as_binary_view().value(2), [0x0c, 3]);
        assert_eq!(array.filter(&Mask::from_indices(3, [0])).unwrap().len(), 1);
    }

    #[test]
    fn a_projection_needs_its_dtype() {
        assert!(Tree::new(ID).child(three()).child(three()).load(&DType::Variant(false), 3).is_err());
        let typed = Metadata {
            shredded_dtype: Some(proto::DType {
                kind: Some(proto::dtype::Kind::Bool(proto::Nullable { nullable: false })),
            }),
        };
        let tree = Tree::new(ID).message(&typed).child(three()).child(Tree::bools(&[true, false, true]));
        let array = tree.load(&DType::Variant(false), 3).unwrap();
        assert_eq!(array.slice(1..3).unwrap().len(), 2);
    }
}
