//! What several splits need, requested together: they share reads, and memory is taken once for a segment that many of
//! them need.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::recent::Recent;
use super::{lease, missing_bytes, take_memory};
use crate::Result;
use crate::budget::Reservation;
use crate::io::Urgency;
use crate::scan::plan::Plan;
use crate::segments::{Lease, SegmentId};

/// Segments to be requested together, and the memory for them.
pub(in crate::scan) struct LeaseRequest {
    plan: Arc<Plan>,
    /// With the urgency given by the first split that needs each.
    urgencies: BTreeMap<SegmentId, Urgency>,
    memory: Reservation,
}

/// What one split needs.
pub(in crate::scan) struct SplitNeeds<'a> {
    /// In ascending order, each once.
    pub(in crate::scan) ids: &'a [SegmentId],
    pub(in crate::scan) urgency: Urgency,
    /// Bytes of memory that may be in use afterwards, not counting segments kept for later splits.
    pub(in crate::scan) most: u64,
    /// Whether it is requested regardless of memory.
    pub(in crate::scan) must: bool,
}

/// The segments that were requested together, in ascending order.
pub(in crate::scan) struct LeasedSegments(Vec<Lease>);

impl LeaseRequest {
    pub(in crate::scan) fn new(plan: &Arc<Plan>) -> Self {
        let memory = plan.memory.take_anyway(0);
        Self { plan: Arc::clone(plan), urgencies: BTreeMap::new(), memory }
    }

    /// Adds what a split needs; returns false if there is not enough memory. Segments kept for later splits make room,
    /// except for those that are requested now.
    pub(in crate::scan) fn add(&mut self, wants: &SplitNeeds<'_>, recent: &mut Recent) -> Result<bool> {
        let SplitNeeds { ids, urgency, most, must } = *wants;
        let plan = &self.plan;
        let new = ids.iter().copied().filter(|id| !self.urgencies.contains_key(id));
        let new: Vec<SegmentId> = new.collect();
        let bytes = missing_bytes(plan, &new)?;
        let used = plan.memory.used().saturating_sub(recent.charged());
        let needed = |id: &SegmentId| self.urgencies.contains_key(id) || ids.binary_search(id).is_ok();
        let reserved =
            if used.saturating_add(bytes) <= most { take_memory(plan, bytes, recent, needed) } else { None };
        let reserved = match reserved {
            None if must => {
                // What was taken anyway for splits before is returned first.
                if plan.memory.shortfall(0) > 0 {
                    recent.forget_most(needed);
                }
                plan.memory.take_anyway(bytes)
            }
            None => return Ok(false),
            Some(reserved) => reserved,
        };
        self.memory.join(reserved);
        self.urgencies.extend(new.into_iter().map(|id| (id, urgency)));
        Ok(true)
    }

    /// Bytes of the segments that were not there, or under way, before.
    pub(in crate::scan) fn byte_len(&self) -> u64 {
        self.memory.bytes_of(&self.plan.memory).unwrap_or(0)
    }

    /// Requests all of them.
    pub(in crate::scan) fn send(self) -> Result<LeasedSegments> {
        let ids: Vec<SegmentId> = self.urgencies.keys().copied().collect();
        lease(&self.plan, &ids, |id| self.urgencies[&id], self.memory).map(LeasedSegments)
    }
}

impl LeasedSegments {
    /// Those of one split.
    pub(in crate::scan) fn of(&self, ids: &[SegmentId]) -> impl Iterator<Item = Lease> {
        let lease =
            |id| self.0.binary_search_by_key(id, |lease| lease.id).ok().map(|at| Arc::clone(&self.0[at]));
        ids.iter().filter_map(lease)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::super::wait;
    use super::*;
    use crate::given::file_of;
    use crate::io::Scheduler;
    use crate::kernels::random;
    use crate::scan::admission::Admission;
    use crate::scan::zone_maps::ZoneMaps;

    #[tokio::test]
    async fn segments_that_are_needed_do_not_make_room() {
        let mut next = random(1);
        let mut column = |at| {
            let numbers = Int64Array::from_iter_values((0..4 << 16).map(|_| next() as i64));
            (format!("c{at}"), Arc::new(numbers) as ArrayRef)
        };
        let file = file_of([RecordBatch::try_from_iter((0..3).map(&mut column)).unwrap()]).await;
        let plan = Arc::new(Plan::new(&file.scan()).unwrap());
        let zone_maps = ZoneMaps::read(&plan).await.unwrap();
        let mut admission = Admission::new(&plan, zone_maps);
        let mut recent = Recent::new(64 << 20, &plan.memory);
        let mut splits = admission.admit(0, None, &mut recent).unwrap();
        let (mut last, mut first) = (splits.pop().unwrap().into_filtered(), splits.remove(0).into_filtered());
        drop(splits);
        // One segment that the first split needs was used before, and one that it does not need.
        let (needed, other) = (first.task.leases.remove(0), last.task.leases.remove(0));
        assert_ne!(needed.id, other.id);
        let needed_id = needed.id;
        first.task.leases.clear();
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
        let mut request = LeaseRequest::new(&plan);
        assert!(request.add(&first.needs(&missing, false), &mut recent).unwrap());
        assert_eq!(recent.charged(), kept - u64::from(other_bytes));
        assert_eq!(missing_bytes(&plan, &missing).unwrap(), bytes, "the needed segment is still there");
        drop((request, full));
        // What does not make enough room is kept, unless more is taken than there is.
        let full = plan.memory.take_anyway(plan.memory.limit());
        let kept = recent.charged();
        assert!(!LeaseRequest::new(&plan).add(&first.needs(&missing, false), &mut recent).unwrap());
        assert_eq!(recent.charged(), kept);
        drop(full);
    }

    #[tokio::test]
    async fn scans_without_memory_hold_what_one_split_needs() {
        let mut next = random(1);
        let numbers = Int64Array::from_iter_values((0..4 << 17).map(|_| next() as i64));
        let rows = RecordBatch::try_from_iter([("a", Arc::new(numbers) as ArrayRef)]).unwrap();
        let (file, scheduler) = (file_of([rows]).await, Scheduler::new(1 << 20));
        let plan = Arc::new(Plan::new(&file.scan().with_scheduler(Arc::clone(&scheduler))).unwrap());
        let others = scheduler.budget().take_anyway(1 << 20);
        let mut recent = Recent::new(64 << 20, &plan.memory);
        let segments: Vec<SegmentId> = (0..4).map(SegmentId).collect();
        let longest = segments.iter().map(|id| plan.table().segment(*id).unwrap().length).max().unwrap();
        for id in segments {
            let (ids, urgency) = ([id], Urgency::projection(0));
            let wants = SplitNeeds { ids: &ids, urgency, most: u64::MAX, must: true };
            let mut request = LeaseRequest::new(&plan);
            assert!(request.add(&wants, &mut recent).unwrap());
            let used: Vec<Lease> = request.send().unwrap().of(&ids).collect();
            wait(&plan, &used).await.unwrap();
            recent.keep(used);
        }
        let most = 2 * u64::from(longest);
        assert!(plan.memory.peak() <= most, "{} of {most} bytes", plan.memory.peak());
        drop(others);
    }
}
