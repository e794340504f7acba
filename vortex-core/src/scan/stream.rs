//! The loop of a scan: admit splits in order, hand out batches as they are decoded.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesOrdered, FuturesUnordered};
use futures::{FutureExt as _, Stream, StreamExt as _, TryFutureExt as _};

use super::plan::Plan;
use super::recent::Recent;
use super::task::{Outcome, Task, first_request, lease};
use super::zone_maps::ZoneMaps;
use super::{ScanMetrics, gather};
use crate::Result;
use crate::array::row_bytes::reserved_bytes;
use crate::error::ResultExt as _;
use crate::expr::Expr;
use crate::file::SegmentId;
use crate::io::Share;
use crate::layout::SegmentSet;

/// Splits that may be at work at once: enough to hide the latency of storage.
const MAX_SPLITS_LOCAL: usize = 4;
const MAX_SPLITS_REMOTE: usize = 16;

/// Bytes of segments kept for later splits, per scan: reading them again costs more from afar.
const RECENT_BYTES_LOCAL: usize = 16 << 20;
const RECENT_BYTES_REMOTE: usize = 64 << 20;

/// Batches of rows larger than this together are handed out as they are.
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

/// Splits at work, in the order their outcomes are wanted.
enum AtWork {
    Ordered(FuturesOrdered<BoxFuture<'static, Result<Outcome>>>),
    Unordered(FuturesUnordered<BoxFuture<'static, Result<Outcome>>>),
}

impl AtWork {
    fn len(&self) -> usize {
        match self {
            AtWork::Ordered(futures) => futures.len(),
            AtWork::Unordered(futures) => futures.len(),
        }
    }

    fn push(&mut self, future: BoxFuture<'static, Result<Outcome>>) {
        match self {
            AtWork::Ordered(futures) => futures.push_back(future),
            AtWork::Unordered(futures) => futures.push(future),
        }
    }

    async fn next(&mut self) -> Option<Result<Outcome>> {
        match self {
            AtWork::Ordered(futures) => futures.next().await,
            AtWork::Unordered(futures) => futures.next().await,
        }
    }
}

/// A running scan.
struct Scan {
    plan: Arc<Plan>,
    /// The first row of the splits not yet put to work.
    next_row: u64,
    zone_maps: Option<ZoneMaps>,
    at_work: AtWork,
    max_at_work: usize,
    ready: VecDeque<RecordBatch>,
    /// Joins small batches of selective scans.
    coalescer: Option<BatchCoalescer>,
    /// Segments of splits that are done, likely needed by those that follow.
    recent: Recent,
    rows_left: u64,
    /// Rows to be fetched by themselves, in place of splits.
    single_rows: VecDeque<Arc<[u64]>>,
    /// Splits whose filter was evaluated, and how many of them had a row that passed.
    filtered: u64,
    passed: u64,
}

impl Scan {
    fn new(plan: Plan) -> Result<Self> {
        ScanMetrics::add(&plan.metrics.splits_planned, plan.count_splits(&plan.rows));
        let selective = !plan.conjuncts.is_empty() || plan.picks_rows();
        let remote =
            plan.file.source().profile().coalesce_gap > crate::io::StorageProfile::LOCAL.coalesce_gap;
        let row_bytes = plan.schema.fields().iter().map(|field| reserved_bytes(field.data_type(), 1));
        let reserved = row_bytes.fold(0, u64::saturating_add).saturating_mul(plan.batch_size as u64);
        let coalesces = selective && !plan.schema.fields().is_empty() && reserved <= MAX_COALESCED_BYTES;
        let rows_left = plan.limit.unwrap_or(u64::MAX);
        let single_rows = gather::parts(&plan, rows_left)?;
        if !single_rows.is_empty() {
            ScanMetrics::add(&plan.metrics.splits_scanned, plan.count_splits(&plan.rows));
        }
        Ok(Self {
            next_row: if single_rows.is_empty() { plan.rows.start } else { plan.rows.end },
            single_rows,
            zone_maps: None,
            at_work: if plan.ordered {
                AtWork::Ordered(FuturesOrdered::new())
            } else {
                AtWork::Unordered(FuturesUnordered::new())
            },
            max_at_work: if remote { MAX_SPLITS_REMOTE } else { MAX_SPLITS_LOCAL },
            ready: VecDeque::new(),
            coalescer: coalesces.then(|| {
                BatchCoalescer::new(Arc::clone(&plan.schema), plan.batch_size)
                    .with_biggest_coalesce_batch_size(Some(plan.batch_size / 2))
            }),
            recent: Recent::new(if remote { RECENT_BYTES_REMOTE } else { RECENT_BYTES_LOCAL }),
            rows_left,
            filtered: 0,
            passed: 0,
            plan: Arc::new(plan),
        })
    }

    /// The next batch, or `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.zone_maps.is_none() {
            self.zone_maps = Some(ZoneMaps::read(&self.plan).await?);
        }
        loop {
            if self.rows_left == 0 {
                self.stop();
                return Ok(None);
            }
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(self.hand_out(batch)));
            }
            self.admit()?;
            match self.at_work.next().await.transpose()? {
                Some(outcome) => self.finish(outcome)?,
                None => {
                    if let Some(coalescer) = &mut self.coalescer {
                        coalescer.finish_buffered_batch()?;
                        self.ready.extend(std::iter::from_fn(|| coalescer.next_completed_batch()));
                    }
                    if self.ready.is_empty() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn hand_out(&mut self, batch: RecordBatch) -> RecordBatch {
        let rows = batch.num_rows() as u64;
        let batch = if rows > self.rows_left { batch.slice(0, self.rows_left as usize) } else { batch };
        self.rows_left -= batch.num_rows() as u64;
        ScanMetrics::add(&self.plan.metrics.rows_produced, batch.num_rows() as u64);
        batch
    }

    /// Drops all work; nothing more is wanted.
    fn stop(&mut self) {
        self.next_row = self.plan.rows.end;
        self.single_rows.clear();
        self.ready.clear();
        self.recent.clear();
        self.at_work = AtWork::Unordered(FuturesUnordered::new());
    }

    fn finish(&mut self, outcome: Outcome) -> Result<()> {
        self.filtered += u64::from(outcome.filtered);
        self.passed += u64::from(outcome.filtered && !outcome.batches.is_empty());
        self.recent.keep(outcome.leases);
        match &mut self.coalescer {
            None => self.ready.extend(outcome.batches),
            Some(coalescer) => {
                for batch in outcome.batches {
                    coalescer.push_batch(batch)?;
                }
                self.ready.extend(std::iter::from_fn(|| coalescer.next_completed_batch()));
            }
        }
        Ok(())
    }

    /// Whether almost every split has rows that pass: then what is projected is asked for at
    /// once with what is filtered, which costs no bytes and saves a round trip.
    fn filter_rarely_empties(&self) -> bool {
        self.filtered >= 2 && self.passed * 4 >= self.filtered * 3
    }

    /// Puts splits to work, in order, as far as their number and the budget allow. What they
    /// all need first is asked for in one go, so that neighbours share reads.
    fn admit(&mut self) -> Result<()> {
        // Several at a time, so that chunks that are neighbours in the file share a read.
        if self.at_work.len() > self.max_at_work / 2 {
            return Ok(());
        }
        while self.at_work.len() < self.max_at_work
            && let Some(rows) = self.single_rows.pop_front()
        {
            let batches = gather::gather(Arc::clone(&self.plan), rows);
            let outcome = batches.map_ok(|batches| Outcome { batches, filtered: false, leases: Vec::new() });
            self.at_work.push(outcome.boxed());
        }
        let eager = self.filter_rarely_empties();
        let zone_maps = self.zone_maps.as_mut().expect("zone maps are read before splits are admitted");
        zone_maps.refresh(&self.plan)?;
        let mut admitted: Vec<(Task, Vec<SegmentId>, Share)> = Vec::new();
        let mut planned_rows = 0u64;
        while self.at_work.len() + admitted.len() < self.max_at_work {
            // Rows that are ruled out are skipped in one leap, however many they are.
            let possible = self.plan.split_start(zone_maps.first_possible(self.next_row));
            let ruled_out = self.next_row..possible.max(self.next_row).min(self.plan.rows.end);
            ScanMetrics::add(&self.plan.metrics.splits_pruned, self.plan.count_splits(&ruled_out));
            ScanMetrics::add(&self.plan.metrics.rows_pruned, self.plan.count_rows(&ruled_out));
            let Some(mut split) = self.plan.split_from(ruled_out.end) else {
                self.next_row = self.plan.rows.end;
                break;
            };
            self.next_row = split.rows.end;
            let live = zone_maps.prune(&split);
            let pruned = (split.live.true_count() - live.true_count()) as u64;
            ScanMetrics::add(&self.plan.metrics.rows_pruned, pruned);
            if live.is_none() {
                ScanMetrics::add(&self.plan.metrics.splits_pruned, 1);
                continue;
            }
            split.live = live;
            let mut conjuncts = zone_maps.open_conjuncts(&split);
            // Dynamic filters prune whole zones; whoever made them checks the rows.
            conjuncts.retain(|at| !matches!(self.plan.conjuncts[*at].expr, Expr::Dynamic(_)));
            // Without a filter the limit says how many rows are needed at all.
            if conjuncts.is_empty() && self.plan.conjuncts.is_empty() {
                let left = self.rows_left.saturating_sub(planned_rows);
                split.live = split.live.limit(usize::try_from(left).unwrap_or(usize::MAX));
                planned_rows += split.live.true_count() as u64;
            }
            let footer = self.plan.file.footer();
            let have = SegmentSet::new(footer);
            let mut want = Vec::new();
            first_request(&self.plan, &split, &conjuncts, eager, &have, &mut want)?;
            want.sort_unstable();
            want.dedup();
            let bytes = want.iter().map(|id| footer.segment(*id).map(|s| u64::from(s.length)));
            let bytes = bytes.sum::<Result<u64>>()?;
            let first = self.at_work.len() + admitted.len() == 0;
            let Some(share) = self.plan.scheduler.budget().take(bytes, first) else {
                self.next_row = split.rows.start;
                break;
            };
            ScanMetrics::add(&self.plan.metrics.splits_scanned, 1);
            let task = Task { plan: Arc::clone(&self.plan), split, conjuncts, eager, leases: Vec::new() };
            admitted.push((task, want, share));
            if self.plan.conjuncts.is_empty() && planned_rows >= self.rows_left {
                self.next_row = self.plan.rows.end;
            }
        }
        let mut all: Vec<SegmentId> = admitted.iter().flat_map(|(_, want, _)| want.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        let leases = lease(&self.plan, &all)?;
        for (mut task, want, share) in admitted {
            task.leases = want
                .iter()
                .filter_map(|id| all.binary_search(id).ok().and_then(|at| leases.get(at).cloned()))
                .collect();
            let run = async move {
                let _share = share;
                task.run().await
            };
            self.at_work.push(run.boxed());
        }
        Ok(())
    }
}
