//! Integers of one width as integers of another, checked against a bound in the same pass: decimals are stored as
//! the shortest integers that hold them, and Arrow represents most of them by 128 bits.
#![expect(unsafe_code, reason = "places are written once, 128 bits as two halves, which is vectorized")]

use std::mem::MaybeUninit;

use arrow::array::ArrowNativeTypeOp;
use arrow::datatypes::i256;

use super::BLOCK;
use super::simd::{Vectorized, vectorized};

/// Converts integers of one width to another.
///
/// # Safety
/// [`write`](Self::write) must initialize the place.
pub(crate) unsafe trait Resize<T>: ArrowNativeTypeOp {
    /// The value, if it fits; otherwise, any.
    fn wrap(self) -> T;

    /// Writes what [`wrap`](Self::wrap) returns.
    #[inline(always)]
    fn write(self, to: &mut MaybeUninit<T>) {
        to.write(self.wrap());
    }
}

/// The values, converted, and whether all of them lie between `-beyond` and `beyond`; `None` means that any do.
pub(crate) fn resized<S: Resize<T>, T>(values: &[S], beyond: Option<S>) -> (Vec<T>, bool) {
    let mut out = Vec::with_capacity(values.len());
    let are_within =
        vectorized(Resized { values, beyond, out: &mut out.spare_capacity_mut()[..values.len()] });
    // SAFETY: there is capacity for as many values, and `Resize::write` initialized all of them.
    unsafe { out.set_len(values.len()) };
    (out, are_within)
}

/// Whether all values lie between `-beyond` and `beyond`; `None` means that any do.
pub(crate) fn are_within<N: ArrowNativeTypeOp>(values: &[N], beyond: Option<N>) -> bool {
    let Some(beyond) = beyond else { return true };
    let within = BelowBound { values, beyond };
    // There are no vectors of wider integers, and emulating them takes longer.
    if size_of::<N>() > size_of::<u64>() { within.run() } else { vectorized(within) }
}

/// Whether a value lies between `-beyond` and `beyond`.
#[inline(always)]
pub(crate) fn is_within<N: ArrowNativeTypeOp>(value: N, beyond: N) -> bool {
    value.is_gt(beyond.neg_wrapping()) & value.is_lt(beyond)
}

struct BelowBound<'a, N> {
    values: &'a [N],
    beyond: N,
}

impl<N: ArrowNativeTypeOp> Vectorized for BelowBound<'_, N> {
    type Output = bool;

    // As in `gather`, stopping early would not be vectorized.
    #[inline(always)]
    fn run(self) -> bool {
        self.values.iter().fold(true, |within, value| within & is_within(*value, self.beyond))
    }
}

/// Writes all of `out`, which is as long as `values`.
struct Resized<'a, S, T> {
    values: &'a [S],
    beyond: Option<S>,
    out: &'a mut [MaybeUninit<T>],
}

impl<S: Resize<T>, T> Vectorized for Resized<'_, S, T> {
    type Output = bool;

    /// Block by block, so that values are read from memory only once.
    #[inline(always)]
    fn run(self) -> bool {
        assert_eq!(self.values.len(), self.out.len(), "a place for each value");
        let mut are_within = true;
        for (values, out) in self.values.chunks(BLOCK).zip(self.out.chunks_mut(BLOCK)) {
            if let Some(beyond) = self.beyond {
                are_within &= BelowBound { values, beyond }.run();
            }
            values.iter().zip(out).for_each(|(value, to)| value.write(to));
        }
        are_within
    }
}

macro_rules! resize_between {
    ($($S:ty => $($T:ty),*;)*) => {$($(
        // SAFETY: `write` is the default.
        unsafe impl Resize<$T> for $S {
            #[inline(always)]
            fn wrap(self) -> $T {
                self as $T
            }
        }
    )*)*};
}

resize_between! {
    i8 => i32, i64;
    i16 => i32, i64;
    i32 => i32, i64;
    i64 => i32, i64;
    i128 => i32, i64, i128;
}

