//! Nearby byte ranges become fewer reads.

use std::ops::Range;

use super::StorageProfile;

/// Unwanted bytes may be at most this share of a read, in percent. A small read is free to
/// waste more, up to a part of the gap: its cost is the round trip.
const MAX_WASTE_PERCENT: u64 = 40;
const FREE_WASTE: u64 = 4;

/// Reads start at a multiple of this, so that alignments in the file hold in memory.
const ALIGNMENT: u64 = 64;

/// One read that serves several wanted ranges.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    /// The bytes to read.
    pub(super) range: Range<u64>,
    /// Positions, in the list of wanted ranges, of those it serves.
    pub(super) serves: Vec<usize>,
    /// Bytes in the read that nobody wants.
    pub(super) wasted: u64,
}

/// Joins wanted ranges that lie close. Only what is wanted now is considered: a neighbour that
/// nobody has asked for is never read except as a gap.
pub(super) fn coalesce(wanted: &[Range<u64>], profile: &StorageProfile) -> Vec<Read> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|at| (wanted[*at].start, wanted[*at].end));
    let mut reads: Vec<Read> = Vec::new();
    for at in order {
        let range = &wanted[at];
        if let Some(read) = reads.last_mut() {
            let end = read.range.end.max(range.end);
            let gap = range.start.saturating_sub(read.range.end);
            let len = end - read.range.start;
            let wasted = read.wasted + gap;
            let close = gap <= profile.coalesce_gap && len <= profile.max_read.max(range.end - range.start);
            let thrifty =
                wasted * 100 <= len * MAX_WASTE_PERCENT || wasted <= profile.coalesce_gap / FREE_WASTE;
            if range.start < read.range.end || (close && thrifty) {
                *read =
                    Read { range: read.range.start..end, serves: std::mem::take(&mut read.serves), wasted };
                read.serves.push(at);
                continue;
            }
        }
        let start = range.start / ALIGNMENT * ALIGNMENT;
        reads.push(Read { range: start..range.end, serves: vec![at], wasted: range.start - start });
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: StorageProfile =
        StorageProfile { coalesce_gap: 100, max_read: 1000, ..StorageProfile::REMOTE };

    fn ranges(wanted: &[Range<u64>]) -> Vec<Range<u64>> {
        coalesce(wanted, &PROFILE).into_iter().map(|read| read.range).collect()
    }

    #[test]
    fn neighbours_join_and_distant_ranges_do_not() {
        assert_eq!(ranges(&[640..700, 0..64, 128..192]), [0..192, 640..700]);
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
    fn every_wanted_range_is_served_once() {
        let wanted: Vec<_> = (0..50u64).map(|at| at * 97..at * 97 + 60).collect();
        let mut served: Vec<_> = coalesce(&wanted, &PROFILE)
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
