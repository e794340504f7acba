//! What stays with the description of a file between scans: bytes that came along with it, and
//! zone maps once they are decoded. Both are bounded, and counted from the start.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;
use parking_lot::Mutex;

use super::Segment;
use crate::expr::FieldPath;
use crate::layout::ZoneMap;

/// A file up to this size stays in memory as a whole if one read brought it.
const MAX_WHOLE: usize = 1 << 20;
/// Of a larger one, what lies closest to its end: zone tables, as a rule.
const MAX_PART: usize = 256 << 10;

/// Alignments up to this in the file hold in memory.
const ALIGNMENT: u64 = 64;

/// The end of a file's data, as opening the file read it.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptTail {
    start: u64,
    bytes: Buffer,
}

impl KeptTail {
    /// What to keep of the last bytes of a file, which start at `start`.
    pub(super) fn new(segments: &[Segment], bytes: &Buffer, start: u64) -> Self {
        let data_end = segments.iter().map(|segment| segment.range().end).max().unwrap_or(0);
        let len = usize::try_from(data_end.saturating_sub(start)).unwrap_or(usize::MAX).min(bytes.len());
        if start == 0 && bytes.len() <= MAX_WHOLE {
            return Self { start, bytes: bytes.clone() };
        }
        // The first segment that is there as a whole starts the part.
        let least = start + len.saturating_sub(MAX_PART) as u64;
        let first =
            segments.iter().map(|segment| segment.range().start).filter(|first| *first >= least).min();
        let Some(first) = first.filter(|first| *first < data_end) else { return Self::default() };
        // As aligned as in the file; copied, so that the rest need not stay.
        let first = (first / ALIGNMENT * ALIGNMENT).max(start);
        let kept = &bytes.as_slice()[(first - start) as usize..len];
        Self { start: first, bytes: Buffer::from(kept) }
    }

    /// The bytes of a range, if they are here.
    pub(crate) fn get(&self, range: &Range<u64>) -> Option<Buffer> {
        let at = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        (at.checked_add(len)? <= self.bytes.len()).then(|| self.bytes.slice_with_length(at, len))
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Zone maps that scans decoded, up to a number of bytes.
#[derive(Debug)]
pub(crate) struct KeptZoneMaps {
    limit: usize,
    maps: Mutex<(usize, HashMap<FieldPath, Arc<ZoneMap>>)>,
}

impl KeptZoneMaps {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, maps: Mutex::default() }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn get(&self, path: &FieldPath) -> Option<Arc<ZoneMap>> {
        self.maps.lock().1.get(path).cloned()
    }

    /// Keeps a zone map if there is room.
    pub(crate) fn keep(&self, path: &FieldPath, map: &Arc<ZoneMap>) {
        let mut kept = self.maps.lock();
        let bytes = kept.0.saturating_add(map.memory_size());
        if bytes <= self.limit && kept.1.insert(path.clone(), Arc::clone(map)).is_none() {
            kept.0 = bytes;
        }
    }
}
