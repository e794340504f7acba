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

/// And this many times if what they need does not stay in the cache: more often than a file of a billion rows has
/// splits, each of which may need a few values of all parts of a dictionary.
const MOST: usize = 16 << 10;

/// Limits of the cache. It belongs to no scan, so that it is not charged to any.
const MAX_PARTS: usize = 64;
const MAX_BYTES: usize = 256 << 20;

static CACHE: Mutex<Cache> = Mutex::new(Cache { parts: VecDeque::new(), bytes: 0 });
static NEXT_ARRAY: AtomicU64 = AtomicU64::new(0);

struct Cache {
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

impl Cache {
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
pub(in crate::encodings) struct PartCache {
    array: u64,
    /// Bytes that all parts have, decompressed once.
    byte_len: usize,
    /// Bytes decompressed by all slices.
    decompressed: AtomicUsize,
}

/// What a part takes, in bytes.
#[derive(Debug, Clone, Copy)]
pub(in crate::encodings) struct Cost {
    /// Those that a slice would decompress.
    pub(in crate::encodings) of_slice: usize,
    /// Those of the whole part in memory.
    pub(in crate::encodings) in_memory: usize,
}

impl PartCache {
    /// A cache for parts that have so many bytes in total.
    pub(in crate::encodings) fn new(byte_len: usize) -> Self {
        Self {
            array: NEXT_ARRAY.fetch_add(1, Ordering::Relaxed),
            byte_len,
            decompressed: AtomicUsize::new(0),
        }
    }

    /// Part `at`, once slices have decompressed much more bytes than all parts have; else, or if it cannot be
    /// decompressed, `None`.
    ///
    /// # Errors
    /// If slices have decompressed far too much.
    pub(in crate::encodings) fn get<T: Any + Send + Sync>(
        &self,
        at: usize,
        cost: Cost,
        decompress: impl FnOnce() -> Result<T>,
    ) -> Result<Option<Arc<T>>> {
        let is_often =
            |factor| self.decompressed.load(Ordering::Relaxed) > self.byte_len.saturating_mul(factor);
        if is_often(OFTEN)
            && let Some(found) = CACHE.lock().find(self.array, at)
            && let Ok(part) = found.downcast()
        {
            return Ok(Some(part));
        }
        if is_often(MOST) {
            return Err(Error::limit("rows that decompress the same parts again and again"));
        }
        let was_often = is_often(OFTEN);
        self.decompressed.fetch_add(cost.of_slice, Ordering::Relaxed);
        if !was_often {
            return Ok(None);
        }
        // The slice may be sound although the rest of the part is not.
        let Ok(part) = decompress() else { return Ok(None) };
        let part = Arc::new(part);
        let data = Arc::clone(&part) as _;
        CACHE.lock().add(Part { array: self.array, at, bytes: cost.in_memory, data });
        Ok(Some(part))
    }
}

impl Drop for PartCache {
    fn drop(&mut self) {
        if self.decompressed.load(Ordering::Relaxed) > 0 {
            CACHE.lock().remove(self.array);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn parts_are_kept_once_they_are_decompressed_often_also_in_turns() {
        let (parts, made) = (PartCache::new(20), Cell::new(0));
        let get = |at| {
            let make = || {
                made.set(made.get() + 1);
                Ok(at)
            };
            parts.get(at, Cost { of_slice: 10, in_memory: 20 }, make).unwrap().map(|part| *part)
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
        let parts = PartCache::new(10);
        let cost = Cost { of_slice: 10, in_memory: 10 };
        let fail = || parts.get(0, cost, || Err::<(), _>(Error::corrupt("its end is missing")));
        let attempts = (0..2 * MOST).take_while(|_| fail().is_ok_and(|part| part.is_none())).count();
        assert_eq!(attempts, MOST + 1);
        assert!(matches!(fail(), Err(Error::LimitExceeded(_))));
    }

    #[test]
    fn the_cache_is_limited_and_holds_nothing_of_arrays_that_are_gone() {
        let mut cache = Cache { parts: VecDeque::new(), bytes: 0 };
        let part = |array, at, bytes| Part { array, at, bytes, data: Arc::new(()) };
        for at in 0..100 {
            cache.add(part(7, at, 1));
        }
        assert_eq!((cache.parts.len(), cache.bytes), (MAX_PARTS, MAX_PARTS));
        assert!(cache.find(7, 99).is_some() && cache.find(7, 0).is_none());
        cache.add(part(8, 0, MAX_BYTES - 2));
        assert!(cache.find(7, 99).is_some() && cache.bytes <= MAX_BYTES);
        cache.remove(8);
        assert_eq!((cache.parts.len(), cache.bytes), (2, 2));
    }
}
