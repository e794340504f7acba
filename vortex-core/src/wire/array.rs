//! Array trees.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::generated::array::array as fb;
use super::{broken, verifier};
use crate::array::Kept;
use crate::limits::Limits;
use crate::{Error, Result};

/// Maximum alignment that a buffer may request, as an exponent of two.
const MAX_ALIGNMENT_EXPONENT: u8 = 16;

/// Bytes that a node takes at least if it has one parent: a table, and its place in that of the parent.
const MIN_NODE_BYTES: usize = 8;

/// Number of bytes of the length of the tree, at the end of a blob.
pub(crate) const TREE_LEN: usize = 4;

/// The description of an array blob: the tree of nodes, and the positions of the buffers they share.
#[derive(Debug)]
pub(crate) struct ArrayTree {
    pub(crate) root: RawNode,
    /// Ranges of bytes in the blob, in order.
    pub(crate) buffers: Vec<Range<usize>>,
}

/// A node as stored, without dtype and length.
#[derive(Debug, Clone, Default)]
pub(crate) struct RawNode {
    pub(crate) encoding: u16,
    pub(crate) metadata: Bytes,
    pub(crate) children: Vec<RawNode>,
    pub(crate) buffers: Vec<u16>,
    /// Which node of its tree this is.
    pub(crate) number: u32,
    /// What is kept of it for readers that repeatedly read a few rows.
    pub(crate) kept: OnceLock<Arc<Kept>>,
}

impl ArrayTree {
    /// Parses the end of `[pad][buffer]... [pad][flatbuffer][u32 length]`.
    pub(crate) fn parse(blob: &[u8], limits: &Limits) -> Result<Self> {
        let tree = Self::place(blob, blob.len())?;
        Self::parse_tree(&blob[tree.clone()], tree.start, limits)
    }

    /// The range of the tree in a blob of `blob_len` bytes, read from its last bytes.
    pub(crate) fn place(tail: &[u8], blob_len: usize) -> Result<Range<usize>> {
        let (_, tree_len) = tail
            .split_last_chunk::<TREE_LEN>()
            .ok_or_else(|| Error::corrupt(format!("array of {blob_len} bytes lacks its length")))?;
        let (tree_len, end) = (u32::from_le_bytes(*tree_len) as usize, blob_len.saturating_sub(TREE_LEN));
        let start = end.checked_sub(tree_len).ok_or_else(|| {
            Error::corrupt(format!("array tree of {tree_len} bytes in a segment of {blob_len}"))
        })?;
        Ok(start..end)
    }

    /// Parses only the tree; the buffers it describes are before `tree_start`.
    pub(crate) fn parse_tree(tree: &[u8], tree_start: usize, limits: &Limits) -> Result<Self> {
        // The nodes share this copy. It need not be aligned any more than those of `aligned` are.
        let tree = Bytes::copy_from_slice(tree);
        let array = parsed(&tree, limits)?;

        let mut buffers = Vec::new();
        let mut at = 0usize;
        for descriptor in array.buffers().unwrap_or_default() {
            if descriptor.compression() != fb::Compression::None {
                return Err(Error::unsupported("buffer compression", descriptor.compression().0));
            }
            if descriptor.alignment_exponent() > MAX_ALIGNMENT_EXPONENT {
                return Err(Error::corrupt(format!(
                    "buffer alignment 2^{}",
                    descriptor.alignment_exponent()
                )));
            }
            // Both are small enough for the sum not to overflow.
            let start = at + usize::from(descriptor.padding());
            let end = start + descriptor.length() as usize;
            if end > tree_start {
                return Err(Error::corrupt(format!("buffer ends at {end} of {tree_start} bytes")));
            }
            buffers.push(start..end);
            at = end;
        }

        let mut root = RawNode::root(array, &tree, limits)?;
        root.number(&mut 0);
        // Writers give each node buffers of its own. Where nodes share some, each of them may read them all, which
        // takes as long as if they did not.
        let (read, held) =
            (root.read_bytes(&buffers), buffers.iter().map(|buffer| buffer.len() as u64).sum());
        if read.saturating_sub(held) > limits.max_decoded_bytes {
            return Err(Error::limit(format!(
                "the nodes of an array tree refer to {read} bytes, which are only {held}: the others exceed \
                 `max_decoded_bytes`"
            )));
        }
        Ok(Self { root, buffers })
    }
}

fn parsed<'a>(tree: &'a [u8], limits: &Limits) -> Result<fb::Array<'a>> {
    flatbuffers::root_with_opts::<fb::Array<'_>>(&verifier(limits, tree.len()), tree)
        .map_err(broken("array tree"))
}

/// Number of nodes that a tree may have: as of layouts, at most as many as its bytes hold if each has one parent.
fn most_nodes(tree: &[u8], limits: &Limits) -> u32 {
    u32::try_from(tree.len() / MIN_NODE_BYTES).unwrap_or(u32::MAX).min(limits.max_nodes)
}

impl RawNode {
    /// The encoding numbers in a tree, without the buffers it describes: the nodes from the root down,
    /// each with its depth.
    pub(crate) fn encodings(tree: &[u8], limits: &Limits) -> Result<Vec<(usize, u16)>> {
        let mut out = Vec::new();
        let tree = Bytes::copy_from_slice(tree);
        Self::root(parsed(&tree, limits)?, &tree, limits)?.walk(0, &mut out);
        Ok(out)
    }

    fn walk(&self, depth: usize, out: &mut Vec<(usize, u16)>) {
        out.push((depth, self.encoding));
        self.children.iter().for_each(|child| child.walk(depth + 1, out));
    }

