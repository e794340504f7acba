//! Booleans: stored as bits, unless nearly all are equal or they form long runs.

use arrow::array::{Array as _, BooleanArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};

use super::numbers::compress_helpers;
use super::scheme::{Context, Kind};
use crate::Result;
use crate::array::validity::Validity;
use crate::encodings::{bit_packed::patches::EncodedPatches, bool, constant, run_end, sparse};
use crate::scalar::Value;
use crate::wire::WriteNode;

/// Bytes of a run: its end and its value.
const RUN: usize = 3;

/// Compresses a column of booleans.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress(cx: &Context, array: &BooleanArray) -> Result<WriteNode> {
    match Validity::from_nulls(array.nulls().cloned()) {
        Validity::AllNull if !array.is_empty() => constant::encode(&Value::Null),
        Validity::Bits(nulls) => {
            let bits = array.values() & nulls.inner();
            Ok(bool::encode(&bits, Some(validity(cx, &nulls)?)))
        }
        _ => bits(cx, array.values()),
    }
}

/// Compresses a validity.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn validity(cx: &Context, nulls: &NullBuffer) -> Result<WriteNode> {
    bits(cx, nulls.inner())
}

fn bits(cx: &Context, bits: &BooleanBuffer) -> Result<WriteNode> {
    let plain = bits.len().div_ceil(8);
    let ones = bits.count_set_bits();
    if !bits.is_empty() && (ones == 0 || ones == bits.len()) {
        return constant::encode(&Value::Bool(ones > 0));
    }
    let few = ones.min(bits.len() - ones);
    if few * RUN < plain / 2 && cx.allows(Kind::Sparse) {
        return rare(cx, bits, ones < bits.len() - ones);
    }
    let runs = 2 * bits.set_slices().take(plain).count() + 1;
    if runs * RUN < plain / 2 && cx.allows(Kind::Runs) {
        return in_runs(cx, bits);
    }
    Ok(bool::encode(bits, None))
}

/// Encodes the rows that are `rare`.
fn rare(cx: &Context, bits: &BooleanBuffer, rare: bool) -> Result<WriteNode> {
    // The number of rows in a chunk is less than 2^32.
    let rows: Vec<u32> = if rare {
        bits.set_indices().map(|row| row as u32).collect()
    } else {
        (!bits).set_indices().map(|row| row as u32).collect()
    };
    let (below, count) = (cx.below(Kind::Sparse, &[Kind::Dictionary, Kind::Runs]), rows.len());
    let (ptype, indices) = compress_helpers(&below, rows, None)?;
    let values = constant::encode(&Value::Bool(rare))?;
    sparse::encode(&Value::Bool(!rare), EncodedPatches::with_indices(count, ptype, indices, values))
}

fn in_runs(cx: &Context, bits: &BooleanBuffer) -> Result<WriteNode> {
    let (mut ends, mut values) = (Vec::new(), Vec::new());
    for (start, end) in bits.set_slices() {
        if start > 0 {
            ends.push(start as u32);
            values.push(false);
        }
        ends.push(end as u32);
        values.push(true);
    }
    if ends.last().is_none_or(|last| (*last as usize) < bits.len()) {
        ends.push(bits.len() as u32);
        values.push(false);
    }
    let (below, count) = (cx.below(Kind::Runs, &[Kind::Dictionary, Kind::Sparse]), ends.len());
    let (ptype, encoded_ends) = compress_helpers(&below, ends, None)?;
    Ok(run_end::encode(encoded_ends, ptype, bool::encode(&values.into(), None), count))
}
