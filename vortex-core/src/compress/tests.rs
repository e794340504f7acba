//! Compressed data is restored bit for bit, and gives the same answers as decoded values.

mod chosen;
mod readers;

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, Decimal128Array,
    Decimal256Array, FixedSizeListArray, ListArray, MapArray, PrimitiveArray, StringArray, StringViewArray,
    StructArray, TimestampMicrosecondArray, TimestampNanosecondArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Field, Fields, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use proptest::prelude::*;

use super::*;
use crate::Registry;
use crate::array::ArrayParts;
use crate::dtype::arrow::from_field;
use crate::encodings::shared::conformance;
use crate::kernels::random;
use crate::limits::Limits;
use crate::wire::Ids;

const LEVELS: [Level; 3] = [Level::Fast, Level::Default, Level::Compact];

const READERS: [Release; 5] =
    [Release::OLDEST, Release::new(0, 54), Release::new(0, 76), Release::new(0, 85), Release::NEWEST];

/// Generates word `row` of a column from random words.
type Shape = fn(&mut dyn FnMut() -> u64, u64) -> u64;

/// Kinds of distributions of numbers.
const SHAPES: [(&str, Shape); 14] = [
    ("random", |next, _| next()),
    ("narrow", |next, _| next() % 300),
    ("far from zero", |next, _| (1 << 40) + 77 + next() % 1000),
    ("around zero", |next, _| (next() % 200).wrapping_sub(100)),
    ("sorted", |next, row| row * 5 + next() % 5),
    ("even", |_, row| row.wrapping_mul(3).wrapping_sub(50)),
    ("falling", |_, row| 90_u64.wrapping_sub(row)),
    ("runs", |_, row| (row / 50).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    ("few", |next, _| (next() % 7).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    ("mostly one", |next, _| if next() % 50 == 0 { next() } else { 5 }),
    ("outliers above", |next, _| if next() % 100 == 0 { next() >> 1 } else { next() % 60 }),
    ("outliers below", |next, _| if next() % 100 == 0 { 0 } else { (1 << 50) + next() % 6000 }),
    ("constant", |_, _| 42),
    ("extremes", |next, _| [0, u64::MAX, 1 << 63, (1 << 63) - 1][(next() % 4) as usize]),
];

/// Null rows: none, a few, in long stretches, nearly all, or all.
fn nulls(next: &mut dyn FnMut() -> u64, len: usize, kind: usize) -> Option<NullBuffer> {
    let valid: Box<dyn FnMut(usize) -> bool> = match kind % 5 {
        0 => return None,
        1 => Box::new(|_| !next().is_multiple_of(10)),
        2 => Box::new(|row| row / 100 % 2 == 1),
        3 => Box::new(|_| next().is_multiple_of(40)),
        _ => Box::new(|_| false),
    };
    Some(NullBuffer::new((0..len).map(valid).collect::<Vec<bool>>().into()))
}

/// A column after a round trip.
fn round_trip(array: &ArrayRef, level: Level, reader: Release) -> crate::array::EncodedRef {
    let field = Field::new("a", array.data_type().clone(), array.logical_null_count() > 0);
    let dtype = from_field(&field).unwrap();
    let node = Compressor::new(level, reader).compress(array, &dtype).unwrap();
    let mut ids = Ids::default();
    let blob = node.to_blob(&mut ids).unwrap();
    let (registry, limits) = (Registry::built_in(), Limits::default());
    let parts = ArrayParts::parse(blob.into(), ids.into_table(), &limits).unwrap();
    parts.load(&dtype, array.len(), &registry, &limits).unwrap()
}

fn check(array: &ArrayRef, level: Level, reader: Release) {
    conformance::check(&round_trip(array, level, reader), array);
}

/// Numbers of any type from words, with garbage under nulls.
fn numbers<T: ArrowPrimitiveType>(words: &[u64], nulls: Option<NullBuffer>) -> ArrayRef {
    let width = size_of::<T::Native>();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()[..width].to_vec()).collect();
    let data = arrow::array::ArrayData::builder(T::DATA_TYPE).len(words.len()).nulls(nulls);
    make_array(data.add_buffer(Buffer::from(bytes)).align_buffers(true).build().unwrap())
}

type ToArray = fn(&[u64], Option<NullBuffer>) -> ArrayRef;

const NUMBERS: [ToArray; 12] = [
    numbers::<Int8Type>,
    numbers::<Int16Type>,
    numbers::<Int32Type>,
    numbers::<Int64Type>,
    numbers::<UInt8Type>,
    numbers::<UInt16Type>,
    numbers::<UInt32Type>,
    numbers::<UInt64Type>,
    numbers::<Float16Type>,
    numbers::<Float32Type>,
    numbers::<Float64Type>,
    numbers::<Date32Type>,
];

/// Row counts: none, one, around block boundaries, and some others.
fn lens() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(1), Just(2), 3..40usize, 1000..1100usize, 2000..5000usize]
}

