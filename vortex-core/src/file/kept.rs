//! Data kept with the description of a file between scans: bytes that were read together with it, and
//! decoded zone maps. Both are bounded, and their bounds are accounted for from the start.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;
use parking_lot::Mutex;

use super::Segment;
use crate::expr::FieldPath;
use crate::io::READ_ALIGNMENT;
use crate::layout::ZoneMap;

/// A file of up to this size is kept in memory as a whole if a single read fetched it.
const MAX_WHOLE: usize = 1 << 20;
/// Of a larger file, the part closest to its end is kept, which usually contains the zone tables.
const MAX_PART: usize = 256 << 10;

/// The end of a file's data, kept from the read that opened the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptTail {
    start: u64,
    bytes: Buffer,
}

impl KeptTail {
    /// Selects what to keep of the last bytes of a file, which start at `start`.
    pub(super) fn new(segments: &[Segment], bytes: &Buffer, start: u64) -> Self {
        let data_end = segments.iter().map(|segment| segment.range().end).max().unwrap_or(0);
        let len = usize::try_from(data_end.saturating_sub(start)).unwrap_or(usize::MAX).min(bytes.len());
        if start == 0 && bytes.len() <= MAX_WHOLE {
            return Self { start, bytes: bytes.clone() };
        }
        // The part starts with the first segment that it contains as a whole.
        let least = start + len.saturating_sub(MAX_PART) as u64;
        let first =
            segments.iter().map(|segment| segment.range().start).filter(|first| *first >= least).min();
        let Some(first) = first.filter(|first| *first < data_end) else { return Self::default() };
        // Keep the alignment of the file; copy, so that the rest can be freed.
        let first = (first / READ_ALIGNMENT * READ_ALIGNMENT).max(start);
        let kept = &bytes.as_slice()[(first - start) as usize..len];
        Self { start: first, bytes: Buffer::from(kept) }
    }

    /// The bytes of a range, if they were kept.
    pub(crate) fn get(&self, range: &Range<u64>) -> Option<Buffer> {
        let at = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        (at.checked_add(len)? <= self.bytes.len()).then(|| self.bytes.slice_with_length(at, len))
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Zone maps decoded by scans, up to a number of bytes.
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
