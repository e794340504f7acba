//! Scalar values as protobuf.

use std::sync::Arc;

use arrow::datatypes::i256;
use half::f16;
use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::dtype::dtype_from_proto;
use super::dtype::proto::{ListValue, Scalar as ProtoScalar, ScalarValue, UnionValue, scalar_value::Kind};
use crate::dtype::{DType, PType};
use crate::limits::Limits;
use crate::scalar::{Scalar, Value};
use crate::{Error, Result};

/// Messages within each other of which the parser of protobuf refuses more.
const MAX_PARSED_DEPTH: u32 = 100;

/// Parses a serialized scalar value, whose bytes do not include the dtype.
///
/// Lenient as the format requires: both integer kinds are accepted for either signedness if the value
/// fits, strings and byte strings are interchangeable, and an unsigned integer may contain the bits of an
/// `f16` (as written by releases before 0.44).
pub(crate) fn scalar_from_bytes(bytes: &[u8], dtype: &DType, limits: &Limits) -> Result<Scalar> {
    let mut values_left = limits.max_nodes;
    // Memory is taken for values only once it is known that they are not too many.
    if Part::Value.count(bytes, &mut values_left, 0).is_none() && values_left == 0 {
        return Err(Error::limit(format!("a scalar has more than {} values", limits.max_nodes)));
    }
    let value = proto_value(bytes)?;
    let value = read(&value, dtype, limits.max_depth, limits)?;
    Scalar::try_new(dtype.clone(), value).map_err(Error::into_corrupt)
}

/// Parses a scalar value without interpreting it.
fn proto_value(bytes: &[u8]) -> Result<ScalarValue> {
    ScalarValue::decode(bytes).map_err(|error| Error::corrupt(format!("scalar value: {error}")))
}

/// A message that contains values, directly or within others.
#[derive(Clone, Copy)]
enum Part {
    Value,
    List,
    Union,
    Variant,
}

impl Part {
    /// Counts down the values in a message without taking memory for any; `None` if there are more than are left, or
    /// from where the bytes are no such message.
    fn count(self, mut bytes: &[u8], values_left: &mut u32, depth: u32) -> Option<()> {
        if depth == MAX_PARSED_DEPTH {
            return Some(());
        }
        if let Part::Value = self {
            *values_left = values_left.checked_sub(1)?;
        }
        while !bytes.is_empty() {
            let (tag, wire_type) = decode_key(&mut bytes).ok()?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, tag, &mut bytes, DecodeContext::default()).ok()?;
                continue;
            }
            let len = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
            let inner;
            (inner, bytes) = bytes.split_at_checked(len)?;
            match (self, tag) {
                (Part::Value, 9) => Part::List.count(inner, values_left, depth + 1)?,
                (Part::Value, 11) => Part::Variant.count(inner, values_left, depth + 1)?,
                (Part::Value, 12) => Part::Union.count(inner, values_left, depth + 1)?,
                (Part::List, 1) | (Part::Union | Part::Variant, 2) => {
                    Part::Value.count(inner, values_left, depth + 1)?;
                }
                // A type, of which no part has fewer bytes than an empty message.
                (Part::Variant, 1) => {
                    let Some(left) = values_left.checked_sub(u32::try_from(len / 2).ok()?) else {
                        *values_left = 0;
                        return None;
                    };
                    *values_left = left;
                }
                _ => {}
            }
        }
        Some(())
    }
}

