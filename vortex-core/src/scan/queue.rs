//! Splits whose live rows are known, until they are decoded: in the order of rows, or best first.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::best_first::{BestFirst, Place};
use super::fetch::{missing_bytes, take_memory};
use super::plan::Plan;
use super::recent::Recent;
use super::task::Filtered;
use super::zone_maps::ZoneMaps;
use crate::Result;
use crate::io::Share;
use crate::segments::SegmentId;

/// Splits whose live rows are known.
pub(super) struct SplitQueue {
    plan: Arc<Plan>,
    splits: VecDeque<Filtered>,
    /// Whether rows are being decoded that are among the best found.
    best_at_work: bool,
}

impl SplitQueue {
    pub(super) fn new(plan: &Arc<Plan>) -> Self {
        Self { plan: Arc::clone(plan), splits: VecDeque::new(), best_at_work: false }
    }

    pub(super) fn len(&self) -> usize {
        self.splits.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.splits.is_empty()
    }

    /// The first of all rows.
    pub(super) fn first_row(&self) -> Option<u64> {
        self.splits.iter().map(|split| split.split.rows.start).min()
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

    pub(super) fn push(&mut self, split: Filtered) {
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
        self.splits.retain_mut(|split| {
            split.split.live = zone_maps.prune(&split.split);
            !split.split.live.is_none()
        });
        let withdrawn = before - self.splits.len();
        self.plan.metrics.splits_withdrawn.add(withdrawn as u64);
    }

    /// Requests what splits need that were refused memory for it when they were filtered, as far as there is memory
    /// now: all at once, so that they share reads. If rows are read best first, it is requested only for the best.
    pub(super) fn ask_refused(&mut self, recent: &mut Recent) -> Result<()> {
        if self.plan.best_first.is_some() {
            return Ok(());
        }
        let (mut refused, mut asked) = (Vec::new(), BTreeSet::new());
        let mut memory = self.plan.memory.take_anyway(0);
        for split in self.splits.iter_mut().filter(|split| !split.asked) {
            let Some(share) = reserve(&self.plan, split, &mut asked, false, recent)? else { break };
            memory.join(share);
            refused.push(split);
        }
        Filtered::ask(refused, memory)
    }

    /// Takes out the next split. If `idle`, nothing is being decoded, so that no other work will release memory:
    /// what the split needs is requested anyway.
    pub(super) fn pop(&mut self, idle: bool) -> Result<Option<Filtered>> {
        let Some(split) = self.splits.front_mut() else { return Ok(None) };
        if !split.asked && self.plan.best_first.is_none() {
            if !idle {
                return Ok(None);
            }
            split.ask_anyway()?;
        }
        Ok(self.splits.pop_front())
    }

    /// Takes out the rows that are among the best found, of at most `room` splits: they are wanted in any case. On
    /// remote storage, what all of them need is requested at once, as far as memory allows; those beyond `room` wait in
    /// the queue. Segments kept for later splits make room, and there is always enough memory for one split.
    pub(super) fn take_best(
        &mut self,
        room: usize,
        idle: bool,
        recent: &mut Recent,
    ) -> Result<Vec<Filtered>> {
        self.best_at_work &= !idle;
        let last = self.plan.best_first.as_ref().and_then(BestFirst::last_wanted);
        let Some(last) = last else { return Ok(Vec::new()) };
        let (mut splits, mut asked) = (Vec::new(), BTreeSet::new());
        let mut memory = self.plan.memory.take_anyway(0);
        while let Some(split) = self.splits.front()
            && split.best.reaches(&last)
        {
            if !self.plan.is_remote() && splits.len() >= room {
                break;
            }
            if self.plan.is_remote() && !split.asked {
                let must = !self.best_at_work;
                let Some(share) = reserve(&self.plan, split, &mut asked, must, recent)? else { break };
                memory.join(share);
            }
            self.best_at_work = true;
            if let Some(mut split) = self.splits.pop_front() {
                if let Some(others) = split.split_off_after(&last) {
                    self.push(others);
                }
                splits.push(split);
            }
        }
        if self.plan.is_remote() {
            Filtered::ask(splits.iter_mut().filter(|split| !split.asked).collect(), memory)?;
        }
        splits.drain(room.min(splits.len())..).rev().for_each(|split| self.splits.push_front(split));
        Ok(splits)
    }

    /// Whether rows that were taken out as the best are still being decoded: they may yet tighten the filter.
    pub(super) fn best_at_work(&self) -> bool {
        self.best_at_work
    }
}

/// Reserves memory for what a split needs, except for segments that others asked for: chunks may be longer than
/// splits. If it `must`, it takes the memory regardless of the limit.
fn reserve(
    plan: &Plan,
    split: &Filtered,
    asked: &mut BTreeSet<SegmentId>,
    must: bool,
    recent: &mut Recent,
) -> Result<Option<Share>> {
    let needs: BTreeSet<SegmentId> = split.missing()?.into_iter().collect();
    let new: Vec<SegmentId> = needs.difference(asked).copied().collect();
    let bytes = missing_bytes(plan, &new)?;
    let share = take_memory(plan, bytes, recent, |id| asked.contains(id) || needs.contains(id));
    let share = share.or_else(|| must.then(|| plan.memory.take_anyway(bytes)));
    if share.is_some() {
        asked.extend(new);
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use std::fmt::{self, Display};
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray};
    use arrow::compute::SortOptions;
    use futures::TryStreamExt as _;

    use super::super::admission::Admission;
    use super::*;
    use crate::VortexFile;
    use crate::expr::{DynamicFilter, Expr, FieldPath, column};
    use crate::given::{Stored, file_of, written};
    use crate::io::{Scheduler, StorageProfile};
    use crate::kernels::random;
    use crate::write::WriteOptions;

    /// A file of columns of numbers that nothing can compress.
    async fn numbers_of(rows: usize, columns: usize) -> VortexFile {
        let mut next = random(1);
        let mut column = |at| {
            let numbers = Int64Array::from_iter_values((0..rows).map(|_| next() as i64));
            (format!("c{at}"), Arc::new(numbers) as ArrayRef)
        };
        let table = RecordBatch::try_from_iter((0..columns).map(&mut column)).unwrap();
        file_of([table]).await
    }

    /// A remote file of these batches, whose reads take a while.
    async fn remote(batches: impl IntoIterator<Item = RecordBatch>) -> Arc<Stored> {
        let profile = StorageProfile { max_read: 1 << 20, coalesce_gap: 0, ..StorageProfile::REMOTE };
        let bytes = written(batches, WriteOptions::new()).await;
        Arc::new(Stored::new(bytes, profile).with_delay(Duration::from_millis(20)))
    }

    #[tokio::test]
    async fn segments_that_are_needed_do_not_make_room() {
        let file = numbers_of(4 << 16, 3).await;
        let plan = Arc::new(Plan::new(&file.scan()).unwrap());
        let zone_maps = ZoneMaps::read(&plan).await.unwrap();
        let mut admission = Admission::new(&plan, zone_maps);
        let mut recent = Recent::new(64 << 20, &plan.memory);
        let mut splits = admission.admit(0, None, &mut recent).unwrap();
        let (mut last, mut first) = (splits.pop().unwrap().into_filtered(), splits.remove(0).into_filtered());
        drop(splits);
        // One segment that the first split needs was used before, and one that it does not need.
        let (needed, other) = (first.leases.remove(0), last.leases.remove(0));
        assert_ne!(needed.id, other.id);
        let needed_id = needed.id;
        first.leases.clear();
        drop(last);
        let other_bytes = plan.table().segment(other.id).unwrap().length;
        recent.keep(vec![needed, other]);
        recent.keep(Vec::new());
        let missing = first.missing().unwrap();
        assert!(missing.contains(&needed_id));
        let bytes = missing_bytes(&plan, &missing).unwrap();
        let free = plan.memory.limit() - plan.memory.used();
        let full = plan.memory.take_anyway(free - bytes + 1);
        let kept = recent.charged();
        let mut asked = BTreeSet::new();
        let share = reserve(&plan, &first, &mut asked, false, &mut recent).unwrap().unwrap();
        assert_eq!(recent.charged(), kept - u64::from(other_bytes));
        assert_eq!(missing_bytes(&plan, &missing).unwrap(), bytes, "the needed segment is still there");
        drop((share, full));
        // What does not make enough room is kept.
        let full = plan.memory.take_anyway(plan.memory.limit());
        let kept = recent.charged();
        assert!(reserve(&plan, &first, &mut BTreeSet::new(), false, &mut recent).unwrap().is_none());
        assert_eq!(recent.charged(), kept);
        drop(full);
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
        let scan = scan.with_scheduler(Scheduler::new(8 << 20));
        let metrics = Arc::clone(scan.metrics());
        let batches: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert!(rows > 1 << 19, "{rows}");
        let splits = metrics.splits_scanned.get();
        let alone = remote.alone.load(Ordering::SeqCst);
        assert!(alone * 2 < splits, "{alone} rounds of reads for {splits} splits");
    }

    /// A dynamic filter about which nothing is known.
    #[derive(Debug)]
    struct Unknown;

    impl Display for Unknown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("unknown")
        }
    }

    impl DynamicFilter for Unknown {
        fn columns(&self) -> Vec<FieldPath> {
            Vec::new()
        }

        fn generation(&self) -> u64 {
            0
        }

        fn current(&self) -> Option<Expr> {
            None
        }
    }

    #[tokio::test]
    async fn of_the_best_rows_on_remote_storage_all_are_requested_but_few_decoded_at_once() {
        let mut next = random(1);
        let mut batch = |_| {
            let mut numbers = |bits| {
                Arc::new(Int64Array::from_iter_values((0..1 << 16).map(|_| next() as i64 & bits))) as ArrayRef
            };
            RecordBatch::try_from_iter([("key", numbers(3)), ("value", numbers(-1))]).unwrap()
        };
        let file = VortexFile::open(remote((0..8).map(&mut batch)).await).await.unwrap();
        // All splits hold more rows with the least key than are wanted.
        let scan = file.scan().with_filter(Expr::Dynamic(Arc::new(Unknown)));
        let scan = scan.with_best_first("key", SortOptions::default());
        let plan = Arc::new(Plan::new(&scan).unwrap());
        let mut admission = Admission::new(&plan, ZoneMaps::read(&plan).await.unwrap());
        admission.allow_most();
        let mut recent = Recent::new(64 << 20, &plan.memory);
        let mut queue = SplitQueue::new(&plan);
        for split in admission.admit(0, None, &mut recent).unwrap() {
            queue.push(split.filter().await.unwrap());
        }
        let all = queue.len();
        assert!(all > 3, "{all} splits");
        let taken = queue.take_best(2, true, &mut recent).unwrap();
        assert_eq!(taken.len(), 2);
        assert!(taken.iter().chain(&queue.splits).filter(|split| split.asked).count() >= all);
        let more = queue.take_best(1, false, &mut recent).unwrap();
        assert_eq!(more.len(), 1);
        assert!(queue.best_at_work());
    }
}
