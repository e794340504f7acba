//! The same value in all rows.
//!
//! Metadata is ignored; no children. Buffer: the value as a serialized scalar, of the storage type for
//! extension types; a null makes every row null.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::datatypes::DataType;

use super::Encoding;
use crate::array::row_bytes::has_narrow_offsets;
use crate::array::{Aggregate, ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, masking};
use crate::expr::Predicate;
use crate::limits::Limits;
use crate::scalar::{Scalar, Value};
use crate::wire::{WriteNode, value_to_bytes};
use crate::{Error, Result};

/// The `vortex.constant` encoding.
#[derive(Debug)]
pub(super) struct Constant;

pub(crate) const ID: &str = "vortex.constant";

impl Encoding for Constant {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        node.expect_children(0)?;
        node.expect_buffers(1)?;
        let value = node.scalar(&node.buffer(0)?, node.dtype())?;
        Ok(Arc::new(ConstantArray { header: node.header(ID), value }))
    }
}

/// An array that repeats one value.
#[derive(Debug)]
pub(crate) struct ConstantArray {
    header: Header,
    value: Scalar,
}

impl ConstantArray {
    /// `len` rows of `value`.
    pub(crate) fn new(value: Scalar, len: usize, limits: &Limits) -> Self {
        Self { header: Header::new(ID, value.dtype().clone(), len, limits), value }
    }
}

/// Bytes that one row takes after it is decoded as `to`; at least one.
fn row_bytes(value: &Value, to: &DataType) -> usize {
    let sum = |parts: &mut dyn Iterator<Item = usize>| parts.fold(8, usize::saturating_add);
    match (value, to) {
        // Keys and views are repeated, but not the values that they refer to.
        (_, DataType::Dictionary(..) | DataType::ListView(_) | DataType::LargeListView(_)) => 16,
        (Value::Null, DataType::FixedSizeList(item, size)) => {
            row_bytes(value, item.data_type()).saturating_mul(usize::try_from(*size).unwrap_or(0)).max(1)
        }
        (Value::Null, DataType::Struct(fields)) => {
            sum(&mut fields.iter().map(|field| row_bytes(value, field.data_type())))
        }
        (_, DataType::Union(fields, _)) => {
            let null = |data_type| row_bytes(&Value::Null, data_type);
            let inner = if let Value::Union(_, inner) = value { inner } else { value };
            let selected = fields.iter().map(|(_, field)| row_bytes(inner, field.data_type())).max();
            sum(&mut fields.iter().map(|(_, field)| null(field.data_type())).chain(selected))
        }
        (Value::List(values), DataType::Struct(fields)) => {
            sum(&mut values.iter().zip(fields).map(|(value, field)| row_bytes(value, field.data_type())))
        }
        (
            Value::List(values),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _),
        ) => sum(&mut values.iter().map(|value| row_bytes(value, item.data_type()))),
        (Value::Utf8(text), DataType::Utf8 | DataType::LargeUtf8) => text.len().saturating_add(8),
        (Value::Binary(bytes), DataType::Binary | DataType::LargeBinary) => bytes.len().saturating_add(8),
        (_, to) => to.primitive_width().unwrap_or(16).max(1),
    }
}

impl EncodedArray for ConstantArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let bytes = self.limits().count_rows(self.len(), row_bytes(self.value.value(), to))?;
        if has_narrow_offsets(to) && i32::try_from(bytes).is_err() {
            return Err(Error::limit(format!("{bytes} bytes of one value behind 32-bit offsets")));
        }
        self.value.to_counted_arrow(to, self.len())
    }

    fn validity(&self) -> Result<Validity> {
        Ok(if self.value.is_null() { Validity::AllNull } else { Validity::AllValid })
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(Self::new(self.value.clone(), pick.row_count(), self.limits())))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        self.limits().count_rows(self.len(), 1)?;
        Ok(match predicate.evaluate_scalar(&self.value)? {
            Some(outcome) => BooleanArray::from(vec![outcome; self.len()]),
            None => BooleanArray::new_null(self.len()),
        })
    }

    fn aggregate(&self) -> Result<Aggregate> {
        Ok(Aggregate::of_value(&self.value, self.len() as u64))
    }

    fn field(&self, at: usize) -> Result<EncodedRef> {
        let dtype = masking::field_dtype(self.dtype(), at)?;
        let value = match self.value.value() {
            Value::List(values) => values.get(at).cloned().unwrap_or(Value::Null),
            _ => Value::Null,
        };
        Ok(Arc::new(Self::new(Scalar::try_new(dtype, value)?, self.len(), self.limits())))
    }

    fn as_constant(&self) -> Option<Scalar> {
        Some(self.value.clone())
    }
}

