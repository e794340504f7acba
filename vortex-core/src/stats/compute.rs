//! Statistics of rows in memory, for zone maps and file statistics.
//!
//! A [`Summary`] contains what is known about some consecutive rows; adjacent summaries can be merged.
//! What readers could misinterpret is left out rather than guessed:
//!
//! - minimum and maximum ignore nulls and NaN and follow the total order of floats;
//! - long strings have bounds instead of values, and the upper one is rounded up;
//! - sums exist only for integers, booleans and decimals, and are dropped if they exceed 128 bits;
//! - the order is known only if no row is null or NaN, and that of strings only if the ends are not very long.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray as _};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, i256};
use half::f16;

use super::extreme::{Extreme, Order};
use super::text_bounds::{MAX_BOUND_BYTES, cut, round_up};
use super::{FieldStats, Precision, is_float, sum_dtype};
use crate::array::values_of;
use crate::dtype::{DType, PType};
use crate::kernels::tally::{Integer, tally};
use crate::scalar::{Scalar, Value};

/// Maximum length of a string that is kept as the first or the last of sorted rows: every zone keeps both until its
/// chunk is written.
const MAX_ORDER_BYTES: usize = 16 << 10;

/// What is known about consecutive rows of one column.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    pub(crate) rows: u64,
    pub(crate) null_count: u64,
    pub(crate) nan_count: u64,
    pub(crate) min: Extreme,
    pub(crate) max: Extreme,
    /// The sum of integers, booleans or unscaled decimals, if there are values and it is known.
    pub(crate) sum: Option<i128>,
    order: Order,
}

impl Summary {
    /// Summarizes all rows of an array that presents `dtype`.
    pub(crate) fn of(array: &ArrayRef, dtype: &DType) -> Self {
        let null_count = match dtype {
            DType::Null => array.len(),
            _ => array.null_count(),
        };
        let summary = Self {
            rows: array.len() as u64,
            null_count: null_count as u64,
            nan_count: 0,
            min: Extreme::Nothing,
            max: Extreme::Nothing,
            sum: None,
            order: Order::Unknown,
        };
        if null_count == array.len() || !dtype.is_scalar() {
            return summary;
        }
        summary.with_values(array, dtype.storage())
    }

    fn with_values(mut self, array: &ArrayRef, storage: &DType) -> Self {
        macro_rules! integers {
            ($native:ty, $value:expr) => {
                self.integers(&values_of::<$native>(array), array.nulls(), $value)
            };
        }
        macro_rules! floats {
            ($native:ty, $bits:ty, $keys:ty, $value:expr) => {{
                let values = values_of::<$native>(array);
                let is_nan = |value: &&$native| value.is_nan();
                self.nan_count = valid_runs(&values, array.nulls())
                    .map(|run| run.iter().filter(is_nan).count())
                    .sum::<usize>() as u64;
                // Maps the total order to the order of integers, and back.
                let map = |bits: $bits| {
                    let sign = bits.cast_signed() >> (<$bits>::BITS - 1);
                    bits ^ (sign.cast_unsigned() >> 1)
                };
                let key = |value: $native| map(value.to_bits()).cast_signed();
                let value = |key| $value(<$native>::from_bits(map(<$keys>::cast_unsigned(key))));
                if self.nan_count == 0 {
                    self.ordered(&values, array.nulls(), key, value);
                } else {
                    let valid = |at: usize| array.is_valid(at) && !values[at].is_nan();
                    let numbers: Vec<$native> =
                        (0..values.len()).filter(|at| valid(*at)).map(|at| values[at]).collect();
                    self.ordered(&numbers, None, key, value);
                    self.order = Order::Unknown;
                }
            }};
        }
        match storage {
            DType::Bool(_) => self.bools(array.as_boolean()),
            DType::Primitive(ptype, _) => match ptype {
                PType::U8 => integers!(u8, |v| Value::UInt(v.into())),
                PType::U16 => integers!(u16, |v| Value::UInt(v.into())),
                PType::U32 => integers!(u32, |v| Value::UInt(v.into())),
                PType::U64 => integers!(u64, Value::UInt),
                PType::I8 => integers!(i8, |v| Value::Int(v.into())),
                PType::I16 => integers!(i16, |v| Value::Int(v.into())),
                PType::I32 => integers!(i32, |v| Value::Int(v.into())),
                PType::I64 => integers!(i64, Value::Int),
                PType::F16 => floats!(f16, u16, i16, Value::F16),
                PType::F32 => floats!(f32, u32, i32, Value::F32),
                PType::F64 => floats!(f64, u64, i64, Value::F64),
            },
            DType::Decimal(..) => self.decimals(array),
            DType::Utf8(_) | DType::Binary(_) => self.strings(array),
            _ => {}
        }
        self
    }

