//! A dictionary shared by many chunks of a column.
//!
//! Repeated text is stored only once for as many rows as a dictionary can cover, in a `vortex.dict`
//! layout of values and of chunks of codes. Predicates are then evaluated once per value. Whether that
//! takes fewer bytes than encoding each chunk separately is tested on the first rows of a column that are
//! not all equal, or that repeat a long value.
//!
//! ```text
//! rows of a column   New ──► Shared ──► full: values are written, another begins ──► ...
//!                     │        └──────► full, but few rows repeated ──► Apart
//!                     └──► Apart
//! ```

use std::mem::{size_of, take};
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryViewArray, BinaryViewBuilder, StringViewBuilder, UInt8Array,
    UInt16Array,
};
use arrow::datatypes::DataType;
use hashbrown::HashTable;

use super::ZONE_LEN;
use super::chunk::ColumnPart;
use crate::Result;
use crate::array::present;
use crate::compress::{Compressor, LONG_VALUE, text_hash};
use crate::dtype::{DType, PType};
use crate::release::since;

/// Maximum number of values of a dictionary with one-byte codes, and with two-byte codes.
const MAX_NARROW: usize = 1 << 8;
const MAX_WIDE: usize = 1 << 16;
/// Number of values that leaves room for more in a dictionary with one-byte codes.
const SURELY_NARROW: usize = 192;
/// Minimum number of rows per two values for a dictionary to be worthwhile.
const MIN_ROWS_PER_TWO_VALUES: usize = 3;
/// Minimum number of rows covered by a full dictionary for starting another one.
const MIN_ROWS: usize = ZONE_LEN;
/// Memory per value in addition to its bytes: its end, and its hash table entry.
const VALUE_OVERHEAD: usize = 4 + 4;
/// Approximate overhead of the layout over separate chunks, in bytes.
const OVERHEAD: usize = 256;
/// A dictionary may take one part in this many more bytes than separate chunks: predicates are evaluated once
/// for many chunks.
const EXTRA_BYTES: usize = 20;
/// Rows per chunk of codes.
const CODE_ROWS: usize = 64 << 10;

/// How a column is encoded: for text, as the jobs before have left it.
#[derive(Debug, Default)]
pub(super) enum DictionaryState {
    /// No rows yet.
    #[default]
    New,
    /// With a shared dictionary.
    Shared(Dictionary),
    /// Each chunk separately.
    Apart,
}

/// What encoding any rows of a column depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnContext<'a> {
    pub(super) dtype: &'a DType,
    pub(super) compressor: &'a Compressor,
    /// Approximate limit of the bytes that a dictionary takes in memory.
    pub(super) max_bytes: usize,
}

impl ColumnContext<'_> {
    fn may_contain_null(&self) -> bool {
        self.compressor.min_reader() >= since::NULL_IN_DICTIONARY
    }

    fn by_itself(&self, chunk: &ArrayRef) -> Result<ColumnPart> {
        Ok(ColumnPart::Chunk(self.compressor.compress(chunk, self.dtype)?, chunk.len()))
    }
}

impl DictionaryState {
    /// Bytes held until later rows arrive.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Shared(dictionary) => dictionary.held_bytes(),
            Self::New | Self::Apart => 0,
        }
    }

    /// Encodes further rows, given in chunks that start at row `start` of the column. After the `last`
    /// rows, nothing is held back.
    ///
    /// # Errors
    /// If rows cannot be encoded.
    pub(super) fn encode(
        &mut self,
        column: ColumnContext<'_>,
        chunks: &[ArrayRef],
        start: u64,
        last: bool,
    ) -> Result<Vec<ColumnPart>> {
        let (mut parts, mut start, mut chunks) = (Vec::new(), start, chunks);
        if matches!(self, Self::New) {
            while let [first, rest @ ..] = chunks {
                let repeated = repeated_bytes(first)?;
                // Rows that are all equal give no indication, unless their value is long; and neither do
                // too few rows.
                let is_long = |bytes: usize| (LONG_VALUE..=column.max_bytes).contains(&bytes);
                let tells = repeated.is_none_or(is_long) && !(last && rest.is_empty());
                if tells && Dictionary::pays(column, chunks, first, last)? {
                    *self = Self::Shared(Dictionary::at(start));
                    break;
                }
                if tells && repeated.is_none() {
                    *self = Self::Apart;
                    break;
                }
                parts.push(column.by_itself(first)?);
                (start, chunks) = (start + first.len() as u64, rest);
            }
        }
        for chunk in chunks {
            self.append(column, chunk, &mut parts)?;
        }
        if let (Self::Shared(dictionary), true) = (&mut *self, last) {
            let next = start + chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
            std::mem::replace(dictionary, Dictionary::at(next)).close(column, &mut parts)?;
        }
        Ok(parts)
    }

    fn append(
        &mut self,
        column: ColumnContext<'_>,
        chunk: &ArrayRef,
        parts: &mut Vec<ColumnPart>,
    ) -> Result<()> {
        let mut done = 0;
        if let Self::Shared(dictionary) = self {
            let views = binary_views(chunk)?;
            loop {
                done += dictionary.push(column, &views.slice(done, views.len() - done), parts)?;
                if done == views.len() {
                    return Ok(());
                }
                let next = dictionary.successor();
                let full = std::mem::replace(dictionary, next);
                let is_worth_it = full.repeats() && full.rows >= MIN_ROWS;
                full.close(column, parts)?;
                if !is_worth_it {
                    break;
                }
            }
            *self = Self::Apart;
        }
        parts.push(match done {
            0 => column.by_itself(chunk)?,
            _ => column.by_itself(&chunk.slice(done, chunk.len() - done))?,
        });
        Ok(())
    }
}

