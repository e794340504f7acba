//! Tests that reads which take far too long are requested a second time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use crate::io::{PendingBytes, RangeRequest, ReadAt, Scheduler, StorageProfile, Urgency};
use crate::metrics::ScanMetrics;
use crate::{Error, Result};

/// The behaviour of a read before its bytes arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    Usual,
    /// Arrives later than any other.
    Late,
    Stalls,
    /// Delivers half of its bytes, then nothing.
    StallsMidway,
    /// Delivers half of its bytes, and later an error.
    BreaksMidway,
    Fails,
    FailsLate,
}

/// A remote file whose first reads behave as scripted, and all later ones as usual.
#[derive(Debug)]
struct Scripted {
    script: Mutex<Vec<Manner>>,
    asked: Mutex<Vec<Range<u64>>>,
    in_flight: Arc<AtomicUsize>,
    hedge: AtomicU32,
}

#[derive(Debug)]
struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

const USUAL: Duration = Duration::from_millis(5);

#[async_trait]
impl ReadAt for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn len(&self) -> Result<u64> {
        Ok(1 << 30)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        Ok(range.map(|at| at as u8).collect::<Vec<_>>().into())
    }

    async fn stream(&self, range: Range<u64>) -> Result<BoxStream<'static, Result<Bytes>>> {
        self.asked.lock().push(range.clone());
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let in_flight = InFlight(Arc::clone(&self.in_flight));
        let manner = {
            let mut script = self.script.lock();
            if script.is_empty() { Manner::Usual } else { script.remove(0) }
        };
        match manner {
            Manner::Usual | Manner::StallsMidway | Manner::BreaksMidway => tokio::time::sleep(USUAL).await,
            Manner::Late => tokio::time::sleep(USUAL * 40).await,
            Manner::Stalls => std::future::pending().await,
            Manner::FailsLate => {
                tokio::time::sleep(USUAL * 40).await;
                return Err(Error::External("the network is down".into()));
            }
            Manner::Fails => return Err(Error::External("the network is down".into())),
        }
        let bytes = self.read(range).await?;
        let half = bytes.slice(..bytes.len() / 2);
        let pieces = match manner {
            Manner::StallsMidway => {
                futures::stream::iter([Ok(half)]).chain(futures::stream::pending()).boxed()
            }
            Manner::BreaksMidway => {
                let breaks = async {
                    tokio::time::sleep(USUAL * 40).await;
                    Err(Error::External("connection reset".into()))
                };
                futures::stream::iter([Ok(half)]).chain(futures::stream::once(breaks)).boxed()
            }
            _ => futures::stream::iter([Ok(bytes)]).boxed(),
        };
        Ok(pieces.inspect(move |_| _ = &in_flight).boxed())
    }

    fn store(&self) -> &str {
        "far away"
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile { hedge: self.hedge.load(Ordering::SeqCst), ..StorageProfile::REMOTE }
    }
}

/// A scheduler, and a file of whose store it knows nothing.
fn unmeasured(hedge: u32) -> (Arc<Scheduler>, Arc<Scripted>) {
    let file = Arc::new(Scripted {
        script: Mutex::default(),
        asked: Mutex::default(),
        in_flight: Arc::default(),
        hedge: AtomicU32::new(hedge),
    });
    (Scheduler::with_stall(1 << 30, Duration::from_secs(2)), file)
}

/// A scheduler that has measured the latency and bandwidth of the file's store.
async fn measured(hedge: u32) -> (Arc<Scheduler>, Arc<Scripted>) {
    let (scheduler, file) = unmeasured(0);
    for at in 0..25 {
        read(&scheduler, &file, at, &Arc::default()).wait().await.unwrap();
    }
    file.asked.lock().clear();
    file.hedge.store(hedge, Ordering::SeqCst);
    (scheduler, file)
}

/// Requests bytes that are far from those of other numbers.
fn read(
    scheduler: &Scheduler,
    file: &Arc<Scripted>,
    number: u64,
    metrics: &Arc<ScanMetrics>,
) -> PendingBytes {
    let start = number << 24;
    let range_request = RangeRequest { range: start..start + 1000, urgency: Urgency::ZONE_MAPS };
    let source: Arc<dyn ReadAt> = Arc::clone(file) as _;
    scheduler.read(&source, vec![range_request], metrics).remove(0)
}

