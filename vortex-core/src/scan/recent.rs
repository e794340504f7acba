//! Segments of completed splits, kept for those that follow.
//!
//! A chunk often serves many splits, but not all of them read it: a filter may leave no live row in one.
//! Segments fetched for one split are kept for a while, up to a number of bytes; the least recently used
//! go first. Those used by the latest split are kept in any case: the next split most likely uses them,
//! too, and would have to read them again.

use std::collections::HashMap;

use crate::segments::{Lease, SegmentId};

/// Up to this many bytes are dropped all at once.
const FEW_BYTES: usize = 1 << 20;

/// Recently used segments, at most about `limit` bytes of them.
#[derive(Debug)]
pub(super) struct Recent {
    limit: usize,
    bytes: usize,
    /// Number of completed splits.
    clock: u64,
    used: HashMap<SegmentId, Used>,
}

/// A segment, and the number of splits that were completed when it was used last.
#[derive(Debug)]
struct Used {
    _lease: Lease,
    at: u64,
    /// The bytes that it held then.
    bytes: usize,
}

impl Recent {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, clock: 0, used: HashMap::new() }
    }

    /// Keeps the segments that one split has used.
    pub(super) fn keep(&mut self, leases: Vec<Lease>) {
        self.clock += 1;
        for lease in leases {
            let bytes = lease.held_bytes();
            self.bytes += bytes;
            if let Some(before) = self.used.insert(lease.id, Used { _lease: lease, at: self.clock, bytes }) {
                self.bytes -= before.bytes;
            }
        }
        if self.bytes > self.limit {
            // Drop a quarter more than needed, so that this happens rarely.
            self.forget_until(self.limit / 4 * 3, |_| false);
        }
    }

    /// Bytes kept, whether they are also held elsewhere or not.
    pub(super) fn byte_len(&self) -> u64 {
        self.bytes as u64
    }

    /// Drops the oldest quarter, except for segments that are `wanted` now; returns false if there is nothing to drop.
    pub(super) fn forget_some(&mut self, wanted: impl Fn(&SegmentId) -> bool) -> bool {
        let before = self.used.len();
        self.forget_until(if self.bytes > FEW_BYTES { self.bytes / 4 * 3 } else { 0 }, wanted);
        self.used.len() < before
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
            }
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.used.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Budget;
    use crate::limits::Limits;
    use crate::segments::tests::{ROWS, compressed, load};

    #[test]
    fn nothing_to_forget_is_said() {
        let mut recent = Recent::new(10);
        assert!(!recent.forget_some(|_| false));
        recent.keep(Vec::new());
        assert_eq!(recent.byte_len(), 0);
    }

    #[test]
    fn decompressed_bytes_are_kept_for_no_more_splits_than_others() {
        let (lease, table) = compressed(&Budget::new(1 << 20), &Limits::default());
        load(&lease, &table).unwrap();
        let mut recent = Recent::new(ROWS / 2);
        recent.keep(vec![lease]);
        assert!(recent.byte_len() > ROWS as u64, "those of the latest split are kept in any case");
        recent.keep(Vec::new());
        assert_eq!(recent.byte_len(), 0);
    }
}
