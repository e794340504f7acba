//! Other formats than Vortex as DataFusion reads and writes them, except that errors about their columns name the file,
//! Arrow files with columns of the same name are refused, the columns of Arrow files and the types of columns of text
//! are found here, declared columns of CSV files are compared with their headers, minima and maxima of floats in
//! Parquet files are estimates, and files are written whole or not at all.

use std::collections::HashMap;
use std::slice;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, GetExt, Result, Statistics};
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory, FileMeta};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use object_store::{ObjectMeta, ObjectStore};

use super::csv::Headers;
use super::text::named;
use super::whole_files::whole_files;
use super::{ipc, parquet, text};

/// A format of DataFusion.
#[derive(Debug)]
pub(crate) struct Corrected {
    format: Arc<dyn FileFormat>,
    /// Whether columns of CSV files without a value in their first lines are of type Null: other files may tell more.
    /// Otherwise, they are text.
    keeps_null: bool,
    headers: Headers,
}

impl Corrected {
    /// A format whose files may be some of several that make one table.
    pub(crate) fn of(format: impl FileFormat) -> Self {
        Self::new(Arc::new(format), true)
    }

    fn new(format: Arc<dyn FileFormat>, keeps_null: bool) -> Self {
        Self { format, keeps_null, headers: Headers::default() }
    }

    /// An error about the columns of files, with the name of the first one that has an error of its own.
    async fn with_name(
        &self,
        error: DataFusionError,
        session: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> DataFusionError {
        for object in objects {
            if let Err(error) = self.format.infer_schema(session, store, slice::from_ref(object)).await {
                return named(error, store, object);
            }
        }
        error
    }
}

#[async_trait]
impl FileFormat for Corrected {
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
        if self.format.is::<ArrowFormat>()
            && let Some(schema) = ipc::schema(store, objects).await?
        {
            return Ok(schema);
        }
        match text::schema(self.format.as_ref(), session, store, objects, self.keeps_null).await? {
            Some(schema) => {
                self.headers.add(objects);
                Ok(schema)
            }
            None => match self.format.infer_schema(session, store, objects).await {
                Ok(schema) => Ok(schema),
                Err(error) => Err(self.with_name(error, session, store, objects).await),
            },
        }
    }

    async fn infer_stats(
        &self,
        session: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        Ok(self.infer_stats_and_ordering(session, store, schema, object).await?.statistics)
    }

    async fn infer_stats_and_ordering(
        &self,
        session: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<FileMeta> {
        let mut known =
            self.format.infer_stats_and_ordering(session, store, Arc::clone(&schema), object).await?;
        known.statistics = parquet::with_estimates_of_floats(known.statistics, &schema);
        Ok(known)
    }

    async fn create_physical_plan(
        &self,
        session: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        text::check(self.format.as_ref(), session, &config, &self.headers).await?;
        self.format.create_physical_plan(session, config).await
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        session: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.format.create_writer_physical_plan(input, session, config, order).await.map(whole_files)
    }

    fn file_source(&self, schema: TableSchema) -> Arc<dyn FileSource> {
        self.format.file_source(schema)
    }
}

/// Creates formats for files of an extension as DataFusion does, and corrects them.
#[derive(Debug)]
pub(super) struct CorrectedFormats {
    pub(super) extension: &'static str,
    pub(super) formats: Arc<dyn FileFormatFactory>,
}

impl GetExt for CorrectedFormats {
    fn get_ext(&self) -> String {
        self.extension.to_owned()
    }
}

impl FileFormatFactory for CorrectedFormats {
    fn create(
        &self,
        session: &dyn Session,
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(Corrected::new(self.formats.create(session, options)?, false)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(Corrected::new(self.formats.default(), false))
    }
}
