//! Requests not yet served by a read, and the choice of the next reads.
//!
//! ```text
//! wanted by urgency     1. zone maps   2. filter   3. projection
//! by position           [--a--][-b-]   gap   [---c---]              [-d-]
//! next reads            those that serve the most urgent requests, with all
//!                       others wanted now that lie close to them
//! ```
//!
//! Requests that are likely to be followed by neighbours are not ripe: they wait for them, but join a
//! read that covers their surroundings. While more reads are due than may be in flight, larger gaps are
//! read than would otherwise pay, since another read would have to wait. A choice looks at all requests, so that reads
//! which are due, but have no slot yet, remain chosen until other requests arrive or ripen. Now and then, a choice is
//! for the request that has waited longest, so that no scan stands still while others keep requesting.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::buffer::Buffer;

use super::coalesce::coalesce;
use super::pending::Answer;
use super::{ReadAt, StorageProfile, Urgency};
use crate::metrics::ScanMetrics;

/// A request for a range of a file. It is withdrawn when the receiver is dropped.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) range: Range<u64>,
    pub(super) urgency: Urgency,
    /// When it was made.
    pub(super) since: Instant,
    pub(super) answer: Answer,
    pub(super) metrics: Arc<ScanMetrics>,
    /// Whether it may start a read.
    pub(super) is_ripe: bool,
}

impl QueuedRequest {
    pub(super) fn answer(self, bytes: Buffer) {
        // It may have been withdrawn.
        self.answer.send(Ok(bytes));
    }

    fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }
}

/// A read to make, and the requests it serves.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) source: Arc<dyn ReadAt>,
    pub(super) range: Range<u64>,
    pub(super) wasted: u64,
    pub(super) serves: Vec<QueuedRequest>,
}

impl Read {
    /// A single read for all of these requests, if there are any.
    pub(super) fn of(source: Arc<dyn ReadAt>, serves: Vec<QueuedRequest>) -> Option<Self> {
        let start = serves.iter().map(|request| request.range.start).min()?;
        let end = serves.iter().map(|request| request.range.end).max()?;
        let wanted = serves.iter().fold(0, |wanted: u64, request| wanted.saturating_add(request.len()));
        Some(Self { source, range: start..end, wasted: (end - start).saturating_sub(wanted), serves })
    }

    /// Whether the requests that it serves share their bytes.
    pub(super) fn is_shared(&self) -> bool {
        exceed(&self.serves, &self.range)
    }
}

/// Whether these requests ask for more bytes than the range has in which they lie: then, some of them overlap. Segments
/// of a malicious file may all be the whole file: if each of them got a copy of its bytes, memory would be unlimited.
/// Where they do not exceed the range, copies do not either.
pub(super) fn exceed(requests: &[QueuedRequest], within: &Range<u64>) -> bool {
    let wanted = requests.iter().fold(0, |wanted: u64, request| wanted.saturating_add(request.len()));
    wanted > within.end.saturating_sub(within.start)
}

/// A request that has waited for this long has a turn, whatever its urgency: urgencies of different scans say little
/// about each other, and while others keep coming, those of a scan that is far ahead would never be served.
const LONG: Duration = Duration::from_secs(1);

/// One in this many choices is for the request that has waited longest.
const TURN: u32 = 4;

/// Which request is served first: the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It has waited for long, since then.
    Long(Instant),
    Urgent(Urgency),
}

/// Requests, by file.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    files: Vec<(Arc<dyn ReadAt>, Vec<QueuedRequest>)>,
    /// Number of choices so far.
    choices: u32,
    /// Reads that were chosen, but had no slot yet: all of one file, and for its most urgent requests.
    chosen: VecDeque<Read>,
}

impl Waiting {
    pub(super) fn push(&mut self, source: &Arc<dyn ReadAt>, requests: Vec<QueuedRequest>) {
        self.choose_again();
        self.add(source, requests);
    }

    fn add(&mut self, source: &Arc<dyn ReadAt>, requests: Vec<QueuedRequest>) {
        match self.files.iter_mut().find(|(file, _)| Arc::ptr_eq(file, source)) {
            Some((_, waiting)) => waiting.extend(requests),
            None => self.files.push((Arc::clone(source), requests)),
        }
    }

