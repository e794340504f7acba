//! CSV and JSON as DataFusion reads and writes them, with types that are inferred here.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::{Buf as _, Bytes};
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, GetExt, Result, Statistics};
use datafusion::config::{CsvOptions, JsonOptions};
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use tokio::runtime::Handle;
use vortex_core::io::object_name;

use super::{csv, json};

/// A format of DataFusion, CSV or JSON.
#[derive(Debug)]
pub(crate) struct TextFormat {
    format: Arc<dyn FileFormat>,
    /// Whether columns of CSV files without a value in their first lines are of type Null: other files may tell more.
    /// Otherwise, they are text.
    keeps_null: bool,
}

impl TextFormat {
    pub(crate) fn csv(options: CsvOptions) -> Self {
        Self { format: Arc::new(CsvFormat::default().with_options(options)), keeps_null: true }
    }

    pub(crate) fn json(options: JsonOptions) -> Self {
        Self { format: Arc::new(JsonFormat::default().with_options(options)), keeps_null: true }
    }
}

#[async_trait]
impl FileFormat for TextFormat {
    fn get_ext(&self) -> String {
        self.format.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.format.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.format.compression_type()
    }

    async fn infer_schema(
        &self,
        session: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let files = Files { store, objects, compression: self.compression_type() };
        let (csv, json) = (self.format.downcast_ref::<CsvFormat>(), self.format.downcast_ref::<JsonFormat>());
        if let Some(options) = csv.map(CsvFormat::options)
            && options.null_regex.is_none()
        {
            let schema = csv::schema(options, session, &files).await?;
            return Ok(if self.keeps_null { schema } else { Arc::new(csv::text_if_empty(&schema)) });
        }
        match json {
            Some(format) if format.is_newline_delimited() => json::schema(format.options(), &files).await,
            _ => self.format.infer_schema(session, store, objects).await,
        }
    }

    async fn infer_stats(
        &self,
        session: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        self.format.infer_stats(session, store, schema, object).await
    }

    async fn create_physical_plan(
        &self,
        session: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.format.create_physical_plan(session, config).await
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        session: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.format.create_writer_physical_plan(input, session, config, order).await
    }

    fn file_source(&self, schema: TableSchema) -> Arc<dyn FileSource> {
        self.format.file_source(schema)
    }
}

/// Creates [`TextFormat`]s of those that DataFusion creates.
#[derive(Debug)]
pub(super) struct TextFormats(pub(super) Arc<dyn FileFormatFactory>);

impl GetExt for TextFormats {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for TextFormats {
    fn create(
        &self,
        session: &dyn Session,
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(TextFormat { format: self.0.create(session, options)?, keeps_null: false }))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(TextFormat { format: self.0.default(), keeps_null: false })
    }
}

/// The files whose columns are wanted.
pub(super) struct Files<'a> {
    store: &'a Arc<dyn ObjectStore>,
    pub(super) objects: &'a [ObjectMeta],
    compression: Option<FileCompressionType>,
}

impl Files<'_> {
    /// Has a file read from its start, by blocking code and only as far as that needs.
    ///
    /// # Errors
    /// If it cannot be read, or `infer` fails; the error names the file.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        object: &ObjectMeta,
        infer: impl FnOnce(Box<dyn Read + Send>) -> Result<T, Box<dyn Error + Send + Sync>> + Send + 'static,
    ) -> Result<T> {
        let chunks = self.store.get(&object.location).await?.into_stream();
        let chunks = Chunks { runtime: Handle::current(), chunks, rest: Bytes::new() };
        let compression = self.compression.unwrap_or(FileCompressionType::UNCOMPRESSED);
        let work = tokio::task::spawn_blocking(move || infer(compression.convert_read(chunks)?));
        let outcome = work.await.map_err(|error| DataFusionError::External(Box::new(error)))?;
        outcome.map_err(|error| {
            let name = object_name(self.store.as_ref(), &object.location);
            DataFusionError::External(Box::new(vortex_core::Error::External(error).at(name)))
        })
    }
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
