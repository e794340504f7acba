//! Splits whose live rows are known, until they are decoded: in the order of rows, or best first.

use std::collections::VecDeque;
use std::sync::Arc;

use super::best_first::{BestFirst, Place};
use super::fetch::{LeaseRequest, Recent, missing_bytes};
use super::plan::Plan;
use super::split::FilteredSplit;
use super::zone_maps::ZoneMaps;
use crate::Result;
use crate::segments::SegmentId;

/// Splits whose live rows are known.
pub(super) struct SplitQueue {
    plan: Arc<Plan>,
    splits: VecDeque<FilteredSplit>,
    /// Whether rows are being decoded that are among the best found.
    best_at_work: bool,
    /// Rows that the limit still allows, not counting those taken out.
    rows_left: u64,
}

impl SplitQueue {
    pub(super) fn new(plan: &Arc<Plan>) -> Self {
        let rows_left = plan.limit.unwrap_or(u64::MAX);
        Self { plan: Arc::clone(plan), splits: VecDeque::new(), best_at_work: false, rows_left }
    }

    pub(super) fn len(&self) -> usize {
        self.splits.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.splits.is_empty()
    }

    /// The first row of all splits that wait.
    pub(super) fn first_row(&self) -> Option<u64> {
        self.splits.iter().map(|split| split.task.split.rows.start).min()
    }

    /// Drops all splits.
    pub(super) fn clear(&mut self) {
        self.splits.clear();
    }

    /// The place of the best row, if rows are read best first.
    pub(super) fn best_place(&self) -> Option<&Place> {
        self.plan.best_first.as_ref()?;
        Some(&self.splits.front()?.best.place)
    }

    pub(super) fn push(&mut self, split: FilteredSplit) {
        match self.plan.best_first {
            Some(_) => {
                let at = self.splits.partition_point(|other| other.best.place <= split.best.place);
                self.splits.insert(at, split);
            }
            None => self.splits.push_back(split),
        }
    }

    /// Drops rows that filters have ruled out in the meantime, and splits without any rows left.
    pub(super) fn prune(&mut self, zone_maps: &ZoneMaps) {
        let before = self.splits.len();
        let metrics = &self.plan.metrics;
        self.splits.retain_mut(|FilteredSplit { task, .. }| {
            let live = zone_maps.prune(&task.split);
            metrics.rows_pruned.add((task.split.live.true_count() - live.true_count()) as u64);
            task.split.live = live;
            !task.split.live.is_none()
        });
        let withdrawn = before - self.splits.len();
        self.plan.metrics.splits_withdrawn.add(withdrawn as u64);
    }

    /// Takes out up to `room` splits to decode: those with rows among the best found or, while there are none of these,
    /// the first ones. As many as `to_wait` that [wait for rounds](FilteredSplit::waits_for_rounds) need no room. Also
    /// requests what others need, even without `room`. If `idle`, nothing is being decoded, so that no other work will
    /// release memory: what one split needs is requested anyway.
    pub(super) fn take(
        &mut self,
        room: usize,
        to_wait: usize,
        idle: bool,
        recent: &mut Recent,
    ) -> Result<Vec<FilteredSplit>> {
        let best = self.take_best(room, idle, recent)?;
        // The best rows may yet tighten the filter.
        if self.best_at_work { Ok(best) } else { self.take_first(room, to_wait, idle, recent) }
    }

    /// Takes out the rows that are among the best found, of at most `room` splits: they are wanted in any case. On
    /// remote storage, what all of them need is requested at once, as far as memory allows; those beyond `room` wait in
    /// the queue. Segments kept for later splits make room, and there is always enough memory for one split.
    fn take_best(&mut self, room: usize, idle: bool, recent: &mut Recent) -> Result<Vec<FilteredSplit>> {
        self.best_at_work &= !idle;
        let last = self.plan.best_first.as_ref().and_then(BestFirst::last_wanted);
        let Some(last) = last else { return Ok(Vec::new()) };
        let (mut taken, mut request) = (Vec::new(), LeaseRequest::new(&self.plan));
        while let Some(split) = self.splits.front()
            && split.best.reaches(&last)
            && (self.plan.is_remote() || taken.len() < room)
        {
            let parts = split.split_after(&last);
            let first = parts.as_ref().map_or(split, |(first, _)| first);
            let ids =
                if self.plan.is_remote() && first.is_unrequested() { Some(first.missing()?) } else { None };
            let has_memory = match &ids {
                Some(ids) => request.add(&first.needs(ids, !self.best_at_work), recent)?,
                None => !self.best_at_work || has_memory_for(&self.plan, first)?,
            };
            if !has_memory {
                break;
            }
            self.best_at_work = true;
            let Some(whole) = self.splits.pop_front() else { break };
            let first = match parts {
                Some((first, others)) => {
                    self.push(others);
                    first
                }
                None => whole,
            };
            taken.push((first, ids));
        }
        let requested = request.send()?;
        let hold = |(mut split, ids): (FilteredSplit, Option<Vec<SegmentId>>)| {
            ids.into_iter().for_each(|ids| split.hold(&requested, &ids));
            split
        };
        let mut splits: Vec<FilteredSplit> = taken.into_iter().map(hold).collect();
        splits.drain(room.min(splits.len())..).rev().for_each(|split| self.splits.push_front(split));
        Ok(splits)
    }

