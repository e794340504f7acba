//! Aggregates over all rows: counts, extremes, a sum.
//!
//! Encodings can compute much of this without decoding: a run counts as often as it is long, a dictionary
//! value as often as its code occurs, and a frame of reference adds the same amount to all values.

use std::cmp::Ordering;

use arrow::array::{Array as _, ArrayRef, ArrowPrimitiveType, AsArray as _, BooleanArray};
use arrow::datatypes::{ArrowNativeType, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, i256};

use super::{present, values_of};
use crate::Result;
use crate::dtype::arrow::data_type;
use crate::dtype::{DType, match_integer};
use crate::scalar::{Scalar, Value};
use crate::stats::compute::Summary;

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
    /// The sum of integers, of unscaled decimals of at most 38 digits, or of booleans (the number that are
    /// true); 0 if there are no values. `None` for other types.
    ///
    /// It is exact, and thus does not depend on the order of rows: a file has too few rows for sums of these
    /// types to exceed 256 bits.
    pub sum: Option<i256>,
}

/// Which aggregates of a column are wanted; by default, none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measures {
    /// The numbers of rows, nulls and NaN values. If only extremes are wanted, rows that cannot change them are not
    /// necessarily counted.
    pub counts: bool,
    /// The minimum.
    pub min: bool,
    /// The maximum.
    pub max: bool,
    /// The sum, and how many values it is of.
    pub sum: bool,
}

impl Measures {
    /// Everything.
    pub const ALL: Self = Self { counts: true, min: true, max: true, sum: true };
    /// Only the numbers of rows, nulls and NaN values.
    pub const COUNTS: Self = Self { counts: true, min: false, max: false, sum: false };
    /// Only the minimum.
    pub const MIN: Self = Self { counts: false, min: true, max: false, sum: false };
    /// Only the maximum.
    pub const MAX: Self = Self { counts: false, min: false, max: true, sum: false };

    /// These, and the minimum and the maximum.
    #[must_use]
    pub fn with_extremes(self) -> Self {
        Self { min: true, max: true, ..self }
    }

    /// These, and the sum.
    #[must_use]
    pub fn with_sum(self) -> Self {
        Self { sum: true, ..self }
    }

    /// These and others.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            counts: self.counts || others.counts,
            min: self.min || others.min,
            max: self.max || others.max,
            sum: self.sum || others.sum,
        }
    }

    /// Whether the minimum or the maximum is wanted.
    pub(crate) fn has_extremes(self) -> bool {
        self.min || self.max
    }

    /// Whether each row adds to what is wanted. Otherwise, rows matter only if they change an extreme.
    pub(crate) fn adds_up(self) -> bool {
        self.counts || self.sum
    }
}

impl Aggregate {
    /// The aggregates of no rows.
    pub fn empty(dtype: &DType) -> Self {
        let sum = has_sum(dtype).then_some(i256::ZERO);
        Self { row_count: 0, null_count: 0, nan_count: 0, min: None, max: None, sum }
    }