    /// Extremes and order of values that are compared by `key`, from which `value` makes them again.
    fn ordered<T: Copy, K: Ord + Copy>(
        &mut self,
        values: &[T],
        nulls: Option<&NullBuffer>,
        key: impl Fn(T) -> K,
        value: impl Fn(K) -> Value,
    ) {
        let mut keys = valid_runs(values, nulls).flatten().map(|value| key(*value));
        if let Some(first) = keys.next() {
            let (min, max) = keys.fold((first, first), |(min, max), key| (min.min(key), max.max(key)));
            (self.min, self.max) = (Extreme::exact(value(min)), Extreme::exact(value(max)));
        }
        self.order(values, key, value);
    }

    /// The order of values that are compared by `key`.
    fn order<T: Copy, K: Ord + Copy>(
        &mut self,
        values: &[T],
        key: impl Fn(T) -> K,
        value: impl Fn(K) -> Value,
    ) {
        if let (0, Some(first), Some(last)) = (self.null_count, values.first(), values.last()) {
            let rises = values.is_sorted_by(|a, b| key(*a) <= key(*b));
            self.order = if rises {
                let strictly = values.is_sorted_by(|a, b| key(*a) < key(*b));
                Order::Rising { strictly, first: value(key(*first)), last: value(key(*last)) }
            } else {
                Order::Broken
            };
        }
    }

    fn bools(&mut self, array: &arrow::array::BooleanArray) {
        let trues = array.true_count() as u64;
        let falses = self.rows - self.null_count - trues;
        self.min = Extreme::exact(Value::Bool(falses == 0));
        self.max = Extreme::exact(Value::Bool(trues > 0));
        self.sum = Some(trues.into());
    }

    /// Extremes, sum and order of integers.
    fn integers<T: Integer>(&mut self, values: &[T], nulls: Option<&NullBuffer>, value: impl Fn(T) -> Value) {
        if let Some(found) = tally(values, nulls) {
            (self.min, self.max) = (Extreme::exact(value(found.min)), Extreme::exact(value(found.max)));
            self.sum = Some(found.sum);
        }
        self.order(values, |value| value, value);
    }

    fn decimals(&mut self, array: &ArrayRef) {
        fn decimal(value: impl Into<i128>) -> Value {
            Value::Decimal(i256::from_i128(value.into()))
        }

        match array.data_type() {
            DataType::Decimal32(..) => self.integers(&values_of::<i32>(array), array.nulls(), decimal),
            DataType::Decimal64(..) => self.integers(&values_of::<i64>(array), array.nulls(), decimal),
            DataType::Decimal128(..) => {
                let values = values_of::<i128>(array);
                self.ordered(&values, array.nulls(), |value| value, decimal);
                let mut values = valid_runs(&values, array.nulls()).flatten();
                self.sum = values.try_fold(0i128, |sum, value| sum.checked_add(*value));
            }
            DataType::Decimal256(..) => {
                self.ordered(&values_of::<i256>(array), array.nulls(), |value| value, Value::Decimal);
            }
            _ => {}
        }
    }

