//! Decimals as one or more integer columns, with the most significant part first.
//!
//! ```text
//! decimal(5,2)  1.50  -0.07         parts  [150, -7]
//! decimal(30,0)  2^64 + 5, -1       parts  [1, -1]  [5, 2^64 - 1]
//! ```
//!
//! Metadata: integer types of the parts. Children: the first part, signed, which carries the nulls; then,
//! only in version 2, up to three unsigned non-null parts of 64 bits each. Without these, the first part
//! is the unscaled value, and operations are passed on to its encoding.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, Decimal128Array, Decimal256Array};
use arrow::datatypes::{DataType, Int64Type, UInt64Type, i256};

use super::Encoding;
use super::decimal::integer_test;
use crate::array::{
    Aggregate, EncodedArray, EncodedRef, Header, Node, Pick, Validity, from_unscaled, has_digits_of, present,
    unsigned_type,
};
use crate::dtype::{DType, PType};
use crate::expr::Predicate;
use crate::scalar::{Scalar, Value};
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.decimal_byte_parts` encoding.
#[derive(Debug)]
pub(super) struct DecimalByteParts;

/// The `vortex.decimal_byte_parts.v2` encoding.
#[derive(Debug)]
pub(super) struct DecimalBytePartsV2;

const ID: &str = "vortex.decimal_byte_parts";
const ID_V2: &str = "vortex.decimal_byte_parts.v2";

/// More parts would exceed 256 bits.
const MAX_LOWER_PARTS: usize = 3;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    first_ptype: i32,
    #[prost(uint32, tag = "2")]
    lower_part_count: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MetadataV2 {
    #[prost(int32, tag = "1")]
    first_ptype: i32,
    #[prost(int32, repeated, tag = "2")]
    lower_ptypes: Vec<i32>,
}

impl Encoding for DecimalByteParts {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let metadata: Metadata = node.message()?;
        if metadata.lower_part_count != 0 {
            return Err(Error::unsupported("count of lower decimal parts", metadata.lower_part_count));
        }
        load(ID, node, metadata.first_ptype, &[])
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

impl Encoding for DecimalBytePartsV2 {
    fn id(&self) -> &'static str {
        ID_V2
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let metadata: MetadataV2 = node.message()?;
        load(ID_V2, node, metadata.first_ptype, &metadata.lower_ptypes)
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

fn load(id: &'static str, node: &Node<'_>, first: i32, lower: &[i32]) -> Result<EncodedRef> {
    let DType::Decimal(_, nullable) = node.dtype() else {
        return Err(Error::corrupt(format!("holds decimals, not {}", node.dtype())));
    };
    let first_ptype = PType::try_from_number(first.into())?;
    if !first_ptype.is_signed() {
        return Err(Error::corrupt(format!("first decimal part is {first_ptype}, not a signed integer")));
    }
    if lower.len() > MAX_LOWER_PARTS {
        return Err(Error::corrupt(format!("{} lower decimal parts", lower.len())));
    }
    node.expect_buffers(0)?;
    node.expect_children(1 + lower.len())?;
    let lower = lower
        .iter()
        .enumerate()
        .map(|(at, ptype)| node.child(at + 1, &unsigned_type(*ptype, "lower decimal parts")?, node.len()));
    // No `?` before all are loaded: see `load_rows`.
    let lower: Vec<Result<EncodedRef>> = lower.collect();
    Ok(Arc::new(DecimalBytePartsArray {
        header: node.header(id),
        first_ptype,
        first: node.child(0, &DType::Primitive(first_ptype, *nullable), node.len())?,
        lower: lower.into_iter().collect::<Result<_>>()?,
    }))
}

#[derive(Debug)]
struct DecimalBytePartsArray {
    header: Header,
    first_ptype: PType,
    first: EncodedRef,
    lower: Vec<EncodedRef>,
}

impl DecimalBytePartsArray {
    /// The integers composed of the parts, including nulls.
    fn unscaled(&self) -> Result<ArrayRef> {
        let first = self.first.decode_preferred()?;
        if self.lower.is_empty() {
            return Ok(first);
        }
        // Parts of 64 bits, and the integers composed of them.
        let width = 8 * (1 + self.lower.len()) + if self.lower.len() == 1 { 16 } else { 32 };
        self.limits().count_rows(self.len(), width)?;
        let nulls = first.nulls().cloned();
        let first = present(first, &DataType::Int64)?;
        let first = first.as_primitive::<Int64Type>().values();
        let lower = self
            .lower
            .iter()
            .map(|part| {
                let part = present(part.decode_preferred()?, &DataType::UInt64)?;
                Ok(part.as_primitive::<UInt64Type>().values().clone())
            })
            .collect::<Result<Vec<_>>>()?;
        let pair = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let signed = |high: i64, low: u64| i128::from(high) << 64 | i128::from(low);
        Ok(match lower.as_slice() {
            [low] => {
                let values = first.iter().zip(low).map(|(first, low)| signed(*first, *low));
                Arc::new(Decimal128Array::try_new(values.collect::<Vec<_>>().into(), nulls)?)
            }
            [middle, low] => {
                let values = first.iter().zip(middle).zip(low);
                let values = values
                    .map(|((first, middle), low)| i256::from_parts(pair(*middle, *low), (*first).into()));
                Arc::new(Decimal256Array::try_new(values.collect::<Vec<_>>().into(), nulls)?)
            }
            [upper, middle, low] => {
                let values = first.iter().zip(upper).zip(middle.iter().zip(low));
                let values = values.map(|((first, upper), (middle, low))| {
                    i256::from_parts(pair(*middle, *low), signed(*first, *upper))
                });
                Arc::new(Decimal256Array::try_new(values.collect::<Vec<_>>().into(), nulls)?)
            }
            _ => return Err(Error::corrupt(format!("{} lower decimal parts", lower.len()))),
        })
    }

    /// The decimal that an integer of the only part represents; `None` if it has too many digits.
    fn decimal(&self, part: &Value) -> Option<Value> {
        match (self.dtype(), part) {
            (DType::Decimal(decimal, _), Value::Int(part)) => {
                let unscaled = i256::from_i128((*part).into());
                has_digits_of(*decimal, unscaled).then_some(Value::Decimal(unscaled))
            }
            _ => None,
        }
    }
}

impl EncodedArray for DecimalBytePartsArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let first = std::iter::once(("first", &self.first));
        first.chain(self.lower.iter().map(|part| ("lower", part))).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let unscaled = self.unscaled()?;
        let nulls = unscaled.logical_nulls();
        from_unscaled(&unscaled, nulls, to, self.limits())
    }

    fn validity(&self) -> Result<Validity> {
        self.first.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            first_ptype: self.first_ptype,
            first: pick.of(&self.first)?,
            lower: self.lower.iter().map(|child| pick.of(child)).collect::<Result<_>>()?,
        }))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if predicate.is_null_test() {
            return self.first.matches(predicate);
        }
        match integer_test(predicate, self.dtype(), self.first_ptype) {
            Some(test) if self.lower.is_empty() => {
                test.answer(self, |predicate| self.first.matches(predicate))
            }
            _ => self.matches_decoded(predicate),
        }
    }

    fn aggregate(&self) -> Result<Aggregate> {
        if self.lower.is_empty() {
            let found = self.first.aggregate()?.map(self.dtype(), |value| self.decimal(value));
            // Without values beyond the precision.
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.aggregate_decoded()
    }

    fn as_constant(&self) -> Option<Scalar> {
        if !self.lower.is_empty() {
            return None;
        }
        let value = match self.first.as_constant()?.value() {
            Value::Null => Value::Null,
            value => self.decimal(value)?,
        };
        Scalar::try_new(self.dtype().clone(), value).ok()
    }
}

/// A node of decimals whose unscaled values are `part`, which are signed integers.
pub(crate) fn encode(part: WriteNode, ptype: PType) -> WriteNode {
    WriteNode::new(ID).message(&Metadata { first_ptype: ptype as i32, lower_part_count: 0 }).child(part)
}

/// A node of decimals of 128 bits: the upper half is signed, and the lower one is unsigned and without nulls. It is of
/// version 2.
pub(crate) fn encode_halves(upper: WriteNode, ptype: PType, lower: WriteNode) -> WriteNode {
    let metadata = MetadataV2 { first_ptype: ptype as i32, lower_ptypes: vec![PType::U64 as i32] };
    WriteNode::new(ID_V2).message(&metadata).child(upper).child(lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::DecimalType;
    use crate::encodings::shared::conformance;
    use crate::expr::CompareOp;
    use crate::limits::Limits;

    fn decimal(precision: u8, scale: i8, nullable: bool) -> DType {
        DType::Decimal(DecimalType::try_new(precision, scale).unwrap(), nullable)
    }

    fn v1(ptype: PType) -> Tree {
        Tree::new(ID).message(&Metadata { first_ptype: ptype as i32, lower_part_count: 0 })
    }

    fn v2(first: PType, lower: &[PType]) -> Tree {
        let lower_ptypes = lower.iter().map(|ptype| *ptype as i32).collect();
        Tree::new(ID_V2).message(&MetadataV2 { first_ptype: first as i32, lower_ptypes })
    }

    #[test]
    fn conforms_with_one_part() {
        let values: Vec<i32> = (0..500).map(|row| row * 7919 % 4001 - 2000).collect();
        let wide: Vec<i128> = values.iter().map(|v| i128::from(*v)).collect();
        let array = v1(PType::I32).child(Tree::primitive(&values)).load(&decimal(9, 2, false), 500).unwrap();
        let to = DataType::Decimal128(9, 2);
        let expected = Decimal128Array::from(wide.clone()).with_data_type(to.clone());
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));

        let valid: Vec<bool> = (0..500).map(|row| row % 4 != 0).collect();
        let tree = v1(PType::I32).child(Tree::primitive(&values).child(Tree::bools(&valid)));
        let array = tree.load(&decimal(9, 2, true), 500).unwrap();
        let expected = Decimal128Array::new(wide.into(), Some(valid.into())).with_data_type(to);
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn conforms_with_lower_parts() {
        let first: Vec<i16> = (0..90).map(|row| row * 31 % 17 - 8).collect();
        let lower: Vec<u64> = (0..90).map(|row| u64::MAX / 91 * row).collect();
        let byte: Vec<u8> = (0..90).map(|row| row * 2).collect();
        let (first_tree, lower_tree) = (Tree::primitive(&first), || Tree::primitive(&lower));

        let two = v2(PType::I16, &[PType::U64]).child(first_tree.clone()).child(lower_tree());
        let values = first.iter().zip(&lower).map(|(f, l)| i128::from(*f) * (1 << 64) + i128::from(*l));
        let expected = Decimal128Array::from(values.collect::<Vec<_>>());
        let expected = expected.with_data_type(DataType::Decimal128(38, 4));
        let array = two.load(&decimal(38, 4, false), 90).unwrap();
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));

        let shift = |value: i256, low: i128| {
            value.wrapping_mul(i256::from_i128(1 << 64)).wrapping_add(i256::from_i128(low))
        };
        let start = |row: usize| i256::from_i128(first[row].into());
        let three = v2(PType::I16, &[PType::U64, PType::U8])
            .child(first_tree.clone())
            .child(lower_tree())
            .child(Tree::primitive(&byte));
        let values: Vec<i256> =
            (0..90).map(|row| shift(shift(start(row), lower[row].into()), byte[row].into())).collect();
        let expected = Decimal256Array::from(values).with_data_type(DataType::Decimal256(60, 0));
        let array = three.load(&decimal(60, 0, false), 90).unwrap();
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));

        let four = v2(PType::I16, &[PType::U8, PType::U64, PType::U64])
            .child(first_tree)
            .child(Tree::primitive(&byte))
            .child(lower_tree())
            .child(lower_tree());
        let values: Vec<i256> = (0..90)
            .map(|row| {
                let upper = shift(start(row), byte[row].into());
                shift(shift(upper, lower[row].into()), lower[row].into())
            })
            .collect();
        let expected = Decimal256Array::from(values).with_data_type(DataType::Decimal256(76, 0));
        let array = four.load(&decimal(76, 0, false), 90).unwrap();
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn a_constant_beyond_the_part_leaves_nulls_unknown() {
        let dtype = decimal(18, 0, true);
        let tree = v1(PType::I8).child(Tree::primitive(&[1i8, 2]).child(Tree::bools(&[true, false])));
        let array = tree.load(&dtype, 2).unwrap();
        let thousand = Scalar::try_new(dtype, Value::Decimal(i256::from_i128(1000))).unwrap();
        let outcome = array.matches(&Predicate::Compare(CompareOp::Lt, thousand)).unwrap();
        assert_eq!(outcome.iter().collect::<Vec<_>>(), [Some(true), None]);
    }

    #[test]
    fn digits_beyond_the_precision_are_corrupt_whatever_is_asked() {
        let load = |tree: Tree, precision| tree.load(&decimal(precision, 0, false), 2).unwrap();
        let parts = v1(PType::I16).child(Tree::primitive(&[-1000i16, 7]));
        assert_eq!(load(parts.clone(), 4).aggregate().unwrap().row_count, 2);
        let array = load(parts, 3);
        assert!(array.decode(&DataType::Decimal128(3, 0)).is_err());
        assert!(array.aggregate().is_err());
        // A scalar of protobuf: sint64 1000.
        let thousands = v1(PType::I16).child(Tree::new("vortex.constant").buffer(vec![0x18u8, 0xd0, 0x0f]));
        assert!(load(thousands.clone(), 4).as_constant().is_some());
        assert_eq!(load(thousands, 3).as_constant(), None);
        let lower = v2(PType::I16, &[PType::U64]);
        let array = load(lower.child(Tree::primitive(&[1i16, 0])).child(Tree::primitive(&[0u64, 7])), 18);
        assert!(array.decode(&DataType::Decimal128(18, 0)).is_err());
        assert!(array.aggregate().is_err());
    }

    #[test]
    fn an_outcome_that_depends_on_no_integer_is_limited() {
        let dtype = decimal(18, 0, false);
        let seven = Tree::new("vortex.constant").buffer(vec![0x18u8, 14]);
        let limits = Limits::new().with_max_decoded_bytes(1000);
        let array = v1(PType::I8).child(seven).load_within(&dtype, 100_000, &limits).unwrap();
        let thousand = Scalar::try_new(dtype, Value::Decimal(i256::from_i128(1000))).unwrap();
        let error = array.matches(&Predicate::Compare(CompareOp::Lt, thousand)).unwrap_err();
        assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
    }

    #[test]
    fn decimals_wider_than_their_parts_are_limited() {
        let constant = |bytes: [u8; 2]| Tree::new("vortex.constant").buffer(bytes);
        let limits = Limits::new().with_max_decoded_bytes(20_000);
        let refuse = |tree: Tree, to: DataType| {
            let (DataType::Decimal32(digits, _) | DataType::Decimal128(digits, _)) = to else {
                panic!("{to}")
            };
            let array = tree.load_within(&decimal(digits, 0, false), 1000, &limits).unwrap();
            let work = crate::limits::Work::begin();
            let outcome = array.decode(&to).map(|array| array.len());
            (outcome.is_err_and(|error| matches!(error, Error::LimitExceeded(_))), work.byte_len())
        };
        let one = v1(PType::I8).child(constant([0x18, 14]));
        assert_eq!(refuse(one.clone(), DataType::Decimal32(5, 0)), (false, 1000 + 4000));
        assert_eq!(refuse(one, DataType::Decimal128(5, 0)), (false, 1000 + 16_000));
        let two = v2(PType::I8, &[PType::U64]).child(constant([0x18, 14])).child(constant([0x20, 7]));
        assert!(refuse(two, DataType::Decimal128(38, 0)).0);
    }

    #[test]
    fn parts_of_the_wrong_kind_are_refused() {
        let part = Tree::primitive(&[1i32]);
        let dtype = decimal(9, 0, false);
        assert!(v1(PType::I32).child(part.clone()).load(&dtype, 1).is_ok());
        assert!(v1(PType::U32).child(part.clone()).load(&dtype, 1).is_err());
        assert!(v1(PType::I32).child(part.clone()).child(part.clone()).load(&dtype, 1).is_err());
        assert!(
            v2(PType::I32, &[PType::I32]).child(part.clone()).child(part.clone()).load(&dtype, 1).is_err()
        );
        assert!(v2(PType::I32, &[PType::U32]).child(part.clone()).load(&dtype, 1).is_err());
        let counted = Tree::new(ID).message(&Metadata { first_ptype: 6, lower_part_count: 1 });
        assert!(counted.child(part.clone()).child(part).load(&dtype, 1).is_err());
    }
}
