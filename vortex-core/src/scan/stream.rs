//! The loop of a scan: admit splits, filter them, decode them, return batches.
//!
//! ```text
//! cursor ── admit ──► filtering ──► filtered ──► decoding ──► ready ──► batches
//!           requests                waits for    a few at
//!           filter columns          its turn     a time
//! ```
//!
//! Many splits are admitted ahead of decoding, as far as memory allows, so that few large reads fetch
//! what they need. Filtering and decoding run as independent tasks; the loop only moves splits from one
//! stage to the next.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::{FieldRef, SchemaRef};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};

use super::admission::most_admitted;
use super::at_work::AtWork;
use super::column::Column;
use super::cursor::Cursor;
use super::filter::Payoffs;
use super::plan::Plan;
use super::recent::Recent;
use super::task::{Decoded, Filtered, missing_bytes};
use super::zone_maps::ZoneMaps;
use super::{ScanMetrics, gather};
use crate::Result;
use crate::array::row_bytes::{max_rows, reserved_bytes};
use crate::error::ResultExt as _;
use crate::io::Share;

/// Splits that may wait for their last bytes, be decoded, or wait to be returned; and approximately how
/// many decoded bytes they may take if there are more than two.
const MAX_DECODING: usize = 8;
const MAX_DECODING_BYTES: u64 = 16 << 20;

/// Rows that statistics must predict for a split to be sure that some pass: the actual number may be
/// several times smaller.
const ROWS_EXPECTED: f64 = 8.0;

/// Bytes of segments kept per scan for later splits, while the memory is not needed otherwise: reading
/// them again costs more on remote storage.
const RECENT_BYTES_LOCAL: usize = 4 << 20;
const RECENT_BYTES_REMOTE: usize = 96 << 20;

/// Number of splits after which half of what is known about the filter is forgotten.
const REMEMBERED: u64 = 32;

/// Batches are not coalesced if their rows would take more bytes than this.
const MAX_COALESCED_BYTES: u64 = 1 << 30;

/// Record batches of a scan. Dropping it stops all work on its behalf.
pub struct BatchStream {
    schema: SchemaRef,
    batches: BoxStream<'static, Result<RecordBatch>>,
}

impl BatchStream {
    pub(super) fn start(plan: Plan) -> Result<Self> {
        let schema = Arc::clone(&plan.schema);
        let name = plan.file.source().name().to_owned();
        let state = Scan::new(plan)?;
        let batches = futures::stream::try_unfold(state, |mut state| async move {
            Ok(state.next().await?.map(|batch| (batch, state)))
        });
        let batches = batches.map(move |outcome: Result<RecordBatch>| outcome.at(|| &name));
        Ok(Self { schema, batches: batches.boxed() })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Stream for BatchStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.batches.poll_next_unpin(context)
    }
}

impl std::fmt::Debug for BatchStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchStream").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// A running scan.
pub(super) struct Scan {
    pub(super) plan: Arc<Plan>,
    pub(super) payoffs: Arc<Payoffs>,
    /// The position of the scan, once zone maps are read.
    pub(super) position: Option<(Cursor, ZoneMaps)>,
    /// Number of splits admitted so far.
    pub(super) admitted: u64,
    pub(super) filtering: AtWork<Filtered>,
    pub(super) filtered: VecDeque<Filtered>,
    pub(super) decoding: AtWork<Decoded>,
    pub(super) limits: AtOnce,
    /// Whether the wanted rows may be found long before the end.
    pub(super) stops_early: bool,
    ready: VecDeque<RecordBatch>,
    /// Joins the small batches of selective scans.
    coalescer: Option<BatchCoalescer>,
    /// Segments of completed splits that later ones are likely to need.
    pub(super) recent: Recent,
    pub(super) rows_left: u64,
    /// Rows that are still to be admitted, if there is no filter.
    pub(super) rows_to_admit: u64,
    /// Rows to be fetched individually instead of by splits.
    single_rows: VecDeque<Arc<[u64]>>,
    /// Whether no split is decoded until all admitted splits are filtered.
    filters_first: bool,
    /// Whether rows are being decoded that are among the best found.
    best_at_work: bool,
    /// Whether statistics predict rows that pass in every split.
    pub(super) passes_expected: bool,
    remote: bool,
    /// Whether there is a filter, and bytes of projected columns become known only while they are fetched.
    pub(super) takes_rounds: bool,
    /// Splits whose filter was evaluated, and how many of them had a row that passed.
    pub(super) checked: u64,
    pub(super) passed: u64,
}

