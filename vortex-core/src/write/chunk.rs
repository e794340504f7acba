//! Encoding the rows of one column into chunks, and computing their statistics per zone.

use std::ops::Range;

use arrow::array::{Array as _, ArrayRef};
use tokio::sync::oneshot;

use super::ZONE_LEN;
use super::dictionary::{ColumnContext, DictionaryState};
use super::row_sizes::RowSizes;
use super::waiting_rows::{join, joined_bytes};
use crate::Result;
use crate::bloom::hashes_of;
use crate::compress::Compressor;
use crate::dtype::{DType, PType};
use crate::error::ResultExt as _;
use crate::stats::compute::Summary;
use crate::wire::WriteNode;

/// Target for the decoded bytes of a chunk. With half of it, the tables that tokens of text take in each chunk make the
/// text columns of TPC-H 7 % larger, and single rows read little less.
const CHUNK_BYTES: usize = 2 << 20;
/// Decoded bytes above which a chunk is cut shorter than a zone.
const MAX_CHUNK_BYTES: usize = 8 << 20;
/// Decoded bytes of a chunk above which it is cut: some of its rows are much longer than others.
const MAX_UNEVEN_BYTES: usize = 64 << 20;
/// Bytes of text that all chunks of some rows may share.
const MAX_SHARED_BYTES: usize = 256 << 20;
/// Maximum number of rows of a chunk: as many as readers decode at once.
const MAX_CHUNK_ROWS: usize = 128 << 10;

/// Rows of one column to encode: one chunk, or several chunks of text.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) leaf: usize,
    pub(super) dtype: DType,
    pub(super) path: String,
    pub(super) compressor: Compressor,
    /// Arrays that contain the rows, possibly among others.
    pub(super) pieces: Vec<ArrayRef>,
    /// The rows of each chunk, counted from the start of the pieces.
    pub(super) chunks: Vec<Range<usize>>,
    pub(super) sizes: RowSizes,
    /// Position in the file of the first row.
    pub(super) first_row: u64,
    /// Whether to compute statistics.
    pub(super) has_zones: bool,
    /// Whether to compute Bloom filters.
    pub(super) has_filters: bool,
    /// For a text column, its turn.
    pub(super) turn: Option<Turn>,
}

/// The turn of a job that encodes text: after the previous job, and before the next one.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) before: oneshot::Receiver<DictionaryState>,
    pub(super) next: oneshot::Sender<DictionaryState>,
    /// Whether everything must be encoded, with nothing held back for later rows.
    pub(super) is_last: bool,
    /// Approximate limit of the bytes that a dictionary takes in memory.
    pub(super) max_dictionary_bytes: usize,
}

/// Encoded rows.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) leaf: usize,
    /// Bytes that the rows took before.
    pub(super) sizes: RowSizes,
    /// Bytes of the encoded rows in memory and, approximately, in the file.
    pub(super) encoded_bytes: usize,
    pub(super) parts: Vec<ColumnPart>,
    /// Bytes held for later rows of the column.
    pub(super) held_bytes: usize,
    /// Summaries of the zones that the rows lie in; the first and the last may extend into neighbouring jobs.
    pub(super) zones: Vec<Summary>,
    /// For Bloom filters, the hashes of the values of each part of a zone, with the number of its rows.
    pub(super) hashes: Vec<(usize, Vec<u64>)>,
}

/// A part of a column that becomes a segment.
#[derive(Debug)]
pub(super) enum ColumnPart {
    /// A chunk of this many rows.
    Chunk(WriteNode, usize),
    /// The codes of this many rows.
    Codes(WriteNode, usize),
    /// The values of all codes since the previous values.
    Values { node: WriteNode, count: u64, codes_ptype: PType },
}

impl ColumnPart {
    pub(super) fn buffer_bytes(&self) -> usize {
        self.node().buffer_bytes()
    }

    /// Bytes in memory. Of a constant, these are more than those of its buffers.
    fn memory_size(&self) -> usize {
        self.node().memory_size()
    }

