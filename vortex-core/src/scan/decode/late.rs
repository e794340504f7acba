//! Rows that are decoded when they are taken, in pieces that stay in the cache of the processor.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;

use super::{decode_column, in_batches, live_range};
use crate::array::EncodedRef;
use crate::error::ResultExt as _;
use crate::layout::SegmentSet;
use crate::limits::Work;
use crate::mask::Mask;
use crate::scan::halves::{MAX_PARTS_HELD, in_halves};
use crate::scan::plan::{Plan, Split};
use crate::segments::Lease;
use crate::{Error, Result};

/// Approximate decoded bytes of a piece: a part of the second cache, whose rest holds what operators do with the rows.
const PIECE_BYTES: u64 = 256 << 10;

/// The live rows of a split, as they are stored.
pub(in crate::scan) struct LateRows {
    plan: Arc<Plan>,
    /// Where the rows are, some of which may be left out.
    among: Range<u64>,
    /// One per projected column.
    columns: Vec<EncodedRef>,
    /// Whether they may hold the bytes of other rows, too.
    filtered: bool,
    /// What holds their bytes, until the last piece is decoded.
    _leases: Vec<Lease>,
}

/// Some rows of a split that are to be decoded.
pub(in crate::scan) struct LatePiece {
    of: Arc<LateRows>,
    rows: Range<usize>,
}

impl LateRows {
    /// The live rows of a split; `None` if they are better decoded at once: if they are few, if a part of them takes
    /// about as long as all, or if what they have in common exceeds the limits.
    pub(in crate::scan) fn read(
        plan: &Arc<Plan>,
        split: &Split,
        have: &SegmentSet<'_>,
    ) -> Result<Option<Self>> {
        let rows = live_range(split);
        let count = split.live.true_count() as u64;
        if !plan.decodes_late() || count <= piece_rows(plan) || count < (rows.end - rows.start) / 2 {
            return Ok(None);
        }
        let live = split.live.slice(split.live.span());
        match Self::columns(plan, &rows, &live, have) {
            Err(error) if matches!(error.root(), Error::LimitExceeded(_)) => Ok(None),
            columns => Ok(columns?.map(|columns| {
                let _leases = have.leases().cloned().collect();
                Self { plan: Arc::clone(plan), among: rows, columns, filtered: !live.is_all(), _leases }
            })),
        }
    }

    /// The `live` ones of rows, which are decoded in parts; `None` if any column is not.
    fn columns(
        plan: &Plan,
        rows: &Range<u64>,
        live: &Mask,
        have: &SegmentSet<'_>,
    ) -> Result<Option<Vec<EncodedRef>>> {
        let read = plan.projection.iter().map(|column| {
            let _work = Work::begin();
            column.read(rows, have)
        });
        let columns = read.collect::<Result<Vec<EncodedRef>>>()?;
        if !columns.iter().all(|column| column.decodes_in_parts()) {
            return Ok(None);
        }
        if live.is_all() {
            return Ok(Some(columns));
        }
        let filtered = columns.iter().zip(&plan.projection).map(|(array, column)| {
            let _work = Work::begin();
            array.filter(live).at(|| column.place())
        });
        Ok(Some(filtered.collect::<Result<_>>()?))
    }

    /// All rows, in pieces.
    pub(in crate::scan) fn into_pieces(self) -> Vec<LatePiece> {
        let len = self.columns.first().map_or(0, |column| column.len());
        let step = usize::try_from(piece_rows(&self.plan)).unwrap_or(usize::MAX);
        let of = Arc::new(self);
        let piece = |start| LatePiece { of: Arc::clone(&of), rows: start..len.min(start + step) };
        (0..len).step_by(step).map(piece).collect()
    }

    fn decode(&self, rows: Range<usize>) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(self.columns.len());
        for (at, column) in self.columns.iter().enumerate() {
            let _work = Work::begin();
            let piece = column.slice(rows.clone()).at(|| self.plan.projection[at].place())?;
            columns.push(decode_column(&self.plan, at, &self.among, piece.as_ref(), self.filtered)?);
        }
        self.plan.batch(columns, rows.len())
    }
}

impl LatePiece {
    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Decodes the rows, in batches of at most the batch size.
    pub(super) fn decode(self) -> Result<Vec<RecordBatch>> {
        let Self { of, rows } = self;
        let start = Instant::now();
        let all = Mask::all(rows.len());
        // Rows of a split are in memory.
        let rows = rows.start as u64..rows.end as u64;
        let decode = |rows: &Range<u64>, _: &Mask| of.decode(rows.start as usize..rows.end as usize);
        let decoded = in_halves(rows, &all, MAX_PARTS_HELD, decode)?;
        of.plan.metrics.decode_nanos.add_since(start);
        Ok(in_batches(decoded, of.plan.batch_size))
    }
}

/// Number of rows of a piece: a multiple of the batch size.
fn piece_rows(plan: &Plan) -> u64 {
    let batch = plan.batch_size as u64;
    let row_bytes = (plan.split_bytes / plan.split_step.max(1)).max(1);
    (PIECE_BYTES / row_bytes / batch).max(1).saturating_mul(batch)
}
