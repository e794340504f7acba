//! Pco: pages of numbers in chunks that share statistics, for the values of valid rows only.
//!
//! ```text
//! buffers   meta of chunk 0, meta of chunk 1, ..., pages of chunk 0, pages of chunk 1, ...
//! rows      a  -  b  c  -      values  a b | c     (two pages)
//! ```
//!
//! Metadata: the header of the pco file, and the value counts of all pages of all chunks. Optional child:
//! the validity. Numbers have 16, 32 or 64 bits.
//!
//! Slices keep track of their rows; decoding, filter and take decompress only pages that contain a wanted
//! value, and these only up to the last one. The pco crate decodes; it is called in only one place. Pages of
//! more values than several splits have rows are decompressed when they are loaded.

mod encode;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};
use half::f16;
use pco::FULL_BATCH_N;
use pco::data_types::Number;
use pco::metadata::{ChunkMeta, DeltaEncoding};
use pco::wrapped::{ChunkDecompressor, FileDecompressor};

use super::Encoding;
use super::shared::part_cache::{Cost, PartCache};
use super::shared::valid_rows::{StoredValues, ValidRows, ValidRowsArray, spread};
use crate::array::{ArrayRef, EncodedArray as _, EncodedRef, Node, Pick, fixed_width, indices, present};
use crate::dtype::PType;
use crate::dtype::arrow::primitive;
use crate::limits::Limits;
use crate::mask::Mask;
use crate::{Error, Result};

pub(crate) use encode::encode;

/// The `vortex.pco` encoding.
#[derive(Debug)]
pub(in crate::encodings) struct Pco;

pub(crate) const ID: &str = "vortex.pco";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(bytes = "vec", tag = "1")]
    header: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    chunks: Vec<ChunkMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ChunkMetadata {
    #[prost(message, repeated, tag = "1")]
    pages: Vec<PageMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PageMetadata {
    #[prost(uint32, tag = "1")]
    value_count: u32,
}

impl Encoding for Pco {
    fn id(&self) -> &'static str {
        ID
    }

    /// Large pages are decompressed at once: if each of many slices began at their start, a file of a few hundred bytes
    /// took hours.
    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let array = PcoArray::load(node, None)?;
        if array.has_large_pages() { Ok(Arc::new(array.to_decoded()?)) } else { Ok(Arc::new(array)) }
    }

    /// Loads only the pages that contain values of the rows.
    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        PcoArray::load(node, Some(rows))?.pick(Pick::Take(&indices(rows)))
    }
}

#[derive(Debug)]
struct Page {
    /// Empty if none of its values will be needed.
    bytes: Buffer,
    /// The range of its values among those of the array.
    values: Range<usize>,
}

#[derive(Debug)]
struct Chunk {
    meta: Buffer,
    pages: Vec<Page>,
}

#[derive(Debug)]
struct Chunks {
    ptype: PType,
    header: Vec<u8>,
    all: Vec<Chunk>,
    value_count: usize,
    /// Whose parts are the numbers of a page each.
    cache: PartCache,
}

/// The mode of chunks whose values are numbers of a dictionary.
const DICTIONARY_MODE: u32 = 4;

/// Pages with more values than this are large: several splits need them.
const LARGE_PAGE: usize = 256 << 10;

/// Number of values that are decoded at a time: few enough that they stay in the processor's cache until they are
/// copied.
const PIECE: usize = 8 * FULL_BATCH_N;

type PcoArray = ValidRowsArray<Chunks>;

impl StoredValues for Chunks {
    fn byte_len(&self) -> usize {
        let pages = |chunk: &Chunk| chunk.pages.iter().map(|page| page.bytes.len()).sum::<usize>();
        self.all.iter().map(|chunk| chunk.meta.len() + pages(chunk)).sum()
    }

