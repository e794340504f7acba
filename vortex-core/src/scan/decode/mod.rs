//! Decoding the live rows of a split once all that this takes has arrived.

mod late;
mod ready;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt64Array};

pub(super) use self::late::{LatePiece, LateRows};
pub(super) use self::ready::Ready;
use super::halves::{MAX_PARTS_HELD, in_halves};
use super::plan::{Plan, Split};
use crate::Result;
use crate::array::bytes::let_go;
use crate::array::{ArrayRef, EncodedArray, decode_as};
use crate::error::ResultExt as _;
use crate::layout::SegmentSet;
use crate::limits::Work;
use crate::mask::Mask;

/// The range from the first to the last live row.
pub(super) fn live_range(Split { rows, live, .. }: &Split) -> Range<u64> {
    let span = live.span();
    rows.start + span.start as u64..rows.start + span.end as u64
}

/// Decodes the live rows of the projected columns.
pub(super) fn decode(plan: &Plan, split: &Split, have: &SegmentSet<'_>) -> Result<Vec<RecordBatch>> {
    let (rows, live) = (live_range(split), split.live.slice(split.live.span()));
    let decoded = in_halves(rows, &live, MAX_PARTS_HELD, |rows, live| decode_rows(plan, rows, live, have))?;
    Ok(in_batches(decoded, plan.batch_size))
}

/// Cuts batches that have more rows than `batch_size`.
pub(super) fn in_batches(decoded: Vec<RecordBatch>, batch_size: usize) -> Vec<RecordBatch> {
    let cut = |batch: RecordBatch| {
        let rows = batch.num_rows();
        (0..rows).step_by(batch_size).map(move |start| batch.slice(start, batch_size.min(rows - start)))
    };
    decoded.into_iter().flat_map(cut).collect()
}

/// Decodes rows of projected column `at`, all of them `among` those. If they were `picked` among others, they do not
/// keep the bytes of these.
pub(super) fn decode_column(
    plan: &Plan,
    at: usize,
    among: &Range<u64>,
    array: &dyn EncodedArray,
    picked: bool,
) -> Result<ArrayRef> {
    let decoded = decode_as(array, plan.schema.field(at).data_type());
    let place = || format!("{}, rows {}..{}", plan.projection[at].place(), among.start, among.end);
    let decoded = decoded.at(place)?;
    Ok(if picked { let_go(decoded) } else { decoded })
}

fn decode_rows(plan: &Plan, rows: &Range<u64>, live: &Mask, have: &SegmentSet<'_>) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(plan.projection.len());
    for (at, column) in plan.projection.iter().enumerate() {
        let _work = Work::begin();
        let array = column.read_live(rows, live, have)?;
        columns.push(decode_column(plan, at, rows, array.as_ref(), !live.is_all())?);
    }
    if plan.numbers_rows {
        let numbers: UInt64Array = if live.is_all() {
            rows.clone().collect()
        } else {
            live.indices().into_iter().map(|row| rows.start + row as u64).collect()
        };
        columns.push(Arc::new(numbers));
    }
    plan.batch(columns, live.true_count())
}
