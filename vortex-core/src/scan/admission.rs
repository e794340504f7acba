//! Admitting splits: as many as the limits on their number and memory allow, with a single request for
//! what all of them need first.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ScanMetrics;
use super::column::Column;
use super::cursor::Cursor;
use super::plan::Plan;
use super::stream::Scan;
use super::task::{Admitted, first_wanted, lease, missing_bytes};
use crate::Result;
use crate::io::{Share, Urgency};
use crate::segments::SegmentId;

/// Maximum number of splits admitted and not yet decoded.
const MAX_ADMITTED_LOCAL: usize = 4;
const MAX_ADMITTED_REMOTE: usize = 256;

/// How many splits of a scan may be admitted and not yet decoded. Only few, if the filter reads columns whose
/// bytes are not known yet when memory is reserved: it has to take the rest regardless of the limit.
pub(super) fn most_admitted(plan: &Plan) -> usize {
    let order = plan.best_first.as_ref().map(|order| &order.column);
    let far_ahead = plan.file.source().profile().remote || order.is_some();
    match far_ahead && !plan.filter_columns.values().chain(order).any(Column::takes_rounds) {
        true => MAX_ADMITTED_REMOTE,
        false => MAX_ADMITTED_LOCAL,
    }
}

impl Scan {
    /// Whether almost every split has rows that pass. Then the projected columns are requested together
    /// with those of the filter, which costs no extra bytes and saves a round trip. On remote storage,
    /// many splits are requested before the first one is filtered; until then, statistics provide the
    /// estimate.
    fn filter_rarely_empties(&self) -> bool {
        // If only few rows are wanted, the filter is going to tighten.
        if self.stops_early {
            return false;
        }
        match self.checked < 2 {
            true => self.passes_expected,
            false => self.passed * 4 >= self.checked * 3,
        }
    }

    /// Whether to admit splits now: several are admitted at a time, so that segments close together in
    /// the file share a read.
    fn has_room(&self) -> bool {
        let at_work = self.at_work();
        let used = self.plan.memory.used().saturating_sub(self.recent.byte_len());
        at_work == 0 || (at_work <= self.limits.allowed / 2 && used <= self.plan.memory.limit() / 2)
    }

    fn at_work(&self) -> usize {
        self.filtering.len() + self.filtered.len() + self.decoding.len()
    }

    /// Admits splits as far as the limits on their number and memory allow. What they all need first is
    /// requested in one go.
    pub(super) fn admit(&mut self) -> Result<()> {
        if !self.has_room() {
            return Ok(());
        }
        let Some((mut cursor, zone_maps)) = self.position.take() else { return Ok(()) };
        let eager = self.filter_rarely_empties();
        let mut batch = Admission::default();
        let mut full = false;
        while self.at_work() + batch.splits.len() < self.limits.allowed {
            if let Some(best) = self.filtered.front()
                && self.plan.best_first.is_some()
                && !cursor.may_hold_better(&self.plan, &best.best.place)
            {
                break;
            }
            let Some((mut split, pruned)) = cursor.next(&self.plan, &zone_maps) else { break };
            let checks = self.payoffs.checks(&self.plan, &zone_maps, &split);
            // Without a filter, the limit determines how many rows are needed at all.
            if self.plan.conjuncts.is_empty() {
                split.live = split.live.limit(usize::try_from(self.rows_to_admit).unwrap_or(usize::MAX));
            }
            let (eager, want) = first_wanted(&self.plan, &split, &checks, eager)?;
            // Filtering fetches all that it needs regardless of memory; what follows the first round of the
            // projected columns is requested later, as far as memory allows.
            let eager = eager && !self.takes_rounds;
            let must = self.at_work() + batch.splits.len() == 0;
            let urgency = match checks.is_empty() {
                true => Urgency::projection(self.admitted),
                false => Urgency::filter(self.admitted),
            };
            while !batch.reserve(&self.plan, &want, urgency, must, self.recent.byte_len())? {
                // Segments that may be needed again make room for those needed now.
                if !self.recent.forget_some() {
                    cursor.put_back(&split);
                    full = true;
                    break;
                }
            }
            if full {
                break;
            }
            ScanMetrics::add(&self.plan.metrics.rows_pruned, pruned);
            let (plan, payoffs) = (Arc::clone(&self.plan), Arc::clone(&self.payoffs));
            let number = self.admitted;
            let admitted_rows = split.live.true_count() as u64;
            let split = Admitted { plan, payoffs, split, number, checks, eager, leases: Vec::new() };
            batch.splits.push((split, want));
            self.admitted += 1;
            if self.plan.conjuncts.is_empty() {
                self.rows_to_admit -= admitted_rows;
                if self.rows_to_admit == 0 {
                    cursor = Cursor::at_end(&self.plan);
                }
            }
        }
        self.position = Some((cursor, zone_maps));
        for split in batch.lease(&self.plan)? {
            // If some splits have to be filtered, all go through the same queue, to keep their order.
            if split.needs_filter() || !self.filtering.is_empty() {
                self.filtering.start(split.filter());
            } else {
                self.filtered.push_back(split.into_filtered());
            }
        }
        Ok(())
    }
}

/// Splits admitted together.
#[derive(Default)]
struct Admission {
    splits: Vec<(Admitted, Vec<SegmentId>)>,
    /// The segments they need first, with the urgency given by the first split that needs each.
    urgencies: BTreeMap<SegmentId, Urgency>,
    memory: Option<Share>,
}

