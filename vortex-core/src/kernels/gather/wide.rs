//! Gathering several values by one instruction, on machines where that is faster than loading them one by one.
//!
//! Whether it is depends on more than the instruction set: some machines split the instruction into more steps than the
//! loads take, and updates against Downfall (CVE-2022-40982) made it several times as slow: two machines with the same
//! instruction sets differ by a factor of three. Guests cannot ask for either, so both ways are timed, once per
//! process.
#![expect(unsafe_code, reason = "uses instructions that were detected, with keys that were checked")]

use std::arch::x86_64::{
    __m512i, _mm_loadu_si128, _mm256_loadu_si256, _mm512_castsi512_si256, _mm512_cvtepu8_epi32,
    _mm512_cvtepu16_epi32, _mm512_extracti64x4_epi64, _mm512_i32gather_epi32, _mm512_i32gather_epi64,
    _mm512_loadu_si512, _mm512_storeu_si512,
};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::{Key, gather_each};

/// Keys per iteration: as many 32-bit integers as a vector has.
const GROUP: usize = 16;

/// Values and keys that are timed.
const TIMED: (usize, usize) = (256, 4096);

/// Times each way is timed; the least counts, so that interruptions do not.
const ROUNDS: usize = 5;

/// Whether this machine has the instructions, and they are faster than single loads.
pub(in crate::kernels) fn pays() -> bool {
    static PAYS: LazyLock<bool> = LazyLock::new(|| is_supported() && is_faster());
    *PAYS
}

fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx2")
}

/// Whether gathering takes less time than loading one by one; takes about 30 microseconds.
fn is_faster() -> bool {
    let values: Vec<u64> = (0..TIMED.0 as u64).collect();
    let keys: Vec<u8> = (0..TIMED.1).map(|at| (at * 89) as u8).collect();
    let mut out = vec![MaybeUninit::uninit(); keys.len()];
    let mut least = |gather: fn(&[u64], &[u8], &mut [MaybeUninit<u64>])| {
        let times = (0..ROUNDS).map(|_| {
            let start = Instant::now();
            gather(black_box(&values), black_box(&keys), black_box(&mut out));
            start.elapsed()
        });
        times.min().unwrap_or(Duration::MAX)
    };
    let one_by_one = least(|values, keys, out| {
        // SAFETY: no byte reaches the number of values, and there is a place for each key.
        unsafe { gather_each(values, keys, out) };
    });
    let at_once = least(|values, keys, out| {
        // SAFETY: as above; the caller has checked that the machine has the instructions.
        unsafe { gather_wide(values, keys, out) };
    });
    at_once < one_by_one
}

/// Whether [`gather_wide`] supports values and keys of these types, and that many values.
pub(super) fn fits<T, K: Key>(values: &[T]) -> bool {
    matches!(size_of::<T>(), 4 | 8) && size_of::<K>() <= 4 && i32::try_from(values.len()).is_ok()
}

/// Writes `values[key]` for each key.
///
/// # Safety
/// The machine must have the instructions, types must [fit](fits), all keys must be below the number of values, and
/// `out` must be as long as `keys`.
#[target_feature(enable = "avx512f,avx2")]
pub(super) unsafe fn gather_wide<T: Copy, K: Key>(values: &[T], keys: &[K], out: &mut [MaybeUninit<T>]) {
    debug_assert!(fits::<T, K>(values) && keys.len() == out.len(), "unsupported types");
    let (groups, rest) = keys.as_chunks::<GROUP>();
    let (whole, last) = out.split_at_mut(groups.len() * GROUP);
    for (keys, out) in groups.iter().zip(whole.as_chunks_mut::<GROUP>().0) {
        let (from, to) = (values.as_ptr(), out.as_mut_ptr());
        let keys = widened(keys);
        // SAFETY: keys are indices of values, which fit a signed number. There is room for as many values as keys, each
        // as wide as what the instruction loads.
        unsafe {
            if size_of::<T>() == 4 {
                _mm512_storeu_si512(to.cast(), _mm512_i32gather_epi32::<4>(keys, from.cast()));
            } else {
                let (low, high) = (_mm512_castsi512_si256(keys), _mm512_extracti64x4_epi64::<1>(keys));
                _mm512_storeu_si512(to.cast(), _mm512_i32gather_epi64::<8>(low, from.cast()));
                let to = to.add(GROUP / 2);
                _mm512_storeu_si512(to.cast(), _mm512_i32gather_epi64::<8>(high, from.cast()));
            }
        }
    }
    // SAFETY: according to the caller, as above.
    unsafe { gather_each(values, rest, last) };
}

/// Keys of up to four bytes as 32-bit integers.
#[inline]
#[target_feature(enable = "avx512f,avx2")]
fn widened<K: Key>(keys: &[K; GROUP]) -> __m512i {
    let keys = keys.as_ptr();
    // SAFETY: as many bytes are read as the keys have.
    unsafe {
        match size_of::<K>() {
            1 => _mm512_cvtepu8_epi32(_mm_loadu_si128(keys.cast())),
            2 => _mm512_cvtepu16_epi32(_mm256_loadu_si256(keys.cast())),
            _ => _mm512_loadu_si512(keys.cast()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathering_at_once_equals_one_by_one() {
        fn check<T: Copy + Default + PartialEq + std::fmt::Debug, K: Key>(
            value: fn(u64) -> T,
            key: fn(u64) -> K,
            values: usize,
        ) {
            let mut next = crate::kernels::random(values as u64);
            let values: Vec<T> = (0..values).map(|_| value(next())).collect();
            for len in [0, 1, 15, 16, 17, 100, 1024] {
                let keys: Vec<K> = (0..len).map(|_| key(next() % values.len() as u64)).collect();
                let mut out = vec![MaybeUninit::new(T::default()); len];
                assert!(fits::<T, K>(&values));
                // SAFETY: the machine has the instructions, keys are below the number of values, and there are as many
                // places.
                unsafe { gather_wide(&values, &keys, &mut out) };
                for (key, out) in keys.iter().zip(out) {
                    // SAFETY: it was initialized from the beginning.
                    assert_eq!(unsafe { out.assume_init() }, values[key.index()]);
                }
            }
        }
        if !is_supported() {
            return;
        }
        check(|bits| bits as u32, |key| key as u8, 256);
        check(|bits| bits as u32, |key| key as u16, 1 << 16);
        check(|bits| bits as u32, |key| key as u32, 70_000);
        check(|bits| bits, |key| key as u8, 1);
        check(|bits| bits, |key| key as u16, 3000);
        check(|bits| bits as i64, |key| key as u32, 70_000);
    }

    #[test]
    fn only_words_with_short_keys_fit() {
        assert!(!fits::<u128, u8>(&[]) && !fits::<u16, u8>(&[]) && !fits::<u64, u64>(&[]));
        assert!(fits::<u64, u32>(&[]) && fits::<f32, u8>(&[]));
    }
}
