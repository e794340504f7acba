//! Turns wanted byte ranges into few concurrent reads, under a budget of bytes.
//!
//! ```text
//! scans ── requests ──► waiting ──► next read, when one of the slots is free ──► storage
//!   ▲                                                                              │
//!   └───────────────── each request, as soon as its bytes arrive ◄─────────────────┘
//! ```
//!
//! Requests wait in one queue per store. Whenever a read may start, the most urgent request is taken,
//! together with all requests waiting by then that lie close to it. A request is withdrawn by dropping
//! its [`PendingBytes`]: it leaves the queue, and a read that no request waits for any longer is aborted.
//!
//! Bytes that are at hand, such as those of local files that the operating system has in memory, are not
//! queued: whoever requests them takes them at once, until a limit is reached or bytes are not at hand; all others are
//! queued. Each caller does this only for its own requests, so that none is held up by copying for others.
//!
//! Each tokio runtime has queues of its own. A read is a task of the runtime on which it was requested, and one with a
//! single thread runs its tasks only while the application waits inside of it (`block_on`): between two batches, it may
//! stand still for as long as the application likes. Another runtime that waited for its reads would stand still, too.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::pending::{PendingBytes, pending};
use super::store_queue::StoreQueue;
use super::waiting::{QueuedRequest, exceed};
use super::{ReadAt, Urgency, kept_bytes};
use crate::budget::Budget;
use crate::metrics::ScanMetrics;

/// Default limit of bytes in flight, or fetched and not yet decoded.
const DEFAULT_BUDGET: u64 = 256 << 20;

/// A remote read that delivers nothing for this long has failed.
const DEFAULT_STALL: Duration = Duration::from_secs(60);

/// From this many queues of a runtime on, those that are idle are forgotten, and what they measured.
const MANY_QUEUES: usize = 64;

/// From this many queues of other runtimes on, those of ended runtimes are, which hold a few descriptors.
const MANY_OF_OTHERS: usize = 8;

/// A wanted range and its urgency.
#[derive(Debug, Clone)]
pub(crate) struct RangeRequest {
    /// The byte range.
    pub(crate) range: Range<u64>,
    /// The urgency of the request.
    pub(crate) urgency: Urgency,
}

/// Issues reads for all scans that share it. Scans share the one of the process unless the caller
/// provides another.
#[derive(Debug)]
pub struct Scheduler {
    budget: Arc<Budget>,
    stall: Duration,
    pub(super) queues: Mutex<Vec<Arc<StoreQueue>>>,
}

impl Scheduler {
    /// A scheduler that holds at most about `budget` bytes that are not yet decoded. A scan leaves as many of them free
    /// as it takes, except of a remote file for its best rows. One split per scan is always admitted, so that a small
    /// budget slows scans down but never stops them. A remote read that delivers nothing for 60 seconds fails, and a
    /// store that has throttled reads is read with fewer of them in flight until it has not for as long.
    pub fn new(budget: u64) -> Arc<Self> {
        Self::with_stall(budget, DEFAULT_STALL)
    }

    /// As [`new`](Self::new), with `stall` instead of these 60 seconds.
    pub fn with_stall(budget: u64, stall: Duration) -> Arc<Self> {
        Arc::new(Self { budget: Budget::new(budget), stall, queues: Mutex::default() })
    }

