//! One read from storage: pieces arrive, and each request is answered as soon as its bytes are available.
//!
//! A read ends early once no request waits for it any longer, but not in the middle of a block that is
//! kept for later and of which some bytes were delivered. A read that the store throttles is resumed
//! later from where it stopped, with fewer reads in flight. So is one whose connection breaks after some progress:
//! clients give up what takes longer than half a minute, as reads do that share a slow line with many others. A read
//! that takes far longer than usual is hedged if the source allows it: the missing bytes are requested a second time,
//! and the stream that delivers the next piece first is used from then on.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::buffer::{Buffer, MutableBuffer};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::{Either, select};
use futures::stream::BoxStream;
use tokio::time::Instant;

use super::object_store::is_throttled;
use super::pending::Answer;
use super::scheduler::Slot;
use super::waiting::Read;
use super::{ReadAt, bytes_at_hand, cause, kept_bytes};
use crate::metrics::ScanMetrics;
use crate::{Error, Result};

/// Maximum number of attempts in a row without progress of a read that the store throttles, and the pause before the
/// second one.
const MAX_ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// A read whose connection breaks is resumed if it has delivered at least this many bytes since it was opened.
const MIN_PROGRESS: u64 = 64 << 10;

/// A request for at most this many bytes, and for less than one in this many bytes of a read, gets a copy
/// of them: it is charged for its own bytes only, and may be held for long.
const MAX_COPY: usize = 64 << 10;
const COPY_BELOW: usize = 16;

/// Number of steps in which the time is measured for which a read delivers nothing.
const STALL_STEPS: u32 = 10;

/// Answers the requests of a read whose bytes are at hand: each with bytes of its own, which are freed with it, unless
/// they share some. Returns what is left of the read, from the first request on whose bytes are not at hand.
pub(super) fn hand_over_at_hand(mut read: Read) -> Option<Read> {
    if read.is_shared() {
        let Some(bytes) = bytes_at_hand(read.source.as_ref(), &read.range) else { return Some(read) };
        count(&read);
        answer(read, &bytes);
        return None;
    }
    let at_hand = read.serves.iter().map_while(|request| bytes_at_hand(read.source.as_ref(), &request.range));
    let at_hand: Vec<Bytes> = at_hand.collect();
    let Some(first) = read.serves.first().filter(|_| !at_hand.is_empty()) else { return Some(read) };
    first.metrics.reads.add(1);
    first.metrics.bytes_read.add(at_hand.iter().map(|bytes| bytes.len() as u64).sum());
    let answered = read.serves.drain(..at_hand.len());
    answered.zip(at_hand).for_each(|(request, bytes)| request.answer(bytes.into()));
    Read::of(read.source, read.serves)
}

/// Answers the requests of a read that has been made by another scan in the meantime.
fn hand_over_cached(read: Read, bytes: &Bytes) {
    for request in &read.serves {
        request.metrics.cache_hits.add(1);
    }
    answer(read, bytes);
}

fn answer(read: Read, bytes: &Bytes) {
    let start = read.range.start;
    let portion = if read.is_shared() { Portion::Shared } else { Portion::Whole };
    for request in read.serves {
        Receiving::new(request.range, request.answer).take(start, bytes, portion);
    }
}

fn count(read: &Read) {
    if let Some(first) = read.serves.first() {
        first.metrics.reads.add(1);
        first.metrics.bytes_read.add(read.range.end - read.range.start);
        first.metrics.bytes_wasted.add(read.wasted);
    }
}

/// Performs a read and answers its requests.
pub(super) async fn deliver(read: Read, mut slot: Slot) {
    // Its bytes may have become available while it was waiting.
    if let Some(bytes) = kept_bytes(read.source.as_ref(), &read.range) {
        return hand_over_cached(read, &bytes);
    }
    // The first read was tried when it was requested; those after it were not.
    let Some(read) = hand_over_at_hand(read) else { return };
    count(&read);
    let mut delivery = Delivery::new(read);
    // Attempts without progress.
    let mut attempts = 0;
    loop {
        let (started, before) = (Instant::now(), delivery.at);
        let received = delivery.receive(&slot).await;
        let (progress, missing) = (delivery.at - before, delivery.range.end - before);
        attempts = if progress < MIN_PROGRESS { attempts + 1 } else { 0 };
        match received {
            Received::All { opened } => {
                let first_byte = opened.map_or(Duration::ZERO, |opened| opened.duration_since(started));
                let rest = started.elapsed().saturating_sub(first_byte);
                return slot.note(first_byte, rest, missing);
            }
            // Of a hedged read, the time that it would have taken alone is unknown.
            Received::Hedged | Received::Abandoned => return,
            Received::Broken(error)
                if attempts == 0 && delivery.source.profile().remote
                    || attempts < MAX_ATTEMPTS && is_throttled(&error) =>
            {
                let pause = pause(&mut slot, FIRST_PAUSE * 2u32.pow(attempts.saturating_sub(1)));
                if unless_abandoned(delivery.waiting(), false, pause).await.is_none() {
                    return;
                }
            }
            Received::Broken(error) | Received::Failed(error) => return delivery.fail(&error),
        }
    }
}

