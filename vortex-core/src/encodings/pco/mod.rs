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
use super::part_cache::{Cost, PartCache};
use super::valid_rows::{StoredValues, ValidRows, ValidRowsArray, spread};
use crate::array::{ArrayRef, EncodedArray as _, EncodedRef, Node, fixed_width, indices, present};
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
        match array.has_large_pages() {
            true => Ok(Arc::new(array.to_decoded()?)),
            false => Ok(Arc::new(array)),
        }
    }

    /// Loads only the pages that contain values of the rows.
    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        PcoArray::load(node, Some(rows))?.take(&indices(rows))
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

/// Number of values that are decoded at a time: few enough that they stay in the processor's cache until they are copied.
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
            match values.end <= node.len() {
                true => Ok(values),
                false => Err(Error::corrupt(format!("pages hold more values than {} rows", node.len()))),
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

/// Checks the number of values in the dictionary of a chunk, for which the pco crate reserves memory before it reads them:
/// the 25 bits behind the four of the mode. It copies them.
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

/// Runs the pco crate. It asserts invariants of its own output, which damaged pages may violate: a panic only means that
/// the file is corrupt. No state that it worked on is used afterwards.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(Error::corrupt("pco page is inconsistent")))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Array as _, AsArray as _, Float64Array, Int32Array, Int64Array, UInt16Array, UInt64Array,
    };
    use arrow::datatypes::Int64Type;
    use pco::wrapped::FileCompressor;
    use pco::{ChunkConfig, DeltaSpec, PagingSpec};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::DType;
    use crate::encodings::conformance;
    use crate::limits::Work;

    /// Chunks of pages with values.
    fn encode<T: Number>(chunks: &[Vec<&[T]>]) -> (Metadata, Vec<Vec<u8>>) {
        encode_with(&ChunkConfig::default(), chunks)
    }

    fn encode_with<T: Number>(config: &ChunkConfig, chunks: &[Vec<&[T]>]) -> (Metadata, Vec<Vec<u8>>) {
        let file = FileCompressor::default();
        let mut metadata = Metadata::default();
        file.write_header(&mut metadata.header).unwrap();
        let (mut metas, mut pages) = (vec![], vec![]);
        for chunk in chunks {
            let sizes: Vec<usize> = chunk.iter().map(|page| page.len()).collect();
            let config = config.clone().with_paging_spec(PagingSpec::Exact(sizes.clone()));
            let mut compressor = file.chunk_compressor(&chunk.concat(), &config).unwrap();
            let mut meta = Vec::new();
            compressor.write_meta(&mut meta).unwrap();
            metas.push(meta);
            for page in 0..sizes.len() {
                let mut bytes = Vec::new();
                compressor.write_page(page, &mut bytes).unwrap();
                pages.push(bytes);
            }
            let count = |size: &usize| PageMetadata { value_count: u32::try_from(*size).unwrap() };
            metadata.chunks.push(ChunkMetadata { pages: sizes.iter().map(count).collect() });
        }
        metas.extend(pages);
        (metadata, metas)
    }

    fn tree((metadata, buffers): (Metadata, Vec<Vec<u8>>)) -> Tree {
        buffers.into_iter().fold(Tree::new(ID).message(&metadata), Tree::buffer)
    }

    #[test]
    fn conforms() {
        let values: Vec<i32> = (0..700).map(|at| at * at % 977 - 300).collect();
        let encoded = encode(&[vec![&values[..300], &values[300..310]], vec![&values[310..]]]);
        let array = tree(encoded).load(&DType::Primitive(PType::I32, false), 700).unwrap();
        conformance::check(&array, &(Arc::new(Int32Array::from(values)) as ArrayRef));
    }

    #[test]
    fn pages_that_are_decoded_in_several_pieces_conform() {
        let values: Vec<i64> = (0..2 * PIECE as i64 + 300).map(|at| at * at % 9973 - 70).collect();
        let (first, second) = values.split_at(PIECE + 77);
        let array = tree(encode(&[vec![first, second]]));
        let array = array.load(&DType::Primitive(PType::I64, false), values.len()).unwrap();
        let expected: ArrayRef = Arc::new(Int64Array::from(values));
        conformance::check(&array, &expected);
        let len = expected.len();
        for rows in
            [0..1, PIECE - 1..PIECE + 1, PIECE..PIECE + 78, PIECE + 70..len, 2 * PIECE + 76..len, 5..len - 5]
        {
            let slice = array.slice(rows.clone()).unwrap();
            let expected = expected.slice(rows.start, rows.len());
            assert_eq!(&slice.decode(&DataType::Int64).unwrap(), &expected, "{rows:?}");
            let some =
                Mask::from_indices(rows.len(), (0..rows.len()).filter(|at| at % 7 == 0 || at % 1000 < 5));
            let found = slice.filter(&some).unwrap().decode(&DataType::Int64).unwrap();
            assert_eq!(&found, &arrow::compute::filter(&expected, &some.to_filter()).unwrap(), "{rows:?}");
        }
    }

    #[test]
    fn memory_is_not_reserved_for_dictionaries_and_windows_that_are_only_claimed() {
        let values: Vec<i64> = (0..300).map(|at| at * at % 7).collect();
        let config = ChunkConfig::default().with_delta_spec(DeltaSpec::TryLookback);
        let (metadata, buffers) = encode_with(&config, &[vec![&values]]);
        let decoded = |meta: Vec<u8>| {
            let buffers = [vec![meta], buffers[1..].to_vec()].concat();
            let limits = Limits::new().with_max_decoded_bytes(1 << 20);
            let array = tree((metadata.clone(), buffers));
            let array = array.load_within(&DType::Primitive(PType::I64, false), 300, &limits).unwrap();
            let _work = Work::begin();
            array.decode(&DataType::Int64)
        };
        let sound = decoded(buffers[0].clone()).unwrap();
        assert_eq!(sound.as_primitive::<Int64Type>().values(), &values);
        // The logarithm of the window, less one, is in five bits behind those of mode and kind of delta.
        let mut window = buffers[0].clone();
        assert_eq!(window[0] >> 4, 2, "lookback");
        window[1] = window[1] & !31 | 23;
        assert!(matches!(decoded(window), Err(Error::LimitExceeded(_))));
        let dictionary = (DICTIONARY_MODE | ((1 << 25) - 1) << 4).to_le_bytes();
        // The crate would return an error, too, but after it has reserved memory.
        let error = decoded(dictionary.to_vec()).unwrap_err().to_string();
        assert!(error.contains("pco dictionary of 33554431 values in 4 bytes"), "{error}");
    }

    #[test]
    fn values_of_null_rows_are_not_stored() {
        let values: Vec<f64> = (0..300).map(|at| f64::from(at) / 4.0 - 7.0).chain([-0.0, f64::NAN]).collect();
        let valid: Vec<bool> = (0..453).map(|at| at % 3 != 1).collect();
        let mut next = values.iter();
        let rows: Float64Array = valid.iter().map(|valid| valid.then(|| *next.next().unwrap())).collect();
        let encoded = encode(&[vec![&values[..100], &values[100..]]]);
        let nullable = tree(encoded).child(Tree::bools(&valid));
        let array = nullable.load(&DType::Primitive(PType::F64, true), 453).unwrap();
        conformance::check(&array, &(Arc::new(rows) as ArrayRef));
    }

    #[test]
    fn no_valid_rows_have_no_chunks() {
        let tree = tree(encode::<u16>(&[])).child(Tree::bools(&[false; 4]));
        let array = tree.load(&DType::Primitive(PType::U16, true), 4).unwrap();
        conformance::check(&array, &(Arc::new(UInt16Array::new_null(4)) as ArrayRef));
    }

    #[test]
    fn a_slice_decodes_only_its_pages() {
        let values: Vec<i64> = (0..40).collect();
        let (metadata, mut buffers) = encode(&[vec![&values[..20], &values[20..]]]);
        buffers[2].clear();
        let array = tree((metadata, buffers)).load(&DType::Primitive(PType::I64, false), 40).unwrap();
        assert!(array.decode(&DataType::Int64).is_err());
        assert!(array.slice(3..20).unwrap().decode(&DataType::Int64).is_ok());
        assert!(array.filter(&Mask::from_indices(40, [7])).is_ok());
        assert!(array.take(&UInt64Array::from(vec![21])).is_err());
    }

    #[test]
    fn a_page_is_decoded_up_to_the_last_wanted_value() {
        let values: Vec<i64> = (0..4096).map(|at| at * 7_919 % 1_009).collect();
        let (metadata, mut buffers) = encode(&[vec![&values[..]]]);
        let half = buffers[1].len() / 2;
        buffers[1].truncate(half);
        let array = tree((metadata, buffers)).load(&DType::Primitive(PType::I64, false), 4096).unwrap();
        let found = array.take(&UInt64Array::from(vec![3, 1000])).unwrap().decode(&DataType::Int64).unwrap();
        assert_eq!(found.as_primitive::<Int64Type>().values(), &[values[3], values[1000]]);
        assert!(array.take(&UInt64Array::from(vec![4000])).is_err());
    }

    #[test]
    fn pages_that_hold_many_splits_are_decompressed_once() {
        let load = |pages: &[usize]| {
            let values: Vec<u16> = vec![7; pages.iter().sum()];
            let pages = pages.iter().map(|len| &values[..*len]).collect();
            tree(encode(&[pages])).load(&DType::Primitive(PType::U16, false), values.len()).unwrap()
        };
        assert_eq!(load(&[LARGE_PAGE, 9]).encoding(), ID);
        let large = load(&[9, LARGE_PAGE + 1]);
        assert_eq!(large.encoding(), "arrow");
        let slice = large.slice(LARGE_PAGE..LARGE_PAGE + 2).unwrap().decode(&DataType::UInt16).unwrap();
        assert_eq!(slice.as_ref(), &UInt16Array::from(vec![7, 7]));
    }

    #[test]
    fn pages_that_are_decoded_often_are_kept() {
        let values: Vec<i64> = (0..4000).map(|at| at * at % 9973 - 70).collect();
        let (first, second) = values.split_at(2500);
        let array = tree(encode(&[vec![first, second]]));
        let array = array.load(&DType::Primitive(PType::I64, false), 4000).unwrap();
        for start in (0..3990).step_by(11).cycle().take(1000) {
            let slice = array.slice(start..start + 10).unwrap();
            let expected = &values[start..start + 10];
            assert_eq!(
                slice.decode(&DataType::Int64).unwrap().as_primitive::<Int64Type>().values(),
                expected
            );
            let few = slice.filter(&Mask::from_indices(10, [2, 3, 9])).unwrap();
            let few = few.decode(&DataType::Int64).unwrap();
            let expected = [expected[2], expected[3], expected[9]];
            assert_eq!(few.as_primitive::<Int64Type>().values(), &expected);
        }
    }

    #[test]
    fn counts_are_checked() {
        let values: Vec<i64> = (0..40).collect();
        let good = || encode(&[vec![&values[..]]]);
        let i64s = DType::Primitive(PType::I64, false);
        assert!(tree(good()).load(&i64s, 39).is_err());
        assert!(tree(good()).load(&i64s, 41).unwrap().decode(&DataType::Int64).is_err());
        assert!(tree(good()).load(&DType::Primitive(PType::U8, false), 40).is_err());
        assert!(tree(good()).buffer(vec![1u8]).load(&i64s, 40).is_err());
    }

    #[test]
    fn damage_does_not_panic() {
        let values: Vec<i64> = (0..500).map(|at| (at * at * 31) % 1009).collect();
        let (metadata, buffers) = encode(&[vec![&values[..]]]);
        for (at, buffer) in buffers.iter().enumerate() {
            for bit in 0..buffer.len() * 8 {
                let mut damaged = buffers.clone();
                damaged[at][bit / 8] ^= 1 << (bit % 8);
                let array = tree((metadata.clone(), damaged)).load(&DType::Primitive(PType::I64, false), 500);
                let _ = array.unwrap().decode(&DataType::Int64);
            }
            for len in 0..buffer.len() {
                let mut damaged = buffers.clone();
                damaged[at].truncate(len);
                let array = tree((metadata.clone(), damaged)).load(&DType::Primitive(PType::I64, false), 500);
                let _ = array.unwrap().decode(&DataType::Int64);
            }
        }
    }

    #[test]
    fn a_panic_of_the_library_is_an_error() {
        let error = caught::<()>(|| panic!("as pco might")).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
}