/// How many splits may be in progress.
pub(super) struct AtOnce {
    admitted: usize,
    /// Fewer while it is uncertain how many splits are needed; raised with each completed split.
    pub(super) allowed: usize,
    /// Limit on splits being decoded; also raised with each completed split.
    decoding: usize,
    most_decoding: usize,
}

/// The progress of a split.
enum Progress {
    Filtered(Filtered),
    Decoded(Decoded),
    /// No split is in progress.
    Idle,
}

impl Scan {
    fn new(plan: Plan) -> Result<Self> {
        ScanMetrics::add(&plan.metrics.splits_planned, plan.count_splits(&plan.rows));
        let remote = plan.file.source().profile().remote;
        let row_bytes = plan.schema.fields().iter().map(|field| reserved_bytes(field.data_type(), 1));
        let reserved = row_bytes.fold(0, u64::saturating_add).saturating_mul(plan.batch_size as u64);
        let has_room =
            |field: &FieldRef| max_rows(field.data_type()).is_none_or(|most| most >= plan.batch_size);
        let coalesces = plan.is_selective()
            && !plan.schema.fields().is_empty()
            && reserved <= MAX_COALESCED_BYTES
            && plan.schema.fields().iter().all(has_room);
        let admitted = most_admitted(&plan);
        let decoding = (MAX_DECODING_BYTES / plan.split_bytes.max(1)).clamp(2, MAX_DECODING as u64) as usize;
        let stops_early = plan.best_first.is_some() || (plan.limit.is_some() && !plan.conjuncts.is_empty());
        let rows_left = plan.limit.unwrap_or(u64::MAX);
        let single_rows = gather::parts(&plan, rows_left)?;
        if !single_rows.is_empty() {
            ScanMetrics::add(&plan.metrics.splits_scanned, plan.count_splits(&plan.rows));
        }
        Ok(Self {
            payoffs: Arc::new(Payoffs::new(&plan)),
            position: None,
            admitted: 0,
            filtering: AtWork::new(plan.ordered),
            filtered: VecDeque::new(),
            decoding: AtWork::new(plan.ordered),
            limits: AtOnce {
                admitted,
                allowed: if stops_early { 1 } else { admitted },
                decoding: if plan.best_first.is_some() { 1 } else { decoding },
                most_decoding: decoding,
            },
            stops_early,
            ready: VecDeque::new(),
            coalescer: coalesces.then(|| {
                BatchCoalescer::new(Arc::clone(&plan.schema), plan.batch_size)
                    .with_biggest_coalesce_batch_size(Some(plan.batch_size / 2))
            }),
            recent: Recent::new(if remote { RECENT_BYTES_REMOTE } else { RECENT_BYTES_LOCAL }),
            rows_left,
            rows_to_admit: rows_left,
            single_rows,
            filters_first: false,
            best_at_work: false,
            passes_expected: false,
            remote,
            takes_rounds: !plan.conjuncts.is_empty() && plan.projection.iter().any(Column::takes_rounds),
            checked: 0,
            passed: 0,
            plan: Arc::new(plan),
        })
    }

