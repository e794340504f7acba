//! The columns of CSV and JSON files, with types that are inferred here.

use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::{Buf as _, Bytes};
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::physical_plan::FileScanConfig;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use tokio::runtime::Handle;
use vortex_core::io::object_name;

use super::csv::Headers;
use super::{csv, json};

/// The columns of files; `None` if they are to be inferred by the format. With `keeps_null`, columns of CSV files
/// without a value in their first lines are of type Null; otherwise, they are text.
pub(super) async fn schema(
    format: &dyn FileFormat,
    session: &dyn Session,
    store: &Arc<dyn ObjectStore>,
    objects: &[ObjectMeta],
    keeps_null: bool,
) -> Result<Option<SchemaRef>> {
    let files = Files { objects, text: Text::new(store, format.compression_type()) };
    if let Some(options) = format.downcast_ref::<CsvFormat>().map(CsvFormat::options)
        && options.null_regex.is_none()
    {
        let schema = csv::schema(options, session, &files).await?;
        return Ok(Some(if keeps_null { schema } else { Arc::new(csv::text_if_empty(&schema)) }));
    }
    match format.downcast_ref::<JsonFormat>() {
        Some(format) if format.is_newline_delimited() => {
            json::schema(format.options(), &files).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// Refuses to scan files whose columns are not those of the table.
pub(super) async fn check(
    format: &dyn FileFormat,
    session: &dyn Session,
    scan: &FileScanConfig,
    headers: &Headers,
) -> Result<()> {
    let Some(format) = format.downcast_ref::<CsvFormat>() else { return Ok(()) };
    let store = session.runtime_env().object_store(&scan.object_store_url)?;
    let scanned = scan.file_groups.iter().flat_map(|group| group.files());
    let objects = headers.unchecked(scanned.map(|file| &file.object_meta));
    let files = Files { objects: &objects, text: Text::new(&store, format.compression_type()) };
    headers.check(format.options(), session, &files, scan.file_schema()).await
}

/// The files whose columns are wanted.
pub(super) struct Files<'a> {
    pub(super) objects: &'a [ObjectMeta],
    pub(super) text: Text<'a>,
}

/// The text of files in a store.
pub(crate) struct Text<'a> {
    store: &'a Arc<dyn ObjectStore>,
    compression: FileCompressionType,
}

impl<'a> Text<'a> {
    pub(crate) fn new(store: &'a Arc<dyn ObjectStore>, compression: Option<FileCompressionType>) -> Self {
        Self { store, compression: compression.unwrap_or(FileCompressionType::UNCOMPRESSED) }
    }

    /// Has a file read from its start, by blocking code and only as far as that needs.
    ///
    /// # Errors
    /// If it cannot be read, or `parse` fails; the error names the file.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        object: &ObjectMeta,
        parse: impl FnOnce(Box<dyn Read + Send>) -> Result<T, Box<dyn Error + Send + Sync>> + Send + 'static,
    ) -> Result<T> {
        let chunks = self.store.get(&object.location).await?.into_stream();
        let chunks = Chunks { runtime: Handle::current(), chunks, rest: Bytes::new() };
        let compression = self.compression;
        let work = tokio::task::spawn_blocking(move || parse(compression.convert_read(chunks)?));
        let outcome = work.await.map_err(|error| DataFusionError::External(Box::new(error)))?;
        outcome.map_err(|error| named(error, self.store, object))
    }
}

/// An error with the name of the file that it is about.
pub(super) fn named(
    error: impl Into<Box<dyn Error + Send + Sync>>,
    store: &Arc<dyn ObjectStore>,
    object: &ObjectMeta,
) -> DataFusionError {
    let name = object_name(store.as_ref(), &object.location);
    DataFusionError::External(Box::new(vortex_core::Error::External(error.into()).at(name)))
}

/// A file that is read from a store while a thread waits for it.
struct Chunks {
    runtime: Handle,
    chunks: BoxStream<'static, object_store::Result<Bytes>>,
    rest: Bytes,
}

impl Read for Chunks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.runtime.block_on(self.chunks.next()) {
                Some(chunk) => self.rest = chunk.map_err(io::Error::other)?,
                None => return Ok(0),
            }
        }
        let length = out.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut out[..length]);
        Ok(length)
    }
}
