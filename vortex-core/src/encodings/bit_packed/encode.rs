//! Packing a column: blocks of one width, and patches for wider values.

use arrow::buffer::{Buffer, NullBuffer};

use super::{ID, Metadata};
use crate::encodings::primitive;
use crate::encodings::shared::patches::EncodedPatches;
use crate::kernels::Word;
use crate::kernels::pack::pack;
use crate::wire::WriteNode;

/// A node of the wrapping differences from `reference`, in `width` bits each. Null rows are not patched.
pub(crate) fn encode<W: Word>(
    values: &[W],
    reference: W,
    width: usize,
    nulls: Option<&NullBuffer>,
    validity: Option<WriteNode>,
) -> WriteNode {
    let mut packed = pack(values, reference, width);
    if let Some(nulls) = nulls {
        packed.exceptions.retain(|row| nulls.is_valid(*row as usize));
    }
    let patches = (!packed.exceptions.is_empty()).then(|| {
        let values = packed.exceptions.iter().map(|row| values[*row as usize].minus(reference));
        EncodedPatches::new(&packed.exceptions, primitive::encode(values.collect::<Vec<_>>(), None))
    });
    let message = patches.as_ref().map(|patches| patches.message.clone());
    // Widths are at most 64.
    let metadata = Metadata { bit_width: width as u32, offset: 0, patches: message };
    let node = WriteNode::new(ID).message(&metadata);
    let node = node.buffer(Buffer::from_vec(packed.words), size_of::<W>());
    node.children(patches.into_iter().flat_map(|patches| [patches.indices, patches.values]))
        .children(validity)
}
