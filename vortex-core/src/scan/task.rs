//! The processing of one split: fetch, filter, fetch, decode.
//!
//! ```text
//! admitted ──► filter columns there ──► filtered ──► other columns requested, if memory allows
//!                                                                     │
//!                              batches ◄── decoded ◄── all there ◄────┘
//! ```

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::row::OwnedRow;

use super::RowAccess;
use super::best_first::Best;
use super::decode::{decode, live_range};
use super::fetch::{byte_len, fetch, lease, missing_bytes, wait, wanted};
use super::filter::{Check, Payoffs};
use super::gather;
use super::late::{LatePiece, LateRows};
use super::lease_request::{LeasedSegments, SplitNeeds};
use super::plan::{Plan, Split};
use crate::Result;
use crate::io::Urgency;
use crate::layout::SegmentSet;
use crate::segments::{Lease, SegmentId};

/// Approximately the bytes a remote store delivers in the time a request waits for its first byte.
const ROUND_TRIP_BYTES: u64 = 1 << 20;
/// Projected columns are requested before the filter is evaluated if their bytes are less than one part
/// in this many of the bytes requested anyway.
const SHARE_ASKED_EARLY: u64 = 32;

/// One split, and what to do with it in any stage.
#[derive(Clone)]
pub(super) struct SplitTask {
    pub(super) plan: Arc<Plan>,
    pub(super) payoffs: Arc<Payoffs>,
    pub(super) split: Split,
    /// Number of the split in the order in which splits are wanted.
    pub(super) number: u64,
    /// Conjuncts of the filter to evaluate.
    pub(super) checks: Vec<Check>,
    /// Segments it uses, for later splits that may use them, too.
    pub(super) leases: Vec<Lease>,
}

/// A split that has been admitted: what it needs first has been requested.
pub(super) struct AdmittedSplit {
    pub(super) task: SplitTask,
    /// Whether projected columns are requested together with those of the filter.
    pub(super) eager: bool,
}

/// A split whose filter was evaluated.
#[derive(Clone)]
pub(super) struct FilteredSplit {
    /// The live rows are those that pass.
    pub(super) task: SplitTask,
    /// Its best rows, if rows are read best first.
    pub(super) best: Best,
    projection: Projected,
}

/// How the projected columns of a split are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Projected {
    /// They are yet to be requested, if memory allows. If rows are read best first, the filter may have tightened when
    /// the split is decoded, so they usually are requested only then.
    Unrequested,
    Requested,
    /// Live rows are so few that they are fetched individually.
    Singly,
}

/// A split whose live rows can be returned.
pub(super) struct DecodedSplit {
    pub(super) rows: Rows,
    /// Segments it used.
    pub(super) leases: Vec<Lease>,
}

/// The live rows of a split; none if they were added to totals.
pub(super) enum Rows {
    /// In batches of at most the batch size.
    Decoded(Vec<RecordBatch>),
    /// To be decoded when they are taken.
    Late(Vec<LatePiece>),
}

impl SplitTask {
    /// The segments to request when the split is admitted, in ascending order, and whether these include the
    /// projected columns. On remote storage, these are included if they take few bytes: requesting them later
    /// would cost a round trip.
    pub(super) fn first_wanted(&self, eager: bool) -> Result<(bool, Vec<SegmentId>)> {
        let table = self.plan.table();
        let want =
            |eager| wanted(&SegmentSet::new(table), |have, want| self.request_first(eager, have, want));
        let first = want(eager)?;
        let waits = !eager && !self.checks.is_empty() && self.plan.best_first.is_none();
        if waits && self.plan.is_remote() {
            let all = want(true)?;
            let bytes = byte_len(table, &first)?;
            let more = byte_len(table, &all)?.saturating_sub(bytes);
            if more <= bytes.max(ROUND_TRIP_BYTES) / SHARE_ASKED_EARLY {
                return Ok((true, all));
            }
        }
        Ok((eager, first))
    }

    /// Requests what the split needs before its filter can be evaluated, or its rows decoded if there is no filter.
    fn request_first(&self, eager: bool, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        match &self.plan.best_first {
            Some(order) => order.column.request(&self.split.rows, have, want)?,
            None if eager || self.checks.is_empty() => self.request_projection(have, want)?,
            None => {}
        }
        for path in self.checks.iter().flat_map(|check| &check.columns) {
            self.plan.filter_column(path)?.request(&self.split.rows, have, want)?;
        }
        Ok(())
    }

    /// Requests what decoding the live rows needs.
    fn request_projection(&self, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        let rows = live_range(&self.split);
        let mut columns =
            self.plan.projection.iter().enumerate().filter(|(at, _)| !self.split.known.has(*at));
        columns.try_for_each(|(_, column)| column.request(&rows, have, want))
    }

    /// Segments of the projected columns that are yet to be fetched, in ascending order.
    fn missing_projection(&self, have: &SegmentSet<'_>) -> Result<Vec<SegmentId>> {
        wanted(have, |have, want| self.request_projection(have, want))
    }

    /// Whether the live rows are fetched individually, instead of these segments.
    fn reads_singly(&self, want: &[SegmentId]) -> Result<bool> {
        let table = self.plan.table();
        // What is read of whole segments is shared with other splits only if all of it is.
        if self.plan.row_access == RowAccess::Cheapest {
            for id in want {
                if table.must_read_whole(*id)? {
                    return Ok(false);
                }
            }
        }
        Ok(gather::pays(&self.plan, self.split.live.true_count() as u64, byte_len(table, want)?))
    }
}

