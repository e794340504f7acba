//! Extension types: encoded by their storage, and timestamps also as days, seconds and ticks.

use arrow::array::{Array as _, ArrayRef};

use super::canonical::storage;
use super::numbers::{bits, compress_narrowed, equal_rows};
use super::sample::{self, Sample};
use super::scheme::{Context, Kind, Plain};
use crate::Result;
use crate::array::values_of;
use crate::dtype::{DType, Extension, Meaning};
use crate::encodings::{constant, datetime_parts, ext, masked, pco, zstd};
use crate::release::since;
use crate::wire::WriteNode;

const SECONDS_PER_DAY: i64 = 86_400;

/// Compresses a column of an extension type.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress(cx: &Context, array: &ArrayRef, extension: &Extension) -> Result<WriteNode> {
    let stored = storage(array, extension)?;
    let node = super::compress(cx, &stored, extension.storage())?;
    // Readers check the value of a constant date or time: several releases do not know offsets as time zones then, or
    // end the process if the value is out of range.
    if let DType::Primitive(ptype, _) = extension.storage()
        && (node.id() == constant::ID || node.id() == masked::ID)
    {
        return Ok(ext::encode(equal_rows(cx, &stored, *ptype)?));
    }
    if node.id() == constant::ID {
        return Ok(node);
    }
    // How the integers were encoded, if that costs much to decode.
    let slow = match node.id() {
        pco::ID => Some(Kind::Pco),
        zstd::ID => Some(Kind::ZstdNumbers),
        _ => None,
    };
    let whole = ext::encode(node);
    let Meaning::Timestamp(unit, _) = extension.meaning() else { return Ok(whole) };
    let Some(ticks) = unit.ticks_per_second().filter(|ticks| *ticks > 1) else { return Ok(whole) };
    let bytes = whole.byte_len();
    let decoded = Plain { rows: array.len(), bytes: array.len() * size_of::<i64>() };
    let cost = slow.map_or(bytes as f64, |kind| cx.cost(kind, bytes, decoded));
    match parts(cx, &stored, ticks, cost)? {
        Some(parts) if cx.cost(Kind::DateTimeParts, parts.byte_len(), decoded) < cost => Ok(parts),
        _ => Ok(whole),
    }
}

/// Timestamps split into days, seconds and ticks, if a sample indicates that this costs less than `whole`.
fn parts(cx: &Context, stored: &ArrayRef, ticks: i64, whole: f64) -> Result<Option<WriteNode>> {
    let values = values_of::<i64>(stored);
    let cut = |value: i64| {
        [value / (SECONDS_PER_DAY * ticks), value % (SECONDS_PER_DAY * ticks) / ticks, value % ticks]
    };
    let sampled = sample::rows(values.len()).flatten().filter(|row| stored.is_valid(*row));
    let sampled: Vec<[i64; 3]> = sampled.map(|row| cut(values[row])).collect();
    let bits: f64 = (0..3).map(|part| part_bits(sampled.iter().map(|parts| parts[part]), values.len())).sum();
    let expected = (bits * values.len() as f64 / 8.0) as usize;
    let decoded = Plain { rows: values.len(), bytes: values.len() * size_of::<i64>() };
    if cx.cost(Kind::DateTimeParts, expected, decoded) >= whole {
        return Ok(None);
    }
    let (mut days, mut seconds, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = sampled.first().copied().unwrap_or_default();
    for (row, value) in values.iter().enumerate() {
        if stored.is_valid(row) {
            last = cut(*value);
        }
        days.push(last[0]);
        seconds.push(last[1]);
        rest.push(last[2]);
    }
    let has_negative = || [&days, &seconds, &rest].iter().any(|parts| parts.iter().any(|part| *part < 0));
    if cx.reader() < since::NEGATIVE_PARTS && has_negative() {
        return Ok(None);
    }
    let below = cx.below(Kind::DateTimeParts, &[]);
    Ok(Some(datetime_parts::encode([
        compress_narrowed(&below, &days, stored.nulls())?,
        compress_narrowed(&below, &seconds, None)?,
        compress_narrowed(&below, &rest, None)?,
    ])))
}

/// Bits per row of a part: packed, or with a dictionary.
fn part_bits(values: impl Iterator<Item = i64> + Clone, rows: usize) -> f64 {
    let (low, high) = (values.clone().min().unwrap_or(0), values.clone().max().unwrap_or(0));
    let span = high.wrapping_sub(low).cast_unsigned();
    let sample = Sample::new(values.map(|value| value.wrapping_sub(low).cast_unsigned()).collect(), rows);
    let distinct = sample.distinct();
    let dictionary = bits(distinct.saturating_sub(1) as u64) as f64 + (distinct * 32) as f64 / rows as f64;
    dictionary.min(bits(span) as f64)
}
