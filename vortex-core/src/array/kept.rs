//! What is kept of a file while it is open, to read other rows without fetching the same bytes again: nodes that are
//! loaded as a whole, since they are small, or tell where individual rows are.

use std::sync::Arc;

use arrow::array::{Array as _, MutableArrayData, make_array};
use arrow::buffer::{Buffer, NullBuffer};

use super::parts::{Buffers, Context, Taken};
use super::rows::{TreeRows, all};
use super::{ArrayRef, Decoded, EncodedRef, Node};
use crate::Result;
use crate::budget::{Budget, Reservation};
use crate::wire::RawNode;

/// Maximum number of bytes of a single array.
const MAX_BYTES: usize = 1 << 20;

/// Integers that take more than this many times their encoded bytes are not kept decoded.
pub(super) const MAX_EXPANSION: usize = 8;

/// Nodes whose buffers have fewer bytes in total are kept as they are stored.
const SMALL: usize = 2 << 10;

/// Bytes that anything kept takes besides its own, and each of its buffers.
pub(super) const OVERHEAD: usize = 512;
pub(super) const BUFFER_OVERHEAD: usize = 192;

/// What a node of a tree keeps.
#[derive(Debug)]
pub(crate) struct Kept {
    what: What,
    _memory: Reservation,
}

#[derive(Debug)]
enum What {
    /// Decoded integers, which mostly tell where rows are. They can be searched without examining all of them.
    Integers(EncodedRef),
    /// The buffers of a node and its descendants. The array may have any number of rows, and cache any number of
    /// bytes, so that it is loaded again.
    Buffers(Taken),
}

/// What to keep of a node.
#[derive(Clone, Copy)]
enum Keep {
    Nothing,
    /// The buffers of the node and its descendants.
    AsStored,
    /// Integers that take so many bytes. They are probably not encoded if as many bytes are stored.
    Decoded {
        byte_len: usize,
        are_encoded: bool,
    },
}

impl Node<'_> {
    /// Creates the array of all rows from pieces, unless it is kept, and keeps it if it is small.
    pub(super) fn load_from_pieces(&self) -> Result<EncodedRef> {
        let Buffers::Pieces(tree) = self.context.buffers else {
            return self.load();
        };
        match self.raw.kept.get().map(|kept| &kept.what) {
            Some(What::Integers(found)) if found.len() == self.len && found.dtype() == self.dtype => {
                return Ok(Arc::clone(found));
            }
            Some(What::Buffers(taken)) => return self.load_taken(taken),
            _ => {}
        }
        let keep = if tree.kept.is_some() { self.what_to_keep() } else { Keep::Nothing };
        // Rows that are handed out may share buffers, and should not keep whole pieces in memory; neither should what
        // is kept.
        let are_copied = match keep {
            Keep::AsStored | Keep::Decoded { are_encoded: false, .. } => true,
            _ => self.depth == 0 || self.dtype.as_ptype().is_none(),
        };
        let mut taken = Taken::new();
        self.take_buffers(self.raw, tree, are_copied, &mut taken)?;
        let array = self.load_taken(&taken)?;
        match tree.kept {
            Some(budget) => self.keep(keep, budget, array, taken),
            None => Ok(array),
        }
    }

    fn what_to_keep(&self) -> Keep {
        let stored = self.byte_len(self.raw, usize::MAX);
        let most = MAX_BYTES.min(stored.saturating_mul(MAX_EXPANSION));
        match self.dtype.as_ptype().map(|ptype| self.len.saturating_mul(ptype.byte_width())) {
            Some(byte_len) if byte_len <= most => Keep::Decoded { byte_len, are_encoded: byte_len != stored },
            _ if stored < SMALL => Keep::AsStored,
            _ => Keep::Nothing,
        }
    }

    /// Keeps an array that was loaded from buffers, if there is memory for it, and returns what is kept.
    fn keep(&self, keep: Keep, budget: &Arc<Budget>, array: EncodedRef, taken: Taken) -> Result<EncodedRef> {
        let own_bytes = match keep {
            Keep::Nothing => return Ok(array),
            Keep::AsStored => taken.values().map(|bytes| bytes.len() + BUFFER_OVERHEAD).sum(),
            Keep::Decoded { byte_len, .. } => byte_len + self.len / 8,
        };
        let bytes = own_bytes + OVERHEAD;
        let Some(memory) = budget.take(bytes as u64) else { return Ok(array) };
        let (what, array) = if let Keep::Decoded { are_encoded, .. } = keep {
            let integers = array.decode_preferred()?;
            let is_larger = integers.get_array_memory_size() > bytes;
            let is_shared = are_encoded && shares(&integers, &taken);
            let integers = if is_larger || is_shared { copied(&integers)? } else { integers };
            let integers = Decoded::new(self.dtype.clone(), integers, self.limits());
            let array: EncodedRef = Arc::new(integers);
            (What::Integers(Arc::clone(&array)), array)
        } else {
            (What::Buffers(taken), array)
        };
        // Another task may have been faster; then these bytes no longer count.
        let _ = self.raw.kept.set(Arc::new(Kept { what, _memory: memory }));
        Ok(array)
    }

    /// Creates the array of all rows from the buffers of the node and its descendants.
    fn load_taken(&self, taken: &Taken) -> Result<EncodedRef> {
        let nodes_left = self.context.nodes_left.clone();
        let context = Context { buffers: Buffers::Taken(taken), nodes_left, ..*self.context };
        let array = Node { context: &context, ..*self }.load();
        self.context.nodes_left.set(context.nodes_left.get());
        array
    }

    /// Total bytes of the buffers of a node and its descendants; may stop counting at `most`.
    pub(super) fn byte_len(&self, raw: &RawNode, most: usize) -> usize {
        let lens = raw.buffers.iter().filter_map(|at| self.context.buffers.len_of(*at));
        let own = lens.fold(0, usize::saturating_add);
        raw.children.iter().fold(own, |sum, child| {
            if sum < most { sum.saturating_add(self.byte_len(child, most - sum)) } else { sum }
        })
    }

    /// Takes the buffers of a node and its descendants, each once, even if several of them share it.
    fn take_buffers(
        &self,
        raw: &RawNode,
        tree: &TreeRows<'_>,
        are_copied: bool,
        taken: &mut Taken,
    ) -> Result<()> {
        let own = all(raw.buffers.iter().map(|at| {
            let Some(place) = tree.place(*at).filter(|_| !taken.contains_key(at)) else {
                return Ok(());
            };
            self.limits().count_bytes(place.end - place.start)?;
            let bytes = if are_copied {
                tree.pieces.with(place, |bytes| Buffer::from(bytes))?
            } else {
                tree.pieces.get(place)?
            };
            taken.insert(*at, bytes);
            Ok(())
        }));
        let children = raw.children.iter().map(|child| self.take_buffers(child, tree, are_copied, taken));
        all([own, all(children)].into_iter())
    }
}

