//! Columns take the encodings that are made for them, and few bytes.

use arrow::array::BinaryViewBuilder;
use arrow::buffer::BooleanBuffer;

use super::super::scheme::{Context, Kind};
use super::*;
use crate::release::since;

#[test]
fn every_shape_takes_the_encoding_made_for_it() {
    let id = |words: &[u64], level| {
        let array = numbers::<Int64Type>(words, None);
        let array = round_trip(&array, level, Release::NEWEST);
        array.encoding().to_owned()
    };
    let mut next = random(1);
    let mut shape = |name: &str| -> Vec<u64> {
        let (_, make) = SHAPES.iter().find(|(other, _)| *other == name).unwrap();
        (0..20_000).map(|row| make(&mut next, row)).collect()
    };
    for (name, expected) in [
        ("random", "vortex.primitive"),
        ("narrow", "fastlanes.bitpacked"),
        ("far from zero", "fastlanes.for"),
        ("even", "vortex.sequence"),
        ("falling", "vortex.sequence"),
        ("runs", "vortex.runend"),
        ("few", "vortex.dict"),
        ("outliers above", "fastlanes.bitpacked"),
        ("constant", "vortex.constant"),
    ] {
        let words = shape(name);
        assert_eq!(id(&words, Level::Default), expected, "{name}");
        assert_eq!(id(&words, Level::Fast), expected, "{name}");
    }
}

#[test]
fn numbers_that_repeat_at_a_distance_are_found_by_zstandard() {
    let mut next = random(5);
    let period: Vec<u64> = (0..700).map(|_| next() % 200).collect();
    let words: Vec<u64> = (0..40_000).map(|row| 1_000_000 + period[row % period.len()]).collect();
    let nulls: NullBuffer = (0..words.len()).map(|row| row % 11 > 0).collect::<Vec<bool>>().into();
    for nulls in [None, Some(nulls)] {
        let array = numbers::<Int32Type>(&words, nulls.clone());
        let found = round_trip(&array, Level::Default, since::NULLABLE_CODES);
        assert_eq!(found.encoding(), "vortex.dict", "codes of a byte come first");
        let wide: Vec<u64> = words.iter().map(|word| word * word % 65_521).collect();
        let bytes = |level, reader| {
            let array = numbers::<UInt16Type>(&wide, nulls.clone());
            let dtype = from_field(&Field::new("a", array.data_type().clone(), nulls.is_some())).unwrap();
            Compressor::new(level, reader).compress(&array, &dtype).unwrap().byte_len()
        };
        let newest = bytes(Level::Default, Release::NEWEST);
        assert!(newest * 4 < bytes(Level::Fast, Release::NEWEST), "{newest}");
        assert!(newest * 4 < bytes(Level::Default, Release::OLDEST), "{newest}");
    }
}

#[test]
fn numbers_of_which_many_are_zero_leave_them_out() {
    let mut next = random(8);
    let rows = 100_000;
    let mut words = |one_in: f64, value: &mut dyn FnMut(u64) -> u64| -> Vec<u64> {
        let mut word = || if next() as f64 / 2f64.powi(64) < one_in { value(next()) } else { 0 };
        (0..rows).map(|_| word()).collect()
    };
    let prices = words(0.3, &mut |word| ((word % 100_000) as f64 / 100.0).to_bits());
    let counts = words(0.28, &mut |word| word % 1000);
    let arrays = [(numbers::<Float64Type>(&prices, None), 1.6), (numbers::<Int32Type>(&counts, None), 1.4)];
    let slow = ["vortex.pco", "vortex.zstd"];
    for (array, bytes_per_row) in arrays {
        let found = round_trip(&array, Level::Default, Release::OLDEST);
        assert_eq!(found.encoding(), "vortex.sparse");
        let dtype = from_field(&Field::new("a", array.data_type().clone(), false)).unwrap();
        let node = Compressor::new(Level::Default, Release::OLDEST).compress(&array, &dtype).unwrap();
        let found = node.byte_len() as f64 / rows as f64;
        assert!(found < bytes_per_row, "{found} bytes per row of {}", array.data_type());
        let mut found = Vec::new();
        ids(&round_trip(&array, Level::Default, Release::NEWEST), &mut found);
        assert!(
            found[0] == "vortex.sparse" && !found.iter().any(|id| slow.contains(&id.as_str())),
            "{found:?}"
        );
    }
}

