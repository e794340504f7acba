//! Membership in a list of constants.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array as _, ArrayRef, BooleanArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;

use super::lookup::Lookup;
use super::{CompareOp, Predicate};
use crate::Result;
use crate::dtype::DType;
use crate::once::get_or_try_init;
use crate::scalar::{Scalar, array_of};

/// Up to this many constants, comparing with each of them is faster than looking values up.
const MAX_COMPARED: usize = 4;

/// The list of an IN or NOT IN. Nulls follow the rules of SQL: with a null in the list, the outcome is
/// unknown for every value that is not found.
#[derive(Debug, Clone)]
pub struct InList {
    /// In ascending order, each of them once, if `is_sorted`.
    values: Vec<Scalar>,
    is_sorted: bool,
    has_null: bool,
    negated: bool,
    /// The constants as they are looked up, in the first Arrow type that is asked for; `None` for types whose
    /// values are compared.
    lookup: OnceLock<Option<Arc<Lookup>>>,
    /// The list for the storage type of an extension column, once it has been asked for.
    storage: OnceLock<Arc<Self>>,
}

impl PartialEq for InList {
    fn eq(&self, other: &Self) -> bool {
        (self.has_null, self.negated) == (other.has_null, other.negated) && self.values == other.values
    }
}

impl InList {
    /// `value IN (values)`. Values must be of one type; nulls may be among them.
    pub fn new(values: impl IntoIterator<Item = Scalar>) -> Self {
        let (nulls, mut values): (Vec<_>, Vec<_>) = values.into_iter().partition(Scalar::is_null);
        let comparable = |first: &Scalar| {
            let dtype = first.dtype().with_nullable(true);
            let is_one = |value: &Scalar| value.dtype().with_nullable(true) == dtype;
            values.iter().all(|value| is_one(value) && first.compare(value).is_some())
        };
        let is_sorted = values.first().is_none_or(comparable);
        if is_sorted {
            values.sort_unstable_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
            values.dedup_by(|a, b| a.compare(b) == Some(Ordering::Equal));
        }
        Self {
            values,
            is_sorted,
            has_null: !nulls.is_empty(),
            negated: false,
            lookup: OnceLock::new(),
            storage: OnceLock::new(),
        }
    }

    /// Sets whether this is NOT IN.
    #[must_use]
    pub fn with_negated(self, negated: bool) -> Self {
        Self { negated, storage: OnceLock::new(), ..self }
    }

    /// The constants, without nulls. If their type has an order, they are in ascending order, each of them
    /// once.
    pub fn values(&self) -> &[Scalar] {
        &self.values
    }

    /// Constants of all types that there are: a single one, as a rule.
    pub(crate) fn of_each_type(&self) -> impl Iterator<Item = &Scalar> {
        self.values.iter().take(if self.is_sorted { 1 } else { usize::MAX })
    }

    /// Whether a null is in the list.
    pub fn has_null(&self) -> bool {
        self.has_null
    }

    /// Whether this is NOT IN.
    pub fn negated(&self) -> bool {
        self.negated
    }

    /// Turns IN into NOT IN, and vice versa.
    #[must_use]
    pub fn negate(&self) -> Self {
        self.clone().with_negated(!self.negated)
    }

    /// Whether some constant may be, and whether each value must be a constant, of the values from `min` to
    /// `max`, which are unknown if `None`.
    pub(crate) fn within(&self, min: Option<&Scalar>, max: Option<&Scalar>) -> (bool, bool) {
        let is_below = |value: &Scalar| min.is_some_and(|min| value.compare(min) == Some(Ordering::Less));
        let is_above = |value: &Scalar| max.is_some_and(|max| value.compare(max) == Some(Ordering::Greater));
        let candidate = if self.is_sorted {
            self.values.get(self.values.partition_point(is_below)).filter(|value| !is_above(value))
        } else {
            self.values.iter().find(|value| !is_below(value) && !is_above(value))
        };
        let is_only = |value: &Scalar| {
            let equals = |bound: Option<&Scalar>| {
                bound.is_some_and(|bound| value.compare(bound) == Some(Ordering::Equal))
            };
            equals(min) && equals(max)
        };
        (candidate.is_some(), candidate.is_some_and(is_only))
    }

