//! Tests whether integers lie in intervals, by which their comparisons with constants can be expressed.

use arrow::array::{Array as _, BooleanArray};

use super::ArrayRef;
use super::fixed_width::values_of;
use crate::Result;
use crate::dtype::DType;
use crate::dtype::arrow::ptype_of;
use crate::expr::{Intervals, Predicate};
use crate::kernels::within::{Within, pass_any};
use crate::kernels::{Word, match_word};

/// The test for each of several intervals.
pub(crate) fn tests_of<W: Word>(intervals: &Intervals) -> Vec<Within<W>> {
    intervals.any_of.iter().map(|one| Within::new(one.low, one.high, one.outside)).collect()
}

/// Evaluates a predicate on decoded values: as [`Predicate::evaluate`], but faster for integers.
///
/// # Errors
/// If the predicate does not fit the type of the values.
pub(super) fn matches(values: &ArrayRef, predicate: &Predicate) -> Result<BooleanArray> {
    if let Some(ptype) = ptype_of(values.data_type())
        && let Some(intervals) = Intervals::of(predicate, ptype)
        && predicate.check(&DType::Primitive(ptype, true)).is_ok()
    {
        let passed = match_word!(ptype, |W| pass_any::<W>(&tests_of(&intervals), &values_of(values)));
        return Ok(intervals.outcome(passed, values.nulls().cloned()));
    }
    predicate.evaluate(values)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::PrimitiveArray;
    use arrow::buffer::{Buffer, ScalarBuffer};
    use arrow::datatypes::ArrowPrimitiveType;

    use super::*;
    use crate::dtype::{PType, match_integer};
    use crate::expr::{CompareOp, InList};
    use crate::kernels::random;
    use crate::scalar::{Scalar, Value};

    /// Values around zero and both ends of the type, some of them null; not from the start of a buffer.
    fn values<T: ArrowPrimitiveType>() -> ArrayRef {
        let mut next = random(8);
        let mut value = |row: usize| {
            let near = next() % 5;
            let bits = 8 * size_of::<T::Native>() as u32;
            let value = [near, near.wrapping_sub(2), 1 << (bits - 1)][row % 3].wrapping_add(near);
            (!next().is_multiple_of(6))
                .then(|| ScalarBuffer::<T::Native>::from(Buffer::from(&value.to_le_bytes()))[0])
        };
        let values: PrimitiveArray<T> = (0..2500).map(&mut value).collect();
        Arc::new(values.slice(3, 2400))
    }

    #[test]
    fn integers_are_compared_as_arrow_compares_them() {
        use PType::{I8, I16, I32, I64, U8, U16, U32, U64};
        for ptype in [U8, U16, U32, U64, I8, I16, I32, I64] {
            let values = match_integer!(ptype, |T| values::<T>(), else unreachable!());
            let dtype = DType::Primitive(ptype, true);
            let constants: Vec<Scalar> =
                (0..40).map(|row| Scalar::from_arrow(values.as_ref(), row, &dtype).unwrap()).collect();
            let mut predicates = Vec::new();
            for pair in constants.windows(2) {
                use CompareOp::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
                let ops = [Eq, NotEq, Lt, LtEq, Gt, GtEq];
                predicates.extend(ops.map(|op| Predicate::Compare(op, pair[0].clone())));
                predicates.push(Predicate::Between(pair[0].clone(), pair[1].clone()));
            }
            for few in constants.chunks(5) {
                let lists = [false, true].map(|negated| InList::new(few.to_vec()).with_negated(negated));
                predicates.extend(lists.map(|list| Predicate::In(Arc::new(list))));
            }
            for predicate in predicates {
                let (found, naive) =
                    (matches(&values, &predicate).unwrap(), predicate.evaluate(&values).unwrap());
                assert!(found.iter().eq(naive.iter()), "{predicate} of {ptype}");
            }
        }
    }

    #[test]
    fn constants_of_another_type_are_treated_alike() {
        let values: ArrayRef = Arc::new(arrow::array::Int8Array::from(vec![44, 5]));
        let constant = |ptype, value| Scalar::try_new(DType::Primitive(ptype, false), value).unwrap();
        for constant in [constant(PType::U8, Value::UInt(5)), constant(PType::I64, Value::Int(300))] {
            let predicate = Predicate::Compare(CompareOp::Eq, constant);
            let (found, naive) = (matches(&values, &predicate), predicate.evaluate(&values));
            assert_eq!(found.ok(), naive.ok(), "{predicate}");
        }
    }
}
