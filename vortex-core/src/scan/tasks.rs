//! Work that runs in separate tasks and is awaited in the order in which its outcomes are wanted.

use std::future::Future;
use std::task::{Context, Poll};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, FuturesUnordered};

use crate::io::OwnedTask;
use crate::{Error, Result};

/// Tasks that are running. Dropping them aborts them.
pub(super) enum Tasks<T> {
    Ordered(FuturesOrdered<BoxFuture<'static, Result<T>>>),
    Unordered(FuturesUnordered<BoxFuture<'static, Result<T>>>),
}

impl<T: Send + 'static> Tasks<T> {
    pub(super) fn new(ordered: bool) -> Self {
        if ordered { Self::Ordered(FuturesOrdered::new()) } else { Self::Unordered(FuturesUnordered::new()) }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Tasks::Ordered(tasks) => tasks.len(),
            Tasks::Unordered(tasks) => tasks.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a task, which makes progress whether it is polled or not.
    pub(super) fn start(&mut self, work: impl Future<Output = Result<T>> + Send + 'static) {
        let task = spawn(work);
        match self {
            Tasks::Ordered(tasks) => tasks.push_back(task),
            Tasks::Unordered(tasks) => tasks.push(task),
        }
    }

    /// The next outcome; `None` if no task is left.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        match self {
            Tasks::Ordered(tasks) => tasks.poll_next_unpin(context),
            Tasks::Unordered(tasks) => tasks.poll_next_unpin(context),
        }
    }
}

/// Starts a task, which makes progress whether it is polled or not; dropping the future aborts it.
pub(super) fn spawn<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<'static, Result<T>> {
    let task = OwnedTask::spawn(work);
    Box::pin(async move {
        match task.await {
            Ok(outcome) => outcome,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::External("the runtime is shutting down".into())),
        }
    })
}
