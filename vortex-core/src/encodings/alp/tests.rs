use arrow::array::{AsArray as _, Float32Array, Float64Array};
use arrow::datatypes::{Float32Type, Float64Type};

use super::*;
use crate::array::build::Tree;
use crate::encodings::shared::conformance;
use crate::expr::{CompareOp, InList};
use crate::limits::Limits;
use crate::scalar::Scalar;

const F64: DType = DType::Primitive(PType::F64, false);

fn alp(e: u32, f: u32, encoded: Tree) -> Tree {
    Tree::new(ID).message(&Metadata { e, f, patches: None }).child(encoded)
}

fn patched(e: u32, f: u32, encoded: Tree, indices: &[u16], values: Tree) -> Tree {
    let (len, indices_ptype) = (indices.len() as u64, PType::U16 as i32);
    let patches = Some(PatchesMessage { len, indices_ptype, ..Default::default() });
    Tree::new(ID)
        .message(&Metadata { e, f, patches })
        .child(encoded)
        .child(Tree::primitive(indices))
        .child(values)
}

#[test]
fn decoding_multiplies_twice() {
    let array = alp(14, 12, Tree::primitive(&[125i64, -3, 0, 1_000_003])).load(&F64, 4).unwrap();
    let decoded = array.decode(&DataType::Float64).unwrap();
    let expected: Vec<u64> = [1.25f64, -0.03, 0.0, 10_000.03].iter().map(|v| v.to_bits()).collect();
    let bits: Vec<u64> = decoded.as_primitive::<Float64Type>().values().iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits, expected);
}

#[test]
fn no_metadata_means_no_exponents() {
    let array =
        Tree::new(ID).child(Tree::primitive(&[7i32, -2])).load(&DType::Primitive(PType::F32, false), 2);
    let decoded = array.unwrap().decode(&DataType::Float32).unwrap();
    assert_eq!(decoded.as_primitive::<Float32Type>().values().as_ref(), [7.0, -2.0]);
}

#[test]
fn conforms_for_doubles_with_patches_and_nulls() {
    let rows = 2100;
    let integers: Vec<i64> = (0..rows).map(|row| row * 7919 % 2001 - 1000).collect();
    let patches: Vec<f64> = vec![-0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 0.1 + 0.2];
    let indices = [0u16, 3, 1024, 1050, 1051, 2099];
    let mut values: Vec<f64> = integers.iter().map(|v| *v as f64 * 1e1 * 1e-3).collect();
    for (index, patch) in indices.iter().zip(&patches) {
        values[usize::from(*index)] = *patch;
    }
    let tree = patched(3, 1, Tree::primitive(&integers), &indices, Tree::primitive(&patches));
    let array = tree.load(&F64, integers.len()).unwrap();
    conformance::check(&array, &(Arc::new(Float64Array::from(values.clone())) as ArrayRef));

    let valid: Vec<bool> = (0..rows).map(|row| row % 5 != 2).collect();
    let encoded = Tree::primitive(&integers).child(Tree::bools(&valid));
    let all = Tree::bools(&[true; 6]);
    let tree = patched(3, 1, encoded, &indices, Tree::primitive(&patches).child(all));
    let array = tree.load(&F64.with_nullable(true), integers.len()).unwrap();
    let expected = Float64Array::new(values.into(), Some(valid.into()));
    conformance::check(&array, &(Arc::new(expected) as ArrayRef));
}

#[test]
fn conforms_for_floats() {
    let integers: Vec<i32> = (0..700).map(|row| row * 7919 % 301 - 150).collect();
    let values: Vec<f32> = integers.iter().map(|v| *v as f32 * 1e0 * 1e-1).collect();
    let array = alp(1, 0, Tree::primitive(&integers)).load(&DType::Primitive(PType::F32, false), 700);
    conformance::check(&array.unwrap(), &(Arc::new(Float32Array::from(values)) as ArrayRef));
}

