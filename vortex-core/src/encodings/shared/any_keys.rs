//! Codes that refer to the values of a dictionary, in memory with the width that they are stored with.

use arrow::array::{Array as _, AsArray as _};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{UInt8Type, UInt16Type, UInt32Type};

use crate::Result;
use crate::array::{ArrayRef, EncodedRef, integers_of, numbers};
use crate::dtype::PType;

/// Decoded codes.
#[derive(Clone)]
pub(in crate::encodings) enum AnyKeys {
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
}

/// Runs `$body` with `$slice` bound to the slice of keys.
macro_rules! with_keys {
    ($keys:expr, |$slice:ident| $body:expr) => {
        match $keys {
            AnyKeys::U8($slice) => $body,
            AnyKeys::U16($slice) => $body,
            AnyKeys::U32($slice) => $body,
        }
    };
}
pub(in crate::encodings) use with_keys;

impl AnyKeys {
    /// Decodes codes of any integer type, and which of them are null. Codes of other types than those of
    /// keys are converted by `narrow`.
    ///
    /// # Errors
    /// If the bytes contradict the format, or as `narrow`.
    pub(in crate::encodings) fn decode(
        codes: &EncodedRef,
        narrow: impl Fn(i128) -> Result<u32>,
    ) -> Result<(Self, Option<NullBuffer>)> {
        let decoded = codes.decode_preferred()?;
        let nulls = decoded.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        let keys = match codes.dtype().ptype()? {
            PType::U8 => AnyKeys::U8(decoded.as_primitive::<UInt8Type>().values().clone()),
            PType::U16 => AnyKeys::U16(decoded.as_primitive::<UInt16Type>().values().clone()),
            PType::U32 => AnyKeys::U32(decoded.as_primitive::<UInt32Type>().values().clone()),
            _ => {
                codes.limits().count::<u32>(codes.len())?;
                AnyKeys::U32(integers_of(&decoded, "codes", narrow)?.into())
            }
        };
        Ok((keys, nulls))
    }

    /// The type of the keys.
    pub(in crate::encodings) fn ptype(&self) -> PType {
        match self {
            AnyKeys::U8(_) => PType::U8,
            AnyKeys::U16(_) => PType::U16,
            AnyKeys::U32(_) => PType::U32,
        }
    }

    /// The keys as an Arrow array.
    ///
    /// # Errors
    /// If the number of nulls differs from that of the keys.
    pub(in crate::encodings) fn into_array(self, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        numbers(self.ptype(), &with_keys!(self, |keys| keys.into_inner()), nulls)
    }
}
