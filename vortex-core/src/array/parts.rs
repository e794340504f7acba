//! A serialized array tree: its nodes, its buffers, and what loading it may take.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;

use super::rows::TreeRows;
use super::{EncodedRef, Node};
use crate::Registry;
use crate::Result;
use crate::dtype::DType;
use crate::limits::{Limits, Work};
use crate::wire::{ArrayTree, RawNode};

/// A parsed array blob that lacks only its type and length: the content of a flat segment.
///
/// The dtype and the row count are not part of the bytes; they are given by the layout.
#[derive(Debug, Clone)]
pub struct ArrayParts {
    root: Arc<RawNode>,
    buffers: Arc<[Buffer]>,
    ids: Arc<[Arc<str>]>,
}

impl ArrayParts {
    /// Parses an array blob; `ids` is the table that its nodes' encoding numbers refer to.
    ///
    /// # Errors
    /// If the bytes are not an array blob.
    pub fn parse(blob: Buffer, ids: Arc<[Arc<str>]>, limits: &Limits) -> Result<Self> {
        let tree = ArrayTree::parse(&blob, limits)?;
        let buffers = tree.buffers.iter().map(|range| blob.slice_with_length(range.start, range.len()));
        Ok(Self::new(tree.root, buffers.collect(), ids))
    }

    /// A tree and the buffers its nodes share.
    pub(crate) fn new(root: RawNode, buffers: Vec<Buffer>, ids: Arc<[Arc<str>]>) -> Self {
        Self { root: Arc::new(root), buffers: buffers.into(), ids }
    }

    /// Creates the array, checking the tree against the dtype and the length.
    ///
    /// # Errors
    /// If they contradict each other, or an encoding is unknown.
    pub fn load(
        &self,
        dtype: &DType,
        len: usize,
        registry: &Registry,
        limits: &Limits,
    ) -> Result<EncodedRef> {
        let _work = Work::begin();
        let context = Context {
            buffers: Buffers::Whole(&self.buffers),
            ids: &self.ids,
            registry,
            limits,
            nodes_left: Cell::new(limits.max_nodes),
        };
        Node::root(&self.root, dtype, len, &context).load()
    }

    /// Ids of all encodings in the tree, pre-order, with the depth of each node.
    pub fn encodings(&self) -> Vec<(usize, String)> {
        fn walk(node: &RawNode, depth: usize, parts: &ArrayParts, out: &mut Vec<(usize, String)>) {
            let id = parts.ids.get(usize::from(node.encoding));
            out.push((depth, id.map_or_else(|| format!("#{}", node.encoding), ToString::to_string)));
            for child in &node.children {
                walk(child, depth + 1, parts, out);
            }
        }
        let mut out = Vec::new();
        walk(&self.root, 0, self, &mut out);
        out
    }
}

/// Data shared by all nodes of one tree.
pub(super) struct Context<'a> {
    pub(super) buffers: Buffers<'a>,
    pub(super) ids: &'a [Arc<str>],
    pub(super) registry: &'a Registry,
    pub(super) limits: &'a Limits,
    /// Nodes that may still be loaded: a file can refer to the same bytes any number of times.
    pub(super) nodes_left: Cell<u32>,
}

/// Some of a tree's buffers, by their position in the tree.
pub(super) type Taken = BTreeMap<u16, Buffer>;

/// The location of the bytes of a tree's buffers.
#[derive(Clone, Copy)]
pub(super) enum Buffers<'a> {
    /// All are available.
    Whole(&'a [Buffer]),
    /// Those of the nodes to load are available.
    Taken(&'a Taken),
    /// In a file of which some pieces are available.
    Pieces(&'a TreeRows<'a>),
}

impl Buffers<'_> {
    /// The buffer at a position of the tree; `None` if there is none.
    ///
    /// # Errors
    /// If its bytes are not available.
    pub(super) fn get(&self, at: u16) -> Result<Option<Buffer>> {
        Ok(match self {
            Self::Whole(buffers) => buffers.get(usize::from(at)).cloned(),
            Self::Taken(taken) => taken.get(&at).cloned(),
            Self::Pieces(rows) => rows.place(at).map(|place| rows.pieces.get(place)).transpose()?,
        })
    }

    /// The number of different ones.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Whole(buffers) => buffers.len(),
            Self::Taken(taken) => taken.len(),
            Self::Pieces(rows) => rows.tree.buffers.len(),
        }
    }

    /// The length in bytes of the buffer at a position of the tree; `None` if there is none.
    pub(super) fn len_of(&self, at: u16) -> Option<usize> {
        match self {
            Self::Whole(buffers) => buffers.get(usize::from(at)).map(Buffer::len),
            Self::Taken(taken) => taken.get(&at).map(Buffer::len),
            Self::Pieces(rows) => rows.tree.buffers.get(usize::from(at)).map(Range::len),
        }
    }
}
