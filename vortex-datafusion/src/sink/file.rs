//! Writing the rows of one file.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion_common::{DataFusionError, Result, ScalarValue, exec_err, internal_datafusion_err};
use datafusion_execution::cache::cache_manager::CacheManager;
use datafusion_physical_plan::metrics::Time;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc::Receiver;
use vortex_core::io::{ObjectSink, object_name};
use vortex_core::write::{FileWriter, WriteOptions};

use super::memory::{FileMemory, WriteMemory};
use super::partitions::PartitionColumns;
use super::written::{Written, WrittenFile};
use crate::convert::datafusion_error;
use crate::format::EXTENSION;
use crate::orders::{RowOrder, SortedColumn};
use crate::reading::footers::forget_footers;
use crate::reading::listings::Listings;
use crate::statistics::kept::FileStatistics;

/// The state shared by the files of one statement.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) store: Arc<dyn ObjectStore>,
    /// Whether the names of the files are random, so that no other statement ever writes to these paths.
    pub(super) has_unique_paths: bool,
    pub(super) schema: SchemaRef,
    pub(super) partitions: PartitionColumns,
    pub(super) options: WriteOptions,
    /// The columns by which the rows of each file are supposed to be sorted.
    pub(super) order: Vec<SortedColumn>,
    /// Number of bytes after which rows continue in another file.
    pub(super) full_at: Option<u64>,
    /// Whether DataFusion may end files, and begin others, long before the last row.
    pub(super) ends_early: bool,
    pub(super) memory: WriteMemory,
    /// The files that have begun.
    pub(super) growing: Mutex<Vec<Weak<AsyncMutex<Growing>>>>,
    pub(super) caches: Arc<CacheManager>,
    /// Removes files if the statement is dropped, maybe outside of any runtime.
    pub(super) runtime: Handle,
    pub(super) write_time: Time,
}

/// The rows for one path, and for the files that continue it when it is full.
#[derive(Debug)]
pub(super) struct FileRows {
    destination: Arc<Destination>,
    /// That of the file, or of a full one until it is complete: errors name it.
    path: Path,
    /// The values of the partition columns in all rows.
    partition_values: Vec<ScalarValue>,
    growing: Arc<AsyncMutex<Growing>>,
    /// Full files, which are finished already.
    written: Written,
}

/// The file that is being written. Its rows may be written out by the tasks of other files, which need the memory.
#[derive(Debug)]
pub(super) struct Growing {
    /// None once it is complete or aborted.
    file: Option<Begun>,
    memory: FileMemory,
}

impl Growing {
    fn file(&mut self) -> Result<&mut Begun> {
        self.file.as_mut().ok_or_else(|| internal_datafusion_err!("the file is not being written any more"))
    }

    /// Charges the writer's buffers to the pool.
    fn charge(&mut self) -> Result<()> {
        let writer = &self.file()?.writer;
        let (bytes, unwritten) = (writer.buffered_bytes(), writer.unwritten_bytes());
        self.memory.try_resize(bytes, unwritten)
    }

    /// Writes out all rows, which frees memory.
    async fn flush(&mut self) -> Result<()> {
        self.file()?.writer.flush().await.map_err(datafusion_error)
    }
}

/// A file that is not complete, of which nothing is visible yet.
#[derive(Debug)]
struct Begun {
    path: Path,
    writer: FileWriter,
    /// The order of its rows so far.
    order: RowOrder,
}

impl FileRows {
    /// Starts the file at `path`; nothing is visible there until it is finished.
    ///
    /// # Errors
    /// If a column cannot be stored, or the path does not tell the values of the partition columns.
    pub(super) fn new(destination: Arc<Destination>, path: Path) -> Result<Self> {
        let partition_values = destination.partitions.values(&path)?;
        let file = Some(destination.begin(&path)?);
        let memory = destination.memory.file(format!("VortexSink[{path}]"));
        let growing = Arc::new(AsyncMutex::new(Growing { file, memory }));
        let mut all = destination.growing.lock();
        all.retain(|growing| growing.strong_count() > 0);
        all.push(Arc::downgrade(&growing));
        drop(all);
        let written = Written::of(Arc::clone(&destination), Vec::new());
        Ok(Self { destination, path, partition_values, growing, written })
    }

