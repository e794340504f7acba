//! One read from storage: pieces arrive, and each request is answered as soon as its bytes are available.
//!
//! A read ends early once no request waits for it any longer, but not in the middle of a block that is
//! kept for later and of which some bytes were delivered. A read that the store throttles is resumed
//! later from where it stopped, with fewer reads in flight. So is one whose connection breaks while its bytes arrive;
//! with fewer reads in flight only if that took long: clients give up what takes half a minute, as reads do that share
//! a slow line with many others. A read that takes far longer than usual is hedged if the source allows it: the missing
//! bytes are requested a second time, and the stream that delivers the next piece first is used from then on.

use std::future::{Future, pending};
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::{Either, select};
use futures::stream::BoxStream;
use tokio::time::Instant;

use super::late::{hedged, unless_stalled};
use super::object_store::is_throttled;
use super::receiving::{Portion, Receiving};
use super::store_queue::Slot;
use super::waiting::Read;
use super::{ReadAt, bytes_at_hand, cause, kept_bytes};
use crate::metrics::ScanMetrics;
use crate::{Error, Result};

/// Maximum number of attempts in a row without progress of a read that the store throttles, and the pause before the
/// second one.
const MAX_ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The same for a read whose connection breaks while its bytes arrive.
const MAX_BREAKS: u32 = 3;

/// An attempt that has delivered at least this many bytes has made progress.
const MIN_PROGRESS: u64 = 64 << 10;

/// A connection that breaks after one part in this many of the time in which a read may deliver nothing, 10 seconds by
/// default, was given up because it was slow.
const SLOW_SHARE: u32 = 6;

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
            // Hedged reads count, too: if all reads take longer from now on, predictions have to follow.
            Received::All { opened } => {
                let first_byte = opened.map_or(Duration::ZERO, |opened| opened.duration_since(started));
                let rest = started.elapsed().saturating_sub(first_byte);
                return slot.queue().note(first_byte, rest, missing);
            }
            Received::Abandoned => return,
            Received::Broken(Broken { error, was_open }) => {
                let is_throttled = is_throttled(&error);
                let may_break = (was_open || progress > 0) && delivery.source.profile().remote;
                let most = if is_throttled { MAX_ATTEMPTS } else { u32::from(may_break) * MAX_BREAKS };
                if attempts >= most {
                    return delivery.fail(&error);
                }
                if is_throttled || started.elapsed() >= slot.queue().stall / SLOW_SHARE {
                    slot.slow_down();
                }
                let pause = pause(&mut slot, FIRST_PAUSE * 2u32.pow(attempts.saturating_sub(1)));
                if unless_abandoned(delivery.waiting(), false, pause).await.is_none() {
                    return;
                }
            }
            Received::Failed(error) => return delivery.fail(&error),
        }
    }
}

/// Pauses a read until it may be resumed: about as long as said, or longer if too many others are in flight then.
async fn pause(slot: &mut Slot, mut pause: Duration) {
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
    /// No request waits for the rest.
    Abandoned,
    /// The source failed.
    Broken(Broken),
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
        let stall = profile.remote.then(|| slot.queue().stall);
        let first = self.at;
        // None is requested a third time, or asked about again.
        let mut factor = if profile.remote { profile.hedge } else { 0 };
        let mut all_late = pin!(slot.queue().overdue(factor, self.range.end - first));
        let (mut opened, mut open) = (None, None);
        if self.range.is_empty() {
            self.take(&Bytes::new());
        }
        while self.at < self.range.end {
            let rest = self.at..self.range.end;
            let may_hedge = factor > 0;
            // What is late is usually the first byte, not those that follow.
            let first_late = slot.queue().overdue(if self.at == first { factor } else { 0 }, 0);
            let all_late = all_late.as_mut();
            let overdue = async move {
                if !may_hedge {
                    return pending().await;
                }
                select(pin!(first_late), all_late).await;
            };
            let again = || {
                factor = 0;
                slot.queue().may_hedge().then(|| {
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
                Some(Err(stalled)) => return Received::Failed(Error::external(stalled)),
                Some(Ok(Err(broken))) => return Received::Broken(broken),
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
        Received::All { opened }
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

type Pieces = BoxStream<'static, Result<Bytes>>;

/// Why there is no next piece.
struct Broken {
    error: Error,
    /// Whether the source had begun to deliver.
    was_open: bool,
}

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
) -> Result<Option<Arrived>, Broken> {
    let broken = |was_open| move |error| Broken { error, was_open };
    let (mut rest, opened_at) = match open {
        Some(open) => (open, None),
        None => (source.stream(range).await.map_err(broken(false))?, Some(Instant::now())),
    };
    let piece = rest.next().await.transpose().map_err(broken(true))?;
    Ok(piece.map(|piece| Arrived { piece, rest, opened_at }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_by_up_to_their_length() {
        let pause = Duration::from_millis(50);
        let spread = [0, u64::MAX / 4, u64::MAX / 2, u64::MAX].map(|random| spread(pause, random));
        let expected = [25.0, 37.5, 50.0, 75.0].map(|millis| Duration::from_secs_f64(millis / 1000.0));
        assert_eq!(spread, expected);
    }
}