    /// The list for the storage type of an extension column.
    pub(super) fn to_storage(&self) -> Arc<Self> {
        let storage = || {
            let values = self.values.iter().map(Scalar::to_storage).collect();
            Arc::new(Self { values, lookup: OnceLock::new(), storage: OnceLock::new(), ..*self })
        };
        Arc::clone(self.storage.get_or_init(storage))
    }

    pub(super) fn try_map(&self, change: impl Fn(&Scalar) -> Result<Scalar>) -> Result<Self> {
        let values = self.values.iter().map(change).collect::<Result<Vec<_>>>()?;
        Ok(Self { has_null: self.has_null, ..Self::new(values).with_negated(self.negated) })
    }

    pub(super) fn evaluate(&self, array: &ArrayRef) -> Result<BooleanArray> {
        Ok(self.outcome(self.found(array)?, array.logical_nulls()))
    }

    /// The outcome per row, given which rows equal one of the constants and which are null; `found` is
    /// arbitrary in null rows.
    pub(crate) fn outcome(&self, found: BooleanBuffer, nulls: Option<NullBuffer>) -> BooleanArray {
        let known = match (self.has_null, nulls) {
            // Without constants, even a null value is certainly not in the list.
            (false, _) if self.values.is_empty() => None,
            (false, nulls) => nulls,
            (true, None) => Some(found.clone().into()),
            (true, Some(nulls)) => Some((nulls.inner() & &found).into()),
        };
        BooleanArray::new(if self.negated { !&found } else { found }, known)
    }

    /// Which rows equal one of the constants; null rows are arbitrary.
    fn found(&self, array: &ArrayRef) -> Result<BooleanBuffer> {
        if self.values.len() <= MAX_COMPARED {
            return self.compare_each(array);
        }
        let lookup = || Ok(Lookup::of(&self.to_arrow(array.data_type())?).map(Arc::new));
        let kept = get_or_try_init(&self.lookup, lookup)?;
        match kept {
            Some(kept) if kept.data_type() == array.data_type() => Ok(kept.found(array)),
            _ => match lookup()? {
                Some(other) => Ok(other.found(array)),
                None => self.compare_each(array),
            },
        }
    }

    /// The constants as an Arrow array.
    fn to_arrow(&self, data_type: &DataType) -> Result<ArrayRef> {
        let dtype = self.values.first().map_or(&DType::Null, Scalar::dtype);
        array_of(self.values.iter().map(Scalar::value), dtype, data_type)
    }

