//! The tasks of a statement, one for each file: the rows of all files are written, and only then are files finished.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion_common::{DataFusionError, Result, exec_datafusion_err};
use datafusion_common_runtime::{JoinSet, SpawnedTask};
use datafusion_datasource::write::demux::DemuxedStreamReceiver;

use super::file::{Destination, FileRows};
use super::written::Written;

/// Number of files that are finished concurrently.
const FINISHING: usize = 8;

/// Writes the rows of all files. Those that end are not finished, but for the first ones if there are more than
/// `most_ended` while others begin. If anything fails, nothing is left behind.
pub(super) async fn fill(
    destination: &Arc<Destination>,
    demux_task: SpawnedTask<Result<()>>,
    mut files: DemuxedStreamReceiver,
    most_ended: usize,
) -> Result<(VecDeque<FileRows>, Written)> {
    let mut filling = JoinSet::new();
    let (mut filled, mut written) = (VecDeque::new(), Written::of(Arc::clone(destination), Vec::new()));
    let mut failure = None;
    let mut demux_task = Some(demux_task);
    let mut more_files = true;
    loop {
        let outcome = tokio::select! {
            next = files.recv(), if more_files => match next {
                Some((path, batches)) => FileRows::new(Arc::clone(destination), path).map(|rows| {
                    filling.spawn(async { rows.fill(batches).await.map(Progress::Filled) });
                }),
                None => {
                    more_files = false;
                    Ok(())
                }
            },
            Some(outcome) = filling.join_next() => joined(outcome).map(|progress| match progress {
                Progress::Filled(rows) => filled.push_back(rows),
                Progress::Finished(files) => written.add(files),
            }),
            else => break,
        };
        if failure.is_none()
            && more_files
            && destination.ends_early
            && filled.len() > most_ended
            && let Some(first) = filled.pop_front()
        {
            filling.spawn(async { first.finish().await.map(Progress::Finished) });
        }
        if let Err(error) = outcome {
            failure.get_or_insert(error);
            // Dropping the demultiplexer ends the rows of the other files.
            demux_task = None;
        }
    }
    if let (None, Some(demux_task)) = (&failure, demux_task) {
        let outcome = demux_task.join_unwind().await;
        let outcome = outcome.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)));
        failure = outcome.and_then(|outcome| outcome).err();
    }
    match failure {
        None => Ok((filled, written)),
        Some(error) => {
            for rows in filled {
                rows.abort().await;
            }
            written.remove().await;
            Err(error)
        }
    }
}

/// How far a file is.
enum Progress {
    /// All of its rows are written.
    Filled(FileRows),
    Finished(Written),
}

/// Completes all files, in addition to those `written`; if anything fails, none is left behind.
pub(super) async fn finish(filled: VecDeque<FileRows>, mut written: Written) -> Result<Written> {
    let mut finishing = JoinSet::new();
    let mut waiting = filled.into_iter();
    let mut failure = None;
    loop {
        while failure.is_none()
            && finishing.len() < FINISHING
            && let Some(rows) = waiting.next()
        {
            finishing.spawn(rows.finish());
        }
        match finishing.join_next().await.map(joined) {
            Some(Ok(file)) => written.add(file),
            Some(Err(error)) => drop(failure.get_or_insert(error)),
            None => break,
        }
    }
    let Some(error) = failure else { return Ok(written) };
    for rows in waiting {
        rows.abort().await;
    }
    written.remove().await;
    Err(error)
}

/// Returns the result of a task, and propagates a panic.
fn joined<T>(outcome: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    match outcome {
        Ok(outcome) => outcome,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(exec_datafusion_err!("a task that writes a file was cancelled: {error}")),
    }
}
