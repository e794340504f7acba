//! Finding the exponents for a column, and the integers that represent its floats.

use std::fmt;

use super::float::{Float as _, ROWS_AT_A_TIME};
use super::{ID, Metadata};
use crate::encodings::shared::patches::EncodedPatches;
use crate::kernels::Word;
use crate::kernels::simd::{Vectorized, vectorized};
use crate::wire::WriteNode;

/// Powers of ten: `e` scales a float to an integer, `f` removes its trailing zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exponents {
    e: usize,
    f: usize,
}

/// Integers, and the rows that they do not represent.
#[derive(Debug)]
pub(crate) struct Decimals<N> {
    pub(crate) integers: Vec<N>,
    /// Ascending. Their integers are copies of another row's.
    pub(crate) exceptions: Vec<u32>,
}

/// A float that can be converted to an integer.
pub(crate) trait ToInteger: Copy + fmt::Debug {
    /// The signed integer type of the same width.
    type Integer: Word;
    /// The largest exponent.
    const MAX: usize;

    /// The integer for a float, and whether it decodes to the same bits.
    fn integer(self, exponents: Exponents) -> (Self::Integer, bool);

    /// The integer widened to 64 bits.
    fn widen(integer: Self::Integer) -> i64;
}

macro_rules! float {
    ($F:ty, $I:ty, $U:ty, max $MAX:literal, sweet $sweet:expr) => {
        impl ToInteger for $F {
            type Integer = $U;
            const MAX: usize = $MAX;

            #[inline(always)]
            fn integer(self, Exponents { e, f }: Exponents) -> ($U, bool) {
                // Adding it rounds to an integer, and ties to even.
                const SWEET: $F = $sweet;
                let scaled = self * Self::POWERS[e] * Self::FRACTIONS[f];
                let integer = ((scaled + SWEET) - SWEET) as $I;
                let back = integer as $F * Self::POWERS[f] * Self::FRACTIONS[e];
                (integer.cast_unsigned(), back.to_bits() == self.to_bits())
            }

            fn widen(integer: $U) -> i64 {
                integer.cast_signed().into()
            }
        }
    };
}

float!(f32, i32, u32, max 10, sweet (1 << 23) as f32 + (1 << 22) as f32);
float!(f64, i64, u64, max 18, sweet (1u64 << 52) as f64 + (1u64 << 51) as f64);

/// The exponents with which some floats take the least space.
pub(crate) fn find_exponents<F: ToInteger>(sample: &[F]) -> Exponents {
    let mut best = (usize::MAX, Exponents::default());
    for e in (0..F::MAX).rev() {
        for f in 0..=e {
            let exponents = Exponents { e, f };
            let bits = bits(sample, exponents, best.0);
            let span = |exponents: Exponents| exponents.e - exponents.f;
            if bits < best.0 || (bits == best.0 && span(exponents) < span(best.1)) {
                best = (bits, exponents);
            }
        }
    }
    best.1
}

/// Number of bits that some floats take, or some number above `most`.
fn bits<F: ToInteger>(sample: &[F], exponents: Exponents, most: usize) -> usize {
    let exception = (size_of::<F>() + 2) * 8;
    let (mut low, mut high, mut exceptions) = (i64::MAX, i64::MIN, 0);
    for float in sample {
        let (integer, same) = float.integer(exponents);
        if same {
            let integer = F::widen(integer);
            (low, high) = (low.min(integer), high.max(integer));
        } else {
            exceptions += exception;
            if exceptions > most {
                break;
            }
        }
    }
    let span = if low > high { 0 } else { high.wrapping_sub(low).cast_unsigned() };
    sample.len() * (u64::BITS - span.leading_zeros()) as usize + exceptions
}

/// Converts floats to integers.
pub(crate) fn to_integers<F: ToInteger>(floats: &[F], exponents: Exponents) -> Decimals<F::Integer> {
    let mut integers = vec![F::Integer::ZERO; floats.len()];
    let mut exceptions = Vec::new();
    for (at, (floats, out)) in
        floats.chunks(ROWS_AT_A_TIME).zip(integers.chunks_mut(ROWS_AT_A_TIME)).enumerate()
    {
        if vectorized(Convert { floats, exponents, out }) {
            continue;
        }
        let first = at * ROWS_AT_A_TIME;
        let lost = floats.iter().enumerate().filter(|(_, float)| !float.integer(exponents).1);
        // The number of rows in a chunk is less than 2^32.
        exceptions.extend(lost.map(|(row, _)| (first + row) as u32));
    }
    // Integers that represent no float should not increase the width of the others.
    let mut lost = exceptions.iter().copied().peekable();
    let kept = (0..).zip(&integers).find(|(row, _)| lost.next_if_eq(row).is_none());
    if let Some((_, kept)) = kept {
        let filler = *kept;
        exceptions.iter().for_each(|row| integers[*row as usize] = filler);
    }
    Decimals { integers, exceptions }
}

/// Converts a block, and returns whether all integers decode to their floats.
struct Convert<'a, F: ToInteger> {
    floats: &'a [F],
    exponents: Exponents,
    out: &'a mut [F::Integer],
}

impl<F: ToInteger> Vectorized for Convert<'_, F> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let mut all = true;
        for (float, out) in self.floats.iter().zip(self.out) {
            let (integer, same) = float.integer(self.exponents);
            *out = integer;
            all &= same;
        }
        all
    }
}

/// A node of encoded integers, and of patches for the floats that they do not represent.
pub(crate) fn encode(
    exponents: Exponents,
    integers: WriteNode,
    patches: Option<EncodedPatches>,
) -> WriteNode {
    let message = patches.as_ref().map(|patches| patches.message.clone());
    // Exponents are small.
    let metadata = Metadata { e: exponents.e as u32, f: exponents.f as u32, patches: message };
    let node = WriteNode::new(ID).message(&metadata).child(integers);
    node.children(patches.into_iter().flat_map(|patches| [patches.indices, patches.values]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_become_cents() {
        let prices = [1.25, 99.99, 0.01, 1234.5, -7.3];
        let exponents = find_exponents::<f64>(&prices);
        assert_eq!(exponents.e - exponents.f, 2);
        let decimals = to_integers::<f64>(&prices, exponents);
        assert!(decimals.exceptions.is_empty());
        assert_eq!(
            decimals.integers.iter().map(|v| f64::widen(*v)).collect::<Vec<_>>(),
            [125, 9999, 1, 123_450, -730]
        );
    }

    #[test]
    fn what_is_no_decimal_is_an_exception() {
        let floats = [f32::NAN, 1.5, -0.0, f32::INFINITY, 0.0, f32::MIN_POSITIVE];
        let exponents = find_exponents(&floats);
        let decimals = to_integers(&floats, exponents);
        assert_eq!(decimals.exceptions, [0, 2, 3, 5]);
        assert_eq!(decimals.integers[0], decimals.integers[1]);
        assert_eq!(to_integers(&[f32::NAN], exponents).exceptions, [0]);
    }
}
