//! Counts the allocations of the tests in this binary, so that they can check limits.
#![expect(unsafe_code, reason = "an allocator is inherently unsafe; this one forwards every call")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Larger requests fail, which ends the process: nothing that tests read justifies them.
const REFUSED: usize = 8 << 30;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static AT_WORK_ON: AtomicU64 = AtomicU64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts bytes allocated since [`watch`] was called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    start: usize,
}

/// Starts watching; `at_work_on` is reported if a request is refused.
pub(crate) fn watch(at_work_on: u64) -> Watch {
    AT_WORK_ON.store(at_work_on, Relaxed);
    let start = IN_USE.load(Relaxed);
    PEAK.store(start, Relaxed);
    LARGEST.store(0, Relaxed);
    Watch { start }
}

impl Watch {
    /// The peak number of bytes in use, relative to the start.
    pub(crate) fn peak(&self) -> usize {
        PEAK.load(Relaxed).saturating_sub(self.start)
    }

    /// The largest single request.
    pub(crate) fn largest(&self) -> usize {
        LARGEST.load(Relaxed)
    }
}

fn grow(bytes: usize) -> bool {
    LARGEST.fetch_max(bytes, Relaxed);
    if bytes > REFUSED {
        let mut line = [0u8; 128];
        let rest = line.len();
        let mut cursor = &mut line[..];
        let _ = writeln!(cursor, "request of {bytes} bytes; at work on {}", AT_WORK_ON.load(Relaxed));
        let written = rest - cursor.len();
        let _ = std::io::stderr().write_all(&line[..written]);
        return false;
    }
    let now = IN_USE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(now, Relaxed);
    true
}

fn shrink(bytes: usize) {
    IN_USE.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system allocator; counting uses no memory of its own,
// and a null pointer is the way to refuse a request.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller upholds the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !grow(new_size) {
            return std::ptr::null_mut();
        }
        shrink(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