/// Pauses a read that was throttled until it may be resumed: about as long as said, or longer if too many others are
/// in flight then.
async fn pause(slot: &mut Slot, mut pause: Duration) {
    slot.slow_down();
    loop {
        tokio::time::sleep(spread(pause, RandomState::new().hash_one(0))).await;
        if slot.resume() {
            return;
        }
        pause = FIRST_PAUSE;
    }
}

/// Between half of a pause and one and a half of it, so that reads which were throttled together are not all resumed at
/// the same time.
fn spread(pause: Duration, random: u64) -> Duration {
    pause / 2 + pause.mul_f64(random as f64 / u64::MAX as f64)
}

/// A read in progress.
struct Delivery {
    source: Arc<dyn ReadAt>,
    range: Range<u64>,
    /// Its requests, in the order in which they start.
    parts: Vec<Receiving>,
    /// Number of them, from the first on, that are answered.
    answered: usize,
    /// The bytes received so far, if the requests share those of the whole read.
    received: Option<Vec<u8>>,
    metrics: Arc<ScanMetrics>,
    /// Position of the next byte to receive.
    at: u64,
    /// End of the blocks to be kept, among those of requests already answered.
    kept_end: u64,
}

/// The outcome of an attempt to receive the rest of a read.
enum Received {
    All {
        opened: Option<Instant>,
    },
    /// Everything was received, but requested twice.
    Hedged,
    /// No request waits for the rest.
    Abandoned,
    /// The source failed.
    Broken(Error),
    /// Nothing arrived for too long, or other bytes than were asked for.
    Failed(Error),
}

impl Delivery {
    fn new(read: Read) -> Self {
        let metrics = read.serves.first().map(|request| Arc::clone(&request.metrics)).unwrap_or_default();
        let received = read.is_shared().then(Vec::new);
        let Read { source, range, serves, .. } = read;
        let parts = serves.into_iter().map(|request| Receiving::new(request.range, request.answer));
        let mut parts: Vec<_> = parts.collect();
        parts.sort_by_key(|part| part.range.start);
        Self { at: range.start, kept_end: range.start, source, range, parts, answered: 0, received, metrics }
    }

    /// Receives pieces until the read is complete.
    async fn receive(&mut self, slot: &Slot) -> Received {
        let profile = self.source.profile();
        let stall = profile.remote.then(|| slot.stall());
        let first = self.at;
        let mut hedge = Hedge::Not;
        let (mut opened, mut open) = (None, None);
        if self.range.is_empty() {
            self.take(&Bytes::new());
        }
        while self.at < self.range.end {
            let rest = self.at..self.range.end;
            // What is late is usually the first byte, not those that follow.
            let bytes = if self.at == first { 0 } else { self.range.end - first };
            let may_hedge = profile.remote && hedge == Hedge::Not;
            let overdue = slot.overdue(if may_hedge { profile.hedge } else { 0 }, bytes);
            let again = || {
                hedge = if slot.may_hedge() { Hedge::Asked } else { Hedge::Refused };
                (hedge == Hedge::Asked).then(|| {
                    self.metrics.reads.add(1);
                    self.metrics.reads_hedged.add(1);
                    next_piece(&self.source, rest.clone(), None)
                })
            };
            let step = hedged(next_piece(&self.source, rest.clone(), open.take()), overdue, again);
            let goes_on = self.at < self.kept_end;
            let arrived = unless_abandoned(self.waiting(), goes_on, unless_stalled(stall, step)).await;
            match arrived {
                None => return Received::Abandoned,
                Some(Err(stalled)) => return Received::Failed(stalled),
                Some(Ok(Err(error))) => return Received::Broken(error),
                Some(Ok(Ok(None))) => {
                    return self.failed(ErrorKind::UnexpectedEof, format!("the data ends at {}", self.at));
                }
                Some(Ok(Ok(Some(Arrived { piece, rest, opened_at })))) => {
                    opened = opened.or(opened_at);
                    let excess = self.take(&piece);
                    if excess > 0 {
                        let message = format!("{excess} bytes more than asked for");
                        return self.failed(ErrorKind::InvalidData, message);
                    }
                    open = Some(rest);
                }
            }
        }
        if hedge == Hedge::Asked { Received::Hedged } else { Received::All { opened } }
    }