fn read(value: &ScalarValue, dtype: &DType, depth_left: u32, limits: &Limits) -> Result<Value> {
    let kind = value.kind.as_ref().ok_or_else(|| Error::corrupt("scalar value without a value"))?;
    if depth_left == 0 {
        super::too_deep("scalar value")?;
    }
    let wrong = || Error::corrupt(format!("scalar is not of type {dtype}"));
    Ok(match (dtype.storage(), kind) {
        (_, Kind::NullValue(_)) => Value::Null,
        (DType::Bool(_), Kind::BoolValue(v)) => Value::Bool(*v),
        (DType::Primitive(PType::F16, _), Kind::F16Value(bits) | Kind::Uint64Value(bits)) => {
            Value::F16(f16::from_bits(u16::try_from(*bits).map_err(|_| wrong())?))
        }
        (DType::Primitive(PType::F32, _), Kind::F32Value(v)) => Value::F32(*v),
        (DType::Primitive(PType::F64, _), Kind::F64Value(v)) => Value::F64(*v),
        (DType::Primitive(ptype, _), Kind::Int64Value(v)) if ptype.is_signed() => Value::Int(*v),
        (DType::Primitive(ptype, _), Kind::Uint64Value(v)) if ptype.is_signed() => {
            Value::Int(i64::try_from(*v).map_err(|_| wrong())?)
        }
        (DType::Primitive(ptype, _), Kind::Uint64Value(v)) if ptype.is_unsigned() => Value::UInt(*v),
        (DType::Primitive(ptype, _), Kind::Int64Value(v)) if ptype.is_unsigned() => {
            Value::UInt(u64::try_from(*v).map_err(|_| wrong())?)
        }
        (DType::Decimal(..), Kind::BytesValue(bytes)) => Value::Decimal(decimal(bytes)?),
        (DType::Decimal(..), Kind::Int64Value(v)) => Value::Decimal(i256::from_i128((*v).into())),
        (DType::Utf8(_), Kind::StringValue(v)) => Value::Utf8(v.as_str().into()),
        (DType::Utf8(_), Kind::BytesValue(v)) => {
            Value::Utf8(std::str::from_utf8(v).map_err(|_| wrong())?.into())
        }
        (DType::Binary(_), Kind::BytesValue(v)) => Value::Binary(v.as_slice().into()),
        (DType::Binary(_), Kind::StringValue(v)) => Value::Binary(v.as_bytes().into()),
        (DType::List(element, _) | DType::FixedSizeList(element, _, _), Kind::ListValue(list)) => {
            let values = list.values.iter().map(|v| read(v, element, depth_left - 1, limits));
            Value::List(values.collect::<Result<_>>()?)
        }
        (DType::Struct(fields, _), Kind::ListValue(list)) if list.values.len() == fields.len() => {
            let values = list.values.iter().zip(fields.dtypes());
            Value::List(
                values.map(|(v, field)| read(v, field, depth_left - 1, limits)).collect::<Result<_>>()?,
            )
        }
        (DType::Map(map, _), Kind::ListValue(list)) => {
            let entry = map.entry();
            let values = list.values.iter().map(|v| read(v, &entry, depth_left - 1, limits));
            Value::List(values.collect::<Result<_>>()?)
        }
        (DType::Variant(_), Kind::VariantValue(scalar)) => {
            let ProtoScalar { dtype: Some(inner), value: Some(value) } = scalar.as_ref() else {
                return Err(Error::corrupt("variant scalar without type or value"));
            };
            let inner = dtype_from_proto(inner, limits)?;
            let value = read(value, &inner, depth_left - 1, limits)?;
            Value::Variant(Arc::new(Scalar::try_new(inner, value).map_err(Error::into_corrupt)?))
        }
        (DType::Union(union, _), Kind::UnionValue(present)) => {
            let id = u8::try_from(present.type_id).map_err(|_| wrong())?;
            let at = union.position(id).ok_or_else(wrong)?;
            let value = present.value.as_ref().ok_or_else(wrong)?;
            Value::Union(id, Arc::new(read(value, &union.variants().dtypes()[at], depth_left - 1, limits)?))
        }
        _ => return Err(wrong()),
    })
}

/// Serializes a value as a scalar, without its type.
///
/// # Errors
/// If it is a variant or contains one: these are never written.
pub(crate) fn value_to_bytes(value: &Value) -> Result<Vec<u8>> {
    Ok(value_to_proto(value)?.encode_to_vec())
}