/// A node with the same value in all rows.
///
/// # Errors
/// If the value is of a kind that is never written.
pub(crate) fn encode(value: &Value) -> Result<WriteNode> {
    Ok(WriteNode::new(ID).buffer(value_to_bytes(value)?.into(), 1))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray as _;
    use arrow::datatypes::{Field, i256};
    use half::f16;

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::dtype::{DType, DecimalType, Extension, MapType, PType, StructType, UnionType};
    use crate::encodings::shared::conformance;
    use crate::mask::Mask;

    fn of(dtype: DType, value: Value, len: usize) -> EncodedRef {
        let value = Scalar::try_new(dtype, value).unwrap();
        Arc::new(ConstantArray::new(value, len, &Limits::default()))
    }

    /// A value of each type.
    fn samples() -> Vec<(DType, Value)> {
        let number = |ptype| DType::Primitive(ptype, false);
        let list = |values: &[Value]| Value::List(values.into());
        let text = |text: &str| Value::Utf8(text.into());
        let extension = |id: &str, storage, metadata: &[u8]| {
            DType::Extension(Arc::new(Extension::try_new(id, storage, metadata).unwrap()))
        };
        let decimal = |precision| DType::Decimal(DecimalType::try_new(precision, 2).unwrap(), false);
        let pair = StructType::new([("a".into(), number(PType::I32)), ("b".into(), DType::Utf8(true))]);
        let pair = DType::Struct(Arc::new(pair), false);
        let map = MapType::try_new(DType::Utf8(false), number(PType::U8), false).unwrap();
        let bytes = DType::FixedSizeList(Arc::new(number(PType::U8)), 16, false);
        let union = StructType::new([("x".into(), DType::Bool(true)), ("y".into(), DType::Utf8(true))]);
        let union = Arc::new(UnionType::try_new(union, [0, 1]).unwrap());
        vec![
            (DType::Bool(false), Value::Bool(true)),
            (number(PType::I8), Value::Int(-128)),
            (number(PType::U64), Value::UInt(u64::MAX)),
            (number(PType::F16), Value::F16(f16::from_f32(1.5))),
            (number(PType::F32), Value::F32(-0.0)),
            (number(PType::F64), Value::F64(f64::NAN)),
            (decimal(9), Value::Decimal(i256::from_i128(-12345))),
            (decimal(60), Value::Decimal(i256::from_i128(i128::MAX))),
            (DType::Utf8(false), text("a string longer than twelve bytes")),
            (DType::Binary(false), Value::Binary([0, 255].into())),
            (DType::List(Arc::new(DType::Utf8(true)), false), list(&[text("x"), Value::Null])),
            (DType::List(Arc::new(number(PType::I64)), false), list(&[])),
            (bytes.clone(), list(&[const { Value::UInt(7) }; 16])),
            (pair.clone(), list(&[Value::Int(1), text("b")])),
            (DType::List(Arc::new(pair), false), list(&[list(&[Value::Int(1), Value::Null])])),
            (DType::Map(Arc::new(map), false), list(&[list(&[text("k"), Value::UInt(1)])])),
            (extension("vortex.date", number(PType::I32), &[4]), Value::Int(19000)),
            (extension("vortex.time", number(PType::I64), &[1]), Value::Int(5)),
            (extension("vortex.timestamp", number(PType::I64), b"\x01\x03\x00UTC"), Value::Int(-5)),
            (extension("vortex.uuid", bytes, &[]), list(&[const { Value::UInt(9) }; 16])),
            (extension("vortex.json", DType::Utf8(false), &[]), text("{}")),
            (DType::Union(Arc::clone(&union), false), Value::Union(1, Arc::new(text("y")))),
            (DType::Union(union, false), Value::Union(0, Arc::new(Value::Null))),
        ]
    }

    #[test]
    fn conforms() {
        for (dtype, value) in samples() {
            let to = data_type(&dtype).unwrap();
            let array = of(dtype.clone(), value.clone(), 100);
            let one = array.slice(0..1).unwrap().decode(&to).unwrap();
            let expected = arrow::compute::concat(&vec![one.as_ref(); 100]).unwrap();
            conformance::check(&array, &expected);
            let nulls = of(dtype.with_nullable(true), Value::Null, 100);
            conformance::check(&nulls, &arrow::array::new_null_array(&to, 100));
        }
    }

    #[test]
    fn a_list_of_size_zero_is_repeated_as_often_as_any_other_value() {
        let lists = DType::FixedSizeList(Arc::new(DType::Primitive(PType::I32, false)), 0, false);
        let array = of(lists.clone(), Value::List([].into()), 100);
        assert_eq!(array.decode(&data_type(&lists).unwrap()).unwrap().len(), 100);
    }

    #[test]
    fn rows_are_picked_by_count() {
        for (dtype, value) in samples() {
            let to = data_type(&dtype).unwrap();
            let array = of(dtype, value, 100);
            let picked = array.filter(&Mask::from_indices(100, [1, 50, 99])).unwrap();
            assert_eq!(picked.decode(&to).unwrap().len(), 3);
            assert_eq!(picked.encoding(), ID);
        }
    }

    #[test]
    fn all_presentations_of_a_list_repeat_it() {
        let dtype = DType::List(Arc::new(DType::Utf8(false)), false);
        let array = of(dtype, Value::List([Value::Utf8("text".into())].into()), 3);
        let item = || Arc::new(Field::new("item", DataType::LargeUtf8, false));
        for to in [
            DataType::List(item()),
            DataType::LargeList(item()),
            DataType::ListView(item()),
            DataType::LargeListView(item()),
        ] {
            let decoded = array.decode(&to).unwrap();
            decoded.to_data().validate_full().unwrap();
            assert_eq!((decoded.data_type(), decoded.len()), (&to, 3));
        }
    }

    #[test]
    fn a_variant_is_written_as_its_bytes() {
        let inner = Scalar::try_new(DType::Primitive(PType::I8, false), Value::Int(3)).unwrap();
        let array = of(DType::Variant(false), Value::Variant(Arc::new(inner)), 2);
        let decoded = array.decode(&data_type(array.dtype()).unwrap()).unwrap();
        assert_eq!(decoded.as_struct().column(1).as_binary_view().value(1), [0x0c, 3]);
    }

    #[test]
    fn a_field_of_a_constant_struct_is_constant() {
        let pair = StructType::new([("a".into(), DType::Primitive(PType::I32, false))]);
        let dtype = DType::Struct(Arc::new(pair), true);
        let array = of(dtype.clone(), Value::List([Value::Int(7)].into()), 5);
        let field = array.field(0).unwrap();
        assert_eq!(field.as_constant().and_then(|value| value.as_i128()), Some(7));
        assert!(of(dtype, Value::Null, 5).field(0).unwrap().as_constant().unwrap().is_null());
    }

    #[test]
    fn rows_beyond_the_limit_are_refused() {
        for (dtype, value) in samples() {
            let to = data_type(&dtype).unwrap();
            assert!(of(dtype.clone(), value, 1 << 40).decode(&to).is_err(), "{dtype}");
            assert!(of(dtype.with_nullable(true), Value::Null, 1 << 40).decode(&to).is_err(), "{dtype}");
        }
        let long = of(DType::Utf8(false), Value::Utf8("x".repeat(1 << 20).into()), 1 << 12);
        assert!(long.decode(&DataType::Utf8).is_err(), "4 GiB of text");
        assert_eq!(long.decode(&DataType::Utf8View).unwrap().len(), 1 << 12);
    }

    #[test]
    fn needs_one_scalar() {
        let i32 = DType::Primitive(PType::I32, false);
        assert!(Tree::new(ID).load(&i32, 1).is_err());
        assert!(Tree::new(ID).buffer(vec![0x08u8, 0]).load(&i32, 1).is_err(), "null");
        let array = Tree::new(ID).buffer(vec![0x18u8, 6]).load(&i32, 1).unwrap();
        assert_eq!(array.as_constant().and_then(|value| value.as_i128()), Some(3));
    }
}
