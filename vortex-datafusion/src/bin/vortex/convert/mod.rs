//! `vortex convert`: writes files in another format, or again in the same format.
//!
//! ```text
//! one file        rows of all inputs, in the order given, into that file
//! a folder        each input into its own file, at the same relative path
//! a folder, with --target-file-size
//!                 rows of all inputs, in the order given, into part-00000, part-00001, ...
//! ```
//!
//! Batches are written as they are decoded, so memory does not grow with the files; only sorting needs more
//! space, on disk. Each output has a temporary name, or is an upload, until it is complete: a file with the final name
//! is always complete.

mod checked;
mod copies;
mod destination;
mod encoder;
mod find;
mod given_order;
mod input;
mod json_array;
mod json_keys;
mod numbered;
mod output;
mod parquet;
mod partial;
mod query;
mod schemas;
mod sort;
mod stdin;
mod table;
mod text_form;
mod vortex;
mod writer_types;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::ready;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::datatypes::Schema;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::Semaphore;
use vortex_core::Level;
use vortex_core::write::WriteOptions;
use vortex_datafusion::{RowOrder, VortexOptions, column_path};

use crate::failure::{Failure, Failures, Outcome};
use crate::formats::Format;
use crate::min_reader::MinReader;
use crate::text::{counted, parse_size};
use copies::readable;
use destination::Destination;
use find::Found;
use input::{Reader, Rows, Wanted};
use output::{Form, Outputs, Target};
pub(crate) use partial::remove_all as remove_partial_files;
use sort::SortKey;
use text_form::{CsvArguments, is_read_as, renamed};

/// Number of small files that are converted at once, into a file each, and the bytes up to which files are small.
const AT_ONCE: usize = 4;
const SMALL_BYTES: u64 = 4 << 20;
/// Number of files that are named of those that are left out.
const TOLD: usize = 3;

/// Arguments of `vortex convert`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "vortex convert [OPTIONS] <INPUT>... <OUTPUT>")]
pub(crate) struct Arguments {
    /// What to convert: files, folders, globs; paths or URLs (s3://, gs://, az://, https://); `-` is standard
    /// input. The last place is the file or, if it ends in `/` or is one, the folder to write: a path, or the URL of a
    /// bucket; `-` is standard output. Files that exist are replaced; parts (--target-file-size) are refused if they
    /// exist.
    #[arg(required = true, value_name = "PLACE", value_parser = PathBufValueParser::new().map(standard))]
    places: Vec<PathBuf>,
    /// The format to read; by default, extensions determine it.
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Option<Format>,
    /// The format to write; by default, the extension determines it, and folders get Vortex files.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<Format>,
    /// Only these columns, in this order; names that contain commas cannot be given, use SQL.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = trimmed)]
    columns: Option<Vec<String>>,
    /// All columns but these.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = trimmed, conflicts_with = "columns")]
    exclude: Option<Vec<String>>,
    /// At most this many rows of each output.
    #[arg(long, value_name = "ROWS")]
    limit: Option<u64>,
    /// Sort the rows of each output: `day,price desc,note nulls first`; nulls last, with `desc` first.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    sort_by: Vec<SortKey>,
    /// Memory for sorting, like `4g`; rows that do not fit are spilled to temporary files. Some batches must fit.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, default_value = "1g")]
    memory_limit: usize,
    /// Cut the output into files of about this size, like `256m`.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    target_file_size: Option<usize>,
    /// Go on after a file that cannot be converted; the exit code tells. By default, no more files are begun.
    #[arg(short, long)]
    keep_going: bool,
    #[command(flatten)]
    csv: CsvArguments,
    #[command(flatten)]
    vortex: VortexArguments,
}

