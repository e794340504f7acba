//! Charges the memory of scans to DataFusion's pool.

use std::sync::Arc;

use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

/// The memory that scans of one partition have reserved. A pool that refuses memory slows them down, but does
/// not make them fail.
#[derive(Debug)]
pub(crate) struct ScanMemory(MemoryReservation);

impl ScanMemory {
    /// Registers a partition with the pool.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>, partition: usize) -> Self {
        Self(MemoryConsumer::new(format!("VortexScan[{partition}]")).register(pool))
    }
}

impl vortex_core::io::MemoryPool for ScanMemory {
    fn try_grow(&self, bytes: u64) -> bool {
        usize::try_from(bytes).is_ok_and(|bytes| self.0.try_grow(bytes).is_ok())
    }

    fn shrink(&self, bytes: u64) {
        // No more is returned than was taken, so it fits into `usize`.
        self.0.shrink(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
mod tests {
    use datafusion_execution::memory_pool::GreedyMemoryPool;
    use vortex_core::io::MemoryPool as _;

    use super::*;

    #[test]
    fn what_is_taken_goes_back_to_the_pool() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
        let memory = ScanMemory::new(&pool, 0);
        assert!(memory.try_grow(60));
        assert!(!memory.try_grow(60));
        memory.shrink(20);
        assert_eq!(pool.reserved(), 40);
        drop(memory);
        assert_eq!(pool.reserved(), 0);
    }
}
