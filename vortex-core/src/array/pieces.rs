//! Bytes of a file that are fetched in pieces: those available, and those requested.
//!
//! ```text
//! file   ....[--- piece ---]......[-- piece --]....
//!              ^ available: any range within one      ^ otherwise it is recorded as missing
//! ```
//!
//! Loading an array from pieces requests the bytes that it needs, and fails if they are not available.
//! The missing ranges are then fetched, and loading is repeated until nothing is missing.

use std::cell::RefCell;
use std::ops::Range;

use arrow::buffer::Buffer;

use crate::row_ranges::merged;
use crate::{Error, Result};

/// Ranges this close are fetched as one: reading this many bytes takes no longer than a call.
const GAP: u64 = 4 << 10;

/// More missing ranges of a segment are joined while they are recorded: an array may ask for one per element.
const MOST_APART: usize = if cfg!(test) { 1 << 10 } else { 1 << 16 };

/// Pieces of one file, in order. None is contained in another.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    at_hand: Vec<Piece>,
    missing: RefCell<Missing>,
}

/// The ranges that are missing.
#[derive(Debug, Default)]
struct Missing {
    /// Those of segments that were attempted before.
    earlier: Vec<Range<u64>>,
    /// Those of the segment that is attempted.
    latest: Vec<Range<u64>>,
    /// The number of these that were apart when they were last joined.
    apart: usize,
}

impl Missing {
    fn push(&mut self, range: Range<u64>) {
        self.latest.push(range);
        if self.latest.len() >= MOST_APART.max(2 * self.apart) {
            self.latest = merged(std::mem::take(&mut self.latest), GAP);
            self.apart = self.latest.len();
        }
    }

    /// Takes those of the segment that is attempted.
    fn take_latest(&mut self) -> Vec<Range<u64>> {
        self.apart = 0;
        std::mem::take(&mut self.latest)
    }
}