    /// The next batch; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.position.is_none() {
            let zone_maps = ZoneMaps::read(&self.plan).await?;
            let cursor = match self.single_rows.is_empty() {
                true => Cursor::new(&self.plan, &zone_maps),
                false => Cursor::at_end(&self.plan),
            };
            // On remote storage, if any split may hold the best rows, all are filtered before any is
            // decoded: an extra round of reads costs more than the bytes that this wastes.
            if self.plan.best_first.is_some() && self.remote && matches!(cursor, Cursor::InOrder(_)) {
                self.limits.allowed = self.limits.admitted;
                self.filters_first = true;
            }
            if self.remote
                && let Some(share) = zone_maps.expected_share(&self.plan)
            {
                self.passes_expected = share * self.plan.split_step as f64 >= ROWS_EXPECTED;
            }
            self.position = Some((cursor, zone_maps));
        }
        loop {
            if self.rows_left == 0 {
                self.stop();
                return Ok(None);
            }
            // A caller that wants few rows may need no more after these.
            if self.stops_early
                && let Some(batch) = self.ready.pop_front()
            {
                return Ok(Some(self.hand_out(batch)));
            }
            self.tighten()?;
            self.admit()?;
            self.decode()?;
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(self.hand_out(batch)));
            }
            match self.progress().await? {
                Progress::Filtered(split) => self.keep_filtered(split),
                Progress::Decoded(split) => self.keep_decoded(split)?,
                Progress::Idle => {
                    if let Some(coalescer) = &mut self.coalescer {
                        coalescer.finish_buffered_batch()?;
                        self.ready.extend(std::iter::from_fn(|| coalescer.next_completed_batch()));
                    }
                    match self.ready.pop_front() {
                        Some(batch) => return Ok(Some(self.hand_out(batch))),
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    /// Waits until one of the splits makes progress.
    async fn progress(&mut self) -> Result<Progress> {
        poll_fn(|context| {
            if let Poll::Ready(Some(split)) = self.filtering.poll_next(context) {
                return Poll::Ready(split.map(Progress::Filtered));
            }
            if let Poll::Ready(Some(split)) = self.decoding.poll_next(context) {
                return Poll::Ready(split.map(Progress::Decoded));
            }
            if self.filtering.is_empty() && self.decoding.is_empty() && self.filtered.is_empty() {
                return Poll::Ready(Ok(Progress::Idle));
            }
            Poll::Pending
        })
        .await
    }

    fn hand_out(&mut self, batch: RecordBatch) -> RecordBatch {
        let rows = batch.num_rows() as u64;
        let batch = if rows > self.rows_left { batch.slice(0, self.rows_left as usize) } else { batch };
        self.rows_left -= batch.num_rows() as u64;
        ScanMetrics::add(&self.plan.metrics.rows_produced, batch.num_rows() as u64);
        batch
    }

    /// Drops all work, when no more rows are wanted.
    fn stop(&mut self) {
        if let Some((cursor, _)) = &mut self.position {
            *cursor = Cursor::at_end(&self.plan);
        }
        self.single_rows.clear();
        self.ready.clear();
        self.recent.clear();
        self.filtered.clear();
        self.filtering = AtWork::new(false);
        self.decoding = AtWork::new(false);
    }

    fn keep_filtered(&mut self, split: Filtered) {
        let checked = u64::from(!split.checks.is_empty());
        self.checked += checked;
        if self.checked >= REMEMBERED {
            (self.checked, self.passed) = (self.checked / 2, self.passed / 2);
        }
        if split.split.live.is_none() {
            self.recent.keep(split.leases);
            self.allow_more();
            return;
        }
        self.passed += checked;
        match self.plan.best_first {
            Some(_) => self.insert_best_first(split),
            None => self.filtered.push_back(split),
        }
    }

    fn keep_decoded(&mut self, split: Decoded) -> Result<()> {
        self.recent.keep(split.leases);
        self.allow_more();
        self.limits.decoding = (self.limits.decoding * 2).min(self.limits.most_decoding);
        if self.plan.best_first.is_some() {
            self.filters_first = true;
            // The filter is about to tighten, so looking at all splits is cheap now.
            self.limits.allowed = self.limits.admitted;
        }
        match &mut self.coalescer {
            None => self.ready.extend(split.batches),
            Some(coalescer) => {
                for batch in split.batches {
                    // A small remainder in the buffer would cause every following large batch to be
                    // copied.
                    if batch.num_rows() > self.plan.batch_size / 2 {
                        coalescer.finish_buffered_batch()?;
                    }
                    coalescer.push_batch(batch)?;
                }
                // A caller that looks for the first rows can tighten the filter with the rows found so
                // far.
                if self.plan.best_first.is_some() {
                    coalescer.finish_buffered_batch()?;
                }
                self.ready.extend(std::iter::from_fn(|| coalescer.next_completed_batch()));
            }
        }
        Ok(())
    }

    fn allow_more(&mut self) {
        self.limits.allowed = (self.limits.allowed * 2).min(self.limits.admitted);
    }

    /// Drops rows that filters have ruled out in the meantime, and splits without any rows left.
    fn tighten(&mut self) -> Result<()> {
        let Some((_, zone_maps)) = &mut self.position else { return Ok(()) };
        if zone_maps.refresh(&self.plan)? {
            let before = self.filtered.len();
            self.filtered.retain_mut(|split| {
                split.split.live = zone_maps.prune(&split.split);
                !split.split.live.is_none()
            });
            let withdrawn = before - self.filtered.len();
            ScanMetrics::add(&self.plan.metrics.splits_withdrawn, withdrawn as u64);
        }
        Ok(())
    }

    /// Starts decoding splits whose rows are known.
    fn decode(&mut self) -> Result<()> {
        while self.decoding.len() < self.limits.decoding
            && let Some(rows) = self.single_rows.pop_front()
        {
            self.decoding.start(gather::gather(Arc::clone(&self.plan), rows));
        }
        // The best rows are decoded first, once it is known where they are; several splits at once, to
        // have rows to compare with.
        if self.filters_first && !self.filtering.is_empty() {
            return Ok(());
        }
        // The filter tightens with every batch, so more is decoded only once all batches are returned.
        if self.plan.best_first.is_some() && !self.ready.is_empty() {
            return Ok(());
        }
        if !self.decode_best()? {
            return Ok(());
        }
        while self.decoding.len() < self.limits.decoding
            && let Some(split) = self.filtered.front_mut()
        {
            if !split.asked && self.plan.best_first.is_none() {
                // If nothing is being decoded, no other work will release memory.
                if !self.decoding.is_empty() {
                    break;
                }
                split.ask_anyway()?;
            }
            if let Some(split) = self.filtered.pop_front() {
                self.decoding.start(split.decode());
            }
        }
        Ok(())
    }

    /// Starts decoding the rows that are among the best found: they are wanted in any case. On remote storage,
    /// what they need is requested all at once, as far as memory allows. Returns whether other rows may be
    /// decoded: not while these may yet tighten the filter.
    fn decode_best(&mut self) -> Result<bool> {
        let Some(order) = &self.plan.best_first else { return Ok(true) };
        self.best_at_work &= !self.decoding.is_empty();
        let Some(last) = order.last_wanted() else { return Ok(true) };
        let (mut splits, mut asked) = (Vec::new(), BTreeSet::new());
        let mut memory = self.plan.memory.take_anyway(0);
        while let Some(split) = self.filtered.front()
            && split.best.reaches(&last)
        {
            if self.remote {
                // Chunks may be longer than splits.
                let missing = split.missing()?;
                let new: Vec<_> = missing.into_iter().filter(|id| !asked.contains(id)).collect();
                let Some(share) = self.reserve(missing_bytes(&self.plan, &new)?) else { break };
                memory.join(share);
                asked.extend(new);
            } else if self.decoding.len() + splits.len() >= self.limits.decoding {
                break;
            }
            self.best_at_work = true;
            if let Some(mut split) = self.filtered.pop_front() {
                if let Some(others) = split.split_off_after(&last) {
                    self.insert_best_first(others);
                }
                splits.push(split);
            }
        }
        if self.remote {
            Filtered::ask(&mut splits, memory)?;
        }
        splits.into_iter().for_each(|split| self.decoding.start(split.decode()));
        Ok(!self.best_at_work)
    }

    /// Reserves memory for the best rows of a split; segments kept for later splits make room. There is
    /// always enough for one split.
    fn reserve(&mut self, bytes: u64) -> Option<Share> {
        loop {
            if let Some(share) = self.plan.memory.take(bytes) {
                return Some(share);
            }
            if !self.recent.forget_some() {
                return (!self.best_at_work).then(|| self.plan.memory.take_anyway(bytes));
            }
        }
    }

    fn insert_best_first(&mut self, split: Filtered) {
        let at = self.filtered.partition_point(|other| other.best.place <= split.best.place);
        self.filtered.insert(at, split);
    }
}
