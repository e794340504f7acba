//! The values of one dictionary, and the codes of its rows.

use std::mem::{size_of, take};
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, BinaryViewArray, BinaryViewBuilder, StringViewBuilder, UInt8Array, UInt16Array,
};
use hashbrown::HashTable;

use super::{ColumnContext, ColumnPart, binary_views};
use crate::Result;
use crate::compress::text_hash;
use crate::dtype::{DType, PType};

/// Maximum number of values of a dictionary with one-byte codes, and with two-byte codes.
const MAX_NARROW: usize = 1 << 8;
const MAX_WIDE: usize = 1 << 16;
/// Number of values that leaves room for more in a dictionary with one-byte codes.
const SURELY_NARROW: usize = 192;
/// Minimum number of rows per two values for a dictionary to be worthwhile.
const MIN_ROWS_PER_TWO_VALUES: usize = 3;
/// Memory per value in addition to its bytes: its end, and its hash table entry.
const VALUE_OVERHEAD: usize = 4 + 4;
/// Approximate overhead of the layout over separate chunks, in bytes.
const OVERHEAD: usize = 256;
/// A dictionary may take one part in this many more bytes than separate chunks: predicates are evaluated once
/// for many chunks.
const EXTRA_BYTES: usize = 20;
/// Rows per chunk of codes.
pub(super) const CODE_ROWS: usize = 64 << 10;

/// Distinct values in order of first appearance, and the codes of rows not encoded yet.
#[derive(Debug, Default)]
pub(in crate::write) struct Dictionary {
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
    pub(super) rows: usize,
    /// The type of the codes, once some are encoded.
    codes_ptype: Option<PType>,
}

impl Dictionary {
    pub(super) fn at(first_row: u64) -> Self {
        Self { first_row, ..Self::default() }
    }

    /// An empty dictionary for the rows that follow. If codes were encoded already, it has two-byte
    /// codes, since one byte may have been too small.
    pub(super) fn successor(&self) -> Self {
        let codes_ptype = self.codes_ptype.map(|_| PType::U16);
        Self { codes_ptype, ..Self::at(self.first_row + self.codes.len() as u64) }
    }

    /// Whether the first rows of a column take fewer bytes with a dictionary than separately.
    pub(super) fn pays(
        column: ColumnContext<'_>,
        chunks: &[ArrayRef],
        first: &ArrayRef,
        last: bool,
    ) -> Result<bool> {
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

    pub(super) fn repeats(&self) -> bool {
        self.len() * MIN_ROWS_PER_TWO_VALUES <= self.rows * 2
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + (self.codes.capacity() + self.by_hash.capacity()) * size_of::<u16>()
    }

    fn value(&self, code: u16) -> Option<&[u8]> {
        (self.null != Some(code)).then(|| value(&self.bytes, &self.ends, code))
    }

    /// Codes rows until the dictionary is full; returns how many were coded.
    pub(super) fn push(
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

    /// The code of a value, which may be new; `None` if there is no room for another value, or no dictionary may have
    /// it.
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
    pub(super) fn close(mut self, column: ColumnContext<'_>, parts: &mut Vec<ColumnPart>) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;
    use crate::compress::Compressor;
    use crate::{Level, Release};

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
}
