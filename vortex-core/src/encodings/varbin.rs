//! Concatenated strings or byte strings, and the start of each.
//!
//! ```text
//! rows  ab  c  -  def      offsets  [0, 2, 3, 3, 6]
//!                          bytes    abcdef
//! ```
//!
//! Metadata: integer type of the offsets. Children: `offsets` (one more than rows, not null, may start above
//! 0), optionally the validity. Buffer: the bytes, whose beginning and end may be unused. Bytes under nulls are
//! arbitrary. Slicing slices the offsets and shares the bytes; decoding shares the bytes, too.

use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::DataType;

use super::Encoding;
use super::shared::offsets::{Places, ends};
use crate::Result;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, bytes, decode_offsets,
    integer_type, integers_child, one_more,
};
use crate::dtype::PType;
use crate::wire::WriteNode;

/// The `vortex.varbin` encoding.
#[derive(Debug)]
pub(super) struct VarBin;

pub(super) const ID: &str = "vortex.varbin";

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Metadata {
    #[prost(int32, tag = "1")]
    pub(super) offsets_ptype: i32,
}

impl Encoding for VarBin {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(VarBinArray::load(node)?))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        bytes::is_text(node.dtype())?;
        let offsets = integer_type(node.message::<Metadata>()?.offsets_ptype, "offsets")?;
        node.expect_buffers(1)?;
        // No `?` before all are loaded: see `load_rows`.
        let ranges = node.ranges(0, &offsets, node.len(), rows, node.buffer_len(0)?);
        let validity = node.of_rows(rows).validity_child(1);
        let ranges = ranges?;
        let bytes = node.gather(0, ranges.iter().cloned())?;
        Ok(VarBinArray::joined(node, bytes, ends(&ranges), validity?))
    }
}

/// Decoding all rows and choosing some of these views is faster than copying the text of one in so many rows or more.
const MIN_PER_CHOSEN: usize = 4;

/// Offsets into bytes.
#[derive(Debug)]
pub(super) struct VarBinArray {
    header: Header,
    pub(super) offsets: EncodedRef,
    pub(super) bytes: Buffer,
    pub(super) validity: ValidityChild,
}

impl VarBinArray {
    pub(super) fn load(node: &Node<'_>) -> Result<Self> {
        bytes::is_text(node.dtype())?;
        let offsets = integer_type(node.message::<Metadata>()?.offsets_ptype, "offsets")?;
        node.expect_buffers(1)?;
        Ok(Self {
            header: node.header(ID),
            offsets: node.child(0, &offsets, one_more(node.len())?)?,
            bytes: node.buffer(0)?,
            validity: node.validity_child(1)?,
        })
    }

    /// Values of a node's type between ascending offsets from 0 to the end of `bytes`.
    pub(super) fn joined(
        node: &Node<'_>,
        bytes: Buffer,
        offsets: Vec<u64>,
        validity: ValidityChild,
    ) -> EncodedRef {
        Arc::new(Self {
            header: node.header(ID).of_rows(offsets.len() - 1),
            offsets: integers_child(offsets, node.limits()),
            bytes,
            validity,
        })
    }
}

impl VarBinArray {
    /// The bytes of these rows, one row after the other.
    fn gather(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let places = Places::of(&self.offsets, "offsets", pick, self.bytes.len())?;
        let (bytes, ends) = places.gather(self.bytes.as_slice(), 0, self.limits())?;
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            offsets: integers_child(ends, self.limits()),
            bytes: bytes.into(),
            validity: self.validity.pick(pick)?,
        }))
    }
}

impl EncodedArray for VarBinArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let offsets = std::iter::once(("offsets", &self.offsets));
        offsets.chain(self.validity.named()).collect()
    }

    fn buffer_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let nulls = self.validity()?.to_nulls(self.len());
        let offsets = decode_offsets(&self.offsets, "offsets", self.bytes.len())?;
        bytes::from_offsets(self.dtype(), to, &self.bytes, &offsets, nulls, self.limits())
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        match pick {
            Pick::Slice(rows) => Ok(Arc::new(Self {
                header: self.header.of_rows(rows.len()),
                offsets: self.offsets.slice(rows.start..rows.end + 1)?,
                bytes: self.bytes.clone(),
                validity: self.validity.pick(pick)?,
            })),
            _ if pick.row_count().saturating_mul(MIN_PER_CHOSEN) > self.len() => {
                self.to_decoded()?.pick(pick)
            }
            _ => self.gather(pick),
        }
    }
}