    /// Takes out the first splits, as far as the limit needs them; if `idle`, those taken out before had fewer rows
    /// than they promised.
    fn take_first(
        &mut self,
        mut room: usize,
        mut to_wait: usize,
        idle: bool,
        recent: &mut Recent,
    ) -> Result<Vec<FilteredSplit>> {
        self.request_waiting(recent)?;
        let mut taken = Vec::new();
        while let Some(next) = self.splits.front() {
            let left = if next.waits_for_rounds() && to_wait > 0 { &mut to_wait } else { &mut room };
            if *left == 0 {
                break;
            }
            *left -= 1;
            let idle = idle && taken.is_empty();
            if self.rows_left == 0 && !idle {
                break;
            }
            let Some(split) = self.pop(idle, recent)? else { break };
            self.rows_left = self.rows_left.saturating_sub(split.row_count());
            taken.push(split);
        }
        Ok(taken)
    }

    /// Requests what splits need that were refused memory for it when they were filtered, or [wait for their
    /// turn](Plan::requests_within_limit), as far as there is memory now and the limit needs them: all at once, so that
    /// they share reads. If rows are read best first, it is requested only for the best.
    fn request_waiting(&mut self, recent: &mut Recent) -> Result<()> {
        if self.plan.best_first.is_some() {
            return Ok(());
        }
        let (mut waiting, mut request) = (Vec::new(), LeaseRequest::new(&self.plan));
        let mut rows_left = self.rows_left;
        for split in &mut self.splits {
            if rows_left == 0 {
                break;
            }
            rows_left = rows_left.saturating_sub(split.row_count());
            if !split.is_unrequested() {
                continue;
            }
            let ids = split.missing()?;
            if !request.add(&split.needs(&ids, false), recent)? {
                break;
            }
            waiting.push((split, ids));
        }
        let requested = request.send()?;
        waiting.into_iter().for_each(|(split, ids)| split.hold(&requested, &ids));
        Ok(())
    }

    /// Takes out the first split, once what it needs has been requested. If `idle`, that is requested anyway.
    fn pop(&mut self, idle: bool, recent: &mut Recent) -> Result<Option<FilteredSplit>> {
        let Some(split) = self.splits.front_mut() else { return Ok(None) };
        if split.is_unrequested() && self.plan.best_first.is_some() {
            // It takes memory once it is decoded, in any case.
            if !idle && !has_memory_for(&self.plan, split)? {
                return Ok(None);
            }
        } else if split.is_unrequested() {
            if !idle {
                return Ok(None);
            }
            let (ids, mut request) = (split.missing()?, LeaseRequest::new(&self.plan));
            request.add(&split.needs(&ids, true), recent)?;
            split.hold(&request.send()?, &ids);
        }
        Ok(self.splits.pop_front())
    }
}