/// How Vortex files are written.
#[derive(Debug, clap::Args)]
struct VortexArguments {
    /// `fast`: decodes fastest, larger files; `default`: about the size of Parquet; `compact`: smallest,
    /// slowest to decode.
    #[arg(long, value_name = "LEVEL", ignore_case = true, value_parser = levels())]
    level: Option<Level>,
    /// The level of one column, like `id=fast`, or of a field of structs, like `address.city=compact`; may be repeated.
    #[arg(long, value_name = "COLUMN=LEVEL", value_parser = column_level)]
    column_level: Vec<(String, Level)>,
    /// The oldest release of the reference implementation that must read the files: `0.76`, `newest`.
    #[arg(long, value_name = "RELEASE")]
    min_reader: Option<MinReader>,
    /// Store checksums, for `vortex verify`.
    #[arg(long)]
    checksums: bool,
}

/// The levels, which help and errors list.
fn levels() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(Level::ALL.map(Level::name)).try_map(|name| name.parse::<Level>())
}

/// A column and its level. The name of the column may contain a `=`.
fn column_level(text: &str) -> Result<(String, Level), String> {
    let (column, level) = text.rsplit_once('=').ok_or("expected a column and its level, like id=fast")?;
    match level.trim().parse() {
        Ok(level) => Ok((column.trim().to_owned(), level)),
        Err(_) => {
            Err(format!("`{level}` is not a level; write one of {}", Level::ALL.map(Level::name).join(", ")))
        }
    }
}

/// The path, or `-` for a standard stream: a file that it is redirected to would be replaced otherwise.
fn standard(path: PathBuf) -> PathBuf {
    if ["/dev/stdin", "/dev/stdout"].iter().any(|stream| path == Path::new(stream)) {
        "-".into()
    } else {
        path
    }
}

/// A name without the spaces around it.
#[expect(clippy::unnecessary_wraps, reason = "what clap expects of a parser")]
fn trimmed(name: &str) -> Result<String, Infallible> {
    Ok(name.trim().to_owned())
}

impl VortexArguments {
    fn is_given(&self) -> bool {
        self.level.is_some() || !self.column_level.is_empty() || self.min_reader.is_some() || self.checksums
    }

    fn options(&self) -> WriteOptions {
        let mut options = VortexOptions::default();
        options.level = self.level.unwrap_or_default();
        options.checksums = self.checksums;
        if let Some(reader) = &self.min_reader {
            options.min_reader = Some(reader.release);
            reader.warn_if_unknown();
        }
        options.write_options()
    }

    /// The options for a file with these columns.
    fn with_column_levels(&self, mut options: WriteOptions, schema: &Schema) -> Outcome<WriteOptions> {
        for (column, level) in &self.column_level {
            let path = column_path(schema, column)
                .map_err(|found| Failure::error(format!("--column-level: {found}")))?;
            options = options.with_column_level(path, *level);
        }
        Ok(options)
    }
}

impl Arguments {
    /// The inputs and the output.
    fn places(&self) -> Outcome<(Vec<&str>, &Path)> {
        fn place(path: &Path) -> Outcome<&str> {
            let not_unicode = || format!("{}: is not Unicode; give the file another name", path.display());
            path.to_str().ok_or_else(|| Failure::Usage(not_unicode()))
        }
        match self.places.split_last() {
            Some((output, inputs)) if !inputs.is_empty() => {
                Ok((inputs.iter().map(|input| place(input)).collect::<Outcome<_>>()?, output))
            }
            _ => Err(Failure::Usage("convert needs an input and an output".to_owned())),
        }
    }

    /// A column that `--columns` names twice.
    fn twice(&self) -> Option<&String> {
        let mut names = HashSet::new();
        self.columns.iter().flatten().find(|name| !names.insert(*name))
    }
}

/// The conversion of some files into one target.
struct Job {
    files: Vec<Found>,
    target: Target,
    format: Format,
    /// A folder to create unless it exists.
    folder: Option<Destination>,
}

/// Converts the files.
pub(crate) async fn run(arguments: Arguments) -> Outcome {
    let options = arguments.vortex.options();
    let Prepared { reader, jobs, notes } = prepare(&arguments).await?;
    let outcome = run_jobs(&jobs, &arguments, &reader, &options).await;
    if outcome.is_ok() || arguments.keep_going {
        notes.iter().for_each(|note| _ = writeln!(std::io::stderr(), "vortex: {note}"));
    }
    outcome
}

