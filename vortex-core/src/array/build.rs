//! Builds serialized trees by hand, for tests.

use std::sync::Arc;

use arrow::array::Array as _;
use arrow::buffer::Buffer;
use prost::Message;

use super::kept::{BUFFER_OVERHEAD, MAX_EXPANSION, OVERHEAD};
use super::loaded::LoadedRows;
use super::pieces::{Piece, Pieces};
use super::{ArrayParts, EncodedRef, TreeRows, indices};
use crate::Registry;
use crate::Result;
use crate::budget::Budget;
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::limits::Limits;
use crate::wire::{ArrayTree, RawNode};

/// A node to be serialized: id, metadata, buffers, children.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    id: &'static str,
    metadata: Vec<u8>,
    buffers: Vec<Buffer>,
    children: Vec<Tree>,
}

impl Tree {
    pub(crate) fn new(id: &'static str) -> Self {
        Self { id, metadata: Vec::new(), buffers: Vec::new(), children: Vec::new() }
    }

    /// Sets raw metadata.
    pub(crate) fn metadata(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.metadata = bytes.into();
        self
    }

    /// Sets a protobuf message as metadata.
    pub(crate) fn message(self, message: &impl Message) -> Self {
        let bytes = message.encode_to_vec();
        self.metadata(bytes)
    }

    /// Adds a buffer.
    pub(crate) fn buffer(mut self, bytes: impl Into<Buffer>) -> Self {
        self.buffers.push(bytes.into());
        self
    }

    /// Adds a child.
    pub(crate) fn child(mut self, child: Tree) -> Self {
        self.children.push(child);
        self
    }

    /// A `vortex.primitive` node with these values.
    pub(crate) fn primitive<T: arrow::datatypes::ArrowNativeType>(values: &[T]) -> Self {
        Self::new("vortex.primitive").buffer(Buffer::from_slice_ref(values))
    }

    /// A `vortex.bool` node without nulls, as used for validity children.
    pub(crate) fn bools(bits: &[bool]) -> Self {
        Self::new("vortex.bool").buffer(arrow::buffer::BooleanBuffer::from(bits).into_inner())
    }

    /// Loads the tree as `len` rows of `dtype`.
    pub(crate) fn load(&self, dtype: &DType, len: usize) -> Result<EncodedRef> {
        self.load_with(dtype, len, &Registry::built_in())
    }

    /// Loads the tree with encodings other than the built-in ones.
    pub(crate) fn load_with(&self, dtype: &DType, len: usize, registry: &Registry) -> Result<EncodedRef> {
        let mut ids = Vec::new();
        let mut buffers = Vec::new();
        let root = self.raw(&mut ids, &mut buffers);
        let parts = ArrayParts::new(root.clone(), buffers.clone(), ids.clone().into());
        let array = parts.load(dtype, len, registry, &Limits::default())?;
        let rows = array.len().clamp(1, 5);
        for rows in
            [vec![len / 2], (0..rows).map(|at| at * (len / rows)).collect(), vec![0, len - len.min(1)]]
        {
            if rows.windows(2).all(|pair| pair[0] < pair[1]) && rows.last().is_some_and(|row| *row < len) {
                check_rows(root.clone(), &buffers, &ids, registry, &array, &rows);
            }
        }
        Ok(array)
    }

    /// Loads the tree within other limits than the default ones.
    pub(crate) fn load_within(&self, dtype: &DType, len: usize, limits: &Limits) -> Result<EncodedRef> {
        let (mut ids, mut buffers) = (Vec::new(), Vec::new());
        let root = self.raw(&mut ids, &mut buffers);
        ArrayParts::new(root, buffers, ids.into()).load(dtype, len, &Registry::built_in(), limits)
    }

