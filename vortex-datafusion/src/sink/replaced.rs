//! The files whose rows `INSERT OVERWRITE` replaces.
//!
//! They are those that the table had when the statement was planned. They are removed once all new files are complete:
//! a statement that fails before that changes nothing, and one may read what it replaces. If some cannot be removed, or
//! another statement has removed them, it fails although the new rows are in the table. Files that others add later
//! stay. No store replaces several files at once, so queries may see the rows of both for a moment, and do for longer
//! if the process is killed then.
//!
//! DataFusion lists the files of the table again after it has planned the statement's own scans of it. A file that
//! another statement completes in between is replaced, too, although it was not read.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion_common::{Result, exec_err};
use datafusion_datasource::file_sink_config::FileSinkConfig;
use datafusion_expr::dml::InsertOp;
use futures::{StreamExt as _, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStore as _};

use super::file::Destination;
use super::written::WrittenFile;

/// Number of errors that are told.
const TOLD: usize = 3;

/// The files that a statement replaces, if it replaces any: those of the table, and those that earlier runs of its plan
/// have written.
pub(super) fn replaced_files(config: &FileSinkConfig, written: &[WrittenFile]) -> Vec<Path> {
    match config.insert_op {
        InsertOp::Overwrite => {
            let listed = config.file_group.iter().map(|file| &file.object_meta.location);
            listed.chain(written.iter().map(|file| &file.path)).cloned().collect()
        }
        InsertOp::Append | InsertOp::Replace => Vec::new(),
    }
}

/// Removes the replaced files, but for those in whose place there are new ones. It goes on if nobody waits for it.
///
/// # Errors
/// If some could not be removed, whose rows are still in the table; or if some were gone, unless it `runs_again`: then,
/// those of what removed them are.
pub(super) async fn remove_replaced(
    destination: Arc<Destination>,
    mut files: Vec<Path>,
    written: &[WrittenFile],
    runs_again: bool,
) -> Result<()> {
    let new: HashSet<&Path> = written.iter().map(|file| &file.path).collect();
    files.retain(|file| !new.contains(file));
    if files.is_empty() {
        return Ok(());
    }
    let runtime = destination.runtime.clone();
    match runtime.spawn(remove_all(destination, files, runs_again)).await {
        Ok(outcome) => outcome,
        Err(error) => exec_err!("the new rows are in the table, and maybe replaced ones: {error}"),
    }
}

async fn remove_all(destination: Arc<Destination>, files: Vec<Path>, runs_again: bool) -> Result<()> {
    let paths = stream::iter(files.clone()).map(Ok).boxed();
    let outcomes: Vec<_> = destination.store.delete_stream(paths).collect().await;
    destination.forget_files(&files.iter().collect());
    destination.forget_listings(&files);
    let was_gone = |outcome: &object_store::Result<Path>| matches!(outcome, Err(Error::NotFound { .. }));
    let is_gone = |outcome: &object_store::Result<Path>| outcome.is_ok() || was_gone(outcome);
    // A store may answer for many files at once if it fails.
    let left = files.len() - outcomes.iter().filter(|outcome| is_gone(outcome)).count();
    if left == 0 {
        // Some stores do not tell.
        return match outcomes.iter().filter(|outcome| was_gone(outcome)).count() {
            missing if missing > 0 && !runs_again => exec_err!(
                "the new rows are in the table, but {missing} of {} files of replaced rows were gone: another statement \
                 has removed them meanwhile, and if it wrote rows, these are in the table, too (or the store removed \
                 them, and its answer was lost)",
                files.len()
            ),
            _ => Ok(()),
        };
    }
    let errors =
        outcomes.iter().filter(|outcome| !is_gone(outcome)).filter_map(|outcome| outcome.as_ref().err());
    let told: Vec<String> = errors.take(TOLD).map(ToString::to_string).collect();
    exec_err!(
        "the new rows are in the table, but {left} of {} files of replaced rows could not be removed, and are still read \
         until they are deleted: {}",
        files.len(),
        told.join("; ")
    )
}
