//! A serialized array node, from which an [`EncodedArray`] is loaded.

use std::sync::Arc;

use arrow::buffer::Buffer;
use bytes::Bytes;
use prost::Message;

use super::EncodedRef;
use super::bytes::{aligned, is_aligned};
use super::parts::{Buffers, Context};
use super::rows::Picked;
use super::validity::ValidityChild;
use crate::Registry;
use crate::dtype::DType;
use crate::encodings::Encoding;
use crate::error::ResultExt as _;
use crate::limits::{Limits, counted_apart};
use crate::scalar::{Scalar, Value};
use crate::wire::RawNode;
use crate::{Error, Result};

/// A serialized node, with the dtype and length given by its parent. It represents all of its rows, or
/// only some of them.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub(super) raw: &'a RawNode,
    pub(super) dtype: &'a DType,
    pub(super) len: usize,
    pub(super) depth: u32,
    /// The rows that it represents, if not all.
    pub(super) picked: Option<Picked<'a>>,
    /// What it is made of instead of what is stored, if another array wraps it.
    pub(super) wrapped: Option<Wrapped<'a>>,
    pub(super) context: &'a Context<'a>,
}

/// An array without a node of its own, within one that wraps it and shares its children.
#[derive(Clone, Copy)]
pub(super) struct Wrapped<'a> {
    metadata: &'a Bytes,
    pub(super) buffers: &'a [Buffer],
    /// How many of the first children it has.
    child_count: usize,
}

impl<'a> Node<'a> {
    pub(super) fn root(raw: &'a RawNode, dtype: &'a DType, len: usize, context: &'a Context<'a>) -> Self {
        Self { raw, dtype, len, depth: 0, picked: None, wrapped: None, context }
    }

    /// Creates the array of all rows.
    pub(super) fn load(&self) -> Result<EncodedRef> {
        match (self.wrapped, self.context.buffers) {
            (None, Buffers::Pieces(_)) => self.load_from_pieces(),
            _ => self.load_as(self.encoding_id()?),
        }
    }

    /// Counts this node as visited.
    pub(super) fn enter(&self) -> Result<()> {
        let nodes_left = &self.context.nodes_left;
        match nodes_left.get().checked_sub(1) {
            Some(left) if self.depth < self.context.limits.max_depth => nodes_left.set(left),
            _ => {
                return Err(Error::limit(
                    "array tree has too many or too deep nodes for `max_nodes` and `max_depth`",
                ));
            }
        }
        Ok(())
    }

    fn load_as(&self, id: &str) -> Result<EncodedRef> {
        self.enter()?;
        let array = self.encoding(id)?.load(self).at(|| id)?;
        self.check(id, array)
    }