    fn decode_rows(array: &PcoArray, mask: &Mask, to: &DataType) -> Result<ArrayRef> {
        let (live, nulls) = array.rows.select(mask)?;
        let (total, Self { ptype, value_count, .. }) = (array.rows.total()?, &*array.stored);
        if total != *value_count {
            return Err(Error::corrupt(format!("pages hold {value_count} values for {total} valid rows")));
        }
        array.limits().count_rows(mask.true_count(), ptype.byte_width())?;
        let nulls_ref = nulls.as_ref();
        let rows = match ptype {
            PType::U16 => array.numbers::<u16>(&live, nulls_ref),
            PType::U32 => array.numbers::<u32>(&live, nulls_ref),
            PType::U64 => array.numbers::<u64>(&live, nulls_ref),
            PType::I16 => array.numbers::<i16>(&live, nulls_ref),
            PType::I32 => array.numbers::<i32>(&live, nulls_ref),
            PType::I64 => array.numbers::<i64>(&live, nulls_ref),
            PType::F16 => array.numbers::<f16>(&live, nulls_ref),
            PType::F32 => array.numbers::<f32>(&live, nulls_ref),
            PType::F64 => array.numbers::<f64>(&live, nulls_ref),
            PType::U8 | PType::I8 => Err(Error::corrupt("holds no numbers of 8 bits")),
        }?;
        present(fixed_width(primitive(*ptype), mask.true_count(), rows, nulls)?, to)
    }
}

impl PcoArray {
    /// Loads a node, with only those of its pages that contain values of the rows in `asked_for`; `None`
    /// means all rows.
    fn load(node: &Node<'_>, asked_for: Option<&[usize]>) -> Result<Self> {
        let ptype = node.dtype().ptype()?;
        if ptype.byte_width() == 1 {
            return Err(Error::corrupt(format!("holds no numbers of type {ptype}")));
        }
        let metadata = node.message::<Metadata>()?;
        let chunk_count = metadata.chunks.len();
        let page_count: usize = metadata.chunks.iter().map(|chunk| chunk.pages.len()).sum();
        node.expect_buffers(chunk_count + page_count)?;
        let rows = ValidRows::new(node.validity_child(0)?, node.len());
        let live = asked_for.map(|asked_for| rows.live(asked_for)).transpose()?;
        let mut start = 0usize;
        let mut values_of = |page: &PageMetadata| {
            // Counts have 32 bits and there are at most 2^16 buffers, so this does not overflow.
            let values = start..start + page.value_count as usize;
            start = values.end;
            if values.end <= node.len() {
                Ok(values)
            } else {
                Err(Error::corrupt(format!("pages hold more values than {} rows", node.len())))
            }
        };
        let chunks = metadata.chunks.iter();
        let places = chunks.map(|chunk| chunk.pages.iter().map(&mut values_of).collect::<Result<Vec<_>>>());
        let places = places.collect::<Result<Vec<_>>>()?;
        let wanted = |values: &Range<usize>| live.as_ref().is_none_or(|live| live.any_within(values));
        let metas = node.buffers(0, places.iter().map(|pages| pages.iter().any(&wanted)));
        let mut pages = node.buffers(chunk_count, places.iter().flatten().map(&wanted))?.into_iter();
        let chunks = metas?.into_iter().zip(places).map(|(meta, places)| {
            let pages = places.into_iter().zip(&mut pages);
            Chunk { meta, pages: pages.map(|(values, bytes)| Page { bytes, values }).collect() }
        });
        let chunks = chunks.collect();
        Ok(Self {
            header: node.header(ID),
            stored: Arc::new(Chunks {
                ptype,
                header: metadata.header,
                all: chunks,
                value_count: start,
                cache: PartCache::new(start.saturating_mul(ptype.byte_width())),
            }),
            rows,
        })
    }

    fn has_large_pages(&self) -> bool {
        self.stored.all.iter().flat_map(|chunk| &chunk.pages).any(|page| page.values.len() > LARGE_PAGE)
    }

    /// The live numbers, spread to their rows.
    fn numbers<T>(&self, live: &Mask, nulls: Option<&NullBuffer>) -> Result<Buffer>
    where
        T: Number + ArrowNativeType,
    {
        let values = caught(|| self.values::<T>(live))?;
        Ok(Buffer::from_vec(spread(values, nulls)))
    }

