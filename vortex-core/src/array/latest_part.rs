//! The part of an array that was decompressed last.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::Result;

/// Slices may decompress this many times the bytes of their array before a part is kept. Splits of usual sizes decompress
/// each part at most a few times.
const OFTEN: usize = 4;

/// A slice may be sound although its part is not. So many times, it is tried without the rest of the part.
const MOST_FAILURES: usize = 64;

/// Keeps the last part that was decompressed, once slices of the array decompress the same parts again and again: a file
/// of a few kilobytes can make any number of splits share a part that takes long.
#[derive(Debug)]
pub(crate) struct LatestPart<T> {
    /// Bytes decompressed by all slices.
    decompressed: AtomicUsize,
    latest: Mutex<Latest<T>>,
}

#[derive(Debug)]
struct Latest<T> {
    part: Option<(usize, Arc<T>)>,
    failures: usize,
}

impl<T> Default for LatestPart<T> {
    fn default() -> Self {
        Self { decompressed: AtomicUsize::new(0), latest: Mutex::new(Latest { part: None, failures: 0 }) }
    }
}

impl<T> LatestPart<T> {
    /// Part `at`, of which a slice would decompress `byte_len` bytes, if it is kept, where all parts have `of` bytes. While
    /// one slice decompresses a part that is to be kept, others wait for it.
    ///
    /// # Errors
    /// As `decompress`, if it has failed often.
    pub(crate) fn get(
        &self,
        at: usize,
        byte_len: usize,
        of: usize,
        decompress: impl FnOnce() -> Result<T>,
    ) -> Result<Option<Arc<T>>> {
        let before = self.decompressed.fetch_add(byte_len, Ordering::Relaxed);
        if before <= of.saturating_mul(OFTEN) {
            return Ok(None);
        }
        let mut latest = self.latest.lock();
        if let Some((known, part)) = &latest.part
            && *known == at
        {
            return Ok(Some(Arc::clone(part)));
        }
        match decompress() {
            Ok(part) => {
                let part = Arc::new(part);
                latest.part = Some((at, Arc::clone(&part)));
                Ok(Some(part))
            }
            Err(_) if latest.failures < MOST_FAILURES => {
                latest.failures += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Error;

    #[test]
    fn the_last_part_is_kept_once_parts_are_decompressed_often() {
        let (parts, made) = (LatestPart::default(), Cell::new(0));
        let get = |at| {
            let make = || {
                made.set(made.get() + 1);
                Ok(at)
            };
            parts.get(at, 10, 20, make).unwrap().map(|part| *part)
        };
        for at in [0, 1].repeat(4) {
            assert_eq!(get(at), None);
        }
        assert_eq!(get(0), None);
        for _ in 0..MOST_FAILURES {
            let broken = parts.get(0, 10, 20, || Err(Error::corrupt("its end is missing")));
            assert_eq!(broken.unwrap(), None);
        }
        assert!(parts.get(0, 10, 20, || Err(Error::corrupt("its end is missing"))).is_err());
        for (at, expected) in [(0, 1), (0, 1), (1, 2), (1, 2), (0, 3)] {
            assert_eq!((get(at), made.get()), (Some(at), expected));
        }
    }
}
