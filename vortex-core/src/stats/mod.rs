//! What is known about a column without reading it.

pub(crate) mod compute;
pub(crate) mod extreme;
pub(crate) mod text_bounds;

use crate::dtype::{DType, DecimalType, PType};
use crate::limits::Limits;
use crate::scalar::{Scalar, Value};
use crate::wire::{RawStats, scalar_from_bytes};

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

impl FieldStats {
    /// Interprets stored statistics of a column. What does not fit the type, or is impossible for
    /// `row_count` rows, is left out: statistics are optional, so broken ones must not do harm. So are bounds
    /// of nested values, which nothing uses, and the number of nulls of structs, since release 0.36 counts
    /// nulls that it does not store.
    pub(crate) fn read(raw: &RawStats, dtype: &DType, row_count: u64, limits: &Limits) -> Self {
        let scalar = |bytes: &[u8], dtype: &DType| {
            if dtype.is_nested() {
                return None;
            }
            scalar_from_bytes(bytes, &dtype.with_nullable(true), limits).ok().filter(|value| !value.is_null())
        };
        let bound = |stored: &Option<(bytes::Bytes, bool)>| match stored {
            Some((bytes, exact)) => match scalar(bytes, dtype) {
                Some(value) if *exact && is_told_exactly(&value) => Precision::Exact(value),
                Some(value) => Precision::Inexact(value),
                None => Precision::Absent,
            },
            None => Precision::Absent,
        };
        let count = |stored: Option<u64>| stored.filter(|count| *count <= row_count);
        let (min, max) = (bound(&raw.min), bound(&raw.max));
        let crossed = match (min.value(), max.value()) {
            (Some(min), Some(max)) => min.compare(max).is_none_or(std::cmp::Ordering::is_gt),
            _ => false,
        };
        let (min, max) = if crossed { (Precision::Absent, Precision::Absent) } else { (min, max) };
        Self {
            min,
            max,
            sum: raw.sum.as_ref().and_then(|bytes| scalar(bytes, &sum_dtype(dtype)?)),
            null_count: count(raw.null_count).filter(|_| !matches!(dtype, DType::Struct(_, true))),
            nan_count: count(raw.nan_count),
            is_sorted: raw.is_sorted,
            is_strict_sorted: raw.is_strict_sorted,
            is_constant: raw.is_constant,
            uncompressed_size: raw.uncompressed_size_in_bytes,
        }
    }
}

/// Length in bytes from which on a text bound may have been truncated: releases before 0.84 truncate at
/// 64 bytes, or a bit earlier if characters are long or have no successor, and call the result exact.
const MAY_BE_CUT: usize = 48;

/// Whether a bound that is called exact is really a value of the column: long text may be truncated, and
/// releases before 0.54 state `false` as the minimum of booleans that are all true.
fn is_told_exactly(bound: &Scalar) -> bool {
    match bound.value() {
        Value::Bool(_) => false,
        Value::Utf8(text) => text.len() < MAY_BE_CUT,
        Value::Binary(bytes) => bytes.len() < MAY_BE_CUT,
        _ => true,
    }
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
    use std::sync::Arc;

    use super::*;
    use crate::dtype::StructType;

    fn raw(min: &[u8], max: &[u8], null_count: u64) -> RawStats {
        RawStats {
            min: Some((min.to_vec().into(), true)),
            max: Some((max.to_vec().into(), true)),
            null_count: Some(null_count),
            ..RawStats::default()
        }
    }

    #[test]
    fn bounds_of_nested_values_are_left_out() {
        let list = DType::List(Arc::new(DType::Primitive(PType::I32, false)), false);
        // A list of one number.
        let raw = raw(&[0x4a, 4, 0x0a, 2, 0x18, 2], &[0x4a, 4, 0x0a, 2, 0x18, 4], 3);
        let found = FieldStats::read(&raw, &list, 10, &Limits::default());
        assert_eq!((found.min, found.max, found.null_count), (Precision::Absent, Precision::Absent, Some(3)));
    }

    #[test]
    fn statistics_that_cannot_be_true_are_left_out() {
        let i32 = DType::Primitive(PType::I32, false);
        let read = |raw: &RawStats| FieldStats::read(raw, &i32, 10, &Limits::default());
        let fine = read(&raw(&[0x18, 0x02], &[0x18, 0x04], 3));
        assert_eq!(fine.min.exact().unwrap().as_i128(), Some(1));
        assert_eq!(fine.null_count, Some(3));
        let crossed = read(&raw(&[0x18, 0x04], &[0x18, 0x02], 11));
        assert_eq!(
            (crossed.min, crossed.max, crossed.null_count),
            (Precision::Absent, Precision::Absent, None)
        );
        assert_eq!(read(&raw(&[0x3a, 0], &[0x18, 0x02], 0)).min, Precision::Absent);
        let structs = DType::Struct(Arc::new(StructType::new([])), true);
        let counted = RawStats { null_count: Some(3), ..RawStats::default() };
        assert_eq!(FieldStats::read(&counted, &structs, 10, &Limits::default()).null_count, None);
    }

    #[test]
    fn a_zero_bound_covers_both_zeros() {
        let zero = |v| Scalar::try_new(DType::Primitive(PType::F64, false), Value::F64(v)).unwrap();
        assert_eq!(widen_zero(&zero(0.0), true).compare(&zero(-0.0)), Some(std::cmp::Ordering::Equal));
        assert_eq!(widen_zero(&zero(-0.0), false).compare(&zero(0.0)), Some(std::cmp::Ordering::Equal));
    }
}
