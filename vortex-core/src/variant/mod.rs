//! The bytes of variant values, in the layout of the Parquet Variant encoding.
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
//! Parses existing values only as far as necessary to move them; writes new ones. Claims of bytes from a
//! file are checked before they are relied on.

mod write;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use self::write::{Elements, encode, push_object, push_value};
use crate::limits::Limits;
use crate::{Error, Result};

/// The metadata of values without field names: version 1, no names.
const NO_NAMES: [u8; 3] = [1, 0, 0];

const PRIMITIVE: u8 = 0;
const SHORT_STRING: u8 = 1;
const OBJECT: u8 = 2;
const ARRAY: u8 = 3;

/// The primitive null, which represents a value that is required but missing.
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

/// The little-endian number of `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> Result<usize> {
    let bytes = at.checked_add(width).and_then(|end| bytes.get(at..end)).ok_or_else(|| cut("value"))?;
    let wide = bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    usize::try_from(wide).map_err(|_| cut("value"))
}

/// Appends the low `width` bytes of a number.
fn push_number(out: &mut Vec<u8>, number: usize, width: usize) {
    out.extend_from_slice(&(number as u64).to_le_bytes()[..width]);
}

/// Number of bytes required for numbers up to `max`.
fn width_of(max: usize) -> Result<usize> {
    match max {
        0..=0xff => Ok(1),
        0x100..=0xffff => Ok(2),
        0x1_0000..=0xff_ffff => Ok(3),
        0x100_0000..=0xffff_ffff => Ok(4),
        _ => Err(Error::limit(format!("variant value of {max} bytes"))),
    }
}

/// Approximate bytes that a name takes in addition to its text.
const NAME_OVERHEAD: usize = 128;

/// The names that the objects of a row refer to. Names can be added.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, usize>,
    added: bool,
    /// For the names and copies of them.
    limits: Limits,
}

impl Names {
    /// Parses metadata.
    pub(crate) fn parse(metadata: &[u8], limits: &Limits) -> Result<Self> {
        let header = *metadata.first().ok_or_else(|| cut("metadata"))?;
        if header & 0x0f != 1 {
            return Err(Error::unsupported("variant version", header & 0x0f));
        }
        let width = usize::from(header >> 6) + 1;
        let count = number(metadata, 1, width)?;
        let table = 1 + width;
        // Every name has an offset, so the available bytes limit what the count can claim.
        if count.checked_add(1).and_then(|n| n.checked_mul(width)).is_none_or(|n| n > metadata.len() - table)
        {
            return Err(cut("metadata"));
        }
        let text = &metadata[table + (count + 1) * width..];
        limits.count_rows(count, NAME_OVERHEAD)?;
        limits.count_bytes(text.len() as u64)?;
        let mut names = Self { limits: *limits, ..Self::default() };
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
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.numbers.entry(name).or_insert(number);
        number
    }

    /// The number of a name, which is added if necessary.
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

    /// Whether names were added to those of the parsed metadata.
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

/// The head of an object or array, which locates its parts.
struct Container {
    count: usize,
    /// The position of the field numbers, and their width; none for arrays.
    ids: (usize, usize),
    /// The position of the offsets, and their width.
    offsets: (usize, usize),
    /// The position of the values.
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
        // A count has at most 32 bits, so none of this overflows.
        let offsets = ids + count * id_width;
        let values = offsets + (count + 1) * offset_width;
        if values > bytes.len() {
            return Err(cut("value"));
        }
        Ok(Self { count, ids: (ids, id_width), offsets: (offsets, offset_width), values })
    }

    /// The position of value `at` relative to the first value; for the index after the last value, the
    /// end of the values.
    fn offset(&self, bytes: &[u8], at: usize) -> Result<usize> {
        number(bytes, self.offsets.0 + at * self.offsets.1, self.offsets.1)
    }
}

/// The length of the value at the start of `bytes`.
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

/// Whether a value is an object.
pub(crate) fn is_object(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|header| header & 3 == OBJECT)
}

/// The fields of an object value.
///
/// # Errors
/// If the value is not an object, or is broken.
pub(crate) fn object_fields<'a>(bytes: &'a [u8], names: &Names) -> Result<ObjectFields<'a>> {
    if !is_object(bytes) {
        return Err(Error::corrupt("a variant with shredded fields is not an object"));
    }
    let container = Container::parse(bytes)?;
    let mut left = bytes.len();
    let fields = (0..container.count).map(|at| {
        let (ids, width) = container.ids;
        let name = names.name(number(bytes, ids + at * width, width)?)?;
        // Any number of fields may refer to one name.
        names.limits.count_bytes(name.len() as u64)?;
        let start = container.offset(bytes, at)?.saturating_add(container.values);
        let value = bytes.get(start..).ok_or_else(|| cut("object"))?;
        let value = &value[..value_len(value)?];
        left = left.checked_sub(value.len()).ok_or_else(|| Error::corrupt("fields of an object overlap"))?;
        Ok((name.into(), Cow::Borrowed(value)))
    });
    fields.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Work;

    #[test]
    fn broken_bytes_are_errors() {
        for metadata in
            [&[][..], &[2, 0, 0], &[1], &[1, 255], &[1, 1, 0, 9], &[1, 1, 1, 0], &[0xc1, 255, 255, 255, 255]]
        {
            assert!(Names::parse(metadata, &Limits::new()).is_err(), "{metadata:?}");
        }
        let names = Names::parse(&[1, 1, 0, 1, b'a'], &Limits::new()).unwrap();
        for bytes in [
            &[][..],
            &[0x02],
            &[0x02, 1, 0, 0],
            &[0x02, 1, 9, 0, 1, 0],
            &[0x02, 1, 0, 200, 1, 0],
            &[0x42, 255, 255, 255, 255],
            &[0x02, 1, 0, 0, 9, 0x0c],
            &[0x03, 0, 0],
            &[0x02, 3, 0, 0, 0, 0, 0, 0, 9, 0x18, 1, 1, 1, 1, 1, 1, 1, 1],
        ] {
            assert!(object_fields(bytes, &names).is_err(), "{bytes:?}");
        }
        assert!(value_len(&[0x40, 255, 255, 255, 255]).is_err());
        assert!(value_len(&[0xfc]).is_err());
    }

    #[test]
    fn a_long_name_cannot_be_referred_to_too_often() {
        let metadata = [&[1, 1, 0, 100][..], &[b'a'; 100]].concat();
        let read = |fields: u8| {
            let _work = Work::begin();
            let names = Names::parse(&metadata, &Limits::new().with_max_decoded_bytes(1100))?;
            let (ids, values) = (vec![0; fields.into()], vec![NULL[0]; fields.into()]);
            let object = [vec![OBJECT, fields], ids, (0..=fields).collect(), values].concat();
            object_fields(&object, &names).map(|fields| fields.len())
        };
        assert_eq!(read(8).unwrap(), 8);
        assert!(read(9).is_err());
    }
}
