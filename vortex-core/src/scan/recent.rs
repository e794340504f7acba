//! Segments of splits that are done, kept for those that follow.
//!
//! A chunk often serves many splits, but not all of them read it: a filter may leave no row in
//! one. What was fetched for one split stays for a while, up to a number of bytes; what was not
//! used for longest goes first. What the latest split used stays in any case: the next one most
//! likely uses it, and would read it again.

use std::collections::HashMap;

use crate::file::{Lease, SegmentId};

/// So few are not worth forgetting by parts.
const FEW_BYTES: usize = 1 << 20;

/// Segments used lately, at most about `limit` bytes of them.
#[derive(Debug)]
pub(super) struct Recent {
    limit: usize,
    bytes: usize,
    /// Counts the splits that are done.
    clock: u64,
    used: HashMap<SegmentId, (Lease, u64)>,
}

impl Recent {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, clock: 0, used: HashMap::new() }
    }

    /// Keeps what one split has used.
    pub(super) fn keep(&mut self, leases: Vec<Lease>) {
        self.clock += 1;
        for lease in leases {
            let id = lease.id;
            let bytes = lease.len();
            match self.used.insert(id, (lease, self.clock)) {
                // A lease of the same segment has the same size.
                Some(_) => {}
                None => self.bytes += bytes,
            }
        }
        if self.bytes > self.limit {
            // A quarter more than needed, so that this is done rarely.
            self.forget_until(self.limit / 4 * 3);
        }
    }

    /// Bytes kept, whether others hold them too or not.
    pub(super) fn byte_len(&self) -> u64 {
        self.bytes as u64
    }

    /// Forgets the oldest quarter; false if there is nothing to forget.
    pub(super) fn forget_some(&mut self) -> bool {
        let before = self.used.len();
        self.forget_until(if self.bytes > FEW_BYTES { self.bytes / 4 * 3 } else { 0 });
        self.used.len() < before
    }

    /// Forgets the oldest until at most so many bytes are left, or only those used last.
    fn forget_until(&mut self, bytes: usize) {
        let older = self.used.iter().filter(|(_, (_, at))| *at < self.clock);
        let mut by_age: Vec<(u64, SegmentId)> = older.map(|(id, (_, at))| (*at, *id)).collect();
        by_age.sort_unstable();
        for (_, id) in by_age {
            if self.bytes <= bytes {
                break;
            }
            if let Some((lease, _)) = self.used.remove(&id) {
                self.bytes -= lease.len();
            }
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.used.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_forget_is_said() {
        let mut recent = Recent::new(10);
        assert!(!recent.forget_some());
        recent.keep(Vec::new());
        assert_eq!(recent.byte_len(), 0);
    }
}