/// Numbers with exactly so many digits.
fn of_digits(digits: u32, next: &mut dyn FnMut() -> u64) -> i256 {
    let ten = i256::from_i128(10);
    let digit = |next: &mut dyn FnMut() -> u64| i256::from_i128((next() % 9 + 1).into());
    (0..digits).fold(i256::ZERO, |number, _| number * ten + digit(next))
}

fn decimals(digits: u8, values: &[i256], nulls: Option<NullBuffer>) -> ArrayRef {
    if digits > 38 {
        let array = Decimal256Array::new(values.to_vec().into(), nulls);
        return Arc::new(array.with_precision_and_scale(digits, 0).unwrap());
    }
    let values: Vec<i128> = values.iter().map(|value| value.as_i128()).collect();
    Arc::new(Decimal128Array::new(values.into(), nulls).with_precision_and_scale(digits, 0).unwrap())
}

#[test]
fn wide_decimals_that_repeat_are_stored_once() {
    let rows = 50_000;
    let mut next = random(9);
    for (digits, width) in [(38, 16), (60, 32)] {
        let some: Vec<i256> = (0..rows).map(|_| of_digits(digits, &mut next)).collect();
        let column = |of: &mut dyn FnMut(usize) -> usize| -> Vec<i256> {
            (0..rows).map(|row| some[of(row)]).collect()
        };
        let mut other = random(3);
        let ten = column(&mut |_| other() as usize % 10);
        let runs = column(&mut |row| row / 50);
        let mostly_one = column(&mut |row| if row % 50 == 7 { row } else { 0 });
        let constant = column(&mut |_| 0);
        let shapes = [(ten, 6), (runs, width * 8 / 50 + 2), (mostly_one, width / 4), (constant, 1)];
        for (values, bits_per_row) in shapes {
            for nulls in [None, nulls(&mut next, rows, 2)] {
                let (has_nulls, most) = (nulls.is_some(), rows * (bits_per_row + 1) / 8);
                let array = decimals(digits as u8, &values, nulls);
                let dtype = from_field(&Field::new("a", array.data_type().clone(), has_nulls)).unwrap();
                for (level, reader) in
                    LEVELS.into_iter().flat_map(|level| READERS.map(|reader| (level, reader)))
                {
                    let node = Compressor::new(level, reader).compress(&array, &dtype).unwrap();
                    if has_nulls && reader == Release::OLDEST {
                        assert_eq!(node.id(), "vortex.decimal", "it does not see the nulls of dictionaries");
                    }
                    if has_nulls && reader < since::NULLABLE_CODES {
                        assert_ne!(node.id(), "vortex.dict", "it gets their nulls wrong");
                        continue;
                    }
                    let bytes = node.byte_len();
                    assert!(bytes < most, "{bytes} of {most} bytes, {digits} digits, {level}, {reader}");
                }
                check(&array, Level::Default, Release::NEWEST);
            }
        }
        let plain = round_trip(&decimals(digits as u8, &some, None), Level::Compact, Release::NEWEST);
        assert_eq!((plain.encoding(), plain.buffer_bytes()), ("vortex.decimal", rows * width));
    }
}

