//! One dictionary for all chunks of a group.
//!
//! Text that repeats is stored once for many rows: a `vortex.dict` layout of the values, and of
//! codes in chunks. Predicates are then evaluated once per value of the group. Whether that
//! takes less bytes than encoding each chunk by itself is tried out on the first chunk of a
//! column, and remembered.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef as ArrowRef, AsArray as _, BinaryViewArray, BinaryViewBuilder, StringViewBuilder,
    UInt8Array, UInt16Array,
};
use arrow::datatypes::DataType;

use crate::Result;
use crate::array::present;
use crate::compress::Compressor;
use crate::dtype::{DType, PType};
use crate::wire::WriteNode;

/// Values that a dictionary has at most.
const MAX_VALUES: usize = 1 << 16;
/// Bytes that they have at most together.
const MAX_VALUE_BYTES: usize = 1 << 20;
/// Rows per value that the first chunk must have, for a dictionary to be worth trying.
const MIN_ROWS_PER_VALUE: usize = 4;
/// Bytes that the layout takes more than chunks by themselves, about.
const OVERHEAD: usize = 256;

/// A dictionary and the codes of each chunk.
#[derive(Debug)]
pub(super) struct Dictionary {
    pub(super) values: WriteNode,
    pub(super) value_count: usize,
    pub(super) codes: Vec<WriteNode>,
    pub(super) codes_ptype: PType,
}

impl Dictionary {
    /// Bytes of all buffers.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.values.buffer_bytes() + self.codes.iter().map(WriteNode::buffer_bytes).sum::<usize>()
    }

    /// Encodes the chunks of a column of text with one dictionary; `None` if they have too many
    /// values, or if `compare` says to look and each chunk by itself takes less.
    pub(super) fn try_new(
        chunks: &[ArrowRef],
        dtype: &DType,
        compressor: &Compressor,
        compare: bool,
    ) -> Result<Option<Self>> {
        let views = chunks.iter().map(binary_views).collect::<Result<Vec<_>>>()?;
        let Some((values, codes)) = codes(&views) else { return Ok(None) };
        let narrow = values.len() <= usize::from(u8::MAX) + 1;
        let codes_ptype = if narrow { PType::U8 } else { PType::U16 };
        let codes_dtype = DType::Primitive(codes_ptype, false);
        let codes = codes.into_iter().map(|codes| {
            let codes: ArrowRef = if narrow {
                // There are at most 256 values.
                Arc::new(UInt8Array::from_iter_values(codes.into_iter().map(|code| code as u8)))
            } else {
                Arc::new(UInt16Array::from(codes))
            };
            compressor.compress(&codes, &codes_dtype)
        });
        let codes = codes.collect::<Result<Vec<_>>>()?;
        let value_count = values.len();
        let values = compressor.compress(&value_array(&values, dtype), dtype)?;
        let dictionary = Self { values, value_count, codes, codes_ptype };
        if compare && let (Some(first), rows) = (chunks.first(), views.iter().map(|v| v.len()).sum::<usize>())
        {
            let by_itself = compressor.compress(first, dtype)?.buffer_bytes();
            let all = by_itself.saturating_mul(rows) / first.len().max(1);
            // Evaluating predicates once for many chunks is worth some bytes.
            if dictionary.buffer_bytes() + OVERHEAD > all + all / 50 {
                return Ok(None);
            }
        }
        Ok(Some(dictionary))
    }
}

/// Whether values of a type may go into a dictionary of a group.
pub(super) fn is_text(dtype: &DType) -> bool {
    matches!(dtype.storage(), DType::Utf8(_) | DType::Binary(_))
}

fn binary_views(chunk: &ArrowRef) -> Result<BinaryViewArray> {
    let views = match chunk.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => present(Arc::clone(chunk), &DataType::Utf8View)?,
        _ => Arc::clone(chunk),
    };
    match views.data_type() {
        DataType::Utf8View => Ok(views.as_string_view().clone().to_binary_view()),
        _ => Ok(present(views, &DataType::BinaryView)?.as_binary_view().clone()),
    }
}

/// The values in order of appearance, null among them, and the code of every row per chunk.
type Coded<'a> = (Vec<Option<&'a [u8]>>, Vec<Vec<u16>>);

fn codes(chunks: &[BinaryViewArray]) -> Option<Coded<'_>> {
    let mut numbers: HashMap<Option<&[u8]>, u16> = HashMap::new();
    let mut values = Vec::new();
    let mut value_bytes = 0;
    let mut all = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let mut codes = Vec::with_capacity(chunk.len());
        let mut last: Option<(Option<&[u8]>, u16)> = None;
        for value in chunk.iter() {
            let code = match last {
                Some((before, code)) if before == value => code,
                _ => match numbers.get(&value) {
                    Some(code) => *code,
                    None => {
                        value_bytes += value.map_or(0, <[u8]>::len);
                        if values.len() == MAX_VALUES || value_bytes > MAX_VALUE_BYTES {
                            return None;
                        }
                        // Below 2^16, since there are no more values than that.
                        let code = values.len() as u16;
                        numbers.insert(value, code);
                        values.push(value);
                        code
                    }
                },
            };
            last = Some((value, code));
            codes.push(code);
        }
        all.push(codes);
        if all.len() == 1 && values.len() * MIN_ROWS_PER_VALUE > chunk.len() {
            return None;
        }
    }
    Some((values, all))
}

fn value_array(values: &[Option<&[u8]>], dtype: &DType) -> ArrowRef {
    if let DType::Utf8(_) = dtype.storage() {
        let mut builder = StringViewBuilder::with_capacity(values.len());
        for value in values {
            // Text that came in as text.
            builder.append_option(value.map(|bytes| std::str::from_utf8(bytes).unwrap_or_default()));
        }
        return Arc::new(builder.finish());
    }
    let mut builder = BinaryViewBuilder::with_capacity(values.len());
    values.iter().for_each(|value| builder.append_option(*value));
    Arc::new(builder.finish())
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;
    use crate::{Level, Release};

    fn dictionary(chunks: &[ArrowRef], compare: bool) -> Option<Dictionary> {
        let compressor = Compressor::new(Level::Default, Release::NEWEST);
        Dictionary::try_new(chunks, &DType::Utf8(true), &compressor, compare).unwrap()
    }

    #[test]
    fn values_are_numbered_in_order_of_appearance_and_null_is_one() {
        let chunk: ArrowRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a"), Some("b")]));
        let views = [binary_views(&chunk).unwrap(), binary_views(&chunk.slice(1, 1)).unwrap()];
        assert!(codes(&views).is_none(), "hardly a row repeats");
        let long: ArrowRef =
            Arc::new(StringArray::from(vec![Some("b"), None, None, None, None, None, None, None]));
        let views = [binary_views(&long).unwrap(), binary_views(&chunk).unwrap()];
        let (values, codes) = codes(&views).unwrap();
        assert_eq!(values, [Some(&b"b"[..]), None, Some(b"a")]);
        assert_eq!(codes[1], [0, 1, 2, 0]);
    }

    #[test]
    fn many_values_have_no_dictionary() {
        let chunk: ArrowRef =
            Arc::new(StringArray::from_iter_values((0..300_000).map(|at| (at / 4).to_string())));
        assert!(dictionary(&[Arc::clone(&chunk)], false).is_none());
        let few: ArrowRef =
            Arc::new(StringArray::from_iter_values((0..30_000).map(|at| format!("some value {}", at % 300))));
        let found = dictionary(&[Arc::clone(&few), few], true).unwrap();
        assert_eq!((found.value_count, found.codes_ptype, found.codes.len()), (300, PType::U16, 2));
    }
}
