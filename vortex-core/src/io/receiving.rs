//! One request of a read whose bytes are arriving.

use std::ops::Range;

use arrow::buffer::{Buffer, MutableBuffer};
use bytes::Bytes;

use super::pending::Answer;
use crate::{Error, Result};

/// A request for at most this many bytes, and for less than one in this many bytes of a read, gets a copy
/// of them: it is charged for its own bytes only, and may be held for long.
const MAX_COPY: usize = 64 << 10;
const COPY_BELOW: usize = 16;

/// Whether so many bytes are so few of a whole that they are copied.
pub(super) fn is_little(bytes: usize, whole: usize) -> bool {
    bytes <= MAX_COPY && bytes < whole / COPY_BELOW
}

/// What a piece is of the read, which determines whether requests get copies of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Portion {
    /// A piece among others: its bytes are copied.
    Piece,
    /// All bytes, aligned as in the file: they are shared, unless they are far more than was requested.
    Whole,
    /// All bytes, and [the requests share them](super::waiting::Read::is_shared).
    Shared,
}

/// A request while its bytes are arriving.
pub(super) struct Receiving {
    pub(super) range: Range<u64>,
    /// Bytes received so far, if they arrive in several pieces.
    bytes: Option<MutableBuffer>,
    /// The channel for the answer; `None` once it is sent.
    pub(super) answer: Option<Answer>,
}

impl Receiving {
    pub(super) fn new(range: Range<u64>, answer: Answer) -> Self {
        Self { range, bytes: None, answer: Some(answer) }
    }

    /// Takes the relevant bytes of a piece that starts at `at`. Returns whether an answer was delivered.
    pub(super) fn take(&mut self, at: u64, piece: &Bytes, portion: Portion) -> bool {
        if self.answer.is_none() {
            return false;
        }
        let (start, end) = (self.range.start.max(at), self.range.end.min(at + piece.len() as u64));
        if start > end {
            return false;
        }
        // Both lie within the piece, which is in memory.
        let (from, to) = ((start - at) as usize, (end - at) as usize);
        if portion == Portion::Whole && is_little(to - from, piece.len()) {
            return self.answer(Ok(Buffer::from(&piece[from..to])));
        }
        if portion != Portion::Piece {
            return self.answer(Ok(Buffer::from(piece.clone()).slice_with_length(from, to - from)));
        }
        let len = (self.range.end - self.range.start) as usize;
        let bytes = self.bytes.get_or_insert_with(|| MutableBuffer::with_capacity(len));
        bytes.extend_from_slice(&piece[from..to]);
        if bytes.len() < len {
            return false;
        }
        let bytes = self.bytes.take().unwrap_or_default();
        self.answer(Ok(bytes.into()))
    }

    /// Sends the answer; returns whether it is still awaited, since the request may have been withdrawn.
    fn answer(&mut self, outcome: Result<Buffer>) -> bool {
        self.answer.take().is_some_and(|answer| answer.send(outcome))
    }

    pub(super) fn fail(mut self, error: Error) {
        self.answer(Err(error));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::io::pending::pending;
    use crate::io::{MemoryFile, PendingBytes, ReadAt};

    fn receiving(range: Range<u64>) -> (Receiving, PendingBytes) {
        let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(vec![0u8; 10]));
        let (answer, bytes) = pending(&source, range.clone());
        (Receiving::new(range, answer), bytes)
    }

    /// The bytes that a request for `range` receives from a read of `0..len` that arrives in pieces of
    /// `step` bytes.
    fn pieces(range: Range<u64>, len: u8, step: usize) -> Vec<u8> {
        let (mut part, pending) = receiving(range);
        let bytes = Bytes::from((0..len).collect::<Vec<_>>());
        for at in (0..bytes.len()).step_by(step) {
            let piece = bytes.slice(at..bytes.len().min(at + step));
            let portion = if piece.len() == bytes.len() { Portion::Whole } else { Portion::Piece };
            part.take(at as u64, &piece, portion);
        }
        pending.peek().unwrap().as_slice().to_vec()
    }

    #[test]
    fn a_request_is_put_together_from_pieces_of_any_size() {
        for step in 1..=11 {
            assert_eq!(pieces(3..8, 10, step), [3, 4, 5, 6, 7], "pieces of {step}");
            assert_eq!(pieces(0..10, 10, step), (0..10).collect::<Vec<u8>>(), "pieces of {step}");
            assert_eq!(pieces(4..4, 10, step), [0u8; 0], "pieces of {step}");
        }
    }

    #[test]
    fn a_few_bytes_do_not_keep_a_long_read_in_memory() {
        let read = Bytes::from(vec![7; 4 << 20]);
        let is_shared = |range: Range<u64>| {
            let len = (range.end - range.start) as usize;
            let (mut part, pending) = receiving(range);
            part.take(0, &read, Portion::Whole);
            let bytes = pending.peek().unwrap();
            assert_eq!(bytes.as_slice(), &read[..len]);
            read.as_ptr_range().contains(&bytes.as_ptr())
        };
        assert!(!is_shared(100..1000));
        assert!(!is_shared(0..64 << 10));
        assert!(is_shared(0..(64 << 10) + 1), "copying takes time");
        assert!(is_shared(0..4 << 20));
    }

    #[test]
    fn a_request_is_answered_with_its_last_byte_not_with_the_read() {
        let (mut part, pending) = receiving(1..3);
        part.take(0, &Bytes::from_static(&[0, 1, 2, 3]), Portion::Piece);
        assert_eq!(pending.peek().unwrap().as_slice(), [1, 2]);
    }
}
