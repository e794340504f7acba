//! Counts what the tests of this binary allocate, so that they can bound it.
#![expect(unsafe_code, reason = "an allocator is unsafe by nature; this one hands everything on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Requests beyond this fail, which ends the process: nothing that tests read justifies them.
const REFUSED: usize = 8 << 30;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static AT_WORK_ON: AtomicU64 = AtomicU64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes allocated since [`watch`] was called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    start: usize,
}

/// Starts watching; `at_work_on` is what a refused request names.
pub(crate) fn watch(at_work_on: u64) -> Watch {
    AT_WORK_ON.store(at_work_on, Relaxed);
    let start = IN_USE.load(Relaxed);
    PEAK.store(start, Relaxed);
    LARGEST.store(0, Relaxed);
    Watch { start }
}

impl Watch {
    /// The most bytes in use at once, beyond those at the start.
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

// SAFETY: every call is handed to the system's allocator as it is; counting touches no memory
// of its own, and refusing is what a null pointer says.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract, which is the same.
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
