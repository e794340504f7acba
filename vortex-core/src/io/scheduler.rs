//! Turns wanted byte ranges into few concurrent reads, under a budget of bytes.
//!
//! A scan asks for everything a phase of some splits needs in one call; ranges that lie close
//! become one read, and each range is delivered the moment its read ends. Reads are tasks owned
//! by those who wait for them: when the last one loses interest, the read is withdrawn.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::buffer::Buffer;
use futures::future::{BoxFuture, FutureExt as _, Shared};
use tokio::sync::{Semaphore, oneshot};

use super::coalesce::{Read, coalesce};
use super::{ReadAt, StorageProfile};
use crate::scan::ScanMetrics;
use crate::{Error, Result};

/// Bytes that may be in flight or fetched and not yet decoded, if nothing else is said.
const DEFAULT_BUDGET: u64 = 256 << 20;

/// Most reads in flight over all sources.
const MAX_READS: usize = 256;

/// Issues reads for all scans that share it; one per process unless a caller makes more.
#[derive(Debug)]
pub struct Scheduler {
    budget: Arc<Budget>,
    reads: Arc<Semaphore>,
}

impl Scheduler {
    /// A scheduler that holds at most about `budget` bytes that nobody has decoded yet. One
    /// split per scan is always admitted, so that a small budget slows scans down and never
    /// stops them.
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::new(Budget { limit: budget, used: AtomicU64::new(0), peak: AtomicU64::new(0) }),
            reads: Arc::new(Semaphore::new(MAX_READS)),
        })
    }

    /// The scheduler of this process.
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Scheduler>> = OnceLock::new();
        Arc::clone(SHARED.get_or_init(|| Scheduler::new(DEFAULT_BUDGET)))
    }

    /// Bytes in flight or fetched and not yet given back.
    pub fn bytes_in_use(&self) -> u64 {
        self.budget.used.load(Ordering::Relaxed)
    }

    /// The most bytes that were in use at once.
    pub fn peak_bytes(&self) -> u64 {
        self.budget.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Starts reading ranges of one source; one pending result per range, in order.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn read(
        &self,
        source: &Arc<dyn ReadAt>,
        wanted: &[Range<u64>],
        metrics: &Arc<ScanMetrics>,
    ) -> Vec<Pending> {
        let profile = source.profile();
        let mut pending: Vec<Option<Pending>> = wanted.iter().map(|_| None).collect();
        metrics.requests.fetch_add(wanted.len() as u64, Ordering::Relaxed);
        for read in coalesce(wanted, &profile) {
            metrics.reads.fetch_add(1, Ordering::Relaxed);
            metrics.bytes_read.fetch_add(read.range.end - read.range.start, Ordering::Relaxed);
            metrics.bytes_wasted.fetch_add(read.wasted, Ordering::Relaxed);
            self.spawn(source, read, wanted, &profile, &mut pending);
        }
        pending.into_iter().map(|one| one.expect("coalescing serves every range")).collect()
    }

    /// Reads many small ranges of one source, which lie apart, and waits for them. The share of
    /// the budget is for as long as their bytes are held.
    ///
    /// # Errors
    /// If storage fails.
    pub(crate) async fn read_many(
        &self,
        source: &Arc<dyn ReadAt>,
        ranges: &[Range<u64>],
        metrics: &ScanMetrics,
    ) -> Result<(Vec<Buffer>, Option<Share>)> {
        let byte_len = ranges.iter().map(|range| range.end - range.start).sum();
        metrics.requests.fetch_add(ranges.len() as u64, Ordering::Relaxed);
        metrics.reads.fetch_add(ranges.len() as u64, Ordering::Relaxed);
        metrics.bytes_read.fetch_add(byte_len, Ordering::Relaxed);
        let share = self.budget.take(byte_len, true);
        let _permit = self.reads.acquire().await;
        let pieces = source.read_many(ranges).await?;
        let wrong =
            pieces.iter().zip(ranges).find(|(bytes, range)| bytes.len() as u64 != range.end - range.start);
        match wrong {
            Some((bytes, range)) => {
                Err(Error::read(source.name(), range.clone(), format!("got {} bytes", bytes.len())))
            }
            None if pieces.len() != ranges.len() => {
                Err(Error::read(source.name(), 0..0, format!("{} pieces of {}", pieces.len(), ranges.len())))
            }
            None => Ok((pieces, share)),
        }
    }

    fn spawn(
        &self,
        source: &Arc<dyn ReadAt>,
        read: Read,
        wanted: &[Range<u64>],
        _profile: &StorageProfile,
        pending: &mut [Option<Pending>],
    ) {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for at in read.serves {
            let (sender, receiver) = oneshot::channel();
            senders.push((wanted[at].clone(), sender));
            receivers.push((at, receiver));
        }
        let (task_source, reads, range) = (Arc::clone(source), Arc::clone(&self.reads), read.range.clone());
        let task = tokio::spawn(async move {
            let _permit = reads.acquire_owned().await;
            let outcome = task_source.read(range.clone()).await.map(Buffer::from);
            for (wanted, sender) in senders {
                let part = match &outcome {
                    Ok(bytes) => part_of(bytes, &range, &wanted, task_source.name()),
                    Err(error) => Err(shared_error(error, task_source.name(), &range)),
                };
                // Nobody waits for a part that was withdrawn.
                let _ = sender.send(part);
            }
        });
        let task = Arc::new(AbortOnDrop(task.abort_handle()));
        for (at, receiver) in receivers {
            let (name, range) = (source.name().to_owned(), wanted[at].clone());
            let task = Arc::clone(&task);
            let future = async move {
                let _task = task;
                match receiver.await {
                    Ok(outcome) => outcome.map_err(Arc::new),
                    Err(_) => Err(Arc::new(Error::read(name, range, "the read was aborted"))),
                }
            };
            pending[at] = Some(Pending { future: future.boxed().shared() });
        }
    }
}

