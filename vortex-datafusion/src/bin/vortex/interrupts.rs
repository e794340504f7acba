//! Ctrl-C, and being asked to end: what is being written is to be removed before the process ends.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// How long the main task may take to notice: it may wait for input that never comes.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long tasks that are dropped may take to remove what they have written, and how often to look.
const LAST_CHANCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Says when the process is asked to end, and ends it if nobody listens.
pub(crate) fn watch() -> oneshot::Receiver<()> {
    let (interrupted, heard) = oneshot::channel();
    tokio::spawn(async move {
        let status = signal().await;
        // Whoever waits may be gone already.
        let _ = interrupted.send(());
        tokio::time::sleep(PATIENCE).await;
        std::process::exit(status);
    });
    heard
}

/// Waits for a signal to end, for ever if they cannot be heard; the status of who ends by it.
#[cfg(unix)]
async fn signal() -> i32 {
    use tokio::signal::unix::{SignalKind, signal};

    let end = async {
        match signal(SignalKind::terminate()) {
            Ok(mut end) => end.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => 130,
        Some(()) = end => 143,
        else => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn signal() -> i32 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 130,
        Err(_) => std::future::pending().await,
    }
}

/// Waits until the tasks of work that was dropped are gone, and the files that they were writing with them.
pub(crate) async fn let_tasks_end() {
    let start = Instant::now();
    let tasks = tokio::runtime::Handle::current();
    // Besides, there is the one that waits for signals.
    while tasks.metrics().num_alive_tasks() > 1 && start.elapsed() < LAST_CHANCE {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    // Their last act is to have a file removed on another thread.
    tokio::time::sleep(LOOK_AGAIN).await;
}
