//! The extremes and the sum of integers, in one pass.

use arrow::buffer::NullBuffer;

use super::simd::{Vectorized, vectorized};

/// An integer of up to 64 bits.
pub(crate) trait Integer: Copy + Ord {
    /// The least value of the type.
    const LEAST: Self;
    /// The greatest value of the type.
    const GREATEST: Self;
    const ZERO: Self;

    /// Two numbers `low` and `high`, so that the value is `low + high * 2^32`: sums of 2^31 of each fit into 64 bits.
    fn parts(self) -> (i64, i64);
}

macro_rules! integers {
    ($($T:ty: $value:ident => $parts:expr;)*) => {
        $(impl Integer for $T {
            const LEAST: Self = <$T>::MIN;
            const GREATEST: Self = <$T>::MAX;
            const ZERO: Self = 0;

            #[inline(always)]
            fn parts(self) -> (i64, i64) {
                let $value = self;
                $parts
            }
        })*
    };
}

integers! {
    u8: value => (value.into(), 0);
    u16: value => (value.into(), 0);
    u32: value => (value.into(), 0);
    i8: value => (value.into(), 0);
    i16: value => (value.into(), 0);
    i32: value => (value.into(), 0);
    u64: value => ((value & LOW).cast_signed(), (value >> 32).cast_signed());
    i64: value => ((value.cast_unsigned() & LOW).cast_signed(), value >> 32);
}

/// The low half of a word.
const LOW: u64 = 0xffff_ffff;

/// Values added between two carries.
const CHUNK: usize = 1 << 16;

/// The minimum, the maximum and the sum of some values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally<T> {
    pub(crate) min: T,
    pub(crate) max: T,
    pub(crate) sum: i128,
}

/// What there is of the values that are not null; `None` if there are none.
pub(crate) fn tally<T: Integer>(values: &[T], nulls: Option<&NullBuffer>) -> Option<Tally<T>> {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    let valid = values.len() - nulls.map_or(0, NullBuffer::null_count);
    let mut found = Tally { min: T::GREATEST, max: T::LEAST, sum: 0 };
    for (at, values) in values.chunks(CHUNK).enumerate() {
        let part = match nulls {
            None => vectorized(All(values)),
            Some(nulls) => {
                let bits = nulls.inner().slice(at * CHUNK, values.len());
                let words = bits.bit_chunks();
                vectorized(Valid { values, words: words.iter_padded() })
            }
        };
        found.min = found.min.min(part.min);
        found.max = found.max.max(part.max);
        found.sum += i128::from(part.low) + (i128::from(part.high) << 32);
    }
    (valid > 0).then_some(found)
}

/// The tally of a chunk.
struct Part<T> {
    min: T,
    max: T,
    low: i64,
    high: i64,
}

impl<T: Integer> Part<T> {
    const NONE: Self = Self { min: T::GREATEST, max: T::LEAST, low: 0, high: 0 };

    #[inline(always)]
    fn add(&mut self, value: T) {
        self.add_or(value, value, value);
    }

    /// Adds a value to the sum, and compares two others with the extremes.
    #[inline(always)]
    fn add_or(&mut self, value: T, min: T, max: T) {
        let (low, high) = value.parts();
        self.min = self.min.min(min);
        self.max = self.max.max(max);
        self.low += low;
        self.high += high;
    }
}

/// All values of a chunk.
struct All<'a, T>(&'a [T]);

impl<T: Integer> Vectorized for All<'_, T> {
    type Output = Part<T>;

    #[inline(always)]
    fn run(self) -> Part<T> {
        let mut part = Part::NONE;
        self.0.iter().for_each(|value| part.add(*value));
        part
    }
}

/// The valid values of a chunk.
struct Valid<'a, T, I> {
    values: &'a [T],
    /// A bit for each value.
    words: I,
}

impl<T: Integer, I: Iterator<Item = u64>> Vectorized for Valid<'_, T, I> {
    type Output = Part<T>;

    #[inline(always)]
    fn run(self) -> Part<T> {
        let mut part = Part::NONE;
        for (values, word) in self.values.chunks(64).zip(self.words) {
            for (at, value) in values.iter().enumerate() {
                // Selected instead of branched on, so that this is vectorized.
                let is_valid = word >> at & 1 == 1;
                let or = |other: T| if is_valid { *value } else { other };
                part.add_or(or(T::ZERO), or(T::GREATEST), or(T::LEAST));
            }
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive<T: Integer + Into<i128>>(values: &[T], nulls: Option<&NullBuffer>) -> Option<Tally<T>> {
        let valid = |at: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*at));
        let valid: Vec<T> = (0..values.len()).filter(valid).map(|at| values[at]).collect();
        let sum = valid.iter().map(|value| -> i128 { (*value).into() }).sum();
        Some(Tally { min: *valid.iter().min()?, max: *valid.iter().max()?, sum })
    }

    fn check<T: Integer + Into<i128> + std::fmt::Debug>(of: impl Fn(u64) -> T) {
        let mut next = crate::kernels::random(1);
        for len in [0, 1, 63, 64, 65, 1000, CHUNK + 70] {
            let values: Vec<T> = (0..len).map(|_| of(next())).collect();
            assert_eq!(tally(&values, None), naive(&values, None));
            for density in [0, 1, 2, 3] {
                let nulls = NullBuffer::from_iter((0..len + 3).map(|_| next() % 3 < density));
                let nulls = nulls.slice(3, len);
                assert_eq!(tally(&values, Some(&nulls)), naive(&values, Some(&nulls)), "{len}, {density}");
            }
        }
    }

    #[test]
    fn the_tally_of_any_integers_is_that_of_adding_them_one_by_one() {
        check(|bits| bits as u8);
        check(|bits| bits as u16);
        check(|bits| bits as u32);
        check(|bits| bits);
        check(|bits| bits as i8);
        check(|bits| bits as i16);
        check(|bits| bits as i32);
        check(|bits| bits as i64);
    }

    #[test]
    fn sums_of_the_greatest_values_are_exact() {
        for count in [1, CHUNK, 3 * CHUNK + 1] {
            assert_eq!(
                tally(&vec![u64::MAX; count], None).unwrap().sum,
                i128::from(u64::MAX) * count as i128
            );
            assert_eq!(
                tally(&vec![i64::MIN; count], None).unwrap().sum,
                i128::from(i64::MIN) * count as i128
            );
        }
    }
}
