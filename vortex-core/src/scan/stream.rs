//! The loop of a scan: admit splits, filter them, decode them, return batches.
//!
//! ```text
//! admission ──► filtering ──► filtered ──► decoding ──► ready ──► batches
//! requests                    waits for    a few at
//! filter columns              its turn     a time
//! ```
//!
//! Many splits are admitted ahead of decoding, as far as memory allows, so that few large reads fetch
//! what they need. Filtering and decoding run as independent tasks; the loop only moves splits from one
//! stage to the next.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::{BoxStream, try_unfold};
use futures::{Stream, StreamExt as _, TryFutureExt as _};

use super::admission::Admission;
use super::decode::Ready;
use super::fetch::Recent;
use super::gather;
use super::plan::Plan;
use super::queue::SplitQueue;
use super::split::{DecodedSplit, FilteredSplit, Rows};
use super::tasks::Tasks;
use super::zone_maps::ZoneMaps;
use crate::io::runtime;
use crate::{Error, Result};

/// Splits that may wait for their last bytes, be decoded, or wait to be returned; and approximately how
/// many decoded bytes they may take if there are more than two.
const MAX_DECODING: usize = 8;
const MAX_DECODING_BYTES: u64 = 16 << 20;

/// Splits besides these, or parts of the rows that are wanted by position, whose rows may be fetched individually from
/// remote storage at once. They mostly wait: each takes a few rounds of reads.
const MAX_WAITING: usize = 32;

/// Bytes of segments kept per scan for later splits, while the memory is not needed otherwise: reading
/// them again costs more on remote storage.
const RECENT_BYTES_LOCAL: usize = 4 << 20;
const RECENT_BYTES_REMOTE: usize = 96 << 20;

/// Record batches of a scan. Dropping it stops all work on its behalf.
pub struct BatchStream {
    schema: SchemaRef,
    batches: BoxStream<'static, Result<RecordBatch>>,
}