    fn node(&self) -> &WriteNode {
        match self {
            Self::Chunk(node, _) | Self::Codes(node, _) | Self::Values { node, .. } => node,
        }
    }
}

impl Job {
    /// Encodes the rows when it is their turn; returns `None` if the previous job failed.
    ///
    /// # Errors
    /// If they cannot be encoded.
    pub(super) async fn run(mut self) -> Result<Option<Encoded>> {
        let turn = self.turn.take();
        let max_bytes = turn.as_ref().map_or(0, |turn| turn.max_dictionary_bytes);
        let column = ColumnContext { dtype: &self.dtype, compressor: &self.compressor, max_bytes };
        let place = || format!("column `{}`", self.path);
        let Some(turn) = turn else {
            return self.encode(column, &mut DictionaryState::Apart, true).map(Some).at(place);
        };
        let Ok(mut state) = turn.before.await else { return Ok(None) };
        // After the last job, there is no receiver.
        let pass_on = |state| drop(turn.next.send(state));
        if matches!(state, DictionaryState::Apart) {
            // Later rows do not depend on this job.
            pass_on(DictionaryState::Apart);
            return self.encode(column, &mut state, turn.is_last).map(Some).at(place);
        }
        let encoded = self.encode(column, &mut state, turn.is_last).at(place)?;
        pass_on(state);
        Ok(Some(encoded))
    }

    fn encode(
        &self,
        column: ColumnContext<'_>,
        state: &mut DictionaryState,
        is_last: bool,
    ) -> Result<Encoded> {
        let chunks = self.chunks.iter().map(|rows| join(&self.pieces, rows.start, rows.len()));
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        let (mut zones, mut hashes) = (Vec::new(), Vec::new());
        let mut offset = (self.first_row % ZONE_LEN as u64) as usize;
        for chunk in &chunks {
            for part in by_zone(chunk, offset) {
                if self.has_zones {
                    zones.push(Summary::of(&part, &self.dtype));
                }
                if self.has_filters {
                    let mut of_part = hashes_of(&part, &self.dtype)?;
                    of_part.sort_unstable();
                    of_part.dedup();
                    hashes.push((part.len(), of_part));
                }
            }
            offset = (offset + chunk.len()) % ZONE_LEN;
        }
        let parts = state.encode(column, &chunks, self.first_row, is_last)?;
        Ok(Encoded {
            leaf: self.leaf,
            sizes: self.sizes,
            encoded_bytes: parts.iter().map(ColumnPart::memory_size).sum::<usize>()
                + zones.len() * size_of::<Summary>(),
            parts,
            held_bytes: state.held_bytes(),
            zones,
            hashes,
        })
    }
}

/// The rows of each zone, the first of which already has `offset` rows.
fn by_zone(array: &ArrayRef, offset: usize) -> impl Iterator<Item = ArrayRef> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = (start + ZONE_LEN - (start + offset) % ZONE_LEN).min(array.len());
        let part = (start < end).then(|| array.slice(start, end - start));
        start = end;
        part
    })
}

/// The rows of each chunk, given those of a column and what all of them take.
pub(super) fn chunks(pieces: &[ArrayRef], rows: usize, sizes: RowSizes) -> Vec<Range<usize>> {
    let step = chunk_rows(rows, sizes.raw, sizes.joined);
    let mut chunks = Vec::with_capacity(rows.div_ceil(step));
    for start in (0..rows).step_by(step) {
        let chunk = start..rows.min(start + step);
        if sizes.joined > MAX_UNEVEN_BYTES {
            push_halves(pieces, chunk, &mut chunks)
        } else {
            chunks.push(chunk)
        }
    }
    chunks
}

/// Adds a chunk, in parts if it takes too many bytes.
fn push_halves(pieces: &[ArrayRef], chunk: Range<usize>, chunks: &mut Vec<Range<usize>>) {
    if chunk.len() <= 1 || joined_bytes(pieces, chunk.clone()) <= MAX_UNEVEN_BYTES {
        return chunks.push(chunk);
    }
    let middle = chunk.start + chunk.len() / 2;
    push_halves(pieces, chunk.start..middle, chunks);
    push_halves(pieces, middle..chunk.end, chunks);
}

