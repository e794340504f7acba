use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    BooleanArray, Float64Array, Int32Array, Int64Array, ListArray, StringViewArray, UInt8Array,
};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{ArrowNativeType, Int32Type, Int64Type, UInt32Type};

use super::*;
use crate::array::build::Tree;
use crate::budget::Budget;
use crate::encodings::constant::ConstantArray;
use crate::encodings::run_end::tests::runs;
use crate::encodings::shared::conformance;
use crate::kernels::{Word, match_word};
use crate::limits::Work;
use crate::scalar::Value;

fn tree<K: ArrowNativeType>(ptype: PType, codes: &[K], values: Tree, count: u32) -> Tree {
    Tree::new(ID)
        .message(&Metadata { value_count: count, codes_ptype: ptype as i32, nullable_codes: Some(false) })
        .child(Tree::primitive(codes))
        .child(values)
}

fn plain(dtype: DType, array: ArrayRef) -> EncodedRef {
    Arc::new(Decoded::new(dtype, array, &Limits::default()))
}

fn dict(codes: EncodedRef, values: EncodedRef) -> EncodedRef {
    Arc::new(DictArray::try_new(codes, Arc::new(SharedValues::new(values)), &Limits::default()).unwrap())
}

#[test]
fn conforms() {
    let codes: Vec<u8> = (0..200u8).map(|at| at % 7).collect();
    let values: Vec<i64> = vec![50, -3, 7, 7, 1 << 40, 0, 12];
    let tree = tree(PType::U8, &codes, Tree::primitive(&values), 7);
    let array = tree.load(&DType::Primitive(PType::I64, false), 200).unwrap();
    let expected = Int64Array::from_iter_values(codes.iter().map(|code| values[usize::from(*code)]));
    conformance::check(&array, &(Arc::new(expected) as ArrayRef));
}

#[test]
fn signed_and_wide_codes_conform() {
    let values = [1.5f64, -0.0, f64::NAN, 0.0];
    let expected: ArrayRef = Arc::new(Float64Array::from_iter_values((0..90).map(|at| values[at % 4])));
    let dtype = DType::Primitive(PType::F64, false);
    let signed: Vec<i16> = (0..90).map(|at| at % 4).collect();
    let array = tree(PType::I16, &signed, Tree::primitive(&values), 4).load(&dtype, 90).unwrap();
    conformance::check(&array, &expected);
    let wide: Vec<u64> = (0..90).map(|at| at % 4).collect();
    let array = tree(PType::U64, &wide, Tree::primitive(&values), 4).load(&dtype, 90).unwrap();
    conformance::check(&array, &expected);
    let negative = tree(PType::I16, &[-1i16], Tree::primitive(&values), 4).load(&dtype, 1).unwrap();
    assert!(negative.decode(&DataType::Float64).is_err());
}

#[test]
fn nulls_may_be_in_codes_and_in_values() {
    let words = [Some("a longer string of 26 bytes"), None, Some("ab%"), Some("e")];
    let codes: Vec<Option<u8>> = (0..150u8).map(|at| (at % 6 != 5).then_some(at % 4)).collect();
    let expected: ArrayRef =
        Arc::new(codes.iter().map(|code| words[usize::from((*code)?)]).collect::<StringViewArray>());
    // Codes under nulls are out of range.
    let keys: Vec<u8> = codes.iter().map(|code| code.unwrap_or(200)).collect();
    let valid: Vec<bool> = codes.iter().map(Option::is_some).collect();
    let keys = UInt8Array::new(keys.into(), Some(valid.into()));
    let values: ArrayRef = Arc::new(StringViewArray::from(words.to_vec()));
    let array =
        dict(plain(DType::Primitive(PType::U8, true), Arc::new(keys)), plain(DType::Utf8(true), values));
    conformance::check(&array, &expected);

    let keys = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let decoded = array.decode(&keys).unwrap();
    decoded.to_data().validate_full().unwrap();
    assert_eq!(decoded.as_dictionary::<Int32Type>().values().len(), 4);
    let flat = arrow::compute::cast(&decoded, &DataType::Utf8View).unwrap();
    assert_eq!(&flat, &expected);
}

