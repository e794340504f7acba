//! Fixed-point numbers as unscaled little-endian integers of one width.
//!
//! ```text
//! decimal(5,2)  1.50  -0.07  12.00     i16  [150, -7, 1200]
//! ```
//!
//! Metadata: the width, 1 to 32 bytes, independent of the precision. Buffer: exactly `rows * width`
//! bytes. Optional child: the validity. Values under nulls are arbitrary.
//!
//! Decoding checks that no value has more digits than the precision, unless none of the width can, and then
//! converts from any width to any of Arrow's four in a single pass, or without one if they are the same. A value
//! with more digits is corrupt, except of a precision of 76, the most there is: release 0.56 wrote such values.
//! Comparisons use the width stored in the file, to which the constants are converted.

use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, i256};

use super::Encoding;
use super::shared::integer_predicate::IntegerTest;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, fixed_width,
    from_unscaled, take,
};
use crate::dtype::arrow::ptype_of;
use crate::dtype::{DType, PType};
use crate::expr::Predicate;
use crate::scalar::Value;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.decimal` encoding.
#[derive(Debug)]
pub(super) struct Decimal;

const ID: &str = "vortex.decimal";

/// Arrow requires no more than this, even for 32-byte integers.
const MAX_ALIGNMENT: usize = 16;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    values_type: i32,
}

impl Encoding for Decimal {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let DType::Decimal(..) = node.dtype() else {
            return Err(Error::corrupt(format!("holds decimals, not {}", node.dtype())));
        };
        let (stored, width) = storage(node.message::<Metadata>()?.values_type)?;
        node.expect_buffers(1)?;
        let bytes = node.values(0, width)?;
        let values = fixed_width(stored, node.len(), node.aligned(bytes, width.min(MAX_ALIGNMENT))?, None)?;
        Ok(Arc::new(DecimalArray { header: node.header(ID), values, validity: node.validity_child(0)? }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

/// The Arrow type of integers with this width number, and the width in bytes.
fn storage(number: i32) -> Result<(DataType, usize)> {
    Ok(match number {
        0 => (DataType::Int8, 1),
        1 => (DataType::Int16, 2),
        2 => (DataType::Int32, 4),
        3 => (DataType::Int64, 8),
        4 => (DataType::Decimal128(38, 0), 16),
        5 => (DataType::Decimal256(76, 0), 32),
        other => return Err(Error::corrupt(format!("decimal width number {other} does not exist"))),
    })
}

#[derive(Debug)]
struct DecimalArray {
    header: Header,
    /// Integers of the stored width, without nulls; with scale 0 where Arrow represents them as decimals.
    values: ArrayRef,
    validity: ValidityChild,
}

impl EncodedArray for DecimalArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        self.validity.named().into_iter().collect()
    }

    fn buffer_bytes(&self) -> usize {
        self.values.len() * self.values.data_type().primitive_width().unwrap_or(0)
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        from_unscaled(&self.values, self.validity()?.to_nulls(self.len()), to, self.limits())
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let values = match pick {
            Pick::Slice(rows) => self.values.slice(rows.start, rows.len()),
            Pick::Take(indices) => take(&self.values, indices)?,
            Pick::Filter(mask) => match mask.few() {
                Some(few) => take(&self.values, &few)?,
                None => arrow::compute::filter(&self.values, &mask.to_filter())?,
            },
        };
        let header = self.header.of_rows(pick.row_count());
        Ok(Arc::new(Self { header, values, validity: self.validity.pick(pick)? }))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        let ptype = ptype_of(self.values.data_type());
        let Some(test) = ptype.and_then(|ptype| integer_test(predicate, self.dtype(), ptype)) else {
            return self.matches_decoded(predicate);
        };
        test.answer(self, |predicate| {
            let nulls = self.validity()?.to_nulls(self.len());
            let values = self.values.to_data().into_builder().nulls(nulls).build()?;
            predicate.evaluate(&make_array(values))
        })
    }
}

/// Converts a predicate on `decimals` to one on their unscaled values of type `ptype`; `None` if there is no
/// equivalent.
pub(super) fn integer_test(predicate: &Predicate, decimals: &DType, ptype: PType) -> Option<IntegerTest> {
    let DType::Decimal(decimal, _) = decimals else { return None };
    if !ptype.is_signed() {
        return None;
    }
    // Below and above all integers that are stored.
    let beyond = i256::from_i128(1 << 64);
    IntegerTest::of(predicate, &DType::Primitive(ptype, true), |constant| {
        match (constant.dtype(), constant.value()) {
            (DType::Decimal(of, _), Value::Decimal(unscaled)) if of == decimal => {
                let unscaled = (*unscaled).clamp(-beyond, beyond).to_i128()?;
                Some(unscaled..unscaled + 1)
            }
            _ => None,
        }
    })
}

/// A node of unscaled values with `1 << values_type` bytes each.
pub(crate) fn encode(values_type: i32, values: Buffer) -> WriteNode {
    let width = (1usize << values_type).min(MAX_ALIGNMENT);
    WriteNode::new(ID).message(&Metadata { values_type }).buffer(values, width)
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, Decimal128Array, Decimal256Array};
    use arrow::datatypes::{Decimal128Type, Decimal256Type};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::DecimalType;
    use crate::encodings::shared::conformance;
    use crate::expr::{CompareOp, InList};
    use crate::scalar::Scalar;

    fn decimal(precision: u8, scale: i8, nullable: bool) -> DType {
        DType::Decimal(DecimalType::try_new(precision, scale).unwrap(), nullable)
    }

    fn tree<T: arrow::datatypes::ArrowNativeType>(values_type: i32, values: &[T]) -> Tree {
        Tree::new(ID).message(&Metadata { values_type }).buffer(Buffer::from_slice_ref(values))
    }

    fn constant(dtype: &DType, unscaled: i256) -> Scalar {
        Scalar::try_new(dtype.clone(), Value::Decimal(unscaled)).unwrap()
    }

    #[test]
    fn conforms_at_every_width() {
        let values: Vec<i64> = (0..300).map(|row| (row * 37) % 251 - 125).collect();
        let expected: ArrayRef = Arc::new(
            Decimal128Array::from_iter_values(values.iter().map(|v| i128::from(*v)))
                .with_data_type(DataType::Decimal128(5, 2)),
        );
        let narrow: Vec<i8> = values.iter().map(|v| i8::try_from(*v).unwrap()).collect();
        let short: Vec<i16> = values.iter().map(|v| i16::try_from(*v).unwrap()).collect();
        let int: Vec<i32> = values.iter().map(|v| i32::try_from(*v).unwrap()).collect();
        let wide: Vec<i128> = values.iter().map(|v| i128::from(*v)).collect();
        let widest: Vec<i256> = wide.iter().map(|v| i256::from_i128(*v)).collect();
        let trees = [
            tree(0, &narrow),
            tree(1, &short),
            tree(2, &int),
            tree(3, &values),
            tree(4, &wide),
            tree(5, &widest),
        ];
        for tree in trees {
            conformance::check(&tree.load(&decimal(5, 2, false), 300).unwrap(), &expected);
        }
    }

    #[test]
    fn conforms_with_nulls_and_beyond_38_digits() {
        let valid: Vec<bool> = (0..200).map(|row| row % 3 != 1).collect();
        let values: Vec<i32> = (0..200).map(|row| row * 1_000_003 % 7919).collect();
        let wide = values.iter().map(|v| i256::from_i128(i128::from(*v)));
        let expected = Decimal256Array::new(wide.collect::<Vec<_>>().into(), Some(valid.clone().into()))
            .with_data_type(DataType::Decimal256(50, -3));
        let array = tree(2, &values).child(Tree::bools(&valid)).load(&decimal(50, -3, true), 200).unwrap();
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn every_arrow_width_can_be_asked_for() {
        let array = tree(1, &[1i16, -2, 300]).load(&decimal(5, 2, false), 3).unwrap();
        for to in [
            DataType::Decimal32(5, 2),
            DataType::Decimal64(5, 2),
            DataType::Decimal128(5, 2),
            DataType::Decimal256(5, 2),
        ] {
            let decoded = array.decode(&to).unwrap();
            assert_eq!(decoded.data_type(), &to);
            for (row, value) in [1, -2, 300].into_iter().enumerate() {
                let scalar = Scalar::from_arrow(decoded.as_ref(), row, array.dtype()).unwrap();
                assert_eq!(scalar.value(), &Value::Decimal(i256::from_i128(value)));
            }
        }
    }

    #[test]
    fn digits_beyond_the_precision_are_corrupt() {
        let decode = |tree: Tree, rows| {
            let array = tree.load(&decimal(3, 0, false), rows).unwrap();
            let to = [DataType::Decimal32(3, 0), DataType::Decimal128(3, 0), DataType::Decimal256(3, 0)];
            to.map(|to| array.decode(&to).map_err(|error| error.to_string()))
        };
        for most in [999i16, -999] {
            for decoded in decode(tree(1, &[7, most]), 2) {
                assert_eq!(decoded.unwrap().len(), 2);
            }
            let more = most + most.signum();
            let trees = [
                tree(1, &[7, more]),
                tree(2, &[7, i32::from(more)]),
                tree(3, &[7, i64::from(more)]),
                tree(4, &[7, i128::from(more)]),
                tree(5, &[7, more].map(|value| i256::from_i128(value.into()))),
            ];
            for error in trees.into_iter().flat_map(|tree| decode(tree, 2)).map(Result::unwrap_err) {
                assert!(error.contains("1000 in row 1 has more digits than Decimal"), "{error}");
            }
        }
        for decoded in decode(tree(0, &[i8::MIN, i8::MAX]), 2) {
            assert_eq!(decoded.unwrap().len(), 2, "one byte has three digits at most");
        }
    }

    #[test]
    fn decimals_of_the_most_digits_may_have_any_value() {
        let any = [i256::MIN, i256::MAX];
        let decode = |precision| {
            let array = tree(5, &any).load(&decimal(precision, 0, false), 2).unwrap();
            array.decode(&DataType::Decimal256(precision, 0))
        };
        assert_eq!(decode(76).unwrap().as_primitive::<Decimal256Type>().values(), &any);
        assert!(decode(75).is_err());
    }

    #[test]
    fn only_null_rows_may_have_more_digits() {
        let values = [i256::MAX, i256::from_i128(7)];
        let refused = tree(5, &values).load(&decimal(5, 0, false), 2).unwrap();
        assert!(refused.decode(&DataType::Decimal128(5, 0)).is_err());
        let tree = tree(5, &values).child(Tree::bools(&[false, true]));
        let decoded =
            tree.load(&decimal(5, 0, true), 2).unwrap().decode(&DataType::Decimal128(5, 0)).unwrap();
        assert!(decoded.is_null(0));
        assert_eq!(decoded.as_primitive::<Decimal128Type>().value(1), 7);
    }

    #[test]
    fn constants_beyond_the_stored_width_decide_without_values() {
        let dtype = decimal(10, 2, true);
        let array =
            tree(0, &[-5i8, 0, 127]).child(Tree::bools(&[true, false, true])).load(&dtype, 3).unwrap();
        let expected = array.to_decoded().unwrap();
        let most = 10i128.pow(10) - 1;
        let far = [-129, 128, most, -most, -5].map(i256::from_i128);
        let mut constants: Vec<Scalar> = far.iter().map(|v| constant(&dtype, *v)).collect();
        constants.push(Scalar::null(&dtype));
        let mut predicates = Vec::new();
        for low in &constants {
            for op in [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::LtEq, CompareOp::Gt] {
                predicates.push(Predicate::Compare(op, low.clone()));
            }
            for high in &constants {
                predicates.push(Predicate::Between(low.clone(), high.clone()));
                for negated in [false, true] {
                    let list = InList::new([low.clone(), high.clone()]).with_negated(negated);
                    predicates.push(Predicate::In(Arc::new(list)));
                }
            }
        }
        predicates.push(Predicate::In(Arc::new(InList::new([]).with_negated(true))));
        for predicate in predicates {
            let actual: Vec<_> = array.matches(&predicate).unwrap().iter().collect();
            let wanted: Vec<_> = expected.matches(&predicate).unwrap().iter().collect();
            assert_eq!(actual, wanted, "{predicate:?}");
        }
    }

    #[test]
    fn wrong_widths_and_lengths_are_corrupt() {
        assert!(tree(6, &[0i8]).load(&decimal(3, 0, false), 1).is_err());
        assert!(tree(-1, &[0i8]).load(&decimal(3, 0, false), 1).is_err());
        assert!(tree(1, &[0i8]).load(&decimal(3, 0, false), 1).is_err());
        assert!(tree(0, &[0i8]).load(&DType::Primitive(PType::I8, false), 1).is_err());
        assert!(tree(5, &[0i8]).load(&decimal(3, 0, false), usize::MAX / 16).is_err());
    }
}
