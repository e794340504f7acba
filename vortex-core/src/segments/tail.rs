//! The end of a file, kept with its description from the read that opened it.

use std::ops::Range;

use arrow::buffer::Buffer;

use super::Segment;
use crate::array::pieces::Piece;
use crate::io::READ_ALIGNMENT;

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

    /// All of it, as a piece of the file.
    pub(crate) fn piece(&self) -> Piece {
        Piece { start: self.start, bytes: self.bytes.clone() }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}
