//! Storing symbols eight at a time, on machines that can pack selected bytes of a vector.
//!
//! ```text
//! symbols   t h e . . . . .   a . . . . . . .   b c . . . . . .   ...
//! mask      1 1 1 0 0 0 0 0   1 0 0 0 0 0 0 0   1 1 0 0 0 0 0 0
//! packed    t h e a b c ...
//! ```
//!
//! One by one, each symbol is stored where the one before ends. Symbols get into a vector by single loads, or by one
//! instruction where that [pays](wide::pays).
#![expect(unsafe_code, reason = "uses instructions that were detected, and stores into checked capacity")]

use std::arch::x86_64::{
    __m512i, _mm_and_si128, _mm_castpd_si128, _mm_castsi128_pd, _mm_loadh_pd, _mm_loadl_epi64,
    _mm_loadu_si128, _mm_set1_epi16, _mm256_castsi128_si256, _mm256_cvtepu16_epi32, _mm256_inserti128_si256,
    _mm512_castsi256_si512, _mm512_cvtepi16_epi8, _mm512_i32gather_epi64, _mm512_inserti64x4,
    _mm512_loadu_si512, _mm512_mask_blend_epi8, _mm512_mask_mov_epi8, _mm512_maskz_compress_epi8,
    _mm512_movepi8_mask, _mm512_permutex2var_epi8, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_storeu_si512,
    _mm512_test_epi16_mask,
};
use std::hint::black_box;

use super::{CHUNK, LITERAL, SymbolTable};
use crate::kernels::gather::wide;

/// Symbols packed at once: as many words as a vector has.
const GROUP: usize = 8;

/// Codes whose masks are looked up at once.
const BATCH: usize = 64;

/// How symbols get into a vector, on a machine that can pack its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Loads,
    Gathers,
}

impl Packing {
    /// The faster one on this machine; `None` if it cannot pack bytes.
    #[inline]
    pub(super) fn best() -> Option<Self> {
        let packs = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("popcnt");
        packs.then(|| if wide::pays() { Self::Gathers } else { Self::Loads })
    }
}

/// Stores the symbols at the places of a chunk, one after the other; returns their total length.
///
/// # Safety
/// The machine must be able to [pack](Packing::best), and eight bytes for each place must be writable from `out` on.
#[inline]
pub(super) unsafe fn store(
    packing: Packing,
    table: &SymbolTable,
    places: &[u16; CHUNK],
    out: *mut u8,
) -> usize {
    // SAFETY: according to the caller.
    unsafe {
        match packing {
            Packing::Loads => store_groups::<false>(table, places, out),
            Packing::Gathers => store_groups::<true>(table, places, out),
        }
    }
}

/// # Safety
/// As [`store`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,avx2,popcnt")]
unsafe fn store_groups<const GATHERS: bool>(
    table: &SymbolTable,
    places: &[u16; CHUNK],
    out: *mut u8,
) -> usize {
    let masks = load(&table.masks);
    let mut at = 0;
    for batch in places.as_chunks::<BATCH>().0 {
        let selected = select(&masks, batch);
        for (places, selected) in batch.as_chunks::<GROUP>().0.iter().zip(selected) {
            let symbols =
                if GATHERS { gathered(&table.symbols, places) } else { loaded(&table.symbols, places) };
            // SAFETY: `at` is at most eight for each place before the group, and this stores eight for each of the
            // group.
            unsafe { _mm512_storeu_si512(out.add(at).cast(), _mm512_maskz_compress_epi8(selected, symbols)) };
            at += selected.count_ones() as usize;
        }
    }
    at
}

/// The symbols at eight places, loaded by one instruction.
#[inline]
#[target_feature(enable = "avx512f,avx2")]
fn gathered(symbols: &[u64; 512], places: &[u16; GROUP]) -> __m512i {
    // SAFETY: as many bytes are read as there are places, which are then limited to the length of the table.
    unsafe {
        let places = _mm_and_si128(_mm_loadu_si128(places.as_ptr().cast()), _mm_set1_epi16(511));
        _mm512_i32gather_epi64::<8>(_mm256_cvtepu16_epi32(places), symbols.as_ptr().cast())
    }
}

/// The symbols at eight places, loaded two by two.
#[inline]
#[target_feature(enable = "avx512f,avx2")]
fn loaded(symbols: &[u64; 512], places: &[u16; GROUP]) -> __m512i {
    // Places are taken out of words: the compiler would load them into a vector and extract each, which is slower.
    let [low, high] = [[0, 1, 2, 3], [4, 5, 6, 7]].map(|of_half| {
        let bytes = of_half.map(|at: usize| places[at].to_le_bytes());
        black_box(u64::from_le_bytes(*bytes.as_flattened().as_array().unwrap_or(&[0; 8])))
    });
    let pair = |places: u64| {
        let symbol = |place: u64| std::ptr::from_ref(&symbols[place as usize % 512]);
        // SAFETY: both are symbols of the table.
        unsafe {
            let first = _mm_castsi128_pd(_mm_loadl_epi64(symbol(places).cast()));
            _mm_castpd_si128(_mm_loadh_pd(first, symbol(places >> 16).cast()))
        }
    };
    let four =
        |places: u64| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(pair(places)), pair(places >> 32));
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(four(low)), four(high))
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
