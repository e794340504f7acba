//! Trees of arrays that are read in pieces, kept while the file is open.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::SegmentId;
use crate::array::KeptBytes;
use crate::wire::ArrayTree;

/// Maximum number of bytes of serialized trees kept; parsed, they take a few times as much.
const MAX_TREE_BYTES: usize = 8 << 20;

/// Trees of arrays that are read in pieces, by segment.
#[derive(Debug, Default)]
pub(crate) struct TreeCache {
    kept: Mutex<Trees>,
    kept_bytes: KeptBytes,
}

#[derive(Debug, Default)]
struct Trees {
    by_segment: HashMap<SegmentId, Arc<ArrayTree>>,
    byte_len: usize,
}

impl TreeCache {
    pub(crate) fn get(&self, id: SegmentId) -> Option<Arc<ArrayTree>> {
        self.kept.lock().by_segment.get(&id).cloned()
    }

    /// Counts the bytes of arrays that the trees keep.
    pub(crate) fn kept_bytes(&self) -> &KeptBytes {
        &self.kept_bytes
    }

    /// Keeps the tree of a segment, which had `byte_len` serialized bytes.
    pub(crate) fn keep(&self, id: SegmentId, tree: &Arc<ArrayTree>, byte_len: usize) {
        let mut kept = self.kept.lock();
        if kept.byte_len + byte_len > MAX_TREE_BYTES {
            *kept = Trees::default();
            self.kept_bytes.clear();
        }
        if byte_len <= MAX_TREE_BYTES && kept.by_segment.insert(id, Arc::clone(tree)).is_none() {
            kept.byte_len += byte_len;
        }
    }
}
