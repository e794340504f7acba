//! What has been written of each column so far.

use super::zone_table::Zones;
use super::{ColumnSummary, ZONE_LEN};
use crate::Result;
use crate::dtype::DType;
use crate::stats::compute::Summary;
use crate::wire::WriteLayout;

/// What has been written of a leaf.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) chunks: Vec<WriteLayout>,
    /// Zones that are complete.
    pub(super) zones: Zones,
    /// The zone that is not.
    pub(super) open: Option<Summary>,
    /// All rows of the complete zones.
    pub(super) whole: Option<Summary>,
    pub(super) rows: u64,
    /// Whether chunks shared a dictionary when that was last tried.
    pub(super) dictionary: Option<bool>,
    pub(super) summary: ColumnSummary,
}

impl Written {
    /// Encoded bytes per row so far.
    pub(super) fn encoded_row_bytes(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.summary.encoded_bytes as f64 / self.rows as f64)
    }

    /// Adds summaries of the rows that follow.
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
        self.zones.push(zone.to_zone(), dtype)?;
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

/// Chunks of a column, or the one there is.
pub(super) fn chunked(row_count: u64, chunks: Vec<WriteLayout>) -> WriteLayout {
    match <[WriteLayout; 1]>::try_from(chunks) {
        Ok([chunk]) => chunk,
        Err(chunks) => WriteLayout::new("vortex.chunked", row_count, chunks),
    }
}
