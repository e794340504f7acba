//! Unpacking blocks of 1024 integers of `width` bits each.
//!
//! A block is packed in lanes, so that one instruction processes many values: with words of `T` bits
//! there are `1024 / T` lanes, and each lane is a stream of `T` values, least significant bit first, over
//! `width` words. Word `w` of lane `l` is at `w * lanes + l`. The `r`th values of all lanes are adjacent
//! in the block, so that one row of values is obtained by shifting one row of words.

#![expect(unsafe_code, reason = "widths are known only at run time; lengths are checked once per block")]

use std::mem::MaybeUninit;
use std::ops::Range;

use super::simd::{Vectorized, vectorized};
use super::{BLOCK, Word, block_parts, lanes};

/// The eighth of a block that each group of eight values of a lane belongs to.
pub(super) const ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

/// A packed block that has as many words as its width requires.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedBlock<'a, W> {
    width: usize,
    words: &'a [W],
}

/// The number of values of a block up to which extracting them one by one is faster.
pub(crate) fn few<W: Word>() -> usize {
    match W::BITS {
        8 => 16,
        16 => 32,
        32 => 64,
        _ => 128,
    }
}

impl<'a, W: Word> PackedBlock<'a, W> {
    /// The number of words of a block with `width` bits per value.
    pub(crate) const fn word_count(width: usize) -> usize {
        BLOCK / W::BITS * width
    }

    /// Wraps a packed block.
    ///
    /// # Panics
    /// If the width exceeds that of a word, or the number of words does not match it.
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

    /// Unpacks all values and adds `reference`, wrapping around.
    pub(crate) fn unpack(self, reference: W, out: &mut [W; BLOCK]) {
        // SAFETY: initialized values are valid as `MaybeUninit`, and only values are written to them.
        let out = unsafe { &mut *std::ptr::from_mut(out).cast::<[MaybeUninit<W>; BLOCK]>() };
        vectorized(Unpack { width: self.width, words: self.words, reference, out });
    }

    /// As [`unpack`](Self::unpack), appending to a vector.
    pub(crate) fn append_to(self, reference: W, out: &mut Vec<W>) {
        PackedBlocks { width: self.width, words: self.words, count: 1 }.append_to(reference, out);
    }

    /// Extracts the values of some rows of the block.
    ///
    /// # Panics
    /// If a row is 1024 or greater.
    pub(crate) fn extract(self, rows: &[usize], reference: W, out: &mut Vec<W>) {
        assert!(rows.iter().all(|row| *row < BLOCK), "rows lie within the block");
        out.reserve(rows.len());
        let len = out.len();
        let spare = &mut out.spare_capacity_mut()[..rows.len()];
        // SAFETY: `new` checked the width and the number of words; there is space for one value per row,
        // and the callee fills all of it.
        unsafe {
            W::unchecked_unpack_indices(self.width, self.words, rows, spare);
            out.set_len(len + rows.len());
        }
        for value in &mut out[len..] {
            *value = value.plus(reference);
        }
    }
}

/// Consecutive packed blocks of one width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedBlocks<'a, W> {
    width: usize,
    words: &'a [W],
    count: usize,
}

impl<'a, W: Word> PackedBlocks<'a, W> {
    /// Wraps `count` packed blocks.
    ///
    /// # Panics
    /// If the width exceeds that of a word, or the number of words does not match it.
    pub(crate) fn new(width: usize, words: &'a [W], count: usize) -> Self {
        assert!(width <= W::BITS, "{width} bits per value of {} bits", W::BITS);
        assert_eq!(words.len(), PackedBlock::<W>::word_count(width) * count, "words of {count} blocks");
        Self { width, words, count }
    }

    fn append_to(self, reference: W, out: &mut Vec<W>) {
        let (rows, len) = (self.count * BLOCK, out.len());
        out.reserve(rows);
        let spare = &mut out.spare_capacity_mut()[..rows];
        vectorized(Unpack { width: self.width, words: self.words, reference, out: spare });
        // SAFETY: `Unpack` writes all values of whole blocks.
        unsafe { out.set_len(len + rows) };
    }
}

