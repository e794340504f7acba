//! Files of the data sets: creating them once, and loading them into memory.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;

use super::{Batches, DataSet, FileSource, Scale};
use crate::engines::Engine;

/// The writer of a file, and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Parquet by DataFusion, default options.
    Parquet,
    /// Parquet by DataFusion, compressed with zstd level 3.
    ParquetZstd,
    /// As `Parquet`, with Bloom filters of the keys of the hit log.
    ParquetBloom,
    /// Vortex by the reference plugin, default options.
    Reference,
    /// Vortex by this repository's plugin.
    Ours(Level),
    /// As the default level, with Bloom filters of the same keys.
    OursBloom,
}

/// The compression level of this repository's writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Fast,
    Default,
    Compact,
}

impl Format {
    /// All formats whose sizes and times of writing are compared, in the order of reports.
    pub(crate) const ALL: [Self; 6] = [
        Self::Parquet,
        Self::ParquetZstd,
        Self::Reference,
        Self::Ours(Level::Fast),
        Self::Ours(Level::Default),
        Self::Ours(Level::Compact),
    ];

    /// The folder of the format's files in the folder of a data set, and its name in reports.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::ParquetZstd => "parquet-zstd",
            Self::ParquetBloom => "parquet-bloom",
            Self::Reference => "reference",
            Self::Ours(Level::Fast) => "ours-fast",
            Self::Ours(Level::Default) => "ours",
            Self::Ours(Level::Compact) => "ours-compact",
            Self::OursBloom => "ours-bloom",
        }
    }

    /// The extension of the format's files.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Parquet | Self::ParquetZstd | Self::ParquetBloom => "parquet",
            Self::Reference | Self::Ours(_) | Self::OursBloom => "vortex",
        }
    }

    /// The name of the format in SQL.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Self::Parquet | Self::ParquetZstd | Self::ParquetBloom => "PARQUET",
            Self::Reference | Self::Ours(_) | Self::OursBloom => "VORTEX",
        }
    }

    /// The options in `COPY` statements.
    fn options(self) -> &'static str {
        match self {
            Self::Parquet | Self::Reference | Self::Ours(Level::Default) => "",
            Self::ParquetZstd => " OPTIONS (compression 'zstd(3)')",
            Self::ParquetBloom => {
                " OPTIONS ('bloom_filter_enabled::event_id' 'true', 'bloom_filter_enabled::session_id' 'true',
                    'bloom_filter_enabled::visitor_id' 'true', 'bloom_filter_enabled::page_url' 'true')"
            }
            Self::OursBloom => " OPTIONS (bloom_filters 'event_id, session_id, visitor_id, page_url')",
            Self::Ours(Level::Fast) => " OPTIONS (level 'fast')",
            Self::Ours(Level::Compact) => " OPTIONS (level 'compact')",
        }
    }

    /// The engine that writes the format.
    pub(crate) fn writer(self) -> Engine {
        match self {
            Self::Parquet | Self::ParquetZstd | Self::ParquetBloom => Engine::Parquet,
            Self::Reference => Engine::Reference,
            Self::Ours(_) | Self::OursBloom => Engine::Ours,
        }
    }

    /// Whether a file exists and is current: this repository's files must have been written by this executable.
    fn is_current(self, path: &Path) -> bool {
        let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
        let Ok(written) = modified(path) else { return false };
        if !matches!(self, Self::Ours(_) | Self::OursBloom) {
            return true;
        }
        std::env::current_exe().and_then(|exe| modified(&exe)).is_ok_and(|built| built < written)
    }
}

/// Creates the files of `set` in `formats` that do not exist yet, or are not current. A file gets its
/// name only when it is complete, so that the next run continues an interrupted one.
pub(crate) async fn generate(data: &Path, set: DataSet, scale: &Scale, formats: &[Format]) -> Result<()> {
    for table in set.tables(scale) {
        let sources = table.paths(data, set, scale, Format::Parquet);
        for (file, source) in table.files.iter().zip(&sources) {
            if !source.exists() {
                eprintln!("generating {}", source.display());
                let session = Format::Parquet.writer().session(1)?;
                copy_to_file(&session, generated(file)?, Format::Parquet, source).await?;
            }
        }
        for &format in formats.iter().filter(|&&format| format != Format::Parquet) {
            for (source, target) in sources.iter().zip(table.paths(data, set, scale, format)) {
                if !format.is_current(&target) {
                    eprintln!("writing {}", target.display());
                    let session = format.writer().session(1)?;
                    copy_to_file(&session, opened(source).await?, format, &target).await?;
                }
            }
        }
    }
    Ok(())
}

/// Writes all rows of `source` to one file, in order.
pub(crate) async fn copy_to_file(
    session: &SessionContext,
    source: Arc<dyn TableProvider>,
    format: Format,
    path: &Path,
) -> Result<()> {
    let folder = path.parent().expect("data files lie in folders");
    std::fs::create_dir_all(folder)?;
    let partial = path.with_extension(format!("partial.{}", format.extension()));
    session.register_table("source", source)?;
    let copy = format!("COPY source TO {} STORED AS {}{}", quoted(&partial), format.sql(), format.options());
    session.sql(&copy).await?.collect().await?;
    session.deregister_table("source")?;
    std::fs::rename(&partial, path)?;
    Ok(())
}

/// The rows of Parquet files in memory; batches are distributed to partitions in turn.
pub(crate) async fn load(location: &Path, partition_count: usize) -> Result<Arc<dyn TableProvider>> {
    let session = Engine::Parquet.session(1)?;
    Engine::Parquet.register(&session, "source", &location.to_string_lossy()).await?;
    let batches = session.table("source").await?.collect().await?;
    let schema = session.table_provider("source").await?.schema();
    let mut partitions = vec![Vec::new(); partition_count];
    for (i, batch) in batches.into_iter().enumerate() {
        partitions[i % partition_count].push(batch);
    }
    Ok(Arc::new(MemTable::try_new(schema, partitions)?))
}

async fn opened(source: &Path) -> Result<Arc<dyn TableProvider>> {
    let session = Engine::Parquet.session(1)?;
    Engine::Parquet.register(&session, "source", &source.to_string_lossy()).await?;
    session.table_provider("source").await
}

pub(crate) fn generated(file: &FileSource) -> Result<Arc<dyn TableProvider>> {
    let rows = Generated { schema: Arc::clone(&file.schema), rows: Mutex::new(Some((file.rows)())) };
    Ok(Arc::new(StreamingTable::try_new(Arc::clone(&file.schema), vec![Arc::new(rows)])?))
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "''"))
}

/// Generated rows as a partition that can be read once.
struct Generated {
    schema: SchemaRef,
    rows: Mutex<Option<Batches>>,
}

impl fmt::Debug for Generated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generated").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PartitionStream for Generated {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().map(|mut rows| rows.take());
        let batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send> = match rows {
            Ok(Some(rows)) => rows,
            _ => Box::new(std::iter::once(Err(DataFusionError::Execution("the rows are gone".into())))),
        };
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::iter(batches)))
    }
}
