//! Trees of arrays that are read in pieces, kept while the file is open.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::SegmentId;
use crate::budget::Budget;
use crate::wire::ArrayTree;

/// Maximum number of bytes of serialized trees kept; parsed, they take a few times as much.
const MAX_TREE_BYTES: usize = 8 << 20;
/// Maximum number of bytes of the arrays that trees keep.
const MAX_ARRAY_BYTES: u64 = 16 << 20;

/// Trees of arrays that are read in pieces, by segment.
#[derive(Debug)]
pub(crate) struct TreeCache {
    kept: Mutex<Trees>,
    array_budget: Arc<Budget>,
}

impl Default for TreeCache {
    fn default() -> Self {
        Self { kept: Mutex::default(), array_budget: Budget::new(MAX_ARRAY_BYTES) }
    }
}

#[derive(Debug, Default)]
struct Trees {
    /// With the numbers of their serialized bytes.
    by_segment: HashMap<SegmentId, (Arc<ArrayTree>, usize)>,
    byte_len: usize,
}

impl Trees {
    /// Makes room by forgetting every other tree: if all were forgotten, look-ups among slightly more trees than
    /// are kept would read each of them again.
    fn forget_half(&mut self) {
        let mut keeps = true;
        let mut byte_len = 0;
        self.by_segment.retain(|_, (_, len)| {
            keeps = !keeps;
            byte_len += if keeps { *len } else { 0 };
            keeps
        });
        self.byte_len = byte_len;
    }
}

impl TreeCache {
    pub(crate) fn get(&self, id: SegmentId) -> Option<Arc<ArrayTree>> {
        self.kept.lock().by_segment.get(&id).map(|(tree, _)| Arc::clone(tree))
    }

    /// The budget of arrays that the trees keep.
    pub(crate) fn array_budget(&self) -> &Arc<Budget> {
        &self.array_budget
    }

    /// Keeps the tree of a segment, which had `byte_len` serialized bytes, and returns the tree to use: another
    /// task may have kept one in the meantime, whose arrays it is loading.
    pub(crate) fn keep(&self, id: SegmentId, tree: Arc<ArrayTree>, byte_len: usize) -> Arc<ArrayTree> {
        let mut kept = self.kept.lock();
        if let Some((first, _)) = kept.by_segment.get(&id) {
            return Arc::clone(first);
        }
        if byte_len > MAX_TREE_BYTES {
            return tree;
        }
        while kept.byte_len + byte_len > MAX_TREE_BYTES {
            kept.forget_half();
        }
        kept.byte_len += byte_len;
        kept.by_segment.insert(id, (Arc::clone(&tree), byte_len));
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

    #[test]
    fn about_half_of_the_trees_stay_when_there_are_too_many() {
        let cache = TreeCache::default();
        let of_all = |count: u32| (0..count).filter(|at| cache.get(SegmentId(*at)).is_some()).count();
        (0..10).for_each(|at| drop(cache.keep(SegmentId(at), tree(), MAX_TREE_BYTES / 10)));
        assert_eq!(of_all(10), 10);
        cache.keep(SegmentId(10), tree(), MAX_TREE_BYTES / 10);
        assert_eq!(of_all(11), 6);
        (11..15).for_each(|at| drop(cache.keep(SegmentId(at), tree(), MAX_TREE_BYTES / 10)));
        assert_eq!(of_all(15), 10);
    }
}
