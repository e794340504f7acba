//! Conversion of Rust values to scalars, and of scalars to other types.

use std::sync::Arc;

use arrow::datatypes::i256;

use super::{Scalar, Value};
use crate::dtype::{DType, DecimalType, PType};
use crate::{Error, Result};

/// All integers of up to this many bits are exact as doubles.
const EXACT_IN_F64: u32 = 53;

macro_rules! from_number {
    ($($native:ty, $ptype:ident, $value:ident;)*) => {$(
        impl From<$native> for Scalar {
            fn from(value: $native) -> Self {
                Self { dtype: DType::Primitive(PType::$ptype, false), value: Value::$value(value.into()) }
            }
        }
    )*};
}

from_number! {
    i8, I8, Int; i16, I16, Int; i32, I32, Int; i64, I64, Int;
    u8, U8, UInt; u16, U16, UInt; u32, U32, UInt; u64, U64, UInt;
    half::f16, F16, F16; f32, F32, F32; f64, F64, F64;
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Self {
        Self { dtype: DType::Bool(false), value: Value::Bool(value) }
    }
}

impl From<&str> for Scalar {
    fn from(value: &str) -> Self {
        Self { dtype: DType::Utf8(false), value: Value::Utf8(value.into()) }
    }
}

impl From<String> for Scalar {
    fn from(value: String) -> Self {
        value.as_str().into()
    }
}

impl From<&[u8]> for Scalar {
    fn from(value: &[u8]) -> Self {
        Self { dtype: DType::Binary(false), value: Value::Binary(value.into()) }
    }
}

impl Scalar {
    /// Converts the value to another type, which the result has. Integers can be converted to other integers,
    /// floats and decimals; floats to wider or narrower ones; decimals to other precisions and scales; text to
    /// bytes; and any of these to an extension type that stores it, such as days to a date. A null can be
    /// converted to any type. Values of extension types keep their type.
    ///
    /// # Errors
    /// If the type cannot represent this value exactly.
    pub fn coerce(&self, dtype: &DType) -> Result<Scalar> {
        if self.is_null() {
            return Ok(Scalar::null(dtype));
        }
        let unchanged = self.dtype.with_nullable(false) == dtype.with_nullable(false);
        let value = match (&self.value, dtype.storage()) {
            (value, _) if unchanged => Some(value.clone()),
            _ if matches!(self.dtype, DType::Extension(_)) => None,
            (Value::Int(_) | Value::UInt(_), DType::Primitive(..) | DType::Decimal(..)) => {
                self.as_i128().and_then(|value| integer_as(value, dtype.storage()))
            }
            (Value::F16(v), DType::Primitive(ptype, _)) => float_as(v.to_f64(), *ptype),
            (Value::F32(v), DType::Primitive(ptype, _)) => float_as(f64::from(*v), *ptype),
            (Value::F64(v), DType::Primitive(ptype, _)) => float_as(*v, *ptype),
            (Value::Utf8(text), DType::Binary(_)) => Some(Value::Binary(Arc::from(text.as_bytes()))),
            (Value::Decimal(unscaled), DType::Decimal(to, _)) => match &self.dtype {
                DType::Decimal(from, _) => rescaled(*unscaled, from.scale(), to),
                _ => None,
            },
            (value, storage) => {
                let stored = self.dtype.with_nullable(false) == storage.with_nullable(false);
                stored.then(|| value.clone())
            }
        };
        value.and_then(|value| Scalar::try_new(dtype.clone(), value).ok()).ok_or_else(|| {
            Error::invalid(format!("{self} of type {} is not a value of type {dtype}", self.dtype))
        })
    }
}

fn integer_as(value: i128, dtype: &DType) -> Option<Value> {
    match dtype {
        DType::Primitive(ptype, _) if ptype.is_signed() => i64::try_from(value).ok().map(Value::Int),
        DType::Primitive(ptype, _) if ptype.is_unsigned() => u64::try_from(value).ok().map(Value::UInt),
        DType::Primitive(ptype, _) => {
            let is_exact = value.unsigned_abs() <= 1 << EXACT_IN_F64;
            is_exact.then_some(value as f64).and_then(|value| float_as(value, *ptype))
        }
        DType::Decimal(decimal, _) => rescaled(i256::from_i128(value), 0, decimal),
        _ => None,
    }
}

/// A decimal with an unscaled value at scale `from`, as one of another precision and scale.
fn rescaled(unscaled: i256, from: i8, to: &DecimalType) -> Option<Value> {
    let ten = |power: u32| i256::from_i128(10).checked_pow(power);
    let shift = i32::from(to.scale()) - i32::from(from);
    let factor = ten(shift.unsigned_abs())?;
    let unscaled = match shift >= 0 {
        true => unscaled.checked_mul(factor)?,
        false => unscaled.checked_div(factor).filter(|_| unscaled.checked_rem(factor) == Some(i256::ZERO))?,
    };
    let bound = ten(to.precision().into())?;
    (unscaled < bound && unscaled.checked_neg()? < bound).then_some(Value::Decimal(unscaled))
}

