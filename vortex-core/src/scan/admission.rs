//! Admitting splits: as many as the limits on their number and memory allow, with a single request for
//! what all of them need first.

use std::sync::Arc;

use super::best_first::Place;
use super::column::Column;
use super::cursor::{Cursor, Next};
use super::fetch::{LeaseRequest, Recent, SplitNeeds};
use super::filter::Payoffs;
use super::plan::Plan;
use super::split::{FilteredSplit, ROUND_TRIP_BYTES, SHARE_ASKED_EARLY, SplitTask};
use super::zone_maps::ZoneMaps;
use crate::Result;
use crate::io::Urgency;
use crate::segments::SegmentId;

/// Maximum number of splits admitted and not yet decoded.
const MAX_ADMITTED_LOCAL: usize = 4;
const MAX_ADMITTED_REMOTE: usize = 256;

/// Rows that statistics must predict for a split to be sure that some pass: the actual number may be
/// several times smaller.
const ROWS_EXPECTED: f64 = 8.0;

/// Splits that statistics may answer before other tasks are let run: a file may claim millions of them.
const ANSWERED_AT_ONCE: u64 = 256;

/// Bytes of projected columns that are requested of all splits which may have rows that pass, if these are few: a file
/// may be one of a thousand in which a row is looked up.
const BYTES_ASKED_EARLY: u64 = 256 << 10;

/// Number of splits after which half of what is known about the filter is forgotten.
const REMEMBERED: u64 = 32;

/// How many splits of a scan may be admitted and not yet decoded. Only few, if the filter reads columns whose
/// bytes are not known yet when memory is reserved: it has to take the rest regardless of the limit.
pub(super) fn most_admitted(plan: &Plan) -> usize {
    let order = plan.best_first.as_ref().map(|order| &order.column);
    let far_ahead = plan.is_remote() || order.is_some();
    if far_ahead && !plan.filter_columns.values().chain(order).any(Column::takes_rounds) {
        MAX_ADMITTED_REMOTE
    } else {
        MAX_ADMITTED_LOCAL
    }
}

/// The splits that are yet to be admitted, and how many may be in progress.
pub(super) struct Admission {
    plan: Arc<Plan>,
    payoffs: Arc<Payoffs>,
    cursor: Cursor,
    /// Whether other splits wait for the extremes that the leading ones hold.
    awaits_leading: bool,
    zone_maps: ZoneMaps,
    eagerness: Eagerness,
    /// Number of splits admitted so far.
    admitted: u64,
    /// Number of splits that statistics have answered instead.
    answered: u64,
    /// Whether there was a pause after the last of these.
    is_paused: bool,
    /// Rows that are still to be admitted, if there is no filter.
    rows_left: u64,
    /// Splits that may be in progress. Fewer than `most` while it is uncertain how many are needed; raised with
    /// each completed split.
    allowed: usize,
    most: usize,
}

impl Admission {
    /// All splits of a scan.
    pub(super) fn new(plan: &Arc<Plan>, zone_maps: ZoneMaps) -> Self {
        let most = most_admitted(plan);
        let cursor = Cursor::new(plan, &zone_maps);
        let allowed = match cursor.leading_count() {
            _ if plan.stops_early() => 1,
            0 => most,
            leading => leading.min(most),
        };
        Self {
            plan: Arc::clone(plan),
            payoffs: Arc::new(Payoffs::new(plan)),
            awaits_leading: cursor.leading_count() > 0,
            cursor,
            eagerness: Eagerness::new(plan, &zone_maps),
            zone_maps,
            admitted: 0,
            answered: 0,
            is_paused: false,
            rows_left: plan.limit.unwrap_or(u64::MAX),
            allowed,
            most,
        }
    }

    /// Whether splits are admitted in the order of the file.
    pub(super) fn is_in_order(&self) -> bool {
        matches!(self.cursor, Cursor::InOrder { .. })
    }

    /// Lets twice as many splits be in progress.
    pub(super) fn allow_more(&mut self) {
        self.allowed = (self.allowed * 2).min(self.most);
    }