    fn compare_each(&self, array: &ArrayRef) -> Result<BooleanBuffer> {
        let mut found = BooleanBuffer::new_unset(array.len());
        for value in &self.values {
            let equal = Predicate::Compare(CompareOp::Eq, value.clone()).evaluate(array)?;
            found = &found | equal.values();
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int32Array, StringViewArray};

    use super::*;
    use crate::dtype::{DecimalType, PType};
    use crate::scalar::Value;

    fn list(values: &[Option<i64>], negated: bool) -> InList {
        let dtype = DType::Primitive(PType::I32, true);
        let scalar =
            |v: &Option<i64>| Scalar::try_new(dtype.clone(), v.map_or(Value::Null, Value::Int)).unwrap();
        InList::new(values.iter().map(scalar)).with_negated(negated)
    }

    #[test]
    fn a_null_in_the_list_makes_misses_unknown() {
        let array: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None]));
        let found = list(&[Some(1), None], false).evaluate(&array).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some(true), None, None]);
        let missed = list(&[Some(1), None], true).evaluate(&array).unwrap();
        assert_eq!(missed.iter().collect::<Vec<_>>(), [Some(false), None, None]);
    }

    #[test]
    fn long_lists_hash_and_agree_with_short_ones() {
        let array: ArrayRef = Arc::new(Int32Array::from_iter((0..100).map(|v| (v % 7 != 0).then_some(v))));
        let long: Vec<_> = (0..50).map(|v| Some(v * 3)).collect();
        let hashed = list(&long, false).evaluate(&array).unwrap();
        for (at, outcome) in hashed.iter().enumerate() {
            assert_eq!(outcome, (at % 7 != 0).then_some(at % 3 == 0), "row {at}");
        }
    }

    #[test]
    fn constants_are_sorted_and_kept_once() {
        let sorted = list(&[Some(3), Some(1), None, Some(3), Some(-2)], false);
        let values: Vec<_> = sorted.values().iter().map(|value| value.as_i128().unwrap()).collect();
        assert_eq!(values, [-2, 1, 3]);
        assert!(sorted.has_null());
    }

    #[test]
    fn constants_of_different_types_are_all_kept() {
        let decimal = |scale| {
            let dtype = DType::Decimal(DecimalType::try_new(10, scale).unwrap(), false);
            Scalar::try_new(dtype, Value::Decimal(10.into())).unwrap()
        };
        assert_eq!(InList::new([decimal(0), decimal(1), decimal(0)]).values().len(), 3);
        assert_eq!(InList::new([decimal(1), decimal(1)]).values().len(), 1);
    }

    #[test]
    fn constants_between_bounds_are_found() {
        let sorted = list(&[Some(3), Some(7)], false);
        let within = |min: Option<i64>, max: Option<i64>| {
            let bound = |value: Option<i64>| list(&[value], false).values().first().cloned();
            sorted.within(bound(min).as_ref(), bound(max).as_ref())
        };
        assert_eq!(within(Some(4), Some(6)), (false, false));
        assert_eq!(within(Some(3), Some(6)), (true, false));
        assert_eq!(within(Some(4), Some(7)), (true, false));
        assert_eq!(within(Some(7), Some(7)), (true, true));
        assert_eq!(within(Some(8), None), (false, false));
        assert_eq!(within(None, Some(2)), (false, false));
        assert_eq!(within(None, None), (true, false));
        assert_eq!(list(&[None], false).within(None, None), (false, false));
    }

    #[test]
    fn one_list_is_looked_up_in_several_types() {
        let words = ["a", "b", "c", "d", "e"]
            .map(|word| Scalar::try_new(DType::Utf8(false), Value::Utf8(word.into())).unwrap());
        let list = InList::new(words);
        let arrays: [ArrayRef; 2] = [
            Arc::new(StringViewArray::from(vec!["x", "b"])),
            Arc::new(arrow::array::StringArray::from(vec!["x", "b"])),
        ];
        for array in arrays.iter().chain(&arrays) {
            let found = list.evaluate(array).unwrap();
            assert_eq!(found.iter().collect::<Vec<_>>(), [Some(false), Some(true)]);
        }
    }

    #[test]
    fn long_lists_of_text_take_little_more_than_its_bytes() {
        let text = |number: i32| {
            Scalar::try_new(DType::Utf8(false), Value::Utf8(format!("text of number {number}").into()))
                .unwrap()
        };
        let array = InList::new((0..1000).map(text)).to_arrow(&DataType::Utf8View).unwrap();
        assert!(array.get_buffer_memory_size() < 50_000, "{} bytes", array.get_buffer_memory_size());
    }

    #[test]
    fn strings_and_floats_hash_by_bytes() {
        let text = |v: &str| Scalar::try_new(DType::Utf8(false), Value::Utf8(v.into())).unwrap();
        let words = ["a", "bb", "a string of more than twelve bytes", "dd", "ee", "ff"];
        let array: ArrayRef =
            Arc::new(StringViewArray::from(vec!["bb", "x", "a string of more than twelve bytes"]));
        let found = InList::new(words.map(text)).evaluate(&array).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some(true), Some(false), Some(true)]);

        let float = |v: f64| Scalar::try_new(DType::Primitive(PType::F64, false), Value::F64(v)).unwrap();
        let array: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN]));
        let found = InList::new([0.0, 1.0, 2.0, 3.0, f64::NAN].map(float)).evaluate(&array).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some(true), Some(false), Some(true)]);
    }
}
