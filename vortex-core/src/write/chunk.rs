//! A chunk of one column: its statistics per zone, and its encoded form.

use arrow::array::{Array as _, ArrayRef as ArrowRef};

use super::ZONE_LEN;
use super::dictionary::Dictionary;
use super::pending::join;
use crate::Result;
use crate::compress::Compressor;
use crate::dtype::DType;
use crate::error::ResultExt as _;
use crate::stats::compute::Summary;
use crate::wire::WriteNode;

/// Decoded bytes that a chunk aims at.
const CHUNK_BYTES: usize = 1 << 20;
/// Decoded bytes that a chunk may have before it is cut shorter than a zone.
const MAX_CHUNK_BYTES: usize = 8 << 20;
/// Most rows of a chunk: as many as readers decode at once.
const MAX_CHUNK_ROWS: usize = 128 << 10;

/// Most rows of a chunk that encodes to next to nothing.
const MAX_SMALL_CHUNK_ROWS: usize = 4 * MAX_CHUNK_ROWS;
/// Encoded bytes below which a chunk is next to nothing.
const MIN_ENCODED_BYTES: f64 = 32.0 * 1024.0;

/// Rows of one column to encode: a chunk, or all chunks of a group that may share a dictionary.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) leaf: usize,
    pub(super) dtype: DType,
    pub(super) path: String,
    /// Arrays that hold the rows, among others.
    pub(super) pieces: Vec<ArrowRef>,
    pub(super) start: usize,
    pub(super) len: usize,
    /// Rows per chunk.
    pub(super) step: usize,
    pub(super) bytes: usize,
    /// Rows of the zone that the first row lies in which come before it; `None` if nobody asks
    /// for statistics.
    pub(super) zone_offset: Option<usize>,
    pub(super) dictionary: Sharing,
}

/// Whether the chunks of a group share a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// They do not.
    Never,
    /// If that takes less bytes.
    IfSmaller,
    /// It did before: if there are not too many values.
    Again,
}

/// Encoded rows.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) leaf: usize,
    pub(super) rows: usize,
    /// Rows per chunk.
    pub(super) step: usize,
    /// Bytes of the values it was made from.
    pub(super) raw_bytes: usize,
    /// Bytes that it takes in memory and, about, in the file.
    pub(super) encoded_bytes: usize,
    pub(super) body: Body,
    /// Of the zones it lies in; the first and the last may go on in its neighbours.
    pub(super) zones: Vec<Summary>,
}

/// What encoding came to.
#[derive(Debug)]
pub(super) enum Body {
    Chunks(Vec<WriteNode>),
    Dictionary(Dictionary),
}

impl Job {
    pub(super) fn run(&self, compressor: &Compressor) -> Result<Encoded> {
        self.encode(compressor).at(|| format!("column `{}`", self.path))
    }

    fn encode(&self, compressor: &Compressor) -> Result<Encoded> {
        let starts = (0..self.len).step_by(self.step);
        let chunks = starts.map(|at| join(&self.pieces, self.start + at, self.step.min(self.len - at)));
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        let mut zones = Vec::new();
        if let Some(mut offset) = self.zone_offset {
            for chunk in &chunks {
                zones.extend(summarize(chunk, &self.dtype, offset));
                offset += chunk.len();
            }
        }
        let body = self.body(&chunks, compressor)?;
        let encoded_bytes = match &body {
            Body::Chunks(chunks) => chunks.iter().map(WriteNode::buffer_bytes).sum(),
            Body::Dictionary(dictionary) => dictionary.buffer_bytes(),
        };
        Ok(Encoded {
            leaf: self.leaf,
            rows: self.len,
            step: self.step,
            raw_bytes: self.bytes,
            encoded_bytes,
            body,
            zones,
        })
    }

    fn body(&self, chunks: &[ArrowRef], compressor: &Compressor) -> Result<Body> {
        let shared = match self.dictionary {
            Sharing::Never => None,
            sharing => Dictionary::try_new(chunks, &self.dtype, compressor, sharing == Sharing::IfSmaller)?,
        };
        Ok(match shared {
            Some(dictionary) => Body::Dictionary(dictionary),
            None => {
                let chunks = chunks.iter().map(|chunk| compressor.compress(chunk, &self.dtype));
                Body::Chunks(chunks.collect::<Result<_>>()?)
            }
        })
    }
}

/// Statistics per zone, of which the first has `offset` rows already.
fn summarize(array: &ArrowRef, dtype: &DType, offset: usize) -> Vec<Summary> {
    let mut zones = Vec::with_capacity(array.len() / ZONE_LEN + 2);
    let mut start = 0;
    while start < array.len() {
        let end = (start + ZONE_LEN - (start + offset) % ZONE_LEN).min(array.len());
        zones.push(Summary::of(&array.slice(start, end - start), dtype));
        start = end;
    }
    zones
}

/// Rows per chunk for a column of `rows` rows that take `bytes`: a power of two zones, or a
/// power of two rows if already one zone is too much. `encoded` is what a row took in earlier
/// chunks: where that is next to nothing, chunks are longer.
pub(super) fn chunk_rows(rows: usize, bytes: usize, encoded: Option<f64>) -> usize {
    let row_bytes = (bytes / rows.max(1)).max(1);
    let mut chunk = ZONE_LEN;
    while chunk < MAX_CHUNK_ROWS && chunk * row_bytes < CHUNK_BYTES {
        chunk *= 2;
    }
    let is_small = |chunk: usize| encoded.is_some_and(|bytes| bytes * (chunk as f64) < MIN_ENCODED_BYTES);
    while is_small(chunk) && chunk < MAX_SMALL_CHUNK_ROWS && chunk * row_bytes * 2 <= MAX_CHUNK_BYTES {
        chunk *= 2;
    }
    while chunk > 1 && chunk.saturating_mul(row_bytes) > MAX_CHUNK_BYTES {
        chunk /= 2;
    }
    chunk
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int32Array;

    use super::*;
    use crate::dtype::PType;

    #[test]
    fn chunks_are_powers_of_two_of_about_a_mebibyte() {
        assert_eq!(chunk_rows(1 << 20, 8 << 20, None), 128 << 10);
        assert_eq!(chunk_rows(1 << 20, 1 << 17, None), 128 << 10, "bits");
        assert_eq!(chunk_rows(1 << 20, 32 << 20, None), 32 << 10);
        assert_eq!(chunk_rows(1 << 20, 1 << 30, None), ZONE_LEN);
        assert_eq!(chunk_rows(10, 100 << 20, None), 1, "10 MiB each");
        assert_eq!(chunk_rows(1000, 10 << 20, None), 512, "10 KiB each");
        assert_eq!(chunk_rows(1 << 20, 8 << 20, Some(0.01)), 512 << 10, "next to nothing");
        assert_eq!(chunk_rows(1 << 20, 8 << 20, Some(1.0)), 128 << 10);
    }

    #[test]
    fn zones_are_counted_from_the_first_row_of_the_file() {
        let array: ArrowRef = Arc::new(Int32Array::from_iter_values(0..20_000));
        let dtype = DType::Primitive(PType::I32, false);
        let rows = |offset| summarize(&array, &dtype, offset).iter().map(|z| z.rows).collect::<Vec<_>>();
        assert_eq!(rows(0), [8192, 8192, 3616]);
        assert_eq!(rows(8000), [192, 8192, 8192, 3424]);
    }
}
