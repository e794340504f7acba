//! Booleans: stored as bits, unless nearly all are equal or they form long runs.

use arrow::array::{Array as _, BooleanArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};

use super::numbers::compress_positions;
use super::scheme::{Context, Kind};
use crate::Result;
use crate::array::validity::Validity;
use crate::encodings::shared::patches::EncodedPatches;
use crate::encodings::{bool, constant, masked, run_end, sparse};
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
            let validity = bits(cx, nulls.inner())?;
            if cx.reads(Kind::Masked)
                && let Some(node) = shorter(cx, &without_garbage(array.values(), &nulls))?
            {
                return Ok(masked::encode(node, validity));
            }
            Ok(bool::encode(&(array.values() & nulls.inner()), Some(validity)))
        }
        _ => bits(cx, array.values()),
    }
}

/// Compresses a validity, if some rows are null.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn validity(cx: &Context, nulls: Option<&NullBuffer>) -> Result<Option<WriteNode>> {
    nulls.filter(|nulls| nulls.null_count() > 0).map(|nulls| bits(cx, nulls.inner())).transpose()
}

fn bits(cx: &Context, bits: &BooleanBuffer) -> Result<WriteNode> {
    Ok(shorter(cx, bits)?.unwrap_or_else(|| bool::encode(bits, None)))
}

/// Encodes bits that are nearly all equal, or form long runs.
fn shorter(cx: &Context, bits: &BooleanBuffer) -> Result<Option<WriteNode>> {
    let plain = bits.len().div_ceil(8);
    let ones = bits.count_set_bits();
    if !bits.is_empty() && (ones == 0 || ones == bits.len()) {
        return constant::encode(&Value::Bool(ones > 0)).map(Some);
    }
    let few = ones.min(bits.len() - ones);
    if few * RUN < plain / 2 && cx.allows(Kind::Sparse) {
        return rare(cx, bits, ones < bits.len() - ones).map(Some);
    }
    let runs = 2 * bits.set_slices().take(plain).count() + 1;
    if runs * RUN < plain / 2 && cx.allows(Kind::Runs) {
        return in_runs(cx, bits).map(Some);
    }
    Ok(None)
}

/// The bits, with null rows repeating the preceding valid row, or at the start the first one.
fn without_garbage(values: &BooleanBuffer, nulls: &NullBuffer) -> BooleanBuffer {
    let mut last = nulls.valid_indices().next().is_some_and(|row| values.value(row));
    let words = values.bit_chunks().iter_padded().zip(nulls.inner().bit_chunks().iter_padded());
    let repeated = words.map(|(values, valid)| {
        // Before its first row, a word continues the preceding one.
        let (mut bits, mut known) = (values & valid, valid);
        if known & 1 == 0 {
            (bits, known) = (bits | u64::from(last), known | 1);
        }
        // Each step copies from all rows that are known to as many rows after them.
        for step in [1, 2, 4, 8, 16, 32] {
            bits |= (bits << step) & !known;
            known |= known << step;
        }
        last = bits >> 63 == 1;
        bits
    });
    let repeated: Vec<u64> = repeated.collect();
    BooleanBuffer::new(repeated.into(), 0, values.len())
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
    let (ptype, indices) = compress_positions(&below, rows, None)?;
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
    let (ptype, encoded_ends) = compress_positions(&below, ends, None)?;
    Ok(run_end::encode(encoded_ends, ptype, bool::encode(&values.into(), None), count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::random;

    #[test]
    fn null_rows_repeat_the_preceding_one() {
        let mut next = random(7);
        for len in [1, 63, 64, 65, 200, 1000] {
            for one_in in [1, 2, 50, 300] {
                let values: Vec<bool> = (0..len).map(|_| next().is_multiple_of(2)).collect();
                let mut valid: Vec<bool> = (0..len).map(|_| next().is_multiple_of(one_in)).collect();
                valid[next() as usize % len] = true;
                let first = valid.iter().position(|valid| *valid).unwrap();
                let mut last = values[first];
                let expected = values.iter().zip(&valid).map(|(value, valid)| {
                    last = if *valid { *value } else { last };
                    last
                });
                let expected: BooleanBuffer = expected.collect();
                let found = without_garbage(&values.clone().into(), &valid.clone().into());
                assert_eq!(found, expected, "{len} rows, one in {one_in} valid");
                let (values, nulls) = (BooleanBuffer::from(values), NullBuffer::from(valid));
                let rest = len - len / 3;
                let (values, nulls) = (values.slice(len / 3, rest), nulls.slice(len / 3, rest));
                let found = without_garbage(&values, &nulls);
                for row in nulls.valid_indices() {
                    assert_eq!(found.value(row), values.value(row), "slices start at any bit");
                }
            }
        }
    }
}
