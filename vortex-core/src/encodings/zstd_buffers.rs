//! A wrapper: an array of another encoding whose buffers are Zstandard frames.
//!
//! Metadata: id and metadata of the inner encoding, decoded size and alignment of each buffer, and how
//! many of the children belong to the inner encoding; a child after those duplicates the validity and is
//! not needed. Loading decompresses the buffers and passes them to the inner encoding.

use ::bytes::Bytes;
use arrow::buffer::Buffer;

use super::Encoding;
use super::zstd::decompress;
use crate::array::{EncodedRef, Node, bytes};
use crate::{Error, Result};

/// The `vortex.zstd_buffers` encoding.
#[derive(Debug)]
pub(super) struct ZstdBuffers;

const ID: &str = "vortex.zstd_buffers";

/// Maximum alignment that a buffer may request.
const MAX_ALIGNMENT: u32 = 1 << 16;

/// Minimum alignment that Rust's allocator provides by default.
const NATURAL_ALIGNMENT: usize = 16;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    inner_id: String,
    #[prost(bytes = "bytes", tag = "2")]
    inner_metadata: Bytes,
    #[prost(uint64, repeated, tag = "3")]
    uncompressed_sizes: Vec<u64>,
    #[prost(uint32, repeated, tag = "4")]
    alignments: Vec<u32>,
    #[prost(uint32, optional, tag = "7")]
    inner_child_count: Option<u32>,
}

