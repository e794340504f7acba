//! Strings and byte strings, with what is common to their schemes.

use std::cell::OnceCell;
use std::collections::HashSet;

use arrow::array::{Array as _, BinaryViewArray};
use arrow::buffer::NullBuffer;

use super::fsst::Fsst;
use super::numbers::{bits, compress_positions};
use super::onpair::OnPair;
use super::sample::{self, Sample};
use super::scheme::{Context, Kind, Plain, Scheme, choose};
use super::text_dictionary::{self, TextDictionary};
use super::text_zstd::Zstd;
use super::{boolean, one_value};
use crate::dtype::DType;
use crate::encodings::{varbin, varbin_view};
use crate::kernels::views::{MAX_INLINE, VIEW_BYTES};
use crate::scalar::Value;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// Number of bytes that are compressed to estimate the size.
pub(super) const TRIED_BYTES: usize = 64 << 10;

/// A value of this many bytes is worth compressing, and sharing among chunks, even if it is the only one.
pub(crate) const LONG_VALUE: usize = 16 << 10;

/// Bytes of values above which rows that share their bytes are encoded by codes: any other scheme would
/// encode these bytes for each row. Only such rows fill so large a chunk, or a single long one.
const MAX_REPEATED_BYTES: usize = 8 << 20;

/// Strings or byte strings.
pub(super) struct Strings<'a> {
    /// The validity, if some rows are null; never all of them.
    pub(super) nulls: Option<&'a NullBuffer>,
    pub(super) is_text: bool,
    rows: Vec<&'a [u8]>,
    byte_len: usize,
    distinct: OnceCell<usize>,
    pub(super) symbols: OnceCell<::fsst::Compressor>,
    pub(super) tokens: OnceCell<Option<::onpair::Parser>>,
    /// How Zstandard does, tried on some of the values.
    pub(super) frames: OnceCell<(usize, f64)>,
}

impl<'a> Strings<'a> {
    pub(super) fn new(array: &'a BinaryViewArray, is_text: bool) -> Self {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let rows: Vec<&[u8]> = match nulls {
            None => (0..array.len()).map(|row| array.value(row)).collect(),
            Some(nulls) => {
                let value = |row| if nulls.is_valid(row) { array.value(row) } else { &[] };
                (0..array.len()).map(value).collect()
            }
        };
        Self {
            nulls,
            is_text,
            byte_len: rows.iter().map(|row| row.len()).sum(),
            rows,
            distinct: OnceCell::new(),
            symbols: OnceCell::new(),
            tokens: OnceCell::new(),
            frames: OnceCell::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The value of each row; empty in null rows.
    pub(super) fn rows(&self) -> &[&'a [u8]] {
        &self.rows
    }

    /// Bytes of all values.
    pub(super) fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// The size of the column as views.
    pub(super) fn decoded(&self) -> Plain {
        let long: usize = self.rows.iter().map(|row| row.len()).filter(|len| *len > MAX_INLINE).sum();
        let bytes = self.len() * VIEW_BYTES + long + self.nulls.map_or(0, |nulls| nulls.len() / 8);
        Plain { rows: self.len(), bytes }
    }

    pub(super) fn value(&self, bytes: &[u8]) -> Result<Value> {
        if !self.is_text {
            return Ok(Value::Binary(bytes.into()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::invalid("text that is not UTF-8"))?;
        Ok(Value::Utf8(text.into()))
    }

    /// The validity child, if some rows are null.
    ///
    /// # Errors
    /// If a child cannot be encoded.
    pub(super) fn validity(&self, cx: &Context) -> Result<Option<WriteNode>> {
        boolean::validity(cx, self.nulls)
    }

    /// Whether there are many bytes, most of which rows share with other rows.
    fn repeat_bytes(&self) -> bool {
        if self.byte_len <= MAX_REPEATED_BYTES {
            return false;
        }
        let mut places = HashSet::new();
        let apart = self.rows.iter().filter(|row| places.insert((row.as_ptr(), row.len())));
        apart.map(|row| row.len()).sum::<usize>() <= self.byte_len / 2
    }

    /// Approximate number of distinct values.
    pub(super) fn distinct(&self) -> usize {
        *self.distinct.get_or_init(|| {
            let rows = sample::rows(self.len()).flat_map(|rows| &self.rows[rows]);
            Sample::new(rows.map(|row| text_dictionary::hash(row)).collect(), self.len()).distinct()
        })
    }

    /// At most this many bytes, as runs of adjacent rows from everywhere. The first row of a run may lack its beginning
    /// if it is longer than the run, and the last row its end.
    pub(super) fn sample(&self, bytes: usize) -> Vec<&'a [u8]> {
        if self.byte_len <= bytes {
            return self.rows.clone();
        }
        let mut sample = Vec::new();
        let mut runs = sample::runs(self.byte_len, bytes / sample::RUNS);
        let mut run = runs.next().unwrap_or_default();
        let (mut left, mut end) = (run.len(), 0);
        for row in &self.rows {
            let start = end;
            end += row.len();
            while left > 0 && run.start < end {
                let begins = left == run.len() && row.len() > left;
                let from = if begins { run.start.saturating_sub(start) } else { 0 };
                let part = &row[from..row.len().min(from + left)];
                sample.push(part);
                left -= part.len();
                if left > 0 {
                    break;
                }
                run = runs.next().unwrap_or_default();
                left = run.len();
            }
        }
        sample
    }

    /// Bytes of the integers that delimit rows: lengths, and offsets into codes.
    pub(super) fn row_bytes(&self, code_bytes: usize) -> usize {
        let longest = self.rows.iter().map(|row| row.len()).max().unwrap_or_default();
        self.len() * (bits(longest as u64) + bits(code_bytes as u64)) / 8
    }

    /// The length of each row, in bytes.
    ///
    /// # Errors
    /// If a row is too long.
    pub(super) fn lengths(&self) -> Result<Vec<u32>> {
        self.rows.iter().map(|row| u32::try_from(row.len()).map_err(Error::limit)).collect()
    }
}

/// Compresses a column of strings or byte strings.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress(cx: &Context, array: &BinaryViewArray, dtype: &DType) -> Result<WriteNode> {
    let strings = Strings::new(array, matches!(dtype, DType::Utf8(_)));
    if strings.rows.is_empty() {
        return Ok(varbin_view::encode(array, None));
    }
    if let Some(node) = uniform(cx, &strings)? {
        return Ok(node);
    }
    if strings.repeat_bytes()
        && cx.allows(Kind::Dictionary)
        && let Some(node) = text_dictionary::encode(&strings, cx, strings.len())?
    {
        return Ok(node);
    }
    let plain = || Ok(varbin_view::encode(array, strings.validity(cx)?));
    choose(&schemes(), &strings, cx, strings.decoded(), plain)
}

/// The schemes for strings.
fn schemes<'a>() -> [&'a dyn Scheme<Strings<'a>>; 5] {
    [&TextDictionary, &Fsst, &OnPair, &Joined, &Zstd]
}

