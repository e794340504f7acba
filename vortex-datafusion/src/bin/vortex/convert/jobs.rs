//! The conversions that a command makes, and running them.

use std::collections::HashMap;
use std::future::ready;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::Semaphore;
use vortex_core::write::WriteOptions;
use vortex_datafusion::RowOrder;

use super::arguments::Arguments;
use super::copies::readable;
use super::destination::Destination;
use super::find::Found;
use super::input::{Reader, Rows, Wanted, are_local};
use super::output::{Form, Outputs, Target};
use super::text_form::{is_read_as, renamed};
use crate::failure::{Failure, Failures, Outcome};
use crate::formats::Format;

/// Number of small files that are converted at once, into a file each: more if they are in an object store. And the
/// bytes up to which files are small.
const AT_ONCE_LOCAL: usize = 4;
const AT_ONCE_REMOTE: usize = 16;
const SMALL_BYTES: u64 = 4 << 20;

/// The conversion of some files into one target.
pub(super) struct Job {
    pub(super) files: Vec<Found>,
    target: Target,
    pub(super) format: Format,
    /// A folder to create unless it exists.
    folder: Option<Destination>,
}

/// Runs conversions, a few at a time.
pub(super) async fn run_jobs(
    jobs: &[Job],
    arguments: &Arguments,
    reader: &Reader,
    options: &WriteOptions,
) -> Outcome {
    let (job_count, done, has_ended) = (jobs.len(), AtomicUsize::new(0), AtomicBool::new(false));
    let is_local = jobs.iter().all(|job| are_local(&job.files));
    let at_once = if is_local { AT_ONCE_LOCAL } else { AT_ONCE_REMOTE };
    let permits = Semaphore::new(at_once);
    let runs = jobs.iter().map(|job| async {
        let wanted = if job.is_small() { 1 } else { at_once };
        let _permits = permits.acquire_many(wanted as u32).await;
        // Conversions that have begun are completed, so that the message counts them.
        if has_ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        let outcome = job.run(arguments, reader, options).await;
        let outcome = match &*job.files {
            // What is wrong with the arguments for one file may be right for others.
            [file] if job_count > 1 => outcome.map_err(|failure| match failure {
                Failure::Usage(message) => Failure::error(format!("{}: {message}", file.name)),
                other => Failure::at(&file.name, other),
            }),
            _ => outcome,
        };
        match &outcome {
            Ok(()) => _ = done.fetch_add(1, Ordering::Relaxed),
            Err(Failure::Error(_)) if arguments.keep_going => {}
            Err(_) => has_ended.store(true, Ordering::Relaxed),
        }
        outcome
    });
    let mut failures = Failures::among(job_count);
    let outcome = stream::iter(runs).buffered(at_once).fold(Ok(()), |before: Outcome, outcome| {
        let outcome = match outcome {
            Err(failure) if arguments.keep_going => failures.report(failure),
            outcome => outcome,
        };
        ready(before.and(outcome))
    });
    let outcome = outcome.await.and_then(|()| failures.outcome());
    outcome.map_err(|failure| match failure {
        Failure::Error(message) if job_count > 1 => {
            let done = done.into_inner();
            Failure::Error(format!("{message} ({done} of {job_count} files were converted)"))
        }
        other => other,
    })
}