    fn strings(&mut self, array: &ArrayRef) {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(|text| Value::Utf8(text.into()));
        let binary = |bytes: &[u8]| Some(Value::Binary(bytes.into()));
        match array.data_type() {
            DataType::Utf8 => self.bytes(array.as_string::<i32>().iter().map(|v| v.map(str::as_bytes)), text),
            DataType::LargeUtf8 => {
                self.bytes(array.as_string::<i64>().iter().map(|v| v.map(str::as_bytes)), text);
            }
            DataType::Utf8View => {
                self.bytes(array.as_string_view().iter().map(|v| v.map(str::as_bytes)), text);
            }
            DataType::Binary => self.bytes(array.as_binary::<i32>().iter(), binary),
            DataType::LargeBinary => self.bytes(array.as_binary::<i64>().iter(), binary),
            DataType::BinaryView => self.bytes(array.as_binary_view().iter(), binary),
            _ => {}
        }
    }

    fn bytes<'a>(
        &mut self,
        rows: impl Iterator<Item = Option<&'a [u8]>>,
        value: impl Fn(&[u8]) -> Option<Value>,
    ) {
        let mut values = rows.flatten();
        let Some(first) = values.next() else { return };
        let (mut min, mut max, mut last) = (first, first, first);
        let (mut rises, mut strictly) = (self.null_count == 0, true);
        for bytes in values {
            if rises {
                match last.cmp(bytes) {
                    Ordering::Less => {}
                    Ordering::Equal => strictly = false,
                    Ordering::Greater => rises = false,
                }
                last = bytes;
            }
            // No value can be both below the minimum and above the maximum.
            if bytes < min {
                min = bytes;
            } else if bytes > max {
                max = bytes;
            }
        }
        let bound = |bound: Option<Value>, exact| match bound {
            Some(value) => Extreme::Bound { value, exact },
            None => Extreme::Unbounded,
        };
        let is_text = matches!(value(b""), Some(Value::Utf8(_)));
        let short = |bytes: &[u8]| bytes.len() <= MAX_BOUND_BYTES;
        self.min = bound(value(cut(min, is_text)), short(min));
        let upper = if short(max) { Some(max.to_vec()) } else { round_up(cut(max, is_text), is_text) };
        self.max = bound(upper.and_then(|upper| value(&upper)), short(max));
        self.order = if self.null_count > 0 {
            Order::Unknown
        } else if !rises {
            Order::Broken
        } else if first.len().max(last.len()) > MAX_ORDER_BYTES {
            Order::Unknown
        } else {
            match (value(first), value(last)) {
                (Some(first), Some(last)) => Order::Rising { strictly, first, last },
                _ => Order::Unknown,
            }
        };
    }

    /// What a zone map states of these rows: not their order, which may take kilobytes.
    pub(crate) fn without_order(&self) -> Self {
        Self { min: self.min.clone(), max: self.max.clone(), order: Order::Unknown, ..*self }
    }

    /// Merges the summary of these rows with that of the following rows.
    pub(crate) fn merge(self, next: Self) -> Self {
        let sum = match (self.sum, next.sum) {
            (Some(left), Some(right)) => left.checked_add(right),
            // Rows without values contribute nothing.
            (sum, None) if next.rows == next.null_count => sum,
            (None, sum) if self.rows == self.null_count => sum,
            _ => None,
        };
        Self {
            rows: self.rows + next.rows,
            null_count: self.null_count + next.null_count,
            nan_count: self.nan_count + next.nan_count,
            min: self.min.merge(next.min, Ordering::Less),
            max: self.max.merge(next.max, Ordering::Greater),
            sum,
            order: self.order.merge(next.order),
        }
    }

    /// Whether values are known not to be sorted, and not to be strictly sorted.
    pub(crate) fn contradicts_order(&self) -> (bool, bool) {
        match self.order {
            Order::Unknown => (false, false),
            Order::Broken => (true, true),
            Order::Rising { strictly, .. } => (false, !strictly),
        }
    }

    /// The sum of integers, booleans or unscaled decimals, if there are values and it is known.
    pub(crate) fn total(&self) -> Option<i128> {
        self.sum
    }

    /// The sum in the type that sums of `dtype` have, if there is one and it fits.
    pub(crate) fn sum(&self, dtype: &DType) -> Option<Scalar> {
        sum_scalar(self.sum?, dtype)
    }

    /// Converts it to statistics of a field whose values took `uncompressed_size` bytes.
    pub(crate) fn to_field_stats(&self, dtype: &DType, uncompressed_size: u64) -> FieldStats {
        let (min, max) = (self.min.precision(dtype), self.max.precision(dtype));
        // Compared by total order: zeros of different sign are two values.
        let equal = match (&min, &max) {
            (Precision::Exact(min), Precision::Exact(max)) => min.compare(max) == Some(Ordering::Equal),
            _ => false,
        };
        let constant = equal && self.null_count == 0 && self.nan_count == 0;
        let all_null = self.rows > 0 && self.null_count == self.rows;
        let (is_sorted, is_strict_sorted) = match self.order {
            Order::Unknown => (None, None),
            Order::Broken => (Some(false), Some(false)),
            Order::Rising { strictly, .. } => (Some(true), Some(strictly)),
        };
        FieldStats {
            sum: self.sum(dtype),
            min,
            max,
            null_count: Some(self.null_count),
            nan_count: is_float(dtype).then_some(self.nan_count),
            is_sorted,
            is_strict_sorted,
            is_constant: (constant || all_null).then_some(true),
            uncompressed_size: Some(uncompressed_size),
        }
    }
}

