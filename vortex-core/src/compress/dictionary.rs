//! Dictionaries of numbers: each distinct number once, and a code per row.

use super::numbers::{Numbers, bits, compress_codes, compress_words};
use super::scheme::{Context, Kind, NODE_OVERHEAD, Scheme};
use super::zstd;
use crate::Result;
use crate::encodings::dict;
use crate::kernels::Word;
use crate::release::since;
use crate::wire::WriteNode;

/// Maximum number of values of a dictionary, whose codes have two bytes.
const MAX_VALUES: usize = 1 << 16;

/// Distinct values are determined with a table indexed by value if it has at most this many entries.
const MAX_TABLE: u64 = 1 << 18;

/// Schemes not used for codes, which start at zero; a dictionary of codes is barred anyway.
const BARRED_CODES: [Kind; 1] = [Kind::Sequence];

/// Looking up this many two-byte codes costs as much as reading one more byte. Without this cost, a table
/// of 105 columns takes some 5 % longer to read, and its file is no smaller.
const WIDE_CODES_PER_BYTE: usize = 2;

/// Numbers encoded by codes; the values are in ascending order.
pub(super) struct Dictionary;

impl<W: Word> Scheme<Numbers<W>> for Dictionary {
    fn kind(&self) -> Kind {
        Kind::Dictionary
    }

    fn estimate(&self, numbers: &Numbers<W>, cx: &Context) -> Option<usize> {
        if numbers.nulls.is_some() && cx.reader() < since::NULLABLE_CODES {
            return None;
        }
        let distinct = numbers.distinct();
        if distinct > most_values(numbers.len()) {
            return None;
        }
        let whole = bits(numbers.span());
        let code = bits(distinct.saturating_sub(1) as u64);
        // Most dictionaries cannot be smaller than packing otherwise: skip the search.
        if code >= whole && !numbers.ptype.is_float() && !may_be_bytes::<W>(distinct, cx) {
            return None;
        }
        let values = distinct * whole.min(W::BITS).div_ceil(8);
        Some(code_cost(numbers, distinct, cx) + values + numbers.null_bytes() + NODE_OVERHEAD)
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        let most = most_values(numbers.len());
        let found = if numbers.span() < MAX_TABLE { by_table(numbers, most) } else { by_hash(numbers, most) };
        let Some((values, codes)) = found else { return Ok(None) };
        let codes_cx = cx.below(Kind::Dictionary, &BARRED_CODES);
        // At most as many as two-byte codes can distinguish.
        let count = values.len() as u32;
        let (ptype, codes) = compress_codes(&codes_cx, codes, count, numbers.nulls.as_ref())?;
        let values_cx = cx.below(Kind::Dictionary, &[Kind::Runs, Kind::Sparse]);
        let encoded = compress_words(&values_cx, numbers.ptype, values.into(), None)?;
        Ok(Some(dict::encode(codes, ptype, numbers.nulls.is_some(), encoded, count)))
    }
}

/// Maximum number of values of a dictionary for so many rows.
pub(super) fn most_values(rows: usize) -> usize {
    MAX_VALUES.min(rows / 2)
}

/// Whether Zstandard may compress the codes of words: it works best on codes of one byte.
fn may_be_bytes<W: Word>(distinct: usize, cx: &Context) -> bool {
    W::BITS > 8 && zstd::compresses_codes(distinct, cx)
}

/// Approximate bytes of codes for so many distinct values, with what it costs to look them up.
pub(super) fn code_cost<W: Word>(numbers: &Numbers<W>, distinct: usize, cx: &Context) -> usize {
    let code = bits(distinct.saturating_sub(1) as u64);
    let mut codes = (code * numbers.len()).div_ceil(8);
    if cx.allows(Kind::Runs) {
        let run = bits(numbers.len() as u64) + code;
        codes = codes.min((run * numbers.runs).div_ceil(8));
    }
    if may_be_bytes::<W>(distinct, cx)
        && let Some(cost) = zstd::code_cost(numbers.len(), |row| numbers.rank(numbers.values[row]), cx)
    {
        codes = codes.min(cost as usize);
    }
    let is_slow = distinct > zstd::MAX_BYTE_CODES;
    codes + if is_slow { numbers.len() / WIDE_CODES_PER_BYTE } else { 0 }
}

/// Marks each value in a table of all possible values.
fn by_table<W: Word>(numbers: &Numbers<W>, most: usize) -> Option<(Vec<W>, Vec<u32>)> {
    // Less than the size of the table.
    let rank = |value: &W| numbers.rank(*value) as usize;
    let mut table = vec![0u32; numbers.span() as usize + 1];
    numbers.values.iter().for_each(|value| table[rank(value)] = 1);
    let mut values = Vec::new();
    for (at, entry) in table.iter_mut().enumerate().filter(|(_, entry)| **entry > 0) {
        *entry = values.len() as u32;
        values.push(numbers.min.plus(W::narrow(at as u64)));
    }
    (values.len() <= most).then(|| (values, numbers.values.iter().map(|value| table[rank(value)]).collect()))
}

/// Looks up each value in a hash table; gives up if there are too many.
fn by_hash<W: Word>(numbers: &Numbers<W>, most: usize) -> Option<(Vec<W>, Vec<u32>)> {
    const FREE: u32 = u32::MAX;
    let shift = u64::BITS - (4 * most.max(1)).next_power_of_two().trailing_zeros();
    let mut table = vec![FREE; 1 << (u64::BITS - shift)];
    let mut found: Vec<W> = Vec::new();
    let mut codes = Vec::with_capacity(numbers.len());
    for value in &*numbers.values {
        let mut at = (value.as_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize;
        let code = loop {
            match table[at] {
                FREE if found.len() == most => return None,
                FREE => {
                    table[at] = found.len() as u32;
                    found.push(*value);
                    break table[at];
                }
                code if found[code as usize] == *value => break code,
                _ => at = (at + 1) % table.len(),
            }
        };
        codes.push(code);
    }
    let mut order: Vec<u32> = (0..found.len() as u32).collect();
    order.sort_unstable_by_key(|code| numbers.rank(found[*code as usize]));
    let mut places = vec![0u32; found.len()];
    (0..).zip(&order).for_each(|(place, code)| places[*code as usize] = place);
    codes.iter_mut().for_each(|code| *code = places[*code as usize]);
    Some((order.iter().map(|code| found[*code as usize]).collect(), codes))
}