    /// Lets as many splits be in progress as ever may be.
    pub(super) fn allow_most(&mut self) {
        self.allowed = self.most;
    }

    /// Admits no more splits.
    pub(super) fn stop(&mut self) {
        self.cursor = Cursor::at_end(&self.plan);
    }

    /// Learns from a split whose filter was evaluated.
    pub(super) fn learn(&mut self, split: &FilteredSplit) {
        self.eagerness.learn(split);
    }

    /// The zone maps, if filters have tightened since the last call: what they rule out of the rows that are yet to be
    /// admitted, or are `waiting` from the given one on.
    pub(super) fn tightened(&mut self, waiting: Option<u64>) -> Result<Option<&ZoneMaps>> {
        let from = self.cursor.first_row().min(waiting.unwrap_or(u64::MAX));
        Ok(self.zone_maps.refresh(&self.plan, from)?.then_some(&self.zone_maps))
    }

    /// Admits splits as far as the limits on their number and memory allow, but none that cannot hold a better row
    /// than the one at `best`. What they all need first is requested in one go.
    pub(super) fn admit(
        &mut self,
        at_work: usize,
        best: Option<&Place>,
        recent: &mut Recent,
    ) -> Result<Vec<SplitTask>> {
        self.is_paused = false;
        if self.awaits_leading && self.cursor.leading_count() == 0 {
            if at_work > 0 {
                return Ok(Vec::new());
            }
            self.awaits_leading = false;
            self.allow_most();
        }
        if !self.has_room(at_work, recent) {
            return Ok(Vec::new());
        }
        let request = LeaseRequest::new(&self.plan);
        let mut batch = Batch { splits: Vec::new(), request, idle: at_work == 0 };
        let answered = self.answered;
        while (at_work + batch.splits.len() < self.allowed || self.costs_no_more(at_work, &batch))
            && !self.has_answered_many(answered)
            && best.is_none_or(|best| self.cursor.may_hold_better(&self.plan, best))
            && self.admit_next(&mut batch, recent)?
        {}
        self.is_paused = self.has_answered_many(answered);
        self.allowed = self.allowed.max(at_work + batch.splits.len());
        let requested = batch.request.send()?;
        self.plan.metrics.splits_scanned.add(batch.splits.len() as u64);
        let admitted = batch.splits.into_iter().map(|(mut split, ids)| {
            split.leases = requested.of(&ids).collect();
            split
        });
        Ok(admitted.collect())
    }

    /// Whether a split below a limit may be admitted although those before it may be enough: on remote storage, reading
    /// the columns of the filter takes as long for many splits as for one, as long as they are short.
    fn costs_no_more(&self, at_work: usize, batch: &Batch) -> bool {
        self.plan.requests_within_limit()
            && at_work + batch.splits.len() < self.most
            && batch.request.byte_len() < ROUND_TRIP_BYTES
    }

    /// Whether many splits have been answered by statistics since there were so many of them.
    fn has_answered_many(&self, before: u64) -> bool {
        self.answered - before >= ANSWERED_AT_ONCE
    }

    /// Whether admission has stopped only to let others run.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether to admit splits now: several are admitted at a time, so that segments close together in
    /// the file share a read. Half of the memory is for them; of a remote file, a quarter of that must be free.
    fn has_room(&self, at_work: usize, recent: &Recent) -> bool {
        let used = self.plan.memory.used().saturating_sub(recent.charged());
        let most = self.plan.memory.limit() / 8 * if self.plan.is_remote() { 3 } else { 4 };
        at_work == 0 || (at_work <= self.allowed / 2 && used <= most)
    }