/// Unpacks whole blocks. There are enough words for all of them, and widths do not exceed a word.
struct Unpack<'a, W> {
    width: usize,
    words: &'a [W],
    reference: W,
    out: &'a mut [MaybeUninit<W>],
}

impl<W: Word> Vectorized for Unpack<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        W::unpack_blocks(self.width, self.words, self.reference, self.out);
    }

    fn run_plain(self) {
        let words = PackedBlock::<W>::word_count(self.width);
        let (blocks, _) = self.out.as_chunks_mut::<BLOCK>();
        for (at, out) in blocks.iter_mut().enumerate() {
            let packed = &self.words[at * words..][..words];
            out.fill(MaybeUninit::new(W::ZERO));
            // SAFETY: the values were just initialized. The width was checked when `Unpack` was created, and there are
            // exactly as many words as it requires.
            unsafe {
                let out = &mut *std::ptr::from_mut(out).cast::<[W; BLOCK]>();
                if self.reference == W::ZERO {
                    W::unchecked_unpack(self.width, packed, out);
                } else {
                    W::unchecked_unfor_pack(self.width, packed, self.reference, out);
                }
            }
        }
    }
}

/// Unrolls the rows of a lane, so that the compiler vectorizes over neighbouring lanes.
macro_rules! unpack_blocks {
    ($W:ty, rows $rows:tt, widths [$($width:literal)*]) => {
        #[inline(always)]
        fn unpack_blocks(width: usize, words: &[$W], reference: $W, out: &mut [MaybeUninit<$W>]) {
            const BITS: usize = <$W>::BITS as usize;
            const LANES: usize = BLOCK / BITS;

            #[inline(always)]
            fn block<const WIDTH: usize>(words: &[$W], reference: $W, out: &mut [MaybeUninit<$W>; BLOCK]) {
                let words = &words[..LANES * WIDTH];
                let mask = <$W>::MAX >> (BITS - WIDTH);
                for lane in 0..LANES {
                    crate::kernels::bitpack::unroll!($rows, row, {
                        let (word, shift) = (row * WIDTH / BITS, row * WIDTH % BITS);
                        let mut value = words[word * LANES + lane] >> shift;
                        if shift + WIDTH > BITS {
                            value |= words[(word + 1) * LANES + lane] << (BITS - shift);
                        }
                        let at = crate::kernels::bitpack::ORDER[row / 8] * 16 + row % 8 * 128 + lane;
                        out[at].write((value & mask).wrapping_add(reference));
                    });
                }
            }

            let count = LANES * width;
            let (blocks, _) = out.as_chunks_mut::<BLOCK>();
            match width {
                0 => out.fill(MaybeUninit::new(reference)),
                $($width => for (at, out) in blocks.iter_mut().enumerate() {
                    block::<$width>(&words[at * count..][..count], reference, out);
                },)*
                _ => unreachable!("no width exceeds that of a word"),
            }
        }
    };
}

/// Repeats statements for each row.
macro_rules! unroll {
    ([$($at:literal)*], $row:ident, $body:block) => {
        $({
            #[allow(non_upper_case_globals, reason = "reads like the variable of a loop")]
            const $row: usize = $at;
            $body
        })*
    };
}
pub(super) use {unpack_blocks, unroll};

/// Unpacks `rows`, counted from the start of block 0. `blocks` returns consecutive blocks starting with
/// the given one, at most as many as requested, and what to add to their values. Whole blocks are
/// unpacked directly into the result.
pub(crate) fn unpack_rows<'a, W: Word>(
    rows: Range<usize>,
    blocks: impl Fn(usize, usize) -> (PackedBlocks<'a, W>, W),
) -> Vec<W> {
    let mut out = Vec::with_capacity(rows.len());
    let mut done = 0;
    for (at, part) in block_parts(rows.clone()) {
        if at < done {
            continue;
        }
        if part.len() == BLOCK {
            let (packed, reference) = blocks(at, rows.end / BLOCK - at);
            packed.append_to(reference, &mut out);
            done = at + packed.count;
            continue;
        }
        let (packed, reference) = blocks(at, 1);
        let packed = PackedBlock::new(packed.width, packed.words);
        if part.len() <= few::<W>() {
            packed.extract(&part.collect::<Vec<_>>(), reference, &mut out);
        } else {
            let mut scratch = [W::ZERO; BLOCK];
            packed.unpack(reference, &mut scratch);
            out.extend_from_slice(&scratch[part]);
        }
    }
    out
}

