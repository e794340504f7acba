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
//! and its file open until the end. They are removed if the statement fails or is dropped; a process that is killed
//! leaves them behind.
//!
//! `INSERT OVERWRITE` then removes the files that it replaces (`replaced.rs`).
//!
//! If a statement is dropped while files are being finished, those with random names are removed, even if they
//! appear later. A `COPY` to a single file may have replaced it as a whole by then: what has its name is never
//! removed, since it could be the result of a second attempt.

mod checks;
mod file;
mod memory;
mod partitions;
mod replaced;
mod tasks;
mod written;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion_common::{Result, plan_datafusion_err};
use datafusion_common_runtime::SpawnedTask;
use datafusion_datasource::display::FileGroupDisplay;
use datafusion_datasource::file_sink_config::{FileSink, FileSinkConfig};
use datafusion_datasource::sink::DataSink;
use datafusion_datasource::write::demux::DemuxedStreamReceiver;
use datafusion_datasource::write::get_writer_schema;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_expr::dml::InsertOp;
use datafusion_physical_expr::LexRequirement;
use datafusion_physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, MetricsSet};
use datafusion_physical_plan::{DisplayAs, DisplayFormatType};
use object_store::ObjectStore;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use vortex_core::Level;
use vortex_core::expr::FieldPath;

use crate::options::VortexOptions;
use crate::options::column_levels::{PREFIX, column_path};
use crate::options::user_metadata::UserMetadata;
use crate::orders::{self, SortedColumn};
use file::Destination;
use memory::WriteMemory;
use partitions::{PartitionColumns, checked, with_nullable};
use replaced::{remove_replaced, replaced_files};
use tasks::{fill, finish};
pub use written::WrittenFile;

/// Writes rows into Vortex files, for a `DataSinkExec`.
pub struct VortexSink {
    config: FileSinkConfig,
    options: VortexOptions,
    metadata: UserMetadata,
    column_levels: Vec<(FieldPath, Level)>,
    /// The columns by which the rows of each file are supposed to be sorted.
    order: Vec<SortedColumn>,
    /// The columns of the files.
    file_schema: SchemaRef,
    /// The columns of the rows. Those that folders are named after may have nulls as far as DataFusion is concerned,
    /// whose error would tell no advice.
    schema: SchemaRef,
    written: Mutex<Vec<WrittenFile>>,
    /// Whether the files of the table have been replaced before, by the same plan.
    has_run: AtomicBool,
    metrics: ExecutionPlanMetricsSet,
}

impl VortexSink {
    /// Creates a sink for rows that satisfy `order`, which files record as far as their rows do. If it is to overwrite
    /// (`InsertOp::Overwrite`), the files of `config.file_group` are deleted once all new ones are complete: a table
    /// format that only records which files count must let it append.
    ///
    /// # Errors
    /// If rows are to replace others one by one (`InsertOp::Replace`), or those of a table of several places; if there
    /// is no path to write to, or it is a pattern that the names of the files would not match; if a partition column is
    /// named twice or is not among the rows, they leave no column for the files, or the name of one has letters that
    /// names of folders encode, or a `=`.
    pub fn try_new(
        config: FileSinkConfig,
        options: VortexOptions,
        order: Option<&LexRequirement>,
    ) -> Result<Self> {
        checks::check(&config)?;
        let file_schema = get_writer_schema(&config);
        // All rows of a file have the same values in these.
        let partitions: Vec<&str> = if config.keep_partition_by_columns {
            Vec::new()
        } else {
            config.table_partition_cols.iter().map(|(name, _)| name.as_str()).collect()
        };
        let order =
            order.map(|order| orders::sorted_columns(order, &file_schema, &partitions)).unwrap_or_default();
        let schema = with_nullable(config.output_schema(), &config.table_partition_cols);
        Ok(Self {
            config,
            options,
            metadata: UserMetadata::default(),
            column_levels: Vec::new(),
            order,
            file_schema,
            schema,
            written: Mutex::default(),
            has_run: AtomicBool::new(false),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Adds an entry of metadata to all files, which readers return unchanged:
    /// [`VortexFile::user_metadata`](vortex_core::VortexFile::user_metadata). One with the same key is replaced.
    ///
    /// # Errors
    /// As of [`WriteOptions::with_user_metadata`](vortex_core::write::WriteOptions::with_user_metadata), with one entry
    /// less, and if the key begins with `vortex-datafusion.`.
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

    /// Compresses a column at another level than [that of the options](VortexOptions::level). A field of a struct is
    /// named like `address.city`; the level of a struct is that of its fields, too, unless they have one of their own.
    /// If no column has exactly this name, case is ignored.
    ///
    /// # Errors
    /// If the files will have no such column, for instance because folders are named after it, or several that differ
    /// in case.
    pub fn with_column_level(mut self, column: &str, level: Level) -> Result<Self> {
        let path = column_path(&self.file_schema, column).map_err(|found| {
            plan_datafusion_err!("{PREFIX}{column}: the files that are written have {found}")
        })?;
        self.column_levels.push((path, level));
        Ok(self)
    }

    #[cfg(feature = "proto")]
    pub(crate) fn column_levels(&self) -> &[(FieldPath, Level)] {
        &self.column_levels
    }

    /// How files are written.
    pub fn options(&self) -> &VortexOptions {
        &self.options
    }

    /// The files that have been written, in the order in which they were completed; a table format records
    /// them when it commits. Empty until all are complete; if a plan runs again, those of all runs, unless each
    /// replaces those before. If the statement replaces files and some could not be removed, it fails although these
    /// are there.
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

        let mut options = self.metadata.added_to(self.options.write_options_for(&self.file_schema)?)?;
        for (path, level) in &self.column_levels {
            options = options.with_column_level(path.clone(), *level);
        }
        let destination = Arc::new(Destination {
            store,
            has_unique_paths: !self.is_single_file(),
            schema: Arc::clone(&self.file_schema),
            partitions: PartitionColumns::new(&self.config),
            options,
            order: self.order.clone(),
            full_at: self.may_split().then_some(self.options.target_file_size),
            ends_early: !self.is_single_file() && self.config.table_partition_cols.is_empty(),
            memory: WriteMemory::new(Arc::clone(context.memory_pool())),
            growing: Mutex::default(),
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
        let replaced = replaced_files(&self.config, &self.written.lock());
        let runs_again = self.has_run.swap(true, Ordering::Relaxed);
        let outcome = remove_replaced(destination, replaced, &files, runs_again).await;
        let mut written = self.written.lock();
        if self.config.insert_op == InsertOp::Overwrite && outcome.is_ok() {
            written.clear();
        }
        written.extend(files);
        outcome.map(|()| rows)
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