impl Encoding for ZstdBuffers {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let metadata = node.message::<Metadata>()?;
        node.expect_buffers(metadata.uncompressed_sizes.len())?;
        if metadata.alignments.len() != metadata.uncompressed_sizes.len()
            || !metadata.alignments.iter().all(|it| it.is_power_of_two() && *it <= MAX_ALIGNMENT)
        {
            let count = metadata.uncompressed_sizes.len();
            return Err(Error::corrupt(format!(
                "the alignments of {count} buffers are not powers of two up to {MAX_ALIGNMENT}, one for each"
            )));
        }
        let children = metadata.inner_child_count.map_or(node.child_count(), |count| count as usize);
        let sizes =
            metadata.uncompressed_sizes.iter().map(|size| usize::try_from(*size).map_err(Error::limit));
        let sizes = sizes.collect::<Result<Vec<usize>>>()?;
        let total = sizes.iter().fold(0usize, |sum, size| sum.saturating_add(*size));
        node.limits().count_bytes(total as u64)?;
        let mut buffers = Vec::with_capacity(sizes.len());
        for (at, (size, alignment)) in sizes.iter().zip(&metadata.alignments).enumerate() {
            let decompressed = Buffer::from_vec(decompress(&node.buffer(at)?, *size)?);
            // Encodings copy bytes for which they need a larger alignment than this.
            buffers.push(bytes::aligned(decompressed, (*alignment as usize).min(NATURAL_ALIGNMENT)));
        }
        node.load_wrapped(&metadata.inner_id, &metadata.inner_metadata, &buffers, children)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringViewArray};
    use prost::Message as _;

    use super::*;
    use crate::array::ArrayRef;
    use crate::array::build::Tree;
    use crate::dtype::{DType, PType};
    use crate::encodings::shared::conformance;
    use crate::limits::{Limits, Work};

    /// Wraps an encoding with these uncompressed buffers.
    fn wrap(id: &str, inner: &[u8], buffers: &[&[u8]]) -> (Metadata, Tree) {
        let metadata = Metadata {
            inner_id: id.to_owned(),
            inner_metadata: inner.to_vec().into(),
            uncompressed_sizes: buffers.iter().map(|bytes| bytes.len() as u64).collect(),
            alignments: vec![8; buffers.len()],
            inner_child_count: None,
        };
        let compress = |tree: Tree, bytes: &&[u8]| tree.buffer(zstd::bulk::compress(bytes, 3).unwrap());
        let tree = buffers.iter().fold(Tree::new(ID).message(&metadata), compress);
        (metadata, tree)
    }

    #[test]
    fn conforms() {
        let values: Vec<i64> = (0..90).map(|at| at * 5 - 100).collect();
        let valid: Vec<bool> = (0..90).map(|at| at % 4 != 0).collect();
        let bytes = Buffer::from_slice_ref(&values);
        let (_, tree) = wrap("vortex.primitive", &[], &[&bytes]);
        let array = tree.child(Tree::bools(&valid)).load(&DType::Primitive(PType::I64, true), 90).unwrap();
        let expected = Int64Array::new(values.into(), Some(valid.into()));
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn an_extra_child_behind_the_inner_ones_is_left_out() {
        let inner = super::super::varbin::Metadata { offsets_ptype: PType::U8 as i32 }.encode_to_vec();
        let (mut metadata, tree) = wrap("vortex.varbin", &inner, &[b"abc"]);
        metadata.inner_child_count = Some(1);
        let tree =
            tree.message(&metadata).child(Tree::primitive(&[0u8, 2, 3])).child(Tree::bools(&[true, true]));
        let array = tree.load(&DType::Utf8(false), 2).unwrap();
        conformance::check(&array, &(Arc::new(StringViewArray::from(vec!["ab", "c"])) as ArrayRef));
        metadata.inner_child_count = Some(9);
        assert!(tree.message(&metadata).load(&DType::Utf8(false), 2).is_err());
    }

    #[test]
    fn all_frames_of_a_tree_share_a_limit() {
        let (_, tree) = wrap("vortex.primitive", &[], &[&[7u8; 1000]]);
        let offsets = Tree::primitive(&[0u64, 1000, 2000, 3000]);
        let chunked =
            (0..3).fold(Tree::new("vortex.chunked").child(offsets), |all, _| all.child(tree.clone()));
        let within = |bytes| {
            let limits = Limits::default().with_max_decoded_bytes(bytes);
            chunked.load_within(&DType::Primitive(PType::U8, false), 3000, &limits)
        };
        let bytes = 3 * 1000 + 4 * size_of::<u64>() as u64;
        assert!(within(bytes).is_ok());
        let error = within(bytes - 1).unwrap_err();
        assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
    }

    #[test]
    fn frames_of_all_arrays_loaded_for_the_same_work_share_a_limit() {
        let (_, tree) = wrap("vortex.primitive", &[], &[&[7u8; 1000]]);
        let limits = Limits::default().with_max_decoded_bytes(2500);
        let load = || tree.load_within(&DType::Primitive(PType::U8, false), 1000, &limits);
        let _work = Work::begin();
        let kept = [load().unwrap(), load().unwrap()];
        let error = load().unwrap_err();
        assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
        drop(kept);
    }

    #[test]
    fn sizes_ids_and_nesting_are_checked() {
        let dtype = DType::Primitive(PType::U8, false);
        let (metadata, tree) = wrap("vortex.primitive", &[], &[b"abcd"]);
        assert!(tree.load(&dtype, 4).is_ok());
        assert!(tree.load(&dtype, 5).is_err());
        let changed = |change: fn(&mut Metadata)| {
            let mut metadata = metadata.clone();
            change(&mut metadata);
            tree.clone().message(&metadata).load(&dtype, 4)
        };
        assert!(changed(|it| it.inner_id = "no.such".to_owned()).is_err());
        assert!(changed(|it| it.uncompressed_sizes[0] = 5).is_err());
        assert!(changed(|it| it.uncompressed_sizes[0] = u64::MAX).is_err());
        assert!(changed(|it| it.alignments[0] = 3).is_err());
        assert!(changed(|it| it.alignments.clear()).is_err());
        assert!(changed(|it| it.inner_metadata = [&it.inner_metadata[..], &[1]].concat().into()).is_err());
        // Numbers take more bytes than in the file; the limit counts them before they are parsed.
        let metadata = Metadata { uncompressed_sizes: vec![1; 100_000], ..Metadata::default() };
        let tree = Tree::new(ID).message(&metadata);
        let error = tree.load_within(&dtype, 4, &Limits::new().with_max_decoded_bytes(1 << 20)).unwrap_err();
        assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
        // Wraps itself repeatedly, with frames within frames.
        let mut inner = (metadata.encode_to_vec(), zstd::bulk::compress(b"abcd", 3).unwrap());
        for _ in 0..100 {
            let (metadata, _) = wrap(ID, &inner.0, &[&inner.1]);
            inner = (metadata.encode_to_vec(), zstd::bulk::compress(&inner.1, 3).unwrap());
        }
        let error = Tree::new(ID).metadata(inner.0).buffer(inner.1).load(&dtype, 4).unwrap_err();
        assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
    }
}
