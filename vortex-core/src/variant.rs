//! The bytes of variant values, as the Parquet Variant encoding lays them out.
//!
//! ```text
//! metadata  header  count  offsets...  names...        the names that objects refer to by number
//! value     header  body                               low 2 bits of the header: what follows
//!             00 primitive: type number in the header, then its little-endian bytes
//!             01 short string: length in the header, then its bytes
//!             10 object: count, name numbers sorted by name, offsets, field values
//!             11 array:  count, offsets, element values
//! ```
//!
//! Reads as much of existing values as it takes to move them; writes new ones. What bytes from
//! a file claim is checked before it is followed.

use std::borrow::Cow;
use std::collections::HashMap;

use arrow::datatypes::i256;

use crate::dtype::{DType, DecimalType, Meaning, PType, TimeUnit};
use crate::scalar::{Scalar, Value};
use crate::{Error, Result};

/// The metadata of values that name no fields: version 1, no names.
const NO_NAMES: [u8; 3] = [1, 0, 0];
/// Bytes of a string that still fit the short form.
const MAX_SHORT_STRING: usize = 63;
/// Elements of an object or array that still fit a count of one byte.
const MAX_SMALL_COUNT: usize = 255;

const PRIMITIVE: u8 = 0;
const SHORT_STRING: u8 = 1;
const OBJECT: u8 = 2;
const ARRAY: u8 = 3;

/// The primitive null: what stands for a value that is required and missing.
pub(crate) const NULL: [u8; 1] = [0];

/// Numbers of primitive types.
mod kind {
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const INT8: u8 = 3;
    pub(super) const INT16: u8 = 4;
    pub(super) const INT32: u8 = 5;
    pub(super) const INT64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const DECIMAL4: u8 = 8;
    pub(super) const DECIMAL8: u8 = 9;
    pub(super) const DECIMAL16: u8 = 10;
    pub(super) const DATE: u8 = 11;
    pub(super) const TIMESTAMP_MICROS: u8 = 12;
    pub(super) const TIMESTAMP_NTZ_MICROS: u8 = 13;
    pub(super) const FLOAT: u8 = 14;
    pub(super) const BINARY: u8 = 15;
    pub(super) const STRING: u8 = 16;
    pub(super) const TIME_NTZ_MICROS: u8 = 17;
    pub(super) const TIMESTAMP_NANOS: u8 = 18;
    pub(super) const TIMESTAMP_NTZ_NANOS: u8 = 19;
    pub(super) const UUID: u8 = 20;
}

fn cut(what: &str) -> Error {
    Error::corrupt(format!("variant {what} is cut short"))
}

/// The little-endian number in `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> Result<usize> {
    let bytes = at.checked_add(width).and_then(|end| bytes.get(at..end)).ok_or_else(|| cut("value"))?;
    let wide = bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    usize::try_from(wide).map_err(|_| cut("value"))
}

/// Appends the low `width` bytes of a number.
fn push_number(out: &mut Vec<u8>, number: usize, width: usize) {
    out.extend_from_slice(&(number as u64).to_le_bytes()[..width]);
}

/// Bytes that numbers up to `max` need.
fn width_of(max: usize) -> Result<usize> {
    match max {
        0..=0xff => Ok(1),
        0x100..=0xffff => Ok(2),
        0x1_0000..=0xff_ffff => Ok(3),
        0x100_0000..=0xffff_ffff => Ok(4),
        _ => Err(Error::limit(format!("variant value of {max} bytes"))),
    }
}

/// The names that the objects of a row refer to. Names can be added.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, usize>,
    added: bool,
}

impl Names {
    /// Parses metadata.
    pub(crate) fn parse(metadata: &[u8]) -> Result<Self> {
        let header = *metadata.first().ok_or_else(|| cut("metadata"))?;
        if header & 0x0f != 1 {
            return Err(Error::unsupported("variant version", header & 0x0f));
        }
        let width = usize::from(header >> 6) + 1;
        let count = number(metadata, 1, width)?;
        let table = 1 + width;
        // Every name has an offset, so the bytes at hand bound what the count can claim.
        if count.checked_add(1).and_then(|n| n.checked_mul(width)).is_none_or(|n| n > metadata.len() - table)
        {
            return Err(cut("metadata"));
        }
        let text = &metadata[table + (count + 1) * width..];
        let mut names = Self::default();
        let mut start = number(metadata, table, width)?;
        for at in 1..=count {
            let end = number(metadata, table + at * width, width)?;
            let name = text.get(start..end).ok_or_else(|| cut("metadata"))?;
            let name = std::str::from_utf8(name)
                .map_err(|error| Error::corrupt(format!("variant field name: {error}")))?;
            names.push(name);
            start = end;
        }
        Ok(names)
    }

