//! Numbers by Zstandard: it finds what repeats at a distance, which nothing else here does.

use super::numbers::Numbers;
use super::scheme::{Context, Kind, Plain, Scheme};
use crate::encodings::zstd;
use crate::kernels::Word;
use crate::wire::WriteNode;
use crate::{Level, Result};

/// Values that are compressed to see how well it goes.
const TRIED: usize = 16 << 10;

/// Bytes of a frame before compression: what reading one row costs.
const FRAME_BYTES: usize = 32 << 10;

/// Fewer rows do not pay for trying.
const MIN_ROWS: usize = 4096;

/// Most values that codes of one byte tell apart.
pub(super) const MAX_BYTE_CODES: usize = 1 << 8;

/// What Zstandard spends on strings; on numbers, more hardly pays.
pub(super) fn level(cx: &Context) -> i32 {
    if cx.level() == Level::Compact { 9 } else { QUICK }
}

/// What it spends on numbers, and on finding out how well it goes.
const QUICK: i32 = 3;

fn least_rows(cx: &Context) -> usize {
    if cx.level() == Level::Compact { MIN_ROWS / 16 } else { MIN_ROWS }
}

fn number_level(cx: &Context) -> i32 {
    if cx.level() == Level::Compact { 7 } else { QUICK }
}

/// Integers as bytes. Those of few values have a dictionary first, and this for its codes.
pub(super) struct Zstd;

impl<W: Word> Scheme<Numbers<W>> for Zstd {
    fn kind(&self) -> Kind {
        Kind::ZstdNumbers
    }

    fn estimate(&self, numbers: &Numbers<W>, cx: &Context) -> Option<usize> {
        if numbers.len() < least_rows(cx) {
            return None;
        }
        // Neighbours tell how well it goes, rows far apart would not.
        let tried = numbers.len().min(TRIED);
        let values = numbers.values.slice((numbers.len() - tried) / 2, tried);
        let bytes = zstd::byte_len(&values, QUICK).ok()?;
        Some((bytes as f64 * numbers.len() as f64 / tried as f64) as usize + numbers.null_bytes() + 64)
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        let nulls = numbers.nulls.as_ref();
        zstd::encode_numbers(&numbers.values, nulls, number_level(cx), FRAME_BYTES, numbers.validity(cx)?)
            .map(Some)
    }
}

/// Bytes that `rows` codes of a byte will take, as some neighbours tell; `of` tells the values of
/// rows apart, nearly.
pub(super) fn code_bytes(rows: usize, of: impl Fn(usize) -> u64, cx: &Context) -> Option<f64> {
    if rows < least_rows(cx) {
        return None;
    }
    let tried = rows.min(TRIED);
    let start = (rows - tried) / 2;
    // That some values share a byte does not matter much.
    let codes: Vec<u8> = (start..start + tried).map(|row| fold(of(row))).collect();
    let bytes = zstd::byte_len(&codes, QUICK).ok()?;
    Some(cx.cost(
        Kind::ZstdNumbers,
        (bytes as f64 * rows as f64 / tried as f64) as usize,
        Plain { rows, bytes: rows },
    ))
}

/// A byte that tells a number from most others.
fn fold(number: u64) -> u8 {
    if number <= u8::MAX.into() {
        return number as u8;
    }
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
