//! Packing integers into blocks of 1024, the inverse of [`bitpack`](super::bitpack).
#![expect(unsafe_code, reason = "widths are known only at run time; lengths are checked once")]

use super::bitpack::PackedBlock;
use super::simd::{Vectorized, vectorized};
use super::{BLOCK, Word};

/// Packed blocks, and the rows whose values need more bits than the width of the blocks.
#[derive(Debug)]
pub(crate) struct Packed<W> {
    /// Whole blocks, padded with zeros after the last row.
    pub(crate) words: Vec<W>,
    /// Rows in ascending order.
    pub(crate) exceptions: Vec<u32>,
}

/// Packs the low `width` bits of the wrapping differences from `reference`. There are fewer than 2^32 rows.
///
/// # Panics
/// If the width exceeds that of a word, or there are too many rows.
pub(crate) fn pack<W: Word>(values: &[W], reference: W, width: usize) -> Packed<W> {
    assert!(width <= W::BITS, "{width} bits per value of {} bits", W::BITS);
    assert!(u32::try_from(values.len()).is_ok(), "{} rows", values.len());
    let per_block = PackedBlock::<W>::word_count(width);
    let mut words = vec![W::ZERO; values.len().div_ceil(BLOCK) * per_block];
    let mut exceptions = Vec::new();
    let most = if width == 0 { W::ZERO } else { W::narrow(u64::MAX >> (64 - width)) };
    let mut differences = [W::ZERO; BLOCK];
    for (at, rows) in values.chunks(BLOCK).enumerate() {
        differences[rows.len()..].fill(W::ZERO);
        let largest = vectorized(Subtract { rows, reference, out: &mut differences });
        if largest > most {
            let first = at * BLOCK;
            let beyond = differences.iter().enumerate().filter(|(_, value)| **value > most);
            exceptions.extend(beyond.map(|(row, _)| (first + row) as u32));
        }
        let out = &mut words[at * per_block..][..per_block];
        // SAFETY: the width was checked, and the number of words matches it.
        unsafe { W::unchecked_pack(width, &differences, out) };
    }
    Packed { words, exceptions }
}

/// Computes the differences of the rows of a block, and their maximum.
struct Subtract<'a, W> {
    rows: &'a [W],
    reference: W,
    out: &'a mut [W; BLOCK],
}

impl<W: Word> Vectorized for Subtract<'_, W> {
    type Output = W;

    #[inline(always)]
    fn run(self) -> W {
        let mut largest = W::ZERO;
        for (out, row) in self.out.iter_mut().zip(self.rows) {
            *out = row.minus(self.reference);
            largest = if *out > largest { *out } else { largest };
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::super::bitpack::{PackedBlocks, unpack_rows};
    use super::super::random;
    use super::*;

    fn comes_back<W: Word>() {
        for width in 0..=W::BITS {
            for len in [0, 1, 1023, 1024, 2500] {
                let mut next = random((width + len) as u64);
                let reference = W::narrow(next());
                let most = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
                let wide = |row: usize| row % 700 == 3 && width < W::BITS;
                let values: Vec<W> = (0..len)
                    .map(|row| if wide(row) { W::narrow(most + 1) } else { W::narrow(next() & most) })
                    .collect();
                let moved: Vec<W> = values.iter().map(|value| value.plus(reference)).collect();
                let packed = pack(&moved, reference, width);
                let expected: Vec<u32> = (0..len).filter(|row| wide(*row)).map(|row| row as u32).collect();
                assert_eq!(packed.exceptions, expected);
                let words = PackedBlock::<W>::word_count(width);
                let back = unpack_rows(0..len, |at, most| {
                    (PackedBlocks::new(width, &packed.words[at * words..][..most * words], most), reference)
                });
                let equal = (0..len).filter(|row| !wide(*row)).all(|row| back[row] == moved[row]);
                assert!(equal, "{width} of {} bits", W::BITS);
            }
        }
    }

    #[test]
    fn every_width_comes_back() {
        comes_back::<u8>();
        comes_back::<u16>();
        comes_back::<u32>();
        comes_back::<u64>();
    }
}
