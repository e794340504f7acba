//! Conversion of Rust values to scalars, and of scalars to other types.

use std::sync::Arc;

use arrow::compute::kernels::cast_utils::Parser as _;
use arrow::datatypes::{DataType, Date32Type, Field, TimeUnit, i256};

use super::{Scalar, Value};
use crate::dtype::arrow::from_field;
use crate::dtype::{DType, DecimalType, Meaning, PType};
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

impl From<Vec<u8>> for Scalar {
    fn from(value: Vec<u8>) -> Self {
        value.as_slice().into()
    }
}

impl Scalar {
    /// A day of the Gregorian calendar. As a constant of a filter, it can be compared with dates in any unit.
    ///
    /// ```
    /// use vortex_core::scalar::Scalar;
    /// use vortex_core::expr::column;
    ///
    /// let shipped_later = column("l_shipdate").gt(Scalar::date(1995, 3, 15)?);
    /// # Ok::<(), vortex_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such day, or it is too far from 1970 for 32 bits.
    pub fn date(year: i32, month: u8, day: u8) -> Result<Self> {
        // A year with a sign may have any number of digits.
        let text = format!("{year:+05}-{month:02}-{day:02}");
        let days = Date32Type::parse(&text).ok_or_else(|| Error::invalid(format!("no date {text}")))?;
        Self::try_new(from_field(&Field::new("date", DataType::Date32, false))?, Value::Int(days.into()))
    }

    /// A timestamp: ticks since 1970, in UTC if there is a time zone. As a constant of a filter, it can be compared
    /// with timestamps in any unit; those with a zone with ones of any zone, those without only with ones without.
    ///
    /// ```
    /// use vortex_core::scalar::Scalar;
    /// use vortex_core::arrow::datatypes::TimeUnit;
    /// use vortex_core::expr::column;
    ///
    /// let noon = Scalar::timestamp(1_767_268_800, TimeUnit::Second, Some("UTC"))?;
    /// let visits_since = column("visited_at").gt_eq(noon);
    /// # Ok::<(), vortex_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the name of the zone exceeds 65,535 bytes.
    pub fn timestamp(ticks: i64, unit: TimeUnit, zone: Option<&str>) -> Result<Self> {
        let data_type = DataType::Timestamp(unit, zone.map(Into::into));
        Self::try_new(from_field(&Field::new("timestamp", data_type, false))?, Value::Int(ticks))
    }

    /// The decimal `unscaled * 10^-scale`, with as few digits as possible. As a constant of a filter, it can be
    /// compared with decimals of any precision and scale that can represent it.
    ///
    /// ```
    /// use vortex_core::scalar::Scalar;
    /// use vortex_core::expr::column;
    ///
    /// let cheap = column("price").lt(Scalar::decimal(12_50, 2)?);
    /// # Ok::<(), vortex_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the scale is not -76 to 76.
    pub fn decimal(unscaled: i128, scale: i8) -> Result<Self> {
        let digits = unscaled.unsigned_abs().checked_ilog10().map_or(1, |log| log as u8 + 1);
        let precision = digits.max(u8::try_from(scale).unwrap_or(0));
        let dtype = DType::Decimal(DecimalType::try_new(precision, scale)?, false);
        Self::try_new(dtype, Value::Decimal(i256::from_i128(unscaled)))
    }

    /// An integer as a value of an integer type; `None` if that type does not have it, or of another type.
    pub(crate) fn integer(dtype: &DType, value: i128) -> Option<Self> {
        if !dtype.as_ptype()?.is_integer() {
            return None;
        }
        Self::try_new(dtype.clone(), integer_as(value, dtype)?).ok()
    }

