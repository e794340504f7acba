//! A serialized layout node, from which a [`Layout`](super::Layout) is created.

use std::sync::Arc;

use prost::Message;

use super::{LayoutRef, unknown};
use crate::Registry;
use crate::dtype::DType;
use crate::limits::Limits;
use crate::segments::SegmentId;
use crate::wire::RawLayout;
use crate::{Error, Result};

/// A serialized layout, with the dtype given by its parent.
#[derive(Debug, Clone)]
pub struct LayoutNode {
    raw: Arc<RawLayout>,
    dtype: DType,
    ids: Arc<[Arc<str>]>,
    registry: Registry,
    limits: Limits,
}

impl LayoutNode {
    pub(crate) fn root(
        raw: Arc<RawLayout>,
        dtype: &DType,
        ids: Arc<[Arc<str>]>,
        registry: &Registry,
        limits: &Limits,
    ) -> Self {
        Self { raw, dtype: dtype.clone(), ids, registry: registry.clone(), limits: *limits }
    }

    /// Creates the layout. An unknown id results in a layout that fails when it is read.
    pub(crate) fn load(&self) -> Result<LayoutRef> {
        let id = self.id()?;
        match self.registry.layout(id) {
            Some(kind) => kind.load(self).map_err(|error| error.at(id)),
            None => Ok(unknown::layout(id, self.dtype.clone(), self.row_count())),
        }
    }

    /// The id of the layout.
    ///
    /// # Errors
    /// If the table of ids is too short.
    pub fn id(&self) -> Result<&Arc<str>> {
        let at = self.raw.encoding;
        self.ids
            .get(usize::from(at))
            .ok_or_else(|| Error::corrupt(format!("layout id {at} of {}", self.ids.len())))
    }

    /// The logical type.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    /// Number of rows.
    pub fn row_count(&self) -> u64 {
        self.raw.row_count
    }

    /// The limits for reading the file.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The metadata bytes.
    pub fn metadata(&self) -> &[u8] {
        &self.raw.metadata
    }

    /// The metadata as a protobuf message; empty bytes mean all defaults.
    ///
    /// # Errors
    /// If the bytes are not such a message.
    pub(crate) fn message<M: Message + Default>(&self) -> Result<M> {
        M::decode(self.metadata()).map_err(|error| Error::corrupt(format!("metadata: {error}")))
    }

    /// Number of children.
    pub fn child_count(&self) -> usize {
        self.raw.children.len()
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

    /// The node of child `at`, with a dtype.
    ///
    /// # Errors
    /// If there is no such child.
    pub fn child(&self, at: usize, dtype: &DType) -> Result<LayoutNode> {
        let raw = self
            .raw
            .children
            .get(at)
            .ok_or_else(|| Error::corrupt(format!("child {at} of {} is missing", self.child_count())))?;
        Ok(LayoutNode { raw: Arc::clone(raw), dtype: dtype.clone(), ..self.clone() })
    }

    /// Loads child `at` as `rows` rows of `dtype`.
    ///
    /// # Errors
    /// If it has another row count, or is broken.
    pub fn load_child(&self, at: usize, dtype: &DType, rows: u64) -> Result<LayoutRef> {
        let child = self.child(at, dtype)?;
        if child.row_count() != rows {
            return Err(Error::corrupt(format!(
                "child {at} has {} rows, expected {rows}",
                child.row_count()
            )));
        }
        child.load()
    }

    /// The segments the node refers to.
    pub fn segments(&self) -> Vec<SegmentId> {
        self.raw.segments.iter().map(|id| SegmentId(*id)).collect()
    }
}
