//! Requesting segments and waiting for them, with memory taken for those that are not held yet.

mod lease_request;
mod recent;

use std::ops::Range;
use std::time::Instant;

use arrow::buffer::Buffer;
use futures::future::try_join_all;

pub(super) use self::lease_request::{LeaseRequest, LeasedSegments, SplitNeeds};
pub(super) use self::recent::Recent;
use super::plan::Plan;
use crate::Result;
use crate::budget::Reservation;
use crate::io::{PendingBytes, RangeRequest, Urgency, read_scattered};
use crate::layout::SegmentSet;
use crate::segments::{Lease, SegmentId, SegmentTable};

/// Fetches what `request` asks for, repeatedly until it asks for nothing more.
pub(super) async fn fetch(
    plan: &Plan,
    urgency: Urgency,
    have: &mut SegmentSet<'_>,
    mut request: impl FnMut(&SegmentSet<'_>, &mut Vec<SegmentId>) -> Result<()>,
) -> Result<()> {
    loop {
        let want = wanted(have, &mut request)?;
        if want.is_empty() {
            return Ok(());
        }
        let memory = plan.memory.take_anyway(missing_bytes(plan, &want)?);
        let leases = lease(plan, &want, |_| urgency, memory)?;
        have.add(leases.iter().cloned());
        wait(plan, &leases).await?;
    }
}

/// The segments that `request` asks for, in ascending order, each of them once.
pub(super) fn wanted(
    have: &SegmentSet<'_>,
    request: impl FnOnce(&SegmentSet<'_>, &mut Vec<SegmentId>) -> Result<()>,
) -> Result<Vec<SegmentId>> {
    let mut want = Vec::new();
    request(have, &mut want)?;
    want.sort_unstable();
    want.dedup();
    Ok(want)
}

/// Total bytes of those segments that are not held yet.
pub(super) fn missing_bytes(plan: &Plan, ids: &[SegmentId]) -> Result<u64> {
    plan.file.leases().missing_bytes(ids, plan.table())
}

/// Takes memory for segments to be fetched, if there is enough. Segments kept for later splits make room, but none that
/// is `needed` now: it would have to be read again.
pub(super) fn take_memory(
    plan: &Plan,
    bytes: u64,
    recent: &mut Recent,
    needed: impl Fn(&SegmentId) -> bool,
) -> Option<Reservation> {
    loop {
        if let Some(reserved) = plan.memory.take(bytes) {
            return Some(reserved);
        }
        // Otherwise, those kept would be dropped for nothing, time and again.
        let is_enough = plan.memory.shortfall(bytes) <= recent.charged();
        if !is_enough || !recent.forget_some(&needed) {
            return None;
        }
    }
}

/// Leases segments and requests those that are not held yet; their bytes are charged to `memory`.
pub(super) fn lease(
    plan: &Plan,
    ids: &[SegmentId],
    urgency: impl Fn(SegmentId) -> Urgency,
    memory: Reservation,
) -> Result<Vec<Lease>> {
    let file = &plan.file;
    let ask = |missing: &[(SegmentId, Range<u64>)]| {
        let range_request = |(id, range): &(SegmentId, Range<u64>)| RangeRequest {
            range: range.clone(),
            urgency: urgency(*id),
        };
        plan.scheduler.request(file.source(), missing.iter().map(range_request).collect(), &plan.metrics)
    };
    let leases = file.leases().lease(ids, plan.table(), memory, &plan.metrics, ask)?;
    plan.metrics.peak_bytes.raise(plan.memory.peak());
    Ok(leases)
}

/// Waits for leased segments.
pub(super) async fn wait(plan: &Plan, leases: &[Lease]) -> Result<()> {
    if leases.iter().all(|lease| lease.bytes().is_some()) {
        return Ok(());
    }
    let start = Instant::now();
    for lease in leases {
        lease.wait().await?;
    }
    plan.metrics.io_wait_nanos.add_since(start);
    Ok(())
}

/// Fetches ranges of the file. Those of remote storage are requested like segments: ranges that lie close together,
/// also of other columns, share a read. Memory for them has to be charged before.
pub(super) async fn fetch_ranges(
    plan: &Plan,
    ranges: &[Range<u64>],
    urgency: Urgency,
) -> Result<Vec<Buffer>> {
    let source = plan.file.source();
    if !plan.is_remote() {
        return read_scattered(source.as_ref(), ranges, &plan.metrics).await;
    }
    let requests = ranges.iter().map(|range| RangeRequest { range: range.clone(), urgency });
    let (pending, unsent) = plan.scheduler.request(source, requests.collect(), &plan.metrics);
    unsent.send();
    try_join_all(pending.iter().map(PendingBytes::wait)).await
}

/// Total bytes of segments.
pub(super) fn byte_len(table: &SegmentTable, segments: &[SegmentId]) -> Result<u64> {
    segments.iter().map(|id| table.segment(*id).map(|segment| u64::from(segment.length))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::given::opened;

    #[tokio::test]
    async fn lists_whose_elements_are_stored_separately_are_fetched_but_not_decoded() {
        let bytes = include_bytes!("../../../tests/files/0.91.0/list_nested.unstable.vortex");
        let file = opened(bytes.as_slice()).await;
        let plan = Plan::new(&file.scan().with_projection(["utf8"])).unwrap();
        let (column, rows) = (&plan.projection[0], 3..file.row_count());
        let mut have = SegmentSet::new(plan.table());
        fetch(&plan, Urgency::filter(0), &mut have, |have, want| column.request(&rows, have, want))
            .await
            .unwrap();
        assert_eq!(column.read(&rows, &have).unwrap().encoding(), "vortex.list");
    }
}