    /// Writes the rows received, but does not complete the file.
    ///
    /// # Errors
    /// If a batch does not fit the schema, storage fails, or memory does not suffice.
    pub(super) async fn fill(mut self, batches: Receiver<RecordBatch>) -> Result<Self> {
        if let Err(error) = self.write_all(batches).await {
            let error = self.destination.at(&self.path, error);
            self.abort().await;
            return Err(error);
        }
        Ok(self)
    }

    async fn write_all(&mut self, mut batches: Receiver<RecordBatch>) -> Result<()> {
        while let Some(batch) = batches.recv().await {
            self.write(&batch).await?;
        }
        if self.destination.ends_early {
            let mut growing = self.growing.lock().await;
            growing.flush().await?;
            growing.charge()?;
        }
        Ok(())
    }

    /// Aborts writing; returns when all traces of these rows have been removed.
    pub(super) async fn abort(self) {
        let Self { path, growing, written, .. } = self;
        let file = growing.lock().await.file.take();
        if let Some(file) = file
            && let Err(error) = file.writer.abort().await
        {
            tracing::warn!(%path, %error, "parts of a failed statement were not removed");
        }
        written.remove().await;
    }

    async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = conformed(batch, &self.destination.schema)?;
        let growing = Arc::clone(&self.growing);
        let mut growing = growing.lock().await;
        if let Some(full_at) = self.destination.full_at
            && growing.file()?.writer.reaches(full_at).await.map_err(datafusion_error)?
        {
            self.start_next(&mut growing).await?;
        }
        {
            let _timer = self.destination.write_time.timer();
            let file = growing.file()?;
            if file.order.shorten_to(&batch) {
                tracing::warn!(path = %self.path, "rows are not in the order that the plan declares");
            }
            file.writer.write(&batch).await.map_err(datafusion_error)?;
        }
        self.destination.charge(&mut growing).await
    }

    /// Finishes the file, which is full, and continues in another one.
    async fn start_next(&mut self, growing: &mut Growing) -> Result<()> {
        // The first file has no number.
        let next = numbered(&self.path, self.written.len() + 2);
        let begun = self.destination.begin(&next)?;
        let full = std::mem::replace(growing.file()?, begun);
        self.written.add(full.complete(self.partition_values.clone(), &self.destination).await?);
        self.path = next;
        Ok(())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If storage fails; nothing is left behind of these rows then.
    pub(super) async fn finish(self) -> Result<Written> {
        let Self { destination, partition_values, growing, mut written, .. } = self;
        let file = growing.lock().await.file.take();
        let last = match file {
            Some(file) => file.complete(partition_values, &destination).await,
            None => return Ok(written),
        };
        drop(growing);
        match last {
            Ok(last) => {
                written.add(last);
                Ok(written)
            }
            Err(error) => {
                written.remove().await;
                Err(error)
            }
        }
    }
}

impl Begun {
    /// Completes the file, which records the order of its rows.
    async fn complete(
        self,
        partition_values: Vec<ScalarValue>,
        destination: &Arc<Destination>,
    ) -> Result<Written> {
        let Self { path, mut writer, order } = self;
        let finished = async {
            order.record(&mut writer)?;
            let _timer = destination.write_time.timer();
            writer.finish().await
        };
        let summary = finished.await.map_err(|error| destination.at(&path, datafusion_error(error)))?;
        let file = WrittenFile { path, partition_values, summary: Arc::new(summary) };
        Ok(Written::of(Arc::clone(destination), vec![file]))
    }
}

impl Destination {
    fn begin(&self, path: &Path) -> Result<Begun> {
        let mut sink = ObjectSink::new(Arc::clone(&self.store), path.clone());
        if self.has_unique_paths {
            sink = sink.with_unique_path();
        }
        let writer = FileWriter::try_new(sink, Arc::clone(&self.schema), self.options.clone())
            .map_err(|error| self.at(path, datafusion_error(error)))?;
        Ok(Begun { path: path.clone(), writer, order: RowOrder::by(self.order.clone()) })
    }

