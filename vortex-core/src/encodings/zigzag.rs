//! ZigZag: signed integers of small magnitude as small unsigned integers.
//!
//! ```text
//! rows  0 -1 1 -2 2   encoded  0 1 2 3 4
//! ```
//!
//! No metadata, no buffers. Child: the unsigned integers of the same width, which carry the nulls. Selecting
//! rows is passed on to the child; so are equality and membership, after encoding the constants.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::datatypes::DataType;

use super::Encoding;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, array_of_raw, decode_raw, into_mutable,
    present,
};
use crate::dtype::{DType, PType};
use crate::expr::{CompareOp, InList, Predicate};
use crate::kernels::{Word, map_words, match_word};
use crate::scalar::{Scalar, Value};
use crate::{Error, Result};

/// The `vortex.zigzag` encoding.
#[derive(Debug)]
pub(super) struct ZigZag;

const ID: &str = "vortex.zigzag";

impl Encoding for ZigZag {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let ptype = node.dtype().ptype()?;
        if !ptype.is_signed() {
            return Err(Error::corrupt(format!("holds signed integers, not {ptype}")));
        }
        node.no_metadata()?;
        node.expect_buffers(0)?;
        node.expect_children(1)?;
        let encoded = DType::Primitive(ptype.to_unsigned(), node.dtype().is_nullable());
        Ok(Arc::new(ZigZagArray {
            header: node.header(ID),
            ptype,
            encoded: node.child(0, &encoded, node.len())?,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

#[derive(Debug)]
struct ZigZagArray {
    header: Header,
    ptype: PType,
    encoded: EncodedRef,
}

/// `0, 1, 2, 3, ...` becomes `0, -1, 1, -2, ...`, in two's complement.
#[inline(always)]
fn unzigzag<W: Word>(value: W) -> W {
    let half = value >> 1;
    let sign = W::ZERO.minus(value & W::narrow(1));
    half ^ sign
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

impl ZigZagArray {
    /// Encodes the constant.
    fn encode(&self, constant: &Scalar) -> Option<Scalar> {
        let Value::Int(value) = constant.value() else { return None };
        Scalar::try_new(self.encoded.dtype().clone(), Value::UInt(zigzag(*value))).ok()
    }

    /// The equivalent predicate on encoded values, if there is one.
    fn encode_predicate(&self, predicate: &Predicate) -> Option<Predicate> {
        match predicate {
            _ if predicate.is_null_test() => Some(predicate.clone()),
            Predicate::Compare(op @ (CompareOp::Eq | CompareOp::NotEq), constant) => {
                Some(Predicate::Compare(*op, self.encode(constant)?))
            }
            Predicate::In(list) => {
                let mut values =
                    list.values().iter().map(|value| self.encode(value)).collect::<Option<Vec<_>>>()?;
                if list.has_null() {
                    values.push(Scalar::null(self.encoded.dtype()));
                }
                Some(Predicate::In(Arc::new(InList::new(values).with_negated(list.negated()))))
            }
            _ => None,
        }
    }
}

impl EncodedArray for ZigZagArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        vec![("encoded", &self.encoded)]
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let array = match_word!(self.ptype, |W| {
            let (encoded, nulls) = decode_raw::<W>(&self.encoded)?;
            let own = into_mutable(encoded, self.limits())?;
            array_of_raw(self.ptype, map_words(own, |_, value: W| unzigzag(value)), nulls)?
        });
        present(array, to)
    }

    fn validity(&self) -> Result<Validity> {
        self.encoded.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            ptype: self.ptype,
            encoded: pick.of(&self.encoded)?,
        }))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        match self.encode_predicate(predicate) {
            Some(predicate) => self.encoded.matches(&predicate),
            None => self.matches_decoded(predicate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bit_packed::tests::{narrow_values, tree as packed_tree, validity_of};
    use super::*;
    use crate::array::build::Tree;
    use crate::encodings::shared::conformance;

    #[test]
    fn conforms_for_every_signed_type() {
        for ptype in [PType::I8, PType::I16, PType::I32, PType::I64] {
            match_word!(ptype, |W| for width in [5, ptype.bit_width()] {
                let encoded: Vec<W> = narrow_values(1500, width, 2);
                let values: Vec<W> = encoded
                    .iter()
                    .map(|value| {
                        let magnitude = value.as_u64() / 2;
                        W::narrow(if value.as_u64() % 2 == 0 { magnitude } else { !magnitude })
                    })
                    .collect();
                let valid = validity_of(1500);
                let child = packed_tree(&encoded, width, 9).child(Tree::bools(&valid));
                let array = Tree::new(ID).child(child).load(&DType::Primitive(ptype, true), 1500).unwrap();
                let expected = array_of_raw(ptype, values.into(), Some(valid.into())).unwrap();
                conformance::check(&array, &expected);
            });
        }
    }

    #[test]
    fn the_extremes_meet() {
        let child = Tree::primitive(&[255u8, 254, 0, 1]);
        let array = Tree::new(ID).child(child).load(&DType::Primitive(PType::I8, false), 4).unwrap();
        let expected = array_of_raw(PType::I8, vec![-128i8, 127, 0, -1].into(), None).unwrap();
        conformance::check(&array, &expected);
    }

    #[test]
    fn unsigned_values_are_refused() {
        let tree = Tree::new(ID).child(Tree::primitive(&[1u8]));
        assert!(tree.load(&DType::Primitive(PType::U8, false), 1).is_err());
    }
}