/// The wanted part of what was read.
fn part_of(bytes: &Buffer, read: &Range<u64>, wanted: &Range<u64>, name: &str) -> Result<Buffer> {
    if bytes.len() as u64 != read.end - read.start {
        let message = format!("got {} bytes", bytes.len());
        return Err(Error::read(name, read.clone(), message));
    }
    // Both fit: the read was made around the wanted range and is in memory.
    let start = (wanted.start - read.start) as usize;
    let len = (wanted.end - wanted.start) as usize;
    Ok(bytes.slice_with_length(start, len))
}

/// The same error for each of several waiters.
fn shared_error(error: &Error, name: &str, range: &Range<u64>) -> Error {
    match error {
        Error::Read { source, .. } => Error::read(name, range.clone(), source.to_string()),
        other => Error::read(name, range.clone(), other.to_string()),
    }
}

#[derive(Debug)]
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Bytes on their way. Clones share the outcome.
#[derive(Debug, Clone)]
pub struct Pending {
    future: Shared<BoxFuture<'static, Result<Buffer, Arc<Error>>>>,
}

impl Pending {
    /// Bytes that are there already.
    pub fn ready(bytes: Buffer) -> Self {
        Self { future: futures::future::ready(Ok(bytes)).boxed().shared() }
    }

    /// Waits for the bytes.
    ///
    /// # Errors
    /// If storage failed.
    pub async fn wait(&self) -> Result<Buffer> {
        self.future.clone().await.map_err(|error| shared_or_same(&error))
    }

    /// The bytes, if they are there.
    pub fn peek(&self) -> Option<Buffer> {
        self.future.peek().and_then(|outcome| outcome.as_ref().ok().cloned())
    }
}

fn shared_or_same(error: &Arc<Error>) -> Error {
    match error.as_ref() {
        Error::Read { object, range, source } => Error::read(object, range.clone(), source.to_string()),
        other => Error::External(other.to_string().into()),
    }
}

/// A count of bytes in use against a limit.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// Takes `bytes` if they fit, or in any case if `force`.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64, force: bool) -> Option<Share> {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let next = used.saturating_add(bytes);
            if next > self.limit && !force {
                return None;
            }
            match self.used.compare_exchange_weak(used, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.peak.fetch_max(next, Ordering::Relaxed);
                    return Some(Share { budget: Arc::clone(self), bytes: next - used });
                }
                Err(current) => used = current,
            }
        }
    }
}

/// Bytes taken from a budget, given back on drop.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryFile;

    #[tokio::test]
    async fn each_range_gets_its_own_bytes() {
        let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new((0..=255u8).collect::<Vec<_>>()));
        let metrics = Arc::new(ScanMetrics::default());
        let pending = Scheduler::new(1 << 20).read(&source, &[200..210, 3..5, 5..8], &metrics);
        assert_eq!(pending[0].wait().await.unwrap().as_slice(), (200..210).collect::<Vec<u8>>());
        assert_eq!(pending[1].wait().await.unwrap().as_slice(), [3, 4]);
        assert_eq!(pending[2].wait().await.unwrap().as_slice(), [5, 6, 7]);
        assert_eq!(metrics.reads.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_failed_read_fails_all_it_serves_and_names_the_file() {
        let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(vec![0u8; 16]));
        let metrics = Arc::new(ScanMetrics::default());
        let pending = Scheduler::new(1 << 20).read(&source, &[8..20, 12..24], &metrics);
        for one in pending {
            let message = one.wait().await.unwrap_err().to_string();
            assert!(message.contains("memory"), "{message}");
        }
    }

    #[test]
    fn a_share_goes_back_when_dropped() {
        let scheduler = Scheduler::new(100);
        let first = scheduler.budget().take(80, false).unwrap();
        assert!(scheduler.budget().take(30, false).is_none());
        let forced = scheduler.budget().take(30, true).unwrap();
        assert_eq!(scheduler.bytes_in_use(), 110);
        drop((first, forced));
        assert_eq!(scheduler.bytes_in_use(), 0);
        assert_eq!(scheduler.peak_bytes(), 110);
    }
}
