//! The parts of each column written so far.

use super::zone_table::ZoneRows;
use super::{ColumnSummary, ZONE_LEN};
use crate::Result;
use crate::dtype::{DType, PType};
use crate::layout::{dict_metadata, ids};
use crate::stats::compute::Summary;
use crate::wire::WriteLayout;

/// The parts of a leaf written so far.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) chunks: Vec<WriteLayout>,
    /// Completed zones.
    pub(super) zones: ZoneRows,
    /// The zone that is not complete yet.
    pub(super) open: Option<Summary>,
    /// Summary of all rows in completed zones: of all rows once the last one is [closed](Self::close).
    pub(super) whole: Option<Summary>,
    /// Chunks of codes whose values are not written yet.
    pub(super) codes: Vec<WriteLayout>,
    /// Bytes held in memory for later rows.
    pub(super) held_bytes: usize,
    pub(super) summary: ColumnSummary,
}

impl Written {
    /// Adds the values that the codes written before refer to.
    pub(super) fn end_dictionary(&mut self, values: WriteLayout, codes_ptype: PType) {
        let codes = chunked(std::mem::take(&mut self.codes));
        let layout = WriteLayout::new(ids::DICT, codes.row_count(), vec![values, codes]);
        self.chunks.push(layout.metadata(dict_metadata(codes_ptype)));
    }

    /// Adds the summaries of further rows.
    pub(super) fn add_zones(&mut self, zones: Vec<Summary>, dtype: &DType) -> Result<()> {
        for zone in zones {
            let zone = join(self.open.take(), zone);
            if zone.rows == ZONE_LEN as u64 {
                self.close(zone, dtype)?;
            } else {
                self.open = Some(zone);
            }
        }
        Ok(())
    }

    pub(super) fn close(&mut self, zone: Summary, dtype: &DType) -> Result<()> {
        self.zones.push(zone.without_order(), dtype)?;
        self.whole = Some(join(self.whole.take(), zone));
        Ok(())
    }
}

fn join(before: Option<Summary>, next: Summary) -> Summary {
    match before {
        Some(before) => before.merge(next),
        None => next,
    }
}

/// One array in one segment.
pub(super) fn flat(row_count: u64, segment: u32) -> WriteLayout {
    WriteLayout::new(ids::FLAT, row_count, Vec::new()).segment(segment)
}

/// A chunked layout, or the chunk itself if there is only one.
pub(super) fn chunked(chunks: Vec<WriteLayout>) -> WriteLayout {
    match <[WriteLayout; 1]>::try_from(chunks) {
        Ok([chunk]) => chunk,
        Err(chunks) => {
            let row_count = chunks.iter().map(WriteLayout::row_count).sum();
            WriteLayout::new(ids::CHUNKED, row_count, chunks)
        }
    }
}
