//! Columns take no form that the oldest reader gets wrong, as found by reading files with released readers.

use super::super::numbers::compress_codes;
use super::super::scheme::{Context, Kind};
use super::*;
use crate::array::EncodedRef as Encoded;
use crate::release::since;

/// The type of the codes of a dictionary.
fn codes_type(array: &Encoded) -> Option<DType> {
    let codes = array.children().into_iter().next().map(|(_, codes)| codes.dtype().clone());
    codes.filter(|_| array.encoding() == "vortex.dict")
}

#[test]
fn readers_that_lose_the_last_value_of_a_full_dictionary_get_wider_codes() {
    let mut next = random(5);
    for (count, full, wider) in [(256, PType::U8, PType::U16), (255, PType::U8, PType::U8)] {
        let values: Vec<u64> = (0..count).map(|_| next()).collect();
        let mut row = |row| values[if row < count { row } else { next() as usize % count }];
        let words: Vec<u64> = (0..count * 40).map(&mut row).collect();
        let array = numbers::<Int64Type>(&words, None);
        let codes = |reader| codes_type(&round_trip(&array, Level::Fast, reader));
        assert_eq!(codes(since::FULL_DICTIONARIES), Some(DType::Primitive(full, false)), "{count}");
        assert_eq!(codes(Release::OLDEST), Some(DType::Primitive(wider, false)), "{count}");
        check(&array, Level::Fast, Release::OLDEST);
    }
    let codes = |reader| {
        let cx = Context::new(Level::Fast, reader);
        compress_codes(&cx, (0..1 << 16).collect(), 1 << 16, None).unwrap().0
    };
    assert_eq!((codes(since::FULL_DICTIONARIES), codes(Release::OLDEST)), (PType::U16, PType::U32));
}

#[test]
fn numbers_in_zstandard_frames_are_parts_of_others_for_readers_that_cannot_join_them() {
    let mut next = random(5);
    let period: Vec<u64> = (0..700).map(|_| next() % 65_521).collect();
    let words: Vec<u64> = (0..40_000).map(|row| period[row % period.len()]).collect();
    let narrow: Vec<u64> = words.iter().map(|word| 1_000_000 + word % 200).collect();
    let wide = |reader| {
        let cx = Context::new(Level::Compact, reader).without(&[Kind::Pco, Kind::Dictionary]);
        compress(&cx, &numbers::<Int32Type>(&words, None), &DType::Primitive(PType::I32, false)).unwrap()
    };
    assert_eq!(wide(since::JOINED_ZSTD_NUMBERS).id(), "vortex.zstd");
    assert_ne!(wide(Release::new(0, 86)).id(), "vortex.zstd");
    let found = round_trip(&numbers::<Int32Type>(&narrow, None), Level::Default, Release::new(0, 86));
    assert_eq!(found.encoding(), "vortex.dict");
    assert_eq!(found.children().remove(0).1.encoding(), "vortex.zstd");
}

#[test]
fn sequences_that_old_readers_cannot_express_are_written_otherwise() {
    let ramp = |from: i64, step: i64, rows: i64| -> Vec<u64> {
        (0..rows).map(|row| step.wrapping_mul(row).wrapping_add(from).cast_unsigned()).collect()
    };
    let is_sequence =
        |array, reader| round_trip(array, Level::Default, reader).encoding() == "vortex.sequence";
    let far = [
        numbers::<Int8Type>(&ramp(-128, 1, 256), None),
        numbers::<Int16Type>(&ramp(30_000, -21, 2_900), None),
        numbers::<Int64Type>(&ramp(i64::MIN / 2 - 1, i64::MAX / 1000, 1_003), None),
    ];
    for array in &far {
        assert!(is_sequence(array, Release::NEWEST) && !is_sequence(array, Release::new(0, 85)));
    }
    let near = [
        numbers::<Int8Type>(&ramp(-100, 1, 128), None),
        numbers::<UInt8Type>(&ramp(0, 1, 256), None),
        numbers::<Int64Type>(&ramp(-5, 1_000_000, 10_000), None),
    ];
    for array in &near {
        assert!(is_sequence(array, since::SEQUENCES) && !is_sequence(array, Release::new(0, 41)));
    }
}

#[test]
fn nulls_are_among_no_codes_of_dictionaries_for_readers_that_get_these_rows_wrong() {
    fn has_nullable_codes(array: &Encoded) -> bool {
        let nullable = codes_type(array).is_some_and(|codes| codes.is_nullable());
        nullable || array.children().iter().any(|(_, child)| has_nullable_codes(child))
    }
    let mut next = random(11);
    let values: Vec<u64> = (0..200).map(|_| next() >> 2).collect();
    let words: Vec<u64> = (0..20_000).map(|_| values[next() as usize % values.len()]).collect();
    let nulls = NullBuffer::from_iter((0..words.len()).map(|row| row % 7 > 0));
    let text = words.iter().zip(&nulls).map(|(word, valid)| valid.then(|| format!("value {word:018x}")));
    let wide = words.iter().zip(&nulls).map(|(word, valid)| valid.then(|| i128::from(*word) << 50));
    let wide = wide.collect::<Decimal128Array>().with_precision_and_scale(38, 2).unwrap();
    let arrays: [ArrayRef; 4] = [
        numbers::<Int64Type>(&words, Some(nulls.clone())),
        numbers::<Float64Type>(&words, Some(nulls.clone())),
        Arc::new(text.collect::<StringViewArray>()),
        Arc::new(wide),
    ];
    for array in arrays {
        let found = |reader| has_nullable_codes(&round_trip(&array, Level::Fast, reader));
        let (newer, older) = (found(since::NULLABLE_CODES), found(Release::new(0, 69)));
        assert!(newer && !older, "{}", array.data_type());
        check(&array, Level::Fast, Release::OLDEST);
    }
}