/// A sum in the type that sums of `dtype` have, if there is one and it fits.
pub(crate) fn sum_scalar(sum: i128, dtype: &DType) -> Option<Scalar> {
    let sum_dtype = sum_dtype(dtype)?;
    match sum_dtype {
        DType::Decimal(..) => Scalar::try_new(sum_dtype, Value::Decimal(i256::from_i128(sum))).ok(),
        _ => Scalar::integer(&sum_dtype, sum),
    }
}

/// The valid values, as runs of adjacent rows.
fn valid_runs<'a, T>(
    values: &'a [T],
    nulls: Option<&'a NullBuffer>,
) -> Box<dyn Iterator<Item = &'a [T]> + 'a> {
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => Box::new(std::iter::once(values)),
        Some(nulls) => Box::new(nulls.valid_slices().map(|(start, end)| &values[start..end])),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Decimal128Array, Float64Array, Int8Array, Int64Array, NullArray, StringArray,
        UInt64Array,
    };

    use super::*;
    use crate::dtype::DecimalType;

    fn number(ptype: PType) -> DType {
        DType::Primitive(ptype, true)
    }

    fn stats(array: impl Array + 'static, dtype: &DType) -> FieldStats {
        let array: ArrayRef = Arc::new(array);
        let whole = Summary::of(&array, dtype).to_field_stats(dtype, 0);
        // The merged summary is the same wherever the rows are split.
        for cut in 0..=array.len() {
            let (left, right) = (array.slice(0, cut), array.slice(cut, array.len() - cut));
            let merged = Summary::of(&left, dtype).merge(Summary::of(&right, dtype));
            let merged = merged.to_field_stats(dtype, 0);
            if cut > 0 && cut < array.len() {
                assert_eq!(merged, whole, "cut at {cut}");
            }
        }
        whole
    }

    #[test]
    fn integers_have_bounds_sum_and_order() {
        let rising = stats(Int64Array::from(vec![i64::MIN, -3, -3, 5]), &number(PType::I64));
        assert_eq!(rising.min.exact().unwrap().as_i128(), Some(i64::MIN.into()));
        assert_eq!(rising.max.exact().unwrap().as_i128(), Some(5));
        assert_eq!((rising.is_sorted, rising.is_strict_sorted), (Some(true), Some(false)));
        assert!(rising.sum.is_none(), "below the least i64");

        let nulls = stats(Int8Array::from(vec![Some(5), None, Some(-7)]), &number(PType::I8));
        assert_eq!(nulls.sum.unwrap().as_i128(), Some(-2));
        assert_eq!((nulls.null_count, nulls.is_sorted), (Some(1), None));
        assert_eq!(nulls.min.exact().unwrap().as_i128(), Some(-7));

        let large = stats(UInt64Array::from(vec![u64::MAX, 1]), &number(PType::U64));
        assert!(large.sum.is_none());
        assert_eq!((large.is_sorted, large.is_constant), (Some(false), None));
        let one = stats(UInt64Array::from(vec![4, 4]), &number(PType::U64));
        assert_eq!(one.is_constant, Some(true));
    }

    #[test]
    fn nan_is_counted_and_bounds_nothing() {
        let values = vec![Some(1.5), Some(f64::NAN), None, Some(-0.0), Some(0.0), Some(-f64::NAN)];
        let found = stats(Float64Array::from(values), &number(PType::F64));
        assert_eq!((found.nan_count, found.null_count, found.is_sorted), (Some(2), Some(1), None));
        assert_eq!(found.max.exact().unwrap().value(), &Value::F64(1.5));
        let min = found.min.exact().unwrap();
        assert!(matches!(min.value(), Value::F64(v) if v.is_sign_negative()));
        assert!(found.sum.is_none());
        let nothing = stats(Float64Array::from(vec![f64::NAN, f64::NAN]), &number(PType::F64));
        assert_eq!((nothing.min, nothing.is_constant), (Precision::Absent, None));
        let zeros = stats(Float64Array::from(vec![-0.0, 0.0]), &number(PType::F64));
        assert_eq!(zeros.is_constant, None);
    }

    #[test]
    fn long_strings_give_bounds_around_them() {
        let utf8 = DType::Utf8(false);
        let long = "x".repeat(63) + "\u{e9}yz";
        let found = stats(StringArray::from(vec![long.as_str()]), &utf8);
        let (min, max) = (found.min.value().unwrap(), found.max.value().unwrap());
        assert_eq!(min.as_str().unwrap(), "x".repeat(63));
        assert_eq!(max.as_str().unwrap(), "x".repeat(62) + "y");
        assert!(found.min.exact().is_none() && found.max.exact().is_none());

        let last = "\u{10ffff}".repeat(20);
        let found = stats(StringArray::from(vec!["a", last.as_str()]), &utf8);
        assert_eq!(found.max, Precision::Absent, "no text lies above");
        assert_eq!(found.min.exact().unwrap().as_str(), Some("a"));
        let mixed = "a\u{7f}".to_owned() + &"\u{10ffff}".repeat(20);
        let found = stats(StringArray::from(vec![mixed.as_str()]), &utf8);
        assert_eq!(found.max.value().unwrap().as_str(), Some("b"));
    }

    #[test]
    fn the_order_of_very_long_strings_is_known_only_if_it_is_broken() {
        let utf8 = DType::Utf8(false);
        let (long, longer) = ("x".repeat(MAX_ORDER_BYTES), "x".repeat(MAX_ORDER_BYTES + 1));
        let order = |rows: [&str; 2]| stats(StringArray::from(rows.to_vec()), &utf8).is_sorted;
        assert_eq!(order(["a", &long]), Some(true));
        assert_eq!(order(["a", &longer]), None, "ends would have to be copied");
        assert_eq!(
            Summary::of(&(Arc::new(StringArray::from(vec!["b", &longer, "a"])) as ArrayRef), &utf8).order,
            Order::Broken
        );
    }

    #[test]
    fn rows_without_values_have_no_bounds() {
        let nothing = stats(NullArray::new(3), &DType::Null);
        assert_eq!((nothing.null_count, nothing.is_constant), (Some(3), Some(true)));
        let empty = stats(BooleanArray::from(Vec::<bool>::new()), &DType::Bool(false));
        assert_eq!((empty.min, empty.sum, empty.is_constant), (Precision::Absent, None, None));
        let found = stats(BooleanArray::from(vec![Some(true), None]), &DType::Bool(true));
        assert_eq!(found.min.exact().unwrap().value(), &Value::Bool(true));
        assert_eq!(found.sum.unwrap().as_i128(), Some(1));
    }

    #[test]
    fn sums_of_decimals_stay_within_their_digits() {
        let dtype = DType::Decimal(DecimalType::try_new(38, 0).unwrap(), false);
        let large = 10i128.pow(38) - 1;
        let decimals =
            |values: Vec<i128>| Decimal128Array::from(values).with_precision_and_scale(38, 0).unwrap();
        assert!(stats(decimals(vec![large, large]), &dtype).sum.is_none(), "129 bits");
        let sum = stats(decimals(vec![large, -1]), &dtype).sum.unwrap();
        assert_eq!(sum.value(), &Value::Decimal(i256::from_i128(large - 1)));
    }
}