    /// Passes a piece on to the requests. Returns the number of bytes that are more than was asked for; nothing is
    /// taken of such a piece.
    fn take(&mut self, piece: &Bytes) -> u64 {
        let end = self.at.saturating_add(piece.len() as u64);
        if end > self.range.end {
            return end - self.range.end;
        }
        let start = std::mem::replace(&mut self.at, end);
        let is_whole = start == self.range.start && end == self.range.end;
        match &mut self.received {
            Some(received) if !is_whole => {
                received.extend_from_slice(piece);
                if end == self.range.end {
                    let all = Bytes::from(std::mem::take(received));
                    self.hand_on(self.range.start, &all, Portion::Shared);
                }
            }
            Some(_) => self.hand_on(start, piece, Portion::Shared),
            None if is_whole => self.hand_on(start, piece, Portion::Whole),
            None => self.hand_on(start, piece, Portion::Piece),
        }
        0
    }

    fn hand_on(&mut self, start: u64, bytes: &Bytes, portion: Portion) {
        let end = start + bytes.len() as u64;
        let waiting = &mut self.parts[self.answered..];
        let reached = waiting.partition_point(|part| part.range.start <= end);
        for part in &mut waiting[..reached] {
            if part.take(start, bytes, portion) {
                let block_end = self.source.widened(part.range.clone()).end.min(self.range.end);
                self.kept_end = self.kept_end.max(block_end);
            }
        }
        self.answered += waiting.iter().take_while(|part| part.answer.is_none()).count();
    }

    /// The requests that may still have to be answered. A read may have tens of thousands, and arrive in hundreds of
    /// pieces.
    fn waiting(&self) -> &[Receiving] {
        &self.parts[self.answered..]
    }

    fn failed(&self, kind: ErrorKind, message: String) -> Received {
        let error = std::io::Error::new(kind, message);
        Received::Failed(Error::read(self.source.name(), self.range.clone(), error))
    }

    fn fail(self, error: &Error) {
        for part in self.parts {
            let source = match error.root() {
                Error::Read { source, .. } | Error::External(source) => cause::same(source.as_ref()),
                other => other.to_string().into(),
            };
            part.fail(Error::read(self.source.name(), self.range.clone(), source));
        }
    }
}

/// Whether a read was requested a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hedge {
    Not,
    Asked,
    /// Not allowed: too many other reads were hedged.
    Refused,
}

type Pieces = BoxStream<'static, Result<Bytes>>;

/// A piece, and the stream that delivers the pieces after it.
struct Arrived {
    piece: Bytes,
    rest: Pieces,
    /// The time at which the stream was opened, if this is its first piece.
    opened_at: Option<Instant>,
}

/// The next piece of an open stream, or the first of a new one.
async fn next_piece(
    source: &Arc<dyn ReadAt>,
    range: Range<u64>,
    open: Option<Pieces>,
) -> Result<Option<Arrived>> {
    let (mut rest, opened_at) = match open {
        Some(open) => (open, None),
        None => (source.stream(range).await?, Some(Instant::now())),
    };
    let piece = rest.next().await.transpose()?;
    Ok(piece.map(|piece| Arrived { piece, rest, opened_at }))
}

/// Awaits `work`, and once it is `overdue` also the future returned by `again`, which does the same work.
/// Returns the result of whichever succeeds first and drops the other.
async fn hedged<T, W: Future<Output = Result<T>>>(
    work: impl Future<Output = Result<T>>,
    overdue: impl Future<Output = ()>,
    again: impl FnOnce() -> Option<W>,
) -> Result<T> {
    let mut work = pin!(work);
    if let Either::Left((outcome, _)) = select(&mut work, pin!(overdue)).await {
        return outcome;
    }
    let Some(second) = again() else { return work.await };
    match select(work, pin!(second)).await {
        Either::Left((Ok(outcome), _)) | Either::Right((Ok(outcome), _)) => Ok(outcome),
        Either::Left((Err(_), second)) => second.await,
        Either::Right((Err(_), work)) => work.await,
    }
}