/// Bytes of a file, starting at a position.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) bytes: Buffer,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl Pieces {
    /// The bytes of a range.
    ///
    /// # Errors
    /// If they are not available, in which case they are recorded as missing.
    pub(crate) fn get(&self, range: Range<u64>) -> Result<Buffer> {
        self.find(range, |bytes, within| bytes.slice_with_length(within.start, within.len()))
    }

    /// As [`get`](Self::get), without sharing the bytes.
    pub(crate) fn with<R>(&self, range: Range<u64>, run: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.find(range, |bytes, within| run(&bytes[within]))
    }

    fn find<R>(&self, range: Range<u64>, run: impl FnOnce(&Buffer, Range<usize>) -> R) -> Result<R> {
        if range.is_empty() {
            return Ok(run(&Buffer::default(), 0..0));
        }
        // Of the pieces that start at or before the range, the last one has the greatest end.
        let behind = self.at_hand.partition_point(|piece| piece.start <= range.start);
        if let Some(piece) = self.at_hand[..behind].last()
            && range.end <= piece.end()
        {
            // Both ends lie within a piece, which is in memory.
            let within = (range.start - piece.start) as usize..(range.end - piece.start) as usize;
            return Ok(run(&piece.bytes, within));
        }
        self.missing.borrow_mut().push(range);
        Err(Error::NotFetched)
    }

    /// Begins the attempt to load an array of another segment.
    pub(crate) fn begin_segment(&self) {
        let mut missing = self.missing.borrow_mut();
        let latest = missing.take_latest();
        missing.earlier.extend(latest);
    }

    /// Requests `whole` instead of what was requested since the segment was begun, if that takes no longer, where each
    /// read takes as long as this many bytes more.
    pub(crate) fn request_whole(&self, whole: Range<u64>, bytes_per_read: u64) {
        let mut missing = self.missing.borrow_mut();
        let apart = merged(missing.take_latest(), GAP);
        let bytes = apart.iter().map(|range| range.end - range.start + bytes_per_read).sum::<u64>();
        if bytes < whole.end - whole.start {
            missing.earlier.extend(apart);
        } else {
            missing.earlier.push(whole);
        }
    }

    /// Takes the missing ranges, in order and with nearby ranges joined.
    pub(crate) fn take_missing(&mut self) -> Vec<Range<u64>> {
        self.begin_segment();
        let missing = &mut self.missing.get_mut().earlier;
        let expected = Vec::with_capacity(missing.len());
        merged(std::mem::replace(missing, expected), GAP)
    }

    /// Adds bytes of a file, in order.
    pub(crate) fn add(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        self.at_hand.extend(pieces);
        // Both the existing and the new pieces are sorted, which this sort algorithm takes advantage of.
        self.at_hand.sort_by_key(|piece| (piece.start, std::cmp::Reverse(piece.end())));
        let mut end = 0;
        self.at_hand.retain(|piece| {
            let reaches_further = piece.end() > end;
            end = end.max(piece.end());
            reaches_further
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a file in which each byte is equal to its position.
    fn bytes(range: Range<u64>) -> Buffer {
        range.map(|at| at as u8).collect::<Vec<_>>().into()
    }

    #[test]
    fn any_part_of_a_piece_is_at_hand() {
        let mut pieces = Pieces::default();
        pieces.add([Piece { start: 100, bytes: bytes(100..200) }]);
        assert_eq!(pieces.get(150..160).unwrap(), bytes(150..160));
        assert_eq!(pieces.get(7..7).unwrap().len(), 0);
        assert!(pieces.take_missing().is_empty());
        assert!(pieces.get(190..201).is_err());
        assert!(pieces.get(99..101).is_err());
    }

    #[test]
    fn what_is_missing_is_asked_for_once_and_in_order() {
        let mut pieces = Pieces::default();
        for range in [90_000..90_010, 10..20, 15..30, 100..110, 90_000..90_001] {
            assert!(pieces.get(range).is_err());
        }
        assert_eq!(pieces.take_missing(), [10..110, 90_000..90_010]);
        assert!(pieces.take_missing().is_empty());
    }

    #[test]
    fn a_segment_is_requested_whole_instead_of_many_pieces() {
        let mut pieces = Pieces::default();
        let request = |pieces: &Pieces, count: u64| {
            for at in 0..count {
                assert!(pieces.get(at * 10_000..at * 10_000 + 10).is_err());
            }
        };
        assert!(pieces.get(500_000..500_010).is_err());
        pieces.begin_segment();
        request(&pieces, 3);
        pieces.request_whole(0..100_000, 4000);
        assert_eq!(pieces.take_missing(), [0..10, 10_000..10_010, 20_000..20_010, 500_000..500_010]);
        request(&pieces, 3);
        pieces.request_whole(0..12_030, 4000);
        assert_eq!(pieces.take_missing(), vec![0..12_030; 1]);
    }

    #[test]
    fn a_list_of_neighbours_does_not_grow() {
        let mut pieces = Pieces::default();
        assert!(pieces.get(0..1).is_err());
        pieces.begin_segment();
        for at in 0..100_000 {
            assert!(pieces.get(1_000_000 + at..1_000_001 + at).is_err());
            // Those far from each other do.
            assert!(pieces.get(2_000_000 + at / 100 * 10_000..2_000_001 + at / 100 * 10_000).is_err());
        }
        assert!(pieces.missing.borrow().latest.capacity() <= 1 << 12);
        let missing = pieces.take_missing();
        assert_eq!(missing[..2], [0..1, 1_000_000..1_100_000]);
        assert_eq!(missing.len(), 1002);
    }

    #[test]
    fn whatever_is_fetched_is_found_however_pieces_overlap() {
        let mut next = crate::kernels::random(1);
        for _ in 0..200 {
            let mut pieces = Pieces::default();
            for _ in 0..30 {
                let start = next() % 200;
                let range = start..start + 1 + next() % 50;
                if pieces.get(range.clone()).is_err() {
                    let missing = pieces.take_missing();
                    pieces.add(
                        missing.into_iter().map(|range| Piece { start: range.start, bytes: bytes(range) }),
                    );
                }
                assert_eq!(pieces.get(range.clone()).unwrap(), bytes(range));
            }
        }
    }
}