    fn root(array: fb::Array<'_>, tree: &Bytes, limits: &Limits) -> Result<Self> {
        let node = array.root().ok_or_else(|| Error::corrupt("array tree without root"))?;
        Self::read(node, tree, limits.max_depth, &mut most_nodes(tree, limits))
    }

    // Flatbuffers may share one table between many parents, so nodes are counted as they are visited.
    fn read(node: fb::ArrayNode<'_>, tree: &Bytes, depth_left: u32, nodes_left: &mut u32) -> Result<Self> {
        if depth_left == 0 || *nodes_left == 0 {
            return Err(Error::limit(
                "array tree has too many or too deep nodes for `max_nodes` and `max_depth`",
            ));
        }
        *nodes_left -= 1;
        let children = node
            .children()
            .unwrap_or_default()
            .iter()
            .map(|child| Self::read(child, tree, depth_left - 1, nodes_left))
            .collect::<Result<_>>()?;
        Ok(Self {
            encoding: node.encoding(),
            // Nodes may share metadata, too.
            metadata: tree.slice_ref(node.metadata().map(|bytes| bytes.bytes()).unwrap_or_default()),
            children,
            buffers: node.buffers().map(|buffers| buffers.iter().collect()).unwrap_or_default(),
            number: 0,
            kept: OnceLock::new(),
        })
    }

    /// Bytes of the buffers that a node and its descendants refer to, counted each time.
    fn read_bytes(&self, buffers: &[Range<usize>]) -> u64 {
        let own = self.buffers.iter().filter_map(|at| Some(buffers.get(usize::from(*at))?.len() as u64));
        let children = self.children.iter().map(|child| child.read_bytes(buffers));
        own.chain(children).fold(0, u64::saturating_add)
    }

    /// Numbers a node and its descendants.
    pub(crate) fn number(&mut self, next: &mut u32) {
        self.number = *next;
        *next += 1;
        self.children.iter_mut().for_each(|child| child.number(next));
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::*;

    /// A tree of `levels` levels of nodes, each of which is the child of its parent `times` times.
    fn shared(times: usize, levels: usize) -> Vec<u8> {
        let mut b = FlatBufferBuilder::new();
        let mut node = fb::ArrayNode::create(&mut b, &fb::ArrayNodeArgs::default());
        for _ in 1..levels {
            let children = Some(b.create_vector(&vec![node; times]));
            node = fb::ArrayNode::create(&mut b, &fb::ArrayNodeArgs { children, ..Default::default() });
        }
        let root = fb::Array::create(&mut b, &fb::ArrayArgs { root: Some(node), ..Default::default() });
        b.finish_minimal(root);
        b.finished_data().to_vec()
    }

    /// A tree of two buffers, and `times` nodes that refer to both of them.
    fn of_shared_buffers(times: usize) -> Vec<u8> {
        let mut b = FlatBufferBuilder::new();
        let buffers = [fb::Buffer::new(0, 0, fb::Compression::None, 1000); 2];
        let buffers = Some(b.create_vector(&buffers));
        let places = Some(b.create_vector(&[0u16, 1]));
        let node =
            fb::ArrayNode::create(&mut b, &fb::ArrayNodeArgs { buffers: places, ..Default::default() });
        let children = Some(b.create_vector(&vec![node; times]));
        let root = fb::ArrayNode::create(&mut b, &fb::ArrayNodeArgs { children, ..Default::default() });
        let root = fb::Array::create(&mut b, &fb::ArrayArgs { root: Some(root), buffers });
        b.finish_minimal(root);
        b.finished_data().to_vec()
    }

    #[test]
    fn bytes_that_many_nodes_share_count_for_each() {
        let limits = Limits::new().with_max_decoded_bytes(4000);
        let parse = |times| ArrayTree::parse_tree(&of_shared_buffers(times), 2000, &limits);
        assert_eq!(parse(3).unwrap().buffers, [0..1000, 1000..2000]);
        let error = parse(4).unwrap_err();
        assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
    }

    #[test]
    fn nodes_that_share_metadata_hold_it_once() {
        let mut b = FlatBufferBuilder::new();
        let metadata = Some(b.create_vector(&[7u8; 1000]));
        let node = fb::ArrayNode::create(&mut b, &fb::ArrayNodeArgs { metadata, ..Default::default() });
        let children = Some(b.create_vector(&[node; 3]));
        let root = fb::ArrayNode::create(&mut b, &fb::ArrayNodeArgs { children, ..Default::default() });
        let root = fb::Array::create(&mut b, &fb::ArrayArgs { root: Some(root), ..Default::default() });
        b.finish_minimal(root);
        let tree = ArrayTree::parse_tree(b.finished_data(), 0, &Limits::default()).unwrap();
        let [first, .., last] = tree.root.children.as_slice() else { panic!() };
        assert_eq!(first.metadata, [7u8; 1000].as_slice());
        assert_eq!(first.metadata.as_ptr(), last.metadata.as_ptr());
    }

    #[test]
    fn nodes_are_limited_by_the_bytes_that_describe_them() {
        let parse = |tree: &[u8]| ArrayTree::parse_tree(tree, 0, &Limits::default());
        assert_eq!(parse(&shared(2, 3)).unwrap().root.children[1].children.len(), 2);
        for many in [shared(100_000, 2), shared(10, 5), shared(2, 40)] {
            let error = parse(&many).unwrap_err();
            assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
        }
    }
}
