//! What is known about a column without reading it.

pub(crate) mod compute;
pub(crate) mod extreme;
pub(crate) mod text_bounds;

use crate::dtype::{DType, DecimalType, PType};
use crate::scalar::{Scalar, Value};

/// The relation of a statistic to the data.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum Precision<T> {
    /// Equal to the value in the data.
    Exact(T),
    /// A bound: at or below the data for a minimum, at or above the data for a maximum.
    Inexact(T),
    /// Unknown.
    #[default]
    Absent,
}

impl<T> Precision<T> {
    /// The value, whether exact or a bound.
    pub fn value(&self) -> Option<&T> {
        match self {
            Precision::Exact(value) | Precision::Inexact(value) => Some(value),
            Precision::Absent => None,
        }
    }

    /// The value if it is exact.
    pub fn exact(&self) -> Option<&T> {
        match self {
            Precision::Exact(value) => Some(value),
            _ => None,
        }
    }
}

/// Statistics of one field of a file, over all rows. Minimum and maximum ignore nulls and NaN.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct FieldStats {
    /// Minimum value.
    pub min: Precision<Scalar>,
    /// Maximum value.
    pub max: Precision<Scalar>,
    /// Sum in the widened type: u64, i64, f64, or a decimal with 10 more digits.
    pub sum: Option<Scalar>,
    /// Number of nulls.
    pub null_count: Option<u64>,
    /// Number of NaN values; for floats only.
    pub nan_count: Option<u64>,
    /// Whether values are in ascending order.
    pub is_sorted: Option<bool>,
    /// Whether values are in strictly ascending order.
    pub is_strict_sorted: Option<bool>,
    /// Whether all values are equal.
    pub is_constant: Option<bool>,
    /// Bytes of the uncompressed column.
    pub uncompressed_size: Option<u64>,
}

/// Whether values of this type can be NaN.
pub(crate) fn is_float(dtype: &DType) -> bool {
    matches!(dtype.storage(), DType::Primitive(ptype, _) if ptype.is_float())
}

/// The type of a sum over a column, if it has one.
pub(crate) fn sum_dtype(dtype: &DType) -> Option<DType> {
    Some(match dtype {
        DType::Bool(_) => DType::Primitive(PType::U64, true),
        DType::Primitive(ptype, _) if ptype.is_unsigned() => DType::Primitive(PType::U64, true),
        DType::Primitive(ptype, _) if ptype.is_signed() => DType::Primitive(PType::I64, true),
        DType::Primitive(..) => DType::Primitive(PType::F64, true),
        DType::Decimal(decimal, _) => {
            let precision = decimal.precision().saturating_add(10).min(DecimalType::MAX_PRECISION);
            DType::Decimal(DecimalType::try_new(precision, decimal.scale()).ok()?, true)
        }
        _ => return None,
    })
}

/// Widens a bound so that it holds in total order: writers compare `-0.0` and `0.0` as equal and may have
/// stored either, while predicates distinguish them.
pub(crate) fn widen_zero(value: &Scalar, is_min: bool) -> Scalar {
    let widened = match value.value() {
        Value::F16(v) if *v == half::f16::ZERO => {
            Value::F16(if is_min { half::f16::NEG_ZERO } else { half::f16::ZERO })
        }
        Value::F32(v) if *v == 0.0 => Value::F32(if is_min { -0.0 } else { 0.0 }),
        Value::F64(v) if *v == 0.0 => Value::F64(if is_min { -0.0 } else { 0.0 }),
        _ => return value.clone(),
    };
    Scalar::try_new(value.dtype().clone(), widened).unwrap_or_else(|_| value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_bound_covers_both_zeros() {
        let zero = |v| Scalar::try_new(DType::Primitive(PType::F64, false), Value::F64(v)).unwrap();
        assert_eq!(widen_zero(&zero(0.0), true).compare(&zero(-0.0)), Some(std::cmp::Ordering::Equal));
        assert_eq!(widen_zero(&zero(-0.0), false).compare(&zero(0.0)), Some(std::cmp::Ordering::Equal));
    }
}