    fn push(&mut self, name: &str) -> usize {
        let number = self.names.len();
        self.names.push(name.into());
        self.numbers.entry(name.into()).or_insert(number);
        number
    }

    /// The number of a name, which is added if there is none.
    fn number(&mut self, name: &str) -> usize {
        match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                self.added = true;
                self.push(name)
            }
        }
    }

    fn name(&self, number: usize) -> Result<&str> {
        let name = self.names.get(number).map(AsRef::as_ref);
        name.ok_or_else(|| Error::corrupt(format!("variant field name {number} of {}", self.names.len())))
    }

    /// Whether there are names that the parsed metadata lacks.
    pub(crate) fn added(&self) -> bool {
        self.added
    }

    /// The metadata that lists all names.
    pub(crate) fn to_metadata(&self) -> Result<Vec<u8>> {
        if self.names.is_empty() {
            return Ok(NO_NAMES.to_vec());
        }
        let text: usize = self.names.iter().map(|name| name.len()).sum();
        let width = width_of(text.max(self.names.len()))?;
        let mut out = vec![1 | (width as u8 - 1) << 6];
        push_number(&mut out, self.names.len(), width);
        let mut end = 0;
        push_number(&mut out, end, width);
        for name in &self.names {
            end += name.len();
            push_number(&mut out, end, width);
        }
        self.names.iter().for_each(|name| out.extend_from_slice(name.as_bytes()));
        Ok(out)
    }
}

/// The head of an object or array: where its parts are.
struct Container {
    count: usize,
    /// Where the numbers of the fields start, and their width; none for arrays.
    ids: (usize, usize),
    /// Where the offsets start, and their width.
    offsets: (usize, usize),
    /// Where the values start.
    values: usize,
}

impl Container {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let header = *bytes.first().ok_or_else(|| cut("value"))?;
        let (is_object, header) = (header & 3 == OBJECT, header >> 2);
        let offset_width = usize::from(header & 3) + 1;
        let id_width = if is_object { usize::from(header >> 2 & 3) + 1 } else { 0 };
        let is_large = header >> (if is_object { 4 } else { 2 }) & 1 == 1;
        let count_width = if is_large { 4 } else { 1 };
        let count = number(bytes, 1, count_width)?;
        let ids = 1 + count_width;
        // A count has 32 bits at most, so none of this overflows.
        let offsets = ids + count * id_width;
        let values = offsets + (count + 1) * offset_width;
        if values > bytes.len() {
            return Err(cut("value"));
        }
        Ok(Self { count, ids: (ids, id_width), offsets: (offsets, offset_width), values })
    }

    /// Where value `at` starts among the values; where they end, for the one behind the last.
    fn offset(&self, bytes: &[u8], at: usize) -> Result<usize> {
        number(bytes, self.offsets.0 + at * self.offsets.1, self.offsets.1)
    }
}

/// Length of the value that `bytes` start with.
fn value_len(bytes: &[u8]) -> Result<usize> {
    let header = *bytes.first().ok_or_else(|| cut("value"))?;
    let len = match header & 3 {
        PRIMITIVE => match header >> 2 {
            0 | kind::TRUE | kind::FALSE => 1,
            kind::INT8 => 2,
            kind::INT16 => 3,
            kind::INT32 | kind::DATE | kind::FLOAT => 5,
            kind::DECIMAL4 => 6,
            kind::DECIMAL8 => 10,
            kind::DECIMAL16 => 18,
            kind::INT64
            | kind::DOUBLE
            | kind::TIMESTAMP_MICROS
            | kind::TIMESTAMP_NTZ_MICROS
            | kind::TIME_NTZ_MICROS
            | kind::TIMESTAMP_NANOS
            | kind::TIMESTAMP_NTZ_NANOS => 9,
            kind::UUID => 17,
            kind::BINARY | kind::STRING => number(bytes, 1, 4)?.saturating_add(5),
            other => return Err(Error::unsupported("variant type", other)),
        },
        SHORT_STRING => usize::from(header >> 2) + 1,
        _ => {
            let container = Container::parse(bytes)?;
            container.offset(bytes, container.count)?.saturating_add(container.values)
        }
    };
    if len > bytes.len() { Err(cut("value")) } else { Ok(len) }
}

