//! Single typed values, as used in metadata, statistics and predicates.

mod arrays;
mod coerce;
mod extract;
mod rows;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::array::{self, ArrayRef};
use arrow::datatypes::{DataType, i256};
use half::f16;

pub(crate) use self::arrays::array_of;
pub(crate) use self::rows::null_rows;
use crate::array::has_digits_of;
use crate::dtype::{DType, PType};
use crate::limits::{Limits, counted_apart};
use crate::{Error, Excerpt, Result};

/// A value without its type. Integers are widened; the dtype determines their actual type.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    F16(f16),
    F32(f32),
    F64(f64),
    /// The unscaled value.
    Decimal(i256),
    Utf8(Arc<str>),
    Binary(Arc<[u8]>),
    /// Elements of a list, fields of a struct, or entries of a map.
    List(Arc<[Value]>),
    /// A self-describing value.
    Variant(Arc<Scalar>),
    /// A union value: its type id and the value.
    Union(u8, Arc<Value>),
}

/// One value of a [`DType`]. An extension value is represented by its storage value.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    dtype: DType,
    value: Value,
}

impl Scalar {
    /// Creates a value of a type.
    ///
    /// # Errors
    /// If the value does not fit the type, or is null and the type is not nullable.
    pub fn try_new(dtype: DType, value: Value) -> Result<Self> {
        if !fits(&dtype, &value) {
            return Err(Error::invalid(format!("{} is not a value of type {dtype}", shown(&value, &dtype))));
        }
        Ok(Self { dtype, value })
    }

    /// The null of a type, which becomes nullable.
    pub fn null(dtype: &DType) -> Self {
        Self { dtype: dtype.with_nullable(true), value: Value::Null }
    }

    /// The type.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    /// The value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Whether this is null, also if that is the value of a variant of a union.
    pub fn is_null(&self) -> bool {
        let mut value = &self.value;
        while let Value::Union(_, inner) = value {
            value = inner;
        }
        *value == Value::Null
    }

    /// The same value with the storage type of its type, if that is an extension type.
    #[must_use]
    pub fn to_storage(&self) -> Scalar {
        Self { dtype: self.dtype.storage().clone(), value: self.value.clone() }
    }

    /// The same value under another type.
    ///
    /// # Errors
    /// If it does not fit that type.
    pub fn with_dtype(&self, dtype: &DType) -> Result<Scalar> {
        let value = match (&self.value, dtype.storage()) {
            (Value::Int(v), DType::Primitive(ptype, _)) if ptype.is_unsigned() => {
                Value::UInt(u64::try_from(*v).map_err(|_| Error::invalid(format!("{v} is not a {ptype}")))?)
            }
            (Value::UInt(v), DType::Primitive(ptype, _)) if ptype.is_signed() => {
                Value::Int(i64::try_from(*v).map_err(|_| Error::invalid(format!("{v} is not a {ptype}")))?)
            }
            (value, _) => value.clone(),
        };
        Self::try_new(dtype.clone(), value)
    }

    /// The integer, whatever its signedness.
    pub fn as_i128(&self) -> Option<i128> {
        self.value.as_i128()
    }

