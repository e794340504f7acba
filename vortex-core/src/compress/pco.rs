//! Compressing numbers with pco: statistics of low and high bits, differences, and an entropy coder.

use super::numbers::Numbers;
use super::sample;
use super::scheme::{Context, Kind, Scheme};
use crate::encodings::pco;
use crate::kernels::Word;
use crate::wire::WriteNode;
use crate::{Level, Result};

/// The effort level of pco, of at most 12.
fn level(cx: &Context) -> usize {
    if cx.level() == Level::Compact { 9 } else { 4 }
}

/// Number of rows that are compressed to estimate the size: an eighth, within these limits.
const TRIED: (usize, usize) = (1024, 8192);

/// With fewer rows, the description of a chunk does not pay.
const MIN_ROWS: usize = 256;

/// Numbers of 16 bits or more.
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
            // Hard to estimate without trying: some numbers shrink to nothing.
            return Some(0);
        }
        let tried = sample::middle(numbers.len(), (numbers.len() / 8).clamp(TRIED.0, TRIED.1));
        let values = numbers.values.slice(tried.start, tried.len()).into_inner();
        let node = pco::encode(numbers.ptype, &values, level(cx), None, None).ok()?;
        Some(
            (node.byte_len() as f64 * numbers.len() as f64 / tried.len() as f64) as usize
                + numbers.null_bytes(),
        )
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        let (values, nulls) = (numbers.values.inner(), numbers.nulls.as_ref());
        pco::encode(numbers.ptype, values, level(cx), nulls, numbers.validity(cx)?).map(Some)
    }
}