#[test]
fn codes_in_runs_conform() {
    let words = [Some("a longer string of 26 bytes"), None, Some("ab%"), Some("e")];
    let (ends, codes) = ([3, 40, 41, 90, 120, 150], [2u8, 0, 1, 3, 0, 2]);
    let coded = || {
        let tree = runs(&ends, 0, Tree::primitive(&codes));
        tree.load(&DType::Primitive(PType::U8, false), 150).unwrap()
    };
    let rows = |at: u16| usize::from(codes[ends.partition_point(|end| *end <= at)]);
    let values: ArrayRef = Arc::new(StringViewArray::from(words.to_vec()));
    let array = dict(coded(), plain(DType::Utf8(true), values));
    let expected = (0..150).map(|at| words[rows(at)]).collect::<StringViewArray>();
    conformance::check(&array, &(Arc::new(expected) as ArrayRef));

    let numbers = vec![5i64, -7, 1 << 40, 0];
    let values: ArrayRef = Arc::new(Int64Array::from(numbers.clone()));
    let array = dict(coded(), plain(DType::Primitive(PType::I64, false), values));
    let expected = Int64Array::from_iter_values((0..150).map(|at| numbers[rows(at)]));
    conformance::check(&array, &(Arc::new(expected) as ArrayRef));

    let values: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let array = dict(coded(), plain(DType::Primitive(PType::I64, false), values));
    assert!(array.decode(&DataType::Int64).is_err(), "codes out of range");
}

#[test]
fn booleans_lists_and_empty_dictionaries_decode() {
    let codes = || plain(DType::Primitive(PType::U8, false), Arc::new(UInt8Array::from(vec![1, 0, 1])));
    let values: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    let array = dict(codes(), plain(DType::Bool(false), values));
    conformance::check(&array, &(Arc::new(BooleanArray::from(vec![false, true, false])) as ArrayRef));

    let lists = |rows: Vec<Option<Vec<Option<i32>>>>| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows))
    };
    let (one, two) = (Some(vec![Some(1), None]), Some(vec![Some(3)]));
    let dtype = DType::List(Arc::new(DType::Primitive(PType::I32, true)), false);
    let array = dict(codes(), plain(dtype, lists(vec![one.clone(), two.clone()])));
    conformance::check(&array, &lists(vec![two.clone(), one, two]));

    let keys: ArrayRef = Arc::new(UInt8Array::from(vec![None, None]));
    let none = plain(DType::Utf8(true), Arc::new(StringViewArray::from(Vec::<&str>::new())));
    let array = dict(plain(DType::Primitive(PType::U8, true), keys), none);
    let expected: ArrayRef = Arc::new(StringViewArray::new_null(2));
    conformance::check(&array, &expected);
}

#[test]
fn few_rows_do_not_decode_a_large_dictionary() {
    let values: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10_000));
    let keys: ArrayRef = Arc::new(UInt32Array::from(vec![9_999, 0, 5]));
    let values = Arc::new(SharedValues::new(plain(DType::Primitive(PType::I32, false), values)));
    let keys = plain(DType::Primitive(PType::U32, false), keys);
    let array = DictArray::try_new(keys, Arc::clone(&values), &Limits::default()).unwrap();
    let decoded = array.decode(&DataType::Int32).unwrap();
    assert_eq!(decoded.as_primitive::<Int32Type>().values(), &[9_999, 0, 5]);
    assert!(values.remembered(&DataType::Int32).is_none());

    let packed = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Int32));
    let decoded = array.decode(&packed).unwrap();
    assert_eq!(decoded.as_dictionary::<UInt32Type>().values().len(), 3);
    assert_eq!(
        &arrow::compute::cast(&decoded, &DataType::Int32).unwrap(),
        &array.decode(&DataType::Int32).unwrap()
    );
    assert!(values.remembered(&DataType::Int32).is_none());

    let keys: ArrayRef = Arc::new(UInt32Array::from(vec![Some(9_999), None, Some(5)]));
    let keys = plain(DType::Primitive(PType::U32, true), keys);
    let array: EncodedRef =
        Arc::new(DictArray::try_new(keys, Arc::clone(&values), &Limits::default()).unwrap());
    let expected: ArrayRef = Arc::new(Int32Array::from(vec![Some(9_999), None, Some(5)]));
    assert_eq!(&array.decode(&DataType::Int32).unwrap(), &expected);
    assert!(values.remembered(&DataType::Int32).is_none());
    conformance::check(&array, &expected);
}

