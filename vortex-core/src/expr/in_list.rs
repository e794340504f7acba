//! Membership in a list of constants.

use std::collections::HashSet;

use arrow::array::{Array as _, ArrayRef as ArrowRef, ArrowPrimitiveType, AsArray as _, BooleanArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{ByteArrayType, ByteViewType, DataType, ToByteSlice};

use super::{CompareOp, Predicate};
use crate::Result;
use crate::scalar::Scalar;

/// Up to this many constants, comparing with each of them is faster than hashing.
const FEW: usize = 4;

/// The list of an IN or NOT IN. Nulls follow the rules of SQL: with a null in the list, the outcome is
/// unknown for every value that is not found.
#[derive(Debug, Clone, PartialEq)]
pub struct InList {
    values: Vec<Scalar>,
    has_null: bool,
    negated: bool,
}

impl InList {
    /// `value IN (values)`, or NOT IN. Values must be of one type; nulls may be among them.
    pub fn new(values: impl IntoIterator<Item = Scalar>, negated: bool) -> Self {
        let mut has_null = false;
        let values = values
            .into_iter()
            .filter(|value| {
                has_null |= value.is_null();
                !value.is_null()
            })
            .collect();
        Self { values, has_null, negated }
    }

    /// The constants, without nulls.
    pub fn values(&self) -> &[Scalar] {
        &self.values
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
        Self { negated: !self.negated, ..self.clone() }
    }

    pub(super) fn to_storage(&self) -> Self {
        Self { values: self.values.iter().map(Scalar::to_storage).collect(), ..*self }
    }

    pub(super) fn try_map(&self, change: impl Fn(&Scalar) -> Result<Scalar>) -> Result<Self> {
        Ok(Self { values: self.values.iter().map(change).collect::<Result<_>>()?, ..*self })
    }

    pub(super) fn evaluate(&self, array: &ArrowRef) -> Result<BooleanArray> {
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
    fn found(&self, array: &ArrowRef) -> Result<BooleanBuffer> {
        if self.values.len() <= FEW {
            return self.compare_each(array);
        }
        let constants = self.values.iter().map(|value| value.to_arrow(array.data_type(), 1));
        let constants = constants.collect::<Result<Vec<_>>>()?;
        let constants: Vec<&dyn arrow::array::Array> = constants.iter().map(AsRef::as_ref).collect();
        let constants = arrow::compute::concat(&constants)?;
        Ok(arrow::array::downcast_primitive_array! {
            array => primitive(array, &constants),
            DataType::Utf8 => bytes::<arrow::datatypes::Utf8Type>(array, &constants),
            DataType::LargeUtf8 => bytes::<arrow::datatypes::LargeUtf8Type>(array, &constants),
            DataType::Binary => bytes::<arrow::datatypes::BinaryType>(array, &constants),
            DataType::LargeBinary => bytes::<arrow::datatypes::LargeBinaryType>(array, &constants),
            DataType::Utf8View => views::<arrow::datatypes::StringViewType>(array, &constants),
            DataType::BinaryView => views::<arrow::datatypes::BinaryViewType>(array, &constants),
            _ => return self.compare_each(array)
        })
    }

    fn compare_each(&self, array: &ArrowRef) -> Result<BooleanBuffer> {
        let mut found = BooleanBuffer::new_unset(array.len());
        for value in &self.values {
            let equal = Predicate::Compare(CompareOp::Eq, value.clone()).evaluate(array)?;
            found = &found | equal.values();
        }
        Ok(found)
    }
}

/// Values are equal in Arrow's total order if and only if their bytes are equal.
fn primitive<T: ArrowPrimitiveType>(
    array: &arrow::array::PrimitiveArray<T>,
    constants: &ArrowRef,
) -> BooleanBuffer {
    let constants = constants.as_primitive::<T>().values();
    let set: HashSet<&[u8]> = constants.iter().map(ToByteSlice::to_byte_slice).collect();
    BooleanBuffer::collect_bool(array.len(), |at| set.contains(array.value(at).to_byte_slice()))
}

fn bytes<T: ByteArrayType>(array: &ArrowRef, constants: &ArrowRef) -> BooleanBuffer {
    let (array, constants) = (array.as_bytes::<T>(), constants.as_bytes::<T>());
    let set: HashSet<&[u8]> = (0..constants.len()).map(|at| constants.value(at).as_ref()).collect();
    BooleanBuffer::collect_bool(array.len(), |at| set.contains::<[u8]>(array.value(at).as_ref()))
}

fn views<T: ByteViewType>(array: &ArrowRef, constants: &ArrowRef) -> BooleanBuffer {
    let (array, constants) = (array.as_byte_view::<T>(), constants.as_byte_view::<T>());
    let set: HashSet<&[u8]> = (0..constants.len()).map(|at| constants.value(at).as_ref()).collect();
    BooleanBuffer::collect_bool(array.len(), |at| set.contains::<[u8]>(array.value(at).as_ref()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int32Array, StringViewArray};

    use super::*;
    use crate::dtype::{DType, PType};
    use crate::scalar::Value;

    fn list(values: &[Option<i64>], negated: bool) -> InList {
        let dtype = DType::Primitive(PType::I32, true);
        let scalar =
            |v: &Option<i64>| Scalar::try_new(dtype.clone(), v.map_or(Value::Null, Value::Int)).unwrap();
        InList::new(values.iter().map(scalar), negated)
    }

    #[test]
    fn a_null_in_the_list_makes_misses_unknown() {
        let array: ArrowRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None]));
        let found = list(&[Some(1), None], false).evaluate(&array).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some(true), None, None]);
        let missed = list(&[Some(1), None], true).evaluate(&array).unwrap();
        assert_eq!(missed.iter().collect::<Vec<_>>(), [Some(false), None, None]);
    }

    #[test]
    fn long_lists_hash_and_agree_with_short_ones() {
        let array: ArrowRef = Arc::new(Int32Array::from_iter((0..100).map(|v| (v % 7 != 0).then_some(v))));
        let long: Vec<_> = (0..50).map(|v| Some(v * 3)).collect();
        let hashed = list(&long, false).evaluate(&array).unwrap();
        for (at, outcome) in hashed.iter().enumerate() {
            assert_eq!(outcome, (at % 7 != 0).then_some(at % 3 == 0), "row {at}");
        }
    }

    #[test]
    fn strings_and_floats_hash_by_bytes() {
        let text = |v: &str| Scalar::try_new(DType::Utf8(false), Value::Utf8(v.into())).unwrap();
        let words = ["a", "bb", "a string of more than twelve bytes", "dd", "ee", "ff"];
        let array: ArrowRef =
            Arc::new(StringViewArray::from(vec!["bb", "x", "a string of more than twelve bytes"]));
        let found = InList::new(words.map(text), false).evaluate(&array).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some(true), Some(false), Some(true)]);

        let float = |v: f64| Scalar::try_new(DType::Primitive(PType::F64, false), Value::F64(v)).unwrap();
        let array: ArrowRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN]));
        let found = InList::new([0.0, 1.0, 2.0, 3.0, f64::NAN].map(float), false).evaluate(&array).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some(true), Some(false), Some(true)]);
    }
}
