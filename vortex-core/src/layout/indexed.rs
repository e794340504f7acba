//! Data accompanied by indexes; the data is read and the indexes are ignored.
//!
//! Metadata: version byte 1, then a protobuf list of index descriptions. Children: the data,
//! then one child per index. A prototype of the reference implementation.

use super::{LayoutKind, LayoutNode, LayoutRef};
use crate::{Error, Result};

/// The `vortex.indexed` layout.
pub(super) struct Indexed;

impl LayoutKind for Indexed {
    fn id(&self) -> &'static str {
        "vortex.indexed"
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        match node.metadata().first() {
            Some(1) => node.load_child(0, node.dtype(), node.row_count()),
            Some(version) => Err(Error::unsupported("version of layout vortex.indexed", version)),
            None => Err(Error::corrupt("metadata is missing")),
        }
    }
}
