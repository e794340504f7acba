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
use super::decode::{LatePiece, LateRows, decode, live_range};
use super::fetch::{LeasedSegments, SplitNeeds, byte_len, fetch, lease, missing_bytes, wait, wanted};
use super::filter::{Check, Payoffs};
use super::gather;
use super::plan::{Plan, Split};
use crate::Result;
use crate::io::Urgency;
use crate::layout::SegmentSet;
use crate::segments::{Lease, SegmentId};

/// Approximately the bytes a remote store delivers in the time a request waits for its first byte.
pub(super) const ROUND_TRIP_BYTES: u64 = 1 << 20;
/// Projected columns are requested before the filter is evaluated if their bytes are less than one part
/// in this many of the bytes requested anyway.
pub(super) const SHARE_ASKED_EARLY: u64 = 32;

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
    /// Whether its live rows are so few that they are fetched individually although there is no filter.
    pub(super) is_row_by_row: bool,
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
    /// They are yet to be requested, if memory and the limit allow. If rows are read best first, the filter may have
    /// tightened when the split is decoded, so they usually are requested only then.
    Unrequested,
    Requested,
    /// Live rows are so few that they are fetched individually.
    RowByRow,
}

/// A split whose live rows can be returned.
pub(super) struct DecodedSplit {
    pub(super) rows: Rows,
    /// Segments it used.
    pub(super) leases: Vec<Lease>,
    /// Whether it [waited for rounds](FilteredSplit::waits_for_rounds) of reads.
    pub(super) waited: bool,
}

/// The live rows of a split; none if they were added to totals.
pub(super) enum Rows {
    /// In batches of at most the batch size.
    Decoded(Vec<RecordBatch>),
    /// To be decoded when they are taken.
    Late(Vec<LatePiece>),
}

impl SplitTask {
    /// The segments to request when the split is admitted, in ascending order. They include those of projected columns
    /// if there is nothing to check, if the filter rarely empties splits or, on remote storage, if they take few bytes:
    /// requesting them later would cost a round trip. They never do if rows are read best first, or if a limit leaves
    /// so few that these are to be fetched individually.
    ///
    /// Few bytes are up to `few` of them.
    pub(super) fn first_wanted(&mut self, filter_rarely_empties: bool, few: u64) -> Result<Vec<SegmentId>> {
        let table = self.plan.table();
        let none = SegmentSet::new(table);
        let first = wanted(&none, |have, want| self.request_filter(have, want))?;
        let may_wait = !self.checks.is_empty() && !filter_rarely_empties;
        if self.plan.best_first.is_some() || (may_wait && !self.plan.is_remote()) {
            return Ok(first);
        }
        let all = wanted(&none, |have, want| {
            self.request_filter(have, want)?;
            self.request_projection(have, want)
        })?;
        if !self.needs_filter() && self.plan.limit.is_some() && self.reads_singly(&all)? {
            self.is_row_by_row = true;
            return Ok(Vec::new());
        }
        if may_wait {
            let bytes = byte_len(table, &first)?;
            let more = byte_len(table, &all)?.saturating_sub(bytes);
            if more > few.max(bytes / SHARE_ASKED_EARLY) {
                return Ok(first);
            }
        }
        Ok(all)
    }

