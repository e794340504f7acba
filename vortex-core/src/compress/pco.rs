//! Numbers by pco: statistics of their low and high bits, differences, and an entropy coder.

use super::numbers::Numbers;
use super::scheme::{Context, Kind, Scheme};
use crate::encodings::pco;
use crate::kernels::Word;
use crate::wire::WriteNode;
use crate::{Level, Result};

/// What pco spends, of 12.
fn level(cx: &Context) -> usize {
    if cx.level() == Level::Compact { 9 } else { 4 }
}

/// Rows that are compressed to see how well it goes: at least so many, or an eighth, at most so many.
const TRIED: (usize, usize) = (1024, 8192);

/// Fewer rows do not pay for the description of a chunk.
const MIN_ROWS: usize = 256;

/// Numbers of 16 bits and more.
pub(super) struct Pco;

impl<W: Word> Scheme<Numbers<W>> for Pco {
    fn kind(&self) -> Kind {
        Kind::Pco
    }

    fn estimate(&self, numbers: &Numbers<W>, cx: &Context) -> Option<usize> {
        if W::BITS == 8 || numbers.len() < MIN_ROWS {
            return None;
        }
        if cx.level() == Level::Compact {
            // Hardly to be told without trying: some numbers shrink to nothing.
            return Some(0);
        }
        // Neighbours tell how well it goes, rows far apart would not.
        let tried = (numbers.len() / 8).clamp(TRIED.0, TRIED.1).min(numbers.len());
        let start = (numbers.len() - tried) / 2;
        let values = numbers.values.slice(start, tried).into_inner();
        let node = pco::encode(numbers.ptype, &values, level(cx), None, None).ok()?;
        Some((node.byte_len() as f64 * numbers.len() as f64 / tried as f64) as usize + numbers.null_bytes())
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        let (values, nulls) = (numbers.values.inner(), numbers.nulls.as_ref());
        pco::encode(numbers.ptype, values, level(cx), nulls, numbers.validity(cx)?).map(Some)
    }
}
