//! Gathering values by small integer keys, which is how dictionaries are decoded.
#![expect(unsafe_code, reason = "keys are checked once, not per value")]

#[cfg(target_arch = "x86_64")]
pub(super) mod wide;

use std::mem::MaybeUninit;

use super::Word;
use super::simd::{Vectorized, vectorized};

/// An unsigned key of a dictionary.
pub(crate) trait Key: Copy + Ord + Default + 'static {
    /// The key as an index.
    fn index(self) -> usize;
}

impl<W: Word> Key for W {
    fn index(self) -> usize {
        // Keys are compared with a length in memory before they are used.
        usize::try_from(self.as_u64()).unwrap_or(usize::MAX)
    }
}

/// Whether every key is below `len`.
pub(crate) fn in_range<K: Key>(keys: &[K], len: usize) -> bool {
    keys.is_empty() || vectorized(Highest(keys)).index() < len
}

struct Highest<'a, K>(&'a [K]);

impl<K: Key> Vectorized for Highest<'_, K> {
    type Output = K;

    // Folding over the whole slice is vectorized; stopping at the first invalid key would not be.
    #[inline(always)]
    fn run(self) -> K {
        self.0.iter().copied().fold(K::default(), K::max)
    }
}

/// `values[key]` for every key; `None` if a key is out of range.
pub(crate) fn gather<T: Copy, K: Key>(values: &[T], keys: &[K]) -> Option<Vec<T>> {
    let mut out = Vec::with_capacity(keys.len());
    gather_into(values, keys, &mut out)?;
    Some(out)
}

/// Appends `values[key]` for every key; returns `None` and appends nothing if a key is out of range.
pub(crate) fn gather_into<T: Copy, K: Key>(values: &[T], keys: &[K], out: &mut Vec<T>) -> Option<()> {
    if !in_range(keys, values.len()) {
        return None;
    }
    out.reserve(keys.len());
    let places = &mut out.spare_capacity_mut()[..keys.len()];
    // SAFETY: every key was checked above to be less than the length, and each has a place.
    unsafe { gather_checked(values, keys, places) };
    // SAFETY: there is capacity for one value per key, and all of them were written.
    unsafe { out.set_len(out.len() + keys.len()) };
    Some(())
}

/// Writes `values[key]` for each key, in the way that is fastest on this machine.
///
/// # Safety
/// All keys must be below the number of values, and `out` must be as long as `keys`.
unsafe fn gather_checked<T: Copy, K: Key>(values: &[T], keys: &[K], out: &mut [MaybeUninit<T>]) {
    #[cfg(target_arch = "x86_64")]
    if wide::fits::<T, K>(values) && wide::pays() {
        // SAFETY: according to the caller; the machine has the instructions.
        return unsafe { wide::gather_wide(values, keys, out) };
    }
    // SAFETY: according to the caller.
    unsafe { gather_each(values, keys, out) };
}

/// Writes `values[key]` for each key, one after the other.
///
/// # Safety
/// As [`gather_checked`].
unsafe fn gather_each<T: Copy, K: Key>(values: &[T], keys: &[K], out: &mut [MaybeUninit<T>]) {
    for (place, key) in out.iter_mut().zip(keys) {
        // SAFETY: according to the caller, the key is below the length. Bytes are copied, since a 16-byte number would
        // be moved in two halves.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().add(key.index()), place.as_mut_ptr(), 1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathering_equals_indexing() {
        let values: Vec<u64> = (0..300).map(|v| v * 7).collect();
        let keys: Vec<u16> = (0..5000u32).map(|at| u16::try_from(at * 31 % 300).unwrap()).collect();
        let naive: Vec<u64> = keys.iter().map(|key| values[usize::from(*key)]).collect();
        assert_eq!(gather(&values, &keys), Some(naive));
    }

    #[test]
    fn a_key_out_of_range_is_refused() {
        assert_eq!(gather(&[1, 2], &[0u8, 2]), None);
        assert_eq!(gather::<u8, u8>(&[], &[0]), None);
        assert_eq!(gather::<u8, u32>(&[], &[]), Some(vec![]));
    }
}