    /// Adds the next split to those that are admitted together; returns whether there is one, and memory for it.
    fn admit_next(&mut self, batch: &mut Batch, recent: &mut Recent) -> Result<bool> {
        let Some(Next { mut split, pruned, unread }) = self.cursor.next(&self.plan, &self.zone_maps) else {
            return Ok(false);
        };
        let checks = self.payoffs.checks(&self.plan, &self.zone_maps, &split);
        let answered = match &self.plan.totals {
            Some(totals) => totals.answer(&self.plan, &self.zone_maps, &mut split, checks.is_empty()),
            None => 0,
        };
        if answered > 0 && split.live.is_none() {
            self.plan.metrics.rows_pruned.add(pruned);
            self.plan.metrics.rows_answered.add(answered);
            self.answered += 1;
            return Ok(true);
        }
        // Without a filter, the limit determines how many rows are needed at all.
        let unfiltered = self.plan.conjuncts.is_empty();
        if unfiltered {
            split.live = split.live.limit(usize::try_from(self.rows_left).unwrap_or(usize::MAX));
        } else if checks.is_empty() {
            split.live = self.plan.within_limit(split.live);
        }
        split.narrow();
        let mut task = SplitTask {
            plan: Arc::clone(&self.plan),
            payoffs: Arc::clone(&self.payoffs),
            split,
            number: self.admitted,
            checks,
            leases: Vec::new(),
            is_row_by_row: false,
        };
        let ids = task.first_wanted(self.eagerness.filter_rarely_empties(), self.eagerness.early_bytes)?;
        let urgency = if task.checks.is_empty() {
            Urgency::projection(self.admitted)
        } else {
            Urgency::filter(self.admitted)
        };
        // The other half of the memory is left for what splits need once their filter is evaluated.
        let most = self.plan.memory.limit() / 2;
        let wants = SplitNeeds { ids: &ids, urgency, most, must: batch.idle && batch.splits.is_empty() };
        if !batch.request.add(&wants, recent)? {
            self.cursor.put_back(unread);
            return Ok(false);
        }
        self.plan.metrics.rows_pruned.add(pruned);
        self.plan.metrics.rows_answered.add(answered);
        if unfiltered {
            self.rows_left -= task.split.live.true_count() as u64;
            if self.rows_left == 0 {
                self.stop();
            }
        }
        batch.splits.push((task, ids));
        self.admitted += 1;
        Ok(true)
    }
}

/// Splits admitted together, each with the segments it needs first.
struct Batch {
    splits: Vec<(SplitTask, Vec<SegmentId>)>,
    request: LeaseRequest,
    /// Whether nothing is at work that will release memory, so that the first split gets some in any case.
    idle: bool,
}

/// What is known about whether splits have rows that pass the filter. Where nearly all have, projected columns are
/// requested together with those of the filter.
struct Eagerness {
    /// Whether the wanted rows may be found long before the end.
    stops_early: bool,
    /// Whether statistics predict rows that pass in every split.
    passes_expected: bool,
    /// Bytes of projected columns of a split that are requested even if it may have no row that passes.
    early_bytes: u64,
    /// Splits whose filter was evaluated, and how many of them had a row that passed.
    checked: u64,
    passed: u64,
}

impl Eagerness {
    fn new(plan: &Plan, zone_maps: &ZoneMaps) -> Self {
        let share = if plan.is_remote() { zone_maps.expected_share(plan) } else { None };
        // There may be millions of ranges of rows.
        let splits = || zone_maps.possible(plan, 0).count_steps(&plan.rows.bounds(), plan.split_step);
        let splits = if plan.is_remote() && !plan.stops_early() { splits() } else { u64::MAX };
        Self {
            stops_early: plan.stops_early(),
            early_bytes: (BYTES_ASKED_EARLY / splits.max(1)).max(ROUND_TRIP_BYTES / SHARE_ASKED_EARLY),
            passes_expected: share.is_some_and(|share| share * plan.split_step as f64 >= ROWS_EXPECTED),
            checked: 0,
            passed: 0,
        }
    }

    fn learn(&mut self, FilteredSplit { task, .. }: &FilteredSplit) {
        if task.checks.is_empty() {
            return;
        }
        self.checked += 1;
        if self.checked >= REMEMBERED {
            (self.checked, self.passed) = (self.checked / 2, self.passed / 2);
        }
        self.passed += u64::from(!task.split.live.is_none());
    }