#[test]
fn integers_beyond_2_to_the_51_are_converted_exactly() {
    let edge = 1i64 << 51;
    for integers in [
        vec![edge - 1, -edge, 0, -1],
        vec![edge, -edge - 1, 1],
        vec![i64::MIN, i64::MAX, (1 << 53) + 1, -(1 << 53) - 1],
    ] {
        for (e, f) in [(0, 0), (18, 3), (2, 18)] {
            let (up, down) = (f64::POWERS[f as usize], f64::FRACTIONS[e as usize]);
            let values: Vec<f64> = integers.iter().map(|v| *v as f64 * up * down).collect();
            let array = alp(e, f, Tree::primitive(&integers)).load(&F64, integers.len()).unwrap();
            conformance::check(&array, &(Arc::new(Float64Array::from(values)) as ArrayRef));
        }
    }
}

#[test]
fn constants_between_and_beyond_the_values_compare_like_values() {
    let integers: Vec<i64> = vec![i64::MIN, -25, -1, 0, 1, 25, (1 << 53) + 1, 1 << 53, i64::MAX];
    let indices = [1u16, 4];
    let tree = patched(2, 0, Tree::primitive(&integers), &indices, Tree::primitive(&[f64::NAN, -0.0]));
    let array = tree.load(&F64, integers.len()).unwrap();
    let decoded = array.to_decoded().unwrap();
    let next = |value: f64| f64::from_bits(value.to_bits() + 1);
    let large = (1i64 << 53) as f64 * 1e-2;
    let constants = [
        0.0,
        -0.0,
        0.25,
        next(0.25),
        0.255,
        -0.01,
        large,
        next(large),
        1e30,
        -1e30,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        -f64::MIN_POSITIVE,
    ];
    let scalar = |value: f64| Scalar::try_new(F64, Value::F64(value)).unwrap();
    let mut predicates = Vec::new();
    for low in constants {
        for op in
            [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::LtEq, CompareOp::Gt, CompareOp::GtEq]
        {
            predicates.push(Predicate::Compare(op, scalar(low)));
        }
        for high in constants {
            predicates.push(Predicate::Between(scalar(low), scalar(high)));
            let lists =
                [false, true].map(|negated| InList::new([scalar(low), scalar(high)]).with_negated(negated));
            predicates.extend(lists.map(|list| Predicate::In(Arc::new(list))));
        }
    }
    for predicate in predicates {
        let actual: Vec<_> = array.matches(&predicate).unwrap().iter().collect();
        let wanted: Vec<_> = decoded.matches(&predicate).unwrap().iter().collect();
        assert_eq!(actual, wanted, "{predicate:?}");
    }
}

#[test]
fn damage_is_refused() {
    let integers = || Tree::primitive(&[1i64, 2]);
    assert!(alp(23, 23, integers()).load(&F64, 2).is_ok());
    assert!(alp(24, 0, integers()).load(&F64, 2).is_err());
    assert!(alp(0, u32::MAX, integers()).load(&F64, 2).is_err());
    assert!(alp(11, 0, Tree::primitive(&[1i32])).load(&DType::Primitive(PType::F32, false), 1).is_err());
    assert!(alp(1, 0, integers()).load(&DType::Primitive(PType::F16, false), 2).is_err());
    assert!(alp(1, 0, integers()).child(integers()).load(&F64, 2).is_err());
    let patch = patched(1, 0, integers(), &[2], Tree::primitive(&[0.5f64])).load(&F64, 2).unwrap();
    assert!(patch.decode(&DataType::Float64).is_err(), "patched row 2 of 2");
}

#[test]
fn an_outcome_that_depends_on_no_integer_is_limited() {
    let seven = Tree::new("vortex.constant").buffer(vec![0x18u8, 14]);
    let limits = Limits::new().with_max_decoded_bytes(1000);
    let array = alp(0, 0, seven).load_within(&F64, 100_000, &limits).unwrap();
    let half = Scalar::try_new(F64, Value::F64(0.5)).unwrap();
    for op in [CompareOp::Eq, CompareOp::NotEq] {
        let predicate = Predicate::Compare(op, half.clone());
        let error = array.matches(&predicate).unwrap_err();
        assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
        assert_eq!(array.slice(0..1000).unwrap().matches(&predicate).unwrap().len(), 1000);
    }
}
