//! The bytes of segments held by scans of one file, shared as long as they are needed.
//!
//! A chunk that serves several splits, or several scans of the same open file on one runtime, is fetched
//! and parsed once: everything that needs it holds a [`Lease`], and dropping the last lease frees it. Scans on
//! different runtimes share nothing: bytes that a runtime is to deliver may never come if nobody polls it.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use arrow::buffer::Buffer;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id as RuntimeId};

use super::{SegmentId, SegmentTable};
use crate::Result;
use crate::array::{ArrayParts, ArrayRef, KeptBytes};
use crate::dtype::DType;
use crate::error::ResultExt as _;
use crate::io::{Pending, Share, Unsent};
use crate::metrics::ScanMetrics;
use crate::once::get_or_try_init;
use crate::wire::ArrayTree;

/// Segments in use.
#[derive(Debug, Default)]
pub(crate) struct SegmentCache {
    entries: Mutex<HashMap<Key, Weak<Entry>>>,
    trees: TreeCache,
}

/// A segment, and the runtime whose tasks deliver its bytes.
type Key = (SegmentId, Option<RuntimeId>);

/// Trees of arrays that are read in pieces, kept while the file is open.
#[derive(Debug, Default)]
pub(crate) struct TreeCache {
    kept: Mutex<Trees>,
    kept_bytes: KeptBytes,
}

/// Maximum number of bytes of serialized trees kept; parsed, they take a few times as much.
const MAX_TREE_BYTES: usize = 8 << 20;

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

/// A handle to a segment that is in use.
pub(crate) type Lease = Arc<Entry>;

/// A segment: its bytes, in flight or available, and what was derived from them.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: SegmentId,
    len: usize,
    pending: Pending,
    parts: OnceLock<ArrayParts>,
    array: OnceLock<ArrayRef>,
    /// Data that a layout derived from the segment to share it between splits.
    derived: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// The memory charged for its bytes to the scan that requested it first.
    _memory: Option<Share>,
}

impl SegmentCache {
    /// Total bytes of those segments that are not held and must be read.
    pub(crate) fn missing_bytes(&self, ids: &[SegmentId], table: &SegmentTable) -> Result<u64> {
        let runtime = current_runtime();
        let entries = self.entries.lock();
        let mut bytes = 0u64;
        for id in ids {
            let range = table.segment(*id)?.range();
            let held = entries.get(&(*id, runtime)).is_some_and(|entry| entry.strong_count() > 0);
            if !held && table.tail.get(&range).is_none() {
                bytes = bytes.saturating_add(range.end - range.start);
            }
        }
        Ok(bytes)
    }

    /// Trees of arrays that are read in pieces.
    pub(crate) fn trees(&self) -> &TreeCache {
        &self.trees
    }

    /// Leases segments. Those that are not held yet are requested in one go, and take up parts of
    /// `memory` until they are no longer held.
    pub(crate) fn lease(
        &self,
        ids: &[SegmentId],
        table: &SegmentTable,
        mut memory: Share,
        metrics: &ScanMetrics,
        ask: impl FnOnce(&[(SegmentId, Range<u64>)]) -> (Vec<Pending>, Unsent),
    ) -> Result<Vec<Lease>> {
        let mut leases: Vec<Option<Lease>> = ids.iter().map(|_| None).collect();
        let mut missing: Vec<usize> = Vec::new();
        let mut ranges: Vec<(SegmentId, Range<u64>)> = Vec::new();
        let runtime = current_runtime();
        let mut entries = self.entries.lock();
        for (at, id) in ids.iter().enumerate() {
            if let Some(held) = entries.get(&(*id, runtime)).and_then(Weak::upgrade) {
                leases[at] = Some(held);
                ScanMetrics::add(&metrics.segments_shared, 1);
                continue;
            }
            let range = table.segment(*id)?.range();
            match table.tail.get(&range) {
                Some(bytes) => {
                    let entry = Arc::new(Entry::new(*id, &range, Pending::ready(bytes), None));
                    entries.insert((*id, runtime), Arc::downgrade(&entry));
                    leases[at] = Some(entry);
                }
                None => {
                    missing.push(at);
                    ranges.push((*id, range));
                }
            }
        }
        let mut unsent = None;
        if !missing.is_empty() {
            // Done under the lock, so that another scan joins these reads instead of repeating them.
            let (pending, requests) = ask(&ranges);
            unsent = Some(requests);
            for ((at, (id, range)), pending) in missing.into_iter().zip(&ranges).zip(pending) {
                let memory = memory.split(range.end - range.start);
                let entry = Arc::new(Entry::new(*id, range, pending, Some(memory)));
                entries.insert((*id, runtime), Arc::downgrade(&entry));
                leases[at] = Some(entry);
            }
        }
        if entries.len() > 1024 {
            entries.retain(|_, entry| entry.strong_count() > 0);
        }
        drop(entries);
        if let Some(requests) = unsent {
            requests.send();
        }
        Ok(leases.into_iter().flatten().collect())
    }
}

fn current_runtime() -> Option<RuntimeId> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

impl Entry {
    fn new(id: SegmentId, range: &Range<u64>, pending: Pending, memory: Option<Share>) -> Self {
        Self {
            id,
            // A segment has less than 2^32 bytes.
            len: (range.end - range.start) as usize,
            pending,
            parts: OnceLock::new(),
            array: OnceLock::new(),
            derived: OnceLock::new(),
            _memory: memory,
        }
    }

    /// Bytes of the segment.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Waits for the bytes.
    pub(crate) async fn wait(&self) -> Result<Buffer> {
        self.pending.wait().await
    }

    /// The bytes, if they have arrived and were waited for.
    pub(crate) fn bytes(&self) -> Option<Buffer> {
        self.pending.peek()
    }

    /// The segment as an array. It is parsed once; if another type or length than the first is requested
    /// (a file may refer to a segment twice), a new array is created.
    pub(crate) fn array(&self, dtype: &DType, len: usize, table: &SegmentTable) -> Result<ArrayRef> {
        if let Some(array) = self.array.get().filter(|array| array.len() == len && array.dtype() == dtype) {
            return Ok(Arc::clone(array));
        }
        let place = || format!("segment {}", self.id.0);
        let parts = get_or_try_init(&self.parts, || {
            let bytes = self
                .bytes()
                .ok_or_else(|| crate::Error::invalid(format!("segment {} is not loaded", self.id.0)))?;
            let bytes = table.unpack(self.id, bytes).at(place)?;
            ArrayParts::parse(bytes, Arc::clone(&table.array_ids), &table.limits).at(place)
        })?;
        let array = parts.load(dtype, len, &table.registry, &table.limits).at(place)?;
        Ok(Arc::clone(self.array.get_or_init(|| Arc::clone(&array))))
            .map(|first| if first.len() == len && first.dtype() == dtype { first } else { array })
    }

    /// Data that a layout derives from this segment, created by the first caller.
    pub(crate) fn derived<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let first = self.derived.get();
        if let Some(found) = first.and_then(|derived| Arc::clone(derived).downcast().ok()) {
            return found;
        }
        let made = make();
        let _ = self.derived.set(Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
        made
    }
}
