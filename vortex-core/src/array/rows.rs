//! Loads some rows of a serialized array, from only the bytes that they need.
//!
//! ```text
//! for       rows [2, 900] of 4096        the same rows of its child, plus the reference
//! dict      rows [2, 900] of its codes,  then those of its values that the codes refer to
//! primitive rows [2, 900]                bytes 8..12 and 3600..3604 of its buffer
//! ```
//!
//! An encoding whose children have one row for each row loads some rows in the same way as all of them:
//! its [`Node`] represents the selected rows, and so do the nodes of its children. Other encodings
//! determine what they need of each child. Small buffers are loaded as a whole, and so are arrays whose
//! encoding has no better way.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer};

use super::loaded::{LoadedRows, Place};
use super::parts::{Buffers, Context};
use super::pieces::Pieces;
use super::{EncodedRef, Node, decode_offsets, indices, one_more};
use crate::Registry;
use crate::budget::Budget;
use crate::dtype::DType;
use crate::encodings::chunked::chunked;
use crate::error::ResultExt as _;
use crate::limits::{Limits, Work};
use crate::wire::ArrayTree;
use crate::{Error, Result};

/// Nodes whose buffers have fewer bytes in total are loaded as a whole. Tests load individual rows of all
/// nodes.
const SMALL: usize = if cfg!(any(test, fuzzing)) { 1 } else { 2 << 10 };

/// The rows that a node represents, in ascending order, and the number of rows of the array.
#[derive(Debug, Clone, Copy)]
pub(super) struct Picked<'a> {
    pub(super) rows: &'a [usize],
    pub(super) of: usize,
}

/// An array in a file of which only pieces are available.
pub(crate) struct TreeRows<'a> {
    pub(crate) tree: &'a ArrayTree,
    pub(crate) pieces: &'a Pieces,
    /// The position in the file at which the array's blob starts.
    pub(crate) start: u64,
    pub(crate) ids: &'a [Arc<str>],
    pub(crate) registry: &'a Registry,
    pub(crate) limits: &'a Limits,
    /// The budget of what the tree keeps for other rows. Absent if nothing should be kept, since no other rows may
    /// follow.
    pub(crate) kept: Option<&'a Arc<Budget>>,
    /// What earlier attempts to read rows of the file have loaded, and the number of the segment of this array. Absent
    /// if the whole file is in memory.
    pub(crate) loaded: Option<&'a LoadedRows>,
    pub(crate) segment: u32,
}

impl TreeRows<'_> {
    /// Loads some rows of the array, which has `len` rows; `rows` must be ascending.
    ///
    /// # Errors
    /// If pieces are missing, in which case they have been requested, or the array is broken.
    pub(crate) fn load(&self, dtype: &DType, len: usize, rows: &[usize]) -> Result<EncodedRef> {
        let context = Context {
            buffers: Buffers::Pieces(self),
            ids: self.ids,
            registry: self.registry,
            limits: self.limits,
            nodes_left: Cell::new(self.limits.max_nodes),
        };
        let _work = Work::begin();
        Node::root(&self.tree.root, dtype, len, &context).load_rows_once(rows)
    }

    /// The place in the file of the buffer at a position of the tree; `None` if there is none.
    pub(super) fn place(&self, at: u16) -> Option<Range<u64>> {
        let place = self.tree.buffers.get(usize::from(at))?;
        Some(self.start + place.start as u64..self.start + place.end as u64)
    }
}

impl<'a> Node<'a> {
    /// Creates an array of some rows, which must be ascending, unless an earlier attempt has.
    fn load_rows_once(&self, rows: &[usize]) -> Result<EncodedRef> {
        match self.context.buffers {
            Buffers::Pieces(TreeRows { loaded: Some(loaded), segment, .. }) => {
                let place = Place { segment: *segment, node: self.raw.number };
                loaded.get_or_load(place, self.dtype, self.len, rows, self.limits(), || self.load_rows(rows))
            }
            _ => self.load_rows(rows),
        }
    }

