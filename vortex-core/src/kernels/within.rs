//! Testing whether values lie in an interval, a block at a time.
//!
//! All comparisons of integers with constants can be expressed as a single test in modular arithmetic,
//! `value - low <= span`: it works for signed and unsigned values alike and, since adding a reference
//! only shifts values modulo the width, for values that are stored as differences from a reference.

use std::ops::Range;

use arrow::buffer::BooleanBuffer;

use super::simd::{Vectorized, vectorized};
use super::{BLOCK, Word};

/// Number of 64-bit words in the bitmap of a block.
pub(crate) const BLOCK_BITS: usize = BLOCK / 64;

/// The test `value - low <= span`, wrapping, or its opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Within<W> {
    low: W,
    span: W,
    outside: bool,
}

impl<W: Word> Within<W> {
    /// Creates a test for `low..=high`, or for all other values. Bounds are taken modulo the width of the
    /// words.
    pub(crate) fn new(low: i128, high: i128, outside: bool) -> Self {
        if low > high {
            return Self { low: W::ZERO, span: W::MAX, outside: !outside };
        }
        // Truncation in two's complement preserves the value modulo the width.
        let word = |value: i128| W::narrow(value as u64);
        Self { low: word(low), span: word(high).minus(word(low)), outside }
    }

    /// The same test for values from which `reference` was subtracted.
    pub(crate) fn minus(self, reference: W) -> Self {
        Self { low: self.low.minus(reference), ..self }
    }

    /// Whether a value passes.
    pub(crate) fn holds(self, value: W) -> bool {
        (value.minus(self.low) <= self.span) != self.outside
    }

    /// The outcome for all of `0..=max`, if it is the same for all.
    pub(crate) fn decided(self, max: W) -> Option<bool> {
        let to_zero = W::ZERO.minus(self.low);
        let reaches = self.span.minus(to_zero);
        if self.span == W::MAX || (to_zero <= self.span && reaches >= max) {
            Some(!self.outside)
        } else if to_zero > self.span && self.low > max {
            Some(self.outside)
        } else {
            None
        }
    }

    /// Tests all values of a block; bit `i % 64` of word `i / 64` is the outcome of value `i`.
    pub(crate) fn test(self, values: &[W; BLOCK]) -> [u64; BLOCK_BITS] {
        let passed = vectorized(Test { low: self.low, span: self.span, values });
        let opposite = if self.outside { u64::MAX } else { 0 };
        passed.map(|word| word ^ opposite)
    }
}

/// Tests which values pass any of several tests.
pub(crate) fn pass_any<W: Word>(any_of: &[Within<W>], values: &[W]) -> BooleanBuffer {
    let test = |block: &[W; BLOCK]| {
        any_of.iter().fold([0; BLOCK_BITS], |passed, within| {
            let more = within.test(block);
            std::array::from_fn(|at| passed[at] | more[at])
        })
    };
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    let mut bits: Vec<u64> = Vec::with_capacity((blocks.len() + 1) * BLOCK_BITS);
    blocks.iter().for_each(|block| bits.extend(test(block)));
    if !rest.is_empty() {
        let mut block = [W::ZERO; BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        bits.extend(test(&block));
    }
    bitmap(bits, 0..values.len())
}

/// Which bytes are not zero.
pub(crate) fn not_zero(bytes: &[u8]) -> BooleanBuffer {
    pass_any(&[Within::new(0, 0, true)], bytes)
}

/// A range of bits from words, of which bit `i % 64` of word `i / 64` is bit `i`.
pub(crate) fn bitmap(words: Vec<u64>, bits: Range<usize>) -> BooleanBuffer {
    BooleanBuffer::new(words.into(), bits.start, bits.len())
}

struct Test<'a, W> {
    low: W,
    span: W,
    values: &'a [W; BLOCK],
}

