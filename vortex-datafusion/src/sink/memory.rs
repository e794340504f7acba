//! The memory of the files of a statement that are being written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion_common::Result;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// Files are not written out to hold less than this together: they would consist of short chunks.
const MIN_HELD: usize = 1 << 20;

/// A pool, and the bytes of all files of a statement that can be written out.
#[derive(Debug)]
pub(super) struct WriteMemory {
    pool: Arc<dyn MemoryPool>,
    unwritten: Arc<AtomicUsize>,
}

/// What one file holds.
#[derive(Debug)]
pub(super) struct FileMemory {
    reservation: MemoryReservation,
    unwritten: usize,
    of_all: Arc<AtomicUsize>,
}

impl WriteMemory {
    pub(super) fn new(pool: Arc<dyn MemoryPool>) -> Self {
        Self { pool, unwritten: Arc::default() }
    }

    /// Registers a file with the pool.
    pub(super) fn file(&self, name: impl Into<String>) -> FileMemory {
        let reservation = MemoryConsumer::new(name).register(&self.pool);
        FileMemory { reservation, unwritten: 0, of_all: Arc::clone(&self.unwritten) }
    }

    /// Whether the files hold more than they leave to operators, which may fail where files need only be written out.
    pub(super) fn is_short(&self) -> bool {
        self.exceeds(1)
    }

    /// Whether so much has been written out that it will take a while until memory is short again: to look at all files
    /// takes long if there are thousands.
    pub(super) fn has_room(&self) -> bool {
        !self.exceeds(2)
    }

    /// Whether the files hold more than a share of what is free.
    fn exceeds(&self, share: usize) -> bool {
        let MemoryLimit::Finite(limit) = self.pool.memory_limit() else { return false };
        let free = limit.saturating_sub(self.pool.reserved());
        self.unwritten.load(Ordering::Relaxed) > free.max(MIN_HELD) / share
    }
}

impl FileMemory {
    /// Holds `bytes` from now on, of which so many can be written out.
    ///
    /// # Errors
    /// If the pool refuses.
    pub(super) fn try_resize(&mut self, bytes: usize, unwritten: usize) -> Result<()> {
        self.reservation.try_resize(bytes)?;
        let before = std::mem::replace(&mut self.unwritten, unwritten);
        // The sum wraps, as does what is added: it is right once all have been added.
        self.of_all.fetch_add(unwritten.wrapping_sub(before), Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        self.of_all.fetch_sub(self.unwritten, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use datafusion_execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

    use super::*;

    const MB: usize = 1 << 20;

    #[test]
    fn files_are_short_of_memory_if_they_hold_more_than_is_free() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100 * MB));
        let memory = WriteMemory::new(Arc::clone(&pool));
        let (mut first, mut second) = (memory.file("first"), memory.file("second"));
        first.try_resize(30 * MB, 30 * MB).unwrap();
        second.try_resize(20 * MB, 20 * MB).unwrap();
        assert!(!memory.is_short());
        let others = MemoryConsumer::new("others").register(&pool);
        others.try_grow(1).unwrap();
        assert!(memory.is_short());
        // What is on its way to storage does not count.
        first.try_resize(30 * MB, 10 * MB).unwrap();
        assert!(!memory.is_short() && !memory.has_room());
        first.try_resize(10 * MB, 10 * MB).unwrap();
        second.try_resize(10 * MB, 10 * MB).unwrap();
        assert!(memory.has_room());
        assert!(second.try_resize(100 * MB, 100 * MB).is_err());
        drop(first);
        drop(second);
        assert_eq!(pool.reserved(), 1);
        assert_eq!(memory.unwritten.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_little_is_held_however_little_is_free() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(MB));
        let memory = WriteMemory::new(pool);
        let mut file = memory.file("file");
        file.try_resize(MB, MB).unwrap();
        assert!(!memory.is_short());
    }

    #[test]
    fn without_a_limit_files_are_never_short_of_memory() {
        let memory = WriteMemory::new(Arc::new(UnboundedMemoryPool::default()));
        let mut file = memory.file("file");
        file.try_resize(usize::MAX / 2, usize::MAX / 2).unwrap();
        assert!(!memory.is_short());
    }
}
