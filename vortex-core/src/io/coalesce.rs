//! Coalesces nearby byte ranges into fewer reads.

use std::ops::Range;

use super::{READ_ALIGNMENT, StorageProfile};

/// The share of a read that may be unwanted bytes, in percent. The first value applies by default; the
/// other only where there would be more reads than may be in flight.
const WASTE_PERCENT: [u64; 2] = [10, 25];
/// A small read may waste more, up to this fraction of the gap: its cost is dominated by the round trip.
const FREE_WASTE: u64 = 2;

/// One read that serves several wanted ranges.
#[derive(Debug, PartialEq)]
pub(super) struct PlannedRead {
    /// The bytes to read.
    pub(super) range: Range<u64>,
    /// Indices, in the list of wanted ranges, of the ranges it serves.
    pub(super) serves: Vec<usize>,
    /// Bytes of the read that were not requested.
    pub(super) wasted: u64,
}

/// Joins wanted ranges that lie close together. Only ranges wanted now are considered: neighbouring bytes
/// that were not requested are read only as gaps. If this would result in more than `slots` reads, larger
/// gaps are read, as long as each takes less time than another read.
pub(super) fn coalesce(wanted: &[Range<u64>], profile: &StorageProfile, slots: usize) -> Vec<PlannedRead> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|at| (wanted[*at].start, wanted[*at].end));
    let mut reads = Vec::new();
    for percent in WASTE_PERCENT {
        reads = join(wanted, &order, profile, percent);
        if reads.len() <= slots {
            break;
        }
    }
    reads
}

/// Joins ranges, whose positions are ascending in `order`, with a waste of at most about `percent`.
fn join(wanted: &[Range<u64>], order: &[usize], profile: &StorageProfile, percent: u64) -> Vec<PlannedRead> {
    let mut reads: Vec<PlannedRead> = Vec::new();
    for at in order {
        let (at, range) = (*at, &wanted[*at]);
        if let Some(read) = reads.last_mut() {
            let end = read.range.end.max(range.end);
            let gap = range.start.saturating_sub(read.range.end);
            let len = end - read.range.start;
            let wasted = read.wasted + gap;
            let close = gap <= profile.coalesce_gap && len <= profile.max_read.max(range.end - range.start);
            let thrifty =
                || gap == 0 || wasted * 100 <= len * percent || wasted <= profile.coalesce_gap / FREE_WASTE;
            if range.start < read.range.end || (close && thrifty()) {
                *read = PlannedRead {
                    range: read.range.start..end,
                    serves: std::mem::take(&mut read.serves),
                    wasted,
                };
                read.serves.push(at);
                continue;
            }
        }
        let start = range.start / READ_ALIGNMENT * READ_ALIGNMENT;
        reads.push(PlannedRead { range: start..range.end, serves: vec![at], wasted: range.start - start });
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: StorageProfile =
        StorageProfile { coalesce_gap: 100, max_read: 1000, ..StorageProfile::REMOTE };

    fn ranges(wanted: &[Range<u64>]) -> Vec<Range<u64>> {
        coalesce(wanted, &PROFILE, 8).into_iter().map(|read| read.range).collect()
    }

    #[test]
    fn neighbours_join_and_distant_ranges_do_not() {
        assert_eq!(ranges(&[960..980, 0..512, 528..600]), [0..600, 960..980]);
    }

    #[test]
    fn no_read_grows_beyond_the_maximum() {
        assert_eq!(ranges(&[0..640, 640..960, 960..1280]), [0..960, 960..1280]);
    }

    #[test]
    fn overlapping_ranges_share_a_read_whatever_its_size() {
        assert_eq!(ranges(&[0..900, 100..2000]), vec![0..2000; 1]);
    }

    #[test]
    fn no_distance_is_too_large() {
        let end = u64::MAX / READ_ALIGNMENT * READ_ALIGNMENT;
        assert_eq!(ranges(&[0..64, end..end + 1]), [0..64, end..end + 1]);
    }

    #[test]
    fn more_is_wasted_only_where_reads_would_have_to_wait() {
        let wanted: Vec<_> = (0..10u64).map(|at| at * 192..at * 192 + 132).collect();
        let reads = |slots| coalesce(&wanted, &PROFILE, slots).len();
        // Two of them waste 19 percent, three 23, four more than 25.
        assert_eq!((reads(10), reads(9), reads(1)), (10, 4, 4));
    }

    #[test]
    fn every_wanted_range_is_served_once() {
        let wanted: Vec<_> = (0..50u64).map(|at| at * 97..at * 97 + 60).collect();
        let mut served: Vec<_> = coalesce(&wanted, &PROFILE, 8)
            .iter()
            .flat_map(|read| {
                for at in &read.serves {
                    assert!(read.range.start <= wanted[*at].start && wanted[*at].end <= read.range.end);
                }
                read.serves.clone()
            })
            .collect();
        served.sort_unstable();
        assert_eq!(served, (0..50).collect::<Vec<_>>());
    }
}
