//! Parquet as DataFusion reads and writes it, except that minima and maxima of floats are estimates.
//!
//! Those in Parquet files leave out NaN. If they are equal, DataFusion 55 would take each value for that one, and it would
//! answer `max` with the greatest number, although NaN is above it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{GetExt, Result, Statistics};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory, FileMeta};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_expr::{LexOrdering, LexRequirement};
use datafusion::physical_plan::ExecutionPlan;
use object_store::{ObjectMeta, ObjectStore};

/// Parquet files whose floats may be NaN.
#[derive(Debug)]
pub(crate) struct ParquetOfFloats(Arc<dyn FileFormat>);

impl ParquetOfFloats {
    pub(crate) fn new(format: ParquetFormat) -> Self {
        Self(Arc::new(format))
    }
}

/// The statistics of a file with these columns, as estimates where NaN is left out.
fn of_floats(mut known: Statistics, schema: &SchemaRef) -> Statistics {
    for (column, field) in known.column_statistics.iter_mut().zip(schema.fields()) {
        if field.data_type().is_floating() {
            column.min_value = column.min_value.clone().to_inexact();
            column.max_value = column.max_value.clone().to_inexact();
        }
    }
    known
}

#[async_trait]
impl FileFormat for ParquetOfFloats {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    async fn infer_schema(
        &self,
        session: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        self.0.infer_schema(session, store, objects).await
    }

    async fn infer_stats(
        &self,
        session: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        let known = self.0.infer_stats(session, store, Arc::clone(&schema), object).await?;
        Ok(of_floats(known, &schema))
    }

    async fn infer_ordering(
        &self,
        session: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Option<LexOrdering>> {
        self.0.infer_ordering(session, store, schema, object).await
    }

    async fn infer_stats_and_ordering(
        &self,
        session: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<FileMeta> {
        let mut known = self.0.infer_stats_and_ordering(session, store, Arc::clone(&schema), object).await?;
        known.statistics = of_floats(known.statistics, &schema);
        Ok(known)
    }

    async fn create_physical_plan(
        &self,
        session: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_physical_plan(session, config).await
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        session: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_writer_physical_plan(input, session, config, order).await
    }

    fn file_source(&self, schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(schema)
    }
}

/// Creates [`ParquetOfFloats`] of the formats that DataFusion creates.
#[derive(Debug)]
pub(super) struct ParquetFormats(pub(super) Arc<dyn FileFormatFactory>);

impl GetExt for ParquetFormats {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for ParquetFormats {
    fn create(
        &self,
        session: &dyn Session,
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(ParquetOfFloats(self.0.create(session, options)?)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(ParquetOfFloats(self.0.default()))
    }
}
