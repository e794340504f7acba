//! Encodings, one file or folder each, what they share, and the table of built-in encodings.
//!
//! Each file covers all aspects of its encoding: the meaning of the bytes, how they are checked and
//! decoded, and what can be answered without decoding. Adding an encoding requires its own file, which is
//! declared here, and a line in the table of built-in encodings. What several need is in `shared`.

pub(crate) mod alp;
pub(crate) mod alprd;
pub(crate) mod bit_packed;
pub(crate) mod bool;
mod bytebool;
pub(crate) mod chunked;
pub(crate) mod constant;
pub(crate) mod datetime_parts;
pub(crate) mod decimal;
pub(crate) mod decimal_byte_parts;
pub(crate) mod delta;
pub(crate) mod dict;
pub(crate) mod ext;
pub(crate) mod fixed_size_list;
pub(crate) mod frame_of_reference;
pub(crate) mod fsst;
pub(crate) mod list;
pub(crate) mod list_view;
pub(crate) mod map;
pub(crate) mod masked;
pub(crate) mod null;
pub(crate) mod onpair;
mod patched;
pub(crate) mod pco;
pub(crate) mod primitive;
pub(crate) mod rle;
pub(crate) mod run_end;
pub(crate) mod sequence;
pub(crate) mod shared;
pub(crate) mod sparse;
pub(crate) mod struct_;
mod union;
pub(crate) mod varbin;
pub(crate) mod varbin_view;
mod variant;
mod zigzag;
pub(crate) mod zstd;
mod zstd_buffers;

use std::sync::Arc;

use crate::Result;
use crate::array::{EncodedRef, Node};

/// Creates arrays of one encoding from serialized nodes.
///
/// The counts and lengths of a created array are fully checked, so that its methods can rely on them; see
/// [`EncodedArray`](crate::array::EncodedArray) for the rest of the contract.
pub trait Encoding: Send + Sync + 'static {
    /// The id, as stored in the file's table of encodings.
    fn id(&self) -> &'static str;

    /// Creates the array of a node.
    ///
    /// # Errors
    /// If metadata, buffers and children do not conform to the encoding.
    fn load(&self, node: &Node<'_>) -> Result<EncodedRef>;

    /// Creates an array of some rows of a node, in ascending order, requesting no more bytes than they
    /// need. If all children of an encoding have one row for each row of the array, it can load the node
    /// [of these rows](Node::of_rows). By default, everything is loaded.
    ///
    /// Load every child and buffer before you return an error of one of them: `NotFetched` says that bytes are missing,
    /// which by then have been requested, and each early return costs another round of reads.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        node.take(rows)
    }
}

/// All encodings of this crate.
pub(crate) fn built_in() -> Vec<Arc<dyn Encoding>> {
    vec![
        Arc::new(alp::Alp),
        Arc::new(alprd::AlpRd),
        Arc::new(bit_packed::BitPacked),
        Arc::new(bit_packed::BitPackedV2),
        Arc::new(bool::Bool),
        Arc::new(bytebool::ByteBool),
        Arc::new(chunked::Chunked),
        Arc::new(constant::Constant),
        Arc::new(datetime_parts::DateTimeParts),
        Arc::new(decimal::Decimal),
        Arc::new(decimal_byte_parts::DecimalByteParts),
        Arc::new(decimal_byte_parts::DecimalBytePartsV2),
        Arc::new(delta::Delta),
        Arc::new(dict::Dict),
        Arc::new(ext::Ext),
        Arc::new(fixed_size_list::FixedSizeList),
        Arc::new(frame_of_reference::FrameOfReference),
        Arc::new(frame_of_reference::FrameOfReferenceV2),
        Arc::new(fsst::Fsst),
        Arc::new(list::List),
        Arc::new(list_view::ListView),
        Arc::new(map::Map),
        Arc::new(masked::Masked),
        Arc::new(null::Null),
        Arc::new(onpair::OnPair),
        Arc::new(variant::ParquetVariant),
        Arc::new(patched::Patched),
        Arc::new(pco::Pco),
        Arc::new(primitive::Primitive),
        Arc::new(rle::Rle),
        Arc::new(run_end::RunEnd),
        Arc::new(sequence::Sequence),
        Arc::new(sparse::Sparse),
        Arc::new(struct_::Struct),
        Arc::new(union::Union),
        Arc::new(varbin::VarBin),
        Arc::new(varbin_view::VarBinView),
        Arc::new(variant::Variant),
        Arc::new(zigzag::ZigZag),
        Arc::new(zstd::Zstd),
        Arc::new(zstd_buffers::ZstdBuffers),
    ]
}
