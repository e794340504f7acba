//! Runs of equal numbers.

use arrow::buffer::{BooleanBuffer, NullBuffer};

use super::numbers::{Numbers, bits, compress_positions, compress_words};
use super::scheme::{Context, Kind, NODE_OVERHEAD, Scheme};
use crate::Result;
use crate::encodings::run_end;
use crate::kernels::Word;
use crate::wire::WriteNode;

/// Shorter runs cost more for their ends, and in decoding, than they save.
const MIN_ROWS_PER_RUN: usize = 3;

/// Schemes not used for the children of runs, which have no runs of their own.
const BARRED: [Kind; 2] = [Kind::Runs, Kind::Sparse];

/// One value per run, and the end of each run.
pub(super) struct Runs;

impl<W: Word> Scheme<Numbers<W>> for Runs {
    fn kind(&self) -> Kind {
        Kind::Runs
    }

    fn estimate(&self, numbers: &Numbers<W>, _: &Context) -> Option<usize> {
        if numbers.runs > numbers.len() / MIN_ROWS_PER_RUN {
            return None;
        }
        let few = numbers.distinct();
        // Repeated values can be encoded by a dictionary.
        let dictionary = bits(few as u64) as f64 + (few * W::BITS) as f64 / numbers.runs as f64;
        let run = bits(numbers.len() as u64) as f64 + dictionary.min(bits(numbers.span()) as f64);
        Some((numbers.runs as f64 * run / 8.0) as usize + NODE_OVERHEAD)
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        let ends = ends(numbers);
        let last = |end: &u32| *end as usize - 1;
        let values: Vec<W> = ends.iter().map(|end| numbers.values[last(end)]).collect();
        let nulls = numbers.nulls.as_ref().map(|nulls| {
            NullBuffer::new(BooleanBuffer::collect_bool(ends.len(), |at| nulls.is_valid(last(&ends[at]))))
        });
        let (below, count) = (cx.below(Kind::Runs, &BARRED), ends.len());
        let (ptype, encoded_ends) = compress_positions(&below.without(&[Kind::Dictionary]), ends, None)?;
        let values = compress_words(&below, numbers.ptype, values.into(), nulls.as_ref())?;
        Ok(Some(run_end::encode(encoded_ends, ptype, values, count)))
    }
}

/// The end of each run.
fn ends<W: Word>(numbers: &Numbers<W>) -> Vec<u32> {
    let mut ends = Vec::with_capacity(numbers.runs);
    let pairs = numbers.values.windows(2);
    match &numbers.nulls {
        None => {
            for (row, pair) in (1..).zip(pairs) {
                if pair[0] != pair[1] {
                    ends.push(row);
                }
            }
        }
        Some(nulls) => {
            for (row, pair) in (1u32..).zip(pairs) {
                let at = row as usize;
                if pair[0] != pair[1] || nulls.is_valid(at - 1) != nulls.is_valid(at) {
                    ends.push(row);
                }
            }
        }
    }
    // The number of rows in a chunk is less than 2^32.
    ends.push(numbers.len() as u32);
    ends
}
