//! Undoing differences within blocks of 1024 values.
//!
//! The values of a block are stored transposed: consecutive rows are in the same lane, so that all lanes
//! are summed up at once, each starting with its own base. Undoing deltas means summing and then
//! transposing back.

use super::bitpack::ORDER;
use super::simd::{Vectorized, vectorized};
use super::{BLOCK, Word};

/// The values of a block, in row order.
///
/// # Panics
/// If the number of bases is not that of the lanes.
pub(crate) fn undelta<W: Word>(deltas: &[W; BLOCK], bases: &[W], out: &mut [W; BLOCK]) {
    let mut transposed = [W::ZERO; BLOCK];
    W::sum_lanes(deltas, bases, &mut transposed);
    vectorized(Untranspose { transposed: &transposed, out });
}

/// The inverse of the transposition: groups of eight neighbouring rows are 128 values apart.
struct Untranspose<'a, W> {
    transposed: &'a [W; BLOCK],
    out: &'a mut [W; BLOCK],
}

impl<W: Word> Vectorized for Untranspose<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (at, eight) in self.out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let first = ORDER[at % 8] * 16 + at / 8;
            *eight = std::array::from_fn(|row| self.transposed[first + row * 128]);
        }
    }
}

/// The position of each row's value in a transposed block.
pub(crate) fn transposed_positions() -> [usize; BLOCK] {
    let mut positions = [0; BLOCK];
    for transposed in 0..BLOCK {
        positions[fastlanes::transpose(transposed)] = transposed;
    }
    positions
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{lanes, random};
    use super::*;

    /// The bases and deltas of a block, computed value by value from the definition of the layout.
    pub(crate) fn naive_delta<W: Word>(values: &[W]) -> (Vec<W>, Vec<W>) {
        let transposed: Vec<W> =
            (0..BLOCK).map(|at| values[at % 16 * 64 + ORDER[at / 16 % 8] * 8 + at / 128]).collect();
        let mut deltas = vec![W::ZERO; BLOCK];
        let bases = transposed[..lanes::<W>()].to_vec();
        for (lane, base) in bases.iter().enumerate() {
            let mut previous = *base;
            for row in 0..W::BITS {
                let at = ORDER[row / 8] * 16 + row % 8 * 128 + lane;
                deltas[at] = transposed[at].minus(previous);
                previous = transposed[at];
            }
        }
        (bases, deltas)
    }

    fn undoes<W: Word>() {
        let mut next = random(9);
        let values: Vec<W> = (0..BLOCK).map(|_| W::narrow(next())).collect();
        let (bases, deltas) = naive_delta(&values);
        let mut out = [W::ZERO; BLOCK];
        undelta(deltas.as_slice().try_into().unwrap(), &bases, &mut out);
        assert_eq!(out[..], values);
    }

    #[test]
    fn blocks_of_every_word_come_back() {
        undoes::<u8>();
        undoes::<u16>();
        undoes::<u32>();
        undoes::<u64>();
    }

    #[test]
    fn positions_invert_the_transposition() {
        let positions = transposed_positions();
        assert_eq!([positions[0], positions[64], positions[32], positions[1]], [0, 1, 16, 128]);
    }
}