    /// Requests what the split needs before its filter can be evaluated.
    fn request_filter(&self, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        if let Some(order) = &self.plan.best_first {
            order.column.request(&self.split.rows, have, want)?;
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
        // On remote storage, only the transfer counts, and what others have requested by now is under way.
        let bytes =
            if self.plan.is_remote() { missing_bytes(&self.plan, want)? } else { byte_len(table, want)? };
        let live = &self.split.live;
        Ok(gather::pays(&self.plan, gather::scattered(live.true_count(), live.run_count()), bytes))
    }

    /// Whether the split has to be filtered before it is decoded.
    pub(super) fn needs_filter(&self) -> bool {
        !self.checks.is_empty() || self.plan.best_first.is_some()
    }

    /// Converts a split without a filter to evaluate, which can be decoded right away.
    pub(super) fn into_filtered(self) -> FilteredSplit {
        let projection = if self.is_row_by_row { Projected::RowByRow } else { Projected::Requested };
        FilteredSplit { task: self, best: Best::default(), projection }
    }

    /// Evaluates the filter once its columns have arrived, and requests the other columns of live rows as
    /// far as memory allows.
    pub(super) async fn filter(mut self) -> Result<FilteredSplit> {
        if !self.needs_filter() {
            return Ok(self.into_filtered());
        }
        let plan = Arc::clone(&self.plan);
        let mut have = SegmentSet::new(plan.table());
        let leases = std::mem::take(&mut self.leases);
        wait(&plan, &leases).await?;
        have.add(leases);
        fetch(&plan, Urgency::filter(self.number), &mut have, |have, want| self.request_filter(have, want))
            .await?;

        let start = Instant::now();
        let live = self.payoffs.filter(&plan, &self.split, &self.checks, &have)?;
        let rejected = self.split.live.true_count() - live.true_count();
        plan.metrics.rows_filtered.add(rejected as u64);
        plan.metrics.filter_nanos.add_since(start);
        self.split.live = plan.within_limit(live);

        let best = match &plan.best_first {
            Some(order) => order.best_of(&self.split, &have)?,
            None => Best::default(),
        };
        let mut projection = Projected::Unrequested;
        if !self.split.live.is_none() && plan.best_first.is_none() {
            let want = self.missing_projection(&have)?;
            if self.reads_singly(&want)? {
                projection = Projected::RowByRow;
            } else if want.is_empty() {
                // If the limit is exceeded already, even a reservation of no bytes is refused.
                projection = Projected::Requested;
            } else if plan.requests_within_limit() {
                // In its turn.
            } else if let Some(memory) = plan.memory.take(missing_bytes(&plan, &want)?) {
                have.add(lease(&plan, &want, |_| Urgency::projection(self.number), memory)?);
                projection = Projected::Requested;
            }
        }
        self.leases = have.leases().cloned().collect();
        Ok(FilteredSplit { task: self, best, projection })
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

    /// Number of its rows that pass the filter.
    pub(super) fn row_count(&self) -> u64 {
        self.task.split.live.true_count() as u64
    }

    /// Whether decoding it is mostly to wait for the reads of single rows.
    pub(super) fn waits_for_rounds(&self) -> bool {
        self.projection == Projected::RowByRow && self.task.plan.is_remote()
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
        let waited = self.waits_for_rounds();
        let Self { mut task, mut projection, .. } = self;
        let plan = Arc::clone(&task.plan);
        let mut have = SegmentSet::new(plan.table());
        let leases = std::mem::take(&mut task.leases);
        if projection == Projected::Unrequested {
            // The filter may have tightened while this split was waiting.
            have.add(leases.iter().cloned());
            let live = task.payoffs.recheck(&plan, &task.split, &task.checks, &have)?;
            let rejected = task.split.live.true_count() - live.true_count();
            plan.metrics.rows_filtered.add(rejected as u64);
            task.split.live = live;
            if task.split.live.is_none() {
                return Ok(DecodedSplit { rows: Rows::Decoded(Vec::new()), leases, waited });
            }
            if task.reads_singly(&task.missing_projection(&have)?)? {
                projection = Projected::RowByRow;
            }
        }
        let split = &task.split;
        if projection == Projected::RowByRow {
            let rows = split.live.indices().into_iter().map(|row| split.rows.start + row as u64);
            let rows: Arc<[u64]> = rows.collect();
            drop(have);
            let rows = Rows::Decoded(gather::gather(plan, rows).await?);
            return Ok(DecodedSplit { rows, leases, waited });
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
        Ok(DecodedSplit { rows, leases: have.leases().cloned().collect(), waited })
    }
}

#[cfg(test)]
mod tests {

    use arrow::array::Int64Array;

    use super::super::admission::Admission;
    use super::super::fetch::Recent;
    use super::super::zone_maps::ZoneMaps;
    use super::*;
    use crate::VortexFile;
    use crate::expr::{Expr, SharedFilter, column};
    use crate::given::{Stored, file_of, written};
    use crate::io::{Scheduler, StorageProfile};
    use crate::kernels::random;
    use crate::mask::Mask;
    use crate::scan::ScanBuilder;
    use crate::write::WriteOptions;

    /// The first split of a scan.
    async fn first_split(scan: &ScanBuilder) -> SplitTask {
        let plan = Arc::new(Plan::new(scan).unwrap());
        let mut admission = Admission::new(&plan, ZoneMaps::read(&plan).await.unwrap());
        let mut recent = Recent::new(0, &plan.memory);
        admission.admit(0, None, &mut recent).unwrap().remove(0)
    }

    #[tokio::test]
    async fn rows_of_segments_that_are_under_way_are_not_fetched_individually() {
        let mut next = random(1);
        let numbers = Int64Array::from_iter_values((0..1 << 18).map(|_| next() as i64));
        let table = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap();
        let slow_line = StorageProfile { coalesce_gap: 1 << 10, ..StorageProfile::REMOTE };
        let source = Arc::new(Stored::new(written([table], WriteOptions::new()).await, slow_line));
        let file = VortexFile::open(source).await.unwrap();
        // That of other tests may have measured another pace.
        let scan = file.scan().with_scheduler(Scheduler::new(1 << 30));
        let mut split = first_split(&scan).await;
        let rows = split.split.live.len();
        split.split.live = Mask::from_indices(rows, [7]);
        split.leases.clear();
        let want = split.missing_projection(&SegmentSet::new(split.plan.table())).unwrap();
        assert!(split.reads_singly(&want).unwrap());
        let memory = split.plan.memory.take_anyway(missing_bytes(&split.plan, &want).unwrap());
        let _of_others = lease(&split.plan, &want, |_| Urgency::projection(0), memory).unwrap();
        assert!(!split.reads_singly(&want).unwrap());
    }

    #[tokio::test]
    async fn rows_beyond_a_limit_are_wanted_if_others_may_still_be_rejected() {
        let table =
            RecordBatch::try_from_iter([("number", Arc::new(Int64Array::from(vec![1; 9])) as _)]).unwrap();
        let scan = file_of([table]).await.scan().with_limit(2);
        let left = |scan: ScanBuilder| Plan::new(&scan).unwrap().within_limit(Mask::all(9)).true_count();
        assert_eq!(left(scan.clone().with_filter(column("number").gt(0))), 2);
        let tightening = SharedFilter::new(["number"]);
        tightening.set(column("number").gt(0));
        assert_eq!(left(scan.clone().with_filter(Expr::Dynamic(Arc::new(tightening)))), 9);
        assert_eq!(left(scan.with_best_first("number", Default::default())), 9);
    }

    #[tokio::test]
    async fn a_split_whose_filter_has_read_all_columns_does_not_wait_for_memory() {
        let numbers = Int64Array::from_iter_values((0..1 << 16).map(|row: i64| row * row % 1_000_003));
        let table = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap();
        let scan = file_of([table]).await.scan().with_filter(column("number").gt(500_000));
        let split = first_split(&scan).await;
        let plan = Arc::clone(&split.plan);
        let _others = plan.memory.take_anyway(plan.memory.limit() + 1);
        let filtered = split.filter().await.unwrap();
        assert!(!filtered.task.split.live.is_none());
        assert!(!filtered.is_unrequested());
    }
}
