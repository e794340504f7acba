//! The answer to a request, for all who wait for it.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;
use tokio::sync::watch;

use super::{ReadAt, cause};
use crate::{Error, Result};

type Outcome = Result<Buffer, Arc<Error>>;

/// A request of a range of a source, and the bytes that it is answered with.
pub(super) fn pending(source: &Arc<dyn ReadAt>, range: Range<u64>) -> (Answer, PendingBytes) {
    let (answer, outcome) = watch::channel(None);
    (Answer(answer), PendingBytes { outcome, request: Some((Arc::clone(source), range)) })
}

/// Where a request is answered.
#[derive(Debug)]
pub(super) struct Answer(watch::Sender<Option<Outcome>>);

impl Answer {
    /// Sends the outcome; returns whether it is still awaited, since the request may have been withdrawn.
    pub(super) fn send(self, outcome: Result<Buffer>) -> bool {
        self.0.send(Some(outcome.map_err(Arc::new))).is_ok()
    }

    /// Whether the request was withdrawn.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the request is withdrawn.
    pub(super) async fn withdrawn(&self) {
        self.0.closed().await;
    }
}

/// Bytes being fetched. Clones share the outcome; dropping all of them withdraws the request.
///
/// To look whether they have arrived takes no wake-up from those who wait.
#[derive(Debug, Clone)]
pub(crate) struct PendingBytes {
    outcome: watch::Receiver<Option<Outcome>>,
    /// What was requested, unless it was available.
    request: Option<(Arc<dyn ReadAt>, Range<u64>)>,
}

impl PendingBytes {
    fn of(outcome: Outcome) -> Self {
        Self { outcome: watch::channel(Some(outcome)).1, request: None }
    }

    /// Bytes that are already available.
    pub(crate) fn ready(bytes: Buffer) -> Self {
        Self::of(Ok(bytes))
    }

    /// Bytes that could not be read.
    #[cfg(test)]
    pub(crate) fn failed(error: Error) -> Self {
        Self::of(Err(Arc::new(error)))
    }

    /// Waits for the bytes.
    ///
    /// # Errors
    /// If storage failed.
    pub(crate) async fn wait(&self) -> Result<Buffer> {
        let mut outcome = self.outcome.clone();
        let outcome = outcome.wait_for(Option::is_some).await;
        match outcome.ok().and_then(|outcome| outcome.clone()) {
            Some(outcome) => outcome.map_err(|error| shared(&error)),
            None => Err(self.aborted()),
        }
    }

    /// Whether storage is known to have failed.
    pub(crate) fn has_failed(&self) -> bool {
        // Nothing is sent once the other end is gone, so this comes first.
        let is_over = self.outcome.has_changed().is_err();
        self.outcome.borrow().as_ref().map_or(is_over, Result::is_err)
    }

    /// The bytes, if they have arrived.
    pub(crate) fn peek(&self) -> Option<Buffer> {
        self.outcome.borrow().as_ref().and_then(|outcome| outcome.as_ref().ok().cloned())
    }

    /// The error of a request that was dropped without an answer.
    fn aborted(&self) -> Error {
        const WHY: &str = "the read was aborted";
        match &self.request {
            Some((source, range)) => Error::read(source.name(), range.clone(), WHY),
            None => Error::External(WHY.into()),
        }
    }
}

/// The same error for each of several waiters.
fn shared(error: &Error) -> Error {
    match error.root() {
        Error::Read { object, range, source } => {
            Error::read(object, range.clone(), cause::same(source.as_ref()))
        }
        other => Error::External(other.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::io::MemoryFile;

    fn request() -> (Answer, PendingBytes) {
        let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(vec![0u8; 10]));
        pending(&source, 2..5)
    }

    #[tokio::test]
    async fn all_who_wait_get_the_same_bytes() {
        let (answer, bytes) = request();
        assert!(bytes.peek().is_none() && !bytes.has_failed());
        assert!(answer.send(Ok(Buffer::from(&[7, 8, 9]))));
        for waiting in [&bytes, &bytes.clone()] {
            assert_eq!(waiting.wait().await.unwrap().as_slice(), [7, 8, 9]);
            assert!(waiting.peek().is_some() && !waiting.has_failed());
        }
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_without_an_answer_has_failed() {
        let (answer, bytes) = request();
        drop(answer);
        assert!(bytes.has_failed() && bytes.peek().is_none());
        let error = bytes.wait().await.unwrap_err().to_string();
        assert!(error.contains("the read was aborted"), "{error}");
    }

    #[tokio::test]
    async fn a_request_is_withdrawn_with_the_last_who_may_wait() {
        let (answer, bytes) = request();
        let other = bytes.clone();
        drop(bytes);
        assert!(!answer.is_withdrawn());
        drop(other);
        answer.withdrawn().await;
        assert!(answer.is_withdrawn() && !answer.send(Ok(Buffer::default())));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn looking_for_the_outcome_takes_no_wake_up_from_those_who_wait() {
        for _ in 0..2000 {
            let (answer, bytes) = request();
            let (looking, is_answered) = (bytes.clone(), Arc::new(AtomicBool::new(false)));
            let until = Arc::clone(&is_answered);
            let look = tokio::task::spawn_blocking(move || {
                while !until.load(Ordering::Relaxed) {
                    assert!(!looking.has_failed());
                }
            });
            let wait = tokio::spawn(async move { bytes.wait().await.map(|bytes| bytes.len()) });
            tokio::spawn(async move { answer.send(Ok(Buffer::from(&[1]))) });
            let outcome = tokio::time::timeout(Duration::from_secs(30), wait).await;
            is_answered.store(true, Ordering::Relaxed);
            assert_eq!(outcome.expect("nobody was woken").unwrap().unwrap(), 1);
            look.await.unwrap();
        }
    }
}
