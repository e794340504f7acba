//! Storing symbols eight at a time, on machines that can pack selected bytes of a vector.
//!
//! ```text
//! symbols   t h e . . . . .   a . . . . . . .   b c . . . . . .   ...
//! mask      1 1 1 0 0 0 0 0   1 0 0 0 0 0 0 0   1 1 0 0 0 0 0 0
//! packed    t h e a b c ...
//! ```
//!
//! One by one, each symbol is stored where the one before ends.
#![expect(unsafe_code, reason = "uses instructions that were detected, and stores into checked capacity")]

use std::arch::x86_64::{
    __m512i, _mm512_castsi256_si512, _mm512_cvtepi16_epi8, _mm512_inserti64x4, _mm512_loadu_si512,
    _mm512_mask_blend_epi8, _mm512_mask_mov_epi8, _mm512_maskz_compress_epi8, _mm512_movepi8_mask,
    _mm512_permutex2var_epi8, _mm512_set_epi64, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_storeu_si512,
    _mm512_test_epi16_mask,
};

use super::{CHUNK, LITERAL, SymbolTable};

/// Symbols packed at once: as many words as a vector has.
const GROUP: usize = 8;

/// Codes whose masks are looked up at once.
const BATCH: usize = 64;

/// Whether this machine can pack bytes.
#[inline]
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("popcnt")
}

/// Stores the symbols at the places of a chunk, one after the other; returns their total length.
///
/// # Safety
/// The machine must [support](is_supported) it, and eight bytes for each place must be writable from `out` on.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,avx2,popcnt")]
pub(super) unsafe fn store(table: &SymbolTable, places: &[u16; CHUNK], out: *mut u8) -> usize {
    let masks = load(&table.masks);
    let mut at = 0;
    for batch in places.as_chunks::<BATCH>().0 {
        let selected = select(&masks, batch);
        for (places, selected) in batch.as_chunks::<GROUP>().0.iter().zip(selected) {
            let symbol = |at: usize| table.symbols[usize::from(places[at]) % 512].cast_signed();
            let symbols = _mm512_set_epi64(
                symbol(7),
                symbol(6),
                symbol(5),
                symbol(4),
                symbol(3),
                symbol(2),
                symbol(1),
                symbol(0),
            );
            // SAFETY: `at` is at most eight for each place before the group, and this stores eight for each of the group.
            unsafe { _mm512_storeu_si512(out.add(at).cast(), _mm512_maskz_compress_epi8(selected, symbols)) };
            at += selected.count_ones() as usize;
        }
    }
    at
}

/// The masks of all codes, in four vectors.
#[target_feature(enable = "avx512f")]
fn load(masks: &[u8; 256]) -> [__m512i; 4] {
    // SAFETY: each vector lies within the array.
    std::array::from_fn(|at| unsafe { _mm512_loadu_si512(masks.as_ptr().add(64 * at).cast()) })
}

/// For each group of places, the bytes of its symbols.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx2")]
fn select(masks: &[__m512i; 4], places: &[u16; BATCH]) -> [u64; BATCH / GROUP] {
    // SAFETY: both halves lie within the array.
    let (first, last) = unsafe {
        let start = places.as_ptr();
        (_mm512_loadu_si512(start.cast()), _mm512_loadu_si512(start.add(BATCH / 2).cast()))
    };
    let literal = _mm512_set1_epi16(LITERAL.cast_signed());
    let literals = u64::from(_mm512_test_epi16_mask(first, literal))
        | u64::from(_mm512_test_epi16_mask(last, literal)) << (BATCH / 2);
    let codes = _mm512_castsi256_si512(_mm512_cvtepi16_epi8(first));
    let codes = _mm512_inserti64x4::<1>(codes, _mm512_cvtepi16_epi8(last));
    let low = _mm512_permutex2var_epi8(masks[0], codes, masks[1]);
    let high = _mm512_permutex2var_epi8(masks[2], codes, masks[3]);
    let of_codes = _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), low, high);
    let of_places = _mm512_mask_mov_epi8(of_codes, literals, _mm512_set1_epi8(1));
    let mut selected = [0; BATCH / GROUP];
    // SAFETY: the array has as many bytes as the vector.
    unsafe { _mm512_storeu_si512(selected.as_mut_ptr().cast(), of_places) };
    selected
}
