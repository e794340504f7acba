//! Charges the memory of scans to DataFusion's pool.
//!
//! ```text
//! pool   |== operators ==|-- scans --|    free    |
//!                                    └─ at least as much as scans hold, or they take no more
//! ```
//!
//! Scans use memory to read ahead, as much as they get, and can do without; most operators fail if they are
//! refused memory.

use std::ptr::addr_eq;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use datafusion_execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

/// The memory that scans of one partition have reserved. A pool that refuses memory slows them down, but does
/// not make them fail. All scans of a bounded pool take no more of it than they leave free.
#[derive(Debug)]
pub(crate) struct ScanMemory {
    reservation: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
    /// Bytes that all scans of the pool hold.
    held: Arc<AtomicUsize>,
}

impl ScanMemory {
    /// Registers a partition with the pool.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>, partition: usize) -> Self {
        Self {
            reservation: MemoryConsumer::new(format!("VortexScan[{partition}]")).register(pool),
            pool: Arc::clone(pool),
            held: held_by_scans(pool),
        }
    }

    /// Whether scans, which hold `held` bytes, may take as many as `bytes` more.
    fn may_take(&self, held: usize, bytes: usize) -> bool {
        let MemoryLimit::Finite(limit) = self.pool.memory_limit() else { return true };
        let free = limit.saturating_sub(self.pool.reserved()).saturating_sub(bytes);
        bytes == 0 || held.saturating_add(bytes) <= free
    }
}

impl vortex_core::io::MemoryPool for ScanMemory {
    fn try_grow(&self, bytes: u64) -> bool {
        let Ok(bytes) = usize::try_from(bytes) else { return false };
        // No lock is held while the pool decides, which may take long or drop other scans.
        let held = self.held.fetch_add(bytes, Ordering::Relaxed);
        let granted = self.may_take(held, bytes) && self.reservation.try_grow(bytes).is_ok();
        if !granted {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        granted
    }

    fn shrink(&self, bytes: u64) {
        // No more is returned than was taken, so it fits into `usize`.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.reservation.shrink(bytes);
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A pool, and the bytes that all of its scans hold. As long as an entry exists, no other pool can have its
/// address.
type Known = (Weak<dyn MemoryPool>, Arc<AtomicUsize>);

/// The number of bytes that all scans of a pool hold. Sessions share pools, but nothing that could carry it. A pool
/// that wraps another one counts as a pool of its own.
fn held_by_scans(pool: &Arc<dyn MemoryPool>) -> Arc<AtomicUsize> {
    static POOLS: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    let mut pools = POOLS.lock();
    let is_it = |known: &Weak<dyn MemoryPool>| addr_eq(known.as_ptr(), Arc::as_ptr(pool));
    if let Some((_, held)) = pools.iter().find(|(known, _)| is_it(known)) {
        return Arc::clone(held);
    }
    pools.retain(|(known, _)| known.strong_count() > 0);
    let held = Arc::default();
    pools.push((Arc::downgrade(pool), Arc::clone(&held)));
    held
}

#[cfg(test)]
mod tests {
    use datafusion_execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
    use vortex_core::io::MemoryPool as _;

    use super::*;

    #[test]
    fn what_is_taken_goes_back_to_the_pool() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
        let memory = ScanMemory::new(&pool, 0);
        assert!(memory.try_grow(40));
        assert!(!memory.try_grow(40));
        memory.shrink(20);
        assert_eq!(pool.reserved(), 20);
        memory.shrink(20);
        assert!(memory.try_grow(50));
        drop(memory);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn all_scans_of_a_pool_leave_as_much_free_as_they_hold() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
        let scans = [ScanMemory::new(&pool, 0), ScanMemory::new(&pool, 0), ScanMemory::new(&pool, 1)];
        assert!(scans[0].try_grow(30) && scans[1].try_grow(20) && !scans[2].try_grow(1));
        let operator = MemoryConsumer::new("operator").register(&pool);
        operator.try_grow(50).unwrap();
        assert!(scans[2].try_grow(0), "nothing more is needed");
        scans[0].shrink(30);
        assert!(scans[2].try_grow(5) && !scans[2].try_grow(1));
        drop(operator);
        assert!(scans[2].try_grow(25) && !scans[0].try_grow(1));
    }

    #[test]
    fn a_pool_without_a_limit_grants_everything() {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        assert!(ScanMemory::new(&pool, 0).try_grow(1 << 40));
    }
}