impl Admission {
    /// Reserves memory for what a split needs first; returns whether there was enough. Half of the memory
    /// is left for what splits need once their filter is evaluated; `idle` bytes are held for splits like
    /// this one.
    fn reserve(
        &mut self,
        plan: &Plan,
        want: &[SegmentId],
        urgency: Urgency,
        must: bool,
        idle: u64,
    ) -> Result<bool> {
        let new: Vec<SegmentId> =
            want.iter().copied().filter(|id| !self.urgencies.contains_key(id)).collect();
        let bytes = missing_bytes(plan, &new)?;
        let used = plan.memory.used().saturating_sub(idle);
        let share = match must {
            true => Some(plan.memory.take_anyway(bytes)),
            false if used.saturating_add(bytes) <= plan.memory.limit() / 2 => plan.memory.take(bytes),
            false => None,
        };
        let Some(share) = share else { return Ok(false) };
        match &mut self.memory {
            Some(memory) => memory.join(share),
            None => self.memory = Some(share),
        }
        self.urgencies.extend(new.into_iter().map(|id| (id, urgency)));
        Ok(true)
    }

    /// Requests what the splits need first.
    fn lease(self, plan: &Plan) -> Result<Vec<Admitted>> {
        let Some(memory) = self.memory else { return Ok(Vec::new()) };
        let ids: Vec<SegmentId> = self.urgencies.keys().copied().collect();
        let leases = lease(plan, &ids, |id| self.urgencies[&id], memory)?;
        ScanMetrics::add(&plan.metrics.splits_scanned, self.splits.len() as u64);
        let admitted = self.splits.into_iter().map(|(mut split, want)| {
            let held = |id| ids.binary_search(id).ok().and_then(|at| leases.get(at).cloned());
            split.leases = want.iter().filter_map(held).collect();
            split
        });
        Ok(admitted.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use arrow::array::{Int64Array, RecordBatch};
    use async_trait::async_trait;
    use bytes::Bytes;
    use futures::TryStreamExt as _;

    use super::*;
    use crate::VortexFile;
    use crate::expr::column;
    use crate::io::{MemoryFile, MemoryPool, MemorySink, ReadAt, StorageProfile};
    use crate::write::{FileWriter, WriteOptions};

    #[derive(Debug)]
    struct Remote(MemoryFile);

    #[async_trait]
    impl ReadAt for Remote {
        fn name(&self) -> &str {
            "remote"
        }

        async fn len(&self) -> Result<u64> {
            self.0.len().await
        }

        async fn read(&self, range: Range<u64>) -> Result<Bytes> {
            self.0.read(range).await
        }

        fn profile(&self) -> StorageProfile {
            StorageProfile::REMOTE
        }
    }

    async fn golden(name: &str) -> VortexFile {
        let path = format!("{}/tests/files/{name}", env!("CARGO_MANIFEST_DIR"));
        VortexFile::open(Arc::new(Remote(MemoryFile::new(std::fs::read(path).unwrap())))).await.unwrap()
    }

    #[tokio::test]
    async fn few_splits_are_admitted_if_the_filter_reads_lists_stored_apart() {
        let apart = golden("0.91.0/list_nested.unstable.vortex").await;
        let together = golden("0.91.0/list_nested.vortex").await;
        let lists = apart.footer().columns().map(|(name, _)| name.to_owned());
        let lists: Vec<String> = lists.collect();
        assert!(!lists.is_empty());
        for name in &lists {
            let most = |file: &VortexFile| {
                let filter = column(name.as_str()).is_null();
                most_admitted(&Plan::new(&file.scan().with_filter(filter)).unwrap())
            };
            assert_eq!(most(&apart), MAX_ADMITTED_LOCAL, "{name}");
            assert_eq!(most(&together), MAX_ADMITTED_REMOTE, "{name}");
        }
        // Without a filter, only splits that are being decoded need more than was asked for.
        assert_eq!(most_admitted(&Plan::new(&apart.scan()).unwrap()), MAX_ADMITTED_REMOTE);
    }

    /// A pool that has no memory.
    #[derive(Debug)]
    struct Refuses;

    impl MemoryPool for Refuses {
        fn try_grow(&self, _bytes: u64) -> bool {
            false
        }

        fn shrink(&self, _bytes: u64) {}
    }

    #[tokio::test]
    async fn rows_pruned_of_a_split_that_waits_for_memory_are_counted_once() {
        // In each of four splits, only the first of eight zones has rows that pass.
        let numbers = Int64Array::from_iter_values((0..4 << 16).map(|row| row % (1 << 16)));
        let table = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap();
        let sink = MemorySink::new();
        let mut writer = FileWriter::try_new(sink.clone(), table.schema(), WriteOptions::new()).unwrap();
        writer.write(&table).await.unwrap();
        writer.finish().await.unwrap();
        let file = VortexFile::open(Arc::new(MemoryFile::new(sink.bytes().unwrap()))).await.unwrap();
        let scan = file.scan().with_filter(column("number").lt(100)).with_memory_pool(Arc::new(Refuses));
        let metrics = Arc::clone(scan.metrics());
        let batches: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 400);
        let counted = [&metrics.splits_scanned, &metrics.rows_pruned, &metrics.rows_filtered];
        let counted = counted.map(|count| count.load(std::sync::atomic::Ordering::Relaxed));
        assert_eq!(counted, [4, 4 * 7 * 8192, 4 * (8192 - 100)]);
    }
}
