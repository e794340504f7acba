//! Writing values: typed scalars, and objects and arrays composed of parts.

use std::borrow::Cow;

use arrow::datatypes::i256;

use super::{ARRAY, NULL, Names, OBJECT, ObjectFields, PRIMITIVE, SHORT_STRING, kind, push_number, width_of};
use crate::dtype::{DType, DecimalType, Meaning, PType, TimeUnit};
use crate::scalar::{Scalar, Value};
use crate::{Error, Result};

/// Maximum length of a string in the short form.
const MAX_SHORT_STRING: usize = 63;
/// Maximum number of elements of an object or array with a one-byte count.
const MAX_SMALL_COUNT: usize = 255;

/// Appends an object of these fields; new names are added to `names`.
pub(crate) fn push_object(out: &mut Vec<u8>, mut fields: ObjectFields<'_>, names: &mut Names) -> Result<()> {
    fields.sort_by(|left, right| left.0.cmp(&right.0));
    let ids: Vec<usize> = fields.iter().map(|(name, _)| names.number(name)).collect();
    let total: usize = fields.iter().map(|(_, value)| value.len()).sum();
    let id_width = width_of(ids.iter().copied().max().unwrap_or(0))?;
    let offset_width = width_of(total)?;
    let count_width = if fields.len() > MAX_SMALL_COUNT { 4 } else { 1 };
    let header = u8::from(count_width == 4) << 4 | (id_width as u8 - 1) << 2 | (offset_width as u8 - 1);
    out.push(header << 2 | OBJECT);
    push_number(out, fields.len(), count_width);
    ids.into_iter().for_each(|id| push_number(out, id, id_width));
    let mut end = 0;
    push_number(out, end, offset_width);
    for (_, value) in &fields {
        end += value.len();
        push_number(out, end, offset_width);
    }
    fields.iter().for_each(|(_, value)| out.extend_from_slice(value));
    Ok(())
}

