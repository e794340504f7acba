//! Consecutive ranges of rows, each with its own layout.
//!
//! No metadata. Children: the chunks, of the same dtype, whose rows add up to those of the layout. A
//! layout without chunks is an empty column.

use std::ops::Range;
use std::sync::Arc;

use super::{Layout, LayoutKind, LayoutNode, LayoutRef, PieceSet, SegmentSet};
use crate::array::EncodedRef;
use crate::dtype::DType;
use crate::encodings::chunked::chunked;
use crate::segments::SegmentId;
use crate::{Error, Result};

/// The `vortex.chunked` layout.
pub(super) struct Chunked;

const ID: &str = super::ids::CHUNKED;

impl LayoutKind for Chunked {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        let mut chunks = Vec::with_capacity(node.child_count());
        for at in 0..node.child_count() {
            chunks.push(node.child(at, node.dtype())?.load()?);
        }
        let layout = ChunkedLayout::try_new(node.dtype().clone(), chunks)?;
        if layout.row_count() != node.row_count() {
            return Err(Error::corrupt(format!(
                "chunks have {} rows in total, expected {}",
                layout.row_count(),
                node.row_count()
            )));
        }
        Ok(Arc::new(layout))
    }
}

#[derive(Debug)]
struct ChunkedLayout {
    dtype: DType,
    chunks: Vec<LayoutRef>,
    /// First row of each chunk, and the row count at the end.
    starts: Vec<u64>,
}

impl ChunkedLayout {
    fn try_new(dtype: DType, chunks: Vec<LayoutRef>) -> Result<Self> {
        let mut starts = vec![0u64];
        let mut end = 0u64;
        for chunk in &chunks {
            end = end
                .checked_add(chunk.row_count())
                .ok_or_else(|| Error::corrupt("chunks have more than 2^64 rows"))?;
            starts.push(end);
        }
        Ok(Self { dtype, chunks, starts })
    }

    /// A part of all chunks, unless one lacks it or has it in another type: some chunks of nullable structs may lack a
    /// validity, in files of some releases.
    fn of_all(&self, of: impl Fn(&LayoutRef) -> Result<Option<LayoutRef>>) -> Result<Option<LayoutRef>> {
        let parts = self.chunks.iter().map(of).collect::<Result<Option<Vec<_>>>>()?;
        let Some(parts) = parts else { return Ok(None) };
        let Some(dtype) = parts.first().map(|part| part.dtype().clone()) else { return Ok(None) };
        if parts.iter().any(|part| *part.dtype() != dtype) {
            return Ok(None);
        }
        Ok(Some(Arc::new(Self::try_new(dtype, parts)?)))
    }

    /// Chunks that overlap `rows`, each with the part that does.
    fn overlapping(&self, rows: &Range<u64>) -> impl Iterator<Item = (&LayoutRef, Range<u64>)> {
        let first = self.starts.partition_point(|start| *start <= rows.start).saturating_sub(1);
        let rows = rows.clone();
        let end = rows.end;
        self.chunks
            .iter()
            .zip(&self.starts)
            .skip(first)
            .take_while(move |(_, start)| **start < end)
            .map(move |(chunk, start)| {
                let from = rows.start.max(*start) - start;
                let to = rows.end.min(start + chunk.row_count()) - start;
                (chunk, from..to)
            })
            .filter(|(_, part)| !part.is_empty())
    }
}

impl Layout for ChunkedLayout {
    fn id(&self) -> &str {
        ID
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn row_count(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    fn children(&self) -> Result<Vec<(String, LayoutRef)>> {
        let chunks = self.chunks.iter().enumerate();
        Ok(chunks.map(|(at, chunk)| (format!("[{at}]"), Arc::clone(chunk))).collect())
    }

    fn field(&self, at: usize) -> Result<Option<LayoutRef>> {
        self.of_all(|chunk| chunk.field(at))
    }

    fn nulls(&self) -> Result<Option<LayoutRef>> {
        self.of_all(|chunk| chunk.nulls())
    }

    fn dictionary_values(&self) -> Option<u64> {
        self.chunks.iter().try_fold(0u64, |all, chunk| all.checked_add(chunk.dictionary_values()?))
    }

    fn takes_rounds(&self) -> Result<bool> {
        // Chunks have the type of the column, which is known to have lists.
        self.chunks.iter().try_fold(false, |any, chunk| Ok(any || chunk.takes_rounds()?))
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        self.overlapping(rows).try_for_each(|(chunk, part)| chunk.request(&part, have, want))
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        let chunks = self.overlapping(rows).map(|(chunk, part)| chunk.read(&part, have));
        Ok(chunked(&self.dtype, chunks.collect::<Result<_>>()?, have.limits()))
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        let mut left = rows;
        let mut arrays = Vec::new();
        while let Some(next) = left.first() {
            // There may be many chunks between two rows.
            let at = self.starts.partition_point(|start| start <= next).saturating_sub(1);
            let (Some(chunk), Some([start, end])) = (self.chunks.get(at), self.starts.get(at..at + 2)) else {
                break;
            };
            let (of_chunk, after) = left.split_at(left.partition_point(|row| row < end));
            left = after;
            let of_chunk: Vec<u64> = of_chunk.iter().map(|row| row - start).collect();
            arrays.push(chunk.read_rows(&of_chunk, have));
        }
        // No `?` before all are read: see `read_rows`.
        Ok(chunked(&self.dtype, arrays.into_iter().collect::<Result<_>>()?, have.limits()))
    }
}