#[test]
fn small_numbers_of_a_wide_type_take_its_narrower_width() {
    let rows = 20_000;
    let mut next = random(4);
    let values: Vec<i256> = (0..rows).map(|_| of_digits(30, &mut next)).collect();
    let array = decimals(60, &values, None);
    for reader in READERS {
        let found = round_trip(&array, Level::Default, reader);
        if reader < since::DECIMAL_HALVES {
            assert_eq!((found.encoding(), found.buffer_bytes()), ("vortex.decimal", rows * 16));
        } else {
            assert_eq!(found.encoding(), "vortex.decimal_byte_parts.v2");
        }
    }
    let few: Vec<i256> = (0..rows).map(|_| i256::from_i128((next() % 10).into())).collect();
    let array = decimals(38, &few, None);
    let found = |reader| round_trip(&array, Level::Default, reader).encoding().to_owned();
    assert_eq!(found(Release::OLDEST), "vortex.dict", "decimals of so many digits cannot be integers");
    assert_eq!(found(Release::NEWEST), "vortex.decimal_byte_parts");
}

#[test]
fn decimals_with_more_digits_than_they_need_take_few_bytes() {
    let rows = 20_000;
    let mut next = random(8);
    let cents: Vec<i256> =
        (0..rows).map(|_| i256::from_i128(i128::from(next() % 100_000) * 10_i128.pow(16))).collect();
    let even: Vec<i256> = (0..rows).map(|row| i256::from_i128(row as i128 * 10_i128.pow(18))).collect();
    let upper: Vec<i256> = (0..rows).map(|row| i256::from_i128((row as i128) << 64)).collect();
    for (values, most) in [(cents, 10), (even, 1), (upper, 1)] {
        let array = decimals(38, &values, None);
        for level in LEVELS {
            check(&array, level, Release::NEWEST);
        }
        let dtype = from_field(&Field::new("a", array.data_type().clone(), false)).unwrap();
        let node = Compressor::new(Level::Default, Release::NEWEST).compress(&array, &dtype).unwrap();
        assert_eq!(node.id(), "vortex.decimal_byte_parts.v2");
        assert!(node.byte_len() < most * rows, "{} bytes", node.byte_len());
    }
}

#[test]
fn text_in_a_dictionary_is_as_small_as_on_its_own() {
    let mut next = random(6);
    let text = (0..20_000).map(|_| Some(format!("user-{}@example.com", next() % 100_000)));
    let text = text.collect::<StringViewArray>().to_binary_view();
    for level in [Level::Fast, Level::Default] {
        let cx = Context::new(level, Release::NEWEST);
        let bytes = |cx: &Context| string::compress(cx, &text, &DType::Utf8(false)).unwrap().byte_len();
        let (alone, inside) = (bytes(&cx), bytes(&cx.below(scheme::Kind::Dictionary, &[])));
        assert!(inside <= alone + alone / 20, "{level}: {inside} bytes, {alone} alone");
    }
}

#[test]
fn booleans_with_nulls_are_hardly_larger_than_those_without() {
    let bytes = |array: &ArrayRef, reader| {
        let dtype = DType::Bool(array.null_count() > 0);
        Compressor::new(Level::Default, reader).compress(array, &dtype).unwrap().byte_len()
    };
    let rows = 100_000;
    for run in [rows, 5_000] {
        let values = BooleanBuffer::collect_bool(rows, |row| row / run % 2 == 1);
        let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| row % 20_000 != 7));
        let full: ArrayRef = Arc::new(BooleanArray::new(values.clone(), None));
        let array: ArrayRef = Arc::new(BooleanArray::new(values, Some(nulls)));
        for reader in READERS {
            check(&array, Level::Default, reader);
        }
        let (with, without) = (bytes(&array, Release::NEWEST), bytes(&full, Release::NEWEST));
        assert!(with < without + 500, "{with} bytes, {without} without nulls");
        assert!(bytes(&array, Release::OLDEST) > 10_000, "one bit per row");
    }
}

/// The encodings of an array and of all arrays below it.
fn ids(array: &crate::array::EncodedRef, out: &mut Vec<String>) {
    out.push(array.encoding().to_owned());
    array.children().iter().for_each(|(_, child)| ids(child, out));
}

