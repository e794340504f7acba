//! Values without nulls, and a separate validity.
//!
//! ```text
//! values    7 7 7 7      for example, constant
//! validity  1 0 1 1
//! rows      7 - 7 7
//! ```
//!
//! No metadata, no buffers. Children: the values, of the same type made non-nullable, and optionally the
//! validity. Every operation is applied to the children. A field extracted from a nullable struct is also
//! such an array, over values that may have nulls of their own.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use super::Encoding;
use crate::array::{
    Aggregate, ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, masking,
};
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::scalar::Scalar;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.masked` encoding.
#[derive(Debug)]
pub(super) struct Masked;

pub(crate) const ID: &str = "vortex.masked";

impl Encoding for Masked {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        if !node.dtype().is_nullable() {
            return Err(Error::corrupt(format!("masks rows of the non-nullable type {}", node.dtype())));
        }
        node.no_metadata()?;
        node.expect_buffers(0)?;
        let values = node.child(0, &node.dtype().with_nullable(false), node.len());
        let validity = node.validity_child(1)?;
        Ok(Arc::new(MaskedArray { header: node.header(ID), values: values?, validity }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

/// The rows of `values`, also null where the bool array `validity` is false, as an array of `dtype`,
/// which may differ from that of the values only in nullability.
pub(crate) fn masked(values: EncodedRef, validity: &ValidityChild, dtype: DType) -> EncodedRef {
    if validity.is_absent() && values.dtype() == &dtype {
        return values;
    }
    let header = Header::new(ID, dtype, values.len(), values.limits());
    Arc::new(MaskedArray { header, values, validity: validity.clone() })
}

#[derive(Debug)]
struct MaskedArray {
    header: Header,
    values: EncodedRef,
    validity: ValidityChild,
}

impl MaskedArray {
    /// The validity of the rows; `None` if no rows are masked.
    fn valid(&self) -> Result<Option<NullBuffer>> {
        Ok(self.validity.decode()?.to_nulls(self.len()))
    }
}

impl EncodedArray for MaskedArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let validity = self.validity.named();
        std::iter::once(("values", &self.values)).chain(validity).collect()
    }

    fn decompresses(&self) -> bool {
        self.values.decompresses()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let values = self.values.decode(to)?;
        match self.valid()? {
            Some(valid) => masking::mask(&values, &valid),
            None => Ok(values),
        }
    }

    fn validity(&self) -> Result<Validity> {
        let own = self.validity.decode()?;
        // Rows that take no bytes may be too many for a bit each.
        Ok(match (self.values.validity()?, own) {
            (Validity::AllValid, other) | (other, Validity::AllValid) => other,
            (Validity::AllNull, _) | (_, Validity::AllNull) => Validity::AllNull,
            (Validity::Bits(left), Validity::Bits(right)) => {
                Validity::from_nulls(NullBuffer::union(Some(&left), Some(&right)))
            }
        })
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            values: pick.of(&self.values)?,
            validity: self.validity.pick(pick)?,
        }))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if let Some(outcome) = self.null_test(predicate)? {
            return Ok(outcome);
        }
        let outcome = self.values.matches(predicate)?;
        let Some(valid) = self.valid()? else { return Ok(outcome) };
        let null_outcome = predicate.evaluate_scalar(&Scalar::null(self.dtype()))?;
        Ok(masking::mask_outcome(&outcome, &valid, null_outcome))
    }

    fn aggregate(&self) -> Result<Aggregate> {
        let Some(value) = self.values.as_constant() else { return self.aggregate_decoded() };
        let nulls = self.validity.decode()?.null_count(self.len());
        let valid = Aggregate::of_value(&value, (self.len() - nulls) as u64);
        Ok(valid.merge(Aggregate::of_value(&Scalar::null(self.dtype()), nulls as u64)))
    }

    fn field(&self, at: usize) -> Result<EncodedRef> {
        let dtype = masking::field_dtype(self.dtype(), at)?;
        Ok(masked(self.values.field(at)?, &self.validity, dtype))
    }

    fn as_constant(&self) -> Option<Scalar> {
        if !self.validity.is_absent() {
            return None;
        }
        self.values.as_constant()?.with_dtype(self.dtype()).ok()
    }
}

/// A node of values without nulls, which are null where `validity` is false.
pub(crate) fn encode(values: WriteNode, validity: WriteNode) -> WriteNode {
    WriteNode::new(ID).child(values).child(validity)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, Int32Array, StringViewArray};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::PType;
    use crate::encodings::shared::conformance;
    use crate::limits::Limits;

    const I32: DType = DType::Primitive(PType::I32, true);

    #[test]
    fn conforms() {
        let valid: Vec<bool> = (0..100).map(|at| at % 7 != 0).collect();
        let numbers: Vec<i32> = (0..100).map(|at| at % 9).collect();
        let tree = Tree::new(ID).child(Tree::primitive(&numbers)).child(Tree::bools(&valid));
        let expected = Int32Array::new(numbers.into(), Some(valid.clone().into()));
        conformance::check(&tree.load(&I32, 100).unwrap(), &(Arc::new(expected) as ArrayRef));

        let text = Tree::new("vortex.constant").buffer(b"\x3a\x05apple".to_vec());
        let tree = Tree::new(ID).child(text).child(Tree::bools(&valid));
        let expected: StringViewArray = valid.iter().map(|valid| valid.then_some("apple")).collect();
        conformance::check(&tree.load(&DType::Utf8(true), 100).unwrap(), &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn without_validity_all_rows_are_valid() {
        let array = Tree::new(ID).child(Tree::primitive(&[1i32, 2])).load(&I32, 2).unwrap();
        conformance::check(&array, &(Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef));
        let seven = Tree::new("vortex.constant").buffer(vec![0x18u8, 14]);
        let array = Tree::new(ID).child(seven).load(&I32, 2).unwrap();
        assert_eq!(array.as_constant().map(|value| value.as_i128()), Some(Some(7)));
    }

    #[test]
    fn all_rows_may_be_masked() {
        let nothing = Tree::new("vortex.constant").buffer(vec![0x10u8, 0]);
        let array = Tree::new(ID).child(Tree::primitive(&[1i32, 2])).child(nothing).load(&I32, 2).unwrap();
        assert_eq!(array.decode(&DataType::Int32).unwrap().null_count(), 2);
        conformance::check(&array, &(Arc::new(Int32Array::new_null(2)) as ArrayRef));
    }

    #[test]
    fn rows_that_are_all_null_take_no_bits() {
        let array = Tree::new(ID).child(Tree::new("vortex.null"));
        let array = array.load_within(&DType::Null, 1 << 46, &Limits::new()).unwrap();
        assert_eq!(array.validity().unwrap(), Validity::AllNull);
    }

    #[test]
    fn a_non_nullable_type_has_nothing_to_mask() {
        let tree = Tree::new(ID).child(Tree::primitive(&[1i32]));
        assert!(tree.load(&DType::Primitive(PType::I32, false), 1).is_err());
    }
}
