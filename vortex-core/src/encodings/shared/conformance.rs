//! The requirement for every encoding: each operation is equivalent to decoding first.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayData, BooleanArray, UInt64Array};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Fields, i256};

use crate::array::{ArrayRef, Decoded, EncodedRef};
use crate::dtype::arrow::{data_type, presents};
use crate::dtype::{DType, PType};
use crate::expr::{CompareOp, InList, Like, Predicate};
use crate::limits::Work;
use crate::mask::Mask;
use crate::scalar::{Scalar, Value};

/// Checks that decoding results in `expected`, in every Arrow type that presents the dtype, and compares each
/// operation on the array, on slices of it, and on its null rows alone with the same on its decoded form.
pub(crate) fn check(array: &EncodedRef, expected: &ArrayRef) {
    let to = data_type(array.dtype()).unwrap();
    let decoded = decoded_within_count(array, &to);
    decoded.to_data().validate_full().unwrap();
    assert_eq!(&decoded, expected, "decoded {}", array.encoding());
    drop(decoded);
    check_operations(array, expected);
    check_types(array, expected);
    let len = array.len();
    check_types(
        &array.slice(len / 3..len - len / 4).unwrap(),
        &expected.slice(len / 3, len - len / 4 - len / 3),
    );
    for rows in [0..0, 0..len, 0..len / 2, len / 3..len, len / 3..len - len / 4, len.saturating_sub(1)..len] {
        let slice = array.slice(rows.clone()).unwrap();
        assert_eq!(slice.len(), rows.len());
        assert_eq!(slice.dtype(), array.dtype());
        check_operations(&slice, &expected.slice(rows.start, rows.len()));
    }
    if let Some(nulls) = expected.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        let rows: Vec<usize> = (0..len).filter(|row| nulls.is_null(*row)).collect();
        let one = UInt64Array::from(vec![rows[0] as u64; 3]);
        let filtered = array.filter(&Mask::from_indices(len, rows.iter().copied())).unwrap();
        for all_null in [filtered, array.take(&one).unwrap()] {
            let expected = arrow::array::new_null_array(&to, all_null.len());
            if !matches!(to, DataType::Union(..)) {
                assert_eq!(&all_null.decode(&to).unwrap(), &expected, "nulls of {}", array.encoding());
            }
            let expected = all_null.decode(&to).unwrap();
            check_operations(&all_null, &expected);
            check_types(&all_null, &expected);
        }
    }
}

/// Decodes an array, which must count what it allocates, and reach each leaf once: otherwise, nested arrays would take
/// time exponential in their depth.
fn decoded_within_count(array: &EncodedRef, to: &DataType) -> ArrayRef {
    let work = Work::begin();
    leaves::start();
    let decoded = array.decode(to).unwrap();
    let most = leaves::most_often();
    assert!(most <= 1, "{} decodes a leaf {most} times", array.encoding());
    let own = own_bytes(&decoded.to_data());
    let counted = work.byte_len();
    // A bit per row for nulls, and what does not grow with the rows, do not count.
    assert!(
        own <= counted + array.len() / 4 + (4 << 10),
        "{} allocates {own} bytes, and counts {counted}",
        array.encoding()
    );
    decoded
}

/// Bytes of buffers that nothing else shares.
fn own_bytes(data: &ArrayData) -> usize {
    let buffers = data.buffers().iter().filter(|buffer| buffer.strong_count() <= 2);
    buffers.map(Buffer::capacity).sum::<usize>() + data.child_data().iter().map(own_bytes).sum::<usize>()
}

/// Counts how often leaves are decoded, by the address of their bytes.
pub(crate) mod leaves {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use arrow::buffer::Buffer;

    thread_local! {
        static DECODED: RefCell<Option<HashMap<usize, usize>>> = const { RefCell::new(None) };
    }

    pub(super) fn start() {
        DECODED.set(Some(HashMap::new()));
    }

    /// Counts that a leaf with these bytes is decoded.
    pub(crate) fn count(bytes: &Buffer) {
        DECODED.with_borrow_mut(|decoded| {
            if let Some(decoded) = decoded
                && !bytes.is_empty()
            {
                *decoded.entry(bytes.as_ptr() as usize).or_default() += 1;
            }
        });
    }

    /// How often the leaf that was decoded most often was, since the start.
    pub(super) fn most_often() -> usize {
        DECODED.take().and_then(|decoded| decoded.into_values().max()).unwrap_or(0)
    }
}

/// Decodes to every type that may be requested, and converts the result back.
fn check_types(array: &EncodedRef, expected: &ArrayRef) {
    for to in presentations(array.dtype(), &KEYS) {
        assert!(presents(array.dtype(), &to), "{to} of {}", array.dtype());
        let decoded = match (array.decode(&to), &to) {
            // There may be more values than keys.
            (Err(_), DataType::Dictionary(keys, _)) if array.len() >= capacity(keys) => continue,
            (decoded, _) => decoded.unwrap_or_else(|error| panic!("{to} of {}: {error}", array.encoding())),
        };
        assert_eq!(decoded.data_type(), &to, "type of {}", array.encoding());
        decoded.to_data().validate_full().unwrap();
        let back = cast(&decoded, expected.data_type()).unwrap();
        assert_eq!(&back, expected, "{to} of {}", array.encoding());
    }
}