/// As [`value_to_bytes`], but returns the message.
///
/// # Errors
/// As [`value_to_bytes`].
pub(crate) fn value_to_proto(value: &Value) -> Result<ScalarValue> {
    let kind = match value {
        Value::Variant(_) => return Err(Error::unsupported("value to write", "variant")),
        Value::Null => Kind::NullValue(0),
        Value::Bool(v) => Kind::BoolValue(*v),
        Value::Int(v) => Kind::Int64Value(*v),
        Value::UInt(v) => Kind::Uint64Value(*v),
        Value::F16(v) => Kind::F16Value(v.to_bits().into()),
        Value::F32(v) => Kind::F32Value(*v),
        Value::F64(v) => Kind::F64Value(*v),
        Value::Decimal(v) => Kind::BytesValue(match v.to_i128() {
            Some(narrow) => narrow.to_le_bytes().to_vec(),
            None => v.to_le_bytes().to_vec(),
        }),
        Value::Utf8(v) => Kind::StringValue(v.to_string()),
        Value::Binary(v) => Kind::BytesValue(v.to_vec()),
        Value::List(values) => {
            Kind::ListValue(ListValue { values: values.iter().map(value_to_proto).collect::<Result<_>>()? })
        }
        Value::Union(id, value) => Kind::UnionValue(Box::new(UnionValue {
            type_id: (*id).into(),
            value: Some(Box::new(value_to_proto(value)?)),
        })),
    };
    Ok(ScalarValue { kind: Some(kind) })
}