    /// Whether almost every split has rows that pass. Then the projected columns are requested together
    /// with those of the filter, which costs no extra bytes and saves a round trip. On remote storage,
    /// many splits are requested before the first one is filtered; until then, statistics provide the
    /// estimate.
    fn filter_rarely_empties(&self) -> bool {
        // If only few rows are wanted, the filter is going to tighten.
        if self.stops_early {
            return false;
        }
        if self.checked < 2 { self.passes_expected } else { self.passed * 4 >= self.checked * 3 }
    }
}

#[cfg(test)]
mod tests {

    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use arrow::array::{AsArray as _, Int64Array, RecordBatch};
    use arrow::datatypes::Int64Type;
    use futures::TryStreamExt as _;

    use super::super::fetch::lease;
    use super::*;
    use crate::VortexFile;
    use crate::expr::{Expr, column};
    use crate::given::{self, Refuses, Stored, file_of};
    use crate::io::{Scheduler, StorageProfile};
    use crate::kernels::random;
    use crate::write::WriteOptions;

    fn remote(name: &str) -> Arc<Stored> {
        let path = format!("{}/tests/files/{name}", env!("CARGO_MANIFEST_DIR"));
        Arc::new(Stored::new(std::fs::read(path).unwrap(), StorageProfile::REMOTE))
    }

    async fn golden(name: &str) -> VortexFile {
        VortexFile::open(remote(name)).await.unwrap()
    }

    /// A file with a column called `number`.
    async fn written(numbers: Int64Array) -> VortexFile {
        let table = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap();
        file_of([table]).await
    }

    #[tokio::test]
    async fn few_splits_are_admitted_if_the_filter_reads_lists_stored_apart() {
        let apart = golden("0.91.0/list_nested.unstable.vortex").await;
        let together = golden("0.91.0/list_nested.vortex").await;
        let lists = apart.footer().columns().map(|(name, _)| name.to_owned());
        let lists: Vec<String> = lists.collect();
        assert!(!lists.is_empty());
        for name in &lists {
            let most = |file: &VortexFile, filter: Expr| {
                most_admitted(&Plan::new(&file.scan().with_filter(filter)).unwrap())
            };
            let reads =
                || Expr::rows("reads", [name.as_str()], |batch| Ok(vec![true; batch.num_rows()].into()));
            assert_eq!(most(&apart, reads()), MAX_ADMITTED_LOCAL, "{name}");
            assert_eq!(most(&together, reads()), MAX_ADMITTED_REMOTE, "{name}");
            // Whether lists are null is known without them.
            assert_eq!(most(&apart, column(name.as_str()).is_null()), MAX_ADMITTED_REMOTE, "{name}");
        }
        // Without a filter, only splits that are being decoded need more than was asked for.
        assert_eq!(most_admitted(&Plan::new(&apart.scan()).unwrap()), MAX_ADMITTED_REMOTE);
    }

    #[tokio::test]
    async fn storage_is_taken_for_what_it_was_when_the_scan_was_planned() {
        let source = remote("0.91.0/list_nested.vortex");
        let file = VortexFile::open(Arc::clone(&source) as _).await.unwrap();
        let plan = Plan::new(&file.scan()).unwrap();
        source.becomes(StorageProfile::LOCAL);
        assert!(plan.is_remote());
        assert!(!Plan::new(&file.scan()).unwrap().is_remote());
    }

