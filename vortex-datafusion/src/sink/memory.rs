//! The memory of the files of a statement that are being written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion_common::Result;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// A pool, and what all files of a statement hold of it.
#[derive(Debug)]
pub(super) struct WriteMemory {
    pool: Arc<dyn MemoryPool>,
    held: Arc<AtomicUsize>,
}

/// What one file holds.
#[derive(Debug)]
pub(super) struct FileMemory {
    reservation: MemoryReservation,
    held: Arc<AtomicUsize>,
}

impl WriteMemory {
    pub(super) fn new(pool: Arc<dyn MemoryPool>) -> Self {
        Self { pool, held: Arc::default() }
    }

    /// Registers a file with the pool.
    pub(super) fn file(&self, name: impl Into<String>) -> FileMemory {
        let reservation = MemoryConsumer::new(name).register(&self.pool);
        FileMemory { reservation, held: Arc::clone(&self.held) }
    }

    /// Whether the files hold more than they leave to operators, which may fail where files need only be written out.
    pub(super) fn is_short(&self) -> bool {
        let MemoryLimit::Finite(limit) = self.pool.memory_limit() else { return false };
        limit.saturating_sub(self.pool.reserved()) < self.held.load(Ordering::Relaxed)
    }
}

impl FileMemory {
    pub(super) fn size(&self) -> usize {
        self.reservation.size()
    }

    /// Holds so many bytes from now on.
    ///
    /// # Errors
    /// If the pool refuses.
    pub(super) fn try_resize(&self, bytes: usize) -> Result<()> {
        let before = self.size();
        self.reservation.try_resize(bytes)?;
        // The sum wraps, as does what is added: it is right once all have been added.
        self.held.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        self.held.fetch_sub(self.size(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use datafusion_execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

    use super::*;

    #[test]
    fn files_are_short_of_memory_if_they_hold_more_than_is_free() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
        let memory = WriteMemory::new(Arc::clone(&pool));
        let (first, second) = (memory.file("first"), memory.file("second"));
        first.try_resize(30).unwrap();
        second.try_resize(20).unwrap();
        assert!(!memory.is_short());
        let others = MemoryConsumer::new("others").register(&pool);
        others.try_grow(1).unwrap();
        assert!(memory.is_short());
        second.try_resize(10).unwrap();
        assert!(!memory.is_short());
        assert!(second.try_resize(100).is_err());
        drop(first);
        others.try_grow(79).unwrap();
        assert!(!memory.is_short());
        assert_eq!(pool.reserved(), 90);
    }

    #[test]
    fn without_a_limit_files_are_never_short_of_memory() {
        let memory = WriteMemory::new(Arc::new(UnboundedMemoryPool::default()));
        let file = memory.file("file");
        file.try_resize(usize::MAX / 2).unwrap();
        assert!(!memory.is_short());
    }
}
