//! Unsigned integers of four widths, with wrapping arithmetic.

use std::mem::MaybeUninit;

use arrow::buffer::{Buffer, MutableBuffer, ScalarBuffer};
use arrow::datatypes::ArrowNativeType;
use fastlanes::{BitPacking, Delta, FoR, Transpose};

use super::BLOCK;
use super::bitpack::unpack_blocks;
use super::simd::{Vectorized, vectorized};

/// An unsigned integer as wide as the values of a column.
pub(crate) trait Word: ArrowNativeType + BitPacking + Delta + FoR + Transpose {
    /// Number of bits of a word.
    const BITS: usize;
    /// The largest word.
    const MAX: Self;
    /// The smallest word.
    const ZERO: Self;

    /// The low bits of a wider integer.
    fn narrow(bits: u64) -> Self;

    /// The same value as a wider integer.
    fn as_u64(self) -> u64;

    /// The sum, wrapping.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// The difference, wrapping.
    #[must_use]
    fn minus(self, other: Self) -> Self;

    /// The product, wrapping.
    #[must_use]
    fn times(self, other: Self) -> Self;

    /// Unpacks as many blocks as fit into `out`, and adds `reference`, wrapping.
    ///
    /// # Panics
    /// If the width exceeds that of a word, or there are too few words.
    fn unpack_blocks(width: usize, words: &[Self], reference: Self, out: &mut [MaybeUninit<Self>]);

    /// Running sums along each lane of a block, starting from one base per lane.
    ///
    /// # Panics
    /// If the number of bases is not that of the lanes.
    fn sum_lanes(deltas: &[Self; BLOCK], bases: &[Self], out: &mut [Self; BLOCK]);
}

macro_rules! word {
    ($W:ty, rows $rows:tt, widths $widths:tt) => {
        impl Word for $W {
            const BITS: usize = <$W>::BITS as usize;
            const MAX: Self = <$W>::MAX;
            const ZERO: Self = 0;

            fn narrow(bits: u64) -> Self {
                bits as $W
            }

            fn as_u64(self) -> u64 {
                self.into()
            }

            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            unpack_blocks!($W, rows $rows, widths $widths);

            fn sum_lanes(deltas: &[Self; BLOCK], bases: &[Self], out: &mut [Self; BLOCK]) {
                const LANES: usize = BLOCK / <$W>::BITS as usize;
                let bases: &[Self; LANES] = bases.try_into().expect("one base per lane");
                Self::undelta::<LANES>(deltas, bases, out);
            }
        }
    };
}

word!(u8, rows [0 1 2 3 4 5 6 7], widths [1 2 3 4 5 6 7 8]);
word!(u16, rows [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15], widths [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]);
word!(u32, rows [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31], widths [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32]);
word!(u64, rows [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63], widths [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64]);

/// Runs `$body` with `$W` bound to the [`Word`] as wide as a [`PType`](crate::dtype::PType).
macro_rules! match_word {
    ($ptype:expr, |$W:ident| $body:expr) => {
        match $ptype.byte_width() {
            1 => {
                type $W = u8;
                $body
            }
            2 => {
                type $W = u16;
                $body
            }
            4 => {
                type $W = u32;
                $body
            }
            _ => {
                type $W = u64;
                $body
            }
        }
    };
}
pub(crate) use match_word;

/// Changes all words in place; `change` also gets the row.
pub(crate) fn map_words<W: Word>(
    mut words: MutableBuffer,
    mut change: impl FnMut(usize, W) -> W,
) -> ScalarBuffer<W> {
    vectorized(Change(words.typed_data_mut::<W>(), &mut change));
    ScalarBuffer::from(Buffer::from(words))
}

struct Change<'a, W, F>(&'a mut [W], &'a mut F);

impl<W: Word, F: FnMut(usize, W) -> W> Vectorized for Change<'_, W, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (row, word) in self.0.iter_mut().enumerate() {
            *word = (self.1)(row, *word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_changed_in_place() {
        let words = MutableBuffer::from(vec![1u32, 2, 3]);
        let address = words.as_ptr();
        let changed = map_words(words, |row, word: u32| word * 2 + row as u32);
        assert_eq!((&*changed, changed.as_ptr().cast()), (&[2, 5, 8][..], address));
    }
}