    pub(super) fn encoding(&self, id: &str) -> Result<&'a Arc<dyn Encoding>> {
        self.context.registry.encoding(id).ok_or_else(|| Error::unsupported("encoding", id))
    }

    /// Checks that an array is what the node represents.
    pub(super) fn check(&self, id: &str, array: EncodedRef) -> Result<EncodedRef> {
        if array.len() != self.len || array.dtype() != self.dtype {
            return Err(Error::corrupt(format!(
                "{id} gives {} rows of {}, expected {} of {}",
                array.len(),
                array.dtype(),
                self.len,
                self.dtype
            )));
        }
        Ok(array)
    }

    /// The logical type of the node.
    pub fn dtype(&self) -> &'a DType {
        self.dtype
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The limits for decoding. Bytes that are decompressed or copied to load the node last as long as the array, so
    /// they [count](Limits::count_bytes) before they are.
    pub fn limits(&self) -> &'a Limits {
        self.context.limits
    }

    /// The known encodings.
    pub fn registry(&self) -> &'a Registry {
        self.context.registry
    }

    /// The metadata bytes; empty if absent.
    pub fn metadata(&self) -> &'a [u8] {
        self.metadata_bytes()
    }

    fn metadata_bytes(&self) -> &'a Bytes {
        self.wrapped.map_or(&self.raw.metadata, |wrapped| wrapped.metadata)
    }

    /// The metadata as a protobuf message; empty bytes mean all defaults. Its parts may take far more bytes in memory
    /// than in the file until they are checked.
    ///
    /// # Errors
    /// If the bytes are not such a message, or it could take too many.
    pub(crate) fn message<M: Message + Default>(&self) -> Result<M> {
        let byte_len = self.metadata().len();
        if byte_len > SHORT_METADATA {
            counted_apart(|| self.limits().count_rows(byte_len, PARSED_PER_BYTE))?;
        }
        let message = M::decode(self.metadata_bytes().clone());
        message.map_err(|error| Error::corrupt(format!("metadata: {error}")))
    }

    /// Checks that there is no metadata.
    ///
    /// # Errors
    /// If there is some.
    pub fn no_metadata(&self) -> Result<()> {
        match self.metadata().len() {
            0 => Ok(()),
            len => Err(Error::corrupt(format!("{len} bytes of metadata, expected none"))),
        }
    }

    /// Number of children.
    pub fn child_count(&self) -> usize {
        self.wrapped.map_or(self.raw.children.len(), |wrapped| wrapped.child_count)
    }

    /// The id of the encoding.
    ///
    /// # Errors
    /// If the node has a number that the table of ids lacks.
    pub fn encoding_id(&self) -> Result<&'a str> {
        let ids = self.context.ids;
        let id = ids.get(usize::from(self.raw.encoding));
        id.map(|id| &**id)
            .ok_or_else(|| Error::corrupt(format!("array encoding {} of {}", self.raw.encoding, ids.len())))
    }

    /// Loads child `at` as `len` rows of `dtype`. A node that represents some of its rows loads the same
    /// rows of its child, which must have one row for each of its own.
    ///
    /// # Errors
    /// If there is no such child, or it is not of that type and length.
    pub fn child(&self, at: usize, dtype: &DType, len: usize) -> Result<EncodedRef> {
        match self.picked {
            None => self.child_node(at, dtype, len)?.load(),
            Some(picked) if len == self.len => self.child_rows(at, dtype, picked.of, picked.rows),
            Some(_) => Err(Error::corrupt(format!("child {at} has {len} rows, expected {}", self.len))),
        }
    }

    pub(super) fn child_node<'b>(&'b self, at: usize, dtype: &'b DType, len: usize) -> Result<Node<'b>> {
        let raw = self
            .raw
            .children
            .get(at)
            .filter(|_| at < self.child_count())
            .ok_or_else(|| Error::corrupt(format!("child {at} of {} is missing", self.child_count())))?;
        Ok(Node {
            raw,
            dtype,
            len,
            depth: self.depth + 1,
            picked: None,
            wrapped: None,
            context: self.context,
        })
    }

    /// Child `at` as a node, for encodings that need access to the parts of a child of encoding `id`.
    ///
    /// # Errors
    /// If there is no such child, or it has another encoding.
    pub(crate) fn child_of<'b>(
        &'b self,
        at: usize,
        id: &str,
        dtype: &'b DType,
        len: usize,
    ) -> Result<Node<'b>> {
        let child = self.child_node(at, dtype, len)?;
        child.enter()?;
        match child.encoding_id()? {
            found if found == id => Ok(child),
            found => Err(Error::corrupt(format!("child {at} has encoding {found}, expected {id}"))),
        }
    }

    /// Loads an array that this node wraps: a node of the same dtype and length, of encoding `id`, with
    /// different metadata, with `buffers`, and with the first `children` children of this node.
    ///
    /// # Errors
    /// If there are fewer children, or they do not form such an array.
    pub(crate) fn load_wrapped(
        &self,
        id: &str,
        metadata: &Bytes,
        buffers: &[Buffer],
        child_count: usize,
    ) -> Result<EncodedRef> {
        if child_count > self.child_count() {
            return Err(Error::corrupt(format!("{} children, expected {child_count}", self.child_count())));
        }
        let wrapped = Some(Wrapped { metadata, buffers, child_count });
        Node { wrapped, depth: self.depth + 1, ..*self }.load_as(id)
    }

    /// Checks the number of children.
    ///
    /// # Errors
    /// If the number is different.
    pub fn expect_children(&self, count: usize) -> Result<()> {
        if self.child_count() == count {
            return Ok(());
        }
        Err(Error::corrupt(format!("{} children, expected {count}", self.child_count())))
    }

    /// Loads the validity child of encodings that store it after `others` children.
    ///
    /// # Errors
    /// If there are neither `others` nor `others + 1` children, or a non-nullable array has a validity.
    pub fn validity_child(&self, others: usize) -> Result<ValidityChild> {
        self.optional_validity(others, others)
    }

    /// Loads the validity child of encodings that store it before `others` children.
    ///
    /// # Errors
    /// As [`validity_child`](Self::validity_child).
    pub fn leading_validity(&self, others: usize) -> Result<ValidityChild> {
        self.optional_validity(0, others)
    }

    /// Loads the validity child of encodings that store it as child `at`, beside `others` children.
    ///
    /// # Errors
    /// As [`validity_child`](Self::validity_child).
    pub(crate) fn optional_validity(&self, at: usize, others: usize) -> Result<ValidityChild> {
        let count = self.child_count();
        match count.checked_sub(others) {
            Some(0) => Ok(ValidityChild::default()),
            Some(1) if self.dtype.is_nullable() => {
                Ok(Some(self.child(at, &DType::Bool(false), self.len)?).into())
            }
            Some(1) => Err(Error::corrupt(format!("validity under the non-nullable type {}", self.dtype))),
            _ => Err(Error::corrupt(format!("{count} children, expected {others} or {}", others + 1))),
        }
    }

    /// Number of buffers.
    pub fn buffer_count(&self) -> usize {
        self.wrapped.map_or(self.raw.buffers.len(), |wrapped| wrapped.buffers.len())
    }

    /// Number of different buffers that this node may refer to.
    pub(crate) fn tree_buffer_count(&self) -> usize {
        self.wrapped.map_or(self.context.buffers.count(), |wrapped| wrapped.buffers.len())
    }

    /// Checks the number of buffers.
    ///
    /// # Errors
    /// If the number is different.
    pub fn expect_buffers(&self, count: usize) -> Result<()> {
        if self.buffer_count() == count {
            return Ok(());
        }
        Err(Error::corrupt(format!("{} buffers, expected {count}", self.buffer_count())))
    }

    /// Buffer `at` of this node, shared with the segment.
    ///
    /// # Errors
    /// If there is no such buffer.
    pub fn buffer(&self, at: usize) -> Result<Buffer> {
        let buffer = match (self.wrapped, self.raw.buffers.get(at)) {
            (Some(wrapped), _) => wrapped.buffers.get(at).cloned(),
            (None, Some(place)) => self.context.buffers.get(*place)?,
            (None, None) => None,
        };
        buffer.ok_or_else(|| Error::corrupt(format!("buffer {at} is missing")))
    }

    /// The same bytes, aligned as Arrow requires: at an address divisible by `width`.
    ///
    /// # Errors
    /// If they must be copied, and the tree has too many bytes.
    pub fn aligned(&self, bytes: Buffer, width: usize) -> Result<Buffer> {
        if !is_aligned(&bytes, width) {
            self.limits().count_bytes(bytes.len() as u64)?;
        }
        Ok(aligned(bytes, width))
    }

    /// Parses a serialized scalar value of a type.
    ///
    /// # Errors
    /// If the bytes are not such a value, or the tree has too many bytes.
    pub fn scalar(&self, bytes: &[u8], dtype: &DType) -> Result<Scalar> {
        // They are looked at first, even if nothing of them is kept.
        self.limits().count_bytes(bytes.len() as u64)?;
        let scalar = crate::wire::scalar_from_bytes(bytes, dtype, self.context.limits)?;
        self.limits().count_bytes(held_bytes(scalar.value()).saturating_sub(bytes.len()) as u64)?;
        Ok(scalar)
    }
}

