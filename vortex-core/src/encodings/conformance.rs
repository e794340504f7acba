//! The requirement for every encoding: each operation is equivalent to decoding first.

use std::sync::Arc;

use arrow::array::{Array as _, UInt64Array};

use crate::array::{ArrayRef, ArrowRef, Decoded};
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::expr::{CompareOp, InList, Like, Predicate};
use crate::mask::Mask;
use crate::scalar::Scalar;

/// Compares slices, filters, takes and predicates of an array with those of its decoded form, and checks
/// that decoding results in `expected`.
pub(crate) fn check(array: &ArrayRef, expected: &ArrowRef) {
    let to = data_type(array.dtype()).unwrap();
    let decoded = array.decode(&to).unwrap();
    decoded.to_data().validate_full().unwrap();
    assert_eq!(&decoded, expected, "decoded {}", array.encoding());
    check_operations(array, expected);
    let len = array.len();
    for rows in [0..0, 0..len, 0..len / 2, len / 3..len, len / 3..len - len / 4, len.saturating_sub(1)..len] {
        let slice = array.slice(rows.clone()).unwrap();
        assert_eq!(slice.len(), rows.len());
        assert_eq!(slice.dtype(), array.dtype());
        check_operations(&slice, &expected.slice(rows.start, rows.len()));
    }
}

fn check_operations(array: &ArrayRef, expected: &ArrowRef) {
    let to = data_type(array.dtype()).unwrap();
    let same = |actual: &ArrayRef, expected: &ArrayRef, what: &str| {
        let (actual, expected) = (actual.decode(&to).unwrap(), expected.decode(&to).unwrap());
        actual.to_data().validate_full().unwrap();
        assert_eq!(&actual, &expected, "{what} of {}", array.encoding());
    };
    let plain: ArrayRef = Arc::new(Decoded::new(array.dtype().clone(), Arc::clone(expected)));
    same(array, &plain, "decode");
    let nulls = array.validity().unwrap().to_nulls(array.len());
    assert_eq!(
        nulls.map_or(0, |n| n.null_count()),
        expected.logical_null_count(),
        "nulls of {}",
        array.encoding()
    );

    let len = array.len();
    for step in [1, 2, 3, 7, 100, 5000] {
        let mask = Mask::from_indices(len, (step / 2..len).step_by(step));
        same(&array.filter(&mask).unwrap(), &plain.filter(&mask).unwrap(), "filter");
    }
    same(&array.filter(&Mask::none(len)).unwrap(), &plain.filter(&Mask::none(len)).unwrap(), "filter none");
    if len > 0 {
        let far = len as u64 - 1;
        for indices in [vec![], vec![far], vec![0, far / 2, far], vec![far, 0, 0, far / 3]] {
            let indices = UInt64Array::from(indices);
            same(&array.take(&indices).unwrap(), &plain.take(&indices).unwrap(), "take");
        }
    }
    let (actual, wanted) = (array.aggregate().unwrap(), plain.aggregate().unwrap());
    // Formatted as text, zeros of different sign differ.
    assert_eq!(format!("{actual:?}"), format!("{wanted:?}"), "aggregate of {}", array.encoding());
    for predicate in predicates(array.dtype(), expected) {
        let (actual, wanted) = (array.matches(&predicate).unwrap(), plain.matches(&predicate).unwrap());
        let (actual, wanted): (Vec<_>, Vec<_>) = (actual.iter().collect(), wanted.iter().collect());
        assert_eq!(actual, wanted, "{predicate} of {}", array.encoding());
    }
}

/// Predicates with constants taken from the data, so that some rows match.
fn predicates(dtype: &DType, values: &ArrowRef) -> Vec<Predicate> {
    let mut predicates = vec![Predicate::IsNull, Predicate::IsNotNull];
    match dtype.storage() {
        DType::Bool(_) | DType::Primitive(..) | DType::Decimal(..) | DType::Utf8(_) | DType::Binary(_) => {}
        _ => return predicates,
    }
    let len = values.len();
    let mut constants: Vec<Scalar> = [0, len / 2, len.saturating_sub(1)]
        .into_iter()
        .filter(|at| *at < len)
        .map(|at| Scalar::from_arrow(values.as_ref(), at, dtype).unwrap())
        .collect();
    for constant in constants.iter().chain([&Scalar::null(dtype)]) {
        for op in
            [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::LtEq, CompareOp::Gt, CompareOp::GtEq]
        {
            predicates.push(Predicate::Compare(op, constant.clone()));
        }
    }
    predicates.push(Predicate::In(Arc::new(InList::new(constants.clone(), false))));
    predicates.push(Predicate::In(Arc::new(InList::new(constants.clone(), true))));
    constants.retain(|constant| !constant.is_null());
    constants.sort_by(|a, b| a.compare(b).unwrap());
    if let (Some(low), Some(high)) = (constants.first(), constants.last()) {
        predicates.push(Predicate::Between(low.clone(), high.clone()));
    }
    if let DType::Utf8(_) = dtype.storage() {
        for pattern in ["%", "a%", "%a", "%e%", "_", "", "a_c%", "\\%%", "%longer%"] {
            for (negated, case_insensitive) in [(false, false), (true, false), (false, true)] {
                let pattern = pattern.into();
                predicates.push(Predicate::Like(Like { pattern, negated, case_insensitive }));
            }
        }
    }
    predicates
}