    #[tokio::test]
    async fn rows_pruned_of_a_split_that_waits_for_memory_are_counted_once() {
        // In each of four splits, only the first of eight zones has rows that pass.
        let file = written(Int64Array::from_iter_values((0..4 << 16).map(|row| row % (1 << 16)))).await;
        let scan = file.scan().with_filter(column("number").lt(100));
        let scan = scan.with_memory_pool(Arc::new(Refuses::default()));
        let metrics = Arc::clone(scan.metrics());
        let batches: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 400);
        let counted = [&metrics.splits_scanned, &metrics.rows_pruned, &metrics.rows_filtered];
        let counted = counted.map(|count| count.get());
        assert_eq!(counted, [4, 4 * 7 * 8192, 4 * (8192 - 100)]);
    }

    #[tokio::test]
    async fn if_few_splits_are_left_all_of_their_columns_are_requested_at_once() {
        let mut next = random(1);
        let keys = Int64Array::from_iter_values(0..1 << 20);
        let values = Int64Array::from_iter_values((0..1 << 20).map(|_| (next() >> 52) as i64));
        let table =
            RecordBatch::try_from_iter([("key", Arc::new(keys) as _), ("value", Arc::new(values) as _)]);
        let bytes = given::written([table.unwrap()], WriteOptions::new()).await;
        let stored = Stored::new(bytes, StorageProfile::REMOTE).with_delay(Duration::from_millis(2));
        let stored = Arc::new(stored);
        let file = VortexFile::open(Arc::clone(&stored) as _).await.unwrap();
        let rounds = async |filter: Expr| {
            let before = stored.alone.load(Ordering::SeqCst);
            // That of other tests may have measured another pace.
            let scan = file.scan().with_filter(filter).with_scheduler(Scheduler::new(1 << 30));
            let found: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
            assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
            stored.alone.load(Ordering::SeqCst) - before
        };
        assert_eq!(rounds(column("key").eq(150_000)).await, 1);
        // Three splits are left, two of which have no such value.
        let values = Expr::rows("is 7", ["key"], |batch| {
            let keys = batch.column(0).as_primitive::<Int64Type>();
            Ok(keys.values().iter().map(|key| *key == 150_000).collect())
        });
        assert!(rounds(column("key").gt(100_000).and(values)).await > 1);
    }

    #[tokio::test]
    async fn a_remote_scan_admits_splits_once_there_is_room_for_several() {
        let rows = Int64Array::from_iter_values((0..4 << 16).map(|row: i64| row * row % 1_000_003));
        let local = written(rows).await;
        let far = golden("0.91.0/tpch_orders.vortex").await;
        for (file, admits_at_half) in [(local, true), (far, false)] {
            let plan = Arc::new(Plan::new(&file.scan()).unwrap());
            let mut admission = Admission::new(&plan, ZoneMaps::read(&plan).await.unwrap());
            let mut recent = Recent::new(8 << 20, &plan.memory);
            let half = plan.memory.take_anyway(plan.memory.limit() / 2 - (1 << 20));
            assert_eq!(!admission.admit(1, None, &mut recent).unwrap().is_empty(), admits_at_half);
            drop(half);
            let _less = plan.memory.take_anyway(plan.memory.limit() / 4);
            assert!(admits_at_half || !admission.admit(1, None, &mut recent).unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn segments_are_kept_if_dropping_them_gives_no_room() {
        let mut next = random(1);
        let file = written(Int64Array::from_iter_values((0..4 << 16).map(|_| next() as i64))).await;
        let plan = Arc::new(Plan::new(&file.scan()).unwrap());
        let mut admission = Admission::new(&plan, ZoneMaps::read(&plan).await.unwrap());
        // The segment that the last but one split used, while splits at work take half of the memory.
        let memory = plan.memory.take_anyway(0);
        let used = lease(&plan, &[SegmentId(0)], |_| Urgency::projection(0), memory).unwrap();
        let mut recent = Recent::new(8 << 20, &plan.memory);
        recent.keep(used);
        recent.keep(Vec::new());
        let (kept, memory) = (recent.charged(), plan.memory.take_anyway(plan.memory.limit() / 2));
        assert!(kept > 0);
        // The first splits need the same segment, but there is no room for another.
        let admitted = admission.admit(1, None, &mut recent).unwrap().len();
        assert!((1..3).contains(&admitted), "{admitted} splits");
        assert_eq!(recent.charged(), kept);
        drop(memory);
        assert!(!admission.admit(1, None, &mut recent).unwrap().is_empty());
    }
}
