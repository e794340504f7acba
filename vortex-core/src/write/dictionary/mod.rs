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

mod values;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BinaryViewArray};
use arrow::datatypes::DataType;

use self::values::Dictionary;
use super::ZONE_LEN;
use super::chunk::ColumnPart;
use crate::Result;
use crate::array::present;
use crate::compress::{Compressor, LONG_VALUE};
use crate::dtype::DType;
use crate::release::since;

/// Minimum number of rows covered by a full dictionary for starting another one.
const MIN_ROWS: usize = ZONE_LEN;

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

    use super::values::CODE_ROWS;
    use super::*;
    use crate::dtype::PType;
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