/// The encodings that releases after the oldest have introduced.
const NEW: [&str; 17] = [
    "vortex.sequence",
    "vortex.pco",
    "vortex.zstd",
    "vortex.fixed_size_list",
    "vortex.listview",
    "fastlanes.rle",
    "vortex.masked",
    "vortex.zstd_buffers",
    "vortex.variant",
    "vortex.patched",
    "vortex.parquet.variant",
    "vortex.onpair",
    "vortex.map",
    "vortex.decimal_byte_parts.v2",
    "fastlanes.bitpacked.v2",
    "fastlanes.for.v2",
    "vortex.union",
];

#[test]
fn old_readers_meet_no_new_encodings() {
    let mut next = random(2);
    let strings: StringViewArray = (0..5000).map(|_| Some(format!("user-{}@example.com", next()))).collect();
    let even: ArrayRef = numbers::<Int64Type>(&(0..5000).collect::<Vec<_>>(), None);
    let one: BooleanBuffer = (0..5000).map(|row| row % 3 > 0).collect::<Vec<bool>>().into();
    let masked = numbers::<Int32Type>(&vec![3; 5000], Some(NullBuffer::new(one)));
    let known = crate::Registry::built_in();
    assert!(NEW.iter().all(|id| known.encoding(id).is_some()));
    for array in [Arc::new(strings) as ArrayRef, even, masked] {
        for level in LEVELS {
            let mut found = Vec::new();
            ids(&round_trip(&array, level, Release::OLDEST), &mut found);
            assert!(!found.iter().any(|id| NEW.contains(&id.as_str())), "{found:?}");
        }
    }
}

#[test]
fn one_long_text_is_compressed() {
    let text = "words that come again, and others ".repeat(2000);
    let text = text.as_str();
    for rows in [vec![Some(text)], vec![Some(text); 3], vec![None, Some(text), None]] {
        let array: ArrayRef = Arc::new(StringViewArray::from(rows));
        let dtype = from_field(&Field::new("a", DataType::Utf8View, true)).unwrap();
        for (level, reader) in LEVELS.into_iter().flat_map(|level| READERS.map(|reader| (level, reader))) {
            let bytes = Compressor::new(level, reader).compress(&array, &dtype).unwrap().byte_len();
            assert!(bytes < text.len() / 2, "{bytes} bytes of {} rows, {level}, {reader}", array.len());
            let decoded = round_trip(&array, level, reader).decode(&DataType::Utf8View).unwrap();
            assert_eq!(&decoded, &array);
        }
    }
}

#[test]
fn documents_that_repeat_distant_ones_are_compressed_in_long_frames() {
    let mut next = random(6);
    // Stretches of one long text: any of them comes again 100 KB later.
    let long: String = (0..100_000).map(|_| char::from(b'a' + (next() % 26) as u8)).collect();
    let document = |row: usize| format!("{row} {}", &long[row * 500 % 100_000..][..500]);
    let rows: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..2000).map(document)));
    let dtype = from_field(&Field::new("a", DataType::Utf8View, false)).unwrap();
    let bytes = Compressor::new(Level::Default, Release::NEWEST).compress(&rows, &dtype).unwrap().byte_len();
    // A byte of random letters has 4.7 bits, so each frame of 256 KiB needs about 60 KB.
    assert!(bytes < 300_000, "{bytes}");
    let decoded = round_trip(&rows, Level::Default, Release::NEWEST).decode(&DataType::Utf8View).unwrap();
    assert_eq!(&decoded, &rows);
}

