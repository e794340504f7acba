//! Reuses the memory of reads.
//!
//! The operating system has to clear a large allocation page by page, which takes longer than copying a
//! file's cached bytes into it. Read buffers are large, equal in size and short-lived, so they are kept
//! for the next read once their bytes are no longer referenced. The process keeps them as long as it runs,
//! outside of all budgets, which count what is in use.

use std::ops::Range;

use bytes::Bytes;
use parking_lot::Mutex;

/// Smaller buffers are cheap to allocate, larger ones too rare to keep.
const SIZES: Range<usize> = 32 << 10..(8 << 20) + 1;

/// Maximum number of bytes kept by the whole process.
const MAX_KEPT: usize = 64 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { buffers: Vec::new(), bytes: 0 });

/// Unused buffers.
struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A buffer that is returned for reuse when it is dropped.
pub(super) struct Recycled {
    bytes: Vec<u8>,
    len: usize,
}

impl Recycled {
    /// A buffer of `len` bytes, whose values are arbitrary.
    pub(super) fn of_len(len: usize) -> Self {
        if !SIZES.contains(&len) {
            return Self { bytes: vec![0; len], len };
        }
        let kept = KEPT.lock().take(len);
        // Zeroed memory that comes straight from the system is cleared only once.
        Self { bytes: kept.unwrap_or_else(|| vec![0; rounded(len)]), len }
    }

    /// The buffer as shared bytes.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Recycled {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl AsMut<[u8]> for Recycled {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if SIZES.contains(&bytes.len()) {
            let rejected = KEPT.lock().put(bytes);
            // Returning memory to the system takes a while: not under the lock.
            drop(rejected);
        }
    }
}

impl Kept {
    /// A buffer of at least `len` bytes, and hardly more: whoever reads counts those that it asked for.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let sizes = self.buffers.iter().map(Vec::len).enumerate();
        let fitting = sizes.filter(|(_, size)| *size >= len && size - size / 4 <= len);
        let (at, size) = fitting.min_by_key(|(_, size)| *size)?;
        self.bytes -= size;
        Some(self.buffers.swap_remove(at))
    }

    /// Keeps a buffer for later, or returns it.
    fn put(&mut self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        if !SIZES.contains(&buffer.len()) || self.bytes + buffer.len() > MAX_KEPT {
            return Some(buffer);
        }
        self.bytes += buffer.len();
        self.buffers.push(buffer);
        None
    }
}

/// `len` rounded up by at most an eighth of a power of two, so that sizes recur.
fn rounded(len: usize) -> usize {
    len.next_multiple_of((len.next_power_of_two() / 16).max(1)).min(SIZES.end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_once_their_bytes_are_gone() {
        let mut kept = Kept { buffers: Vec::new(), bytes: 0 };
        assert!(kept.put(vec![1; 100 << 10]).is_none());
        assert!(kept.put(vec![2; 1 << 10]).is_some(), "too small a buffer");
        assert!(kept.put(vec![3; 90 << 10]).is_none());
        assert_eq!(kept.bytes, 190 << 10);
        assert!(kept.take(40 << 10).is_none(), "too large a buffer");
        assert_eq!(kept.take(80 << 10).map(|buffer| buffer.len()), Some(90 << 10));
        assert_eq!(kept.bytes, 100 << 10);
    }

    #[test]
    fn lengths_are_those_asked_for() {
        for len in [0, 1, 31 << 10, 33 << 10, 70_001, (8 << 20) - 1, 8 << 20, 9 << 20] {
            let mut buffer = Recycled::of_len(len);
            buffer.as_mut().fill(7);
            assert_eq!(buffer.into_bytes(), vec![7; len]);
        }
    }
}