    /// The scheduler of this process, which holds at most about 256 MiB.
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Scheduler>> = OnceLock::new();
        Arc::clone(SHARED.get_or_init(|| Scheduler::new(DEFAULT_BUDGET)))
    }

    /// Bytes in flight, or fetched and not yet released.
    pub fn bytes_in_use(&self) -> u64 {
        self.budget.used()
    }

    /// The peak number of bytes in use.
    pub fn peak_bytes(&self) -> u64 {
        self.budget.peak()
    }

    /// What a stream of the store of a source delivers in the time that a request waits for its first byte: as measured
    /// by now, or as its profile declares.
    pub(crate) fn bytes_per_latency(&self, source: &dyn ReadAt) -> u64 {
        let queues = self.queues.lock();
        let mut measured = queues
            .iter()
            .filter(|queue| *queue.store == *source.store())
            .filter_map(|queue| queue.bytes_per_latency());
        measured.next().unwrap_or(source.profile().coalesce_gap)
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// As [`request`](Self::request), and sends the requests.
    #[cfg(test)]
    pub(super) fn read(
        &self,
        source: &Arc<dyn ReadAt>,
        wanted: Vec<RangeRequest>,
        metrics: &Arc<ScanMetrics>,
    ) -> Vec<PendingBytes> {
        let (pending, unsent) = self.request(source, wanted, metrics);
        unsent.send();
        pending
    }

    /// Requests ranges of one source; returns one pending result per range, in order. Nothing is requested
    /// before the requests are sent, which may take a while if bytes are available without waiting.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn request(
        &self,
        source: &Arc<dyn ReadAt>,
        wanted: Vec<RangeRequest>,
        metrics: &Arc<ScanMetrics>,
    ) -> (Vec<PendingBytes>, Unsent) {
        metrics.requests.add(wanted.len() as u64);
        let mut requests = Vec::with_capacity(wanted.len());
        let mut answers = Vec::with_capacity(wanted.len());
        let since = Instant::now();
        for RangeRequest { range, urgency } in wanted {
            let (answer, bytes) = pending(source, range.clone());
            answers.push(bytes);
            let metrics = Arc::clone(metrics);
            requests.push(QueuedRequest { range, urgency, since, answer, metrics, is_ripe: true });
        }
        (answers, Unsent { queue: self.queue(source.store()), source: Arc::clone(source), requests })
    }

    /// The queue of a store. Each runtime has its own, so that a runtime which is not being polled does
    /// not hold up others.
    pub(super) fn queue(&self, store: &str) -> Arc<StoreQueue> {
        let runtime = Handle::current();
        let mut queues = self.queues.lock();
        if let Some(queue) =
            queues.iter().find(|queue| *queue.store == *store && queue.runtime.id() == runtime.id())
        {
            return Arc::clone(queue);
        }
        // Other runtimes may have ended, and stores may be gone. A queue that somebody holds is about to be used.
        let is_own = |queue: &StoreQueue| queue.runtime.id() == runtime.id();
        let own = queues.iter().filter(|queue| is_own(queue)).count();
        let (has_many, has_many_others) = (own >= MANY_QUEUES, queues.len() - own >= MANY_OF_OTHERS);
        queues.retain(|queue| {
            let may_go = if is_own(queue) { has_many } else { has_many_others && queue.has_ended() };
            !may_go || Arc::strong_count(queue) > 1 || !queue.is_idle()
        });
        let queue = Arc::new(StoreQueue::new(store, runtime, self.stall));
        queues.push(Arc::clone(&queue));
        queue
    }
}

/// Requests that are yet to be put into the queue of their store.
#[must_use]
#[derive(Debug)]
pub(crate) struct Unsent {
    queue: Arc<StoreQueue>,
    source: Arc<dyn ReadAt>,
    requests: Vec<QueuedRequest>,
}

impl Unsent {
    /// Answers requests whose bytes were kept or are at hand, and puts the others into the queue.
    pub(crate) fn send(self) {
        let Self { queue, source, requests } = self;
        let requests = take_cached(&source, requests);
        let requests = if source.profile().remote { requests } else { queue.take_at_hand(&source, requests) };
        if let Some(urgency) = requests.iter().map(|request| request.urgency).min() {
            queue.push(&source, requests, urgency);
        }
    }
}

/// Answers requests whose bytes were kept from earlier reads, and returns the others. Requests that share their bytes
/// are left to their read, which looks for them once.
fn take_cached(source: &Arc<dyn ReadAt>, requests: Vec<QueuedRequest>) -> Vec<QueuedRequest> {
    let start = requests.iter().map(|request| request.range.start).min().unwrap_or(0);
    let end = requests.iter().map(|request| request.range.end).max().unwrap_or(0);
    if exceed(&requests, &(start..end)) {
        return requests;
    }
    let take = |request: QueuedRequest| match kept_bytes(source.as_ref(), &request.range) {
        Some(bytes) => {
            request.metrics.cache_hits.add(1);
            request.answer(bytes.into());
            None
        }
        None => Some(request),
    };
    requests.into_iter().filter_map(take).collect()
}