    /// Converts the value to another type, which the result has. Integers can be converted to other integers,
    /// floats and decimals; floats to wider or narrower ones; decimals to other precisions and scales; text to
    /// bytes; and any of these to an extension type that stores it, such as days to a date. A null can be
    /// converted to any type. Dates, times and timestamps can be converted to other units, and timestamps
    /// with a time zone to other zones; values of other extension types keep their type.
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
            (value, _) if is_same_but_for_metadata(&self.dtype, dtype) => Some(value.clone()),
            (value, _) if matches!(self.dtype, DType::Extension(_)) => time_as(value, &self.dtype, dtype),
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

/// Whether extension types mean the same, although their metadata differ: UUIDs may state their version.
fn is_same_but_for_metadata(from: &DType, to: &DType) -> bool {
    let (DType::Extension(from), DType::Extension(to)) = (from, to) else { return false };
    *from.meaning() != Meaning::Unknown
        && from.meaning().counts_as(to.meaning())
        && from.storage().with_nullable(false) == to.storage().with_nullable(false)
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
    let unscaled = if shift >= 0 {
        unscaled.checked_mul(factor)?
    } else {
        unscaled.checked_div(factor).filter(|_| unscaled.checked_rem(factor) == Some(i256::ZERO))?
    };
    let bound = ten(to.precision().into())?;
    (unscaled < bound && unscaled.checked_neg()? < bound).then_some(Value::Decimal(unscaled))
}

/// A date, a time or a timestamp, in the unit of another type.
fn time_as(value: &Value, from: &DType, to: &DType) -> Option<Value> {
    let (Value::Int(ticks), DType::Extension(from), DType::Extension(to)) = (value, from, to) else {
        return None;
    };
    let (from, to) = match (from.meaning(), to.meaning()) {
        (Meaning::Date(from), Meaning::Date(to)) | (Meaning::Time(from), Meaning::Time(to)) => (from, to),
        // With a zone, ticks are in UTC, whichever zone it is.
        (Meaning::Timestamp(from, zone), Meaning::Timestamp(to, other))
            if zone.is_some() == other.is_some() =>
        {
            (from, to)
        }
        _ => return None,
    };
    let per_day = |unit: &crate::dtype::TimeUnit| unit.ticks_per_second().map_or(1, |ticks| ticks * 86_400);
    let ticks = i128::from(*ticks) * i128::from(per_day(to));
    let from = i128::from(per_day(from));
    i64::try_from(ticks / from).ok().filter(|_| ticks % from == 0).map(Value::Int)
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
    fn uuids_are_the_same_whether_their_type_states_a_version_or_not() {
        let bytes = DType::FixedSizeList(Arc::new(DType::Primitive(PType::U8, false)), 16, false);
        let uuids = |metadata| {
            let extension = Extension::try_new("vortex.uuid", bytes.clone(), metadata).unwrap();
            DType::Extension(Arc::new(extension))
        };
        let id = Value::List(vec![Value::UInt(7); 16].into());
        let id = Scalar::try_new(uuids(vec![]), id).unwrap();
        assert_eq!(coerced(id.clone(), &uuids(vec![4])), Some(id.value().clone()));
        assert_eq!(coerced(id, &bytes), None);
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
        let millis = DType::Extension(Arc::new(millis));
        assert_eq!(coerced(day.clone(), &millis), Some(Value::Int(19_000 * 86_400_000)));
        assert_eq!(coerced(day.clone(), &DType::Primitive(PType::I32, false)), None);
        let timestamp = Scalar::timestamp(0, TimeUnit::Second, None).unwrap();
        assert_eq!(coerced(day, timestamp.dtype()), None);
        assert_eq!(coerced(timestamp, &millis), None);
    }

    #[test]
    fn timestamps_change_their_unit_if_that_is_exact() {
        let at = |ticks, unit, zone| Scalar::timestamp(ticks, unit, zone).unwrap();
        let (seconds, nanos) = (TimeUnit::Second, TimeUnit::Nanosecond);
        let to = |unit, zone| at(0, unit, zone).dtype().clone();
        assert_eq!(coerced(at(-7, seconds, None), &to(nanos, None)), Some(Value::Int(-7_000_000_000)));
        assert_eq!(coerced(at(-7_000_000_000, nanos, None), &to(seconds, None)), Some(Value::Int(-7)));
        assert_eq!(coerced(at(7_000_000_001, nanos, None), &to(seconds, None)), None);
        assert_eq!(coerced(at(i64::MAX, seconds, None), &to(nanos, None)), None);
        let berlin = to(seconds, Some("Europe/Berlin"));
        assert_eq!(coerced(at(7, seconds, Some("UTC")), &berlin), Some(Value::Int(7)));
        assert_eq!(coerced(at(7, seconds, None), &berlin), None);
        assert!(Scalar::timestamp(7, seconds, Some(&"x".repeat(1 << 16))).is_err());
    }

    #[test]
    fn a_date_counts_days_since_1970() {
        let days = |year, month, day| Scalar::date(year, month, day).unwrap().as_i128();
        assert_eq!(
            (days(1970, 1, 1), days(1969, 12, 31), days(1995, 3, 15)),
            (Some(0), Some(-1), Some(9204))
        );
        assert_eq!((days(-1, 1, 1), days(29_349, 1, 26)), (Some(-719_893), Some(10_000_000)));
        for (year, month, day) in
            [(2023, 2, 29), (2023, 0, 1), (2023, 13, 1), (2023, 1, 100), (i32::MAX, 1, 1)]
        {
            assert!(Scalar::date(year, month, day).is_err(), "{year} {month} {day}");
        }
    }

    #[test]
    fn a_decimal_has_the_digits_that_it_needs() {
        let dtype = |unscaled, scale| Scalar::decimal(unscaled, scale).unwrap().dtype().to_string();
        assert_eq!(dtype(12_50, 2), "decimal(4,2)");
        assert_eq!(dtype(-1, 3), "decimal(3,3)");
        assert_eq!((dtype(0, 0), dtype(5, -3)), ("decimal(1,0)".into(), "decimal(1,-3)".into()));
        assert_eq!(dtype(i128::MIN, 0), "decimal(39,0)");
        assert!(Scalar::decimal(1, 77).is_err() && Scalar::decimal(1, -77).is_err());
        let cents = DType::Decimal(DecimalType::try_new(15, 3).unwrap(), true);
        let price = coerced(Scalar::decimal(12_50, 2).unwrap(), &cents);
        assert_eq!(price, Some(Value::Decimal(i256::from_i128(12_500))));
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
