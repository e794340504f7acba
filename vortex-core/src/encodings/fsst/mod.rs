//! FSST: strings as one-byte codes for frequent substrings of up to eight bytes.
//!
//! ```text
//! symbols   0: "http://"   1: "www."   2: "com"
//! codes     0 1 255 'x' 255 '.' 2      = http://www.x.com
//! ```
//!
//! Metadata: integer types of lengths and offsets. Buffers: symbols (8 bytes each), their lengths, the
//! codes of all rows. Children: decoded `lengths`, `codes_offsets` (one more than rows, may start above
//! 0), optionally the validity. Older writers store codes, offsets and validity in a `vortex.varbin`
//! child before the lengths; then there are only two buffers.
//!
//! Slicing slices the children. Decoding decodes all codes between the first and the last offset at once
//! and splits the bytes by lengths. Filter and take gather codes, for which they decode only the offsets of
//! the wanted rows if these are few. Comparisons and LIKE are evaluated on codes.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use fsst::Compressor;

use super::Encoding;
use super::shared::coded_text::{self, CodedRows, CodedTextArray, Codes, OFFSETS, TextParts};
use super::shared::offsets::{Places, ends};
use super::varbin::{self, VarBinArray};
use crate::Result;
use crate::array::{EncodedRef, Node, bytes, integer_type, integers_child, one_more};
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::kernels::automaton::Automaton;
use crate::kernels::fsst::SymbolTable;
use crate::kernels::joined::{Follow, Joined};
use crate::kernels::needle::{Against, Needle};
use crate::limits::Limits;
use crate::wire::WriteNode;

/// The `vortex.fsst` encoding.
#[derive(Debug)]
pub(in crate::encodings) struct Fsst;

const ID: &str = "vortex.fsst";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    lengths_ptype: i32,
    #[prost(int32, tag = "2")]
    offsets_ptype: i32,
}

impl Encoding for Fsst {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        bytes::is_text(node.dtype())?;
        let metadata = node.message::<Metadata>()?;
        let lengths_dtype = integer_type(metadata.lengths_ptype, "lengths")?;
        let (codes, offsets, lengths, validity) = if node.buffer_count() == 2 {
            node.expect_children(2)?;
            let dtype = DType::Binary(node.dtype().is_nullable());
            let codes = VarBinArray::load(&node.child_of(0, varbin::ID, &dtype, node.len())?)?;
            (codes.bytes, codes.offsets, node.child(1, &lengths_dtype, node.len())?, codes.validity)
        } else {
            node.expect_buffers(3)?;
            (
                node.buffer(2)?,
                node.child(1, &integer_type(metadata.offsets_ptype, OFFSETS)?, one_more(node.len())?)?,
                node.child(0, &lengths_dtype, node.len())?,
                node.validity_child(2)?,
            )
        };
        node.limits().count::<SymbolTable>(1)?;
        let table = Arc::new(SymbolTable::try_new(&node.buffer(0)?, &node.buffer(1)?)?);
        Ok(Arc::new(CodedTextArray {
            header: node.header(ID),
            codes: SymbolCodes { table, codes },
            offsets,
            lengths,
            validity,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        if node.buffer_count() == 2 {
            return node.take(rows);
        }
        bytes::is_text(node.dtype())?;
        let metadata = node.message::<Metadata>()?;
        node.expect_buffers(3)?;
        let picked = node.of_rows(rows);
        let offsets = integer_type(metadata.offsets_ptype, OFFSETS)?;
        // No `?` before all are loaded: see `load_rows`.
        let ranges = node.ranges(1, &offsets, node.len(), rows, node.buffer_len(2)?);
        let validity = picked.validity_child(2);
        let symbols = (node.buffer(0), node.buffer(1));
        let ranges = ranges?;
        let codes = node.gather(2, ranges.iter().cloned())?;
        node.limits().count::<SymbolTable>(1)?;
        let table = SymbolTable::try_new(&symbols.0?, &symbols.1?)?;
        let offsets = ends(&ranges);
        let lengths =
            coded_text::lengths_of(&codes, &offsets, |codes| table.decoded_len(codes), node.limits())?;
        Ok(Arc::new(CodedTextArray {
            header: picked.header(ID),
            codes: SymbolCodes { table: Arc::new(table), codes },
            offsets: integers_child(offsets, node.limits()),
            lengths,
            validity: validity?,
        }))
    }
}

/// The codes of many rows.
#[derive(Debug, Clone)]
struct SymbolCodes {
    table: Arc<SymbolTable>,
    codes: Buffer,
}

impl Codes for SymbolCodes {
    const MAX_BYTES_PER_CODE: usize = 8;

    type Window<'a> = (&'a SymbolTable, &'a [u8]);

    fn len(&self) -> usize {
        self.codes.len()
    }

    fn children<'a>(
        &'a self,
        offsets: &'a EncodedRef,
        lengths: &'a EncodedRef,
    ) -> Vec<(&'static str, &'a EncodedRef)> {
        vec![("lengths", lengths), ("codes_offsets", offsets)]
    }

    fn buffer_bytes(&self) -> usize {
        self.codes.len()
    }

    fn window(&self, places: Range<usize>, _limits: &Limits) -> Result<Self::Window<'_>> {
        Ok((&self.table, &self.codes[places]))
    }

