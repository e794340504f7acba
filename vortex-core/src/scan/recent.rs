//! Segments of splits that are done, kept for those that follow.
//!
//! A chunk often serves many splits, but not all of them read it: a filter may leave no row in
//! one. What was fetched for one split stays for a while, up to a number of bytes; what was not
//! used for longest goes first.

use std::collections::HashMap;

use crate::file::{Lease, SegmentId};

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
            self.forget();
        }
    }

    /// Forgets the oldest until a quarter of the limit is free, so that this is done rarely.
    fn forget(&mut self) {
        let mut by_age: Vec<(u64, SegmentId)> = self.used.iter().map(|(id, (_, at))| (*at, *id)).collect();
        by_age.sort_unstable();
        for (_, id) in by_age {
            if self.bytes <= self.limit / 4 * 3 {
                break;
            }
            if let Some((lease, _)) = self.used.remove(&id) {
                self.bytes -= lease.len();
            }
        }
    }

    /// Forgets everything; whether that was anything.
    pub(super) fn clear(&mut self) -> bool {
        self.bytes = 0;
        let any = !self.used.is_empty();
        self.used.clear();
        any
    }
}
