//! The pieces of segments available while individual rows of layouts are read.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;

use super::SegmentSet;
use crate::array::loaded::LoadedRows;
use crate::array::pieces::{Piece, Pieces};
use crate::array::{EncodedRef, TreeRows, indices};
use crate::dtype::DType;
use crate::error::ResultExt as _;
use crate::limits::Limits;
use crate::segments::{Lease, SegmentId, SegmentTable, TreeCache};
use crate::wire::{ArrayTree, TREE_LEN};
use crate::{Error, Result};

/// Number of bytes first read from the end of a segment: most trees are shorter.
const TREE_READ: u64 = 1 << 10;

/// Bytes that can be read in the time that another read takes. Unit tests and fuzz targets always read pieces;
/// integration tests do so where segments are longer (`tests/it/pieces.rs`).
const BYTES_PER_READ: u64 = if cfg!(any(test, fuzzing)) { 0 } else { 4 << 10 };

/// The number of reads that a row takes: of its value, or of its offsets first.
fn reads_per_row(dtype: &DType) -> u64 {
    match dtype {
        DType::Null | DType::Bool(_) | DType::Primitive(..) | DType::Decimal(..) => 1,
        _ => 2,
    }
}

/// The data fetched for some rows of a file: array trees, pieces of their buffers, and whole segments
/// where a layout requires them.
#[derive(Debug)]
pub struct PieceSet<'a> {
    table: &'a SegmentTable,
    trees: &'a TreeCache,
    pieces: Pieces,
    segments: SegmentSet<'a>,
    missing_segments: RefCell<Vec<SegmentId>>,
    /// Segments of which no rows were read before. Nothing is kept of them, since files are often opened for one
    /// look-up.
    first_read: RefCell<HashSet<SegmentId>>,
    /// Rows that were loaded completely in an earlier attempt, and are not loaded again in the next one. None if the
    /// whole file is in memory.
    loaded: Option<LoadedRows>,
}

impl<'a> PieceSet<'a> {
    pub(crate) fn new(table: &'a SegmentTable, trees: &'a TreeCache) -> Self {
        Self {
            table,
            trees,
            pieces: Pieces::default(),
            segments: SegmentSet::new(table),
            missing_segments: RefCell::default(),
            first_read: RefCell::default(),
            loaded: Some(LoadedRows::default()),
        }
    }

    /// With the contents of the file.
    pub(crate) fn with_contents(mut self, contents: Buffer) -> Self {
        self.loaded = None;
        self.add_pieces([Piece { start: 0, bytes: contents }]);
        self
    }

    /// Bytes that counted as decoded so far, although they were not loaded again.
    pub(crate) fn spared_bytes(&self) -> usize {
        self.loaded.as_ref().map_or(0, LoadedRows::spared_bytes)
    }

    /// The limits for decoding.
    pub fn limits(&self) -> &Limits {
        self.segments.limits()
    }

    /// The whole segments that are available.
    pub fn segments(&self) -> &SegmentSet<'a> {
        &self.segments
    }

    /// Requests whole segments.
    ///
    /// # Errors
    /// As `request`, and if some of the segments are not available.
    pub fn want_segments(
        &self,
        request: impl FnOnce(&SegmentSet<'_>, &mut Vec<SegmentId>) -> Result<()>,
    ) -> Result<()> {
        let mut want = Vec::new();
        request(&self.segments, &mut want)?;
        if want.is_empty() {
            return Ok(());
        }
        self.missing_segments.borrow_mut().append(&mut want);
        Err(Error::NotFetched)
    }

    /// Reads some rows, in ascending order, of the array in a segment, which has `len` rows of `dtype`.
    ///
    /// # Errors
    /// If bytes are missing, in which case they have been requested, or there is no such array.
    pub fn rows(&self, id: SegmentId, dtype: &DType, len: usize, rows: &[usize]) -> Result<EncodedRef> {
        if self.table.must_read_whole(id)? {
            self.want_segments(|have, want| {
                have.want(id, want);
                Ok(())
            })?;
            return self.segments.array(id, dtype, len)?.take(&indices(rows));
        }
        let segment = self.table.segment(id)?.range();
        let bytes_per_row = BYTES_PER_READ * reads_per_row(dtype);
        let load = || {
            let tree = self.tree(id, &segment, bytes_per_row * rows.len() as u64)?;
            self.pieces.begin_segment();
            let rows_of = TreeRows {
                tree: &tree,
                pieces: &self.pieces,
                start: segment.start,
                ids: &self.table.array_ids,
                registry: &self.table.registry,
                limits: &self.table.limits,
                kept: (!self.first_read.borrow().contains(&id)).then(|| self.trees.array_budget()),
                loaded: self.loaded.as_ref(),
                segment: id.0,
            };
            let loaded = rows_of.load(dtype, len, rows);
            if matches!(&loaded, Err(error) if matches!(error.root(), Error::NotFetched)) {
                self.pieces.request_whole(segment.clone(), bytes_per_row);
            }
            loaded
        };
        load().at(|| format!("segment {}", id.0))
    }

    /// The tree of a segment. If it has to be read, so is the rest of a segment that is `short`.
    fn tree(&self, id: SegmentId, segment: &Range<u64>, short: u64) -> Result<Arc<ArrayTree>> {
        if let Some(tree) = self.trees.get(id) {
            return Ok(tree);
        }
        if segment.end - segment.start <= short {
            self.pieces.with(segment.clone(), |_| ())?;
        }
        let limits = &self.table.limits;
        // A segment has less than 2^32 bytes.
        let len = (segment.end - segment.start) as usize;
        let start = segment.end.saturating_sub(TREE_READ).max(segment.start);
        let tail = self.pieces.get(start..segment.end)?;
        let place = ArrayTree::place(&tail, len)?;
        let range = segment.start + place.start as u64..segment.start + place.end as u64;
        let bytes = match range.start.checked_sub(start) {
            Some(skipped) => tail.slice_with_length(skipped as usize, place.len()),
            None => self.pieces.get(range)?,
        };
        debug_assert_eq!(place.end + TREE_LEN, len);
        let tree = Arc::new(ArrayTree::parse_tree(&bytes, place.start, limits)?);
        self.first_read.borrow_mut().insert(id);
        Ok(self.trees.keep(id, tree, place.len()))
    }

    /// Takes the requests that could not be answered: ranges of the file, and whole segments.
    pub(crate) fn take_missing(&mut self) -> (Vec<Range<u64>>, Vec<SegmentId>) {
        let mut segments = std::mem::take(self.missing_segments.get_mut());
        segments.sort_unstable();
        segments.dedup();
        (self.pieces.take_missing(), segments)
    }

    /// Adds bytes of the file, in order.
    pub(crate) fn add_pieces(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        self.pieces.add(pieces);
    }

    /// Adds whole segments.
    pub(crate) fn add(&mut self, leases: impl IntoIterator<Item = Lease>) {
        self.segments.add(leases);
    }
}