    /// The text.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Utf8(text) => Some(text),
            _ => None,
        }
    }

    /// The bytes of a string or byte string.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.value {
            Value::Utf8(text) => Some(text.as_bytes()),
            Value::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Order of two values of the same type, whether nullable or not: floats by total order, as Arrow compares.
    /// `None` if either is null, for types without order, and for values in different units: decimals of different
    /// scales, temporal types of different units. Only constants of filters are converted to the type of their column.
    pub fn compare(&self, other: &Scalar) -> Option<Ordering> {
        let same_unit = match (&self.dtype, &other.dtype) {
            (DType::Decimal(left, _), DType::Decimal(right, _)) => left.scale() == right.scale(),
            (DType::Extension(left), DType::Extension(right)) => left.meaning().counts_as(right.meaning()),
            (DType::Extension(_), _) | (_, DType::Extension(_)) => false,
            _ => true,
        };
        if same_unit { compare_values(&self.value, &other.value) } else { None }
    }

    /// An Arrow array of `len` rows that all hold this value, in the type `to`. Encodings check the limits
    /// of their file first.
    ///
    /// # Errors
    /// If `to` cannot represent the value, or nulls exceed the default [`Limits`].
    pub fn to_arrow(&self, to: &DataType, len: usize) -> Result<ArrayRef> {
        rows::expand(&self.value, &self.dtype, to, len, &Limits::default())
    }

    /// As [`to_arrow`](Self::to_arrow), of rows that were counted already.
    pub(crate) fn to_counted_arrow(&self, to: &DataType, len: usize) -> Result<ArrayRef> {
        counted_apart(|| rows::expand(&self.value, &self.dtype, to, len, &Limits::of_any_bytes()))
    }

    /// The value in row `at` of an Arrow array that represents `dtype`.
    ///
    /// # Errors
    /// If the array has another type.
    pub fn from_arrow(array: &dyn array::Array, at: usize, dtype: &DType) -> Result<Scalar> {
        let value = extract::extract(array, at, dtype)?;
        let dtype = if value == Value::Null { dtype.with_nullable(true) } else { dtype.clone() };
        Scalar::try_new(dtype, value)
    }

    /// As [`from_arrow`](Self::from_arrow), of an array that was decoded from a file. What the value takes counts as
    /// decoded.
    ///
    /// # Errors
    /// Also if that exceeds the limits.
    pub(crate) fn from_decoded(
        array: &dyn array::Array,
        at: usize,
        dtype: &DType,
        limits: &Limits,
    ) -> Result<Scalar> {
        if at < array.len() && !array.is_null(at) {
            limits.count_bytes(extract::scalar_bytes(array, at..at + 1) as u64)?;
        }
        Self::from_arrow(array, at, dtype)
    }
}

fn fits(dtype: &DType, value: &Value) -> bool {
    match (dtype.storage(), value) {
        (dtype, Value::Null) => dtype.is_nullable(),
        (DType::Bool(_), Value::Bool(_))
        | (DType::Primitive(PType::F16, _), Value::F16(_))
        | (DType::Primitive(PType::F32, _), Value::F32(_))
        | (DType::Primitive(PType::F64, _), Value::F64(_))
        | (DType::Utf8(_), Value::Utf8(_))
        | (DType::Binary(_), Value::Binary(_))
        | (DType::Variant(_), Value::Variant(_)) => true,
        (DType::Decimal(decimal, _), Value::Decimal(unscaled)) => has_digits_of(*decimal, *unscaled),
        (DType::Primitive(ptype, _), Value::Int(v)) if ptype.is_signed() => {
            let bits = ptype.bit_width() as u32;
            bits == 64 || (*v >= -(1i64 << (bits - 1)) && *v < (1i64 << (bits - 1)))
        }
        (DType::Primitive(ptype, _), Value::UInt(v)) if ptype.is_unsigned() => {
            let bits = ptype.bit_width() as u32;
            bits == 64 || *v < (1u64 << bits)
        }
        (DType::List(element, _), Value::List(values)) => values.iter().all(|v| fits(element, v)),
        (DType::FixedSizeList(element, size, _), Value::List(values)) => {
            values.len() == *size as usize && values.iter().all(|v| fits(element, v))
        }
        (DType::Struct(fields, _), Value::List(values)) => {
            values.len() == fields.len() && fields.dtypes().iter().zip(values.iter()).all(|(d, v)| fits(d, v))
        }
        (DType::Map(map, _), Value::List(values)) => {
            let entry = map.entry();
            values.iter().all(|v| fits(&entry, v))
        }
        (DType::Union(union, _), Value::Union(id, value)) => {
            union.position(*id).is_some_and(|at| fits(&union.variants().dtypes()[at], value))
        }
        _ => false,
    }
}

/// Order of two values of the same type, as in [`Scalar::compare`].
pub(crate) fn compare_values(left: &Value, right: &Value) -> Option<Ordering> {
    Some(match (left, right) {
        (Value::Bool(l), Value::Bool(r)) => l.cmp(r),
        (Value::Int(l), Value::Int(r)) => l.cmp(r),
        (Value::UInt(l), Value::UInt(r)) => l.cmp(r),
        (Value::Int(l), Value::UInt(r)) => i128::from(*l).cmp(&i128::from(*r)),
        (Value::UInt(l), Value::Int(r)) => i128::from(*l).cmp(&i128::from(*r)),
        (Value::F16(l), Value::F16(r)) => l.total_cmp(r),
        (Value::F32(l), Value::F32(r)) => l.total_cmp(r),
        (Value::F64(l), Value::F64(r)) => l.total_cmp(r),
        (Value::Decimal(l), Value::Decimal(r)) => l.cmp(r),
        (Value::Utf8(l), Value::Utf8(r)) => l.cmp(r),
        (Value::Binary(l), Value::Binary(r)) => l.cmp(r),
        _ => return None,
    })
}

