//! Writing array trees: the blobs in flat segments and IPC messages.
//!
//! ```text
//! [pad][buffer 0][pad][buffer 1]...[pad][flatbuffer][u32 length of the flatbuffer]
//! ```
//!
//! Every buffer starts at a multiple of its alignment, counted from the start of the blob.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::buffer::Buffer;
use flatbuffers::{FlatBufferBuilder, WIPOffset};

use super::generated::array::array as fb;
use crate::{Error, Result};

/// Approximate number of bytes that describe a node in the flatbuffer.
const NODE_RECORD: usize = 32;

/// Number of bytes that describe a buffer in the flatbuffer.
const BUFFER_RECORD: usize = 8;

/// Number of bytes that Arrow allocates to share a buffer, approximately.
const BUFFER_HEADER: usize = 64;

/// The flatbuffer is aligned to a multiple of this.
const TREE_ALIGNMENT: usize = 8;

/// The ids of encodings or layouts that the nodes of trees refer to, by number.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    ids: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u16>,
}

impl Ids {
    pub(super) fn number(&mut self, id: &str) -> Result<u16> {
        if let Some(number) = self.numbers.get(id) {
            return Ok(*number);
        }
        let number = u16::try_from(self.ids.len()).map_err(|_| Error::limit("more than 2^16 ids"))?;
        let id: Arc<str> = id.into();
        self.ids.push(Arc::clone(&id));
        self.numbers.insert(id, number);
        Ok(number)
    }

    /// The table, ordered by number.
    pub(crate) fn into_table(self) -> Arc<[Arc<str>]> {
        self.ids.into()
    }
}

/// A node of an array tree to be written.
#[derive(Debug, Clone)]
pub(crate) struct WriteNode {
    id: &'static str,
    metadata: Vec<u8>,
    /// The bytes, and the exponent of their alignment.
    buffers: Vec<(Buffer, u8)>,
    children: Vec<WriteNode>,
}

impl WriteNode {
    pub(crate) fn new(id: &'static str) -> Self {
        Self { id, metadata: Vec::new(), buffers: Vec::new(), children: Vec::new() }
    }

    /// Sets a protobuf message as metadata.
    pub(crate) fn message(mut self, message: &impl prost::Message) -> Self {
        self.metadata = message.encode_to_vec();
        self
    }

    /// Sets metadata that is not a protobuf message.
    pub(crate) fn metadata(mut self, bytes: Vec<u8>) -> Self {
        self.metadata = bytes;
        self
    }

    /// Approximate number of bytes of the tree: those of its values and metadata, and an estimate of the
    /// description of each node.
    pub(crate) fn byte_len(&self) -> usize {
        let own: usize = self.buffers.iter().map(|(bytes, _)| bytes.len() + BUFFER_RECORD).sum();
        let children: usize = self.children.iter().map(WriteNode::byte_len).sum();
        NODE_RECORD + self.metadata.len() + own + children
    }