/// A node of bytes that are split into values by `offsets`, of which there is one more than rows.
pub(crate) fn encode(
    bytes: Buffer,
    offsets_ptype: PType,
    offsets: WriteNode,
    validity: Option<WriteNode>,
) -> WriteNode {
    let metadata = Metadata { offsets_ptype: offsets_ptype as i32 };
    WriteNode::new(ID).message(&metadata).buffer(bytes, 1).child(offsets).children(validity)
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryViewArray, StringViewArray, UInt64Array};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::DType;
    use crate::encodings::shared::conformance;
    use crate::limits::Limits;

    fn tree(offsets: &[u16], bytes: &[u8]) -> Tree {
        Tree::new(ID)
            .message(&Metadata { offsets_ptype: PType::U16 as i32 })
            .child(Tree::primitive(offsets))
            .buffer(Buffer::from(bytes))
    }

    #[test]
    fn conforms() {
        let words: Vec<String> = (0..60).map(|at| "ae%longer ü".repeat(at % 4)).collect();
        let mut offsets = vec![0u16];
        let mut bytes = Vec::new();
        for word in &words {
            bytes.extend(word.as_bytes());
            offsets.push(u16::try_from(bytes.len()).unwrap());
        }
        let expected: ArrayRef = Arc::new(StringViewArray::from_iter_values(&words));
        conformance::check(&tree(&offsets, &bytes).load(&DType::Utf8(false), 60).unwrap(), &expected);

        let valid: Vec<bool> = (0..60).map(|at| at % 7 != 3).collect();
        let nullable = tree(&offsets, &bytes).child(Tree::bools(&valid));
        let rows = words.iter().zip(&valid).map(|(word, valid)| valid.then_some(word.as_bytes()));
        let expected: ArrayRef = Arc::new(rows.collect::<BinaryViewArray>());
        conformance::check(&nullable.load(&DType::Binary(true), 60).unwrap(), &expected);
    }

    #[test]
    fn head_and_tail_of_the_bytes_may_be_unused() {
        let array = tree(&[2, 4, 4, 5], b"\xFF\xFFabc\xFF").load(&DType::Utf8(false), 3).unwrap();
        let expected: ArrayRef = Arc::new(StringViewArray::from(vec!["ab", "", "c"]));
        conformance::check(&array, &expected);
    }

    #[test]
    fn bytes_under_nulls_need_not_be_text() {
        let tree = tree(&[0, 1, 3, 4], b"a\xFF\xFEb").child(Tree::bools(&[true, false, true]));
        let expected: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None, Some("b")]));
        conformance::check(&tree.load(&DType::Utf8(true), 3).unwrap(), &expected);
    }

    #[test]
    fn offsets_that_fall_or_reach_too_far_are_corrupt() {
        let decode = |offsets: &[u16], bytes: &[u8], dtype: DType| {
            let array = tree(offsets, bytes).load(&dtype, offsets.len() - 1)?;
            array.decode(&DataType::Utf8View)
        };
        assert!(decode(&[0, 2, 1], b"abc", DType::Utf8(false)).is_err());
        assert!(decode(&[0, 2, 4], b"abc", DType::Utf8(false)).is_err());
        assert!(decode(&[0, 1, 2], "ü".as_bytes(), DType::Utf8(false)).is_err());
        assert!(decode(&[0, 1, 2], b"ab", DType::Bool(false)).is_err());
        assert!(decode(&[0, 1, 2], b"ab", DType::Utf8(false)).is_ok());
        assert!(tree(&[0, 1], b"a").load(&DType::Utf8(false), usize::MAX).is_err());
    }

    #[test]
    fn limits_of_the_file_apply_to_copies_of_decoded_rows() {
        let limits = Limits::new().with_max_decoded_bytes(100);
        let array = tree(&[0, 1, 2], b"ab").load_within(&DType::Utf8(false), 2, &limits).unwrap();
        let taken = |times: usize| array.take(&UInt64Array::from(vec![1; times]));
        assert_eq!(taken(6).unwrap().len(), 6);
        assert!(taken(7).is_err(), "views take 16 bytes each");
    }
}
