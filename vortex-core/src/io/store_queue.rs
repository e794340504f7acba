//! The queue of requests to one store: which reads to start, when, and how many at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::delivery::{deliver, hand_over_at_hand};
use super::pace::{Pace, Patience};
use super::waiting::{QueuedRequest, Read, Waiting};
use super::{ReadAt, StorageProfile, Urgency};

/// Bytes at hand that are taken at once, approximately: more are left to tasks, so that one call does not take long.
const MAX_AT_HAND: u64 = 16 << 20;

/// No read is requested a second time sooner than this, and the number of steps in which the time until then is
/// measured.
const MIN_HEDGE: Duration = Duration::from_millis(100);
const HEDGE_STEPS: u32 = 5;

/// At most one in this many reads is requested a second time.
const READS_PER_HEDGE: u64 = 20;
/// The number of second requests that may be saved up while no read is late.
const MAX_SAVED_HEDGES: u64 = 3;

/// The queue of requests to one store.
#[derive(Debug)]
pub(super) struct StoreQueue {
    pub(super) store: Box<str>,
    pub(super) runtime: Handle,
    pub(super) stall: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Waiting,
    in_flight: usize,
    /// Reads in flight that the store has throttled, and that wait to be resumed.
    paused: usize,
    /// Reads allowed in flight while the store is throttling.
    allowed: f64,
    /// How often this was halved, and when last.
    slow_downs: u64,
    slowed_at: Option<Instant>,
    pace: Pace,
    /// Whether a task is about to dispatch the waiting requests.
    announced: bool,
    /// Whether dispatching is in progress.
    dispatching: bool,
    /// Number of reads that succeeded, and of reads requested a second time.
    reads: u64,
    hedged: u64,
}

impl State {
    /// The number of reads allowed in flight; at least one, and as many as ever if none was throttled for `calm`.
    fn allowed(&mut self, calm: Duration) -> usize {
        if self.slowed_at.is_some_and(|at| at.elapsed() >= calm) {
            (self.allowed, self.slowed_at) = (f64::INFINITY, None);
        }
        // Casts from floats saturate.
        self.allowed.max(1.0) as usize
    }
}

impl StoreQueue {
    /// An empty queue. A read that delivers nothing for as long as `stall` has failed.
    pub(super) fn new(store: &str, runtime: Handle, stall: Duration) -> Self {
        let state = State { allowed: f64::INFINITY, ..State::default() };
        Self { store: store.into(), runtime, stall, state: Mutex::new(state) }
    }

    pub(super) fn is_idle(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting.forget_withdrawn();
        state.in_flight == 0 && state.waiting.is_empty()
    }

    /// Whether its runtime has ended: then a task ends before it begins.
    pub(super) fn has_ended(&self) -> bool {
        let task = self.runtime.spawn(std::future::pending::<()>());
        let has_ended = task.is_finished();
        task.abort();
        has_ended
    }

    /// The expected duration of a read of this many bytes, if it can be estimated.
    pub(super) fn expected(&self, bytes: u64) -> Option<Duration> {
        self.state.lock().pace.expected(bytes)
    }

    /// What a stream delivers in the time that a request waits for its first byte, if that was measured.
    pub(super) fn bytes_per_latency(&self) -> Option<u64> {
        self.state.lock().pace.bytes_per_latency()
    }

    /// Records the timing of a read.
    pub(super) fn note(&self, first_byte: Duration, rest: Duration, bytes: u64) {
        let mut state = self.state.lock();
        state.pace.note(first_byte, rest, bytes);
        state.reads += 1;
        // One more for each round of reads that succeeded.
        state.allowed += 1.0 / state.allowed.max(1.0);
    }

    /// Waits until a read that delivers `bytes` after its first one takes `factor` times as long as measurements
    /// suggest by then: others of its round tell how long a read takes. The time in which the runtime stands still does
    /// not count. Never ends if `factor` is 0.
    pub(super) async fn overdue(&self, factor: u32, bytes: u64) {
        if factor == 0 {
            return std::future::pending().await;
        }
        let mut steps = 0;
        while steps < HEDGE_STEPS {
            match self.expected(bytes) {
                Some(expected) => {
                    let patience = expected.saturating_mul(factor).max(MIN_HEDGE);
                    tokio::time::sleep(patience / HEDGE_STEPS).await;
                    steps += 1;
                }
                // Without a measurement, nothing tells that the read is late.
                None => tokio::time::sleep(MIN_HEDGE).await,
            }
        }
    }

    /// Whether another read may be requested a second time; if so, it is counted.
    pub(super) fn may_hedge(&self) -> bool {
        let mut state = self.state.lock();
        // A store that becomes slow after a long time is not asked for everything twice.
        state.hedged = state.hedged.max((state.reads / READS_PER_HEDGE).saturating_sub(MAX_SAVED_HEDGES));
        let may = state.hedged * READS_PER_HEDGE <= state.reads;
        state.hedged += u64::from(may);
        may
    }

    /// Answers requests up to the first read that has to wait, or until many bytes were taken, and returns the others.
    pub(super) fn take_at_hand(
        &self,
        source: &Arc<dyn ReadAt>,
        requests: Vec<QueuedRequest>,
    ) -> Vec<QueuedRequest> {
        let adapted = self.state.lock().pace.adapt(source.profile());
        let mut waiting = Waiting::default();
        waiting.push(source, requests);
        let mut taken = 0;
        loop {
            // They take no slots, so that all of one urgency are chosen at once.
            let reads = waiting.next(|_| usize::MAX, |_| adapted);
            if reads.is_empty() {
                return Vec::new();
            }
            let mut reads = reads.into_iter();
            while let Some(read) = reads.next() {
                let bytes = read.range.end - read.range.start;
                let missing = if taken < MAX_AT_HAND { hand_over_at_hand(read) } else { Some(read) };
                if let Some(missing) = missing {
                    let rest = std::iter::once(missing).chain(reads).flat_map(|read| read.serves);
                    return rest.chain(waiting.into_requests()).collect();
                }
                taken += bytes;
            }
        }
    }

