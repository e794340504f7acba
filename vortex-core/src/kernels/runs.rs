//! Generating values: runs of equal values, and arithmetic sequences.
#![expect(unsafe_code, reason = "runs are written in strides, beyond their ends, into checked capacity")]

use std::mem::MaybeUninit;

use arrow::buffer::BooleanBuffer;
use arrow::datatypes::ArrowNativeType;

use super::Word;
use super::simd::{Vectorized, vectorized};

/// Number of values written at a time, for short and for long runs. Values written beyond a run are
/// overwritten by the next one.
const SHORT: usize = 8;
const LONG: usize = 16;

/// Expands runs to `rows` values; run `i` repeats `values[i]` up to the `i`th end.
///
/// # Panics
/// If the ends decrease or the last end is not `rows`.
pub(crate) fn repeat_runs<T: Copy>(values: &[T], ends: impl Iterator<Item = usize>, rows: usize) -> Vec<T> {
    if values.len().saturating_mul(SHORT) >= rows {
        vectorized(Repeat::<SHORT, _, _> { values, ends, rows })
    } else {
        vectorized(Repeat::<LONG, _, _> { values, ends, rows })
    }
}

struct Repeat<'a, const STRIDE: usize, T, E> {
    values: &'a [T],
    ends: E,
    rows: usize,
}

impl<const STRIDE: usize, T: Copy, E: Iterator<Item = usize>> Vectorized for Repeat<'_, STRIDE, T, E> {
    type Output = Vec<T>;

    #[inline(always)]
    fn run(self) -> Vec<T> {
        let mut out: Vec<T> = Vec::with_capacity(self.rows + STRIDE);
        let target = out.as_mut_ptr();
        let mut start = 0;
        for (value, end) in self.values.iter().zip(self.ends) {
            assert!(start <= end && end <= self.rows, "runs rise up to the last row");
            let stride = [*value; STRIDE];
            let mut at = start;
            loop {
                // SAFETY: `at` is at most `rows`, and the capacity is one stride more.
                unsafe { target.add(at).cast::<[T; STRIDE]>().write(stride) };
                at += STRIDE;
                if at >= end {
                    break;
                }
            }
            start = end;
        }
        assert_eq!(start, self.rows, "runs reach the last row");
        // SAFETY: every run was written starting at the end of its predecessor, up to `rows`.
        unsafe { out.set_len(self.rows) };
        out
    }
}

/// `rows` times the same value.
pub(crate) fn repeat_one<T: ArrowNativeType>(value: T, rows: usize) -> Vec<T> {
    vectorized(RepeatOne { value, rows })
}

struct RepeatOne<T> {
    value: T,
    rows: usize,
}

impl<T: ArrowNativeType> Vectorized for RepeatOne<T> {
    type Output = Vec<T>;

    #[inline(always)]
    fn run(self) -> Vec<T> {
        let mut out: Vec<T> = Vec::with_capacity(self.rows);
        let places = &mut out.spare_capacity_mut()[..self.rows];
        if size_of::<T>() == size_of::<[u64; 2]>() && align_of::<T>() >= align_of::<u64>() {
            // SAFETY: both have the same size, and native values are plain bits.
            let halves: [u64; 2] = unsafe { std::mem::transmute_copy(&self.value) };
            for place in places {
                // SAFETY: the place is as large as both halves, and aligned at least as they are. The compiler
                // vectorizes stores of halves, but not of 128 bits.
                unsafe { place.as_mut_ptr().cast::<[u64; 2]>().write(halves) };
            }
        } else {
            places.fill(MaybeUninit::new(self.value));
        }
        // SAFETY: all places were written.
        unsafe { out.set_len(self.rows) };
        out
    }
}

