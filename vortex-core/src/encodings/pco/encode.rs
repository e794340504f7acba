//! Compressing numbers into chunks of pages.

use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::ArrowNativeType;
use half::f16;
use pco::data_types::Number;
use pco::wrapped::FileCompressor;
use pco::{ChunkConfig, PagingSpec};

use super::{ChunkMetadata, ID, Metadata, PageMetadata};
use crate::dtype::PType;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// Maximum number of values of a chunk.
const CHUNK_VALUES: usize = 1 << 18;

/// Maximum number of values of a page, all of which are decompressed to read a single row.
const PAGE_VALUES: usize = 4096;

/// Maximum number of pages, approximately, however many values a row has: arrays have less than 2^16 buffers.
const MAX_PAGES: usize = 1 << 15;

/// A node of numbers of type `ptype` whose bits are `values`. Values of null rows are not stored.
///
/// # Errors
/// If the type has 8 bits, or compression fails.
pub(crate) fn encode(
    ptype: PType,
    values: &Buffer,
    level: usize,
    nulls: Option<&NullBuffer>,
    validity: Option<WriteNode>,
) -> Result<WriteNode> {
    let node = match ptype {
        PType::U16 => chunks::<u16>(values, level, nulls),
        PType::U32 => chunks::<u32>(values, level, nulls),
        PType::U64 => chunks::<u64>(values, level, nulls),
        PType::I16 => chunks::<i16>(values, level, nulls),
        PType::I32 => chunks::<i32>(values, level, nulls),
        PType::I64 => chunks::<i64>(values, level, nulls),
        PType::F16 => chunks::<f16>(values, level, nulls),
        PType::F32 => chunks::<f32>(values, level, nulls),
        PType::F64 => chunks::<f64>(values, level, nulls),
        PType::U8 | PType::I8 => Err(Error::invalid("numbers of 8 bits")),
    }?;
    Ok(node.children(validity))
}

/// Maximum number of values of a page of an array with this many.
fn page_values(count: usize) -> usize {
    PAGE_VALUES.max(count.div_ceil(MAX_PAGES))
}

fn chunks<T: Number + ArrowNativeType>(
    values: &Buffer,
    level: usize,
    nulls: Option<&NullBuffer>,
) -> Result<WriteNode> {
    let broken = |error: pco::errors::PcoError| Error::External(error.to_string().into());
    let values = ScalarBuffer::<T>::from(values.clone());
    let valid: ScalarBuffer<T> = match nulls {
        Some(nulls) => nulls.valid_indices().map(|row| values[row]).collect(),
        None => values,
    };
    let file = FileCompressor::default();
    let mut metadata = Metadata::default();
    file.write_header(&mut metadata.header).map_err(broken)?;
    let config = ChunkConfig::default().with_compression_level(level);
    let config = config.with_paging_spec(PagingSpec::EqualPagesUpTo(page_values(valid.len())));
    let (mut metas, mut pages) = (Vec::new(), Vec::new());
    for values in valid.chunks(CHUNK_VALUES) {
        let mut chunk = file.chunk_compressor(values, &config).map_err(broken)?;
        let mut meta = Vec::with_capacity(chunk.meta_size_hint());
        chunk.write_meta(&mut meta).map_err(broken)?;
        metas.push(meta);
        let counts = chunk.n_per_page();
        for page in 0..counts.len() {
            let mut bytes = Vec::with_capacity(chunk.page_size_hint(page));
            chunk.write_page(page, &mut bytes).map_err(broken)?;
            pages.push(bytes);
        }
        // Pages have few values.
        let pages = counts.iter().map(|count| PageMetadata { value_count: *count as u32 });
        metadata.chunks.push(ChunkMetadata { pages: pages.collect() });
    }
    let node = WriteNode::new(ID).message(&metadata);
    Ok(metas.into_iter().chain(pages).fold(node, |node, bytes| node.buffer(bytes.into(), 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_row_that_is_written_has_few_enough_pages() {
        let count = (2 << 30) / size_of::<i16>();
        let pages_per_chunk = CHUNK_VALUES.div_ceil(page_values(count));
        assert!(count.div_ceil(CHUNK_VALUES) * (1 + pages_per_chunk) < 1 << 16);
        assert_eq!(page_values(CHUNK_VALUES), PAGE_VALUES);
    }
}