impl BatchStream {
    pub(super) fn start(plan: Plan) -> Result<Self> {
        let schema = Arc::clone(&plan.schema);
        let name = plan.file.source().name().to_owned();
        plan.metrics.splits_planned.add(plan.split_count());
        let single_rows = gather::parts(&plan, plan.limit.unwrap_or(u64::MAX))?;
        if !single_rows.is_empty() {
            plan.metrics.splits_scanned.add(plan.split_count());
        }
        let batches = async move {
            runtime()?;
            let scan = Scan::start(plan, single_rows).await?;
            let next =
                |mut scan: Scan| async move { Ok::<_, Error>(scan.next().await?.map(|batch| (batch, scan))) };
            Ok::<_, Error>(try_unfold(scan, next))
        };
        let batches = batches.try_flatten_stream();
        let batches =
            batches.map(move |outcome: Result<RecordBatch>| outcome.map_err(|error| error.in_file(&name)));
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
struct Scan {
    plan: Arc<Plan>,
    admission: Admission,
    filtering: Tasks<FilteredSplit>,
    filtered: SplitQueue,
    /// Whether no split is decoded until all admitted splits are filtered.
    filters_first: bool,
    decoding: Tasks<DecodedSplit>,
    /// Splits that may be decoded at once; raised with each completed split, up to `most_decoding`.
    allowed_decoding: usize,
    most_decoding: usize,
    /// How many of them only wait for the reads of single rows, and how many may.
    waiting: usize,
    most_waiting: usize,
    ready: Ready,
    /// Segments of completed splits that later ones are likely to need.
    recent: Recent,
    rows_left: u64,
    /// Rows to be fetched individually instead of by splits.
    single_rows: VecDeque<Arc<[u64]>>,
    /// Whether any split has made progress since more work was looked for.
    has_progressed: bool,
}

/// The progress of a split.
enum Progress {
    Filtered(FilteredSplit),
    Decoded(DecodedSplit),
    /// No split is in progress.
    Idle,
}

impl Scan {
    /// Reads the zone maps and prepares what the rest of the scan needs.
    async fn start(mut plan: Plan, single_rows: VecDeque<Arc<[u64]>>) -> Result<Self> {
        let zone_maps = ZoneMaps::read(&plan).await?;
        if plan.best_first.as_ref().is_some_and(|order| order.is_useless(&plan, &zone_maps)) {
            plan.best_first = None;
        }
        let plan = Arc::new(plan);
        let mut admission = Admission::new(&plan, zone_maps);
        if !single_rows.is_empty() {
            admission.stop();
        }
        // On remote storage, if any split may hold the best rows, all are filtered before any is
        // decoded: an extra round of reads costs more than the bytes that this wastes.
        let filters_first = plan.best_first.is_some() && plan.is_remote() && admission.is_in_order();
        if filters_first {
            admission.allow_most();
        }
        let recent = if plan.is_remote() { RECENT_BYTES_REMOTE } else { RECENT_BYTES_LOCAL };
        let decoding = (MAX_DECODING_BYTES / plan.split_bytes.max(1)).clamp(2, MAX_DECODING as u64) as usize;
        Ok(Self {
            admission,
            filtering: Tasks::new(plan.ordered),
            filtered: SplitQueue::new(&plan),
            filters_first,
            decoding: Tasks::new(plan.ordered),
            allowed_decoding: if plan.best_first.is_some() { 1 } else { decoding },
            most_decoding: decoding,
            waiting: 0,
            most_waiting: if plan.is_remote() { MAX_WAITING } else { 0 },
            ready: Ready::new(&plan),
            recent: Recent::new(recent, &plan.memory),
            rows_left: plan.limit.unwrap_or(u64::MAX),
            single_rows,
            has_progressed: false,
            plan,
        })
    }

    /// The next batch; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.rows_left == 0 {
                return Ok(None);
            }
            // A caller that wants few rows may need no more after these.
            if self.plan.stops_early()
                && let Some(batch) = self.ready.pop()?
            {
                return Ok(Some(self.hand_out(batch)));
            }
            // Until a split makes progress, none releases memory, and there are batches to return.
            if self.has_progressed || self.ready.is_empty() {
                self.has_progressed = false;
                self.tighten()?;
                self.admit()?;
                self.decode()?;
            }
            if let Some(batch) = self.ready.pop()? {
                return Ok(Some(self.hand_out(batch)));
            }
            if self.admission.is_paused() {
                tokio::task::yield_now().await;
                continue;
            }
            match self.progress().await? {
                Progress::Filtered(split) => self.keep_filtered(split),
                Progress::Decoded(split) => self.keep_decoded(split)?,
                Progress::Idle => {
                    self.ready.finish()?;
                    return Ok(self.ready.pop()?.map(|batch| self.hand_out(batch)));
                }
            }
            self.has_progressed = true;
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

    /// Counts the rows of a batch, and stops all work once no more are wanted.
    fn hand_out(&mut self, batch: RecordBatch) -> RecordBatch {
        let rows = batch.num_rows() as u64;
        let batch = if rows > self.rows_left { batch.slice(0, self.rows_left as usize) } else { batch };
        self.rows_left -= batch.num_rows() as u64;
        self.plan.metrics.rows_produced.add(batch.num_rows() as u64);
        if self.rows_left == 0 {
            self.stop();
        }
        batch
    }

    /// Admits splits as far as there is room for them.
    fn admit(&mut self) -> Result<()> {
        let at_work = self.filtering.len() + self.filtered.len() + self.decoding.len();
        for split in self.admission.admit(at_work, self.filtered.best_place(), &mut self.recent)? {
            // If some splits have to be filtered, all go through the same queue, to keep their order.
            if split.needs_filter() || !self.filtering.is_empty() {
                self.filtering.start(split.filter());
            } else {
                self.filtered.push(split.into_filtered());
            }
        }
        Ok(())
    }

    /// Drops all work.
    fn stop(&mut self) {
        self.admission.stop();
        self.single_rows.clear();
        self.ready.clear();
        self.recent.clear();
        self.filtered.clear();
        self.filtering = Tasks::new(false);
        self.decoding = Tasks::new(false);
        self.waiting = 0;
    }

    fn keep_filtered(&mut self, split: FilteredSplit) {
        self.admission.learn(&split);
        if split.task.split.live.is_none() {
            self.recent.keep(split.task.leases);
            self.admission.allow_more();
            return;
        }
        self.filtered.push(split);
    }

    fn keep_decoded(&mut self, split: DecodedSplit) -> Result<()> {
        self.recent.keep(split.leases);
        self.waiting -= usize::from(split.waited);
        self.admission.allow_more();
        self.allowed_decoding = (self.allowed_decoding * 2).min(self.most_decoding);
        if self.plan.best_first.is_some() {
            self.filters_first = true;
            // The filter is about to tighten, so looking at all splits is cheap now.
            self.admission.allow_most();
        }
        match split.rows {
            Rows::Decoded(batches) => batches.into_iter().try_for_each(|batch| self.ready.push(batch))?,
            Rows::Late(pieces) => self.ready.push_late(pieces)?,
        }
        // A caller that looks for the first rows can tighten the filter with the rows found so far.
        if self.plan.best_first.is_some() || self.ready.row_count() >= self.rows_left {
            self.ready.finish()?;
        }
        Ok(())
    }

    /// Drops rows that filters have ruled out in the meantime.
    fn tighten(&mut self) -> Result<()> {
        if let Some(zone_maps) = self.admission.tightened(self.filtered.first_row())? {
            self.filtered.prune(zone_maps);
        }
        Ok(())
    }

    /// Starts decoding splits whose rows are known.
    fn decode(&mut self) -> Result<()> {
        while self.decoding.len() < self.allowed_decoding.max(self.most_waiting)
            && let Some(rows) = self.single_rows.pop_front()
        {
            let gathered = gather::gather(Arc::clone(&self.plan), rows);
            self.decoding.start(async {
                Ok(DecodedSplit { rows: Rows::Decoded(gathered.await?), leases: Vec::new(), waited: false })
            });
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
        let room = self.allowed_decoding.saturating_sub(self.decoding.len() - self.waiting);
        let to_wait = self.most_waiting.saturating_sub(self.waiting);
        let splits = self.filtered.take(room, to_wait, self.decoding.is_empty(), &mut self.recent)?;
        for split in splits {
            self.waiting += usize::from(split.waits_for_rounds());
            self.decoding.start(split.decode());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use arrow::array::Int64Array;
    use arrow::compute::SortOptions;
    use futures::TryStreamExt as _;

    use super::*;
    use crate::VortexFile;
    use crate::expr::{Expr, SharedFilter, column};
    use crate::given::{Refuses, Stored, file_of, written};
    use crate::io::{Scheduler, StorageProfile};
    use crate::kernels::random;
    use crate::scan::BestRows;
    use crate::write::WriteOptions;

    /// A file of 32 splits, each with about four numbers below four, at random places.
    async fn numbers() -> VortexFile {
        let mut next = random(1);
        let mut batch = |_| {
            let numbers = Int64Array::from_iter_values((0..1 << 16).map(|_| (next() >> 48) as i64));
            RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap()
        };
        file_of((0..32).map(&mut batch)).await
    }

    #[tokio::test]
    async fn a_scan_stops_once_the_limit_is_reached_by_the_few_rows_that_pass() {
        let scan = numbers().await.scan().with_filter(column("number").lt(4)).with_limit(10);
        let metrics = Arc::clone(scan.metrics());
        let batches: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 10);
        let scanned = metrics.splits_scanned.get();
        assert!(scanned <= 12, "{scanned} of {}", metrics.splits_planned.get());
    }

    #[tokio::test]
    async fn memory_that_was_refused_is_not_asked_for_again_with_every_batch() {
        let pool = Arc::new(Refuses::default());
        for filter in [column("number").is_not_null(), column("number").gt(4)] {
            let scan = numbers().await.scan().with_filter(filter).with_batch_size(1 << 10);
            let scan = scan.with_memory_pool(Arc::clone(&pool) as _);
            let batches: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
            assert!(batches.len() >= 32 * 64);
            let asked = pool.0.swap(0, Ordering::Relaxed);
            assert!(asked < 32 * 16, "{asked} times");
        }
    }

    /// A remote file of 32 splits of random numbers, whose reads take a while.
    async fn remote() -> (Arc<Stored>, VortexFile) {
        let mut next = random(1);
        let mut batch = |_| {
            let mut numbers =
                || Arc::new(Int64Array::from_iter_values((0..1 << 16).map(|_| next() as i64))) as _;
            RecordBatch::try_from_iter([("key", numbers()), ("value", numbers())]).unwrap()
        };
        let bytes = written((0..32).map(&mut batch), WriteOptions::new()).await;
        let stored = Stored::new(bytes, StorageProfile::REMOTE).with_delay(Duration::from_millis(10));
        let stored = Arc::new(stored);
        let file = VortexFile::open(Arc::clone(&stored) as _).await.unwrap();
        (stored, file)
    }

    #[tokio::test]
    async fn a_scan_that_stands_still_leaves_memory_to_others() {
        let (stored, file) = remote().await;
        let scheduler = Scheduler::new(16 << 20);
        let start =
            || file.scan().with_projection(["key"]).with_scheduler(Arc::clone(&scheduler)).into_stream();
        let mut still = start().unwrap();
        still.next().await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let before = stored.alone.load(Ordering::SeqCst);
        let batches: Vec<RecordBatch> = start().unwrap().try_collect().await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 32 << 16);
        let rounds = stored.alone.load(Ordering::SeqCst) - before;
        assert!(rounds < 16, "{rounds} rounds of reads for 32 splits");
    }

    #[tokio::test]
    async fn if_most_splits_hold_wanted_rows_they_are_requested_together() {
        let (_, file) = remote().await;
        let reads = async |wanted: Option<usize>| {
            let mut scan = file.scan().with_filter(Expr::Dynamic(Arc::new(SharedFilter::new(["key"]))));
            if let Some(rows) = wanted {
                scan = scan.with_best_first("key", SortOptions::default());
                scan = scan.with_best_rows(Arc::new(BestRows::new(rows)));
            }
            let metrics = Arc::clone(scan.metrics());
            let batches: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
            assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 32 << 16);
            metrics.reads.get()
        };
        let (all, many) = (reads(None).await, reads(Some(5000)).await);
        assert!(many <= 2 * all, "{many} instead of {all}");
    }

    #[tokio::test]
    async fn work_stops_with_the_last_wanted_row() {
        let scheduler = Scheduler::new(1 << 30);
        let scan = numbers().await.scan().with_filter(column("number").lt(4)).with_limit(10);
        let mut stream = scan.with_scheduler(Arc::clone(&scheduler)).into_stream().unwrap();
        let mut rows = 0;
        while rows < 10 {
            rows += stream.next().await.unwrap().unwrap().num_rows();
        }
        // Tasks are gone once the runtime had a chance to drop them.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(scheduler.bytes_in_use(), 0);
        assert!(stream.next().await.is_none());
    }
}
