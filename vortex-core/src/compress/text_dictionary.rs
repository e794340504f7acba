//! Dictionaries of strings: each distinct string once, and a code per row.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use arrow::array::BinaryViewArray;

use super::numbers::{bits, compress_codes};
use super::scheme::{Context, Kind, NODE_OVERHEAD, Scheme};
use super::string::{self, LONG_VALUE, Strings};
use super::zstd;
use crate::Result;
use crate::dtype::DType;
use crate::encodings::dict;
use crate::release::since;
use crate::wire::WriteNode;

/// Maximum number of values of a dictionary, whose codes have two bytes.
const MAX_VALUES: usize = 1 << 16;

/// Approximate number of bits per byte of text that another scheme compresses.
const BITS_PER_BYTE: usize = 4;

/// Strings encoded by codes, with values in order of first appearance.
pub(super) struct TextDictionary;

impl Scheme<Strings<'_>> for TextDictionary {
    fn kind(&self) -> Kind {
        Kind::Dictionary
    }

    fn estimate(&self, strings: &Strings<'_>, cx: &Context) -> Option<usize> {
        if strings.nulls.is_some() && cx.reader() < since::NULLABLE_CODES {
            return None;
        }
        let distinct = strings.distinct();
        if distinct > MAX_VALUES || distinct > strings.len() * 3 / 4 {
            return None;
        }
        let code = bits(distinct.saturating_sub(1) as u64);
        let value = strings.byte_len() / strings.len() * BITS_PER_BYTE / 8 + 2;
        let mut codes = code * strings.len() / 8;
        if zstd::compresses_codes(distinct, cx)
            && let Some(cost) = zstd::code_cost(strings.rows().len(), |row| hash(strings.rows()[row]), cx)
        {
            codes = codes.min(cost as usize);
        }
        Some(codes + distinct * value + NODE_OVERHEAD)
    }

    fn encode(&self, strings: &Strings<'_>, cx: &Context) -> Result<Option<WriteNode>> {
        encode(strings, cx, strings.len() * 3 / 4)
    }
}

/// Encodes strings by codes; returns `None` if there are more than `most` values.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn encode(strings: &Strings<'_>, cx: &Context, most: usize) -> Result<Option<WriteNode>> {
    let Some((values, codes)) = distinct(strings, most) else { return Ok(None) };
    // At most as many as two-byte codes can distinguish.
    let count = values.len() as u32;
    let (ptype, codes) =
        compress_codes(&cx.below(Kind::Dictionary, &[Kind::Sequence]), codes, count, strings.nulls)?;
    let values = BinaryViewArray::from_iter_values(values);
    let dtype = if strings.is_text { DType::Utf8(false) } else { DType::Binary(false) };
    let values = string::compress(&cx.below(Kind::Dictionary, &[]), &values, &dtype)?;
    Ok(Some(dict::encode(codes, ptype, strings.nulls.is_some(), values, count)))
}

/// The values in order of first appearance, and the code of each row; `None` if there are more than
/// `most` values. Null rows have arbitrary codes.
fn distinct<'a>(strings: &Strings<'a>, most: usize) -> Option<(Vec<&'a [u8]>, Vec<u32>)> {
    let most = most.min(MAX_VALUES);
    let mut values: Vec<&[u8]> = Vec::new();
    let mut known: HashMap<&[u8], u32, BuildHasherDefault<Folded>> = HashMap::default();
    // Long values that rows share are compared only where they first appear.
    let mut places: HashMap<(*const u8, usize), u32> = HashMap::new();
    let mut codes: Vec<u32> = Vec::with_capacity(strings.len());
    let mut last: Option<(&[u8], u32)> = None;
    for (at, row) in strings.rows().iter().enumerate() {
        // Adjacent rows are often equal, and null rows may have any code.
        let is_null = strings.nulls.is_some_and(|nulls| nulls.is_null(at));
        let code = match last {
            Some((value, code)) if string::is_same(value, row) || is_null => code,
            None if is_null => 0,
            _ => {
                let mut find = || {
                    *known.entry(row).or_insert_with(|| {
                        values.push(row);
                        values.len() as u32 - 1
                    })
                };
                if row.len() < LONG_VALUE {
                    find()
                } else {
                    *places.entry((row.as_ptr(), row.len())).or_insert_with(find)
                }
            }
        };
        if values.len() > most {
            return None;
        }
        if !is_null {
            last = Some((row, code));
        }
        codes.push(code);
    }
    Some((values, codes))
}

/// A hash of a string.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = Folded::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Folds products of words, which is fast for short strings. Data that provokes collisions only slows
/// down its own writer.
#[derive(Default)]
pub(super) struct Folded(u64);

impl Folded {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.fold(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.fold(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