    /// Adds requests, the most urgent of which has this urgency.
    pub(super) fn push(
        self: &Arc<Self>,
        source: &Arc<dyn ReadAt>,
        mut requests: Vec<QueuedRequest>,
        urgency: Urgency,
    ) {
        // For remote stores, a short delay lets neighbouring requests share a read.
        let waits = source.profile().remote && urgency.comes_in_crowds();
        requests.iter_mut().for_each(|request| request.is_ripe = !waits);
        let patience = {
            let mut state = self.state.lock();
            state.waiting.push(source, requests);
            if waits && std::mem::replace(&mut state.announced, true) {
                return;
            }
            waits.then(|| state.pace.patience())
        };
        match patience {
            None => self.dispatch(),
            Some(patience) => {
                let announced = Announced(Arc::clone(self));
                drop(self.runtime.spawn(announced.dispatch_soon(patience)));
            }
        }
    }

    /// Starts reads while there are free slots and waiting requests.
    fn dispatch(self: &Arc<Self>) {
        if std::mem::replace(&mut self.state.lock().dispatching, true) {
            return;
        }
        let _guard = ResumeOnPanic(self);
        while let Some(reads) = self.next_reads() {
            // Spawn outside the lock: a runtime that is shutting down drops the task at once.
            reads.into_iter().for_each(|(read, slot)| drop(self.runtime.spawn(deliver(read, slot))));
        }
    }

    /// The reads to start now, each with its slot; `None` if there are none.
    fn next_reads(self: &Arc<Self>) -> Option<Vec<(Read, Slot)>> {
        let mut state = self.state.lock();
        let allowed = state.allowed(self.stall);
        let State { waiting, pace, in_flight, .. } = &mut *state;
        let free = |profile: StorageProfile| profile.slots().min(allowed).saturating_sub(*in_flight);
        let reads = waiting.next(free, |profile| pace.adapt(profile));
        if reads.is_empty() {
            state.dispatching = false;
            return None;
        }
        state.in_flight += reads.len();
        let slow_downs = state.slow_downs;
        let slot = || Slot { queue: Arc::clone(self), slow_downs, is_paused: false };
        Some(reads.into_iter().map(|read| (read, slot())).collect())
    }
}

/// The announcement that the waiting requests will be dispatched, which happens when it is dropped: also if its
/// task ends early, because the runtime does, or has no timers. Others rely on it, and nobody repeats it.
struct Announced(Arc<StoreQueue>);

impl Announced {
    /// Dispatches once no more requests arrive, or after a time limit.
    async fn dispatch_soon(self, patience: Patience) {
        let start = Instant::now();
        let mut seen = 0;
        loop {
            tokio::time::sleep(patience.step).await;
            let waiting = self.0.state.lock().waiting.len();
            if waiting <= seen || start.elapsed() >= patience.most {
                return;
            }
            seen = waiting;
        }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        {
            let mut state = self.0.state.lock();
            state.announced = false;
            state.waiting.ripen();
        }
        self.0.dispatch();
    }
}

/// Goes on dispatching after a source has panicked.
struct ResumeOnPanic<'a>(&'a Arc<StoreQueue>);

impl Drop for ResumeOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().dispatching = false;
            let queue = Arc::clone(self.0);
            drop(self.0.runtime.spawn(async move { queue.dispatch() }));
        }
    }
}

/// Permission for one read in flight.
#[derive(Debug)]
pub(super) struct Slot {
    queue: Arc<StoreQueue>,
    /// How often reads had been slowed down when the read was started or resumed.
    slow_downs: u64,
    /// Whether the read waits to be resumed.
    is_paused: bool,
}

impl Slot {
    /// The queue of the store.
    pub(super) fn queue(&self) -> &StoreQueue {
        &self.queue
    }

    /// Reacts to throttling by the store, or to a slow line: halves the number of reads allowed in flight, and pauses
    /// the read.
    pub(super) fn slow_down(&mut self) {
        let mut state = self.queue.state.lock();
        // Reads that were in flight together are throttled together: this says nothing about fewer reads.
        if self.slow_downs == state.slow_downs {
            let now = state.allowed.min(state.in_flight as f64);
            state.allowed = (now / 2.0).max(1.0);
            state.slow_downs += 1;
            state.slowed_at = Some(Instant::now());
        }
        state.paused += 1;
        self.is_paused = true;
    }

    /// Resumes the read if it is paused, unless others that are not take all that is allowed; returns whether it may go
    /// on.
    pub(super) fn resume(&mut self) -> bool {
        if !self.is_paused {
            return true;
        }
        let mut state = self.queue.state.lock();
        let allowed = state.allowed(self.queue.stall);
        if state.in_flight - state.paused >= allowed {
            return false;
        }
        state.paused -= 1;
        (self.slow_downs, self.is_paused) = (state.slow_downs, false);
        true
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        {
            let mut state = self.queue.state.lock();
            state.in_flight -= 1;
            state.paused -= usize::from(self.is_paused);
        }
        self.queue.dispatch();
    }
}
