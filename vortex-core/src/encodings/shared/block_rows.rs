//! Rows in blocks of 1024, the first of which may begin before row 0.
//!
//! ```text
//! blocks     |------ 1024 ------|------ 1024 ------|------ 1024 ------|
//! positions  0       offset                              offset + len
//! rows               0                                   len
//! ```
//!
//! Slices start in the middle of a block, since what is stored per block cannot be cut.

use std::ops::Range;

use crate::kernels::{BLOCK, block_parts};
use crate::{Error, Result};

/// Where rows lie in their blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::encodings) struct BlockRows {
    /// Number of rows of the first block before row 0.
    offset: usize,
    len: usize,
}

impl BlockRows {
    /// `len` rows, of which the first is row `offset` of its block.
    ///
    /// # Errors
    /// If there is no such row of a block, or there are too many rows.
    pub(in crate::encodings) fn try_new(offset: u64, len: usize) -> Result<Self> {
        match usize::try_from(offset) {
            Ok(offset) if offset < BLOCK && offset.checked_add(len).is_some() => Ok(Self { offset, len }),
            _ => Err(Error::corrupt(format!("{len} rows from row {offset} of a block"))),
        }
    }

    /// Number of rows.
    pub(in crate::encodings) fn len(self) -> usize {
        self.len
    }

    /// Number of blocks that the rows take.
    pub(in crate::encodings) fn block_count(self) -> usize {
        self.positions().end.div_ceil(BLOCK)
    }

    /// The rows, counted from the start of the first block.
    pub(in crate::encodings) fn positions(self) -> Range<usize> {
        self.offset..self.offset + self.len
    }

    /// The block of a row, and which of its rows that is.
    pub(in crate::encodings) fn place(self, row: usize) -> (usize, usize) {
        let position = self.offset + row;
        (position / BLOCK, position % BLOCK)
    }

    /// Each block with rows, and the range of its rows.
    pub(in crate::encodings) fn parts(self) -> impl Iterator<Item = (usize, Range<usize>)> {
        block_parts(self.positions())
    }

    /// The blocks of a part of the rows, and where the part lies in them.
    pub(in crate::encodings) fn slice(self, rows: &Range<usize>) -> (Range<usize>, Self) {
        let (first, offset) = self.place(rows.start);
        let slice = Self { offset, len: rows.len() };
        (first..first + slice.block_count(), slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_begin_within_a_block() {
        assert!(BlockRows::try_new(1023, 5).is_ok());
        assert!(BlockRows::try_new(1024, 5).is_err());
        assert!(BlockRows::try_new(u64::MAX, 5).is_err());
        assert!(BlockRows::try_new(1, usize::MAX).is_err());
    }

    #[test]
    fn slices_keep_only_the_blocks_of_their_rows() {
        let rows = BlockRows::try_new(1000, 2000).unwrap();
        assert_eq!((rows.block_count(), rows.place(0), rows.place(24)), (3, (0, 1000), (1, 0)));
        let slice = |from, to| {
            let (blocks, slice) = rows.slice(&(from..to));
            (blocks, slice.positions())
        };
        assert_eq!(slice(0, 24), (0..1, 1000..1024));
        assert_eq!(slice(24, 25), (1..2, 0..1));
        assert_eq!(slice(1999, 2000), (2..3, 951..952));
        assert_eq!(slice(24, 24), (1..1, 0..0));
        assert_eq!(slice(30, 30), (1..2, 6..6));
    }
}
