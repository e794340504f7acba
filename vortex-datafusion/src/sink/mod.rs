//! Writing: from the rows of a plan to files.
//!
//! ```text
//! rows ── demultiplexer ──┬── a/day=1/x.vortex ── FileRows ── FileWriter ──┐
//!         (DataFusion)    ├── a/day=2/x.vortex ── FileRows ── FileWriter ──┼── all written? ─ finish
//!                         └── …                                            ┘
//! ```
//!
//! DataFusion decides which rows go to which file; each file has its own task and writer. If the query fails,
//! the rows of all files end early, which their tasks cannot distinguish from a regular end. Therefore, no
//! file is finished before the query is known to have succeeded; a writer that is dropped leaves nothing
//! behind.
//!
//! Files that are full, if the options limit their size or the setting `soft_max_rows_per_output_file` their rows, are
//! finished while the query runs: there may be thousands of them, and each would otherwise hold its last part in memory
//! and its file open until the end. They are removed if the statement fails or is dropped; a process that is killed leaves
//! them behind.
//!
//! `INSERT OVERWRITE` then removes the files that it replaces (`replaced.rs`).
//!
//! If a statement is dropped while files are being finished, those with random names are removed, even if they
//! appear later. A `COPY` to a single file may have replaced it as a whole by then: what has its name is never
//! removed, since it could be the result of a second attempt.

mod checks;
mod file;
mod partitions;
mod replaced;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Date32Type, Date64Type, Fields, Schema, SchemaRef};
use arrow::temporal_conversions::{date32_to_datetime, date64_to_datetime};
use async_trait::async_trait;
use datafusion_common::{DataFusionError, Result, exec_datafusion_err, exec_err};
use datafusion_common_runtime::{JoinSet, SpawnedTask};
use datafusion_datasource::display::FileGroupDisplay;
use datafusion_datasource::file_sink_config::{FileSink, FileSinkConfig};
use datafusion_datasource::sink::DataSink;
use datafusion_datasource::write::demux::DemuxedStreamReceiver;
use datafusion_datasource::write::get_writer_schema;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::LexRequirement;
use datafusion_physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, MetricsSet};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType};
use futures::StreamExt as _;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Receiver;

use crate::options::VortexOptions;
use crate::orders::{self, SortedColumn};
use crate::user_metadata::UserMetadata;
pub use file::WrittenFile;
use file::{Destination, FileRows, Written};
use partitions::PartitionColumns;
use replaced::{remove_replaced, replaced_files};

const MILLISECONDS_PER_DAY: i64 = 86_400_000;

/// Number of files that are finished concurrently.
const FINISHING: usize = 8;

/// Writes rows into Vortex files, for a `DataSinkExec`.
pub struct VortexSink {
    config: FileSinkConfig,
    options: VortexOptions,
    metadata: UserMetadata,
    /// The columns by which the rows of each file are supposed to be sorted.
    order: Vec<SortedColumn>,
    /// The columns of the files.
    file_schema: SchemaRef,
    /// The columns of the rows. Those that folders are named after may have nulls as far as DataFusion is concerned, whose
    /// error would tell no advice.
    schema: SchemaRef,
    written: Mutex<Vec<WrittenFile>>,
    metrics: ExecutionPlanMetricsSet,
}

