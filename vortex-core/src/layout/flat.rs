//! One array in one segment.
//!
//! No children. The metadata may contain a copy of the segment's array tree; the tree in the segment is used.

use std::ops::Range;
use std::sync::Arc;

use super::{Layout, LayoutKind, LayoutNode, LayoutRef, PieceSet, SegmentSet, len_of};
use crate::array::EncodedRef;
use crate::dtype::DType;
use crate::encodings::chunked::chunked;
use crate::segments::SegmentId;
use crate::{Error, Result};

/// The `vortex.flat` layout.
pub(super) struct Flat;

const ID: &str = super::ids::FLAT;

impl LayoutKind for Flat {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        node.expect_children(0)?;
        let segments = node.segments();
        let [segment] = segments.as_slice() else {
            return Err(Error::corrupt(format!("{} segments, expected 1", segments.len())));
        };
        Ok(Arc::new(FlatLayout {
            dtype: node.dtype().clone(),
            row_count: node.row_count(),
            segment: *segment,
        }))
    }
}

#[derive(Debug)]
struct FlatLayout {
    dtype: DType,
    row_count: u64,
    segment: SegmentId,
}

impl Layout for FlatLayout {
    fn id(&self) -> &str {
        ID
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn row_count(&self) -> u64 {
        self.row_count
    }

    fn segments(&self) -> Vec<SegmentId> {
        vec![self.segment]
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        if !rows.is_empty() {
            have.want(self.segment, want);
        }
        Ok(())
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        if rows.is_empty() {
            return Ok(chunked(&self.dtype, Vec::new(), have.limits()));
        }
        let array = have.array(self.segment, &self.dtype, len_of(self.row_count)?)?;
        if *rows == (0..self.row_count) {
            return Ok(array);
        }
        array.slice(len_of(rows.start)?..len_of(rows.end)?)
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        if rows.is_empty() {
            return Ok(chunked(&self.dtype, Vec::new(), have.limits()));
        }
        let rows = rows.iter().map(|row| len_of(*row)).collect::<Result<Vec<_>>>()?;
        have.rows(self.segment, &self.dtype, len_of(self.row_count)?, &rows)
    }
}