impl Value {
    /// The integer, whatever its signedness.
    pub(crate) fn as_i128(&self) -> Option<i128> {
        match self {
            Value::Int(v) => Some((*v).into()),
            Value::UInt(v) => Some((*v).into()),
            _ => None,
        }
    }

    /// Whether this is a float that is not a number.
    pub fn is_nan(&self) -> bool {
        match self {
            Value::F16(value) => value.is_nan(),
            Value::F32(value) => value.is_nan(),
            Value::F64(value) => value.is_nan(),
            _ => false,
        }
    }
}

impl fmt::Display for Scalar {
    /// Shows the value; only the first of many bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(&self.value, &self.dtype).fmt(f)
    }
}

/// A value of a type as text, which is cut if it is long.
fn shown<'a>(value: &'a Value, dtype: &'a DType) -> Excerpt<Typed<'a>> {
    Excerpt(Typed(value, dtype))
}

struct Typed<'a>(&'a Value, &'a DType);

impl fmt::Display for Typed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(self.0, self.1, f)
    }
}

fn display(value: &Value, dtype: &DType, f: &mut dyn fmt::Write) -> fmt::Result {
    match value {
        Value::Null => f.write_str("null"),
        Value::Bool(v) => write!(f, "{v}"),
        Value::Int(v) => write!(f, "{v}"),
        Value::UInt(v) => write!(f, "{v}"),
        Value::F16(v) => write!(f, "{v}"),
        Value::F32(v) => write!(f, "{v}"),
        Value::F64(v) => write!(f, "{v}"),
        Value::Decimal(v) => match dtype.storage() {
            DType::Decimal(decimal, _) if decimal.scale() != 0 => {
                write!(f, "{v}e{}", -i16::from(decimal.scale()))
            }
            _ => write!(f, "{v}"),
        },
        Value::Utf8(v) => write!(f, "{v:?}"),
        Value::Binary(v) => v.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        Value::List(values) => {
            f.write_str("[")?;
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    f.write_str(", ")?;
                }
                display(value, &part(dtype, at), f)?;
            }
            f.write_str("]")
        }
        Value::Variant(inner) => write!(f, "{inner}"),
        Value::Union(id, inner) => {
            let variant = match dtype.storage() {
                DType::Union(union, _) => union.position(*id).map(|at| &union.variants().dtypes()[at]),
                _ => None,
            };
            write!(f, "{id}:")?;
            display(inner, variant.unwrap_or(dtype), f)
        }
    }
}

