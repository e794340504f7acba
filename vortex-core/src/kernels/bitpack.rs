//! Unpacking blocks of 1024 integers of `width` bits each.
//!
//! A block is packed in lanes, so that one instruction works on many values: with words of `T`
//! bits there are `1024 / T` lanes, and each lane is a stream of `T` values, least significant
//! bit first, over `width` words. Word `w` of lane `l` lies at `w * lanes + l`. Which row of
//! the block a lane's value belongs to is the business of the `fastlanes` crate.

#![expect(unsafe_code, reason = "widths are known only at run time; lengths are checked once per block")]

use std::ops::Range;

use super::{BLOCK, Word, block_parts};

/// A packed block whose bytes are as many as its width asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedBlock<'a, W> {
    width: usize,
    words: &'a [W],
}

/// Up to how many values of a block are better extracted one by one.
pub(crate) fn few<W: Word>() -> usize {
    match W::BITS {
        8 => 16,
        16 => 32,
        32 => 64,
        _ => 128,
    }
}

impl<'a, W: Word> PackedBlock<'a, W> {
    /// Words of a block of `width` bits per value.
    pub(crate) const fn word_count(width: usize) -> usize {
        BLOCK / W::BITS * width
    }

    /// A packed block.
    ///
    /// # Panics
    /// If the width exceeds that of a word, or the words are not as many as it asks for.
    pub(crate) fn new(width: usize, words: &'a [W]) -> Self {
        assert!(width <= W::BITS, "{width} bits per value of {} bits", W::BITS);
        assert_eq!(words.len(), Self::word_count(width), "words of a block of {width} bits per value");
        Self { width, words }
    }

    /// The largest value that fits.
    pub(crate) fn max(self) -> W {
        match self.width {
            0 => W::ZERO,
            width => W::narrow(u64::MAX >> (64 - width)),
        }
    }

    /// Unpacks all values and adds `reference`, wrapping.
    pub(crate) fn unpack(self, reference: W, out: &mut [W; BLOCK]) {
        if reference == W::ZERO {
            // SAFETY: `new` checked the width and the number of words, the type that of values.
            unsafe { W::unchecked_unpack(self.width, self.words, out) }
        } else {
            // SAFETY: as above.
            unsafe { W::unchecked_unfor_pack(self.width, self.words, reference, out) }
        }
    }

    /// As [`unpack`](Self::unpack), appending to a vector.
    pub(crate) fn append_to(self, reference: W, out: &mut Vec<W>) {
        out.reserve(BLOCK);
        let len = out.len();
        let spare = out.spare_capacity_mut().as_mut_ptr().cast::<[W; BLOCK]>();
        // SAFETY: the memory is reserved, aligned and nobody else's; `unpack` reads none of it
        // and writes all 1024 values.
        unsafe {
            self.unpack(reference, &mut *spare);
            out.set_len(len + BLOCK);
        }
    }

    /// Extracts the values of some rows of the block.
    ///
    /// # Panics
    /// If a row is not below 1024.
    pub(crate) fn extract(self, rows: &[usize], reference: W, out: &mut Vec<W>) {
        assert!(rows.iter().all(|row| *row < BLOCK), "rows lie within the block");
        out.reserve(rows.len());
        let len = out.len();
        let spare = &mut out.spare_capacity_mut()[..rows.len()];
        // SAFETY: `new` checked the width and the number of words; there is a place per row,
        // and the callee fills them all.
        unsafe {
            W::unchecked_unpack_indices(self.width, self.words, rows, spare);
            out.set_len(len + rows.len());
        }
        for value in &mut out[len..] {
            *value = value.plus(reference);
        }
    }
}

