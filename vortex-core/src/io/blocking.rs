//! Waiting for asynchronous work outside of asynchronous code, and the runtime that is needed inside.

use std::thread;

use tokio::runtime::{Builder, Handle};

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
    let failed = |error: std::io::Error| Error::External(error.into());
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

#[cfg(test)]
mod tests {
    use super::*;

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