/// Expands runs to `rows` bits; run `i` repeats `bits[i]` up to `end_of(i)`. The ends must rise up to the last row.
///
/// # Panics
/// If an end exceeds `rows`.
pub(crate) fn repeat_bits(
    bits: &BooleanBuffer,
    end_of: impl Fn(usize) -> usize,
    rows: usize,
) -> BooleanBuffer {
    // First marks where bits change, then computes the parity of the number of changes so far.
    let mut words = vec![0u64; rows / 64 + 1];
    let mut mark = |run: usize| {
        let start = run.checked_sub(1).map_or(0, &end_of);
        assert!(start <= rows, "runs rise up to the last row");
        words[start / 64] ^= 1 << (start % 64);
    };
    // Zeros follow the last run, so that a change behind it marks its end.
    let mut last = 0;
    for (at, word) in bits.bit_chunks().iter_padded().enumerate() {
        let mut changes = word ^ (word << 1 | last);
        last = word >> 63;
        while changes != 0 {
            mark(64 * at + changes.trailing_zeros() as usize);
            changes &= changes - 1;
        }
    }
    vectorized(Parities(&mut words));
    let mut carry = 0u64;
    for word in &mut words {
        *word ^= carry;
        carry = 0u64.wrapping_sub(*word >> 63);
    }
    BooleanBuffer::new(words.into(), 0, rows)
}

/// Replaces every bit by the parity of all bits of its word up to itself.
struct Parities<'a>(&'a mut [u64]);

impl Vectorized for Parities<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for word in self.0 {
            for distance in [1, 2, 4, 8, 16, 32] {
                *word ^= *word << distance;
            }
        }
    }
}

/// The values `base`, `base + step`, and so on, wrapping.
pub(crate) fn count_up<W: Word>(base: W, step: W, rows: usize) -> Vec<W> {
    vectorized(CountUp { base, step, rows })
}

struct CountUp<W> {
    base: W,
    step: W,
    rows: usize,
}

impl<W: Word> Vectorized for CountUp<W> {
    type Output = Vec<W>;

    #[inline(always)]
    fn run(self) -> Vec<W> {
        let mut value = self.base;
        let mut out = Vec::with_capacity(self.rows);
        for slot in &mut out.spare_capacity_mut()[..self.rows] {
            slot.write(value);
            value = value.plus(self.step);
        }
        // SAFETY: the loop wrote one value per row.
        unsafe { out.set_len(self.rows) };
        out
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::i256;

    use super::*;

    #[test]
    fn runs_of_any_length_follow_each_other() {
        let ends = [0usize, 1, 1, 17, 33, 34, 100, 100];
        let values = [9u16, 1, 8, 2, 3, 4, 5, 7];
        let mut expected = Vec::new();
        for (value, end) in values.iter().zip(ends) {
            expected.resize(end, *value);
        }
        assert_eq!(repeat_runs(&values, ends.into_iter(), 100), expected);
        let ends = [3usize, 11, 12, 20];
        assert_eq!(
            repeat_runs(&[1u8, 2, 3, 4], ends.into_iter(), 20),
            [1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4]
        );
        assert_eq!(repeat_runs::<u8>(&[], std::iter::empty(), 0), Vec::<u8>::new());
    }

    #[test]
    fn one_value_is_repeated() {
        assert_eq!(repeat_one(7u8, 5), [7; 5]);
        assert_eq!(repeat_one(u128::MAX - 3, 37), [u128::MAX - 3; 37]);
        assert_eq!(repeat_one(i256::from_i128(-5), 3), [i256::from_i128(-5); 3]);
        assert_eq!(repeat_one(0.5f64, 0), [0.5; 0]);
    }

    #[test]
    fn runs_of_bits_follow_each_other() {
        let mut next = super::super::random(5);
        for runs in 0..200 {
            let mut ends: Vec<usize> = (0..runs).map(|_| (next() % 400) as usize).collect();
            ends.sort_unstable();
            let bits: Vec<bool> = (0..runs).map(|_| next().is_multiple_of(2)).collect();
            let mut expected = Vec::new();
            for (bit, end) in bits.iter().zip(&ends) {
                expected.resize(*end, *bit);
            }
            let repeated = repeat_bits(&bits.into(), |run| ends[run], expected.len());
            assert_eq!(repeated, expected.into());
        }
    }

    #[test]
    #[should_panic(expected = "runs reach the last row")]
    fn runs_that_end_early_are_refused() {
        repeat_runs(&[1u8], std::iter::once(3), 4);
    }

    #[test]
    fn counting_wraps() {
        for rows in [0, 1, 31, 32, 33, 1000] {
            let expected: Vec<u8> =
                (0..rows).map(|row| 200u8.wrapping_add(7u8.wrapping_mul((row % 256) as u8))).collect();
            assert_eq!(count_up(200u8, 7, rows), expected);
        }
        assert_eq!(count_up(5u64, u64::MAX, 7), [5, 4, 3, 2, 1, 0, u64::MAX]);
    }
}
