//! Sums of integers of different types, each times a factor: timestamps from their parts.

use super::simd::{Vectorized, vectorized};

/// Adds values times `factor` to the last `sums`, or appends them, added to `start`; wraps. Returns the bitwise OR of
/// the absolute values, of negative ones less one.
pub(crate) fn add_scaled<N: Scaled>(
    values: &[N],
    factor: i64,
    start: Option<i64>,
    sums: &mut Vec<i64>,
) -> u64 {
    vectorized(AddScaled { values, factor, start, sums })
}

struct AddScaled<'a, N> {
    values: &'a [N],
    factor: i64,
    start: Option<i64>,
    sums: &'a mut Vec<i64>,
}

impl<N: Scaled> Vectorized for AddScaled<'_, N> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        // Multiplying 64 bits is slow enough to be left out where it changes nothing.
        match self.factor {
            1 => self.each(|value| value),
            factor => self.each(|value| value.wrapping_mul(factor)),
        }
    }
}

impl<N: Scaled> AddScaled<'_, N> {
    #[inline(always)]
    fn each(self, scaled: impl Fn(i64) -> i64) -> u64 {
        let mut bits = N::default();
        if let Some(start) = self.start {
            self.sums.extend(self.values.iter().map(|value| {
                bits = bits.or_magnitude(*value);
                start.wrapping_add(scaled(value.wrap()))
            }));
        } else {
            let first = self.sums.len() - self.values.len();
            for (sum, value) in self.sums[first..].iter_mut().zip(self.values) {
                bits = bits.or_magnitude(*value);
                *sum = sum.wrapping_add(scaled(value.wrap()));
            }
        }
        bits.wrap() as u64
    }
}

/// An integer type of values.
pub(crate) trait Scaled: Copy + Default {
    /// The value modulo 2^64.
    fn wrap(self) -> i64;
    /// The bitwise OR with the absolute value of another one; with one less if that is negative. Never negative itself.
    #[must_use]
    fn or_magnitude(self, value: Self) -> Self;
}

macro_rules! scaled {
    ($($N:ty: $magnitude:expr),*) => {$(
        impl Scaled for $N {
            #[inline(always)]
            fn wrap(self) -> i64 {
                self as i64
            }

            #[inline(always)]
            fn or_magnitude(self, value: Self) -> Self {
                self | $magnitude(value)
            }
        }
    )*};
}

scaled!(u8: |value: u8| value, u16: |value: u16| value, u32: |value: u32| value, u64: |value: u64| value);
scaled!(i8: |value: i8| value ^ value >> 7, i16: |value: i16| value ^ value >> 15);
scaled!(i32: |value: i32| value ^ value >> 31, i64: |value: i64| value ^ value >> 63);

#[cfg(test)]
mod tests {
    use super::super::random;
    use super::*;

    #[test]
    fn sums_and_magnitudes_are_those_of_single_values() {
        let mut next = random(3);
        let small: Vec<i8> = (0..300).map(|_| next() as i8).collect();
        let large: Vec<u64> = (0..300).map(|_| next() >> 1).collect();
        let mut sums = vec![7];
        assert_eq!(add_scaled(&small, 86_400, Some(-5), &mut sums), 127);
        let magnitudes = add_scaled(&large, 1, None, &mut sums);
        assert_eq!(magnitudes, large.iter().fold(0, |bits, value| bits | value));
        let expected = small.iter().zip(&large).map(|(small, large)| {
            let small = i64::from(*small) * 86_400 - 5;
            small.wrapping_add(*large as i64)
        });
        assert_eq!(sums, std::iter::once(7).chain(expected).collect::<Vec<_>>());
    }
}
