//! Work that runs in separate tasks and is awaited in the order in which its outcomes are wanted.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::StreamExt as _;
use futures::stream::{FuturesOrdered, FuturesUnordered};

use crate::io::OwnedTask;
use crate::{Error, Result};

/// Tasks that are running. Dropping them aborts them.
pub(super) enum Tasks<T> {
    Ordered(FuturesOrdered<Task<T>>),
    Unordered(FuturesUnordered<Task<T>>),
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
        let task = Task::spawn(work);
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

/// A task that is aborted when its owner is dropped.
pub(super) struct Task<T>(OwnedTask<Result<T>>);

impl<T: Send + 'static> Task<T> {
    pub(super) fn spawn(work: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self(OwnedTask::spawn(work))
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(outcome) => outcome,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::External("the runtime is shutting down".into())),
        })
    }
}
