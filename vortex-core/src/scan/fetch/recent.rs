//! Segments of completed splits, kept for those that follow.
//!
//! A chunk often serves many splits, but not all of them read it: a filter may leave no live row in one.
//! Segments fetched for one split are kept for a while, up to a number of bytes; the least recently used
//! go first. Those used by the latest split are kept in any case: the next split most likely uses them,
//! too, and would have to read them again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::budget::Budget;
use crate::segments::{Lease, SegmentId};

/// Up to this many bytes are dropped all at once.
const FEW_BYTES: usize = 1 << 20;

/// Recently used segments, at most about `limit` bytes of them.
#[derive(Debug)]
pub(in crate::scan) struct Recent {
    limit: usize,
    bytes: usize,
    /// The memory of the scan, and those of the bytes that are charged to it.
    memory: Arc<Budget>,
    charged: u64,
    /// Number of completed splits.
    clock: u64,
    used: HashMap<SegmentId, Used>,
}

/// A segment, and the number of splits that were completed when it was used last.
#[derive(Debug)]
struct Used {
    _lease: Lease,
    at: u64,
    /// The bytes that it held then, and those of them that were charged to the scan.
    bytes: usize,
    charged: u64,
}

impl Recent {
    pub(in crate::scan) fn new(limit: usize, memory: &Arc<Budget>) -> Self {
        Self { limit, bytes: 0, memory: Arc::clone(memory), charged: 0, clock: 0, used: HashMap::new() }
    }

    /// Keeps the segments that one split has used.
    pub(in crate::scan) fn keep(&mut self, leases: Vec<Lease>) {
        self.clock += 1;
        for lease in leases {
            let (id, bytes, charged) = (lease.id, lease.held_bytes(), lease.charged_to(&self.memory));
            self.bytes += bytes;
            self.charged += charged;
            let used = Used { _lease: lease, at: self.clock, bytes, charged };
            if let Some(before) = self.used.insert(id, used) {
                self.bytes -= before.bytes;
                self.charged -= before.charged;
            }
        }
        if self.bytes > self.limit {
            // Drop a quarter more than needed, so that this happens rarely.
            self.forget_until(self.limit / 4 * 3, |_| false);
        }
    }

    /// Bytes kept that are charged to the scan, whether they are also held elsewhere or not. Those that another scan
    /// has requested, or that are kept with the footer, make no room.
    pub(in crate::scan) fn charged(&self) -> u64 {
        self.charged
    }

    /// Drops the oldest quarter, except for segments that are `wanted` now; returns false if there is nothing to drop.
    pub(super) fn forget_some(&mut self, wanted: impl Fn(&SegmentId) -> bool) -> bool {
        let before = self.used.len();
        self.forget_until(if self.bytes > FEW_BYTES { self.bytes / 4 * 3 } else { 0 }, wanted);
        self.used.len() < before
    }

    /// Drops all segments but those used last and those `wanted` now.
    pub(super) fn forget_most(&mut self, wanted: impl Fn(&SegmentId) -> bool) {
        self.forget_until(0, wanted);
    }

    /// Drops the oldest segments until at most this many bytes are left, or only those used last and those `wanted`.
    fn forget_until(&mut self, bytes: usize, wanted: impl Fn(&SegmentId) -> bool) {
        let older = self.used.iter().filter(|(id, used)| used.at < self.clock && !wanted(id));
        let mut by_age: Vec<(u64, SegmentId)> = older.map(|(id, used)| (used.at, *id)).collect();
        by_age.sort_unstable();
        for (_, id) in by_age {
            if self.bytes <= bytes {
                break;
            }
            if let Some(used) = self.used.remove(&id) {
                self.bytes -= used.bytes;
                self.charged -= used.charged;
            }
        }
    }

    /// Drops everything.
    pub(in crate::scan) fn clear(&mut self) {
        self.used.clear();
        (self.bytes, self.charged) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::segments::tests::{ROWS, compressed, load};

    #[test]
    fn nothing_to_forget_is_said() {
        let mut recent = Recent::new(10, &Budget::new(10));
        assert!(!recent.forget_some(|_| false));
        recent.keep(Vec::new());
        assert_eq!(recent.charged(), 0);
    }

    #[test]
    fn decompressed_bytes_are_kept_for_no_more_splits_than_others() {
        let memory = Budget::new(1 << 20);
        let (lease, table) = compressed(&memory, &Limits::default());
        load(&lease, &table).unwrap();
        let mut recent = Recent::new(ROWS / 2, &memory);
        recent.keep(vec![lease]);
        assert!(recent.charged() > ROWS as u64, "those of the latest split are kept in any case");
        recent.keep(Vec::new());
        assert_eq!(recent.charged(), 0);
    }

    #[test]
    fn what_another_scan_is_charged_makes_no_room() {
        let all = Budget::new(1 << 20);
        let (own, other) = (all.part(1 << 20, None), all.part(1 << 20, None));
        let mut recent = Recent::new(1 << 20, &own);
        for memory in [&own, &other] {
            let (lease, table) = compressed(memory, &Limits::default());
            load(&lease, &table).unwrap();
            recent.keep(vec![lease]);
            assert_eq!(recent.charged(), own.used());
        }
        assert!(other.used() > 0);
    }
}