/// The conversions to run; reports invalid arguments before anything is written.
pub(super) fn jobs(arguments: &Arguments, output: &Destination, files: Vec<Found>) -> Outcome<Vec<Job>> {
    let refused = |place: &Destination, why: &str| Err(Failure::Usage(format!("{place}: {why}")));
    // Many files go into a folder, unless a format for all of them is given.
    let has_format = arguments.to.is_some() || output.format().is_some();
    let makes_several = files.len() > 1 || arguments.target_file_size.is_some();
    let is_folder = output.is_folder() || (makes_several && !has_format && output.may_become_folder());
    let extension = if is_folder { Some(Format::Vortex) } else { output.format() };
    let Some(format) = arguments.to.or(extension) else {
        return refused(output, "unknown format; set it with --to, or by the extension");
    };
    if let Some(bytes) = arguments.target_file_size {
        if !is_folder && (!output.may_become_folder() || output.format().is_some()) {
            return refused(output, "parts are written into a folder, whose name must end with `/`");
        }
        let target = Target::Parts { folder: output.clone(), bytes: bytes as u64 };
        return Ok(vec![Job { files, target, format, folder: Some(output.clone()) }]);
    }
    if !is_folder {
        if output.path().is_some_and(|path| !is_read_as(&path, format)) {
            return refused(
                output,
                "would be read as compressed, or as separated by tabs; give it another name",
            );
        }
        if output.is_among(&files) {
            return refused(output, "is the input and the output");
        }
        return Ok(vec![Job { files, target: Target::One(output.clone()), format, folder: None }]);
    }
    let mut taken: HashMap<PathBuf, String> = HashMap::new();
    let mut jobs = Vec::with_capacity(files.len());
    for file in &files {
        let relative = renamed(&file.relative, format);
        let place = output.join(&relative);
        let folder = relative.parent().map(|folder| output.join(folder));
        if let Some(other) = taken.insert(relative, file.name.clone()) {
            return Err(Failure::Usage(format!("{other} and {} would both become {place}", file.name)));
        }
        if place.is_among(&files) {
            return refused(&place, "is an input and an output");
        }
        jobs.push(Job { files: vec![file.alone()], target: Target::One(place), format, folder });
    }
    Ok(jobs)
}

impl Job {
    /// Whether it takes so little memory that several may run at once: most of the time, they wait for the disk.
    fn is_small(&self) -> bool {
        self.files.iter().map(|file| file.meta.size).sum::<u64>() <= SMALL_BYTES
    }

    async fn run(&self, arguments: &Arguments, reader: &Reader, options: &WriteOptions) -> Outcome {
        // Who names the columns knows what is left out.
        if arguments.columns.is_none() {
            reader.check_lost(&self.files).await?;
        }
        let files = readable(reader, &arguments.csv, &self.files).await?;
        let columns = match &arguments.exclude {
            Some(excluded) => Some(reader.columns_without(&files, excluded).await?),
            None => arguments.columns.clone(),
        };
        let wanted = Wanted {
            columns: columns.as_deref(),
            limit: arguments.limit,
            sort_by: &arguments.sort_by,
            types: &arguments.csv.types(&reader.context.state())?,
        };
        let rows = reader.rows(&files, &wanted).await?;
        let options = arguments.vortex.with_columns(options.clone(), &rows.schema)?;
        self.folder.as_ref().map_or(Ok(()), Destination::make_folder)?;
        let order = rows.order.as_ref().map(|order| RowOrder::new(order, &rows.schema));
        let schema = Arc::clone(&rows.schema);
        let form = Form { format: self.format, schema, options, order };
        let mut outputs = Outputs::create(self.target.clone(), form).await?;
        let progress = if self.is_small() { ProgressBar::hidden() } else { progress(rows.count) };
        copy(rows, &mut outputs, progress).await?;
        outputs.finish().await
    }
}

async fn copy(mut rows: Rows, outputs: &mut Outputs, progress: ProgressBar) -> Outcome {
    while let Some(batch) = rows.batches.try_next().await? {
        outputs.write(&batch).await?;
        progress.inc(batch.num_rows() as u64);
        // Other formats than Vortex are encoded on the spot; an interrupt is noticed in between.
        tokio::task::yield_now().await;
    }
    progress.finish_and_clear();
    Ok(())
}

/// A progress bar over the rows, shown only on a terminal.
fn progress(rows: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(rows, ProgressDrawTarget::stderr_with_hz(5));
    let template = match rows {
        Some(_) => "{wide_bar} {human_pos} of {human_len} rows, {eta} left",
        None => "{spinner} {human_pos} rows, {elapsed}",
    };
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
