//! Handling of Ctrl-C, SIGTERM and SIGHUP: incomplete output is removed before the process ends.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// How long the main task may take to react: it may be waiting for input that never comes.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long dropped tasks may take to remove what they have written, and how often to check.
const LAST_CHANCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Reports when the process is asked to end, with its exit status, and ends it after a while if the main
/// task does not.
pub(crate) fn watch() -> oneshot::Receiver<u8> {
    let (interrupted, heard) = oneshot::channel();
    tokio::spawn(async move {
        let status = signal().await;
        // The receiver may already have been dropped.
        let _ = interrupted.send(status);
        tokio::time::sleep(PATIENCE).await;
        std::process::exit(status.into());
    });
    heard
}

/// Waits for a signal that asks the process to end, forever if signals cannot be received; returns the
/// corresponding exit status.
#[cfg(unix)]
async fn signal() -> u8 {
    use tokio::signal::unix::{SignalKind, signal};

    let received = async |kind| match signal(kind) {
        Ok(mut signals) => signals.recv().await,
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => 130,
        Some(()) = received(SignalKind::terminate()) => 143,
        Some(()) = received(SignalKind::hangup()) => 129,
        else => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn signal() -> u8 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 130,
        Err(_) => std::future::pending().await,
    }
}

/// Waits until the tasks of dropped work have ended and have removed the files they were writing.
pub(crate) async fn let_tasks_end() {
    let start = Instant::now();
    let tasks = tokio::runtime::Handle::current();
    // One more task is alive: the one that waits for signals.
    while tasks.metrics().num_alive_tasks() > 1 && start.elapsed() < LAST_CHANCE {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    // The last thing they do is have a file removed on another thread.
    tokio::time::sleep(LOOK_AGAIN).await;
}