impl<W: Word> Vectorized for Test<'_, W> {
    type Output = [u64; BLOCK_BITS];

    // Compares as many values at once as a vector has; the outcomes are bits already. These must be plain loops:
    // the compiler does not vectorize the same as a fold.
    #[inline(always)]
    fn run(self) -> [u64; BLOCK_BITS] {
        let mut bits = [0; BLOCK_BITS];
        for (word, values) in bits.iter_mut().zip(self.values.as_chunks::<64>().0) {
            for (at, value) in values.iter().enumerate() {
                *word |= u64::from(value.minus(self.low) <= self.span) << at;
            }
        }
        bits
    }

    /// Without such instructions, bytes are faster.
    fn run_plain(self) -> [u64; BLOCK_BITS] {
        let mut bits = [0; BLOCK_BITS];
        for (word, values) in bits.iter_mut().zip(self.values.as_chunks::<64>().0) {
            let mut passed = [0u8; 64];
            for (passed, value) in passed.iter_mut().zip(values) {
                *passed = u8::from(value.minus(self.low) <= self.span);
            }
            *word = pack_bools(&passed);
        }
        bits
    }
}

/// Packs 64 bytes, each 0 or 1, into one bit each.
fn pack_bools(bytes: &[u8; 64]) -> u64 {
    // The multiplication collects the lowest bits of eight bytes in the highest byte.
    const COLLECT: u64 = 0x0102_0408_1020_4080;
    let eighths = bytes.as_chunks::<8>().0;
    u64::from_le_bytes(std::array::from_fn(|at| {
        (u64::from_le_bytes(eighths[at]).wrapping_mul(COLLECT) >> 56) as u8
    }))
}

#[cfg(test)]
mod tests {
    use super::super::random;
    use super::*;

    #[test]
    fn intervals_of_signed_values_hold_on_the_ring() {
        for low in -128..=127i8 {
            for high in [-128, -127, -1, 0, 1, 5, 126, 127] {
                let within = Within::<u8>::new(low.into(), high.into(), false);
                let outside = Within::<u8>::new(low.into(), high.into(), true);
                for value in -128..=127i8 {
                    let word = value.cast_unsigned();
                    assert_eq!(within.holds(word), low <= value && value <= high);
                    assert_eq!(outside.holds(word), !within.holds(word));
                    let stored = word.wrapping_sub(200);
                    assert_eq!(within.minus(200).holds(stored), within.holds(word));
                }
            }
        }
    }

    #[test]
    fn a_decision_is_what_every_value_gives() {
        for low in 0..=255u8 {
            for span in [0, 1, 3, 100, 254, 255] {
                for max in [0, 1, 3, 7, 127, 255] {
                    let within = Within { low, span, outside: low % 2 == 0 };
                    let passed = (0..=max).filter(|value| within.holds(*value)).count();
                    let expected = match passed {
                        0 => Some(false),
                        all if all == usize::from(max) + 1 => Some(true),
                        _ => None,
                    };
                    assert_eq!(within.decided(max), expected, "{within:?} up to {max}");
                }
            }
        }
    }

    fn tests_blocks<W: Word>() {
        let mut next = random(5);
        let values: [W; BLOCK] = std::array::from_fn(|_| W::narrow(next()));
        for outside in [false, true] {
            let within = Within { low: values[3], span: W::MAX.minus(values[8]), outside };
            let bits = within.test(&values);
            for (at, value) in values.iter().enumerate() {
                assert_eq!(bits[at / 64] >> (at % 64) & 1 == 1, within.holds(*value));
            }
            let plain = Test { low: within.low, span: within.span, values: &values }.run_plain();
            assert_eq!(bits.map(|word| if outside { !word } else { word }), plain);
        }
    }

    #[test]
    fn any_number_of_values_is_tested_one_by_one() {
        let mut next = random(6);
        let values: Vec<u16> = (0..2 * BLOCK + 100).map(|_| next() as u16 % 300).collect();
        let any_of = [Within::new(5, 20, false), Within::new(100, 250, false)];
        for len in [0, 1, 63, 64, BLOCK - 1, BLOCK, BLOCK + 1, values.len()] {
            let passed = values[..len].iter().map(|value| any_of.iter().any(|within| within.holds(*value)));
            assert_eq!(pass_any(&any_of, &values[..len]), passed.collect::<BooleanBuffer>());
        }
        assert_eq!(pass_any(&[], &values[..70]), BooleanBuffer::new_unset(70));
    }

    #[test]
    fn blocks_are_tested_value_by_value() {
        tests_blocks::<u8>();
        tests_blocks::<u16>();
        tests_blocks::<u32>();
        tests_blocks::<u64>();
    }
}
