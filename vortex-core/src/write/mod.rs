//! Writing files.
//!
//! A [`FileWriter`] takes record batches and writes one file to a [`Sink`]; [`write_stream`] and
//! [`write_reader`] do so for all batches of a stream or reader.
//!
//! ```
//! # use std::sync::Arc;
//! # use arrow::array::{Int64Array, RecordBatch};
//! # use vortex_core::io::{MemoryFile, MemorySink};
//! # use vortex_core::write::{FileWriter, WriteOptions};
//! # use vortex_core::VortexFile;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> vortex_core::Result<()> {
//! let batch = RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1, 2, 3])) as _)])?;
//! let sink = MemorySink::new(); // or LocalSink::create("x.vortex")?, or ObjectSink::new(store, path)
//! let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), WriteOptions::new())?;
//! writer.write(&batch).await?;
//! writer.write(&batch).await?;
//! let summary = writer.finish().await?;
//! assert_eq!(summary.row_count(), 6);
//!
//! let file = VortexFile::open(Arc::new(MemoryFile::new(sink.bytes().unwrap()))).await?;
//! assert_eq!(file.row_count(), 6);
//! # Ok(())
//! # }
//! ```
//!
//! # Structure of a file
//!
//! ```text
//! rows  0 ────────────────────────────────────────────────────────────
//! a     [  chunk  ][  chunk  ][  chunk  ][  chunk  ][  chunk  ] ...
//! b     [        chunk       ][        chunk       ] ...
//! text  [   codes   ][   codes   ] values [   codes   ][ codes ] values
//!
//! file  a a a b text ... │ a a b text ... │ Bloom filters │ zone tables │ dtype layout statistics footer
//! ```
//!
//! Rows are collected, column by column, until they fill a chunk; if memory does not suffice for that,
//! the columns that take most of it are encoded first. Chunks are encoded in tasks of the runtime, many
//! columns at once. Repetitive text is cut in the same way, but its codes and its dictionary continue
//! from chunk to chunk until the dictionary is full. Encoded chunks wait until there is enough to write,
//! so that chunks of a column lie next to each other. All of this memory is counted, and
//! [`FileWriter::write`] waits whenever the memory budget would be exceeded.

mod bloom_filters;
mod carry;
mod chunk;
mod columns;
mod container;
mod copies;
mod dictionary;
mod encoder;
mod hidden;
mod intake;
mod narrow_keys;
mod options;
mod output;
mod own_bytes;
mod pending;
mod row_sizes;
mod storable;
mod summary;
mod waiting_rows;
mod writer;
mod written;
mod zone_table;

use std::panic::{AssertUnwindSafe, resume_unwind};

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::runtime::Builder;

pub(crate) use intake::Intake;
pub use options::WriteOptions;
pub(crate) use own_bytes::MAX_ROW_BYTES;
pub use storable::can_write;
pub(crate) use storable::check_depth;
pub use summary::{ColumnSummary, WriteSummary};
pub(crate) use waiting_rows::raw_bytes;
pub use writer::FileWriter;

use crate::io::{Sink, block_on_thread};
use crate::{Error, Release, Result};

/// Number of rows that share statistics in zone maps.
const ZONE_LEN: usize = 8192;

/// The default for the oldest release that must read a file, unless its types require a newer one: the
/// oldest release that costs less than 1 % in size and speed. Measured with the bench `compress`, as
/// `default@0.36,default@0.54,...`, in MB:
///
/// | readers since | 0.36 | 0.54 | 0.59 | 0.76 | 0.85 | newest |
/// |---|---|---|---|---|---|---|
/// | lineitem, SF 1 | 170.0 | 169.9 | 152.5 | 152.5 | 152.5 | 152.5 |
/// | 2 M rows of 105 columns | 273.4 | 254.6 | 242.8 | 242.8 | 230.4 | 230.4 |
///
/// Pco can be read since 0.59, OnPair since 0.85. Writing takes about the same time for 0.54 and later,
/// and a third less for older releases, for which fewer encodings are tried.
const DEFAULT_MIN_READER: Release = Release::new(0, 85);

/// Prefix of the user metadata keys that the writer itself uses.
const OWN_KEYS: &str = "vortex-core.";

/// Writes all batches of a stream to a file, such as those of a scan or of a query of DataFusion.
///
/// # Errors
/// If the stream fails, with [`Error::external`] of its error, or as [`FileWriter`]; nothing of the file remains then.
pub async fn write_stream<E>(
    sink: impl Sink,
    schema: SchemaRef,
    batches: impl Stream<Item = Result<RecordBatch, E>>,
    options: WriteOptions,
) -> Result<WriteSummary>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut writer = FileWriter::try_new(sink, schema, options)?;
    match AssertUnwindSafe(write_all(&mut writer, batches)).catch_unwind().await {
        Ok(Ok(())) => writer.finish().await,
        // Dropping the writer would leave this to a task, for which the runtime may not last.
        Ok(Err(error)) => {
            writer.give_up().await;
            Err(error)
        }
        Err(panic) => {
            writer.give_up().await;
            resume_unwind(panic)
        }
    }
}

async fn write_all<E>(
    writer: &mut FileWriter,
    batches: impl Stream<Item = Result<RecordBatch, E>>,
) -> Result<()>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut batches = std::pin::pin!(batches);
    while let Some(batch) = batches.next().await {
        writer.write(&batch.map_err(Error::external)?).await?;
    }
    Ok(())
}

/// Writes all batches of a reader to a file; blocks, and runs on its own threads.
///
/// ```no_run
/// # use arrow::array::RecordBatchReader;
/// use vortex_core::Level;
/// use vortex_core::io::LocalSink;
/// use vortex_core::write::{WriteOptions, write_reader};
///
/// # fn example(batches: impl RecordBatchReader + Send) -> vortex_core::Result<()> {
/// let options = WriteOptions::new().with_level(Level::Compact);
/// let summary = write_reader(LocalSink::create("visits.vortex")?, batches, options)?;
/// println!("{} rows in {} bytes", summary.row_count(), summary.file_size());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the reader fails, or as [`FileWriter`]; nothing of the file remains then.
pub fn write_reader(
    sink: impl Sink,
    batches: impl RecordBatchReader + Send,
    options: WriteOptions,
) -> Result<WriteSummary> {
    let schema = batches.schema();
    let write = || write_stream(sink, schema, futures::stream::iter(batches), options);
    block_on_thread("vortex-write", Builder::new_multi_thread(), write)
}
