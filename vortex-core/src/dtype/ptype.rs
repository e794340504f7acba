//! Machine types of primitive values.

use std::fmt;

use crate::{Error, Result};

/// The machine type of a primitive column. The numbers are those of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum PType {
    U8 = 0,
    U16 = 1,
    U32 = 2,
    U64 = 3,
    I8 = 4,
    I16 = 5,
    I32 = 6,
    I64 = 7,
    F16 = 8,
    F32 = 9,
    F64 = 10,
}

impl PType {
    /// All machine types, in format order.
    pub const ALL: [PType; 11] = [
        PType::U8,
        PType::U16,
        PType::U32,
        PType::U64,
        PType::I8,
        PType::I16,
        PType::I32,
        PType::I64,
        PType::F16,
        PType::F32,
        PType::F64,
    ];

    /// The type with this number of the format.
    ///
    /// # Errors
    /// If there is no such number.
    pub fn try_from_number(number: i64) -> Result<PType> {
        usize::try_from(number)
            .ok()
            .and_then(|at| Self::ALL.get(at).copied())
            .ok_or_else(|| Error::corrupt(format!("primitive type number {number} does not exist")))
    }

    /// Bytes of one value.
    pub const fn byte_width(self) -> usize {
        match self {
            PType::U8 | PType::I8 => 1,
            PType::U16 | PType::I16 | PType::F16 => 2,
            PType::U32 | PType::I32 | PType::F32 => 4,
            PType::U64 | PType::I64 | PType::F64 => 8,
        }
    }

    /// Bits of one value.
    pub const fn bit_width(self) -> usize {
        self.byte_width() * 8
    }

    /// Whether this is an unsigned integer.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, PType::U8 | PType::U16 | PType::U32 | PType::U64)
    }

    /// Whether this is a signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(self, PType::I8 | PType::I16 | PType::I32 | PType::I64)
    }

    /// Whether this is an integer.
    pub const fn is_integer(self) -> bool {
        self.is_unsigned() || self.is_signed()
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, PType::F16 | PType::F32 | PType::F64)
    }

    /// The smallest and the largest value of an integer type.
    pub(crate) fn integer_range(self) -> Option<(i128, i128)> {
        let bits = self.bit_width();
        if self.is_unsigned() {
            Some((0, (1 << bits) - 1))
        } else if self.is_signed() {
            Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
        } else {
            None
        }
    }

    /// Whether this is an integer type that can represent all integers from `min` to `max`.
    pub(crate) fn holds(self, min: i128, max: i128) -> bool {
        self.integer_range().is_some_and(|(low, high)| low <= min && max <= high)
    }

    /// The narrowest unsigned type that can represent an integer.
    pub(crate) fn for_unsigned(most: u64) -> PType {
        let types = [PType::U8, PType::U16, PType::U32];
        types.into_iter().find(|ptype| ptype.holds(0, most.into())).unwrap_or(PType::U64)
    }

    /// The narrowest signed type that can represent two integers.
    pub(crate) fn for_signed(min: i64, max: i64) -> PType {
        let types = [PType::I8, PType::I16, PType::I32];
        types.into_iter().find(|ptype| ptype.holds(min.into(), max.into())).unwrap_or(PType::I64)
    }

    /// The unsigned integer of the same width.
    pub const fn to_unsigned(self) -> PType {
        match self.byte_width() {
            1 => PType::U8,
            2 => PType::U16,
            4 => PType::U32,
            _ => PType::U64,
        }
    }
}

impl fmt::Display for PType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PType::U8 => "u8",
            PType::U16 => "u16",
            PType::U32 => "u32",
            PType::U64 => "u64",
            PType::I8 => "i8",
            PType::I16 => "i16",
            PType::I32 => "i32",
            PType::I64 => "i64",
            PType::F16 => "f16",
            PType::F32 => "f32",
            PType::F64 => "f64",
        })
    }
}

/// Runs `$body` with `$T` bound to the Arrow primitive type of a [`PType`].
macro_rules! match_ptype {
    ($ptype:expr, |$T:ident| $body:expr) => {{
        let ptype = $ptype;
        $crate::dtype::match_integer!(ptype, |$T| $body, else match ptype {
            $crate::dtype::PType::F16 => {
                type $T = arrow::datatypes::Float16Type;
                $body
            }
            $crate::dtype::PType::F32 => {
                type $T = arrow::datatypes::Float32Type;
                $body
            }
            _ => {
                type $T = arrow::datatypes::Float64Type;
                $body
            }
        })
    }};
}

/// Like [`match_ptype`] for integers; other types run `$other`.
macro_rules! match_integer {
    ($ptype:expr, |$T:ident| $body:expr, else $other:expr) => {{
        use arrow::datatypes as t;
        match $ptype {
            $crate::dtype::PType::U8 => {
                type $T = t::UInt8Type;
                $body
            }
            $crate::dtype::PType::U16 => {
                type $T = t::UInt16Type;
                $body
            }
            $crate::dtype::PType::U32 => {
                type $T = t::UInt32Type;
                $body
            }
            $crate::dtype::PType::U64 => {
                type $T = t::UInt64Type;
                $body
            }
            $crate::dtype::PType::I8 => {
                type $T = t::Int8Type;
                $body
            }
            $crate::dtype::PType::I16 => {
                type $T = t::Int16Type;
                $body
            }
            $crate::dtype::PType::I32 => {
                type $T = t::Int32Type;
                $body
            }
            $crate::dtype::PType::I64 => {
                type $T = t::Int64Type;
                $body
            }
            _ => $other,
        }
    }};
}

pub(crate) use {match_integer, match_ptype};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_get_the_narrowest_type_that_holds_them() {
        use PType::{I8, I16, I32, I64, U8, U16, U32, U64};
        let unsigned = [0, 255, 256, 65_535, 65_536, u64::MAX].map(PType::for_unsigned);
        assert_eq!(unsigned, [U8, U8, U16, U16, U32, U64]);
        let signed = [(-128, 127), (0, 128), (-32_769, 0), (i64::MIN, 0)];
        assert_eq!(signed.map(|(min, max)| PType::for_signed(min, max)), [I8, I16, I32, I64]);
    }
}