/// Distinct values in order of first appearance, and the codes of rows not encoded yet.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    /// Concatenated values, and the end of each.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// The code of the null value.
    null: Option<u16>,
    by_hash: HashTable<u16>,
    codes: Vec<u16>,
    /// Position in the column of the first row in `codes`.
    first_row: u64,
    /// Total number of rows coded.
    rows: usize,
    /// The type of the codes, once some are encoded.
    codes_ptype: Option<PType>,
}

impl Dictionary {
    fn at(first_row: u64) -> Self {
        Self { first_row, ..Self::default() }
    }

    /// An empty dictionary for the rows that follow. If codes were encoded already, it has two-byte
    /// codes, since one byte may have been too small.
    fn successor(&self) -> Self {
        let codes_ptype = self.codes_ptype.map(|_| PType::U16);
        Self { codes_ptype, ..Self::at(self.first_row + self.codes.len() as u64) }
    }

    /// Whether the first rows of a column take fewer bytes with a dictionary than separately.
    fn pays(column: ColumnContext<'_>, chunks: &[ArrayRef], first: &ArrayRef, last: bool) -> Result<bool> {
        let mut tried = Self { codes_ptype: Some(PType::U16), ..Self::default() };
        let mut parts = Vec::new();
        for chunk in chunks {
            let views = binary_views(chunk)?;
            if tried.push(column, &views, &mut parts)? < views.len() || !tried.repeats() {
                return Ok(false);
            }
        }
        let rows = tried.rows;
        tried.close(column, &mut parts)?;
        let bytes = parts.iter().map(|part| match part {
            // The values will be shared with later rows.
            ColumnPart::Values { node, .. } if !last => node.buffer_bytes() / 2,
            part => part.buffer_bytes(),
        });
        let bytes = bytes.sum::<usize>() + OVERHEAD;
        let by_itself = column.compressor.compress(first, column.dtype)?.buffer_bytes();
        let all = by_itself.saturating_mul(rows) / first.len().max(1);
        Ok(bytes <= all + all / EXTRA_BYTES)
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn repeats(&self) -> bool {
        self.len() * MIN_ROWS_PER_TWO_VALUES <= self.rows * 2
    }

    fn held_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + (self.codes.capacity() + self.by_hash.capacity()) * size_of::<u16>()
    }

    fn value(&self, code: u16) -> Option<&[u8]> {
        (self.null != Some(code)).then(|| value(&self.bytes, &self.ends, code))
    }

    /// Codes rows until the dictionary is full; returns how many were coded.
    fn push(
        &mut self,
        column: ColumnContext<'_>,
        views: &BinaryViewArray,
        parts: &mut Vec<ColumnPart>,
    ) -> Result<usize> {
        let mut last: Option<(Option<&[u8]>, u16)> = None;
        for (at, text) in views.iter().enumerate() {
            let code = match last {
                Some((before, code)) if before == text => code,
                _ => match self.code(text, column) {
                    Some(code) => code,
                    None => return Ok(at),
                },
            };
            last = Some((text, code));
            self.codes.push(code);
            self.rows += 1;
            if (self.first_row + self.codes.len() as u64).is_multiple_of(CODE_ROWS as u64) {
                self.encode_codes(column, parts)?;
            }
        }
        Ok(views.len())
    }

