//! Aggregates over all rows: counts, extremes, a sum.
//!
//! Encodings can compute much of this without decoding: a run counts as often as it is long, a dictionary
//! value as often as its code occurs, and a frame of reference adds the same amount to all values.

use std::cmp::Ordering;

use arrow::array::{Array as _, ArrayRef as ArrowRef, AsArray as _, BooleanArray};
use arrow::datatypes::{ArrowNativeType, DECIMAL128_MAX_PRECISION, DataType};

use super::{present, values_of};
use crate::Result;
use crate::dtype::arrow::data_type;
use crate::dtype::{DType, PType};
use crate::scalar::{Scalar, Value};
use crate::stats::compute::{Summary, has_bounds};

/// Aggregates of the rows of an array.
///
/// Engines differ in their treatment of NaN and of sums that overflow, so neither is decided here: NaN
/// values are counted and never are extremes, and sums are exact.
///
/// Encodings outside of this crate start from [`empty`](Self::empty) and set what they know.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Aggregate {
    /// Number of rows.
    pub row_count: u64,
    /// Number of nulls.
    pub null_count: u64,
    /// Number of NaN values.
    pub nan_count: u64,
    /// The minimum, where `-0.0` is less than `0.0`. `None` if all rows are null or NaN, or if values of
    /// this type have no order.
    pub min: Option<Scalar>,
    /// The maximum, as [`min`](Self::min).
    pub max: Option<Scalar>,
    /// The sum of integers, of unscaled decimals, or of booleans (the number that are true); 0 if there
    /// are no values. `None` for other types, and if 128 bits cannot represent it.
    pub sum: Option<i128>,
}

impl Aggregate {
    /// The aggregates of no rows.
    pub fn empty(dtype: &DType) -> Self {
        let sum = has_sum(dtype).then_some(0);
        Self { row_count: 0, null_count: 0, nan_count: 0, min: None, max: None, sum }
    }

    /// Aggregates all rows of an array that presents `dtype`.
    ///
    /// # Errors
    /// If it does not.
    pub fn of(array: &ArrowRef, dtype: &DType) -> Result<Self> {
        let array = present(ArrowRef::clone(array), &data_type(dtype)?)?;
        let row_count = array.len() as u64;
        let (min, max, nan_count, sum) = match dtype.storage() {
            _ if !has_bounds(dtype) => (None, None, 0, None),
            DType::Utf8(_) => {
                let (min, max) = extremes(array.as_string_view().iter().flatten());
                (min.map(|text| Value::Utf8(text.into())), max.map(|text| Value::Utf8(text.into())), 0, None)
            }
            DType::Binary(_) => {
                let (min, max) = extremes(array.as_binary_view().iter().flatten());
                let value = |bytes: &[u8]| Value::Binary(bytes.into());
                (min.map(value), max.map(value), 0, None)
            }
            _ => {
                let known = Summary::of(&array, dtype);
                let all_null = known.null_count == known.rows;
                let sum = if all_null { Some(0) } else { known.total() };
                (known.min.bound().cloned(), known.max.bound().cloned(), known.nan_count, sum)
            }
        };
        Ok(Self {
            row_count,
            null_count: array.logical_null_count() as u64,
            nan_count,
            min: min.map(|min| extreme(dtype, min)).transpose()?,
            max: max.map(|max| extreme(dtype, max)).transpose()?,
            sum: sum.filter(|_| has_sum(dtype)),
        })
    }

    /// The aggregates of this many rows of a single value.
    pub(crate) fn of_value(value: &Scalar, row_count: u64) -> Self {
        let nothing = Self { row_count, ..Self::empty(value.dtype()) };
        if value.is_null() {
            return Self { null_count: row_count, ..nothing };
        }
        if value.value().is_nan() {
            return Self { nan_count: row_count, ..nothing };
        }
        let some = extreme(value.dtype(), value.value().clone()).ok();
        let some = some.filter(|_| row_count > 0 && has_bounds(value.dtype()));
        let sum = integer(value.value()).and_then(|value| value.checked_mul(row_count.into()));
        Self { min: some.clone(), max: some, sum: sum.filter(|_| has_sum(value.dtype())), ..nothing }
    }

