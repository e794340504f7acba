//! Bytes of a file that are fetched piece by piece: those at hand, and those asked for.
//!
//! ```text
//! file   ....[--- piece ---]......[-- piece --]....
//!              ^ at hand: any range within one        ^ else it is noted as missing
//! ```
//!
//! Whoever makes an array from pieces asks for what it needs, and fails if that is not at hand.
//! The missing ranges are fetched, and it is asked again, until nothing is missing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use arrow::buffer::Buffer;

use crate::{Error, Result};

/// Ranges this close are fetched as one: reading so many bytes takes no longer than a call.
const GAP: u64 = 4 << 10;

/// Pieces of one file. No piece lies within another.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    at_hand: BTreeMap<u64, Buffer>,
    missing: RefCell<Vec<Range<u64>>>,
}

impl Pieces {
    /// The bytes of a range.
    ///
    /// # Errors
    /// If they are not at hand; then they are noted as missing.
    pub(crate) fn get(&self, range: Range<u64>) -> Result<Buffer> {
        if range.is_empty() {
            return Ok(Buffer::default());
        }
        // Of the pieces that start no later, the last one ends last.
        if let Some((start, bytes)) = self.at_hand.range(..=range.start).next_back()
            && range.end - start <= bytes.len() as u64
        {
            let len = range.end - range.start;
            return Ok(bytes.slice_with_length((range.start - start) as usize, len as usize));
        }
        self.missing.borrow_mut().push(range);
        Err(Error::NotFetched)
    }

    /// What was asked for in vain, in order, with ranges that lie close joined. Forgets it.
    pub(crate) fn take_missing(&mut self) -> Vec<Range<u64>> {
        let mut missing = std::mem::take(self.missing.get_mut());
        missing.sort_unstable_by_key(|range| range.start);
        missing.dedup_by(|next, range| {
            let close = next.start <= range.end.saturating_add(GAP);
            if close {
                range.end = range.end.max(next.end);
            }
            close
        });
        missing
    }

    /// Adds the bytes that start at a position of the file.
    pub(crate) fn insert(&mut self, start: u64, bytes: Buffer) {
        let end = start + bytes.len() as u64;
        let ends_by = |(start, bytes): (&u64, &Buffer), end| start + bytes.len() as u64 <= end;
        if let Some((at, before)) = self.at_hand.range(..=start).next_back()
            && at + before.len() as u64 >= end
        {
            return;
        }
        while let Some(inner) = self.at_hand.range(start..).next()
            && ends_by(inner, end)
        {
            let at = *inner.0;
            self.at_hand.remove(&at);
        }
        self.at_hand.insert(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a file whose bytes are their positions.
    fn bytes(range: Range<u64>) -> Buffer {
        range.map(|at| at as u8).collect::<Vec<_>>().into()
    }

    #[test]
    fn any_part_of_a_piece_is_at_hand() {
        let mut pieces = Pieces::default();
        pieces.insert(100, bytes(100..200));
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
    fn whatever_is_fetched_is_found_however_pieces_overlap() {
        let mut next = crate::kernels::random(1);
        for _ in 0..200 {
            let mut pieces = Pieces::default();
            for _ in 0..30 {
                let start = next() % 200;
                let range = start..start + 1 + next() % 50;
                if pieces.get(range.clone()).is_err() {
                    for missing in pieces.take_missing() {
                        pieces.insert(missing.start, bytes(missing));
                    }
                }
                assert_eq!(pieces.get(range.clone()).unwrap(), bytes(range));
            }
        }
    }
}