#[test]
fn few_rows_many_times_decode_the_dictionary_once() {
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter_values((0..800).map(|at| format!("value {at:20}"))));
    let dtype = DType::Utf8(false);
    let values = Arc::new(SharedValues::new(plain(dtype.clone(), Arc::clone(&texts))));
    let keys: ArrayRef = Arc::new(UInt32Array::from(vec![799, 0, 5, 5]));
    let keys = plain(DType::Primitive(PType::U32, false), keys);
    let array = DictArray::try_new(keys, Arc::clone(&values), &Limits::default()).unwrap();
    let expected = array.decode(&DataType::Utf8).unwrap();
    for time in 1..60 {
        assert_eq!(
            values.remembered(&DataType::Utf8View).is_some(),
            time > 25,
            "after {time} times four rows"
        );
        assert_eq!(&array.decode(&DataType::Utf8).unwrap(), &expected);
    }
}

/// Values that are decompressed by the thousand.
#[derive(Debug)]
struct InFrames(EncodedRef);

impl EncodedArray for InFrames {
    fn header(&self) -> &Header {
        self.0.header()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        self.0.decode(to)
    }
}

#[test]
fn few_rows_decode_all_of_a_dictionary_that_is_decompressed_by_the_thousand() {
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter_values((0..10_000).map(|at| format!("value {at:20}"))));
    let dtype = DType::Utf8(false);
    let frames: EncodedRef = Arc::new(InFrames(plain(dtype, texts)));
    let values = Arc::new(SharedValues::new(frames));
    let keys: ArrayRef = Arc::new(UInt32Array::from(vec![9_999, 0, 5, 5]));
    let keys = plain(DType::Primitive(PType::U32, false), keys);
    let array = DictArray::try_new(keys, Arc::clone(&values), &Limits::default()).unwrap();
    for time in 0..4 {
        assert_eq!(
            values.remembered(&DataType::Utf8View).is_some(),
            time > 2,
            "after {time} times four rows"
        );
        array.decode(&DataType::Utf8View).unwrap();
    }
}

#[test]
fn few_rows_many_times_do_not_decode_a_dictionary_of_many_bytes() {
    let numbers: Vec<i64> = (0..600_000).collect();
    let dtype = DType::Primitive(PType::I64, false);
    let values = Arc::new(SharedValues::new(Tree::primitive(&numbers).load(&dtype, numbers.len()).unwrap()));
    let keys: ArrayRef = Arc::new(UInt32Array::from_iter_values(100..60_100));
    let keys = plain(DType::Primitive(PType::U32, false), keys);
    let array = DictArray::try_new(keys, Arc::clone(&values), &Limits::default()).unwrap();
    for _ in 0..3 {
        let decoded = array.decode(&DataType::Int64).unwrap();
        assert_eq!(decoded.as_primitive::<Int64Type>().values()[..], numbers[100..60_100]);
        assert!(values.remembered(&DataType::Int64).is_none());
    }
}

#[test]
fn few_rows_of_a_dictionary_near_the_limits_are_decoded_any_number_of_times() {
    let limits = Limits::new().with_max_decoded_bytes(1000);
    // The scalar 7, as a Protobuf message.
    let values = Tree::new("vortex.constant").buffer(vec![0x18u8, 14]);
    for (rows, count) in [(20, 170), (20, 240), (20, 251), (20, 10_000)] {
        let values = values.load_within(&DType::Primitive(PType::I32, false), count, &limits).unwrap();
        let keys: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..rows));
        let array = dict(plain(DType::Primitive(PType::U32, false), keys), values);
        let expected: ArrayRef = Arc::new(Int32Array::from_value(7, rows as usize));
        for _ in 0..200 {
            let _work = Work::begin();
            assert_eq!(&array.decode(&DataType::Int32).unwrap(), &expected, "{rows} of {count}");
        }
    }
}

#[test]
fn values_are_kept_in_the_types_that_were_asked_for_last() {
    let values: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
    let values = SharedValues::new(plain(DType::Primitive(PType::I32, false), values));
    let types =
        [DataType::Int8, DataType::Int16, DataType::Int64, DataType::UInt8, DataType::UInt16, DataType::Int8];
    for to in types {
        let decoded = values.decoded(&to).unwrap();
        assert!(Arc::ptr_eq(&decoded, &values.decoded(&to).unwrap()), "{to}");
    }
}