    /// The tree with one bit of its metadata or buffers flipped, or the buffer of one node truncated.
    /// `below`, which returns a number less than its argument, determines the place.
    pub(crate) fn damaged(mut self, below: &mut dyn FnMut(usize) -> usize) -> Self {
        let at = below(self.children.len() + 2);
        if let Some(child) = self.children.get_mut(at) {
            *child = child.clone().damaged(below);
            return self;
        }
        let in_buffer = !self.buffers.is_empty() && (self.metadata.is_empty() || below(2) == 0);
        let bytes = if in_buffer { self.buffers[0].to_vec() } else { self.metadata.clone() };
        let damaged = damage(bytes, below);
        if in_buffer {
            self.buffers[0] = Buffer::from_slice_ref(&damaged);
        } else {
            self.metadata = damaged;
        }
        self
    }

    fn raw(&self, ids: &mut Vec<Arc<str>>, buffers: &mut Vec<Buffer>) -> RawNode {
        let encoding = ids.iter().position(|id| **id == *self.id).unwrap_or_else(|| {
            ids.push(self.id.into());
            ids.len() - 1
        });
        let first = buffers.len();
        buffers.extend(self.buffers.iter().cloned());
        let own = first..buffers.len();
        RawNode {
            encoding: u16::try_from(encoding).unwrap(),
            metadata: self.metadata.clone().into(),
            buffers: own.map(|at| u16::try_from(at).unwrap()).collect(),
            children: self.children.iter().map(|child| child.raw(ids, buffers)).collect(),
            ..RawNode::default()
        }
    }
}

/// Loads some rows from pieces of a blob and compares them with those of the array, if it decodes.
fn check_rows(
    mut root: RawNode,
    buffers: &[Buffer],
    ids: &[Arc<str>],
    registry: &Registry,
    array: &EncodedRef,
    rows: &[usize],
) {
    let (mut blob, mut places) = (Vec::new(), Vec::new());
    for buffer in buffers {
        blob.resize(blob.len().next_multiple_of(64), 0);
        places.push(blob.len()..blob.len() + buffer.len());
        blob.extend_from_slice(buffer);
    }
    let mut node_count = 0;
    root.number(&mut node_count);
    let (tree, loaded_rows) = (ArrayTree { root, buffers: places }, LoadedRows::default());
    let mut pieces = Pieces::default();
    let (start, limits, kept) = (1 << 40, Limits::default(), Budget::new(16 << 20));
    let loaded = loop {
        let tree_rows = TreeRows {
            tree: &tree,
            pieces: &pieces,
            start,
            ids,
            registry,
            limits: &limits,
            kept: Some(&kept),
            loaded: Some(&loaded_rows),
            segment: 0,
        };
        let loaded = tree_rows.load(array.dtype(), array.len(), rows);
        let missing = pieces.take_missing();
        if missing.is_empty() {
            break loaded;
        }
        assert!(loaded.is_err(), "missing bytes are an error");
        pieces.add(missing.into_iter().map(|range| {
            let bytes = &blob[(range.start - start) as usize..(range.end - start) as usize];
            Piece { start: range.start, bytes: bytes.into() }
        }));
    };
    let overhead = node_count as usize * OVERHEAD + buffers.len() * BUFFER_OVERHEAD;
    let most = blob.len() * (MAX_EXPANSION + 1) + overhead;
    assert!(kept.used() <= most as u64, "more is kept than was read");
    drop(tree);
    assert_eq!(kept.used(), 0, "arrays that were dropped still count");
    let to = data_type(array.dtype()).unwrap();
    let loaded = loaded.and_then(|loaded| loaded.decode(&to));
    let expected = array.take(&indices(rows)).and_then(|taken| taken.decode(&to));
    if let (Ok(_), Ok(expected)) = (array.decode(&to), expected) {
        let loaded = loaded.unwrap();
        loaded.to_data().validate_full().unwrap();
        assert_eq!(&loaded, &expected, "rows {rows:?} of {}", array.encoding());
    }
}

/// Flips a bit or, in one of eight cases, truncates the bytes.
fn damage(mut bytes: Vec<u8>, below: &mut dyn FnMut(usize) -> usize) -> Vec<u8> {
    if bytes.is_empty() {
        return vec![8];
    }
    let at = below(bytes.len());
    if below(8) == 0 {
        bytes.truncate(at);
    } else {
        bytes[at] ^= 1 << below(8);
    }
    bytes
}