/// Whether an array shares any of the buffers that were taken.
fn shares(array: &ArrayRef, taken: &Taken) -> bool {
    let data = array.to_data();
    let nulls = data.nulls().map(NullBuffer::buffer);
    let is_taken =
        |buffer: &Buffer| taken.values().any(|taken| taken.as_ptr_range().contains(&buffer.as_ptr()));
    data.buffers().iter().chain(nulls).any(is_taken)
}

/// The same array in buffers of its own, which are as long as it needs.
fn copied(array: &ArrayRef) -> Result<ArrayRef> {
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, array.len());
    copy.try_extend(0, 0, array.len())?;
    Ok(make_array(copy.freeze()))
}

#[cfg(test)]
mod tests {
    use arrow::array::UInt32Array;
    use arrow::buffer::BooleanBuffer;

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::{DType, PType};

    /// Runs whose ends are values of a dictionary, with these codes.
    fn runs(codes: &[u8]) -> Tree {
        let ends = Tree::new("vortex.dict").metadata(vec![0x08, 3]);
        let ends = ends.child(Tree::primitive(codes)).child(Tree::primitive(&[100u32, 200, 300]));
        // Protobuf: 1 the integer type of the ends, which is u32, 2 the number of runs.
        Tree::new("vortex.runend")
            .metadata(vec![0x08, 2, 0x10, 3])
            .child(ends)
            .child(Tree::primitive(&[1i32, 2, 3]))
    }

    #[test]
    fn arrays_that_are_kept_share_no_pieces() {
        let piece = Buffer::from(vec![0u32, 1, 2, 3]);
        let array: ArrayRef = Arc::new(UInt32Array::new(piece.slice(4).into(), None));
        let taken = Taken::from([(7, piece)]);
        let copy = copied(&array).unwrap();
        assert_eq!(&copy, &array);
        assert!(shares(&array, &taken) && !shares(&copy, &taken));
        assert!(!shares(&array, &Taken::from([(7, Buffer::from(vec![1u32, 2, 3]))])));
    }

    #[test]
    fn arrays_that_are_kept_hold_no_more_than_is_counted() {
        let bits = BooleanBuffer::new(Buffer::from(vec![0xff; 1 << 20]), 0, 3);
        let array: ArrayRef = Arc::new(UInt32Array::new(vec![1, 2, 3].into(), Some(NullBuffer::new(bits))));
        assert!(array.get_array_memory_size() > 1 << 20);
        let copy = copied(&array).unwrap();
        assert_eq!(&copy, &array);
        assert!(copy.get_array_memory_size() < OVERHEAD);
    }

    #[test]
    fn arrays_count_as_long_as_their_tree_is_kept() {
        // Loading also reads single rows, and checks that no more is kept than was read, but for decoded integers, and
        // that nothing counts once the tree is dropped. These runs take fewer bytes than their rows.
        let array = runs(&[0, 1, 2]).load(&DType::Primitive(PType::I32, false), 300).unwrap();
        assert_eq!(array.len(), 300);
    }

    #[test]
    fn arrays_that_cannot_be_decoded_do_not_count() {
        let array = runs(&[0, 1, 9]).load(&DType::Primitive(PType::I32, false), 300).unwrap();
        assert!(array.decode(&arrow::datatypes::DataType::Int32).is_err());
    }
}