    /// Aggregates all rows of an array that presents `dtype`.
    ///
    /// # Errors
    /// If it does not.
    pub fn of(array: &ArrayRef, dtype: &DType) -> Result<Self> {
        let array = present(ArrayRef::clone(array), &data_type(dtype)?)?;
        let row_count = array.len() as u64;
        let (min, max, nan_count, sum) = match dtype.storage() {
            _ if !dtype.is_scalar() => (None, None, 0, None),
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
                let sum = match known.total() {
                    _ if all_null => Some(i256::ZERO),
                    Some(sum) => Some(i256::from_i128(sum)),
                    None => wide_sum(&array),
                };
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
        let some = some.filter(|_| row_count > 0 && value.dtype().is_scalar());
        let sum =
            integer(value.value()).and_then(|value| value.checked_mul(i256::from_i128(row_count.into())));
        Self { min: some.clone(), max: some, sum: sum.filter(|_| has_sum(value.dtype())), ..nothing }
    }

    /// The aggregates of values that occur in several rows each, or in none.
    ///
    /// # Errors
    /// If the values do not present `dtype`.
    pub(crate) fn weighted(values: &ArrayRef, dtype: &DType, rows: &[u64]) -> Result<Self> {
        let values = present(ArrayRef::clone(values), &data_type(dtype)?)?;
        // Nested values have nothing to be found, and filtering may reserve far more for them than they take.
        let found = if dtype.is_scalar() {
            let used = BooleanArray::from_iter(rows.iter().map(|rows| Some(*rows > 0)));
            Self::of(&arrow::compute::filter(&values, &used)?, dtype)?
        } else {
            Self::empty(dtype)
        };
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

    /// The same without what was not asked for.
    pub(crate) fn only(self, measures: Measures) -> Self {
        Self {
            min: self.min.filter(|_| measures.min),
            max: self.max.filter(|_| measures.max),
            sum: self.sum.filter(|_| measures.sum),
            ..self
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
pub(crate) fn has_sum(dtype: &DType) -> bool {
    match dtype {
        DType::Bool(_) => true,
        DType::Primitive(ptype, _) => ptype.is_integer(),
        DType::Decimal(decimal, _) => decimal.precision() <= DECIMAL128_MAX_PRECISION,
        _ => false,
    }
}

/// The value as an integer that can be summed.
pub(crate) fn integer(value: &Value) -> Option<i256> {
    match value {
        Value::Bool(value) => Some(i256::from_i128((*value).into())),
        Value::Int(value) => Some(i256::from_i128((*value).into())),
        Value::UInt(value) => Some(i256::from_i128((*value).into())),
        Value::Decimal(value) => Some(*value),
        _ => None,
    }
}

/// The sum of decimals of 128 bits, which may exceed 128 bits; `None` for other types.
fn wide_sum(array: &ArrayRef) -> Option<i256> {
    let values = array.as_primitive_opt::<Decimal128Type>()?.iter().flatten();
    Some(values.fold(i256::ZERO, |sum, value| sum.wrapping_add(i256::from_i128(value))))
}

fn extremes<T: Ord + Copy>(mut values: impl Iterator<Item = T>) -> (Option<T>, Option<T>) {
    let Some(first) = values.next() else { return (None, None) };
    let (min, max) = values.fold((first, first), |(min, max), value| (min.min(value), max.max(value)));
    (Some(min), Some(max))
}

fn nan_rows(values: &ArrayRef, rows: &[u64], is_valid: impl Fn(usize) -> bool) -> u64 {
    fn count<T: ArrowNativeType>(
        values: &ArrayRef,
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
    values: &ArrayRef,
    dtype: &DType,
    rows: &[u64],
    is_valid: impl Fn(usize) -> bool,
) -> Option<i256> {
    fn add<T: ArrowNativeType + Into<i128>>(
        values: &ArrayRef,
        rows: &[u64],
        is_valid: impl Fn(usize) -> bool,
    ) -> Option<i256> {
        let values = values_of::<T>(values);
        let valid = values.iter().zip(rows).enumerate().filter(|(at, _)| is_valid(*at));
        // Products have at most 192 bits.
        let products = valid.map(|(_, (value, rows))| {
            i256::from_i128((*value).into()).wrapping_mul(i256::from_i128((*rows).into()))
        });
        Some(products.fold(i256::ZERO, i256::wrapping_add))
    }
    match dtype {
        DType::Bool(_) => {
            let bits = values.as_boolean().values();
            let valid = rows.iter().enumerate().filter(|(at, _)| is_valid(*at) && bits.value(*at));
            Some(i256::from_i128(valid.map(|(_, rows)| i128::from(*rows)).sum()))
        }
        DType::Primitive(ptype, _) => match_integer!(
            *ptype,
            |T| add::<<T as ArrowPrimitiveType>::Native>(values, rows, is_valid),
            else None
        ),
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

    use arrow::array::{
        Decimal128Array, FixedSizeListArray, Float64Array, Int8Array, Int64Array, LargeListArray,
        StringArray, UInt64Array,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{DataType, Field};

    use super::*;
    use crate::dtype::DecimalType;
    use crate::dtype::PType;
    use crate::dtype::arrow::from_field;

    fn number(ptype: PType) -> DType {
        DType::Primitive(ptype, true)
    }

    #[test]
    fn nan_is_counted_and_no_extreme() {
        let values = vec![Some(0.0), Some(f64::NAN), None, Some(-0.0), Some(-f64::NAN)];
        let array: ArrayRef = Arc::new(Float64Array::from(values));
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
    fn nested_values_are_counted_without_being_filtered() {
        let pair = Arc::new(Field::new("item", DataType::Int64, true));
        let long = Arc::new(Field::new("item", DataType::FixedSizeList(Arc::clone(&pair), i32::MAX), true));
        let none =
            FixedSizeListArray::new(pair, i32::MAX, Arc::new(Int64Array::from(Vec::<i64>::new())), None);
        let nulls = Some(vec![true, false, true].into());
        let lists = LargeListArray::new(long, OffsetBuffer::new_zeroed(3), Arc::new(none), nulls);
        let dtype = from_field(&Field::new("lists", lists.data_type().clone(), true)).unwrap();
        let found = Aggregate::weighted(&(Arc::new(lists) as _), &dtype, &[1, 3, 0]).unwrap();
        assert_eq!((found.row_count, found.null_count, found.min), (4, 3, None));
    }

    #[test]
    fn sums_are_exact_beyond_128_bits() {
        let array: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX; 3]));
        let found = Aggregate::of(&array, &number(PType::U64)).unwrap();
        assert_eq!(found.sum, Some(i256::from_i128(3 * i128::from(u64::MAX))));
        let weighted = Aggregate::weighted(&array, &number(PType::U64), &[1, 0, 1 << 40]).unwrap();
        assert_eq!(weighted.sum, Some(i256::from_i128(i128::from(u64::MAX) * ((1 << 40) + 1))));
        let weighted = Aggregate::weighted(&array, &number(PType::U64), &[u64::MAX, 0, 0]).unwrap();
        let most = i256::from_i128(u64::MAX.into());
        assert_eq!(weighted.sum, most.checked_mul(most));
        let array: ArrayRef = Arc::new(Int8Array::from(vec![Some(-128), None, Some(3)]));
        assert_eq!(Aggregate::of(&array, &number(PType::I8)).unwrap().sum, Some(i256::from_i128(-125)));
    }

    #[test]
    fn rows_add_up_however_they_are_cut() {
        let dtype = number(PType::I64);
        let array: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), None, Some(-7), Some(i64::MAX), None]));
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
    fn sums_do_not_depend_on_the_order_of_values() {
        let dtype = DType::Decimal(DecimalType::try_new(38, 0).unwrap(), false);
        let of = |values: &[i128]| -> ArrayRef {
            let values = Decimal128Array::from(values.to_vec());
            Arc::new(values.with_precision_and_scale(38, 0).unwrap())
        };
        // Two of them exceed 128 bits.
        let large = 9 * 10i128.pow(37);
        let last = Aggregate::of(&of(&[large, large, -large]), &dtype).unwrap();
        let middle = Aggregate::of(&of(&[large, -large, large]), &dtype).unwrap();
        let weighted = Aggregate::weighted(&of(&[large, -large]), &dtype, &[2, 1]).unwrap();
        let one = Aggregate::of(&of(&[large]), &dtype).unwrap();
        let negative = Aggregate::of(&of(&[-large]), &dtype).unwrap();
        let merged = one.clone().merge(one.clone()).merge(negative);
        assert_eq!(one.sum, Some(i256::from_i128(large)));
        for found in [last, middle, weighted, merged] {
            assert_eq!(found.sum, one.sum);
        }
    }

    #[test]
    fn text_gives_its_extremes_at_full_length() {
        let long = "z".repeat(1000);
        let array: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some(&long), Some("a")]));
        let found = Aggregate::of(&array, &DType::Utf8(true)).unwrap();
        let (min, max) = (found.min.unwrap(), found.max.unwrap());
        assert_eq!((min.as_str(), max.as_str()), (Some("a"), Some(&*long)));
        assert_eq!((found.null_count, found.sum), (1, None));
    }
}
