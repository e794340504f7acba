//! What is done about reads that are late.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};

/// Number of steps in which the time is measured for which a read delivers nothing.
const STALL_STEPS: u32 = 10;

/// Awaits `work`, and once it is `overdue` also the future returned by `again`, which does the same work.
/// Returns the result of whichever succeeds first and drops the other.
pub(super) async fn hedged<T, E, W: Future<Output = Result<T, E>>>(
    work: impl Future<Output = Result<T, E>>,
    overdue: impl Future<Output = ()>,
    again: impl FnOnce() -> Option<W>,
) -> Result<T, E> {
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
pub(super) async fn unless_stalled<T>(
    limit: Option<Duration>,
    work: impl Future<Output = T>,
) -> io::Result<T> {
    let Some(limit) = limit else { return Ok(work.await) };
    let mut work = pin!(work);
    // However long the runtime stands still, it uses up no more than one step.
    for _ in 0..STALL_STEPS {
        if let Ok(output) = tokio::time::timeout(limit / STALL_STEPS, &mut work).await {
            return Ok(output);
        }
    }
    let message = format!("no data received for {} s", limit.as_secs_f64());
    Err(io::Error::new(ErrorKind::TimedOut, message))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
