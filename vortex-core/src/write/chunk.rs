//! A chunk of one column: its statistics per zone, and its encoded form.

use arrow::array::{Array as _, ArrayRef as ArrowRef};

use super::ZONE_LEN;
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

/// A chunk to encode.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) leaf: usize,
    pub(super) dtype: DType,
    pub(super) path: String,
    /// Arrays that hold the chunk, among other rows.
    pub(super) pieces: Vec<ArrowRef>,
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) bytes: usize,
    /// Rows of the zone that the chunk starts in which lie before it; `None` if nobody asks for
    /// statistics.
    pub(super) zone_offset: Option<usize>,
}

/// An encoded chunk.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) leaf: usize,
    pub(super) rows: usize,
    /// Bytes of the values it was made from.
    pub(super) raw_bytes: usize,
    /// Bytes that it takes in memory and, about, in the file.
    pub(super) encoded_bytes: usize,
    pub(super) node: WriteNode,
    /// Of the zones it lies in; the first and the last may go on in its neighbours.
    pub(super) zones: Vec<Summary>,
}

impl Job {
    pub(super) fn run(&self, compressor: &Compressor) -> Result<Encoded> {
        let encode = || {
            let array = join(&self.pieces, self.start, self.len)?;
            let zones = self.zone_offset.map(|offset| summarize(&array, &self.dtype, offset));
            let node = compressor.compress(&array, &self.dtype)?;
            Ok(Encoded {
                leaf: self.leaf,
                rows: self.len,
                raw_bytes: self.bytes,
                encoded_bytes: node.buffer_bytes(),
                node,
                zones: zones.unwrap_or_default(),
            })
        };
        encode().at(|| format!("column `{}`", self.path))
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
/// power of two rows if already one zone is too much.
pub(super) fn chunk_rows(rows: usize, bytes: usize) -> usize {
    let row_bytes = (bytes / rows.max(1)).max(1);
    let mut chunk = ZONE_LEN;
    while chunk < MAX_CHUNK_ROWS && chunk * row_bytes < CHUNK_BYTES {
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
        assert_eq!(chunk_rows(1 << 20, 8 << 20), 128 << 10);
        assert_eq!(chunk_rows(1 << 20, 1 << 17), 128 << 10, "bits");
        assert_eq!(chunk_rows(1 << 20, 32 << 20), 32 << 10);
        assert_eq!(chunk_rows(1 << 20, 1 << 30), ZONE_LEN);
        assert_eq!(chunk_rows(10, 100 << 20), 1, "10 MiB each");
        assert_eq!(chunk_rows(1000, 10 << 20), 512, "10 KiB each");
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