    /// The aggregates of values that occur in several rows each, or in none.
    ///
    /// # Errors
    /// If the values do not present `dtype`.
    pub(crate) fn weighted(values: &ArrowRef, dtype: &DType, rows: &[u64]) -> Result<Self> {
        let values = present(ArrowRef::clone(values), &data_type(dtype)?)?;
        let used = BooleanArray::from_iter(rows.iter().map(|rows| Some(*rows > 0)));
        let found = Self::of(&arrow::compute::filter(&values, &used)?, dtype)?;
        let nulls = values.logical_nulls();
        let is_valid = |at: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
        let row_count: u64 = rows.iter().sum();
        let valid: u64 = rows.iter().enumerate().filter(|(at, _)| is_valid(*at)).map(|(_, rows)| rows).sum();
        let nan_count = match found.nan_count {
            0 => 0,
            _ => nan_rows(&values, rows, is_valid),
        };
        let sum = if has_sum(dtype) { weighted_sum(&values, dtype, rows, is_valid) } else { None };
        Ok(Self { row_count, null_count: row_count - valid, nan_count, sum, ..found })
    }

    /// Merges these aggregates with those of other rows.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let pick = |left: Option<Scalar>, right: Option<Scalar>, wins: Ordering| match (left, right) {
            (Some(left), Some(right)) => Some(if right.compare(&left) == Some(wins) { right } else { left }),
            (left, right) => left.or(right),
        };
        Self {
            row_count: self.row_count + other.row_count,
            null_count: self.null_count + other.null_count,
            nan_count: self.nan_count + other.nan_count,
            min: pick(self.min, other.min, Ordering::Less),
            max: pick(self.max, other.max, Ordering::Greater),
            sum: self.sum.zip(other.sum).and_then(|(left, right)| left.checked_add(right)),
        }
    }

    /// The aggregates of the same rows after each value is mapped to one of `dtype`, preserving the order.
    pub(crate) fn map(self, dtype: &DType, value: impl Fn(&Value) -> Option<Value>) -> Option<Self> {
        let map = |bound: &Option<Scalar>| match bound {
            Some(bound) => extreme(dtype, value(bound.value())?).ok().map(Some),
            None => Some(None),
        };
        let (min, max) = (map(&self.min)?, map(&self.max)?);
        Some(Self { min, max, sum: self.sum.filter(|_| has_sum(dtype)), ..self })
    }
}

/// An extreme has the type of the column, nullable like the bounds of its statistics.
fn extreme(dtype: &DType, value: Value) -> Result<Scalar> {
    Scalar::try_new(dtype.with_nullable(true), value)
}

/// Whether sums of a type are supported.
fn has_sum(dtype: &DType) -> bool {
    match dtype {
        DType::Bool(_) => true,
        DType::Primitive(ptype, _) => ptype.is_integer(),
        DType::Decimal(decimal, _) => decimal.precision() <= DECIMAL128_MAX_PRECISION,
        _ => false,
    }
}

/// The value as an integer that can be summed.
fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(value) => Some((*value).into()),
        Value::Int(value) => Some((*value).into()),
        Value::UInt(value) => Some((*value).into()),
        Value::Decimal(value) => value.to_i128(),
        _ => None,
    }
}

fn extremes<T: Ord + Copy>(mut values: impl Iterator<Item = T>) -> (Option<T>, Option<T>) {
    let Some(first) = values.next() else { return (None, None) };
    let (min, max) = values.fold((first, first), |(min, max), value| (min.min(value), max.max(value)));
    (Some(min), Some(max))
}

fn nan_rows(values: &ArrowRef, rows: &[u64], is_valid: impl Fn(usize) -> bool) -> u64 {
    fn count<T: ArrowNativeType>(
        values: &ArrowRef,
        rows: &[u64],
        is_valid: impl Fn(usize) -> bool,
        is_nan: impl Fn(T) -> bool,
    ) -> u64 {
        let values = values_of::<T>(values);
        let counted = values.iter().zip(rows).enumerate();
        counted.filter(|(at, (value, _))| is_valid(*at) && is_nan(**value)).map(|(_, (_, rows))| rows).sum()
    }
    match values.data_type() {
        DataType::Float16 => count::<half::f16>(values, rows, is_valid, |value| value.is_nan()),
        DataType::Float32 => count::<f32>(values, rows, is_valid, |value| value.is_nan()),
        DataType::Float64 => count::<f64>(values, rows, is_valid, |value| value.is_nan()),
        _ => 0,
    }
}