    /// The live values. `live` has one bit per value of these rows.
    fn values<T: Number + ArrowNativeType>(&self, live: &Mask) -> Result<Vec<T>> {
        let live_in = self.rows.live_in(live)?;
        let mut values: Vec<T> = Vec::with_capacity(live.true_count());
        if live.is_none() {
            return Ok(values);
        }
        let (file, _) = FileDecompressor::new(self.stored.header.as_slice()).map_err(broken)?;
        for chunk in &self.stored.all {
            let mut opened: Option<ChunkDecompressor<T>> = None;
            for page in &chunk.pages {
                let Some((live, offset)) = live_in(&page.values) else { continue };
                let opened = match &mut opened {
                    Some(opened) => opened,
                    None => {
                        let meta = chunk.meta.as_slice();
                        check_dictionary::<T>(meta, self.limits())?;
                        let (chunk, _) = file.chunk_decompressor::<T, _>(meta).map_err(broken)?;
                        self.limits().count::<T>(window_values(chunk.meta()))?;
                        opened.insert(chunk)
                    }
                };
                let count = page.values.len();
                let end = (offset + live.span().end).next_multiple_of(FULL_BATCH_N).min(count);
                self.limits().count::<T>(end)?;
                if let Some(kept) = self.kept(page, end, opened)? {
                    let numbers = &kept.typed_data::<T>()[offset..];
                    live.runs().into_iter().for_each(|run| values.extend_from_slice(&numbers[run]));
                    continue;
                }
                read_page(opened, page, end, |start, decoded| {
                    // Values before those of these rows are decoded, and skipped.
                    let piece = start..start + decoded.len();
                    let rows = piece.start.max(offset) - offset..piece.end.max(offset) - offset;
                    let rows = rows.start.min(live.len())..rows.end.min(live.len());
                    for run in live.slice(rows.clone()).runs() {
                        let first = rows.start + offset - piece.start;
                        values.extend_from_slice(&decoded[first + run.start..first + run.end]);
                    }
                })?;
            }
        }
        Ok(values)
    }

    /// All values of a page, if it is decoded often, of which the first `end` ones are wanted.
    fn kept<T: Number + ArrowNativeType>(
        &self,
        page: &Page,
        end: usize,
        chunk: &mut ChunkDecompressor<T>,
    ) -> Result<Option<Arc<Buffer>>> {
        let cost = Cost { of_slice: end * size_of::<T>(), in_memory: page.values.len() * size_of::<T>() };
        self.stored.cache.get(page.values.start, cost, || {
            let mut all = Vec::with_capacity(page.values.len());
            read_page(chunk, page, page.values.len(), |_, decoded: &[T]| all.extend_from_slice(decoded))?;
            Ok(Buffer::from_vec(all))
        })
    }
}

/// Decodes the first `end` values of a page in pieces, each of which is passed on with the place of its first value.
fn read_page<T: Number>(
    chunk: &mut ChunkDecompressor<T>,
    page: &Page,
    end: usize,
    mut pass_on: impl FnMut(usize, &[T]),
) -> Result<()> {
    let count = page.values.len();
    let mut scratch = [T::default(); PIECE];
    let mut values = chunk.page_decompressor(page.bytes.as_slice(), count).map_err(broken)?;
    for start in (0..end).step_by(PIECE) {
        let piece = start..end.min(start + PIECE);
        let decoded = &mut scratch[..piece.len()];
        let progress = values.read(decoded).map_err(broken)?;
        if progress.n_processed != piece.len() || progress.finished != (piece.end == count) {
            return Err(Error::corrupt(format!("pco page ends after {}", start + progress.n_processed)));
        }
        pass_on(start, decoded);
    }
    Ok(())
}

fn broken(error: pco::errors::PcoError) -> Error {
    Error::corrupt(format!("pco: {error}"))
}

/// Checks the number of values in the dictionary of a chunk, for which the pco crate reserves memory before it reads
/// them: the 25 bits behind the four of the mode. It copies them.
fn check_dictionary<T>(meta: &[u8], limits: &Limits) -> Result<()> {
    let start = meta.first_chunk().map_or(0, |start| u32::from_le_bytes(*start));
    if start & 15 != DICTIONARY_MODE {
        return Ok(());
    }
    let count = (start >> 4 & ((1 << 25) - 1)) as usize;
    if count * size_of::<T>() > meta.len() {
        return Err(Error::corrupt(format!("pco dictionary of {count} values in {} bytes", meta.len())));
    }
    limits.count::<T>(count)
}

/// Number of values before the current ones that the pco crate keeps while it decodes a page.
fn window_values(meta: &ChunkMeta) -> usize {
    match &meta.delta_encoding {
        DeltaEncoding::Lookback { config, secondary_uses_delta } => {
            let window = 2 * (1usize << config.window_n_log).max(FULL_BATCH_N);
            window * if *secondary_uses_delta { 2 } else { 1 }
        }
        _ => 0,
    }
}

/// Runs the pco crate. It asserts invariants of its own output, which damaged pages may violate: a panic only means
/// that the file is corrupt. No state that it worked on is used afterwards.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(Error::corrupt("pco page is inconsistent")))
}

#[cfg(test)]
mod tests;