/// Fields of an object under construction, each a name and a value.
pub(crate) type ObjectFields<'a> = Vec<(Box<str>, Cow<'a, [u8]>)>;

/// The fields of an object value.
///
/// # Errors
/// If the value is no object, or broken.
pub(crate) fn object_fields<'a>(bytes: &'a [u8], names: &Names) -> Result<ObjectFields<'a>> {
    if bytes.first().is_none_or(|header| header & 3 != OBJECT) {
        return Err(Error::corrupt("a variant with shredded fields is not an object"));
    }
    let container = Container::parse(bytes)?;
    let fields = (0..container.count).map(|at| {
        let (ids, width) = container.ids;
        let name = names.name(number(bytes, ids + at * width, width)?)?;
        let start = container.offset(bytes, at)?.saturating_add(container.values);
        let value = bytes.get(start..).ok_or_else(|| cut("object"))?;
        Ok((name.into(), Cow::Borrowed(&value[..value_len(value)?])))
    });
    fields.collect()
}

/// Appends an object of these fields; names not yet known are added to `names`.
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
    push_values(out, fields.iter().map(|(_, value)| value.as_ref()), offset_width);
    Ok(())
}

/// Appends an array of these elements.
pub(crate) fn push_array(out: &mut Vec<u8>, elements: &[Vec<u8>]) -> Result<()> {
    let offset_width = width_of(elements.iter().map(Vec::len).sum())?;
    let count_width = if elements.len() > MAX_SMALL_COUNT { 4 } else { 1 };
    let header = u8::from(count_width == 4) << 2 | (offset_width as u8 - 1);
    out.push(header << 2 | ARRAY);
    push_number(out, elements.len(), count_width);
    push_values(out, elements.iter().map(Vec::as_slice), offset_width);
    Ok(())
}

fn push_values<'a>(out: &mut Vec<u8>, values: impl Iterator<Item = &'a [u8]> + Clone, width: usize) {
    let mut end = 0;
    push_number(out, end, width);
    for value in values.clone() {
        end += value.len();
        push_number(out, end, width);
    }
    values.for_each(|value| out.extend_from_slice(value));
}

/// Metadata and value of a typed scalar as a variant.
///
/// # Errors
/// If variants have nothing to hold it.
pub(crate) fn encode(scalar: &Scalar) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut names = Names::default();
    let mut out = Vec::new();
    push_value(&mut out, scalar.dtype(), scalar.value(), &mut names)?;
    Ok((names.to_metadata()?, out))
}

/// Appends a typed value. Unsigned integers take the next wider signed type.
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
            let elements = values.iter().map(|value| {
                let mut bytes = Vec::new();
                push_value(&mut bytes, element, value, names)?;
                Ok(bytes)
            });
            push_array(out, &elements.collect::<Result<Vec<_>>>()?)?;
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

    use super::*;
    use crate::dtype::{Extension, StructType};

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
        let names = Names::parse(&metadata).unwrap();
        let fields = object_fields(&bytes, &names).unwrap();
        assert_eq!(fields[1], ("b".into(), Cow::Borrowed(&[0x0c, 2][..])));

        let list = DType::List(Arc::new(byte), false);
        let bytes = value(list, Value::List([Value::Int(7)].into()));
        assert_eq!(bytes, [0x03, 1, 0, 2, 0x0c, 7]);
        assert_eq!(value_len(&bytes).unwrap(), 6);
    }

    #[test]
    fn broken_bytes_are_errors() {
        for metadata in
            [&[][..], &[2, 0, 0], &[1], &[1, 255], &[1, 1, 0, 9], &[1, 1, 1, 0], &[0xc1, 255, 255, 255, 255]]
        {
            assert!(Names::parse(metadata).is_err(), "{metadata:?}");
        }
        let names = Names::parse(&[1, 1, 0, 1, b'a']).unwrap();
        for bytes in [
            &[][..],
            &[0x02],
            &[0x02, 1, 0, 0],
            &[0x02, 1, 9, 0, 1, 0],
            &[0x02, 1, 0, 200, 1, 0],
            &[0x42, 255, 255, 255, 255],
            &[0x02, 1, 0, 0, 9, 0x0c],
            &[0x03, 0, 0],
        ] {
            assert!(object_fields(bytes, &names).is_err(), "{bytes:?}");
        }
        assert!(value_len(&[0x40, 255, 255, 255, 255]).is_err());
        assert!(value_len(&[0xfc]).is_err());
    }
}
