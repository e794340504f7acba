//! Compressing numbers with Zstandard: it finds distant repetitions, which no other scheme here does.

use super::numbers::Numbers;
use super::sample;
use super::scheme::{Context, Kind, NODE_OVERHEAD, Plain, Scheme};
use crate::encodings::zstd;
use crate::kernels::Word;
use crate::wire::WriteNode;
use crate::{Level, Result};

/// Number of values that are compressed to estimate the size.
const TRIED: usize = 16 << 10;

/// Bytes of a frame before compression, all of which are decompressed to read a single row.
const FRAME_BYTES: usize = 16 << 10;

/// Maximum number of frames, however many values a row has: arrays have less than 2^16 buffers.
const MAX_FRAMES: usize = 1 << 15;

/// With fewer rows, trying does not pay.
const MIN_ROWS: usize = 4096;

/// Maximum number of values that one-byte codes can distinguish.
pub(super) const MAX_BYTE_CODES: usize = 1 << 8;

/// The Zstandard level for strings; for numbers, higher levels hardly pay.
pub(super) fn level(cx: &Context) -> i32 {
    if cx.level() == Level::Compact { 9 } else { QUICK }
}

/// The level for numbers, and for estimating the size.
const QUICK: i32 = 3;

fn least_rows(cx: &Context) -> usize {
    if cx.level() == Level::Compact { MIN_ROWS / 16 } else { MIN_ROWS }
}

fn number_level(cx: &Context) -> i32 {
    if cx.level() == Level::Compact { 7 } else { QUICK }
}

/// Integers as bytes. If there are few distinct values, a dictionary is used first, and this for its codes.
pub(super) struct Zstd;

impl<W: Word> Scheme<Numbers<W>> for Zstd {
    fn kind(&self) -> Kind {
        Kind::ZstdNumbers
    }

    fn estimate(&self, numbers: &Numbers<W>, cx: &Context) -> Option<usize> {
        if numbers.len() < least_rows(cx) {
            return None;
        }
        let tried = sample::middle(numbers.len(), TRIED);
        let bytes = zstd::byte_len(&numbers.values[tried.clone()], QUICK).ok()?;
        let whole = (bytes as f64 * numbers.len() as f64 / tried.len() as f64) as usize;
        Some(whole + numbers.null_bytes() + NODE_OVERHEAD)
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        let nulls = numbers.nulls.as_ref();
        let frame_bytes = FRAME_BYTES.max(size_of_val(&*numbers.values).div_ceil(MAX_FRAMES));
        zstd::encode_numbers(&numbers.values, nulls, number_level(cx), frame_bytes, numbers.validity(cx)?)
            .map(Some)
    }
}

/// Whether Zstandard may compress the codes of a dictionary here, which have one byte each.
pub(super) fn compresses_codes(distinct: usize, cx: &Context) -> bool {
    distinct <= MAX_BYTE_CODES && cx.below(Kind::Dictionary, &[]).allows(Kind::ZstdNumbers)
}

/// What `rows` one-byte codes will cost: the bytes that they take, and the cost of decoding them, estimated from
/// some adjacent rows; `of` returns a number that mostly identifies the value of a row.
pub(super) fn code_cost(rows: usize, of: impl Fn(usize) -> u64, cx: &Context) -> Option<f64> {
    if rows < least_rows(cx) {
        return None;
    }
    let tried = sample::middle(rows, TRIED);
    // It does not matter much if some values share a byte.
    let codes: Vec<u8> = tried.map(|row| fold(of(row))).collect();
    let bytes = zstd::byte_len(&codes, QUICK).ok()?;
    Some(cx.cost(
        Kind::ZstdNumbers,
        (bytes as f64 * rows as f64 / codes.len() as f64) as usize,
        Plain { rows, bytes: rows },
    ))
}

/// A byte that distinguishes a number from most others.
fn fold(number: u64) -> u8 {
    if number <= u8::MAX.into() {
        return number as u8;
    }
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