impl VortexSink {
    /// Creates a sink for rows that satisfy `order`, which files record as far as their rows do.
    ///
    /// # Errors
    /// If rows are to replace others one by one (`InsertOp::Replace`), or those of a table of several places; if there is no
    /// path to write to, or it is a pattern that the names of the files would not match; if a partition column is named twice or is not among the
    /// rows, they leave no column for the files, or the name of one has letters that names of folders encode, or a `=`.
    pub fn try_new(
        config: FileSinkConfig,
        options: VortexOptions,
        order: Option<&LexRequirement>,
    ) -> Result<Self> {
        checks::check(&config)?;
        let file_schema = get_writer_schema(&config);
        // All rows of a file have the same values in these.
        let partitions: Vec<&str> = match config.keep_partition_by_columns {
            true => Vec::new(),
            false => config.table_partition_cols.iter().map(|(name, _)| name.as_str()).collect(),
        };
        let order =
            order.map(|order| orders::sorted_columns(order, &file_schema, &partitions)).unwrap_or_default();
        let schema = with_nullable(config.output_schema(), &config.table_partition_cols);
        Ok(Self {
            config,
            options,
            metadata: UserMetadata::default(),
            order,
            file_schema,
            schema,
            written: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Adds an entry of metadata to all files, which readers return unchanged:
    /// [`VortexFile::user_metadata`](vortex_core::VortexFile::user_metadata). One with the same key is replaced.
    ///
    /// # Errors
    /// As of [`WriteOptions::with_user_metadata`](vortex_core::write::WriteOptions::with_user_metadata), with one entry less, and if the
    /// key begins with `vortex-datafusion.`.
    pub fn with_user_metadata(mut self, key: &str, value: &str) -> Result<Self> {
        self.metadata.insert(key, value)?;
        Ok(self)
    }

    pub(crate) fn with_all_metadata(self, metadata: UserMetadata) -> Self {
        Self { metadata, ..self }
    }

    #[cfg(feature = "proto")]
    pub(crate) fn metadata(&self) -> &UserMetadata {
        &self.metadata
    }

    /// How files are written.
    pub fn options(&self) -> &VortexOptions {
        &self.options
    }

    /// The files that have been written, in the order in which they were completed; a table format records
    /// them when it commits. Empty until the statement has succeeded; if a plan runs again, those of all runs.
    pub fn written(&self) -> Vec<WrittenFile> {
        self.written.lock().clone()
    }

    /// Whether everything is written into one file with a given name. Other names contain random text.
    pub(crate) fn is_single_file(&self) -> bool {
        let path = self.config.table_paths.first();
        self.config.table_partition_cols.is_empty()
            && path.is_some_and(|path| self.config.file_output_mode.single_file_output(path))
    }

    /// Whether rows may continue in another file when one is full.
    fn may_split(&self) -> bool {
        !self.is_single_file() && self.options.target_file_size > 0
    }
}

impl fmt::Debug for VortexSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VortexSink")
            .field("paths", &self.config.table_paths)
            .field("options", &self.options)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for VortexSink {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                f.write_str("VortexSink(file_groups=")?;
                FileGroupDisplay(&self.config.file_group).fmt_as(kind, f)?;
                if let Some(order) = orders::entry(&self.order) {
                    write!(f, ", order=[{order}]")?;
                }
                f.write_str(")")
            }
            DisplayFormatType::TreeRender => Ok(()),
        }
    }
}

#[async_trait]
impl FileSink for VortexSink {
    fn config(&self) -> &FileSinkConfig {
        &self.config
    }

    async fn spawn_writer_tasks_and_join(
        &self,
        context: &Arc<TaskContext>,
        demux_task: SpawnedTask<Result<()>>,
        files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> Result<u64> {
        let counter = |name: &'static str, category| {
            MetricBuilder::new(&self.metrics).with_category(category).global_counter(name)
        };
        let rows_written = counter("rows_written", MetricCategory::Rows);
        let bytes_written = counter("bytes_written", MetricCategory::Bytes);
        let files_written = counter("files_written", MetricCategory::Uncategorized);
        // Includes time spent in storage: writing a part waits for an earlier one.
        let write_time = MetricBuilder::new(&self.metrics).subset_time("write_time", 0);

        let destination = Arc::new(Destination {
            store,
            has_unique_paths: !self.is_single_file(),
            schema: Arc::clone(&self.file_schema),
            partitions: PartitionColumns::new(&self.config),
            options: self.metadata.added_to(self.options.write_options())?,
            order: self.order.clone(),
            full_at: self.may_split().then_some(self.options.target_file_size),
            ends_early: !self.is_single_file() && self.config.table_partition_cols.is_empty(),
            pool: Arc::clone(context.memory_pool()),
            caches: Arc::clone(&context.runtime_env().cache_manager),
            runtime: Handle::current(),
            write_time,
        });
        // As many end together when the query fails.
        let most_ended = context.session_config().options().execution.minimum_parallel_output_files.get();
        let (filled, written) = fill(&destination, demux_task, files, most_ended).await?;
        let files = finish(filled, written).await?.keep();
        let rows = files.iter().map(|file| file.summary.row_count()).sum();
        let bytes: u64 = files.iter().map(|file| file.summary.file_size()).sum();
        rows_written.add(usize::try_from(rows).unwrap_or(usize::MAX));
        bytes_written.add(usize::try_from(bytes).unwrap_or(usize::MAX));
        files_written.add(files.len());
        let outcome = remove_replaced(destination, replaced_files(&self.config), &files).await;
        self.written.lock().extend(files);
        outcome.map(|()| rows)
    }
}