const KEYS: [DataType; 8] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
];

/// The number of keys that are not negative.
fn capacity(keys: &DataType) -> usize {
    match keys.primitive_width() {
        Some(1) => 1 << 7,
        Some(2) => 1 << 15,
        _ => usize::MAX,
    }
}

/// The Arrow types that present a dtype, with dictionaries of these keys. Nested types vary in one way at a
/// time, and contain only dictionaries of 32-bit keys.
fn presentations(dtype: &DType, keys: &[DataType]) -> Vec<DataType> {
    let preferred = data_type(dtype).unwrap();
    let inner = |dtype: &DType| presentations(dtype, &[DataType::Int32]);
    let with = |field: &FieldRef, to: DataType| Arc::new(field.as_ref().clone().with_data_type(to));
    let plain = match (dtype.storage(), &preferred) {
        (DType::Utf8(_), _) => vec![preferred, DataType::Utf8, DataType::LargeUtf8],
        (DType::Binary(_), _) => vec![preferred, DataType::Binary, DataType::LargeBinary],
        (DType::Decimal(decimal, _), _) => {
            let (precision, scale) = (decimal.precision(), decimal.scale());
            let all = [
                (9, DataType::Decimal32(precision, scale)),
                (18, DataType::Decimal64(precision, scale)),
                (38, DataType::Decimal128(precision, scale)),
                (76, DataType::Decimal256(precision, scale)),
            ];
            all.into_iter().filter(|(most, _)| precision <= *most).map(|(_, to)| to).collect()
        }
        (DType::List(element, _), DataType::List(item)) => {
            let lists: [fn(FieldRef) -> DataType; 4] =
                [DataType::List, DataType::LargeList, DataType::ListView, DataType::LargeListView];
            let items = inner(element).into_iter().map(|to| with(item, to));
            items.flat_map(|item| lists.map(|list| list(Arc::clone(&item)))).collect()
        }
        (DType::FixedSizeList(element, ..), DataType::FixedSizeList(item, size)) => {
            inner(element).into_iter().map(|to| DataType::FixedSizeList(with(item, to), *size)).collect()
        }
        (DType::Struct(fields, _), DataType::Struct(own)) => {
            let all: Vec<_> = fields.dtypes().iter().map(inner).collect();
            let most = all.iter().map(Vec::len).max().unwrap_or(1);
            let nth = |at: usize| {
                let typed = all.iter().zip(own);
                DataType::Struct(typed.map(|(to, field)| with(field, to[at % to.len()].clone())).collect())
            };
            (0..most).map(nth).collect()
        }
        (DType::Map(map, _), DataType::Map(entries, sorted)) => {
            let DataType::Struct(entry) = entries.data_type() else { panic!("{preferred}") };
            let values = inner(map.value()).into_iter().map(|to| {
                let entry: Fields = vec![Arc::clone(&entry[0]), with(&entry[1], to)].into();
                DataType::Map(with(entries, DataType::Struct(entry)), *sorted)
            });
            values.collect()
        }
        _ => vec![preferred],
    };
    let packed = plain.iter().flat_map(|values| {
        keys.iter().map(|keys| DataType::Dictionary(Box::new(keys.clone()), Box::new(values.clone())))
    });
    let packed: Vec<DataType> = packed.filter(|to| presents(dtype, to)).collect();
    [plain, packed].concat()
}

fn check_operations(array: &EncodedRef, expected: &ArrayRef) {
    let to = data_type(array.dtype()).unwrap();
    let same = |actual: &EncodedRef, expected: &EncodedRef, what: &str| {
        let (actual, expected) = (actual.decode(&to).unwrap(), expected.decode(&to).unwrap());
        actual.to_data().validate_full().unwrap();
        assert_eq!(&actual, &expected, "{what} of {}", array.encoding());
    };
    let plain: EncodedRef = array.header().decoded(Arc::clone(expected));
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
    for at in 0..array.dtype().as_struct().map_or(0, |fields| fields.len()) {
        let (actual, wanted) = (array.field(at).unwrap(), plain.field(at).unwrap());
        assert_eq!(actual.dtype(), wanted.dtype(), "field {at} of {}", array.encoding());
        let to = data_type(wanted.dtype()).unwrap();
        let (actual, wanted) = (actual.decode(&to).unwrap(), wanted.decode(&to).unwrap());
        actual.to_data().validate_full().unwrap();
        assert_eq!(&actual, &wanted, "field {at} of {}", array.encoding());
    }
    if let Some(same_runs) = array.map_runs(&Ok).unwrap() {
        same(&same_runs, &plain, "runs");
        let are_null = |values: EncodedRef| -> crate::Result<EncodedRef> {
            let nulls: BooleanArray = values.matches(&Predicate::IsNull)?;
            Ok(Arc::new(Decoded::new(DType::Bool(true), Arc::new(nulls), values.limits())))
        };
        let nulls = array.map_runs(&are_null).unwrap().unwrap().decode(&DataType::Boolean).unwrap();
        let wanted: ArrayRef = Arc::new(plain.matches(&Predicate::IsNull).unwrap());
        assert_eq!(&nulls, &wanted, "mapped runs of {}", array.encoding());
    }
    if let Some(value) = array.as_constant() {
        assert_eq!(&value.to_arrow(&to, len).unwrap(), expected, "constant of {}", array.encoding());
    }
    for predicate in predicates(array.dtype(), expected) {
        let (actual, wanted) = (array.matches(&predicate).unwrap(), predicate.evaluate(expected).unwrap());
        let (actual, wanted): (Vec<_>, Vec<_>) = (actual.iter().collect(), wanted.iter().collect());
        assert_eq!(actual, wanted, "{predicate} of {}", array.encoding());
    }
}

