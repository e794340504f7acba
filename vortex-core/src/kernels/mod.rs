//! Plain functions over slices: the loops in which decoding spends its time.
//!
//! They are independent of files and encodings. Values are passed as [`Word`]s, unsigned integers as wide as
//! the values of a column, so that the same loop handles signed integers and floats through their bits.

pub(crate) mod automaton;
pub(crate) mod bitpack;
mod coded;
pub(crate) mod delta;
pub(crate) mod fsst;
pub(crate) mod gather;
pub(crate) mod joined;
pub(crate) mod needle;
pub(crate) mod nulls;
pub(crate) mod onpair;
pub(crate) mod pack;
pub(crate) mod resize;
pub(crate) mod rising;
pub(crate) mod runs;
pub(crate) mod scaled;
pub(crate) mod simd;
pub(crate) mod tally;
pub(crate) mod views;
pub(crate) mod within;
mod word;

use std::ops::Range;

pub(crate) use word::{Word, map_words, match_word};

/// Number of values in a block, which kernels process as a whole.
pub(crate) const BLOCK: usize = 1024;

/// Number of lanes of a block: values that are processed at once.
pub(crate) const fn lanes<W: Word>() -> usize {
    BLOCK / W::BITS
}

/// Splits `rows`, counted from the start of block 0, at block boundaries: yields the number of each block
/// touched, and the range of its rows.
pub(crate) fn block_parts(rows: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let blocks = if rows.is_empty() { 0..0 } else { rows.start / BLOCK..rows.end.div_ceil(BLOCK) };
    blocks.map(move |block| {
        let first = block * BLOCK;
        (block, rows.start.max(first) - first..(rows.end - first).min(BLOCK))
    })
}

/// Pseudo-random numbers that are the same in every run.
#[cfg(test)]
pub(crate) fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_at_the_borders_of_blocks() {
        let parts = |rows| block_parts(rows).collect::<Vec<_>>();
        assert_eq!(parts(5..5), []);
        assert_eq!(parts(5..9), [(0, 5..9)]);
        assert_eq!(parts(1000..2048), [(0, 1000..1024), (1, 0..1024)]);
        assert_eq!(parts(2047..2049), [(1, 1023..1024), (2, 0..1)]);
    }
}