    /// The id of its encoding.
    pub(crate) fn id(&self) -> &'static str {
        self.id
    }

    /// Adds a buffer of values of `width` bytes each, a power of two.
    pub(crate) fn buffer(mut self, bytes: Buffer, width: usize) -> Self {
        // A power of two below 2^64 has an exponent that fits `u8`.
        self.buffers.push((bytes, width.trailing_zeros() as u8));
        self
    }

    /// Adds a child.
    pub(crate) fn child(mut self, child: WriteNode) -> Self {
        self.children.push(child);
        self
    }

    /// Adds children.
    pub(crate) fn children(mut self, children: impl IntoIterator<Item = WriteNode>) -> Self {
        self.children.extend(children);
        self
    }

    /// Total bytes of all buffers: approximately the size of the blob.
    pub(crate) fn buffer_bytes(&self) -> usize {
        let own: usize = self.buffers.iter().map(|(bytes, _)| bytes.len()).sum();
        own + self.children.iter().map(WriteNode::buffer_bytes).sum::<usize>()
    }

    /// Bytes that the tree takes in memory, approximately: its buffers are allocated one by one.
    pub(crate) fn memory_size(&self) -> usize {
        let of_buffers = self.buffers.len() * (size_of::<(Buffer, u8)>() + BUFFER_HEADER);
        let below: usize = self.children.iter().map(WriteNode::memory_size).sum();
        let own: usize = self.buffers.iter().map(|(bytes, _)| bytes.len()).sum();
        size_of::<Self>() + self.metadata.len() + of_buffers + own + below
    }

    /// The exponent of the alignment required for a blob of the tree.
    pub(crate) fn alignment_exponent(&self) -> u8 {
        let own = self.buffers.iter().map(|(_, exponent)| *exponent);
        let below = self.children.iter().map(WriteNode::alignment_exponent);
        own.chain(below).fold(TREE_ALIGNMENT.trailing_zeros() as u8, u8::max)
    }

    /// Serializes the tree as a blob; its ids are added to `ids`.
    ///
    /// # Errors
    /// If there are more buffers than nodes can refer to, or one is too long.
    pub(crate) fn to_blob(&self, ids: &mut Ids) -> Result<Vec<u8>> {
        let bytes = Vec::with_capacity(self.buffer_bytes() + 512);
        let mut blob = Blob { bytes, records: Vec::new(), ids };
        let mut builder = FlatBufferBuilder::new();
        let root = blob.write(self, &mut builder)?;
        let buffers = builder.create_vector(&blob.records);
        let root =
            fb::Array::create(&mut builder, &fb::ArrayArgs { root: Some(root), buffers: Some(buffers) });
        builder.finish_minimal(root);
        let mut bytes = blob.bytes;
        bytes.resize(bytes.len().next_multiple_of(TREE_ALIGNMENT), 0);
        let tree = builder.finished_data();
        bytes.extend_from_slice(tree);
        let len = u32::try_from(tree.len()).map_err(|_| Error::limit("an array tree of 4 GiB"))?;
        bytes.extend(len.to_le_bytes());
        Ok(bytes)
    }
}

/// A blob being written.
struct Blob<'a> {
    bytes: Vec<u8>,
    records: Vec<fb::Buffer>,
    ids: &'a mut Ids,
}

impl Blob<'_> {
    fn write<'b>(
        &mut self,
        node: &WriteNode,
        builder: &mut FlatBufferBuilder<'b>,
    ) -> Result<WIPOffset<fb::ArrayNode<'b>>> {
        let encoding = self.ids.number(node.id)?;
        let own = node.buffers.iter().map(|(bytes, exponent)| self.append(bytes, *exponent));
        let own = own.collect::<Result<Vec<u16>>>()?;
        let children = node.children.iter().map(|child| self.write(child, builder));
        let children = children.collect::<Result<Vec<_>>>()?;
        let args = fb::ArrayNodeArgs {
            encoding,
            metadata: Some(builder.create_vector(&node.metadata)),
            children: Some(builder.create_vector(&children)),
            buffers: Some(builder.create_vector(&own)),
            stats: None,
        };
        Ok(fb::ArrayNode::create(builder, &args))
    }

    fn append(&mut self, bytes: &Buffer, exponent: u8) -> Result<u16> {
        let number = u16::try_from(self.records.len()).map_err(|_| Error::limit("more than 2^16 buffers"))?;
        let length = u32::try_from(bytes.len())
            .map_err(|_| Error::limit(format!("buffer of {} bytes", bytes.len())))?;
        let start = self.bytes.len().next_multiple_of(1 << exponent);
        let padding = u16::try_from(start - self.bytes.len()).map_err(Error::limit)?;
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(bytes);
        self.records.push(fb::Buffer::new(padding, exponent, fb::Compression::None, length));
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::limits::Limits;
    use crate::wire::ArrayTree;

    #[test]
    fn a_blob_parses_into_the_tree_it_was_written_from() {
        let leaf = WriteNode::new("b").buffer(Buffer::from(vec![1u8; 3]), 1);
        let tree = WriteNode::new("a")
            .buffer(Buffer::from(vec![2u8; 5]), 1)
            .child(leaf.clone())
            .child(WriteNode::new("a").buffer(Buffer::from(vec![3u8; 16]), 16))
            .child(leaf);
        let mut ids = Ids::default();
        let blob = tree.to_blob(&mut ids).unwrap();
        assert_eq!(ids.into_table().as_ref(), ["a".into(), "b".into()]);
        let parsed = ArrayTree::parse(&blob, &Limits::default()).unwrap();
        assert_eq!(parsed.root.children.iter().map(|node| node.encoding).collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(parsed.buffers.iter().map(Range::len).collect::<Vec<_>>(), [5, 3, 16, 3]);
        let aligned = blob.windows(16).position(|bytes| bytes == [3; 16]).unwrap();
        assert_eq!(aligned % 16, 0);
    }
}