/// The elements of an array, one after the other.
#[derive(Default)]
pub(crate) struct Elements {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Elements {
    /// Adds an element, whose value `push` appends; returns its size in bytes.
    pub(crate) fn add(&mut self, push: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<usize> {
        let start = self.bytes.len();
        push(&mut self.bytes)?;
        self.ends.push(self.bytes.len());
        Ok(self.bytes.len() - start)
    }

    /// Appends an array of these elements.
    pub(crate) fn push_array(&self, out: &mut Vec<u8>) -> Result<()> {
        let offset_width = width_of(self.bytes.len())?;
        let count_width = if self.ends.len() > MAX_SMALL_COUNT { 4 } else { 1 };
        let header = u8::from(count_width == 4) << 2 | (offset_width as u8 - 1);
        out.push(header << 2 | ARRAY);
        push_number(out, self.ends.len(), count_width);
        push_number(out, 0, offset_width);
        self.ends.iter().for_each(|end| push_number(out, *end, offset_width));
        out.extend_from_slice(&self.bytes);
        Ok(())
    }
}

/// Converts a typed scalar to the metadata and value of a variant.
///
/// # Errors
/// If variants cannot represent it.
pub(crate) fn encode(scalar: &Scalar) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut names = Names::default();
    let mut out = Vec::new();
    push_value(&mut out, scalar.dtype(), scalar.value(), &mut names)?;
    Ok((names.to_metadata()?, out))
}

/// Appends a typed value. Unsigned integers are written as the next wider signed type.
pub(crate) fn push_value(out: &mut Vec<u8>, dtype: &DType, value: &Value, names: &mut Names) -> Result<()> {
    match (dtype, value) {
        (_, Value::Null) => out.extend(NULL),
        (DType::Extension(extension), value) => match (extension.meaning(), value) {
            (Meaning::Json | Meaning::Unknown, _) => push_value(out, extension.storage(), value, names)?,
            (Meaning::Uuid, Value::List(bytes)) => {
                push_kind(out, kind::UUID);
                out.extend(bytes.iter().map(|byte| match byte {
                    Value::UInt(byte) => byte.to_le_bytes()[0],
                    _ => 0,
                }));
            }
            (meaning, Value::Int(ticks)) => push_temporal(out, meaning, *ticks)?,
            _ => return Err(Error::unsupported("variant of type", dtype)),
        },
        (_, Value::Bool(v)) => push_kind(out, if *v { kind::TRUE } else { kind::FALSE }),
        (DType::Primitive(ptype, _), Value::Int(v)) => push_integer(out, *ptype, (*v).into())?,
        (DType::Primitive(ptype, _), Value::UInt(v)) => push_integer(out, *ptype, (*v).into())?,
        (_, Value::F16(v)) => push_bytes(out, kind::FLOAT, &v.to_f32().to_le_bytes()),
        (_, Value::F32(v)) => push_bytes(out, kind::FLOAT, &v.to_le_bytes()),
        (_, Value::F64(v)) => push_bytes(out, kind::DOUBLE, &v.to_le_bytes()),
        (DType::Decimal(decimal, _), Value::Decimal(v)) => push_decimal(out, *decimal, *v)?,
        (_, Value::Utf8(text)) => push_string(out, text)?,
        (_, Value::Binary(bytes)) => push_long(out, kind::BINARY, bytes)?,
        (DType::Struct(fields, _), Value::List(values)) => {
            let fields = fields.fields().zip(values.iter()).map(|((name, dtype), value)| {
                let mut bytes = Vec::new();
                push_value(&mut bytes, dtype, value, names)?;
                Ok((name.as_ref().into(), Cow::Owned(bytes)))
            });
            let fields = fields.collect::<Result<ObjectFields<'_>>>()?;
            push_object(out, fields, names)?;
        }
        (DType::List(element, _) | DType::FixedSizeList(element, _, _), Value::List(values)) => {
            let mut elements = Elements::default();
            for value in values.iter() {
                elements.add(|out| push_value(out, element, value, names))?;
            }
            elements.push_array(out)?;
        }
        (_, Value::Variant(inner)) => push_value(out, inner.dtype(), inner.value(), names)?,
        _ => return Err(Error::unsupported("variant of type", dtype)),
    }
    Ok(())
}

fn push_kind(out: &mut Vec<u8>, kind: u8) {
    out.push(kind << 2 | PRIMITIVE);
}

fn push_bytes(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    push_kind(out, kind);
    out.extend_from_slice(bytes);
}

fn push_integer(out: &mut Vec<u8>, ptype: PType, value: i128) -> Result<()> {
    let (kind, width) = match ptype {
        PType::I8 => (kind::INT8, 1),
        PType::I16 | PType::U8 => (kind::INT16, 2),
        PType::I32 | PType::U16 => (kind::INT32, 4),
        PType::I64 | PType::U32 => (kind::INT64, 8),
        _ if i64::try_from(value).is_ok() => (kind::INT64, 8),
        _ => return push_decimal(out, DecimalType::try_new(38, 0)?, i256::from_i128(value)),
    };
    push_bytes(out, kind, &value.to_le_bytes()[..width]);
    Ok(())
}

fn push_decimal(out: &mut Vec<u8>, decimal: DecimalType, value: i256) -> Result<()> {
    let (kind, width) = match decimal.precision() {
        ..=9 => (kind::DECIMAL4, 4),
        10..=18 => (kind::DECIMAL8, 8),
        _ => (kind::DECIMAL16, 16),
    };
    let bits = u32::try_from(width * 8 - 1).unwrap_or(127);
    let fits =
        value.to_i128().filter(|value| bits == 127 || (-(1i128 << bits)..1i128 << bits).contains(value));
    let (Some(value), Ok(scale @ 0..=38)) = (fits, u8::try_from(decimal.scale())) else {
        let (precision, scale) = (decimal.precision(), decimal.scale());
        return Err(Error::unsupported("variant of type", format!("decimal({precision},{scale})")));
    };
    push_kind(out, kind);
    out.push(scale);
    out.extend_from_slice(&value.to_le_bytes()[..width]);
    Ok(())
}

fn push_temporal(out: &mut Vec<u8>, meaning: &Meaning, ticks: i64) -> Result<()> {
    let micros = |unit: TimeUnit| {
        let scale = unit.ticks_per_second().map(|per_second| 1_000_000 / per_second);
        let micros = scale.filter(|scale| *scale > 0).and_then(|scale| ticks.checked_mul(scale));
        micros.ok_or_else(|| Error::unsupported("variant of type", format!("time in {unit:?}")))
    };
    let (kind, value) = match meaning {
        Meaning::Date(TimeUnit::Days) => {
            let days = i32::try_from(ticks).map_err(|_| Error::corrupt(format!("{ticks} days")))?;
            push_bytes(out, kind::DATE, &days.to_le_bytes());
            return Ok(());
        }
        Meaning::Time(unit) => (kind::TIME_NTZ_MICROS, micros(*unit)?),
        Meaning::Timestamp(TimeUnit::Nanoseconds, zone) => match zone {
            Some(_) => (kind::TIMESTAMP_NANOS, ticks),
            None => (kind::TIMESTAMP_NTZ_NANOS, ticks),
        },
        Meaning::Timestamp(unit, Some(_)) => (kind::TIMESTAMP_MICROS, micros(*unit)?),
        Meaning::Timestamp(unit, None) => (kind::TIMESTAMP_NTZ_MICROS, micros(*unit)?),
        other => return Err(Error::unsupported("variant of type", format!("{other:?}"))),
    };
    push_bytes(out, kind, &value.to_le_bytes());
    Ok(())
}

fn push_string(out: &mut Vec<u8>, text: &str) -> Result<()> {
    match u8::try_from(text.len()) {
        Ok(len) if text.len() <= MAX_SHORT_STRING => {
            out.push(len << 2 | SHORT_STRING);
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        _ => push_long(out, kind::STRING, text.as_bytes()),
    }
}

fn push_long(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) -> Result<()> {
    let len = u32::try_from(bytes.len())
        .map_err(|_| Error::limit(format!("variant value of {} bytes", bytes.len())))?;
    push_kind(out, kind);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{object_fields, value_len};
    use super::*;
    use crate::dtype::{Extension, StructType};
    use crate::limits::Limits;

    fn value(dtype: DType, value: Value) -> Vec<u8> {
        encode(&Scalar::try_new(dtype, value).unwrap()).unwrap().1
    }

    #[test]
    fn primitives_have_the_bytes_of_the_format() {
        let number = |ptype| DType::Primitive(ptype, false);
        assert_eq!(value(DType::Bool(false), Value::Bool(true)), [0x04]);
        assert_eq!(value(DType::Bool(true), Value::Null), [0x00]);
        assert_eq!(value(number(PType::I8), Value::Int(-1)), [0x0c, 0xff]);
        assert_eq!(value(number(PType::I32), Value::Int(258)), [0x14, 2, 1, 0, 0]);
        assert_eq!(value(number(PType::U8), Value::UInt(255)), [0x10, 255, 0]);
        assert_eq!(value(number(PType::F32), Value::F32(1.0)), [0x38, 0, 0, 0x80, 0x3f]);
        assert_eq!(value(DType::Utf8(false), Value::Utf8("hi".into())), [0x09, b'h', b'i']);
        assert_eq!(value(DType::Binary(false), Value::Binary([7].into())), [0x3c, 1, 0, 0, 0, 7]);
        let long = value(DType::Utf8(false), Value::Utf8("x".repeat(64).into()));
        assert_eq!(long[..5], [0x40, 64, 0, 0, 0]);
        let decimal = DType::Decimal(DecimalType::try_new(9, 2).unwrap(), false);
        assert_eq!(value(decimal, Value::Decimal(i256::from_i128(-2))), [0x20, 2, 0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(value(number(PType::U64), Value::UInt(u64::MAX))[0], kind::DECIMAL16 << 2);
    }

    #[test]
    fn times_are_in_microseconds_unless_in_nanoseconds() {
        let timestamp = |metadata: &[u8]| {
            let storage = DType::Primitive(PType::I64, false);
            DType::Extension(Arc::new(Extension::try_new("vortex.timestamp", storage, metadata).unwrap()))
        };
        let seconds = value(timestamp(&[3, 0, 0]), Value::Int(1));
        assert_eq!(seconds, [&[kind::TIMESTAMP_NTZ_MICROS << 2], &1_000_000i64.to_le_bytes()[..]].concat());
        let zoned = value(timestamp(b"\x00\x03\x00UTC"), Value::Int(5));
        assert_eq!(zoned, [&[kind::TIMESTAMP_NANOS << 2], &5i64.to_le_bytes()[..]].concat());
        let overflow = Scalar::try_new(timestamp(&[3, 0, 0]), Value::Int(i64::MAX)).unwrap();
        assert!(encode(&overflow).is_err());
    }

    #[test]
    fn objects_sort_their_fields_and_read_back() {
        let byte = DType::Primitive(PType::I8, false);
        let fields = StructType::new([("b".into(), byte.clone()), ("a".into(), byte.clone())]);
        let dtype = DType::Struct(Arc::new(fields), false);
        let scalar = Scalar::try_new(dtype, Value::List([Value::Int(2), Value::Int(1)].into())).unwrap();
        let (metadata, bytes) = encode(&scalar).unwrap();
        assert_eq!(metadata, [1, 2, 0, 1, 2, b'a', b'b']);
        assert_eq!(bytes, [0x02, 2, 0, 1, 0, 2, 4, 0x0c, 1, 0x0c, 2]);
        assert_eq!(value_len(&bytes).unwrap(), bytes.len());
        let names = Names::parse(&metadata, &Limits::new()).unwrap();
        let fields = object_fields(&bytes, &names).unwrap();
        assert_eq!(fields[1], ("b".into(), Cow::Borrowed(&[0x0c, 2][..])));

        let list = DType::List(Arc::new(byte), false);
        let bytes = value(list, Value::List([Value::Int(7)].into()));
        assert_eq!(bytes, [0x03, 1, 0, 2, 0x0c, 7]);
        assert_eq!(value_len(&bytes).unwrap(), 6);
    }
}