    /// The code of a value, which may be new; `None` if there is no room for another value, or no dictionary may have it.
    fn code(&mut self, text: Option<&[u8]>, column: ColumnContext<'_>) -> Option<u16> {
        let max_bytes = column.max_bytes;
        let Some(text) = text else {
            if self.null.is_none() {
                if !column.may_contain_null() {
                    return None;
                }
                self.null = Some(self.add(&[], max_bytes)?);
            }
            return self.null;
        };
        let hash = text_hash(text);
        if let Some(code) = self.by_hash.find(hash, |code| self.value(*code) == Some(text)) {
            return Some(*code);
        }
        let code = self.add(text, max_bytes)?;
        let (bytes, ends) = (&self.bytes, &self.ends);
        self.by_hash.insert_unique(hash, code, |code| text_hash(value(bytes, ends, *code)));
        Some(code)
    }

    fn add(&mut self, text: &[u8], max_bytes: usize) -> Option<u16> {
        let most = if self.codes_ptype == Some(PType::U8) { MAX_NARROW } else { MAX_WIDE };
        let bytes = self.bytes.len() + text.len() + self.len() * VALUE_OVERHEAD;
        if self.len() == most || bytes > max_bytes && self.len() > 0 {
            return None;
        }
        self.bytes.extend_from_slice(text);
        self.ends.push(u32::try_from(self.bytes.len()).ok()?);
        // There are at most 2^16 values.
        Some((self.len() - 1) as u16)
    }

    /// Encodes the codes that have not been encoded yet.
    fn encode_codes(&mut self, column: ColumnContext<'_>, parts: &mut Vec<ColumnPart>) -> Result<()> {
        let narrow = || if self.ends.len() <= SURELY_NARROW { PType::U8 } else { PType::U16 };
        let ptype = *self.codes_ptype.get_or_insert_with(narrow);
        let codes = take(&mut self.codes);
        let rows = codes.len();
        self.first_row += rows as u64;
        let codes: ArrayRef = if ptype == PType::U8 {
            // There are at most 256 values.
            Arc::new(UInt8Array::from_iter_values(codes.into_iter().map(|code| code as u8)))
        } else {
            Arc::new(UInt16Array::from(codes))
        };
        let node = column.compressor.compress(&codes, &DType::Primitive(ptype, false))?;
        parts.push(ColumnPart::Codes(node, rows));
        Ok(())
    }

    /// Encodes the remaining codes, and the values.
    fn close(mut self, column: ColumnContext<'_>, parts: &mut Vec<ColumnPart>) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        if !self.codes.is_empty() {
            self.encode_codes(column, parts)?;
        }
        let count = self.len() as u64;
        let values = self.value_array(column.dtype);
        let node = column.compressor.compress(&values, column.dtype)?;
        let codes_ptype = self.codes_ptype.unwrap_or(PType::U16);
        parts.push(ColumnPart::Values { node, count, codes_ptype });
        Ok(())
    }

    fn value_array(&self, dtype: &DType) -> ArrayRef {
        // Codes of values are below 2^16.
        let values = (0..self.len()).map(|code| self.value(code as u16));
        if let DType::Utf8(_) = dtype.storage() {
            let mut builder = StringViewBuilder::with_capacity(self.len());
            // The bytes were taken from text, so they are valid UTF-8.
            values.for_each(|value| {
                builder.append_option(value.map(|bytes| std::str::from_utf8(bytes).unwrap_or_default()));
            });
            return Arc::new(builder.finish());
        }
        let mut builder = BinaryViewBuilder::with_capacity(self.len());
        values.for_each(|value| builder.append_option(value));
        Arc::new(builder.finish())
    }
}

fn value<'a>(bytes: &'a [u8], ends: &[u32], code: u16) -> &'a [u8] {
    let code = usize::from(code);
    let start = if code == 0 { 0 } else { ends[code - 1] as usize };
    &bytes[start..ends[code] as usize]
}

/// Whether values of a type may be stored in a shared dictionary.
pub(super) fn may_share_dictionary(dtype: &DType) -> bool {
    matches!(dtype.storage(), DType::Utf8(_) | DType::Binary(_))
}