    /// Turns reads that were chosen back into requests, to be chosen together with others.
    fn choose_again(&mut self) {
        for read in std::mem::take(&mut self.chosen) {
            self.add(&read.source, read.serves);
        }
    }

    /// Number of requests.
    pub(super) fn len(&self) -> usize {
        let chosen = self.chosen.iter().map(|read| read.serves.len());
        self.files.iter().map(|(_, waiting)| waiting.len()).chain(chosen).sum()
    }

    /// Whether no requests are waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.chosen.is_empty()
    }

    /// All requests.
    pub(super) fn into_requests(mut self) -> impl Iterator<Item = QueuedRequest> {
        self.choose_again();
        self.files.into_iter().flat_map(|(_, waiting)| waiting)
    }

    /// Drops requests whose answer nobody waits for any more.
    pub(super) fn forget_withdrawn(&mut self) {
        self.choose_again();
        for (_, waiting) in &mut self.files {
            waiting.retain(|request| !request.answer.is_withdrawn());
        }
        self.files.retain(|(_, waiting)| !waiting.is_empty());
    }

    /// Marks all waiting requests as due.
    pub(super) fn ripen(&mut self) {
        self.choose_again();
        for (_, waiting) in &mut self.files {
            waiting.iter_mut().for_each(|request| request.is_ripe = true);
        }
    }

    /// Takes out the reads that serve the most urgent ripe requests of the file that has them, as many as its
    /// store has `free` slots for.
    pub(super) fn next(
        &mut self,
        free: impl Fn(StorageProfile) -> usize,
        adapt: impl Fn(StorageProfile) -> StorageProfile,
    ) -> Vec<Read> {
        loop {
            if self.chosen.is_empty() {
                self.choose(&free, &adapt);
            }
            let Some(first) = self.chosen.front() else { return Vec::new() };
            let free = free(first.source.profile());
            let next = self.take_chosen(free);
            // Requests of the reads that were chosen may have been withdrawn.
            if free == 0 || !next.is_empty() {
                return next;
            }
        }
    }

    /// Chooses the reads that serve the most urgent ripe requests of the file that has them, if there is a free slot.
    fn choose(
        &mut self,
        free: impl Fn(StorageProfile) -> usize,
        adapt: impl Fn(StorageProfile) -> StorageProfile,
    ) {
        self.forget_withdrawn();
        let (now, is_turn) = (Instant::now(), self.choices % TURN == TURN - 1);
        let rank = |request: &QueuedRequest| {
            if is_turn && now.duration_since(request.since) >= LONG {
                Rank::Long(request.since)
            } else {
                Rank::Urgent(request.urgency)
            }
        };
        let first =
            |waiting: &[QueuedRequest]| waiting.iter().filter(|request| request.is_ripe).map(rank).min();
        let files = self.files.iter().enumerate();
        let ranks = files.filter_map(|(at, (_, waiting))| Some((at, first(waiting)?)));
        let Some((at, best)) = ranks.min_by_key(|(_, rank)| *rank) else { return };
        let (source, waiting) = &mut self.files[at];
        let free = free(source.profile());
        if free == 0 {
            return;
        }
        self.choices = self.choices.wrapping_add(1);
        let wanted: Vec<Range<u64>> = waiting.iter().map(|request| request.range.clone()).collect();
        let profile = adapt(source.profile());
        let reads = coalesce(&wanted, &profile, free.max(profile.concurrency / 2));
        let is_due = |at: &usize| waiting[*at].is_ripe && rank(&waiting[*at]) == best;
        let due: Vec<_> = reads.into_iter().filter(|read| read.serves.iter().any(is_due)).collect();
        let mut requests: Vec<Option<QueuedRequest>> = waiting.drain(..).map(Some).collect();
        let len = |range: &Range<u64>| range.end - range.start;
        let due = due.into_iter().map(|read| {
            let range = source.widened(read.range.clone());
            let wasted = read.wasted + len(&range).saturating_sub(len(&read.range));
            let serves = read.serves.iter().filter_map(|at| requests[*at].take()).collect();
            Read { source: Arc::clone(source), range, wasted, serves }
        });
        self.chosen = due.collect();
        waiting.extend(requests.into_iter().flatten());
        if waiting.is_empty() {
            self.files.swap_remove(at);
        }
    }

    /// Takes out at most `count` of the reads that were chosen.
    fn take_chosen(&mut self, count: usize) -> Vec<Read> {
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some(mut read) = self.chosen.pop_front()
        {
            let before = read.serves.len();
            read.serves.retain(|request| !request.answer.is_withdrawn());
            if read.serves.len() == before {
                taken.push(read);
            } else if !read.serves.is_empty() {
                // The others may need fewer bytes.
                self.add(&read.source, read.serves);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryFile;
    use crate::io::pending::{PendingBytes, pending};

    fn request(range: Range<u64>, urgency: Urgency) -> (QueuedRequest, PendingBytes) {
        let (answer, bytes) = pending(&file(), range.clone());
        let since = Instant::now();
        (QueuedRequest { range, urgency, since, answer, metrics: Arc::default(), is_ripe: true }, bytes)
    }

    fn file() -> Arc<dyn ReadAt> {
        Arc::new(MemoryFile::new(vec![0u8; 10]))
    }

    fn remote(_: StorageProfile) -> StorageProfile {
        StorageProfile::REMOTE
    }

    #[test]
    fn the_most_urgent_request_goes_first_and_takes_its_neighbours_along() {
        let far = 100 << 20;
        let (a, _a) = request(0..10, Urgency::projection(0));
        let (b, _b) = request(far..far + 10, Urgency::filter(7));
        let (c, _c) = request(far + 20..far + 30, Urgency::projection(9));
        let (d, _d) = request(0..64, Urgency::filter(8));
        let mut waiting = Waiting::default();
        let (first, second) = (file(), file());
        waiting.push(&first, vec![a, b, c]);
        waiting.push(&second, vec![d]);
        let mut next = || {
            let reads = waiting.next(|_| 8, remote);
            reads.into_iter().map(|read| (read.range, read.serves.len())).collect::<Vec<_>>()
        };
        assert_eq!([next(), next(), next()], [[(far..far + 30, 2)], [(0..64, 1)], [(0..10, 1)]]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_scan_that_is_far_ahead_is_served_although_more_urgent_requests_keep_coming() {
        let (ahead, mut waiting) = (file(), Waiting::default());
        let (mut old, _old) = far_apart(0..2, Urgency::projection(500));
        for request in &mut old {
            request.since = Instant::now().checked_sub(LONG).unwrap();
        }
        waiting.push(&ahead, old);
        let mut answers = Vec::new();
        let served = (0..2 * u64::from(TURN)).filter(|at| {
            // Choices that come to nothing, since no slot is free, use up no turn.
            (0..*at).for_each(|_| assert!(waiting.next(|_| 0, remote).is_empty()));
            let (new, answer) = request(9 * FAR..9 * FAR + 64, Urgency::filter(0));
            waiting.push(&file(), vec![new]);
            answers.push(answer);
            waiting.next(|_| 1, remote).pop().is_some_and(|read| Arc::ptr_eq(&read.source, &ahead))
        });
        assert_eq!(served.count(), 2, "one in {TURN}");
    }

    #[test]
    fn requests_of_one_urgency_are_read_together_as_far_as_there_are_slots() {
        let far = 100 << 20;
        let (requests, _answers): (Vec<_>, Vec<_>) =
            (0..5).map(|at| request(at * far..at * far + 10, Urgency::filter(at / 4))).unzip();
        let mut waiting = Waiting::default();
        waiting.push(&file(), requests);
        let mut starts = |free| {
            waiting.next(|_| free, remote).iter().map(|read| read.range.start / far).collect::<Vec<_>>()
        };
        assert_eq!(
            [starts(3), starts(3), starts(0), starts(3), starts(3)],
            [vec![0, 1, 2], vec![3], vec![], vec![4], vec![]]
        );
    }

    /// A request per number, at that many times 100 MiB.
    fn far_apart(
        numbers: impl IntoIterator<Item = u64>,
        urgency: Urgency,
    ) -> (Vec<QueuedRequest>, Vec<PendingBytes>) {
        numbers.into_iter().map(|at| request(at * FAR..at * FAR + 64, urgency)).unzip()
    }

    const FAR: u64 = 100 << 20;

    /// The number and the length of the next read, if there is one slot.
    fn next_one(waiting: &mut Waiting) -> Option<(u64, u64)> {
        let read = waiting.next(|_| 1, remote).pop()?;
        Some((read.range.start / FAR, read.range.end - read.range.start))
    }

    #[test]
    fn reads_that_wait_for_slots_are_chosen_once() {
        let (requests, _answers) = far_apart(0..100, Urgency::filter(0));
        let mut waiting = Waiting::default();
        waiting.push(&file(), requests);
        let choices = std::cell::Cell::new(0);
        for at in 0..100 {
            assert!(waiting.next(|_| 0, remote).is_empty());
            let count = |profile| {
                choices.set(choices.get() + 1);
                remote(profile)
            };
            let reads = waiting.next(|_| 1, count);
            assert_eq!(reads.iter().map(|read| read.range.start / FAR).collect::<Vec<_>>(), [at]);
            assert_eq!((waiting.len(), waiting.is_empty()), (99 - at as usize, at == 99));
        }
        assert_eq!(choices.get(), 1);
    }

    #[test]
    fn a_request_that_arrives_while_reads_wait_for_slots_goes_first_or_along_with_one() {
        let (file, mut waiting) = (file(), Waiting::default());
        let (requests, _answers) = far_apart(0..4, Urgency::filter(1));
        waiting.push(&file, requests);
        assert_eq!(next_one(&mut waiting), Some((0, 64)));
        let (urgent, _urgent) = request(9 * FAR..9 * FAR + 64, Urgency::filter(0));
        let (near, _near) = request(FAR + 64..FAR + 128, Urgency::projection(0));
        waiting.push(&file, vec![near]);
        waiting.push(&self::file(), vec![urgent]);
        let rest: Vec<_> = std::iter::from_fn(|| next_one(&mut waiting)).collect();
        assert_eq!(rest, [(9, 64), (1, 128), (2, 64), (3, 64)]);
    }

    #[test]
    fn requests_withdrawn_while_their_reads_wait_for_slots_are_not_read() {
        let mut waiting = Waiting::default();
        let (mut requests, mut answers) = far_apart(0..4, Urgency::filter(0));
        let (near, kept) = request(2 * FAR + 64..2 * FAR + 192, Urgency::filter(0));
        requests.push(near);
        waiting.push(&file(), requests);
        assert_eq!(next_one(&mut waiting), Some((0, 64)));
        // All that one read serves, and a part of another.
        drop(answers.drain(1..3));
        let rest: Vec<_> = std::iter::from_fn(|| next_one(&mut waiting)).collect();
        assert_eq!(rest, [(3, 64), (2, 128)]);
        assert!(waiting.is_empty());
        drop(kept);
    }

    #[test]
    fn a_request_that_is_not_ripe_makes_no_read_but_goes_along_with_one() {
        let (mut a, _a) = request(0..64, Urgency::filter(0));
        let (mut b, _b) = request(64 << 20..(64 << 20) + 64, Urgency::filter(1));
        let (c, _c) = request(128..192, Urgency::projection(2));
        (a.is_ripe, b.is_ripe) = (false, false);
        let mut waiting = Waiting::default();
        waiting.push(&file(), vec![a, b, c]);
        let read = waiting.next(|_| 8, remote).remove(0);
        assert_eq!((read.range, read.serves.len()), (0..192, 2));
        assert!(waiting.next(|_| 8, remote).is_empty());
        waiting.ripen();
        assert_eq!(waiting.next(|_| 8, remote)[0].range.start, 64 << 20);
    }

    #[test]
    fn a_withdrawn_request_is_not_read() {
        let (a, kept) = request(0..10, Urgency::filter(0));
        let (b, dropped) = request(10..20, Urgency::filter(0));
        let mut waiting = Waiting::default();
        waiting.push(&file(), vec![a, b]);
        drop(dropped);
        assert_eq!(waiting.next(|_| 8, remote)[0].range, 0..10);
        assert!(waiting.next(|_| 8, remote).is_empty());
        drop(kept);
    }
}