/// Writes the rows of all files. Those that end are not finished, but for the first ones if there are more than
/// `most_ended` while others begin. If anything fails, nothing is left behind.
async fn fill(
    destination: &Arc<Destination>,
    demux_task: SpawnedTask<Result<()>>,
    mut files: DemuxedStreamReceiver,
    most_ended: usize,
) -> Result<(VecDeque<FileRows>, Written)> {
    let mut filling = JoinSet::new();
    let (mut filled, mut written) = (VecDeque::new(), Written::new(Arc::clone(destination)));
    let mut failure = None;
    let mut demux_task = Some(demux_task);
    let mut more_files = true;
    while let Some(event) = next_event(&mut files, more_files, &mut filling).await {
        let outcome = match event {
            Event::Begun(path, batches) => FileRows::new(Arc::clone(destination), path).map(|rows| {
                filling.spawn(async { rows.fill(batches).await.map(Progress::Filled) });
            }),
            Event::AllBegun => {
                more_files = false;
                Ok(())
            }
            Event::Progress(outcome) => outcome.map(|progress| match progress {
                Progress::Filled(rows) => filled.push_back(rows),
                Progress::Finished(files) => written.add(files),
            }),
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

/// What happens while files are written.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is taken apart at once")]
enum Event {
    /// The first rows of another file are there.
    Begun(Path, Receiver<RecordBatch>),
    /// No further file will begin.
    AllBegun,
    /// A file is further than before, or it failed.
    Progress(Result<Progress>),
}

/// How far a file is.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the larger one")]
enum Progress {
    /// All of its rows are written.
    Filled(FileRows),
    Finished(Written),
}

/// Waits for what happens next; `None` if all files have begun and none is being written.
async fn next_event(
    files: &mut DemuxedStreamReceiver,
    more_files: bool,
    filling: &mut JoinSet<Result<Progress>>,
) -> Option<Event> {
    tokio::select! {
        next = files.recv(), if more_files => Some(match next {
            Some((path, batches)) => Event::Begun(path, batches),
            None => Event::AllBegun,
        }),
        Some(outcome) = filling.join_next() => Some(Event::Progress(joined(outcome))),
        else => None,
    }
}

/// Completes all files, in addition to those `written`; if anything fails, none is left behind.
async fn finish(filled: VecDeque<FileRows>, mut written: Written) -> Result<Written> {
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

#[async_trait]
impl DataSink for VortexSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(&self, rows: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        let partition_columns = self.config.table_partition_cols.iter().map(|(name, _)| name.clone());
        FileSink::write_all(self, checked(rows, partition_columns.collect()), context).await
    }
}

/// The schema in which these columns may have nulls.
fn with_nullable(schema: &SchemaRef, columns: &[(String, DataType)]) -> SchemaRef {
    let fields =
        schema.fields().iter().map(|field| match columns.iter().any(|(name, _)| name == field.name()) {
            true => Arc::new(field.as_ref().clone().with_nullable(true)),
            false => Arc::clone(field),
        });
    Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()))
}

/// The rows up to the first batch with a value in a partition column that is no name of a folder, which is an error. Of a
/// null, the demultiplexer of DataFusion 55 would take the value below it, such as 0, of a `Date64` the day, and of a
/// distant date, it would panic. See `tests/it/upstream/files.rs`: `folders_are_named_after_the_value_below_a_null`,
/// `folders_are_named_after_the_day_of_a_time`.
fn checked(rows: SendableRecordBatchStream, partition_columns: Vec<String>) -> SendableRecordBatchStream {
    if partition_columns.is_empty() {
        return rows;
    }
    let schema = rows.schema();
    let checked = rows.map(move |batch| {
        let batch = batch?;
        check_partition_columns(&batch, &partition_columns)?;
        Ok(batch)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, checked))
}

fn check_partition_columns(rows: &RecordBatch, partition_columns: &[String]) -> Result<()> {
    for name in partition_columns {
        let Some(column) = rows.column_by_name(name) else { continue };
        if column.logical_null_count() > 0 {
            return exec_err!(
                "the partition column `{name}` has nulls, after which no folder can be named: exclude these rows \
                 with `WHERE {name} IS NOT NULL`, or replace the nulls with `coalesce({name}, ...)`"
            );
        }
        let is_day = |milliseconds: i64| milliseconds % MILLISECONDS_PER_DAY == 0;
        let is_named = match column.data_type() {
            DataType::Date32 => column
                .as_primitive::<Date32Type>()
                .values()
                .iter()
                .all(|day| date32_to_datetime(*day).is_some()),
            DataType::Date64 => {
                let mut times = column.as_primitive::<Date64Type>().values().iter();
                times.all(|time| is_day(*time) && date64_to_datetime(*time).is_some())
            }
            _ => true,
        };
        if !is_named {
            return exec_err!(
                "the partition column `{name}` has a date with a time of day, or one that is too far away for a folder to \
                 be named after it: cast it to DATE or to text"
            );
        }
    }
    Ok(())
}