#[test]
fn the_time_that_few_rows_take_does_not_grow_with_the_values() {
    const COUNT: u32 = 1 << 24;
    let valid = BooleanBuffer::collect_bool(COUNT as usize, |at| at != 7);
    let values = BooleanArray::new(BooleanBuffer::new_set(COUNT as usize), Some(valid.into()));
    let keys: ArrayRef = Arc::new(UInt32Array::from(vec![Some(7), None, Some(COUNT - 1)]));
    let array =
        dict(plain(DType::Primitive(PType::U32, true), keys), plain(DType::Bool(true), Arc::new(values)));
    let expected: ArrayRef = Arc::new(BooleanArray::from(vec![None, None, Some(true)]));
    for _ in 0..1000 {
        assert_eq!(&array.decode(&DataType::Boolean).unwrap(), &expected);
        assert_eq!(array.validity().unwrap(), Validity::from_nulls(expected.logical_nulls()));
    }
}

#[test]
fn zero_and_minus_zero_are_different_predicates() {
    let values: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0]));
    let dtype = DType::Primitive(PType::F64, false);
    let keys: ArrayRef = Arc::new(UInt8Array::from(vec![0, 1]));
    let array = dict(plain(DType::Primitive(PType::U8, false), keys), plain(dtype.clone(), values));
    for (constant, wanted) in [(0.0, [true, false]), (-0.0, [false, true])] {
        let constant = Scalar::try_new(dtype.clone(), Value::F64(constant)).unwrap();
        let outcome = array.matches(&Predicate::Compare(CompareOp::Eq, constant)).unwrap();
        assert_eq!(outcome, BooleanArray::from(wanted.to_vec()));
    }
}

#[test]
fn nested_values_are_held_against_the_limits() {
    let row: Vec<Option<i32>> = (0..1000).map(Some).collect();
    let values: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(row)]));
    let dtype = DType::List(Arc::new(DType::Primitive(PType::I32, true)), true);
    let codes = Arc::new(UInt8Array::from(vec![0; 1000]));
    let codes = plain(DType::Primitive(PType::U8, false), codes);
    let values = Arc::new(SharedValues::new(plain(dtype.clone(), values)));
    let to = data_type(&dtype).unwrap();
    let mut limits = Limits { max_decoded_bytes: 1 << 20, ..Limits::default() };
    let array = DictArray::try_new(Arc::clone(&codes), Arc::clone(&values), &limits).unwrap();
    assert!(array.decode(&to).is_err());
    limits.max_decoded_bytes <<= 3;
    assert!(DictArray::try_new(codes, values, &limits).unwrap().decode(&to).is_ok());
}

#[test]
fn codes_out_of_range_and_wrong_counts_are_corrupt() {
    let dtype = DType::Primitive(PType::I32, false);
    let decode = |tree: &Tree| tree.load(&dtype, 2)?.decode(&DataType::Int32);
    let values = || Tree::primitive(&[1i32, 2]);
    assert!(decode(&tree(PType::U8, &[0u8, 1], values(), 2)).is_ok());
    assert!(decode(&tree(PType::U8, &[0u8, 2], values(), 2)).is_err());
    assert!(decode(&tree(PType::U8, &[0u8, 1], values(), 3)).is_err());
    assert!(decode(&tree(PType::F32, &[0f32, 1.0], values(), 2)).is_err());
    let absent = Tree::new(ID).message(&Metadata { value_count: 2, codes_ptype: 0, nullable_codes: None });
    let absent = absent.child(Tree::primitive(&[0u8, 1]).child(Tree::bools(&[true, false])));
    assert!(decode(&absent.clone().child(values())).is_err(), "codes are nullable iff the array is");
    assert!(absent.child(values()).load(&dtype.with_nullable(true), 2).is_ok());
}

#[test]
fn null_tests_of_rows_that_take_no_bytes_are_limited() {
    let code = Scalar::try_new(DType::Primitive(PType::U8, false), Value::UInt(0)).unwrap();
    let codes = Arc::new(ConstantArray::new(code, 1 << 40, &Limits::default()));
    let values = plain(DType::Primitive(PType::I32, false), Arc::new(Int32Array::from(vec![7])));
    let array = dict(codes, values);
    assert!(array.matches(&Predicate::IsNull).is_err());
    assert_eq!(array.slice(0..3).unwrap().matches(&Predicate::IsNotNull).unwrap().true_count(), 3);
}

