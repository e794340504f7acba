//! Compression: choosing how to encode a chunk of a column.
//!
//! ```text
//! Arrow array ── null rows get a value that compresses well ── properties: range, runs, a sample
//!                                                                       │
//!     every scheme of the column's kind estimates its bytes  ◄──────────┘
//!     the best, weighted by the cost of decoding, encodes; its children start over
//! ```
//!
//! A [`Scheme`](scheme::Scheme) is one way to encode one kind of column. The schemes of each kind are
//! listed in a table in its file: [`integer`], [`float`], [`string`], [`boolean`], [`decimal`],
//! [`temporal`]; [`nested`] splits structs and lists into their children, and [`canonical`](mod@canonical)
//! encodes without choosing. The layout of bytes is defined next to the decoder of each encoding, not here.
//!
//! Chunks are encoded independently of each other, so the content of a chunk does not depend on where and
//! when chunks were encoded. Estimated sizes are compared with the encoded size, so that a wrong estimate
//! costs time but not bytes.

mod boolean;
mod canonical;
mod decimal;
mod dictionary;
mod float;
mod fsst;
mod integer;
mod levels;
mod nested;
mod numbers;
mod onpair;
mod pco;
mod runs;
mod sample;
mod scheme;
mod sparse;
mod string;
mod temporal;
#[cfg(test)]
mod tests;
mod text_dictionary;
mod text_zstd;
mod zstd;

use std::fmt;
use std::str::FromStr;

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::buffer::NullBuffer;

pub(crate) use self::canonical::canonical;
pub(crate) use self::levels::Levels;
use self::scheme::{Context, Kind};
pub(crate) use self::string::LONG_VALUE;
pub(crate) use self::text_dictionary::hash as text_hash;
use crate::array::restore::restore;
use crate::dtype::arrow::data_type;
use crate::dtype::{DType, PType};
use crate::encodings::{constant, masked};
use crate::expr::FieldPath;
use crate::limits::Limits;
use crate::release::since;
use crate::scalar::Value;
use crate::wire::WriteNode;
use crate::{Error, Release, Result};

/// What to optimize for when writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Level {
    /// No encodings that are slow to decode (Zstandard, pco, OnPair). Larger files; not necessarily faster to write.
    Fast,
    /// Files about as small as Parquet's; uses slower encodings where they save much.
    #[default]
    Default,
    /// The smallest files, at the cost of decoding time.
    Compact,
}

impl Level {
    /// All levels, from the fastest to the smallest.
    pub const ALL: [Self; 3] = [Level::Fast, Level::Default, Level::Compact];

    /// The name, such as `fast`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Fast => "fast",
            Level::Default => "default",
            Level::Compact => "compact",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = Error;

    /// Reads `fast`, `default` or `compact`, in any case.
    fn from_str(text: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(text));
        named.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("`{text}` is not a level; write one of {names}"))
        })
    }
}

/// Encodes chunks of columns.
#[derive(Debug, Clone)]
pub(crate) struct Compressor {
    levels: Levels,
    min_reader: Release,
}

impl Compressor {
    /// Encodes for `min_reader` and all later releases.
    pub(crate) fn new(levels: impl Into<Levels>, min_reader: Release) -> Self {
        Self { levels: levels.into(), min_reader }
    }

    /// Sets the level of a field of `of`, and of fields in it that have none of their own.
    ///
    /// # Errors
    /// If there is no such field.
    pub(crate) fn set_field_level(&mut self, path: FieldPath, level: Level, of: &DType) -> Result<()> {
        self.levels.set_field(path, level);
        self.levels.check(of)
    }

    /// Encodes a field.
    pub(crate) fn field(&self, name: &str) -> Self {
        Self { levels: self.levels.field(name), min_reader: self.min_reader }
    }

    /// The oldest release that must read what is encoded.
    pub(crate) fn min_reader(&self) -> Release {
        self.min_reader
    }

