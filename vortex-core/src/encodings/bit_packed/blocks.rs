//! The positions of packed blocks, and the width of each.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::buffer::Buffer;

use crate::array::{EncodedRef, decode_offsets};
use crate::kernels::Word;
use crate::kernels::bitpack::{PackedBlock, PackedBlocks};
use crate::once::get_or_try_init;
use crate::{Error, Result};

/// Bytes of a packed block per bit of width.
pub(super) const BYTES_PER_BIT: usize = 128;

/// Consecutive packed blocks.
#[derive(Debug)]
pub(super) enum BlockPositions {
    /// All blocks have the same width, and there are no other bytes.
    Even { packed: Buffer, width: usize },
    /// Block `b` lies between bound `first + b` and the next one.
    Uneven { packed: Buffer, bounds: Arc<Bounds>, first: usize },
}

/// The bounds of blocks of various widths, decoded at most once for all slices.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) child: EncodedRef,
    /// Length of the packed bytes.
    byte_len: usize,
    /// Number of bits of an unpacked value.
    max_width: usize,
    /// Byte positions, relative to the first one.
    known: OnceLock<Box<[usize]>>,
}

impl BlockPositions {
    pub(super) fn uneven(packed: Buffer, child: EncodedRef, max_width: usize) -> Self {
        let bounds = Bounds { child, byte_len: packed.len(), max_width, known: OnceLock::new() };
        Self::Uneven { packed, bounds: Arc::new(bounds), first: 0 }
    }

    /// A slice of the blocks.
    pub(super) fn slice(&self, blocks: Range<usize>) -> Self {
        match self {
            Self::Even { packed, width } => {
                let bytes = BYTES_PER_BIT * width;
                let packed = packed.slice_with_length(blocks.start * bytes, blocks.len() * bytes);
                Self::Even { packed, width: *width }
            }
            Self::Uneven { packed, bounds, first } => Self::Uneven {
                packed: packed.clone(),
                bounds: Arc::clone(bounds),
                first: first + blocks.start,
            },
        }
    }

    pub(super) fn byte_len(&self) -> usize {
        match self {
            Self::Even { packed, .. } | Self::Uneven { packed, .. } => packed.len(),
        }
    }

    /// The blocks as words, which must be as wide as the values.
    pub(super) fn view<W: Word>(&self) -> Result<BlocksView<'_, W>> {
        Ok(match self {
            Self::Even { packed, width } => BlocksView::Even { words: packed.typed_data(), width: *width },
            Self::Uneven { packed, bounds, first } => {
                // Bounds that fit the bytes always delimit whole words.
                let bounds = &bounds.get()?[*first..];
                BlocksView::Uneven { words: packed.typed_data(), bounds }
            }
        })
    }
}

impl Bounds {
    fn get(&self) -> Result<&[usize]> {
        Ok(get_or_try_init(&self.known, || self.decode())?)
    }

    fn decode(&self) -> Result<Box<[usize]>> {
        let mut bounds = decode_offsets(&self.child, "block offsets", usize::MAX)?;
        let (Some(first), Some(last)) = (bounds.first().copied(), bounds.last().copied()) else {
            return Err(Error::corrupt("no block offsets"));
        };
        if last - first != self.byte_len {
            let byte_len = self.byte_len;
            return Err(Error::corrupt(format!("blocks from {first} to {last} in {byte_len} bytes")));
        }
        for pair in bounds.windows(2) {
            let bytes = pair[1] - pair[0];
            if bytes % BYTES_PER_BIT != 0 || bytes / BYTES_PER_BIT > self.max_width {
                let max = self.max_width;
                return Err(Error::corrupt(format!("a block of {bytes} bytes for values of {max} bits")));
            }
        }
        bounds.iter_mut().for_each(|bound| *bound -= first);
        Ok(bounds.into())
    }
}

/// Packed blocks as words.
#[derive(Debug, Clone, Copy)]
pub(super) enum BlocksView<'a, W> {
    Even { words: &'a [W], width: usize },
    Uneven { words: &'a [W], bounds: &'a [usize] },
}

impl<'a, W: Word> BlocksView<'a, W> {
    /// Block `at`.
    ///
    /// # Panics
    /// If there are fewer blocks.
    pub(super) fn get(self, at: usize) -> PackedBlock<'a, W> {
        match self {
            Self::Even { words, width } => {
                let count = PackedBlock::<W>::word_count(width);
                PackedBlock::new(width, &words[at * count..][..count])
            }
            Self::Uneven { words, bounds } => {
                let (start, end) = (bounds[at], bounds[at + 1]);
                let width = (end - start) / BYTES_PER_BIT;
                PackedBlock::new(width, &words[start / size_of::<W>()..end / size_of::<W>()])
            }
        }
    }

    /// Consecutive blocks of one width: block `at`, and those after it as far as `joins` holds, at most `most`.
    /// Of the blocks after these, only the first is examined, since there may be millions.
    ///
    /// # Panics
    /// If there are fewer blocks.
    pub(super) fn some(self, at: usize, most: usize, joins: impl Fn(usize) -> bool) -> PackedBlocks<'a, W> {
        let following = at + 1..at + most;
        match self {
            Self::Even { words, width } => {
                let blocks = following.take_while(|next| joins(*next)).count() + 1;
                let count = PackedBlock::<W>::word_count(width);
                PackedBlocks::new(width, &words[at * count..][..blocks * count], blocks)
            }
            Self::Uneven { words, bounds } => {
                let (start, len) = (bounds[at], bounds[at + 1] - bounds[at]);
                let is_as_long = |next: usize| bounds[next + 1] - bounds[next] == len;
                let blocks = following.take_while(|next| is_as_long(*next) && joins(*next)).count() + 1;
                let words = &words[start / size_of::<W>()..(start + blocks * len) / size_of::<W>()];
                PackedBlocks::new(len / BYTES_PER_BIT, words, blocks)
            }
        }
    }
}