/// Unpacks `rows`, counted from the start of block 0; `block` gives each block and what to add
/// to its values. Whole blocks go straight into the result.
pub(crate) fn unpack_rows<'a, W: Word>(
    rows: Range<usize>,
    block: impl Fn(usize) -> (PackedBlock<'a, W>, W),
) -> Vec<W> {
    let mut out = Vec::with_capacity(rows.len());
    for (at, part) in block_parts(rows) {
        let (packed, reference) = block(at);
        if part.len() == BLOCK {
            packed.append_to(reference, &mut out);
        } else if part.len() <= few::<W>() {
            packed.extract(&part.collect::<Vec<_>>(), reference, &mut out);
        } else {
            let mut scratch = [W::ZERO; BLOCK];
            packed.unpack(reference, &mut scratch);
            out.extend_from_slice(&scratch[part]);
        }
    }
    out
}

/// Packs a block, for tests: the low `width` bits of each value.
#[cfg(test)]
pub(crate) fn pack<W: Word>(width: usize, values: &[W; BLOCK]) -> Vec<W> {
    let mut packed = vec![W::ZERO; PackedBlock::<W>::word_count(width)];
    // SAFETY: widths of tests are those of words, and the lengths are right.
    unsafe { W::unchecked_pack(width, values, &mut packed) };
    packed
}

#[cfg(test)]
mod tests {
    use super::super::random;
    use super::*;

    const ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

    /// Bit by bit from the layout.
    fn naive<W: Word>(width: usize, words: &[W], row: usize) -> u64 {
        let lanes = BLOCK / W::BITS;
        let (group, within) = (row / 128, row % 128);
        let lane = within % lanes;
        let turn = ORDER[(within - lane) / 16] * 8 + group;
        (0..width)
            .map(|bit| {
                let at = turn * width + bit;
                let word = words[at / W::BITS * lanes + lane].widen();
                ((word >> (at % W::BITS)) & 1) << bit
            })
            .sum()
    }

    fn unpacks_all_widths<W: Word>() {
        for width in 0..=W::BITS {
            let mut next = random(width as u64);
            let words: Vec<W> = (0..PackedBlock::<W>::word_count(width)).map(|_| W::narrow(next())).collect();
            let block = PackedBlock::new(width, &words);
            let expected: Vec<W> = (0..BLOCK).map(|row| W::narrow(naive(width, &words, row))).collect();
            let reference = W::narrow(next());
            let shifted: Vec<W> = expected.iter().map(|value| value.plus(reference)).collect();
            assert!(expected.iter().all(|value| *value <= block.max()));

            let mut out = [W::MAX; BLOCK];
            block.unpack(W::ZERO, &mut out);
            assert_eq!(out[..], expected, "{width} of {} bits", W::BITS);
            let mut appended = vec![W::MAX];
            block.append_to(reference, &mut appended);
            assert_eq!(appended[1..], shifted);
            let mut extracted = Vec::new();
            block.extract(&[1023, 0, 77, 77], reference, &mut extracted);
            assert_eq!(extracted, [shifted[1023], shifted[0], shifted[77], shifted[77]]);
            assert_eq!(pack(width, &out), words);
        }
    }

    #[test]
    fn every_width_unpacks_as_the_layout_says() {
        unpacks_all_widths::<u8>();
        unpacks_all_widths::<u16>();
        unpacks_all_widths::<u32>();
        unpacks_all_widths::<u64>();
    }

    #[test]
    fn rows_may_start_and_end_anywhere_in_a_block() {
        let mut next = random(1);
        let values: Vec<u32> = (0..3 * BLOCK).map(|_| u32::narrow(next()) % 512).collect();
        let blocks: Vec<Vec<u32>> =
            values.chunks_exact(BLOCK).map(|block| pack(9, block.try_into().unwrap())).collect();
        for rows in [0..0, 0..3072, 5..3000, 1024..2048, 1023..2049, 700..900, 3071..3072] {
            let unpacked = unpack_rows(rows.clone(), |at| (PackedBlock::new(9, &blocks[at]), 7));
            let expected: Vec<u32> = values[rows].iter().map(|value| value + 7).collect();
            assert_eq!(unpacked, expected);
        }
    }

    #[test]
    #[should_panic(expected = "words of a block")]
    fn a_block_with_too_few_words_is_refused() {
        PackedBlock::<u16>::new(3, &[0; 191]);
    }
}
