//! The input of conversions: the rows of files as one stream.
//!
//! Vortex files with the same schema are scanned by the core, which preserves that schema exactly, and
//! Parquet files on local disks are read page by page. Everything else is read by DataFusion: other formats,
//! files that differ, rows that are to be sorted.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::config::{CsvOptions, JsonOptions, TableParquetOptions};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::LexOrdering;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::stream::BoxStream;
use tempfile::TempPath;
use vortex_datafusion::{StringType, VortexFormat, VortexOptions};

use super::find::{Found, find};
use super::sort::SortKey;
use super::text_form::{CsvArguments, TextForm};
use super::{parquet, stdin, vortex};
use crate::failure::{Failure, Outcome};
use crate::formats::{Corrected, Format, INT96_UNIT, LINES_FOR_TYPES};
use crate::memory::sort_within;
use crate::stores::Stores;

/// The rows to read, and their order.
#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) columns: Option<&'a [String]>,
    pub(super) limit: Option<u64>,
    pub(super) sort_by: &'a [SortKey],
    /// Types of columns of CSV files.
    pub(super) types: &'a [(String, DataType)],
}

impl Wanted<'_> {
    /// The schemas without columns that are not wanted, on which files may disagree. Columns that are read by
    /// position all count.
    pub(super) fn of_schemas(
        &self,
        mut schemas: Vec<(String, SchemaRef)>,
        format: Format,
    ) -> Vec<(String, SchemaRef)> {
        let Some(names) = self.columns.filter(|_| matches!(format, Format::Vortex | Format::Parquet)) else {
            return schemas;
        };
        let keys = self.sort_by.iter().map(|key| &key.column);
        let wanted: HashSet<&String> = names.iter().chain(keys).collect();
        let is_known = |name: &&String| schemas.iter().any(|(_, schema)| schema.index_of(name).is_ok());
        if !wanted.iter().all(is_known) {
            // The error about the others names all columns there are.
            return schemas;
        }
        for (_, schema) in &mut schemas {
            let fields = schema.fields().iter().filter(|field| wanted.contains(field.name()));
            *schema = Arc::new(Schema::new_with_metadata(
                fields.cloned().collect::<Vec<_>>(),
                schema.metadata().clone(),
            ));
        }
        schemas
    }
}

/// Rows of one or several files.
pub(super) struct Rows {
    pub(super) schema: SchemaRef,
    /// The number of rows, if known.
    pub(super) count: Option<u64>,
    /// The order of the rows, if known.
    pub(super) order: Option<LexOrdering>,
    pub(super) batches: BoxStream<'static, Outcome<RecordBatch>>,
}

/// Finds and reads files.
pub(super) struct Reader {
    pub(super) stores: Arc<Stores>,
    pub(super) context: SessionContext,
}

impl Reader {
    /// Creates a reader; one that sorts, within this much memory, reads files concurrently, others read them in
    /// order.
    pub(super) fn open(sorts: bool, memory: usize) -> Outcome<Self> {
        let stores = Stores::uncounted();
        let runtime = RuntimeEnvBuilder::new()
            .with_object_store_registry(Arc::clone(&stores) as _)
            .with_memory_pool(Arc::new(FairSpillPool::new(memory)));
        let mut config = SessionConfig::new();
        let options = config.options_mut();
        options.execution.listing_table_ignore_subdirectory = false;
        // Statistics of Parquet files state an order, which may be that of row groups only: rows that are to be sorted
        // would not be.
        options.execution.collect_statistics = !sorts;
        // Types as they are in the file, with their metadata.
        options.execution.parquet.schema_force_view_types = false;
        options.execution.parquet.skip_metadata = false;
        sort_within(memory, options, |_| false);
        if !sorts {
            options.execution.target_partitions = 1;
        }
        let context = SessionContext::new_with_config_rt(config, runtime.build_arc()?);
        vortex_datafusion::register(&context)?;
        Ok(Self { stores, context })
    }

    /// The files at a place: a path or URL of a file or a folder, a glob, or `-` for standard input; and files there
    /// whose format is not known.
    pub(super) async fn find(
        &self,
        place: &str,
        format: Option<Format>,
        csv: &CsvArguments,
    ) -> Outcome<(Vec<Found>, Vec<PathBuf>)> {
        match place {
            "-" => Ok((vec![stdin::copy(self, format, csv).await?], Vec::new())),
            _ => find(&self.stores, &self.context.state(), place, format, csv).await,
        }
    }

    /// A temporary file of this format.
    pub(super) async fn temporary(
        &self,
        path: TempPath,
        format: Format,
        csv: &CsvArguments,
    ) -> Outcome<Found> {
        let place =
            path.to_str().ok_or_else(|| Failure::error("the folder for temporary files is not Unicode"))?;
        let (mut found, _) = find(&self.stores, &self.context.state(), place, Some(format), csv).await?;
        let file = found.pop().ok_or_else(|| Failure::error(format!("{place}: is gone")))?;
        Ok(Found { temporary: Some(Arc::new(path)), ..file })
    }

    /// The rows of files, one file after the other.
    pub(super) async fn rows(&self, files: &[Found], wanted: &Wanted<'_>) -> Outcome<Rows> {
        if files.iter().any(|file| file.partitioned.is_some()) {
            return self.query(files, wanted).await;
        }
        if wanted.sort_by.is_empty()
            && files.iter().all(|file| file.format == Format::Vortex)
            && let Some(rows) = vortex::scan(&self.stores, files, wanted).await?
        {
            return Ok(rows);
        }
        let local: Option<Vec<_>> = files.iter().map(|file| Some((file, file.local_parquet()?))).collect();
        if wanted.sort_by.is_empty()
            && let Some(local) = local
            && let Some(rows) = parquet::read_pages(&local, wanted)?
        {
            return Ok(rows);
        }
        self.query(files, wanted).await
    }
}

pub(super) fn are_local(files: &[Found]) -> bool {
    files.iter().all(|file| file.url.scheme() == "file")
}

pub(super) fn reader_of(format: Format, form: TextForm) -> Arc<dyn FileFormat> {
    match format {
        Format::Vortex => {
            let mut options = VortexOptions::default();
            options.string_type = StringType::Stored;
            options.verify_checksums = true;
            Arc::new(VortexFormat::new().with_options(options))
        }
        Format::Parquet => {
            let mut options = TableParquetOptions::default();
            options.global.coerce_int96 = Some(INT96_UNIT.to_owned());
            let format = ParquetFormat::default().with_options(options);
            let format = format.with_force_view_types(false).with_skip_metadata(false);
            Arc::new(Corrected::of(format))
        }
        Format::Arrow => Arc::new(Corrected::of(ArrowFormat)),
        Format::Csv => {
            let options = CsvOptions::default()
                .with_has_header(form.has_header)
                .with_delimiter(form.delimiter.unwrap_or(b','))
                .with_newlines_in_values(true)
                .with_file_compression_type(form.compression)
                .with_schema_infer_max_rec(LINES_FOR_TYPES);
            Arc::new(Corrected::of(CsvFormat::default().with_options(options)))
        }
        // Keys that do not occur in the lines that are looked at would be dropped silently.
        Format::Json => {
            let options = JsonOptions {
                schema_infer_max_rec: Some(usize::MAX),
                compression: form.compression,
                ..JsonOptions::default()
            };
            Arc::new(Corrected::of(JsonFormat::default().with_options(options)))
        }
    }
}