fn weighted_sum(
    values: &ArrowRef,
    dtype: &DType,
    rows: &[u64],
    is_valid: impl Fn(usize) -> bool,
) -> Option<i128> {
    fn add<T: ArrowNativeType + Into<i128>>(
        values: &ArrowRef,
        rows: &[u64],
        is_valid: impl Fn(usize) -> bool,
    ) -> Option<i128> {
        let values = values_of::<T>(values);
        let mut valid = values.iter().zip(rows).enumerate().filter(|(at, _)| is_valid(*at));
        valid.try_fold(0i128, |sum, (_, (value, rows))| {
            sum.checked_add((*value).into().checked_mul((*rows).into())?)
        })
    }
    match dtype {
        DType::Bool(_) => {
            let bits = values.as_boolean().values();
            let valid = rows.iter().enumerate().filter(|(at, _)| is_valid(*at) && bits.value(*at));
            Some(valid.map(|(_, rows)| i128::from(*rows)).sum())
        }
        DType::Primitive(ptype, _) => match ptype {
            PType::U8 => add::<u8>(values, rows, is_valid),
            PType::U16 => add::<u16>(values, rows, is_valid),
            PType::U32 => add::<u32>(values, rows, is_valid),
            PType::U64 => add::<u64>(values, rows, is_valid),
            PType::I8 => add::<i8>(values, rows, is_valid),
            PType::I16 => add::<i16>(values, rows, is_valid),
            PType::I32 => add::<i32>(values, rows, is_valid),
            PType::I64 => add::<i64>(values, rows, is_valid),
            PType::F16 | PType::F32 | PType::F64 => None,
        },
        _ => match values.data_type() {
            DataType::Decimal32(..) => add::<i32>(values, rows, is_valid),
            DataType::Decimal64(..) => add::<i64>(values, rows, is_valid),
            DataType::Decimal128(..) => add::<i128>(values, rows, is_valid),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int8Array, Int64Array, StringArray, UInt64Array};

    use super::*;

    fn number(ptype: PType) -> DType {
        DType::Primitive(ptype, true)
    }

    #[test]
    fn nan_is_counted_and_no_extreme() {
        let values = vec![Some(0.0), Some(f64::NAN), None, Some(-0.0), Some(-f64::NAN)];
        let array: ArrowRef = Arc::new(Float64Array::from(values));
        let found = Aggregate::of(&array, &number(PType::F64)).unwrap();
        assert_eq!((found.row_count, found.null_count, found.nan_count, found.sum), (5, 1, 2, None));
        let bits = |value: Option<Scalar>| match value.as_ref().map(Scalar::value) {
            Some(Value::F64(value)) => value.to_bits(),
            other => panic!("{other:?}"),
        };
        assert_eq!((bits(found.min), bits(found.max)), ((-0.0f64).to_bits(), 0.0f64.to_bits()));
        let weighted = Aggregate::weighted(&array, &number(PType::F64), &[1, 3, 5, 0, 0]).unwrap();
        assert_eq!((weighted.row_count, weighted.null_count, weighted.nan_count), (9, 5, 3));
        assert_eq!(bits(weighted.min), 0.0f64.to_bits(), "-0.0 is in no row");
    }

    #[test]
    fn sums_are_exact_beyond_64_bits_and_unknown_beyond_128() {
        let array: ArrowRef = Arc::new(UInt64Array::from(vec![u64::MAX; 3]));
        let found = Aggregate::of(&array, &number(PType::U64)).unwrap();
        assert_eq!(found.sum, Some(3 * i128::from(u64::MAX)));
        let weighted = Aggregate::weighted(&array, &number(PType::U64), &[1, 0, 1 << 40]).unwrap();
        assert_eq!(weighted.sum, Some(i128::from(u64::MAX) * ((1 << 40) + 1)));
        let weighted = Aggregate::weighted(&array, &number(PType::U64), &[u64::MAX, 0, 0]).unwrap();
        assert_eq!(weighted.sum, None);
        let array: ArrowRef = Arc::new(Int8Array::from(vec![Some(-128), None, Some(3)]));
        assert_eq!(Aggregate::of(&array, &number(PType::I8)).unwrap().sum, Some(-125));
    }

    #[test]
    fn rows_add_up_however_they_are_cut() {
        let dtype = number(PType::I64);
        let array: ArrowRef = Arc::new(Int64Array::from(vec![Some(5), None, Some(-7), Some(i64::MAX), None]));
        let whole = Aggregate::of(&array, &dtype).unwrap();
        for cut in 0..=array.len() {
            let (left, right) = (array.slice(0, cut), array.slice(cut, array.len() - cut));
            let (left, right) =
                (Aggregate::of(&left, &dtype).unwrap(), Aggregate::of(&right, &dtype).unwrap());
            assert_eq!(left.merge(right), whole, "{cut}");
        }
        assert_eq!(Aggregate::empty(&dtype).merge(whole.clone()), whole);
    }

    #[test]
    fn text_gives_its_extremes_at_full_length() {
        let long = "z".repeat(1000);
        let array: ArrowRef = Arc::new(StringArray::from(vec![Some("b"), None, Some(&long), Some("a")]));
        let found = Aggregate::of(&array, &DType::Utf8(true)).unwrap();
        let (min, max) = (found.min.unwrap(), found.max.unwrap());
        assert_eq!((min.as_str(), max.as_str()), (Some("a"), Some(&*long)));
        assert_eq!((found.null_count, found.sum), (1, None));
    }
}