/// The output of `work`, or an error if it takes longer than `limit`, not counting the time in which the
/// runtime stood still: nobody could receive anything then.
async fn unless_stalled<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Result<T> {
    let Some(limit) = limit else { return Ok(work.await) };
    let mut work = pin!(work);
    // However long the runtime stands still, it uses up no more than one step.
    for _ in 0..STALL_STEPS {
        if let Ok(output) = tokio::time::timeout(limit / STALL_STEPS, &mut work).await {
            return Ok(output);
        }
    }
    let message = format!("no data received for {} s", limit.as_secs_f64());
    Err(Error::external(std::io::Error::new(ErrorKind::TimedOut, message)))
}

/// The output of `work`, or `None` once no request waits for any part any longer, unless the read
/// `goes_on` in that case.
async fn unless_abandoned<T>(parts: &[Receiving], goes_on: bool, work: impl Future<Output = T>) -> Option<T> {
    if goes_on {
        return Some(work.await);
    }
    let abandoned = async {
        for answer in parts.iter().filter_map(|part| part.answer.as_ref()) {
            answer.withdrawn().await;
        }
    };
    match select(pin!(work), pin!(abandoned)).await {
        Either::Left((outcome, _)) => Some(outcome),
        Either::Right(_) => None,
    }
}

/// What a piece is of the read, which determines whether requests get copies of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Portion {
    /// A piece among others: its bytes are copied.
    Piece,
    /// All bytes, aligned as in the file: they are shared, unless they are far more than was requested.
    Whole,
    /// All bytes, and [the requests share them](Read::is_shared).
    Shared,
}

/// A request while its bytes are arriving.
struct Receiving {
    range: Range<u64>,
    /// Bytes received so far, if they arrive in several pieces.
    bytes: Option<MutableBuffer>,
    /// The channel for the answer; `None` once it is sent.
    answer: Option<Answer>,
}

impl Receiving {
    fn new(range: Range<u64>, answer: Answer) -> Self {
        Self { range, bytes: None, answer: Some(answer) }
    }

    /// Takes the relevant bytes of a piece that starts at `at`. Returns whether an answer was delivered.
    fn take(&mut self, at: u64, piece: &Bytes, portion: Portion) -> bool {
        if self.answer.is_none() {
            return false;
        }
        let (start, end) = (self.range.start.max(at), self.range.end.min(at + piece.len() as u64));
        if start > end {
            return false;
        }
        // Both lie within the piece, which is in memory.
        let (from, to) = ((start - at) as usize, (end - at) as usize);
        let is_little = to - from <= MAX_COPY && to - from < piece.len() / COPY_BELOW;
        if portion == Portion::Whole && is_little {
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

    fn fail(mut self, error: Error) {
        self.answer(Err(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::pending::pending;
    use crate::io::{MemoryFile, PendingBytes};

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

    #[tokio::test]
    async fn a_runtime_that_stands_still_makes_no_read_fail() {
        let limit = Some(Duration::from_millis(100));
        // As bytes that another task receives, it is not ready at once when the runtime goes on.
        let work = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            tokio::task::yield_now().await;
        };
        let read = tokio::spawn(unless_stalled(limit, work));
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(400));
        read.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_read_that_delivers_nothing_fails() {
        let stalled = unless_stalled(Some(Duration::from_millis(20)), std::future::pending::<()>()).await;
        assert!(stalled.unwrap_err().to_string().contains("no data received for 0.02 s"));
    }

    #[test]
    fn pauses_differ_by_up_to_their_length() {
        let pause = Duration::from_millis(50);
        let spread = [0, u64::MAX / 4, u64::MAX / 2, u64::MAX].map(|random| spread(pause, random));
        let expected = [25.0, 37.5, 50.0, 75.0].map(|millis| Duration::from_secs_f64(millis / 1000.0));
        assert_eq!(spread, expected);
    }

    #[test]
    fn a_request_is_answered_with_its_last_byte_not_with_the_read() {
        let (mut part, pending) = receiving(1..3);
        part.take(0, &Bytes::from_static(&[0, 1, 2, 3]), Portion::Piece);
        assert_eq!(pending.peek().unwrap().as_slice(), [1, 2]);
    }
}