/// Whether there is memory at the moment for what a split is yet to request.
fn has_memory_for(plan: &Plan, split: &FilteredSplit) -> Result<bool> {
    let bytes = if split.is_unrequested() { missing_bytes(plan, &split.missing()?)? } else { 0 };
    Ok(bytes == 0 || plan.memory.take(bytes).is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray};
    use arrow::compute::SortOptions;
    use futures::TryStreamExt as _;

    use super::super::admission::Admission;
    use super::*;
    use crate::VortexFile;
    use crate::expr::{Expr, SharedFilter, column};
    use crate::given::{Stored, written};
    use crate::io::{Scheduler, StorageProfile};
    use crate::kernels::random;
    use crate::write::WriteOptions;

    /// A remote file of these batches, whose reads take a while.
    async fn remote(batches: impl IntoIterator<Item = RecordBatch>) -> Arc<Stored> {
        let profile = StorageProfile { max_read: 1 << 20, coalesce_gap: 0, ..StorageProfile::REMOTE };
        let bytes = written(batches, WriteOptions::new()).await;
        Arc::new(Stored::new(bytes, profile).with_delay(Duration::from_millis(20)))
    }

    #[tokio::test]
    async fn splits_that_were_refused_memory_are_requested_together_once_there_is_some() {
        let mut random = random(1);
        let mut next = || i128::from(random() >> 4);
        // Each of 32 splits has a mebibyte of numbers that nothing can compress, half of which pass.
        let mut batch = |_| {
            let numbers = Decimal128Array::from_iter_values((0..1 << 16).map(|_| next() * next()));
            let passes =
                numbers.values().iter().map(|number| if number >> 40 & 1 == 1 { "yes" } else { "no" });
            let passes: ArrayRef = Arc::new(StringArray::from_iter_values(passes));
            let numbers: ArrayRef = Arc::new(numbers.with_precision_and_scale(38, 0).unwrap());
            RecordBatch::try_from_iter([("passes", passes), ("number", numbers)]).unwrap()
        };
        let remote = remote((0..32).map(&mut batch)).await;
        let file = VortexFile::open(Arc::clone(&remote) as _).await.unwrap();
        let scan = file.scan().with_filter(column("passes").like("%e%")).with_projection(["number"]);
        // A scan takes half of it.
        let scan = scan.with_scheduler(Scheduler::new(16 << 20));
        let metrics = Arc::clone(scan.metrics());
        let batches: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert!(rows > 1 << 19, "{rows}");
        let splits = metrics.splits_scanned.get();
        let alone = remote.alone.load(Ordering::SeqCst);
        assert!(alone * 2 < splits, "{alone} rounds of reads for {splits} splits");
    }

    #[tokio::test]
    async fn below_a_limit_short_filters_are_read_together_and_other_columns_as_far_as_it_needs() {
        let mut next = random(3);
        // Each of 32 splits has half a mebibyte of numbers that nothing can compress, and ten rows that pass.
        let mut batch = |_| {
            let numbers = Int64Array::from_iter_values((0..1 << 16).map(|_| next() as i64));
            let passes = Int64Array::from_iter_values((0..1 << 16).map(|row| i64::from(row % 6_500 == 99)));
            RecordBatch::try_from_iter([
                ("passes", Arc::new(passes) as ArrayRef),
                ("number", Arc::new(numbers) as ArrayRef),
            ])
            .unwrap()
        };
        let remote = remote((0..32).map(&mut batch)).await;
        let file = VortexFile::open(Arc::clone(&remote) as _).await.unwrap();
        let segments = |rows: u64| rows.div_ceil(11) * (1 << 19);
        for limit in [3, 30, 300] {
            let scan = file.scan().with_filter(column("passes").eq(1)).with_limit(limit);
            let scan = scan.with_row_access(crate::scan::RowAccess::Segments);
            let metrics = Arc::clone(scan.metrics());
            remote.alone.store(0, Ordering::SeqCst);
            let batches: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
            assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>() as u64, limit);
            let (bytes, alone) = (metrics.bytes_read.get(), remote.alone.load(Ordering::SeqCst));
            assert!(bytes < segments(limit) + (1 << 20), "{bytes} bytes for {limit} rows");
            assert!(alone <= 4, "{alone} rounds for {limit} rows");
        }
    }

    /// The filtered splits of a remote file that is read best first: all of them hold more rows with the least key than
    /// are wanted.
    async fn of_equal_keys() -> (Arc<Plan>, Recent, SplitQueue) {
        let mut next = random(1);
        let mut batch = |_| {
            let mut numbers = |bits| {
                Arc::new(Int64Array::from_iter_values((0..1 << 16).map(|_| next() as i64 & bits))) as ArrayRef
            };
            RecordBatch::try_from_iter([("key", numbers(3)), ("value", numbers(-1))]).unwrap()
        };
        let file = VortexFile::open(remote((0..8).map(&mut batch)).await).await.unwrap();
        let scan = file.scan().with_filter(Expr::Dynamic(Arc::new(SharedFilter::new(["key"]))));
        let scan = scan.with_best_first("key", SortOptions::default());
        let plan = Arc::new(Plan::new(&scan).unwrap());
        let mut admission = Admission::new(&plan, ZoneMaps::read(&plan).await.unwrap());
        admission.allow_most();
        let mut recent = Recent::new(64 << 20, &plan.memory);
        let mut queue = SplitQueue::new(&plan);
        for split in admission.admit(0, None, &mut recent).unwrap() {
            queue.push(split.filter().await.unwrap());
        }
        (plan, recent, queue)
    }

    #[tokio::test]
    async fn of_the_best_rows_on_remote_storage_all_are_requested_but_few_decoded_at_once() {
        let (_plan, mut recent, mut queue) = of_equal_keys().await;
        let all = queue.len();
        assert!(all > 3, "{all} splits");
        let taken = queue.take(2, 0, true, &mut recent).unwrap();
        assert_eq!(taken.len(), 2);
        assert!(taken.iter().chain(&queue.splits).filter(|split| !split.is_unrequested()).count() >= all);
        let more = queue.take(1, 0, false, &mut recent).unwrap();
        assert_eq!(more.len(), 1);
        assert!(queue.best_at_work);
    }

    #[tokio::test]
    async fn without_memory_the_best_splits_are_decoded_one_after_the_other() {
        let (plan, mut recent, mut queue) = of_equal_keys().await;
        let memory = &plan.memory;
        let _others = memory.take_anyway(memory.limit() + 1);
        assert_eq!(queue.take_first(2, 0, true, &mut recent).unwrap().len(), 1);
        assert!(queue.take_first(1, 0, false, &mut recent).unwrap().is_empty());
        assert_eq!(queue.take_first(2, 0, true, &mut recent).unwrap().len(), 1);
    }
}