    fn gather(&self, places: &Places, limits: &Limits) -> Result<(Self, Vec<u64>)> {
        let (codes, ends) = places.gather(self.codes.as_slice(), 0, limits)?;
        Ok((Self { table: Arc::clone(&self.table), codes: codes.into() }, ends))
    }

    fn decode((table, codes): &Self::Window<'_>, len: usize, follow: &mut dyn Follow) -> Option<Joined> {
        table.decode(codes, len, follow)
    }

    fn matches(
        (table, codes): &Self::Window<'_>,
        offsets: &[usize],
        among: Option<&BooleanBuffer>,
        nulls: Option<NullBuffer>,
        predicate: &Predicate,
    ) -> Option<BooleanArray> {
        coded_text::matches(&Rows { table, codes, offsets }, among, nulls, predicate)
    }
}

struct Rows<'a> {
    table: &'a SymbolTable,
    codes: &'a [u8],
    offsets: &'a [usize],
}

impl Rows<'_> {
    fn codes(&self, row: usize) -> &[u8] {
        &self.codes[self.offsets[row]..self.offsets[row + 1]]
    }
}

impl CodedRows for Rows<'_> {
    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn against(&self, row: usize, needle: &Needle) -> Against {
        self.table.against(self.codes(row), needle)
    }

    fn accepted(&self, automaton: &Automaton, among: Option<&BooleanBuffer>) -> Option<BooleanBuffer> {
        self.table.accepted(self.codes, self.offsets, automaton, among)
    }
}

/// A node of coded rows: symbols of eight bytes each, the concatenated codes, and the integers that tell
/// where rows start and how long they are.
pub(crate) fn encode(table: &Compressor, codes: Vec<u8>, parts: TextParts) -> WriteNode {
    let (lengths_ptype, offsets_ptype) = (parts.lengths.0 as i32, parts.offsets.0 as i32);
    with_symbols(table)
        .buffer(exact(codes), 1)
        .message(&Metadata { lengths_ptype, offsets_ptype })
        .child(parts.lengths.1)
        .child(parts.offsets.1)
        .children(parts.validity)
}

/// As [`encode`], for releases that require the codes as byte strings in a child.
pub(crate) fn encode_legacy(table: &Compressor, codes: Vec<u8>, parts: TextParts) -> WriteNode {
    let TextParts { lengths, offsets, validity } = parts;
    let codes = varbin::encode(exact(codes), offsets.0, offsets.1, validity);
    with_symbols(table)
        .message(&Metadata { lengths_ptype: lengths.0 as i32, offsets_ptype: 0 })
        .child(codes)
        .child(lengths.1)
}

/// A node with the symbols and their lengths, without codes.
fn with_symbols(table: &Compressor) -> WriteNode {
    let symbols: Vec<u64> = table.symbol_table().iter().map(|symbol| symbol.to_u64().to_le()).collect();
    WriteNode::new(ID)
        .buffer(Buffer::from_vec(symbols), 8)
        .buffer(Buffer::from_slice_ref(table.symbol_lengths()), 1)
}

/// The compressor reserves twice as much memory as the strings take.
fn exact(mut codes: Vec<u8>) -> Buffer {
    codes.shrink_to_fit();
    codes.into()
}

#[cfg(test)]
mod tests;
