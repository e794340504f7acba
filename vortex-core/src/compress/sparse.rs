//! Columns in which most rows have the same value.

use super::numbers::{Numbers, compress_helpers, compress_words};
use super::scheme::{Context, Kind, Scheme};
use crate::Result;
use crate::encodings::{bit_packed::patches::EncodedPatches, sparse};
use crate::kernels::Word;
use crate::scalar::Value;
use crate::wire::WriteNode;

/// A value in a smaller share of the rows is not worth leaving out.
const MIN_SHARE: f64 = 0.9;

/// The most frequent value, or null, and the rows that differ from it.
pub(super) struct Sparse;

/// The rows that are left out.
enum Fill<W> {
    Null,
    Value(W),
}

impl<W: Word> Scheme<Numbers<W>> for Sparse {
    fn kind(&self) -> Kind {
        Kind::Sparse
    }

    fn estimate(&self, numbers: &Numbers<W>, _: &Context) -> Option<usize> {
        let kept = match fill(numbers)? {
            Fill::Null => numbers.len() - numbers.nulls.as_ref()?.null_count(),
            Fill::Value(_) => {
                let share = 1.0 - numbers.sample().top().1;
                (share * numbers.len() as f64) as usize
                    + numbers.nulls.as_ref().map_or(0, |nulls| nulls.null_count())
            }
        };
        Some(kept * (size_of::<u16>() + size_of::<W>()) + 64)
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        let Some(fill) = fill(numbers) else { return Ok(None) };
        let rows: Vec<u32> = match (&fill, &numbers.nulls) {
            (Fill::Null, Some(nulls)) => nulls.valid_indices().map(|row| row as u32).collect(),
            (Fill::Value(top), nulls) => {
                let valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                let rows = numbers.values.iter().enumerate();
                rows.filter(|(row, value)| *value != top || !valid(*row)).map(|(row, _)| row as u32).collect()
            }
            (Fill::Null, None) => return Ok(None),
        };
        if rows.is_empty() {
            return Ok(None);
        }
        let values: Vec<W> = rows.iter().map(|row| numbers.values[*row as usize]).collect();
        let nulls = match fill {
            Fill::Null => None,
            Fill::Value(_) => numbers
                .nulls
                .as_ref()
                .map(|nulls| rows.iter().map(|row| nulls.is_valid(*row as usize)).collect()),
        };
        let (below, count) = (cx.below(Kind::Sparse, &[Kind::Runs]), rows.len());
        let (ptype, indices) = compress_helpers(&below.below(Kind::Dictionary, &[]), rows, None)?;
        let values = compress_words(&below, numbers.ptype, values.into(), nulls.as_ref())?;
        let fill = match fill {
            Fill::Null => Value::Null,
            Fill::Value(top) => numbers.value(top),
        };
        sparse::encode(&fill, EncodedPatches::with_indices(count, ptype, indices, values)).map(Some)
    }
}

fn fill<W: Word>(numbers: &Numbers<W>) -> Option<Fill<W>> {
    let null_share =
        numbers.nulls.as_ref().map_or(0, |nulls| nulls.null_count()) as f64 / numbers.len() as f64;
    if null_share >= MIN_SHARE {
        return Some(Fill::Null);
    }
    let (rank, share) = numbers.sample().top();
    (share >= MIN_SHARE && null_share < 1.0 - MIN_SHARE)
        .then(|| Fill::Value(numbers.min.plus(W::narrow(rank))))
}