#[test]
fn codes_of_constants_are_limited() {
    let rows = 16 << 20;
    let tree = Tree::new(ID)
        .metadata(vec![0x08, 1])
        // A protobuf scalar: field 4, the unsigned integer 0.
        .child(Tree::new("vortex.constant").buffer(vec![0x20u8, 0]))
        .child(
            Tree::new("vortex.varbinview").buffer(vec![1u8, 0, 0, 0, b'a', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        );
    let limits = Limits::new().with_max_decoded_bytes(64 << 20);
    let array = tree.load_within(&DType::Utf8(false), rows, &limits).unwrap();
    assert!(array.decode(&DataType::Utf8View).is_err(), "256 MiB of views");
    assert_eq!(array.slice(0..1000).unwrap().decode(&DataType::Utf8View).unwrap().len(), 1000);
}

#[test]
fn values_that_are_all_null_take_no_bits() {
    let values = Tree::new("vortex.null").load_within(&DType::Null, 1 << 46, &Limits::default()).unwrap();
    let codes = plain(DType::Primitive(PType::U8, false), Arc::new(UInt8Array::from(vec![0, 255])));
    let array = dict(codes, values);
    let to = DataType::Dictionary(Box::new(DataType::UInt64), Box::new(DataType::Null));
    assert_eq!(array.decode(&to).unwrap().null_count(), 2);
    assert_eq!(array.decode(&DataType::Null).unwrap().len(), 2);
    let null = Predicate::Compare(CompareOp::Eq, Scalar::null(&DType::Null));
    let error = array.matches(&null).unwrap_err();
    assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
}

#[test]
fn decoded_values_are_charged_as_long_as_they_are_kept() {
    let budget = Budget::new(1 << 20);
    let seven = Tree::new("vortex.constant").buffer(vec![0x18u8, 14]);
    let values = seven.load(&DType::Primitive(PType::I64, false), 1000).unwrap();
    let values = SharedValues::new(values).charged_to(budget.take_anyway(0));
    for _ in 0..2 {
        values.decoded(&DataType::Int64).unwrap();
        assert_eq!(budget.used(), 8000);
    }
    drop(values);
    assert_eq!(budget.used(), 0);
}

/// Values that count how often a predicate is evaluated on them.
#[derive(Debug)]
struct Counted {
    values: EncodedRef,
    evaluated: AtomicUsize,
}

impl EncodedArray for Counted {
    fn header(&self) -> &Header {
        self.values.header()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        self.values.decode(to)
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        self.evaluated.fetch_add(1, Ordering::Relaxed);
        self.values.matches(predicate)
    }
}

/// How often predicates are evaluated on this many values if 20 splits use all of them.
fn evaluations(value_count: i32, predicates: i64) -> usize {
    let dtype = DType::Primitive(PType::I32, false);
    let values = plain(dtype.clone(), Arc::new(Int32Array::from_iter_values(0..value_count)));
    let counted = Arc::new(Counted { values, evaluated: AtomicUsize::new(0) });
    let shared = SharedValues::new(Arc::clone(&counted) as EncodedRef);
    for _ in 0..20 {
        for constant in 0..predicates {
            let constant = Scalar::try_new(dtype.clone(), Value::Int(constant)).unwrap();
            let outcome = shared.outcome(&Predicate::Compare(CompareOp::Lt, constant.clone())).unwrap();
            assert_eq!(outcome.true_count() as i64, constant.as_i128().unwrap() as i64);
        }
    }
    counted.evaluated.load(Ordering::Relaxed)
}

#[test]
fn each_predicate_is_evaluated_once_per_dictionary() {
    assert_eq!(evaluations(1000, 40), 40);
}

#[test]
fn outcomes_that_do_not_fit_displace_no_others() {
    // Each takes half a mebibyte, so that 4 are kept in any case.
    assert_eq!(evaluations(4 << 20, 6), 4 + 2 * 20);
}

#[test]
fn codes_that_are_dictionaries_of_dictionaries_take_time_linear_in_their_depth() {
    for ptype in [PType::I64, PType::U64, PType::U32] {
        let wide = |value: usize| match_word!(ptype, |W| Tree::primitive(&[W::narrow(value as u64)]));
        for rows in [0, 1] {
            let codes = match_word!(ptype, |W| Tree::primitive(&vec![W::narrow(0); rows]));
            let nested = (0..60).fold(codes, |codes, _| {
                let metadata =
                    Metadata { value_count: 1, codes_ptype: ptype as i32, nullable_codes: Some(false) };
                Tree::new(ID).message(&metadata).child(codes).child(wide(0))
            });
            let array =
                nested.load_within(&DType::Primitive(ptype, false), rows, &Limits::default()).unwrap();
            assert_eq!(array.decode(&data_type(array.dtype()).unwrap()).unwrap().len(), rows);
        }
    }
}