    /// Charges the buffers of a file to the pool. If the pool refuses, or is left with less than the files hold, rows
    /// are written out until there is room again: those of this file and of others that wait for more, the largest
    /// first. Files of partitions may wait to the end.
    async fn charge(&self, growing: &mut Growing) -> Result<()> {
        if growing.charge().is_ok() && !self.memory.is_short() {
            return Ok(());
        }
        // Those that are locked are at work, as is this one.
        let all: Vec<_> = self.growing.lock().iter().filter_map(Weak::upgrade).collect();
        let sized = |other: Arc<AsyncMutex<Growing>>| {
            let bytes = other.try_lock().ok()?.file.as_ref()?.writer.unwritten_bytes();
            Some((bytes, Some(other)))
        };
        let mut files: Vec<_> = all.into_iter().filter_map(sized).collect();
        files.push((growing.file()?.writer.unwritten_bytes(), None));
        files.retain(|(bytes, _)| *bytes > 0);
        files.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (_, other) in files {
            match other {
                None => growing.flush().await?,
                Some(other) => self.write_out(&other).await?,
            }
            if growing.charge().is_ok() && self.memory.has_room() {
                return Ok(());
            }
        }
        growing.charge()
    }

    /// Writes out the rows of a file, unless it is at work or complete.
    async fn write_out(&self, file: &AsyncMutex<Growing>) -> Result<()> {
        let Ok(mut file) = file.try_lock() else { return Ok(()) };
        let Some(path) = file.file.as_ref().map(|file| file.path.clone()) else { return Ok(()) };
        let freed = async {
            file.flush().await?;
            file.charge()
        };
        freed.await.map_err(|error| self.at(&path, error))
    }

    /// Adds the name of a file to an error, unless it already contains it.
    fn at(&self, path: &Path, error: DataFusionError) -> DataFusionError {
        if error.to_string().contains(path.as_ref()) {
            error
        } else {
            error.context(format!("writing {}", object_name(self.store.as_ref(), path)))
        }
    }

    /// Removes what has been cached about files that appeared, were replaced, or are gone: their footers and
    /// statistics, and the listings of their folders. DataFusion removes a listing when it plans an `INSERT`,
    /// but a query that runs before the files appear lists the folder again, and DataFusion keeps listings
    /// forever.
    pub(super) fn forget(&self, files: &[WrittenFile]) {
        let paths: Vec<Path> = files.iter().map(|file| file.path.clone()).collect();
        // Other paths are never used again: nothing outdated can be found under them.
        if !self.has_unique_paths {
            self.forget_files(&paths.iter().collect());
        }
        self.forget_listings(&paths);
    }

    /// Removes the footers and statistics of files.
    pub(super) fn forget_files(&self, paths: &HashSet<&Path>) {
        forget_footers(&self.caches, paths);
        FileStatistics::new(&self.caches).remove(paths);
    }

    /// Removes the listings of folders in which files are.
    pub(super) fn forget_listings(&self, paths: &[Path]) {
        Listings::of(&self.caches).forget(paths);
    }
}

/// Numbers a path: `a/b.vortex` becomes `a/b-2.vortex`, which becomes `a/b-3.vortex`.
fn numbered(path: &Path, number: usize) -> Path {
    let name = path.filename().unwrap_or_default();
    let stem = name.strip_suffix(&format!(".{EXTENSION}")).unwrap_or(name);
    let stem = stem.strip_suffix(&format!("-{}", number.saturating_sub(1))).unwrap_or(stem);
    let folder = path.parts().count().saturating_sub(1);
    Path::from_iter(path.parts().take(folder)).join(format!("{stem}-{number}.{EXTENSION}"))
}

/// Converts a batch to the schema of the file. The schemas of plans may differ from it in nullability,
/// metadata and the names of list items.
fn conformed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    if batch.num_columns() != schema.fields().len() {
        return exec_err!("{} columns for a file with {}", batch.num_columns(), schema.fields().len());
    }
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| adapted(column, field));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_>>()?, &options)?)
}

fn adapted(column: &ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, field.data_type(), &options)
        .map_err(|error| DataFusionError::from(error).context(format!("column `{}`", field.name())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_follow_a_full_one_are_numbered() {
        let first = Path::from("a/x_0.vortex");
        let second = numbered(&first, 2);
        assert_eq!(second.as_ref(), "a/x_0-2.vortex");
        assert_eq!(numbered(&second, 3).as_ref(), "a/x_0-3.vortex");
    }
}