/// The least and the greatest value of a type, or nearly, and others at which encodings may go wrong.
fn ends_of(dtype: &DType) -> Vec<Scalar> {
    let values = match dtype.storage() {
        DType::Primitive(PType::F32, _) => {
            [f32::NEG_INFINITY, f32::INFINITY, -0.0, 0.0, f32::NAN].map(Value::F32).to_vec()
        }
        DType::Primitive(PType::F64, _) => {
            [f64::NEG_INFINITY, f64::INFINITY, -0.0, 0.0, f64::NAN].map(Value::F64).to_vec()
        }
        DType::Primitive(ptype, _) if ptype.is_signed() => {
            let max = i64::MAX >> (64 - 8 * ptype.byte_width());
            [-max - 1, max].map(Value::Int).to_vec()
        }
        DType::Primitive(ptype, _) if ptype.is_unsigned() => {
            [0, u64::MAX >> (64 - 8 * ptype.byte_width())].map(Value::UInt).to_vec()
        }
        DType::Decimal(decimal, _) => {
            let max = i256::from_i128(10).wrapping_pow(decimal.precision().into()) - i256::ONE;
            [-max, max].map(Value::Decimal).to_vec()
        }
        DType::Utf8(_) => ["", "\u{10ffff}"].map(|text| Value::Utf8(text.into())).to_vec(),
        DType::Binary(_) => vec![Value::Binary(Arc::from([])), Value::Binary(Arc::from([0xff; 3]))],
        _ => Vec::new(),
    };
    // Types in another storage may have fewer values.
    values.into_iter().filter_map(|value| Scalar::try_new(dtype.clone(), value).ok()).collect()
}

/// Predicates with constants taken from the data, so that some rows match.
fn predicates(dtype: &DType, values: &ArrayRef) -> Vec<Predicate> {
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
    let ends = ends_of(dtype);
    for constant in constants.iter().chain(&ends).chain([&Scalar::null(dtype)]) {
        for op in
            [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::LtEq, CompareOp::Gt, CompareOp::GtEq]
        {
            predicates.push(Predicate::Compare(op, constant.clone()));
        }
    }
    predicates.push(Predicate::In(Arc::new(InList::new(constants.clone()))));
    predicates.push(Predicate::In(Arc::new(InList::new(constants.clone()).with_negated(true))));
    // Long lists are looked up in other ways.
    let all = (0..len.min(20))
        .map(|at| Scalar::from_arrow(values.as_ref(), at * len / len.min(20), dtype).unwrap());
    let all: Vec<Scalar> = all.chain(ends.iter().cloned()).collect();
    for count in [6, all.len()] {
        let some: Vec<Scalar> = all.iter().take(count).cloned().collect();
        predicates.push(Predicate::In(Arc::new(InList::new(some))));
    }
    constants.retain(|constant| !constant.is_null());
    constants.sort_by(|a, b| a.compare(b).unwrap());
    if let (Some(low), Some(high)) = (constants.first(), constants.last()) {
        predicates.push(Predicate::Between(low.clone(), high.clone()));
        predicates.push(Predicate::Between(high.clone(), low.clone()));
        predicates.push(Predicate::Between(low.clone(), Scalar::null(dtype)));
        predicates.push(Predicate::Between(Scalar::null(dtype), high.clone()));
    }
    if let [least, greatest, ..] = ends.as_slice() {
        predicates.push(Predicate::Between(least.clone(), greatest.clone()));
    }
    if let DType::Utf8(_) = dtype.storage() {
        for pattern in [
            "%", "a%", "%a", "%e%", "_", "", "a_c%", "\\%%", "%longer%", "%%", "a%e", "l%r%", "%e%r%",
            "%n%e%r", "a%a%a",
        ] {
            for (negated, case_insensitive) in [(false, false), (true, false), (false, true), (true, true)] {
                let like = Like::new(pattern).with_negated(negated).with_case_insensitive(case_insensitive);
                predicates.push(Predicate::Like(like));
            }
        }
    }
    predicates
}
