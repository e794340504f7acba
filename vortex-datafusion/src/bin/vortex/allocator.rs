//! How the allocator of the system keeps freed memory.
//!
//! Queries free batches of megabytes as fast as they decode others. By default, glibc returns such memory to the kernel
//! at once, which then has to clear every page of the next batch: that takes up to two fifths of the time of queries.
//! Peaks of memory hardly change, since what is kept is used by the next batch.

/// Allocations of up to this many bytes come from memory that was freed before. This is the most that glibc allows.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAX_REUSED: i32 = 32 << 20;

/// Freed bytes at the end of each arena, of which there are a few per core, that are kept.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: i32 = 32 << 20;

/// Lets the allocator keep freed memory for the next batches, unless the environment sets its thresholds; to be called
/// before there are other threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the allocator of the C library has no safe interface")]
pub(crate) fn keep_freed_memory() {
    use nix::libc::{M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, mallopt};

    let thresholds = [
        ("MALLOC_MMAP_THRESHOLD_", M_MMAP_THRESHOLD, MAX_REUSED),
        ("MALLOC_TRIM_THRESHOLD_", M_TRIM_THRESHOLD, KEPT),
    ];
    for (variable, threshold, bytes) in thresholds {
        if std::env::var_os(variable).is_none() {
            // SAFETY: `mallopt` takes two numbers, and no other thread allocates meanwhile. If it refuses them, it
            // changes nothing.
            unsafe { mallopt(threshold, bytes) };
        }
    }
}

/// Other allocators are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn keep_freed_memory() {}