/// Metadata of up to so many bytes is parsed without being counted.
const SHORT_METADATA: usize = 1 << 10;

/// Bytes that a byte of metadata may take once it is parsed: the most for an empty description of a type, which has
/// two.
const PARSED_PER_BYTE: usize = 64;

/// The bytes that a parsed value takes; its depth and the number of its parts are limited.
fn held_bytes(value: &Value) -> usize {
    let inner = match value {
        Value::Utf8(text) => text.len(),
        Value::Binary(bytes) => bytes.len(),
        Value::List(values) => values.iter().map(held_bytes).fold(0, usize::saturating_add),
        Value::Variant(scalar) => held_bytes(scalar.value()),
        Value::Union(_, value) => held_bytes(value),
        _ => 0,
    };
    inner.saturating_add(size_of::<Value>())
}

impl std::fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("encoding", &self.context.ids.get(usize::from(self.raw.encoding)))
            .field("dtype", self.dtype)
            .field("len", &self.len)
            .field("children", &self.child_count())
            .field("buffers", &self.buffer_count())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::UInt64Array;
    use arrow::buffer::Buffer;

    use super::super::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::dtype::{DType, Extension, PType, StructType};
    use crate::expr::Predicate;
    use crate::limits::Limits;
    use crate::mask::Mask;

    /// Number of levels around the innermost array, the maximum that the limits allow.
    const LEVELS: usize = 62;

    /// Nests one row in many levels of the same encoding, and runs everything that is recursive on it.
    /// Tests have the same stack size as threads of a runtime.
    fn nest(wrap: impl Fn(Tree, DType) -> (Tree, DType)) {
        let innermost = (Tree::primitive(&[7i32]), DType::Primitive(PType::I32, false));
        let (tree, dtype) = (0..LEVELS).fold(innermost, |(tree, dtype), _| wrap(tree, dtype));
        let array = tree.load(&dtype, 1).unwrap();
        let to = data_type(&dtype).unwrap();
        let decoded = array.decode(&to).unwrap();
        decoded.to_data().validate_full().unwrap();
        for part in [
            array.slice(0..1).unwrap(),
            array.filter(&Mask::all(1)).unwrap(),
            array.take(&UInt64Array::from(vec![0, 0])).unwrap(),
        ] {
            assert!(!part.decode(&to).unwrap().is_empty());
        }
        assert_eq!(array.matches(&Predicate::IsNotNull).unwrap().true_count(), 1);
        assert!(super::super::encoded_bytes(array.as_ref()) > 0);
        assert!(wrap(wrap(tree.clone(), dtype.clone()).0, dtype.clone()).0.load(&dtype, 1).is_err());
    }

    #[test]
    fn the_deepest_structs_fit_the_stack() {
        nest(|tree, dtype| {
            let fields = StructType::new([("a".into(), dtype)]);
            (Tree::new("vortex.struct").child(tree), DType::Struct(Arc::new(fields), false))
        });
    }

    #[test]
    fn the_deepest_lists_fit_the_stack() {
        nest(|tree, dtype| {
            let offsets = Tree::primitive(&[0u32, 1]);
            let list = Tree::new("vortex.list").metadata(vec![0x08, 1, 0x10, 2]).child(tree).child(offsets);
            (list, DType::List(Arc::new(dtype), false))
        });
    }

    #[test]
    fn the_deepest_fixed_size_lists_fit_the_stack() {
        nest(|tree, dtype| {
            let list = Tree::new("vortex.fixed_size_list").child(tree);
            (list, DType::FixedSizeList(Arc::new(dtype), 1, false))
        });
    }

    #[test]
    fn the_deepest_extensions_fit_the_stack() {
        nest(|tree, dtype| {
            let extension = Extension::try_new("unknown", dtype, vec![]).unwrap();
            (Tree::new("vortex.ext").child(tree), DType::Extension(Arc::new(extension)))
        });
    }

    #[test]
    fn the_deepest_runs_fit_the_stack() {
        nest(|tree, dtype| {
            let runs = Tree::new("vortex.runend").metadata(vec![0x10, 1]);
            (runs.child(Tree::primitive(&[1u8])).child(tree), dtype)
        });
    }

    #[test]
    fn the_deepest_dictionaries_fit_the_stack() {
        nest(|tree, dtype| {
            let codes = Tree::new("vortex.dict").metadata(vec![0x08, 1]).child(Tree::primitive(&[0u8]));
            (codes.child(tree), dtype)
        });
    }

    /// Loading many nodes that refer to the same bytes takes as many copies.
    fn chunked(chunk: Tree, dtype: &DType, rows: u64) -> crate::Result<crate::array::EncodedRef> {
        let offsets: Vec<u64> = (0..=20).map(|at| at * rows).collect();
        let tree = Tree::new("vortex.chunked").child(Tree::primitive(&offsets));
        let tree = (0..20).fold(tree, |tree, _| tree.child(chunk.clone()));
        tree.load_within(dtype, 20 * rows as usize, &Limits::new().with_max_decoded_bytes(1200))
    }

    #[test]
    fn copies_of_constants_are_limited() {
        // A protobuf scalar: field 8, a string.
        let text = |len: u8| {
            let mut scalar = vec![0x42, len];
            scalar.extend(vec![b'x'; len.into()]);
            chunked(Tree::new("vortex.constant").buffer(scalar), &DType::Utf8(false), 5)
        };
        assert_eq!(text(1).unwrap().len(), 100);
        assert!(text(100).unwrap_err().to_string().contains("exceed 1200 bytes"));
    }

    #[test]
    fn parts_of_metadata_are_limited_before_they_are_parsed() {
        // Each empty chunk takes two bytes here, and 24 once it is parsed.
        let tree = Tree::new("vortex.pco").metadata([0x12, 0].repeat(10_000));
        let load = |bytes| {
            let limits = Limits::new().with_max_decoded_bytes(bytes);
            tree.load_within(&DType::Primitive(PType::I64, false), 5, &limits).unwrap_err()
        };
        assert!(matches!(load(1 << 20).root(), crate::Error::LimitExceeded(_)));
        assert!(matches!(load(2 << 20).root(), crate::Error::Corrupt(_)), "buffers are missing");
    }

    #[test]
    fn copies_of_misaligned_bytes_are_limited() {
        let numbers = |offset: usize| {
            let bytes = Buffer::from_vec(vec![1u64; 11]).slice_with_length(offset, 80);
            chunked(Tree::new("vortex.primitive").buffer(bytes), &DType::Primitive(PType::I64, false), 10)
        };
        assert_eq!(numbers(8).unwrap().len(), 200);
        assert!(numbers(4).unwrap_err().to_string().contains("exceed 1200 bytes"));
    }
}