/// Parses a little-endian two's complement integer of 1, 2, 4, 8, 16 or 32 bytes.
fn decimal(bytes: &[u8]) -> Result<i256> {
    if ![1, 2, 4, 8, 16, 32].contains(&bytes.len()) {
        return Err(Error::corrupt(format!("decimal of {} bytes", bytes.len())));
    }
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 32];
    wide[..bytes.len()].copy_from_slice(bytes);
    Ok(i256::from_le_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DecimalType;

    fn parse(bytes: &[u8], dtype: DType) -> Result<Value> {
        scalar_from_bytes(bytes, &dtype, &Limits::default()).map(|scalar| scalar.value().clone())
    }

    #[test]
    fn reads_the_examples_of_the_format() {
        let number = |ptype| DType::Primitive(ptype, false);
        assert_eq!(parse(&[0x18, 0x06], number(PType::I32)).unwrap(), Value::Int(3));
        assert_eq!(parse(&[0x20, 0x07], number(PType::U8)).unwrap(), Value::UInt(7));
        assert_eq!(
            parse(&[0x31, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f], number(PType::F64)).unwrap(),
            Value::F64(1.0)
        );
        assert_eq!(parse(&[0x3a, 1, b'x'], DType::Utf8(false)).unwrap(), Value::Utf8("x".into()));
        assert_eq!(parse(&[0x10, 0], DType::Bool(false)).unwrap(), Value::Bool(false));
        assert_eq!(parse(&[0x08, 0], DType::Bool(true)).unwrap(), Value::Null);
    }

    #[test]
    fn values_in_lists_are_limited() {
        let list = DType::List(Arc::new(DType::Primitive(PType::I32, false)), false);
        let value = Value::List((0..9).map(Value::Int).collect());
        let bytes = value_to_bytes(&value).unwrap();
        assert_eq!(parse(&bytes, list.clone()).unwrap(), value);
        let limits = Limits::new().with_max_nodes(9);
        assert!(scalar_from_bytes(&bytes, &list, &limits).is_err(), "the list itself is one more");
    }

    #[test]
    fn values_are_counted_before_any_is_kept() {
        // An empty value in a list takes two bytes; the last one is not one.
        let (mut values, none) = ([0x0a, 0].repeat(100_000), [0x0a, 0xff]);
        values.extend(none);
        let mut list = vec![0x4a];
        prost::encoding::encode_varint(values.len() as u64, &mut list);
        list.extend(values);
        let mut left = 1 << 20;
        assert!(Part::Value.count(&list, &mut left, 0).is_none());
        assert_eq!(left, (1 << 20) - 100_001, "as many as the parser keeps before it fails");
        let error = scalar_from_bytes(&list, &DType::Bool(true), &Limits::new().with_max_nodes(100_000));
        assert!(matches!(error.unwrap_err(), Error::LimitExceeded(_)));
        let error = scalar_from_bytes(&list, &DType::Bool(true), &Limits::new().with_max_nodes(100_002));
        assert!(matches!(error.unwrap_err(), Error::Corrupt(_)));
    }

    #[test]
    fn parts_of_types_count_as_values() {
        // A value of a variant whose type is a struct with many empty names.
        let names = [0x0a, 0].repeat(100);
        let mut bytes = vec![0x42, names.len() as u8 | 0x80, 1];
        bytes.extend(names);
        let (mut variant, mut value) = (vec![0x0a, bytes.len() as u8 | 0x80, 1], vec![0x5a]);
        variant.extend(bytes);
        prost::encoding::encode_varint(variant.len() as u64, &mut value);
        value.extend(variant);
        let count = |mut left: u32| Part::Value.count(&value, &mut left, 0).map(|()| left);
        assert_eq!(count(200), Some(200 - 1 - 101));
        assert_eq!(count(100), None);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let u8 = DType::Primitive(PType::U8, false);
        assert!(parse(&[], u8.clone()).is_err());
        assert!(parse(&[0x20, 0x80, 0x02], u8.clone()).is_err());
        assert!(parse(&[0x18, 0x01], u8.clone()).is_err());
        assert_eq!(parse(&[0x18, 0x02], u8.clone()).unwrap(), Value::UInt(1));
        assert!(parse(&[0x08, 0], u8).is_err());
    }

    #[test]
    fn decimals_are_sign_extended() {
        let decimal = DType::Decimal(DecimalType::try_new(5, 2).unwrap(), false);
        assert_eq!(parse(&[0x42, 1, 0xff], decimal.clone()).unwrap(), Value::Decimal(i256::from_i128(-1)));
        assert!(parse(&[0x42, 3, 1, 2, 3], decimal).is_err());
    }

    #[test]
    fn decimals_have_no_more_digits_than_their_type() {
        let read = |precision, value| {
            let decimal = DecimalType::try_new(precision, 2).unwrap();
            parse(&value_to_bytes(&value).unwrap(), DType::Decimal(decimal, false))
        };
        let of = |unscaled| Value::Decimal(i256::from_i128(unscaled));
        for sign in [1, -1] {
            assert_eq!(read(5, of(sign * 99_999)).unwrap(), of(sign * 99_999));
            assert!(read(5, of(sign * 100_000)).is_err());
            assert!(read(5, Value::Int(100_000)).is_err());
        }
        assert!(read(75, Value::Decimal(i256::MAX)).is_err());
        for any in [i256::MIN, i256::MAX] {
            assert_eq!(read(76, Value::Decimal(any)).unwrap(), Value::Decimal(any));
        }
    }

    #[test]
    fn values_come_back_as_they_were_written() {
        let number = |ptype| DType::Primitive(ptype, true);
        let decimal = DType::Decimal(DecimalType::try_new(60, 2).unwrap(), false);
        let list = DType::List(Arc::new(DType::Utf8(true)), false);
        let wide = i256::from_string("-170141183460469231731687303715884105729").unwrap();
        for (value, dtype) in [
            (Value::Null, number(PType::I8)),
            (Value::Bool(false), DType::Bool(false)),
            (Value::Int(i64::MIN), number(PType::I64)),
            (Value::UInt(0), number(PType::U16)),
            (Value::F16(f16::NEG_INFINITY), number(PType::F16)),
            (Value::F32(-0.0), number(PType::F32)),
            (Value::Decimal(wide), decimal.clone()),
            (Value::Decimal(i256::MINUS_ONE), decimal),
            (Value::Binary([1, 2].into()), DType::Binary(false)),
            (Value::List([Value::Utf8("x".into()), Value::Null].into()), list),
        ] {
            assert_eq!(parse(&value_to_bytes(&value).unwrap(), dtype).unwrap(), value);
        }
    }
}