#[test]
fn long_text_that_rows_share_is_encoded_once() {
    let mut next = random(4);
    let bytes: Vec<u8> = (0..8 << 10).flat_map(|_| next().to_le_bytes()).collect();
    let of = |views: &mut dyn Iterator<Item = (u32, u32)>| -> ArrayRef {
        let mut builder = BinaryViewBuilder::new();
        let block = builder.append_block(bytes.clone().into());
        views.for_each(|(start, len)| builder.try_append_view(block, start, len).unwrap());
        Arc::new(builder.finish())
    };
    let (long, other) = ((0, 40 << 10), (10 << 10, 40 << 10));
    for (array, most) in [
        (of(&mut [long; 300].into_iter()), 44 << 10),
        (of(&mut (0..300).map(|row| [long, other][row % 2])), 84 << 10),
        // Too few rows repeat for a dictionary, but these have nearly all bytes.
        (of(&mut (0..1600).map(|row| if row % 5 == 0 { long } else { (row, 20) })), 90 << 10),
    ] {
        let dtype = from_field(&Field::new("a", DataType::BinaryView, false)).unwrap();
        for (level, reader) in LEVELS.into_iter().flat_map(|level| READERS.map(|reader| (level, reader))) {
            let bytes = Compressor::new(level, reader).compress(&array, &dtype).unwrap().byte_len();
            assert!(bytes < most, "{bytes} bytes, {most} expected, {level}, {reader}");
        }
        let decoded = round_trip(&array, Level::Default, Release::OLDEST);
        assert_eq!(&decoded.decode(&DataType::BinaryView).unwrap(), &array);
    }
}

#[test]
fn a_single_time_before_1970_keeps_old_readers_from_parts() {
    let rows = 100_000;
    let hidden = (0..rows).find(|row| !sample::rows(rows).flatten().any(|sampled| sampled == *row)).unwrap();
    let mut next = random(3);
    let mut times: Vec<i64> = Vec::with_capacity(rows);
    times.resize_with(rows, || ((next() % 20_000 * 86_400 + next() % 86_400) * 1_000_000).cast_signed());
    let in_parts = |times: &[i64], reader| {
        let array: ArrayRef = Arc::new(TimestampMicrosecondArray::from(times.to_vec()));
        round_trip(&array, Level::Default, reader).encoding() == "vortex.datetimeparts"
    };
    assert!(in_parts(&times, Release::OLDEST));
    times[hidden] = -1;
    assert!(!in_parts(&times, Release::OLDEST));
    assert!(in_parts(&times, Release::new(0, 54)));
}

#[test]
fn times_are_split_where_zstandard_is_smaller_but_costs_more_to_decode() {
    let mut next = random(7);
    let mut times: Vec<i64> = Vec::new();
    for row in 0..400_000 {
        // Four in five come again, but the others are too many for a dictionary.
        let time = if row < 100 || next().is_multiple_of(5) {
            (next() % 2_000_000_000 * 1_000_000_000).cast_signed()
        } else {
            times[row - 100]
        };
        times.push(time);
    }
    let compressed = |array: ArrayRef| {
        let dtype = from_field(&Field::new("a", array.data_type().clone(), false)).unwrap();
        let cx = Context::new(Level::Default, Release::NEWEST).without(&[Kind::Pco]);
        compress(&cx, &array, &dtype).unwrap()
    };
    let whole = compressed(Arc::new(PrimitiveArray::<Int64Type>::from(times.clone())));
    let parts = compressed(Arc::new(TimestampNanosecondArray::from(times)));
    assert_eq!((whole.id(), parts.id()), ("vortex.zstd", "vortex.datetimeparts"));
    assert!(whole.byte_len() < parts.byte_len());
}

#[test]
fn types_that_old_readers_lack_are_refused() {
    let item = Arc::new(Field::new("item", DataType::UInt16, false));
    let array: ArrayRef = Arc::new(FixedSizeListArray::new(item, 1, numbers::<UInt16Type>(&[1], None), None));
    let dtype = from_field(&Field::new("a", array.data_type().clone(), false)).unwrap();
    let error = Compressor::new(Level::Default, Release::OLDEST).compress(&array, &dtype).unwrap_err();
    assert!(error.to_string().contains("0.36"), "{error}");
}