macro_rules! resize_to_i128 {
    ($($S:ty),*) => {$(
        // SAFETY: `write` writes both halves.
        unsafe impl Resize<i128> for $S {
            #[inline(always)]
            fn wrap(self) -> i128 {
                self.into()
            }

            #[inline(always)]
            fn write(self, to: &mut MaybeUninit<i128>) {
                let halves = [i64::from(self), i64::from(self) >> 63];
                // SAFETY: both halves fit the place, which is aligned at least as they are, and any bits are a
                // number.
                unsafe { to.as_mut_ptr().cast::<[i64; 2]>().write(halves) };
            }
        }
    )*};
}

resize_to_i128!(i8, i16, i32, i64);

macro_rules! resize_with_i256 {
    ($($narrow:ty),*) => {$(
        // SAFETY: `write` is the default.
        unsafe impl Resize<i256> for $narrow {
            #[inline(always)]
            fn wrap(self) -> i256 {
                i256::from_i128(i128::from(self))
            }
        }
    )*};
    (to $($narrow:ty),*) => {$(
        // SAFETY: `write` is the default.
        unsafe impl Resize<$narrow> for i256 {
            #[inline(always)]
            fn wrap(self) -> $narrow {
                self.as_i128() as $narrow
            }
        }
    )*};
}

resize_with_i256!(i8, i16, i32, i64, i128);
resize_with_i256!(to i32, i64, i128);

// SAFETY: `write` is the default.
unsafe impl Resize<i256> for i256 {
    #[inline(always)]
    fn wrap(self) -> i256 {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::random;

    /// Numbers of all magnitudes, more than a block of them, beside those at the borders of the type.
    fn numbers<S: TryFrom<i128>>(least: i128, most: i128) -> Vec<S> {
        let mut next = random(3);
        let mut any = || i128::from(next() as i64) >> (next() % 64);
        let borders = [least, least + 1, -1, 0, 1, most - 1, most];
        let any = (0..2 * BLOCK + 77).map(|_| any());
        borders.into_iter().chain(any).filter_map(|number| S::try_from(number).ok()).collect()
    }

    macro_rules! check {
        ($($S:ident),*) => {$(
            let values = numbers::<$S>($S::MIN.into(), $S::MAX.into());
            let naive: Vec<i128> = values.iter().map(|value| i128::from(*value)).collect();
            for beyond in [None, Some(1), Some(100), Some($S::MAX)] {
                let are_within =
                    beyond.is_none_or(|beyond| values.iter().all(|value| -beyond < *value && *value < beyond));
                assert_eq!(resized::<_, i128>(&values, beyond), (naive.clone(), are_within));
                assert_eq!(super::are_within(&values, beyond), are_within);
            }
            let small: Vec<$S> = values.into_iter().filter(|value| (-9..=9).contains(value)).collect();
            let naive: Vec<i64> = small.iter().map(|value| i64::from(*value)).collect();
            assert_eq!(resized::<_, i64>(&small, Some(10)), (naive, true));
            assert!(are_within(&small, Some(10)) && !are_within(&[small, vec![10]].concat(), Some(10)));
        )*};
    }

    #[test]
    fn numbers_of_any_width_keep_their_values() {
        check!(i8, i16, i32, i64);
    }

    #[test]
    fn wide_numbers_that_fit_keep_their_values() {
        let values = numbers::<i128>(-(1 << 62), 1 << 62);
        let wide: Vec<i256> = values.iter().map(|value| i256::from_i128(*value)).collect();
        assert_eq!(resized::<i128, i256>(&values, None), (wide.clone(), true));
        assert_eq!(resized::<i256, i128>(&wide, None), (values, true));
        let beyond = i256::from_i128(1 << 62);
        assert!(!are_within(&wide, Some(beyond)) && are_within(&wide[1..6], Some(beyond)));
    }
}
