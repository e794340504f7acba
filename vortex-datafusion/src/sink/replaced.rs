//! The files whose rows `INSERT OVERWRITE` replaces.
//!
//! They are those that the table had when the statement was planned, as its own scans of the table see them. They are
//! removed once all new files are complete: a statement that fails changes nothing, and one may read what it replaces.
//! Files that others add meanwhile stay. No store replaces several files at once, so queries may see the rows of both for
//! a moment, and do for longer if the process is killed then.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion_common::{Result, exec_err};
use datafusion_datasource::file_sink_config::FileSinkConfig;
use datafusion_expr::dml::InsertOp;
use futures::{StreamExt as _, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStore as _};

use super::file::{Destination, WrittenFile};

/// Number of files that an error names.
const NAMED: usize = 3;

/// The files that a statement replaces, if it replaces any.
pub(super) fn replaced_files(config: &FileSinkConfig) -> Vec<Path> {
    match config.insert_op {
        InsertOp::Overwrite => {
            config.file_group.iter().map(|file| file.object_meta.location.clone()).collect()
        }
        InsertOp::Append | InsertOp::Replace => Vec::new(),
    }
}

/// Removes the replaced files, but for those in whose place there are new ones. It goes on if nobody waits for it.
///
/// # Errors
/// If some could not be removed, whose rows are still in the table.
pub(super) async fn remove_replaced(
    destination: Arc<Destination>,
    mut files: Vec<Path>,
    written: &[WrittenFile],
) -> Result<()> {
    let new: HashSet<&Path> = written.iter().map(|file| &file.path).collect();
    files.retain(|file| !new.contains(file));
    if files.is_empty() {
        return Ok(());
    }
    let runtime = destination.runtime.clone();
    match runtime.spawn(remove_all(destination, files)).await {
        Ok(outcome) => outcome,
        Err(error) => exec_err!("the new rows are in the table, and maybe replaced ones: {error}"),
    }
}

async fn remove_all(destination: Arc<Destination>, files: Vec<Path>) -> Result<()> {
    let paths = stream::iter(files.clone()).map(Ok).boxed();
    let outcomes: Vec<_> = destination.store.delete_stream(paths).collect().await;
    destination.forget_files(&files.iter().collect());
    destination.forget_listings(&files);
    let mut left = outcomes.into_iter().filter_map(|outcome| match outcome {
        Ok(_) | Err(Error::NotFound { .. }) => None,
        Err(error) => Some(error.to_string()),
    });
    let errors: Vec<String> = left.by_ref().take(NAMED).collect();
    if errors.is_empty() {
        return Ok(());
    }
    exec_err!(
        "the new rows are in the table, but {} of {} files of replaced rows could not be removed, and are still read until they \
         are deleted: {}",
        errors.len() + left.count(),
        files.len(),
        errors.join("; ")
    )
}
