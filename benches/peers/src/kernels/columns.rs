//! Columns to encode: seeded, with the traits that each encoding is made for.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringViewArray};
use arrow::datatypes::ArrowNativeType;

use crate::data::mix;

/// One value per row, from a hash of the row.
pub(super) fn numbers<T: ArrowPrimitiveType>(
    rows: usize,
    value: impl Fn(usize, u64) -> T::Native,
) -> ArrayRef {
    let values = (0..rows).map(|row| value(row, mix(row as u64)));
    Arc::new(PrimitiveArray::<T>::from_iter_values(values))
}

/// As [`numbers`], with one row in ten null.
pub(super) fn numbers_and_nulls<T: ArrowPrimitiveType>(
    rows: usize,
    value: impl Fn(usize, u64) -> T::Native,
) -> ArrayRef {
    let values = (0..rows).map(|row| is_valid(row).then(|| value(row, mix(row as u64))));
    Arc::new(values.collect::<PrimitiveArray<T>>())
}

/// Integers of `width` bits; one row in `one_in` is the largest of its type, if not 0.
pub(super) fn narrow<T: ArrowPrimitiveType>(rows: usize, width: u32, one_in: u64) -> ArrayRef {
    numbers::<T>(rows, |_, hash| narrow_value::<T>(hash, width, one_in))
}

/// As [`narrow`], with one row in ten null.
pub(super) fn narrow_and_nulls<T: ArrowPrimitiveType>(rows: usize, width: u32) -> ArrayRef {
    numbers_and_nulls::<T>(rows, |_, hash| narrow_value::<T>(hash, width, 0))
}

fn narrow_value<T: ArrowPrimitiveType>(hash: u64, width: u32, one_in: u64) -> T::Native {
    let bits = u32::try_from(size_of::<T::Native>() * 8).expect("values have few bits");
    let width = if one_in > 0 && (hash >> 32).is_multiple_of(one_in) { bits - 1 } else { width };
    let value = hash & ((1 << width) - 1);
    T::Native::usize_as(usize::try_from(value).expect("usize has 64 bits"))
}

pub(super) fn booleans(rows: usize, nullable: bool) -> ArrayRef {
    let value = |row: usize| mix(row as u64) & 1 == 1;
    let values = (0..rows).map(|row| (!nullable || is_valid(row)).then(|| value(row)));
    Arc::new(values.collect::<BooleanArray>())
}

/// Texts out of `distinct`, which `text` gives.
pub(super) fn texts(rows: usize, distinct: u64, text: impl Fn(u64) -> String) -> ArrayRef {
    let values = (0..rows).map(|row| text(mix(row as u64) % distinct));
    Arc::new(StringViewArray::from_iter_values(values))
}

/// As [`texts`], with one row in ten null.
pub(super) fn texts_and_nulls(rows: usize, distinct: u64, text: impl Fn(u64) -> String) -> ArrayRef {
    let values = (0..rows).map(|row| is_valid(row).then(|| text(mix(row as u64) % distinct)));
    Arc::new(values.collect::<StringViewArray>())
}

/// Up to twelve bytes, which views hold themselves.
pub(super) fn short_text(number: u64) -> String {
    format!("user-{}", mix(number) % 1_000_000)
}

/// Some sixty bytes.
pub(super) fn long_text(number: u64) -> String {
    const WORDS: [&str; 8] = ["search", "products", "basket", "de", "offers", "archive", "2024", "about"];
    let word = |turn: u64| WORDS[(mix(number ^ turn << 40) % 8) as usize];
    format!("https://www.example.com/{}/{}/{}?id={}", word(1), word(2), word(3), mix(number) % 100_000_000)
}

fn is_valid(row: usize) -> bool {
    !mix(!(row as u64)).is_multiple_of(10)
}