/// The range of words of a packed block that contain the value of a row.
///
/// # Panics
/// If the row is 1024 or greater.
pub(crate) fn words_of<W: Word>(width: usize, row: usize) -> Range<usize> {
    let (lane, bit) = bit_of::<W>(width, row);
    let first = bit / W::BITS * lanes::<W>() + lane;
    match bit % W::BITS + width {
        _ if width == 0 => 0..0,
        end if end > W::BITS => first..first + lanes::<W>() + 1,
        _ => first..first + 1,
    }
}

/// The value of a row, extracted from the bytes of the words given by [`words_of`].
///
/// # Panics
/// If there are fewer words, or the row is 1024 or greater.
pub(crate) fn extract_single<W: Word>(width: usize, row: usize, bytes: &[u8]) -> W {
    if width == 0 {
        return W::ZERO;
    }
    let (_, bit) = bit_of::<W>(width, row);
    let shift = bit % W::BITS;
    let word = |at: usize| {
        let mut word = [0; 8];
        word[..size_of::<W>()].copy_from_slice(&bytes[at * size_of::<W>()..][..size_of::<W>()]);
        u64::from_le_bytes(word)
    };
    let high = if shift + width > W::BITS { word(lanes::<W>()) << (W::BITS - shift) } else { 0 };
    W::narrow((word(0) >> shift | high) & (u64::MAX >> (64 - width)))
}

/// The lane that contains a row of a block, and the position of the value's first bit in it.
fn bit_of<W: Word>(width: usize, row: usize) -> (usize, usize) {
    assert!(row < BLOCK, "row {row} of a block");
    let (within, lane) = (row % 128 / lanes::<W>() * lanes::<W>(), row % lanes::<W>());
    // The order is its own inverse.
    let row_of_lane = ORDER[within / 16] * 8 + row / 128;
    (lane, row_of_lane * width)
}

/// Packs the low `width` bits of each value of a block, for tests.
#[cfg(test)]
pub(crate) fn pack<W: Word>(width: usize, values: &[W; BLOCK]) -> Vec<W> {
    let mut packed = vec![W::ZERO; PackedBlock::<W>::word_count(width)];
    // SAFETY: tests use widths up to that of a word, and the lengths match.
    unsafe { W::unchecked_pack(width, values, &mut packed) };
    packed
}

#[cfg(test)]
mod tests {
    use arrow::buffer::ScalarBuffer;

    use super::super::random;
    use super::*;

    /// Reads a value bit by bit, straight from the definition of the layout.
    fn naive<W: Word>(width: usize, words: &[W], row: usize) -> u64 {
        let lanes = BLOCK / W::BITS;
        let (group, within) = (row / 128, row % 128);
        let lane = within % lanes;
        let turn = ORDER[(within - lane) / 16] * 8 + group;
        (0..width)
            .map(|bit| {
                let at = turn * width + bit;
                let word = words[at / W::BITS * lanes + lane].as_u64();
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
            for (row, expected) in expected.iter().enumerate() {
                let few = ScalarBuffer::from(words[words_of::<W>(width, row)].to_vec()).into_inner();
                assert_eq!(extract_single::<W>(width, row, &few), *expected, "row {row}");
            }

            let mut plain = [MaybeUninit::new(W::MAX); BLOCK];
            Unpack { width, words: &words, reference, out: &mut plain }.run_plain();
            // SAFETY: all values were initialized from the start.
            assert_eq!(plain.map(|value| unsafe { value.assume_init() })[..], shifted);
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
            let unpacked = unpack_rows(rows.clone(), |at, _| (PackedBlocks::new(9, &blocks[at], 1), 7));
            assert_eq!(unpacked, values[rows.clone()].iter().map(|value| value + 7).collect::<Vec<_>>());
            let all = blocks.concat();
            let words = PackedBlock::<u32>::word_count(9);
            let unpacked = unpack_rows(rows.clone(), |at, most| {
                (PackedBlocks::new(9, &all[at * words..][..most * words], most), 7)
            });
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