    /// Creates an array of some rows, which must be ascending.
    fn load_rows(&self, rows: &[usize]) -> Result<EncodedRef> {
        debug_assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "rows rise");
        if rows.is_empty() {
            return Ok(chunked(self.dtype, Vec::new(), self.limits()));
        }
        if let Some(last) = rows.last().filter(|last| **last >= self.len) {
            return Err(Error::corrupt(format!("row {last} of {}", self.len)));
        }
        if rows.len() == self.len {
            return self.load();
        }
        if self.byte_len(self.raw, SMALL) < SMALL {
            return self.take(rows);
        }
        self.enter()?;
        let id = self.encoding_id()?;
        let array = self.encoding(id)?.load_rows(self, rows).at(|| id)?;
        self.of_rows(rows).check(id, array)
    }

    /// A node that represents only some of its rows, which must be ascending.
    pub fn of_rows<'b>(&'b self, rows: &'b [usize]) -> Node<'b> {
        Node { len: rows.len(), picked: Some(Picked { rows, of: self.len }), ..*self }
    }

    /// A node that represents all rows again, and the rows that this one represents.
    pub(crate) fn whole(&self) -> (Node<'a>, Option<&'a [usize]>) {
        match self.picked {
            None => (*self, None),
            Some(Picked { rows, of }) => (Node { len: of, picked: None, ..*self }, Some(rows)),
        }
    }

    /// Loads all rows and takes some of them.
    ///
    /// # Errors
    /// If the array is broken.
    pub fn take(&self, rows: &[usize]) -> Result<EncodedRef> {
        self.load()?.take(&indices(rows))
    }

    /// Loads some rows of child `at`, which has `len` rows of `dtype`; `rows` must be ascending.
    ///
    /// # Errors
    /// If there is no such child, it is not of that type, or it has fewer rows.
    pub fn child_rows(&self, at: usize, dtype: &DType, len: usize, rows: &[usize]) -> Result<EncodedRef> {
        self.child_node(at, dtype, len)?.load_rows_once(rows)
    }

    /// The ranges between the offsets of each of some rows. Child `at` has one more offset than there are
    /// rows, which are `of`; offsets must not decrease or exceed `end`.
    ///
    /// # Errors
    /// If the offsets violate this.
    pub(crate) fn ranges(
        &self,
        at: usize,
        dtype: &DType,
        of: usize,
        rows: &[usize],
        end: usize,
    ) -> Result<Vec<Range<usize>>> {
        let mut needed: Vec<usize> = rows.iter().flat_map(|row| [*row, row + 1]).collect();
        needed.dedup();
        let offsets = decode_offsets(&self.child_rows(at, dtype, one_more(of)?, &needed)?, "offsets", end)?;
        let mut next = 0;
        let range = |row: &usize| {
            next += needed[next..].iter().take_while(|needed| *needed < row).count();
            offsets[next]..offsets[next + 1]
        };
        Ok(rows.iter().map(range).collect())
    }

    /// The values of buffer `at`, which has exactly `width` bytes for each row.
    ///
    /// # Errors
    /// If it has another length.
    pub fn values(&self, at: usize, width: usize) -> Result<Buffer> {
        let of = self.picked.map_or(self.len, |picked| picked.of);
        let byte_len = self.buffer_len(at)?;
        if of.checked_mul(width) != Some(byte_len) {
            return Err(Error::corrupt(format!("{byte_len} bytes for {of} values of {width} bytes")));
        }
        match self.picked {
            None => self.buffer(at),
            Some(picked) => {
                let runs = picked.rows.chunk_by(|row, next| row + 1 == *next);
                self.gather(at, runs.map(|run| run[0] * width..(run[0] + run.len()) * width))
            }
        }
    }

    /// One bit for each row, from buffer `at`, in which the first row is bit `offset`.
    ///
    /// # Errors
    /// If the buffer is too short.
    pub(crate) fn bits(&self, at: usize, offset: usize) -> Result<BooleanBuffer> {
        let of = self.picked.map_or(self.len, |picked| picked.of);
        let byte_len = self.buffer_len(at)?;
        if of.checked_add(offset).is_none_or(|bits| bits.div_ceil(8) > byte_len) {
            return Err(Error::corrupt(format!("{byte_len} bytes of bits for {of} rows")));
        }
        let Some(picked) = self.picked else {
            return Ok(BooleanBuffer::new(self.buffer(at)?, offset, of));
        };
        let place = |row: usize| ((row + offset) / 8, (row + offset) % 8);
        let bytes = self.gather(at, picked.rows.iter().map(|row| place(*row).0..place(*row).0 + 1))?;
        let bit = |(row, byte): (&usize, &u8)| byte >> place(*row).1 & 1 == 1;
        Ok(picked.rows.iter().zip(bytes.as_slice()).map(bit).collect())
    }

    /// Buffers of this node from `first` on, one for each item of `wanted`; those not wanted are returned
    /// empty.
    ///
    /// # Errors
    /// If there are fewer buffers.
    pub(crate) fn buffers(&self, first: usize, wanted: impl Iterator<Item = bool>) -> Result<Vec<Buffer>> {
        let mut buffers = Vec::new();
        all(wanted.enumerate().map(|(at, wanted)| {
            buffers.push(if wanted { self.buffer(first + at)? } else { Buffer::default() });
            Ok(())
        }))?;
        Ok(buffers)
    }

    /// Applies a function to some bytes of buffer `at`.
    ///
    /// # Errors
    /// If the buffer has fewer bytes.
    pub(crate) fn with_piece<R>(
        &self,
        at: usize,
        range: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let byte_len = self.buffer_len(at)?;
        if range.start > range.end || range.end > byte_len {
            return Err(Error::corrupt(format!("bytes {range:?} of {byte_len}")));
        }
        if self.wrapped.is_none()
            && let Buffers::Pieces(tree) = self.context.buffers
            && let Some(place) = tree.place(self.raw.buffers[at])
        {
            return tree.pieces.with(place.start + range.start as u64..place.start + range.end as u64, look);
        }
        Ok(look(&self.buffer(at)?[range]))
    }

    /// Concatenates some byte ranges of buffer `at`.
    ///
    /// # Errors
    /// If the buffer has fewer bytes, or a limit is exceeded.
    pub(crate) fn gather(
        &self,
        at: usize,
        ranges: impl Iterator<Item = Range<usize>> + Clone,
    ) -> Result<Buffer> {
        let total = ranges.clone().fold(0usize, |sum, range| sum.saturating_add(range.len()));
        self.limits().count_bytes(total as u64)?;
        let mut gathered = MutableBuffer::new(total);
        let append = |range| self.with_piece(at, range, |bytes| gathered.extend_from_slice(bytes));
        all(ranges.map(append))?;
        Ok(gathered.into())
    }

    /// The length of buffer `at` in bytes.
    ///
    /// # Errors
    /// If there is no such buffer.
    pub(crate) fn buffer_len(&self, at: usize) -> Result<usize> {
        let byte_len = match (self.wrapped, self.raw.buffers.get(at)) {
            (Some(wrapped), _) => wrapped.buffers.get(at).map(Buffer::len),
            (None, Some(place)) => self.context.buffers.len_of(*place),
            (None, None) => None,
        };
        byte_len.ok_or_else(|| Error::corrupt(format!("buffer {at} is missing")))
    }
}

/// Runs all steps before failing because of missing bytes, so that all missing bytes are requested.
pub(crate) fn all(steps: impl Iterator<Item = Result<()>>) -> Result<()> {
    let mut missing = Ok(());
    for step in steps {
        match step {
            Err(Error::NotFetched) => missing = Err(Error::NotFetched),
            step => step?,
        }
    }
    missing
}