fn levels() -> impl Strategy<Value = Level> {
    proptest::sample::select(&LEVELS[..])
}

fn readers() -> impl Strategy<Value = Release> {
    proptest::sample::select(&READERS[..])
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn counters_that_wrap_around_come_back() {
    let all = |start: u64, step: u64, len: u64| -> Vec<u64> {
        (0..len).map(|row| start.wrapping_add(row.wrapping_mul(step))).collect()
    };
    let restored = |make: ToArray, words: &[u64]| {
        let array = make(words, None);
        let found = round_trip(&array, Level::Default, Release::NEWEST).decode(array.data_type()).unwrap();
        assert_eq!(&found, &array, "{:?}", &words[..2]);
    };
    // Steps that lead back to the start, once or several times.
    for step in [1u64, 2, 4, 8, 64].into_iter().flat_map(|step| [step, step.wrapping_neg()]) {
        for (start, turns) in (0..256).flat_map(|start| [(start, 1), (start, 2)]) {
            let period = 256 / step.min(step.wrapping_neg());
            let words = all(start, step, period * turns);
            restored(numbers::<UInt8Type>, &words);
            restored(numbers::<Int8Type>, &words);
        }
    }
    for start in [0, 5, 40_000, 1 << 15] {
        restored(numbers::<UInt16Type>, &all(start, 1, 1 << 16));
        restored(numbers::<Int16Type>, &all(start, 1, 1 << 16));
    }
    for start in [0, 1 << 31, 3 << 29] {
        restored(numbers::<Int32Type>, &all(start, 1 << 29, 8));
        restored(numbers::<UInt64Type>, &all(start << 32, 1 << 61, 8));
    }
    restored(numbers::<Int64Type>, &all(0, 1 << 62, 4));
    for len in [3, 4, 5, 65] {
        restored(numbers::<UInt64Type>, &all(5, 1 << 63, len));
        restored(numbers::<Int64Type>, &all(5, 1 << 63, len));
    }
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn numbers_come_back(
        seed: u64, shape in 0..SHAPES.len(), null in 0..5usize, len in lens(), level in levels(), reader in readers(),
    ) {
        let mut next = random(seed);
        let words: Vec<u64> = (0..len as u64).map(|row| SHAPES[shape].1(&mut next, row)).collect();
        let nulls = nulls(&mut next, len, null);
        check(&NUMBERS[seed as usize % NUMBERS.len()](&words, nulls), level, reader);
    }

    #[test]
    fn decimal_floats_come_back(
        seed: u64, digits in 0..5u32, odd in 0..3u64, null in 0..5usize, len in lens(), level in levels(), reader in readers(),
    ) {
        let mut next = random(seed);
        let special = [f64::NAN, -0.0, f64::INFINITY, f64::MIN_POSITIVE, f64::from_bits(0x7ff8_dead_beef_0001), 1.0 / 3.0];
        let values: Vec<f64> = (0..len)
            .map(|_| {
                if next() % 50 < odd {
                    special[next() as usize % special.len()]
                } else {
                    (next() % 1_000_000) as f64 / 10f64.powi(digits.cast_signed())
                }
            })
            .collect();
        let nulls = nulls(&mut next, len, null);
        let single: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        check(&(Arc::new(PrimitiveArray::<Float64Type>::new(values.into(), nulls.clone())) as _), level, reader);
        check(&(Arc::new(PrimitiveArray::<Float32Type>::new(single.into(), nulls)) as _), level, reader);
    }

    #[test]
    fn booleans_come_back(
        seed: u64, share in 0..6usize, null in 0..5usize, len in lens(), level in levels(), reader in readers(),
    ) {
        let mut next = random(seed);
        let bits: Vec<bool> = (0..len)
            .map(|row| match share {
                0 => false,
                1 => true,
                2 => row / 300 % 2 == 0,
                3 => next().is_multiple_of(200),
                4 => !next().is_multiple_of(200),
                _ => next().is_multiple_of(2),
            })
            .collect();
        let nulls = nulls(&mut next, len, null);
        check(&(Arc::new(BooleanArray::new(bits.into(), nulls)) as _), level, reader);
    }

    #[test]
    fn strings_come_back(
        seed: u64, kind in 0..9usize, null in 0..5usize, len in lens(), level in levels(), reader in readers(),
    ) {
        let mut next = random(seed);
        let nulls = nulls(&mut next, len, null);
        let bytes: Vec<Vec<u8>> = (0..len).map(|row| text(&mut next, row, kind)).collect();
        let valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let rows = || (0..len).map(|row| valid(row).then_some(&bytes[row]));
        if kind < 7 {
            let strings: StringViewArray =
                rows().map(|row| row.map(|bytes| std::str::from_utf8(bytes).unwrap())).collect();
            check(&(Arc::new(strings) as _), level, reader);
        }
        check(&(Arc::new(rows().collect::<BinaryViewArray>()) as _), level, reader);
    }

    #[test]
    fn decimals_come_back(
        seed: u64, bits in 1..255u32, shape in 0..5usize, null in 0..5usize, len in lens(), level in levels(), reader in readers(),
    ) {
        let mut next = random(seed);
        let mut value = || {
            let word = i128::from(next()) << 64 | i128::from(next());
            i256::from_parts(next().into(), word) >> (255 - bits as u8)
        };
        let some: Vec<i256> = (0..len.max(5)).map(|_| value()).collect();
        let row = |row: usize| match shape {
            0 => some[row],
            1 => i256::from_i128(some[row].as_i128() % 5),
            2 => some[next() as usize % 5],
            3 => some[row / 40],
            _ => if next().is_multiple_of(50) { some[row] } else { some[0] },
        };
        let values: Vec<i256> = (0..len).map(row).collect();
        let nulls = nulls(&mut next, len, null);
        // Of 38 digits at most.
        let narrow: Vec<i128> = values.iter().map(|value| value.as_i128() / 2).collect();
        let wide = Decimal256Array::new(values.into(), nulls.clone()).with_precision_and_scale(76, 4).unwrap();
        check(&(Arc::new(wide) as _), level, reader);
        let narrow = Decimal128Array::new(narrow.into(), nulls).with_precision_and_scale(38, -2).unwrap();
        check(&(Arc::new(narrow) as _), level, reader);
    }

    #[test]
    fn timestamps_come_back(
        seed: u64, unit in 0..4usize, null in 0..5usize, len in lens(), level in levels(), reader in readers(),
    ) {
        let mut next = random(seed);
        let unit = [1, 1_000_000, 86_400_000_000, 1000][unit];
        let values: Vec<i64> =
            (0..len).map(|_| (next() as i64 >> 12) / unit * unit).collect();
        let nulls = nulls(&mut next, len, null);
        check(&(Arc::new(TimestampMicrosecondArray::new(values.clone().into(), nulls.clone())) as _), level, reader);
        check(&(Arc::new(TimestampNanosecondArray::new(values.into(), nulls).with_timezone("UTC")) as _), level, reader);
    }

    #[test]
    fn nested_columns_come_back(seed: u64, null in 0..5usize, len in 0..400usize, level in levels()) {
        let mut next = random(seed);
        let lengths: Vec<usize> = (0..len).map(|_| next() as usize % 4).collect();
        let total: usize = lengths.iter().sum();
        let words: Vec<u64> = (0..total).map(|_| next() % 100).collect();
        let inner_nulls = nulls(&mut next, total, 1);
        let inner = numbers::<Int32Type>(&words, inner_nulls);
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let offsets = OffsetBuffer::<i32>::from_lengths(lengths.iter().copied());
        let outer_nulls = nulls(&mut next, len, null);
        let list: ArrayRef =
            Arc::new(ListArray::new(item, offsets.clone(), Arc::clone(&inner), outer_nulls.clone()));
        check(&list, level, Release::OLDEST);
        let words: Vec<u64> = (0..len as u64).collect();
        let fields = Fields::from(vec![
            Field::new("l", list.data_type().clone(), true),
            Field::new("n", DataType::Int64, false),
        ]);
        let columns = vec![Arc::clone(&list), numbers::<Int64Type>(&words, None)];
        check(&(Arc::new(StructArray::new(fields, columns, outer_nulls.clone())) as _), level, Release::new(0, 54));
        let keys: ArrayRef = Arc::new((0..total).map(|at| Some(format!("k{at}"))).collect::<StringArray>());
        let entries = Fields::from(vec![
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", DataType::Int32, true),
        ]);
        let entries = StructArray::new(entries, vec![keys, Arc::clone(&inner)], None);
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let map = MapArray::new(field, offsets, entries, outer_nulls.clone(), false);
        check(&(Arc::new(map) as _), level, Release::new(0, 85));
        let fixed = numbers::<UInt16Type>(&vec![7; len * 3], None);
        let item = Arc::new(Field::new("item", DataType::UInt16, false));
        check(&(Arc::new(FixedSizeListArray::new(item, 3, fixed, outer_nulls)) as _), level, Release::new(0, 54));
    }
}

fn text(next: &mut dyn FnMut() -> u64, row: usize, kind: usize) -> Vec<u8> {
    match kind {
        0 => Vec::new(),
        1 => format!("{}", next() % 20).into_bytes(),
        2 => format!("https://example.com/a/long/path/{}?q={}", next() % 50, next()).into_bytes(),
        3 => format!("a value that is longer than a view, number {}", next() % 9).into_bytes(),
        4 => "naïve ☃ ".repeat(next() as usize % 6).into_bytes(),
        5 => format!("{row:08}").into_bytes(),
        6 => vec![b'x'; next() as usize % 3 * 400],
        7 => (0..next() % 30).map(|_| next() as u8).collect(),
        _ => vec![0xff; next() as usize % 14],
    }
}
