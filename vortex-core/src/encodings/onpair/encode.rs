//! Writing tokens and codes.

use super::{ID, Metadata};
use crate::dtype::PType;
use crate::encodings::shared::coded_text::TextParts;
use crate::wire::WriteNode;

/// Encoded tokens, to be written.
pub(crate) struct EncodedTokens {
    /// The bytes of all tokens, in ascending order, followed by the padding that readers require.
    pub(crate) bytes: Vec<u8>,
    /// The start of each token, and the end of the last one.
    pub(crate) offsets: (PType, WriteNode),
    /// Number of tokens.
    pub(crate) count: u32,
}

/// A node of rows as codes of tokens, with `code_count` codes in total.
pub(crate) fn encode(
    tokens: EncodedTokens,
    codes: (PType, WriteNode),
    code_count: usize,
    parts: TextParts,
) -> WriteNode {
    let metadata = Metadata {
        lengths_ptype: parts.lengths.0 as i32,
        token_count: tokens.count,
        code_count: code_count as u64,
        dict_offsets_ptype: tokens.offsets.0 as i32,
        codes_ptype: codes.0 as i32,
        codes_offsets_ptype: parts.offsets.0 as i32,
    };
    let node = WriteNode::new(ID).message(&metadata).buffer(tokens.bytes.into(), 8);
    let node = node.child(tokens.offsets.1).child(codes.1).child(parts.offsets.1).child(parts.lengths.1);
    node.children(parts.validity)
}