    /// Encodes a chunk, which has the Arrow type that [presents](crate::dtype::arrow::presents) `dtype`.
    ///
    /// # Errors
    /// If the oldest release that must read the file does not support `dtype`.
    pub(crate) fn compress(&self, array: &ArrayRef, dtype: &DType) -> Result<WriteNode> {
        let rows = array.len();
        if u32::try_from(rows).is_err() {
            return Err(Error::limit(format!("{rows} rows in one chunk")));
        }
        // Rows to write are in memory already.
        let array = restore(array, &data_type(dtype)?, &Limits::of_any_bytes())?;
        self.encode(&array, dtype)
    }

    /// Compresses a column that has the Arrow type preferred by its dtype. Below it, only fields of structs have levels
    /// of their own.
    fn encode(&self, array: &ArrayRef, dtype: &DType) -> Result<WriteNode> {
        let cx = Context::new(self.levels.level, self.min_reader);
        let DType::Struct(fields, _) = dtype else { return compress(&cx, array, dtype) };
        if let Some(nulls) = nulls_alone(&cx, array, dtype)? {
            return Ok(nulls);
        }
        nested::compress_struct(&cx, array.as_struct(), dtype, fields, |name, column, dtype| {
            self.field(name).encode(column, dtype)
        })
    }
}

/// Compresses a column that has the Arrow type preferred by its dtype.
fn compress(cx: &Context, array: &ArrayRef, dtype: &DType) -> Result<WriteNode> {
    if let Some(nulls) = nulls_alone(cx, array, dtype)? {
        return Ok(nulls);
    }
    match dtype {
        DType::Bool(_) => boolean::compress(cx, array.as_boolean()),
        DType::Primitive(PType::F16, _) if cx.reader() < since::HALF_SCALARS => canonical(array, dtype),
        DType::Primitive(ptype, _) => numbers::compress(cx, array, *ptype),
        DType::Decimal(..) => decimal::compress(cx, array, dtype),
        DType::Utf8(_) => string::compress(cx, &array.as_string_view().clone().to_binary_view(), dtype),
        DType::Binary(_) => string::compress(cx, array.as_binary_view(), dtype),
        DType::Extension(extension) => temporal::compress(cx, array, extension),
        _ => nested::compress(cx, array, dtype),
    }
}

/// Encodes a column that is null in all rows; `None` if it is not.
///
/// # Errors
/// If the column must not have nulls but does, or the oldest reader does not support its type.
fn nulls_alone(cx: &Context, array: &ArrayRef, dtype: &DType) -> Result<Option<WriteNode>> {
    let null_count = array.logical_null_count();
    if !dtype.is_nullable() && null_count > 0 {
        return Err(Error::invalid(format!("{null_count} nulls in a column of type {dtype}")));
    }
    cx.check_readable(dtype)?;
    // Readers of all releases support constants of these types.
    let are_all = null_count == array.len() && null_count > 0 && dtype.is_scalar();
    are_all.then(|| constant::encode(&Value::Null)).transpose()
}

/// Encodes a column whose valid rows all have one value; `None` if some rows are null, and the oldest reader does not
/// support nulls beside the value. `nulls` is the validity, if some rows are null.
fn one_value(cx: &Context, value: &Value, nulls: Option<&NullBuffer>) -> Result<Option<WriteNode>> {
    if nulls.is_some() && !cx.reads(Kind::Masked) {
        return Ok(None);
    }
    let node = constant::encode(value)?;
    Ok(Some(match boolean::validity(cx, nulls)? {
        None => node,
        Some(validity) => masked::encode(node, validity),
    }))
}

/// The value of an integer or float given by its bits.
fn value_of(ptype: PType, bits: u64) -> Value {
    // The casts truncate to the width of the type, which the bits do not exceed.
    match ptype {
        PType::U8 | PType::U16 | PType::U32 | PType::U64 => Value::UInt(bits),
        PType::I8 => Value::Int((bits as i8).into()),
        PType::I16 => Value::Int((bits as i16).into()),
        PType::I32 => Value::Int((bits as i32).into()),
        PType::I64 => Value::Int(bits as i64),
        PType::F16 => Value::F16(half::f16::from_bits(bits as u16)),
        PType::F32 => Value::F32(f32::from_bits(bits as u32)),
        PType::F64 => Value::F64(f64::from_bits(bits)),
    }
}
