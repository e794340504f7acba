//! Waiting for asynchronous work outside of asynchronous code, the runtime that is needed inside, and blocking work
//! there.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::task::{JoinError, JoinHandle};

use crate::{Error, Result};

/// Runs `work` to its end; blocks. It runs on a new thread, which has no runtime yet, whatever the caller's
/// thread has.
///
/// # Errors
/// As `work`, or if the thread or the runtime cannot be started.
pub(crate) fn block_on_thread<T: Send, F: Future<Output = Result<T>>>(
    name: &str,
    mut runtime: Builder,
    work: impl FnOnce() -> F + Send,
) -> Result<T> {
    let failed = |error: std::io::Error| Error::external(error);
    let run = move || runtime.enable_all().build().map_err(failed)?.block_on(work());
    thread::scope(|scope| {
        let running = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run);
        match running.map_err(failed)?.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The tokio runtime that polls the caller.
///
/// # Errors
/// If another executor does.
pub(crate) fn runtime() -> Result<Handle> {
    Handle::try_current().map_err(|_| {
        Error::invalid("this needs a tokio runtime: await it on one, or use the blocking functions instead")
    })
}

/// A task that is aborted when its owner is dropped. Work that may block never begins then, but is not interrupted.
#[derive(Debug)]
pub(crate) struct OwnedTask<T>(JoinHandle<T>);

impl<T: Send + 'static> OwnedTask<T> {
    pub(crate) fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// On a thread that may block.
    pub(super) fn spawn_blocking(runtime: &Handle, work: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(runtime.spawn_blocking(work))
    }
}

impl<T> Future for OwnedTask<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for OwnedTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_that_nobody_waits_for_does_not_begin() {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (go, gone) = channel::<()>();
        let begun = Arc::new(AtomicUsize::new(0));
        let work = |wait: Option<std::sync::mpsc::Receiver<()>>| {
            let begun = Arc::clone(&begun);
            OwnedTask::spawn_blocking(runtime.handle(), move || {
                begun.fetch_add(1, Ordering::SeqCst);
                wait.map(|wait| wait.recv())
            })
        };
        let first = work(Some(gone));
        let (dropped, last) = (work(None), work(None));
        drop(dropped);
        go.send(()).unwrap();
        runtime.block_on(async {
            first.await.unwrap();
            last.await.unwrap();
        });
        assert_eq!(begun.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn work_has_a_thread_of_its_own_even_within_a_runtime() {
        let name = || async { Ok(thread::current().name().map(str::to_owned)) };
        let name = block_on_thread("some-work", Builder::new_current_thread(), name).unwrap();
        assert_eq!(name.as_deref(), Some("some-work"));
        let fail = || async { Err::<(), _>(Error::invalid("work that fails")) };
        let error = block_on_thread("some-work", Builder::new_current_thread(), fail).unwrap_err();
        assert_eq!(error.to_string(), "invalid argument: work that fails");
    }
}