#[tokio::test]
async fn a_read_that_stalls_is_asked_for_again() {
    let (scheduler, file) = measured(4).await;
    let metrics = Arc::default();
    for stalls in [Manner::Stalls, Manner::StallsMidway] {
        *file.script.lock() = vec![stalls];
        let bytes = read(&scheduler, &file, 1, &metrics).wait().await.unwrap();
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8), "{stalls:?}");
    }
    let start = 1 << 24;
    let all = start..start + 1000;
    assert_eq!(*file.asked.lock(), [all.clone(), all.clone(), all, start + 500..start + 1000]);
    assert_eq!(metrics.reads_hedged.get(), 2);
    assert_eq!(metrics.reads.get(), 4);
    assert_eq!(file.in_flight.load(Ordering::SeqCst), 0, "the slower ones are dropped");
}

#[tokio::test]
async fn other_reads_of_the_first_round_tell_that_one_is_late() {
    let (scheduler, file) = unmeasured(4);
    *file.script.lock() = vec![Manner::Stalls];
    let metrics = Arc::default();
    let first = read(&scheduler, &file, 0, &metrics);
    let others: Vec<_> = (1..5).map(|at| read(&scheduler, &file, at, &metrics)).collect();
    for one in others {
        one.wait().await.unwrap();
    }
    assert_eq!(first.wait().await.unwrap().len(), 1000);
    assert_eq!(metrics.reads_hedged.get(), 1);
}

#[tokio::test]
async fn the_description_of_a_file_is_asked_for_again_like_other_reads() {
    let (scheduler, file) = unmeasured(4);
    let source: Arc<dyn ReadAt> = Arc::clone(&file) as _;
    let read = async || scheduler.read_description(&source, 0..1000).await.unwrap().len();
    assert_eq!(read().await, 1000);
    *file.script.lock() = vec![Manner::Stalls];
    assert_eq!(read().await, 1000);
    assert_eq!(file.asked.lock().len(), 3);
}

#[tokio::test]
async fn the_first_good_answer_counts() {
    for second in [Manner::Stalls, Manner::Fails] {
        let (scheduler, file) = measured(4).await;
        *file.script.lock() = vec![Manner::Late, second];
        let metrics = Arc::default();
        assert_eq!(read(&scheduler, &file, 1, &metrics).wait().await.unwrap().len(), 1000);
        assert_eq!(metrics.reads_hedged.get(), 1);
        assert_eq!(file.in_flight.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_read_that_breaks_midway_is_resumed_although_the_second_one_fails() {
    let (scheduler, file) = measured(4).await;
    *file.script.lock() = vec![Manner::BreaksMidway, Manner::FailsLate];
    assert_eq!(read(&scheduler, &file, 1, &Arc::default()).wait().await.unwrap().len(), 1000);
    assert_eq!(file.asked.lock().len(), 3);
}

#[tokio::test]
async fn two_answers_that_fail_are_an_error() {
    let (scheduler, file) = measured(4).await;
    *file.script.lock() = vec![Manner::Stalls, Manner::Fails];
    let message = read(&scheduler, &file, 1, &Arc::default()).wait().await.unwrap_err().to_string();
    assert!(message.contains("no data received"), "{message}");
}

#[tokio::test]
async fn few_reads_are_asked_for_again() {
    let (scheduler, file) = measured(4).await;
    *file.script.lock() = vec![Manner::Late; 8];
    let metrics = Arc::default();
    let pending: Vec<_> = (0..4).map(|at| read(&scheduler, &file, at, &metrics)).collect();
    for one in pending {
        one.wait().await.unwrap();
    }
    assert_eq!(metrics.reads_hedged.get(), 2, "of 25 before");
}

#[tokio::test]
async fn few_second_requests_are_saved_up_for_later() {
    let (scheduler, file) = measured(4).await;
    for at in 0..175 {
        read(&scheduler, &file, at % 100, &Arc::default()).wait().await.unwrap();
    }
    let metrics = Arc::default();
    *file.script.lock() = vec![Manner::Late; 24];
    let pending: Vec<_> = (0..12).map(|at| read(&scheduler, &file, at, &metrics)).collect();
    for one in pending {
        one.wait().await.unwrap();
    }
    assert_eq!(metrics.reads_hedged.get(), 4, "of 200 before");
}

#[tokio::test]
async fn no_read_is_asked_for_again_unless_that_is_wanted() {
    let (scheduler, file) = measured(0).await;
    *file.script.lock() = vec![Manner::Late];
    let metrics = Arc::default();
    read(&scheduler, &file, 1, &metrics).wait().await.unwrap();
    assert_eq!(file.asked.lock().len(), 1);
    assert_eq!(metrics.reads_hedged.get(), 0);
}
