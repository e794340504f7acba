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

    /// Keeps the tree of a segment, which had `byte_len` serialized bytes, and returns the tree to use: another
    /// task may have kept one in the meantime, whose arrays it is loading.
    pub(crate) fn keep(&self, id: SegmentId, tree: Arc<ArrayTree>, byte_len: usize) -> Arc<ArrayTree> {
        let mut kept = self.kept.lock();
        if let Some(first) = kept.by_segment.get(&id) {
            return Arc::clone(first);
        }
        if byte_len > MAX_TREE_BYTES {
            return tree;
        }
        if kept.byte_len + byte_len > MAX_TREE_BYTES {
            *kept = Trees::default();
        }
        kept.byte_len += byte_len;
        kept.by_segment.insert(id, Arc::clone(&tree));
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RawNode;

    fn tree() -> Arc<ArrayTree> {
        Arc::new(ArrayTree { root: RawNode::default(), buffers: Vec::new() })
    }

    #[test]
    fn a_tree_that_is_kept_is_not_replaced() {
        let (cache, first) = (TreeCache::default(), tree());
        cache.keep(SegmentId(0), Arc::clone(&first), 100);
        let second = cache.keep(SegmentId(0), tree(), 100);
        assert!(Arc::ptr_eq(&second, &first));
        assert!(Arc::ptr_eq(&cache.get(SegmentId(0)).unwrap(), &first));
    }

    #[test]
    fn a_tree_that_does_not_fit_drops_no_others() {
        let cache = TreeCache::default();
        cache.keep(SegmentId(0), tree(), 100);
        cache.keep(SegmentId(1), tree(), MAX_TREE_BYTES + 1);
        assert!(cache.get(SegmentId(0)).is_some() && cache.get(SegmentId(1)).is_none());
        cache.keep(SegmentId(2), tree(), MAX_TREE_BYTES);
        assert!(cache.get(SegmentId(0)).is_none() && cache.get(SegmentId(2)).is_some());
    }
}