/// Whether two values are equal, which is obvious if they are the same bytes in memory.
pub(super) fn is_same(left: &[u8], right: &[u8]) -> bool {
    std::ptr::eq(left, right) || left == right
}

/// Encodes a column whose valid rows are all equal. A long value is compressed, as the only one of a
/// dictionary.
fn uniform(cx: &Context, strings: &Strings<'_>) -> Result<Option<WriteNode>> {
    let first = strings.nulls.map_or(Some(0), |nulls| nulls.valid_indices().next());
    let Some(value) = first.and_then(|row| strings.rows.get(row)) else { return Ok(None) };
    let is_valid = |row: usize| strings.nulls.is_none_or(|nulls| nulls.is_valid(row));
    if !strings.rows.iter().enumerate().all(|(row, other)| is_same(other, value) || !is_valid(row)) {
        return Ok(None);
    }
    if value.len() >= LONG_VALUE && strings.len() == 1 {
        return Ok(None);
    }
    if value.len() >= LONG_VALUE && cx.allows(Kind::Dictionary) {
        return text_dictionary::encode(strings, cx, 1);
    }
    one_value(cx, &strings.value(value)?, strings.nulls)
}

/// Concatenated bytes, split by offsets.
struct Joined;

impl Scheme<Strings<'_>> for Joined {
    fn kind(&self) -> Kind {
        Kind::Joined
    }

    fn estimate(&self, strings: &Strings<'_>, _: &Context) -> Option<usize> {
        Some(strings.byte_len + strings.len() * bits(strings.byte_len as u64) / 8)
    }

    fn encode(&self, strings: &Strings<'_>, cx: &Context) -> Result<Option<WriteNode>> {
        if u32::try_from(strings.byte_len).is_err() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(strings.byte_len);
        let mut offsets = Vec::with_capacity(strings.len() + 1);
        for row in &strings.rows {
            // Below 2^32, since the total number of bytes is.
            offsets.push(bytes.len() as u32);
            bytes.extend_from_slice(row);
        }
        offsets.push(bytes.len() as u32);
        let (ptype, offsets) =
            compress_positions(&cx.below(Kind::Joined, &[Kind::Dictionary]), offsets, None)?;
        Ok(Some(varbin::encode(bytes.into(), ptype, offsets, strings.validity(cx)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_no_more_bytes_than_asked_for() {
        let rows = ["ab".repeat(100), "c".repeat(1 << 20), "d".to_owned()];
        let array = BinaryViewArray::from_iter_values(&rows);
        let strings = Strings::new(&array, true);
        for bytes in [0, 1, 63, 64, 1000, 1 << 20] {
            let sample = strings.sample(bytes);
            assert_eq!(sample.iter().map(|row| row.len()).sum::<usize>(), bytes / 64 * 64);
        }
        assert_eq!(strings.sample(2 << 20).len(), 3);
    }

    #[test]
    fn a_sample_has_bytes_of_all_parts_of_a_column_and_whole_rows_if_they_are_short() {
        // Rows of 10 to 109 bytes of the same letter, which tells where they are.
        let rows: Vec<_> = (0..26_000).map(|row| vec![b'a' + (row / 1000) as u8; 10 + row % 100]).collect();
        let array = BinaryViewArray::from_iter_values(&rows);
        let strings = Strings::new(&array, true);
        let sample = strings.sample(64 << 10);
        let letters: HashSet<u8> = sample.iter().map(|row| row[0]).collect();
        assert_eq!(letters.len(), 26);
        let cut = sample.iter().filter(|row| row.len() < 10).count();
        assert!(cut <= 64, "{cut} of {} rows are cut", sample.len());

        // Rows of which only the first kilobyte is alike.
        let rows: Vec<_> = (0..100).map(|row| [vec![b'x'; 1 << 10], vec![row; 63 << 10]].concat()).collect();
        let array = BinaryViewArray::from_iter_values(&rows);
        let sample = Strings::new(&array, false).sample(256 << 10);
        let heads = sample.iter().filter(|row| row[0] == b'x').count();
        assert!(heads <= 8, "{heads} of {} parts are the beginnings of rows", sample.len());
    }
}