/// Rows per chunk for a column of `rows` rows, whose values take `raw_bytes`: a power of two of zones, or
/// a power of two of rows if a single zone takes too many of the `joined_bytes`. Any chunk may show all of the
/// text that rows share, so that too much of it counts for each row.
pub(super) fn chunk_rows(rows: usize, raw_bytes: usize, joined_bytes: usize) -> usize {
    let joined_bytes = if joined_bytes > MAX_SHARED_BYTES { raw_bytes } else { joined_bytes };
    let of_row = |bytes: usize| (bytes / rows.max(1)).max(1);
    let mut chunk = ZONE_LEN;
    while chunk < MAX_CHUNK_ROWS && chunk * of_row(raw_bytes) < CHUNK_BYTES {
        chunk *= 2;
    }
    while chunk > 1 && chunk.saturating_mul(of_row(joined_bytes)) > MAX_CHUNK_BYTES {
        chunk /= 2;
    }
    chunk
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, StringArray};

    use super::*;

    #[test]
    fn chunks_are_powers_of_two_of_about_two_mebibytes() {
        let of = |rows, bytes| chunk_rows(rows, bytes, bytes);
        assert_eq!(of(1 << 20, 8 << 20), 128 << 10);
        assert_eq!(of(1 << 20, 1 << 17), 128 << 10, "bits");
        assert_eq!(of(1 << 20, 32 << 20), 64 << 10);
        assert_eq!(of(1 << 20, 64 << 20), 32 << 10);
        assert_eq!(of(1 << 20, 1 << 30), ZONE_LEN);
        assert_eq!(of(10, 100 << 20), 1, "10 MiB each");
        assert_eq!(of(1000, 10 << 20), 512, "10 KiB each");
        assert_eq!(chunk_rows(1024, 1 << 30, 1 << 20), ZONE_LEN, "1 MiB each, which they share");
        assert_eq!(
            chunk_rows(1024, 1 << 30, 512 << 20),
            8,
            "half of it shared, which is too much for a chunk"
        );
    }

    #[test]
    fn chunks_are_cut_where_rows_are_much_longer_than_on_average() {
        let text = |lens: &[usize]| {
            Arc::new(StringArray::from_iter_values(lens.iter().map(|len| "x".repeat(*len)))) as ArrayRef
        };
        let pieces = [text(&[10; 30]), text(&[10, MAX_UNEVEN_BYTES / 2, MAX_UNEVEN_BYTES / 2, 10])];
        let raw = MAX_UNEVEN_BYTES + 32 * 10 + 34 * 4;
        let sizes = RowSizes { raw, joined: raw, waiting: raw };
        // On average, four rows take eight mebibytes.
        assert_eq!(chunk_rows(34, raw, raw), 4);
        let chunks = super::chunks(&pieces, 34, sizes);
        assert_eq!(chunks[7..], [28..32, 32..34]);
        let pieces = [text(&[10; 30]), text(&[MAX_UNEVEN_BYTES / 2, 10, 10, MAX_UNEVEN_BYTES / 2])];
        assert_eq!(super::chunks(&pieces, 34, sizes)[7..], [28..32, 32..34]);
        let pieces = [text(&[10; 28]), text(&[10, MAX_UNEVEN_BYTES / 2, 10, MAX_UNEVEN_BYTES / 2, 10, 10])];
        assert_eq!(super::chunks(&pieces, 34, sizes)[7..], [28..30, 30..32, 32..34]);
    }

    #[test]
    fn zones_are_counted_from_the_first_row_of_the_file() {
        let array: ArrayRef = Arc::new(Int32Array::from_iter_values(0..20_000));
        let rows = |offset| by_zone(&array, offset).map(|zone| zone.len()).collect::<Vec<_>>();
        assert_eq!(rows(0), [8192, 8192, 3616]);
        assert_eq!(rows(8000), [192, 8192, 8192, 3424]);
    }
}