/// The type of element, field or entry `at` of a value.
fn part(dtype: &DType, at: usize) -> Cow<'_, DType> {
    match dtype.storage() {
        DType::List(element, _) | DType::FixedSizeList(element, ..) => Cow::Borrowed(element),
        DType::Struct(fields, _) => Cow::Borrowed(fields.dtypes().get(at).unwrap_or(dtype)),
        DType::Map(map, _) => Cow::Owned(map.entry()),
        _ => Cow::Borrowed(dtype),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{DecimalType, MapType, StructType, UnionType};

    #[test]
    fn long_values_are_cut_when_they_are_shown() {
        let text = |text: String| Scalar::try_new(DType::Utf8(false), Value::Utf8(text.into())).unwrap();
        assert_eq!(text("a\"".into()).to_string(), r#""a\"""#);
        assert!(text("\u{e9}".repeat(1 << 20)).to_string().ends_with("\u{e9}..."));
        let bytes = Value::Binary(vec![1; 1 << 20].into());
        let bytes = Value::List(vec![bytes; 3].into());
        let binary = DType::List(Arc::new(DType::Binary(false)), false);
        let error = Scalar::try_new(DType::Bool(false), bytes.clone()).unwrap_err().to_string();
        assert!(error.len() < 2000 && error.ends_with("... is not a value of type bool"), "{error}");
        assert!(Scalar::try_new(binary, bytes).unwrap().to_string().starts_with("[0101"));
    }

    #[test]
    fn a_value_out_of_range_does_not_fit() {
        let i8 = DType::Primitive(PType::I8, false);
        assert!(Scalar::try_new(i8.clone(), Value::Int(-128)).is_ok());
        assert!(Scalar::try_new(i8.clone(), Value::Int(128)).is_err());
        assert!(Scalar::try_new(i8, Value::Null).is_err());
        assert!(Scalar::try_new(DType::Primitive(PType::U64, true), Value::UInt(u64::MAX)).is_ok());
        let decimal = DType::Decimal(DecimalType::try_new(3, 0).unwrap(), false);
        let unscaled = |value| Value::Decimal(i256::from_i128(value));
        assert!(Scalar::try_new(decimal.clone(), unscaled(-999)).is_ok());
        assert!(Scalar::try_new(decimal, unscaled(1000)).is_err());
    }

    #[test]
    fn floats_compare_by_total_order() {
        let float = |v| Scalar::try_new(DType::Primitive(PType::F64, false), Value::F64(v)).unwrap();
        assert_eq!(float(-0.0).compare(&float(0.0)), Some(Ordering::Less));
        assert_eq!(float(f64::NAN).compare(&float(f64::INFINITY)), Some(Ordering::Greater));
    }

    #[test]
    fn values_in_different_units_have_no_order() {
        let price = |unscaled, scale| Scalar::decimal(unscaled, scale).unwrap();
        assert_eq!(price(150, 2).compare(&price(20_000, 2)), Some(Ordering::Less));
        assert_eq!(price(150, 2).compare(&price(2, 0)), None);
        let time = |ticks, unit, zone| Scalar::timestamp(ticks, unit, zone).unwrap();
        let (second, milli) = (arrow::datatypes::TimeUnit::Second, arrow::datatypes::TimeUnit::Millisecond);
        assert_eq!(time(2, second, None).compare(&time(1, second, None)), Some(Ordering::Greater));
        assert_eq!(time(2, second, None).compare(&time(1, milli, None)), None);
        assert_eq!(
            time(2, second, Some("UTC")).compare(&time(2, second, Some("+01:00"))),
            Some(Ordering::Equal)
        );
        assert_eq!(time(2, second, Some("UTC")).compare(&time(2, second, None)), None);
        let day = Scalar::date(1970, 1, 2).unwrap();
        assert_eq!(day.compare(&time(1, second, None)), None);
        assert_eq!(day.compare(&Scalar::from(1)), None);
    }

    #[test]
    fn decimals_have_their_scale_wherever_they_are() {
        let decimal = DType::Decimal(DecimalType::try_new(5, 2).unwrap(), false);
        let number = || Value::Decimal(i256::from_i128(150));
        let shown = |dtype, value| Scalar::try_new(dtype, value).unwrap().to_string();
        assert_eq!(shown(decimal.clone(), number()), "150e-2");

        let list = || Value::List([number(), number()].into());
        let element = Arc::new(decimal.clone());
        assert_eq!(shown(DType::List(Arc::clone(&element), false), list()), "[150e-2, 150e-2]");
        assert_eq!(shown(DType::FixedSizeList(element, 2, false), list()), "[150e-2, 150e-2]");

        let text = || Value::Utf8("a".into());
        let fields = StructType::new([("t".into(), DType::Utf8(false)), ("d".into(), decimal.clone())]);
        let row = Value::List([text(), number()].into());
        assert_eq!(shown(DType::Struct(Arc::new(fields.clone()), false), row.clone()), r#"["a", 150e-2]"#);
        let map = MapType::try_new(DType::Utf8(false), decimal, false).unwrap();
        let entries = Value::List([row].into());
        assert_eq!(shown(DType::Map(Arc::new(map), false), entries), r#"[["a", 150e-2]]"#);
        let union = UnionType::try_new(fields, [3u8, 7]).unwrap();
        assert_eq!(shown(DType::Union(Arc::new(union), false), Value::Union(7, number().into())), "7:150e-2");
    }
}