/// The length of the value that all rows have, or 0 if all are null; `None` if they differ.
fn repeated_bytes(chunk: &ArrayRef) -> Result<Option<usize>> {
    let views = binary_views(chunk)?;
    let mut rows = views.iter();
    let Some(first) = rows.next() else { return Ok(Some(0)) };
    Ok(rows.all(|row| row == first).then(|| first.map_or(0, <[u8]>::len)))
}

fn binary_views(chunk: &ArrayRef) -> Result<BinaryViewArray> {
    let views = match chunk.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => present(ArrayRef::clone(chunk), &DataType::Utf8View)?,
        _ => ArrayRef::clone(chunk),
    };
    match views.data_type() {
        DataType::Utf8View => Ok(views.as_string_view().clone().to_binary_view()),
        _ => Ok(present(views, &DataType::BinaryView)?.as_binary_view().clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;

    use super::*;
    use crate::{Level, Release};

    /// A summary of parts: kinds, and numbers of rows or values.
    fn told(parts: &[ColumnPart]) -> Vec<(&'static str, usize)> {
        let tell = |part: &ColumnPart| match part {
            ColumnPart::Chunk(_, rows) => ("chunk", *rows),
            ColumnPart::Codes(_, rows) => ("codes", *rows),
            ColumnPart::Values { count, codes_ptype: PType::U8, .. } => ("values by a byte", *count as usize),
            ColumnPart::Values { count, .. } => ("values", *count as usize),
        };
        parts.iter().map(tell).collect()
    }

    fn encode(
        state: &mut DictionaryState,
        chunks: &[ArrayRef],
        start: u64,
        last: bool,
    ) -> Vec<(&'static str, usize)> {
        let compressor = Compressor::new(Level::Default, Release::NEWEST);
        let dtype = DType::Utf8(true);
        let column = ColumnContext { dtype: &dtype, compressor: &compressor, max_bytes: 64 << 10 };
        told(&state.encode(column, chunks, start, last).unwrap())
    }

    fn text(value: usize) -> String {
        format!("value {value:06}")
    }

    /// `rows` rows that cycle through `values` values.
    fn in_turn(rows: usize, values: usize) -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..rows).map(|row| text(row % values))))
    }

    /// `rows` rows of `values` values in random order, from which no other encoding can benefit.
    fn mixed(rows: usize, values: usize) -> ArrayRef {
        let mut random = 7u32;
        Arc::new(StringArray::from_iter_values((0..rows).map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text((random >> 12) as usize % values)
        })))
    }

    #[test]
    fn values_are_numbered_in_order_of_appearance_and_null_is_one() {
        let chunk: ArrayRef =
            Arc::new(StringArray::from(vec![Some("b"), None, Some("a"), Some(""), Some("b")]));
        let compressor = Compressor::new(Level::Default, Release::NEWEST);
        let dtype = DType::Utf8(true);
        let column = ColumnContext { dtype: &dtype, compressor: &compressor, max_bytes: 100 };
        let mut dictionary = Dictionary::default();
        dictionary.push(column, &binary_views(&chunk).unwrap(), &mut Vec::new()).unwrap();
        assert_eq!(dictionary.codes, [0, 1, 2, 3, 0]);
        let values: Vec<_> = (0..4).map(|code| dictionary.value(code)).collect();
        assert_eq!(values, [Some(&b"b"[..]), None, Some(b"a"), Some(b"")]);
    }

    #[test]
    fn no_dictionary_contains_a_null_that_the_oldest_reader_gets_wrong() {
        let before = Release::new(0, 56);
        let parts = |nulls: bool, reader: Release| {
            let compressor = Compressor::new(Level::Default, reader);
            let dtype = DType::Utf8(true);
            let column = ColumnContext { dtype: &dtype, compressor: &compressor, max_bytes: 64 << 10 };
            let rows =
                (0..20_000).map(|row| Some(text(row * 7919 % 100)).filter(|_| !nulls || row != 15_000));
            let rows: ArrayRef = Arc::new(StringArray::from_iter(rows));
            told(&DictionaryState::New.encode(column, &[mixed(20_000, 100), rows], 0, true).unwrap())
        };
        assert_eq!(parts(true, since::NULL_IN_DICTIONARY), [("codes", 40_000), ("values by a byte", 101)]);
        assert_eq!(parts(false, before), [("codes", 40_000), ("values by a byte", 100)]);
        let with_null = parts(true, before);
        assert!(with_null.iter().all(|(kind, _)| *kind == "chunk"), "{with_null:?}");
        let rows = [mixed(20_000, 100), Arc::new(StringArray::from(vec![None::<&str>; 9])) as ArrayRef];
        let compressor = Compressor::new(Level::Default, before);
        let dtype = DType::Utf8(true);
        let column = ColumnContext { dtype: &dtype, compressor: &compressor, max_bytes: 64 << 10 };
        let mut state = DictionaryState::New;
        assert_eq!(told(&state.encode(column, &rows[..1], 0, false).unwrap()), []);
        let later = told(&state.encode(column, &rows[1..], 20_000, true).unwrap());
        assert_eq!(later, [("codes", 20_000), ("values by a byte", 100), ("chunk", 9)]);
    }

    #[test]
    fn jobs_share_a_dictionary_until_the_last() {
        let mut state = DictionaryState::New;
        let rows = mixed(50_000, 300);
        assert_eq!(encode(&mut state, &[Arc::clone(&rows)], 0, false), []);
        assert_eq!(encode(&mut state, &[Arc::clone(&rows)], 50_000, false), [("codes", CODE_ROWS)]);
        let rest = [("codes", CODE_ROWS), ("codes", 150_000 - 2 * CODE_ROWS), ("values", 300)];
        assert_eq!(encode(&mut state, &[rows], 100_000, true), rest);
        assert_eq!(encode(&mut state, &[], 150_000, true), []);
    }

    #[test]
    fn few_values_have_codes_of_a_byte_until_there_are_too_many() {
        let mut state = DictionaryState::New;
        let first = encode(&mut state, &[mixed(CODE_ROWS, 100)], 0, false);
        assert_eq!(first, [("codes", CODE_ROWS)]);
        let second = encode(&mut state, &[in_turn(CODE_ROWS, 1000)], CODE_ROWS as u64, true);
        let all = [("codes", 256), ("values by a byte", 256), ("codes", CODE_ROWS - 256), ("values", 1000)];
        assert_eq!(second, all);
    }

    #[test]
    fn text_that_stops_repeating_goes_on_by_itself() {
        let mut state = DictionaryState::New;
        assert_eq!(encode(&mut state, &[mixed(20_000, 100)], 0, false), []);
        // 64 KiB hold 3,277 values of 12 bytes and their overhead.
        let parts = encode(&mut state, &[in_turn(50_000, 50_000)], 20_000, false);
        assert_eq!(parts[..2], [("codes", 23_277), ("values", 3277)], "which repeat enough");
        assert_eq!(parts[2..], [("codes", 3277), ("values", 3277), ("chunk", 50_000 - 2 * 3277)]);
        assert!(matches!(state, DictionaryState::Apart));
        assert_eq!(encode(&mut state, &[in_turn(10, 1)], 70_000, true), [("chunk", 10)]);
    }

    /// Chunks of rows that all have the same value.
    fn alike(value: &str) -> [ArrayRef; 3] {
        std::array::from_fn(|_| Arc::new(StringArray::from(vec![value; 100])) as ArrayRef)
    }

    #[test]
    fn one_long_value_is_shared_rather_than_repeated_in_each_chunk() {
        let mut next = crate::kernels::random(3);
        let long: String = (0..2000).map(|_| format!("{:016x}", next())).collect();
        let mut state = DictionaryState::New;
        assert_eq!(encode(&mut state, &alike(&long), 0, false), []);
        assert_eq!(encode(&mut state, &alike(&long), 300, true), [("codes", 600), ("values by a byte", 1)]);
        for other in ["a short value".to_owned(), long.repeat(3)] {
            let mut state = DictionaryState::New;
            assert_eq!(
                encode(&mut state, &alike(&other), 0, true),
                [("chunk", 100); 3],
                "short, or too long to be held"
            );
            assert!(matches!(state, DictionaryState::New));
        }
    }

    #[test]
    fn text_that_hardly_repeats_and_one_chunk_alone_have_no_dictionary() {
        let mut state = DictionaryState::New;
        assert_eq!(encode(&mut state, &[in_turn(9000, 8000)], 0, false), [("chunk", 9000)]);
        let mut state = DictionaryState::New;
        assert_eq!(encode(&mut state, &[in_turn(9000, 30)], 0, true), [("chunk", 9000)]);
        assert!(matches!(state, DictionaryState::New), "more may follow");
    }
}
