//! Parts of arrays that slices decompress again and again, in a small cache of the process.
//!
//! A file of a few kilobytes can make any number of splits share parts that take long: statistics decide how many rows
//! a split has. Splits of usual sizes decompress each part at most a few times, and keep nothing here.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::{Error, Result};

/// Slices may decompress this many times the bytes of their array before parts are kept.
const OFTEN: usize = 4;

/// And this many times if what they need does not stay in the cache: more often than a file of a billion rows has splits,
/// each of which may need a few values of all parts of a dictionary.
const MOST: usize = 16 << 10;

/// Limits of the cache. It belongs to no scan, so that it is not charged to any.
const MAX_PARTS: usize = 64;
const MAX_BYTES: usize = 256 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { parts: VecDeque::new(), bytes: 0 });
static NEXT_ARRAY: AtomicU64 = AtomicU64::new(0);

struct Kept {
    /// The last one was used last.
    parts: VecDeque<Part>,
    bytes: usize,
}

struct Part {
    array: u64,
    at: usize,
    bytes: usize,
    data: Arc<dyn Any + Send + Sync>,
}

impl Kept {
    fn find(&mut self, array: u64, at: usize) -> Option<Arc<dyn Any + Send + Sync>> {
        let found = self.parts.iter().position(|part| part.array == array && part.at == at)?;
        let part = self.parts.remove(found)?;
        let data = Arc::clone(&part.data);
        self.parts.push_back(part);
        Some(data)
    }

    fn add(&mut self, part: Part) {
        self.bytes += part.bytes;
        self.parts.push_back(part);
        while self.parts.len() > MAX_PARTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.parts.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
    }

    fn remove(&mut self, array: u64) {
        self.parts.retain(|part| part.array != array);
        self.bytes = self.parts.iter().map(|part| part.bytes).sum();
    }
}

/// The parts of one array, which its slices share.
#[derive(Debug)]
pub(crate) struct OftenRead {
    array: u64,
    /// Bytes decompressed by all slices.
    decompressed: AtomicUsize,
}

impl Default for OftenRead {
    fn default() -> Self {
        Self { array: NEXT_ARRAY.fetch_add(1, Ordering::Relaxed), decompressed: AtomicUsize::new(0) }
    }
}

impl OftenRead {
    /// Part `at`, of which a slice would decompress `byte_len` bytes, once slices have decompressed much more than `of`
    /// bytes, which all parts have; else, or if it cannot be decompressed, `None`. It takes `kept_bytes` in memory.
    ///
    /// # Errors
    /// If slices have decompressed far too much.
    pub(crate) fn get<T: Any + Send + Sync>(
        &self,
        at: usize,
        [byte_len, of, kept_bytes]: [usize; 3],
        decompress: impl FnOnce() -> Result<T>,
    ) -> Result<Option<Arc<T>>> {
        let is_often = |factor| self.decompressed.load(Ordering::Relaxed) > of.saturating_mul(factor);
        if is_often(OFTEN)
            && let Some(found) = KEPT.lock().find(self.array, at)
            && let Ok(part) = found.downcast()
        {
            return Ok(Some(part));
        }
        if is_often(MOST) {
            return Err(Error::limit("rows that decompress the same parts again and again"));
        }
        let was_often = is_often(OFTEN);
        self.decompressed.fetch_add(byte_len, Ordering::Relaxed);
        if !was_often {
            return Ok(None);
        }
        // The slice may be sound although the rest of the part is not.
        let Ok(part) = decompress() else { return Ok(None) };
        let part = Arc::new(part);
        let data = Arc::clone(&part) as _;
        KEPT.lock().add(Part { array: self.array, at, bytes: kept_bytes, data });
        Ok(Some(part))
    }
}

impl Drop for OftenRead {
    fn drop(&mut self) {
        if self.decompressed.load(Ordering::Relaxed) > 0 {
            KEPT.lock().remove(self.array);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn parts_are_kept_once_they_are_decompressed_often_also_in_turns() {
        let (parts, made) = (OftenRead::default(), Cell::new(0));
        let get = |at| {
            let make = || {
                made.set(made.get() + 1);
                Ok(at)
            };
            parts.get(at, [10, 20, 20], make).unwrap().map(|part| *part)
        };
        for at in [0, 1].repeat(4) {
            assert_eq!(get(at), None);
        }
        assert_eq!(get(0), None);
        for at in [0, 1].repeat(100) {
            assert_eq!(get(at), Some(at));
        }
        assert_eq!(made.get(), 2);
    }

    #[test]
    fn what_does_not_stay_in_the_cache_is_refused_in_the_end() {
        let parts = OftenRead::default();
        let fail = || parts.get(0, [10, 10, 10], || Err::<(), _>(Error::corrupt("its end is missing")));
        let attempts = (0..2 * MOST).take_while(|_| fail().is_ok_and(|part| part.is_none())).count();
        assert_eq!(attempts, MOST + 1);
        assert!(matches!(fail(), Err(Error::LimitExceeded(_))));
    }

    #[test]
    fn the_cache_is_limited_and_holds_nothing_of_arrays_that_are_gone() {
        let mut kept = Kept { parts: VecDeque::new(), bytes: 0 };
        let part = |array, at, bytes| Part { array, at, bytes, data: Arc::new(()) };
        for at in 0..100 {
            kept.add(part(7, at, 1));
        }
        assert_eq!((kept.parts.len(), kept.bytes), (MAX_PARTS, MAX_PARTS));
        assert!(kept.find(7, 99).is_some() && kept.find(7, 0).is_none());
        kept.add(part(8, 0, MAX_BYTES - 2));
        assert!(kept.find(7, 99).is_some() && kept.bytes <= MAX_BYTES);
        kept.remove(8);
        assert_eq!((kept.parts.len(), kept.bytes), (2, 2));
    }
}