fn float_as(value: f64, ptype: PType) -> Option<Value> {
    let same = |other: f64| other == value || (other.is_nan() && value.is_nan());
    match ptype {
        PType::F16 => Some(half::f16::from_f64(value)).filter(|v| same(v.to_f64())).map(Value::F16),
        PType::F32 => Some(value as f32).filter(|v| same(f64::from(*v))).map(Value::F32),
        PType::F64 => Some(Value::F64(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{DecimalType, Extension};

    fn coerced(value: impl Into<Scalar>, dtype: &DType) -> Option<Value> {
        value.into().coerce(dtype).ok().map(|scalar| {
            assert_eq!(scalar.dtype(), dtype);
            scalar.value().clone()
        })
    }

    #[test]
    fn integers_become_other_numbers_that_are_equal() {
        let number = |ptype| DType::Primitive(ptype, true);
        let decimal =
            |precision, scale| DType::Decimal(DecimalType::try_new(precision, scale).unwrap(), false);
        assert_eq!(coerced(7, &number(PType::U8)), Some(Value::UInt(7)));
        assert_eq!(coerced(7u64, &number(PType::I64)), Some(Value::Int(7)));
        assert_eq!(coerced(300, &number(PType::U8)), None);
        assert_eq!(coerced(-1, &number(PType::U64)), None);
        assert_eq!(coerced(u64::MAX, &number(PType::I64)), None);
        assert_eq!(coerced(7, &number(PType::F32)), Some(Value::F32(7.0)));
        assert_eq!(coerced(1i64 << 53, &number(PType::F64)), Some(Value::F64(9_007_199_254_740_992.0)));
        assert_eq!(coerced((1i64 << 53) + 1, &number(PType::F64)), None);
        assert_eq!(coerced((1i64 << 24) + 1, &number(PType::F32)), None);
        assert_eq!(coerced(-12, &decimal(5, 2)), Some(Value::Decimal(i256::from_i128(-1200))));
        assert_eq!(coerced(1000, &decimal(5, 2)), None);
        assert_eq!(
            coerced(i64::MIN, &decimal(76, 57)),
            Some(Value::Decimal(
                i256::from_i128(i64::MIN.into()) * i256::from_i128(10).checked_pow(57).unwrap()
            ))
        );
        assert_eq!(coerced(i64::MIN, &decimal(76, 58)), None);
    }

    #[test]
    fn decimals_are_rescaled_if_that_is_exact() {
        let decimal =
            |precision, scale| DType::Decimal(DecimalType::try_new(precision, scale).unwrap(), false);
        let price = Scalar::try_new(decimal(10, 2), Value::Decimal(i256::from_i128(150))).unwrap();
        let unscaled = |to: &DType| match coerced(price.clone(), to) {
            Some(Value::Decimal(unscaled)) => unscaled.to_i128(),
            other => other.map(|_| panic!("a decimal")),
        };
        assert_eq!(unscaled(&decimal(10, 3)), Some(1500));
        assert_eq!(unscaled(&decimal(5, 1)), Some(15));
        assert_eq!(unscaled(&decimal(5, 0)), None, "1.5");
        assert_eq!(unscaled(&decimal(2, 2)), None, "too many digits");
    }

    #[test]
    fn values_of_extension_types_are_not_taken_for_those_of_others() {
        let days = Extension::try_new("vortex.date", DType::Primitive(PType::I32, false), vec![4]).unwrap();
        let nullable = DType::Extension(Arc::new(days.with_nullable(true)));
        let millis = Extension::try_new("vortex.date", DType::Primitive(PType::I64, false), vec![2]).unwrap();
        let day = Scalar::try_new(DType::Extension(Arc::new(days)), Value::Int(19_000)).unwrap();
        assert_eq!(coerced(day.clone(), &nullable), Some(Value::Int(19_000)));
        assert_eq!(coerced(day.clone(), &DType::Extension(Arc::new(millis))), None);
        assert_eq!(coerced(day, &DType::Primitive(PType::I32, false)), None);
    }

    #[test]
    fn floats_keep_their_value_and_the_sign_of_zero() {
        let number = |ptype| DType::Primitive(ptype, false);
        assert_eq!(coerced(0.5, &number(PType::F32)), Some(Value::F32(0.5)));
        assert_eq!(coerced(0.1, &number(PType::F32)), None);
        assert_eq!(coerced(0.1f32, &number(PType::F64)), Some(Value::F64(0.1f32.into())));
        assert_eq!(coerced(1.0, &number(PType::I32)), None);
        let Some(Value::F32(zero)) = coerced(-0.0, &number(PType::F32)) else { panic!() };
        assert!(zero.is_sign_negative());
        assert!(matches!(coerced(f64::NAN, &number(PType::F32)), Some(Value::F32(v)) if v.is_nan()));
    }

    #[test]
    fn values_become_those_of_extension_types_that_store_them() {
        let date = Extension::try_new("vortex.date", DType::Primitive(PType::I32, false), vec![4]).unwrap();
        assert_eq!(coerced(19_000i64, &DType::Extension(Arc::new(date))), Some(Value::Int(19_000)));
        assert_eq!(coerced("a", &DType::Binary(true)), Some(Value::Binary(Arc::from(*b"a"))));
        assert_eq!(coerced("a", &DType::Primitive(PType::I32, true)), None);
        let null = Scalar::null(&DType::Utf8(true)).coerce(&DType::Bool(false)).unwrap();
        assert!(null.is_null() && null.dtype() == &DType::Bool(true));
    }
}