/// What is known before anything is written.
struct Prepared {
    reader: Reader,
    jobs: Vec<Job>,
    /// What to tell once the files are converted.
    notes: Vec<String>,
}

/// Finds the files, and the conversions to run.
async fn prepare(arguments: &Arguments) -> Outcome<Prepared> {
    let refused = |why: &str| Err(Failure::Usage(why.to_owned()));
    let (inputs, output) = arguments.places()?;
    if inputs.iter().filter(|input| **input == "-").count() > 1 {
        return refused("standard input can be read only once");
    }
    if let Some(name) = arguments.twice() {
        return refused(&format!("--columns: `{name}` is named twice"));
    }
    let reader = Reader::open(!arguments.sort_by.is_empty(), arguments.memory_limit)?;
    let (mut files, mut notes, mut merged_notes) = (Vec::new(), Vec::new(), Vec::new());
    for place in inputs {
        let (found, unknown) = reader.find(place, arguments.from, &arguments.csv).await?;
        notes.extend(note_of_unknown(place, &unknown));
        merged_notes.extend(note_of_subfolders(place, &found));
        files.extend(found);
    }
    if arguments.csv.is_given() && files.iter().any(|file| file.format != Format::Csv) {
        return refused("--delimiter, --no-header and --type apply to CSV files only");
    }
    let mut seen = HashSet::new();
    if let Some(twice) = files.iter().find(|file| !seen.insert(file.url.to_string())) {
        return refused(&format!("{}: is among the inputs twice", twice.name));
    }
    let output = Destination::find(output, &reader.stores).await?;
    let jobs = jobs(arguments, &output, files)?;
    if arguments.vortex.is_given() && jobs.iter().any(|job| job.format != Format::Vortex) {
        return refused("--level, --column-level, --min-reader and --checksums apply to Vortex files only");
    }
    if jobs.iter().any(|job| job.files.len() > 1) {
        if arguments.keep_going {
            return refused(
                "--keep-going: the files become one, in which it could not be seen that one is missing",
            );
        }
        notes.append(&mut merged_notes);
    }
    Ok(Prepared { reader, jobs, notes })
}

/// Runs conversions, a few at a time.
async fn run_jobs(jobs: &[Job], arguments: &Arguments, reader: &Reader, options: &WriteOptions) -> Outcome {
    let (job_count, done, has_ended) = (jobs.len(), AtomicUsize::new(0), AtomicBool::new(false));
    let permits = Semaphore::new(AT_ONCE);
    let runs = jobs.iter().map(|job| async {
        let wanted = if job.is_small() { 1 } else { AT_ONCE };
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
    let outcome = stream::iter(runs).buffered(AT_ONCE).fold(Ok(()), |before: Outcome, outcome| {
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

/// What to tell about files of a folder that are not converted.
fn note_of_unknown(place: &str, files: &[PathBuf]) -> Option<String> {
    let names: Vec<String> = files.iter().take(TOLD).map(|file| file.display().to_string()).collect();
    let more = if files.len() > TOLD { ", .." } else { "" };
    (!files.is_empty()).then(|| {
        let count = counted(files.len() as u64, "file");
        format!(
            "{place}: left out {count} of unknown format, which --from would set: {}{more}",
            names.join(", ")
        )
    })
}

/// What to tell about files of a folder that become part of an output, but not of a table over that folder.
fn note_of_subfolders(place: &str, files: &[Found]) -> Option<String> {
    let below = files.iter().filter(|file| file.in_subfolder).count();
    let format = files.iter().find(|file| file.in_subfolder)?.format.extension();
    let (separator, all) = (if place.ends_with('/') { "" } else { "/" }, files.len());
    Some(format!(
        "{place}: {below} of {all} files are in subfolders, which SQL over this folder leaves out; a pattern like \
         '{place}{separator}*.{format}' does, too"
    ))
}

/// The conversions to run; reports invalid arguments before anything is written.
fn jobs(arguments: &Arguments, output: &Destination, files: Vec<Found>) -> Outcome<Vec<Job>> {
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
        let options = arguments.vortex.with_column_levels(options.clone(), &rows.schema)?;
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