impl AdmittedSplit {
    /// Whether the split has to be filtered before it is decoded.
    pub(super) fn needs_filter(&self) -> bool {
        !self.task.checks.is_empty() || self.task.plan.best_first.is_some()
    }

    /// Converts a split without a filter to evaluate, which can be decoded right away.
    pub(super) fn into_filtered(self) -> FilteredSplit {
        FilteredSplit { task: self.task, best: Best::default(), projection: Projected::Requested }
    }

    /// Evaluates the filter once its columns have arrived, and requests the other columns of live rows as
    /// far as memory allows.
    pub(super) async fn filter(self) -> Result<FilteredSplit> {
        if !self.needs_filter() {
            return Ok(self.into_filtered());
        }
        let Self { mut task, eager } = self;
        let plan = Arc::clone(&task.plan);
        let mut have = SegmentSet::new(plan.table());
        let leases = std::mem::take(&mut task.leases);
        wait(&plan, &leases).await?;
        have.add(leases);
        fetch(&plan, Urgency::filter(task.number), &mut have, |have, want| {
            task.request_first(eager, have, want)
        })
        .await?;

        let start = Instant::now();
        let live = task.payoffs.filter(&plan, &task.split, &task.checks, &have)?;
        let rejected = task.split.live.true_count() - live.true_count();
        plan.metrics.rows_filtered.add(rejected as u64);
        plan.metrics.filter_nanos.add_since(start);
        task.split.live = live;

        let best = match &plan.best_first {
            Some(order) => order.best_of(&task.split, &have)?,
            None => Best::default(),
        };
        let mut projection = Projected::Unrequested;
        if !task.split.live.is_none() && plan.best_first.is_none() {
            let want = task.missing_projection(&have)?;
            if task.reads_singly(&want)? {
                projection = Projected::Singly;
            } else if let Some(memory) = plan.memory.take(missing_bytes(&plan, &want)?) {
                have.add(lease(&plan, &want, |_| Urgency::projection(task.number), memory)?);
                projection = Projected::Requested;
            }
        }
        task.leases = have.leases().cloned().collect();
        Ok(FilteredSplit { task, best, projection })
    }
}

impl FilteredSplit {
    /// The rows that come no later than `last`, and the others; `None` if there are none of either.
    pub(super) fn split_after(&self, last: &OwnedRow) -> Option<(Self, Self)> {
        let live = &self.task.split.live;
        let mut others = self.clone();
        let wanted = others.best.take_until(last, live.len()).and(live);
        others.task.split.live = live.without(&wanted);
        if wanted.is_none() || others.task.split.live.is_none() {
            return None;
        }
        let mut first = self.clone();
        first.task.split.live = wanted;
        Some((first, others))
    }

    /// Whether the projected columns are yet to be requested.
    pub(super) fn is_unrequested(&self) -> bool {
        self.projection == Projected::Unrequested
    }

    /// Segments of the projected columns that are yet to be fetched, in ascending order.
    pub(super) fn missing(&self) -> Result<Vec<SegmentId>> {
        let mut have = SegmentSet::new(self.task.plan.table());
        have.add(self.task.leases.iter().cloned());
        self.task.missing_projection(&have)
    }

    /// The request for these segments of the projected columns; if it `must`, regardless of memory.
    pub(super) fn needs<'a>(&self, ids: &'a [SegmentId], must: bool) -> SplitNeeds<'a> {
        SplitNeeds { ids, urgency: Urgency::projection(self.task.number), most: u64::MAX, must }
    }

    /// Holds these segments, with which all projected columns have been requested.
    pub(super) fn hold(&mut self, requested: &LeasedSegments, ids: &[SegmentId]) {
        self.task.leases.extend(requested.of(ids));
        self.projection = Projected::Requested;
    }

    /// Decodes the live rows once their columns have arrived.
    pub(super) async fn decode(self) -> Result<DecodedSplit> {
        let Self { mut task, mut projection, .. } = self;
        let plan = Arc::clone(&task.plan);
        let mut have = SegmentSet::new(plan.table());
        let leases = std::mem::take(&mut task.leases);
        if projection == Projected::Unrequested {
            // The filter may have tightened while this split was waiting.
            have.add(leases.iter().cloned());
            task.split.live = task.payoffs.recheck(&plan, &task.split, &task.checks, &have)?;
            if task.split.live.is_none() {
                return Ok(DecodedSplit { rows: Rows::Decoded(Vec::new()), leases });
            }
            if task.reads_singly(&task.missing_projection(&have)?)? {
                projection = Projected::Singly;
            }
        }
        let split = &task.split;
        if projection == Projected::Singly {
            let rows = split.live.indices().into_iter().map(|row| split.rows.start + row as u64);
            let rows: Arc<[u64]> = rows.collect();
            drop(have);
            return Ok(DecodedSplit { rows: Rows::Decoded(gather::gather(plan, rows).await?), leases });
        }
        wait(&plan, &leases).await?;
        have.add(leases);
        fetch(&plan, Urgency::projection(task.number), &mut have, |have, want| {
            task.request_projection(have, want)
        })
        .await?;
        let start = Instant::now();
        let rows = if let Some(totals) = &plan.totals {
            totals.add_split(&plan, split, &have)?;
            Rows::Decoded(Vec::new())
        } else if let Some(late) = LateRows::read(&plan, split, &have)? {
            Rows::Late(late.into_pieces())
        } else {
            Rows::Decoded(decode(&plan, split, &have)?)
        };
        plan.metrics.decode_nanos.add_since(start);
        Ok(DecodedSplit { rows, leases: have.leases().cloned().collect() })
    }
}
