//! The input of conversions: the rows of files as one stream.
//!
//! Vortex files with the same schema are scanned by the core, which preserves that schema exactly, and
//! Parquet files on local disks are read page by page. Everything else is read by DataFusion: other formats,
//! files that differ, rows that are to be sorted.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, DFSchema};
use datafusion::config::{CsvOptions, JsonOptions, TableParquetOptions};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{Expr, SortExpr};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::limit::LimitStore;
use object_store::local::LocalFileSystem;
use tempfile::TempPath;
use vortex_datafusion::{StringType, VortexFormat, VortexOptions};

use super::find::{Found, find};
use super::given_order::in_given_order;
use super::numbered::numbered;
use super::sort::SortKey;
use super::text_form::{CsvArguments, TextForm};
use super::{parquet, stdin, vortex};
use crate::failure::{Failure, Outcome};
use crate::formats::{Corrected, Format, INT96_UNIT, LINES_FOR_TYPES};
use crate::memory::sort_within;
use crate::stores::Stores;

/// Number of requests at the same time for files on local disks, if there are more files than this.
const REQUESTS: usize = 64;

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

    /// The files at a place: a path or URL of a file or a folder, a glob, or `-` for standard input.
    pub(super) async fn find(
        &self,
        place: &str,
        format: Option<Format>,
        csv: &CsvArguments,
    ) -> Outcome<Vec<Found>> {
        match place {
            "-" => Ok(vec![stdin::copy(self, format, csv).await?]),
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
        let mut found = find(&self.stores, &self.context.state(), place, Some(format), csv).await?;
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

    /// Rows read by DataFusion.
    async fn query(&self, files: &[Found], wanted: &Wanted<'_>) -> Outcome<Rows> {
        let Some(first) = files.first() else {
            return Err(Failure::error("no file to convert"));
        };
        if let Some(other) = files.iter().find(|file| !file.is_read_like(first)) {
            return Err(Failure::Usage(format!(
                "{}: does not have the format of {}, or is compressed in another way; convert files of several formats into a \
                 folder",
                other.name, first.name
            )));
        }
        if files.len() > REQUESTS && are_local(files) {
            // DataFusion asks for all files at once, and each request opens one.
            let store = LimitStore::new(LocalFileSystem::new(), REQUESTS);
            self.stores.register_store(files[0].url.as_ref(), Arc::new(store));
        }
        let (table, checked) = self.table(files, first, wanted).await?;
        let table: Arc<dyn TableProvider> = Arc::new(table);
        let read = table.schema();
        let mut frame = self.context.read_table(Arc::clone(&table))?;
        let keys = wanted.sort_by.iter().map(|key| key.column.as_str());
        check_columns("--sort-by", keys.clone(), frame.schema(), |name| {
            if name.contains(char::is_whitespace) {
                "; the words after a column are: asc, desc, nulls first, nulls last"
            } else {
                ""
            }
        })?;
        let columns: Option<Vec<&str>> =
            wanted.columns.map(|names| names.iter().map(String::as_str).collect());
        check_columns(&files[0].name, columns.iter().flatten().copied(), frame.schema(), |_| "")?;
        if wanted.sort_by.is_empty() {
            frame = checked.converted(frame)?;
        } else {
            let needed = columns.as_ref().map(|columns| {
                let fields = read.fields().iter().enumerate();
                let is_needed = |name: &str| columns.contains(&name) || keys.clone().any(|key| key == name);
                fields.filter(|(_, field)| is_needed(field.name())).map(|(at, _)| at).collect()
            });
            let (rows, number) = numbered(&self.scan(table.as_ref(), needed, files).await?)?;
            let number = Column::from_name(number);
            let keys = wanted.sort_by.iter().map(sort_expr);
            let keys = keys.chain([Expr::Column(number.clone()).sort(true, false)]).collect();
            frame = checked.converted(self.context.read_table(Arc::new(rows))?)?.sort(keys)?;
            frame = frame.drop_columns(&[number])?;
        }
        if let Some(columns) = columns {
            frame = frame.select_columns(&columns)?;
        }
        let limit = wanted.limit.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        let is_ordered = wanted.sort_by.is_empty() && files.len() > 1;
        if !is_ordered && limit.is_some() {
            frame = frame.limit(0, limit)?;
        }
        let mut plan = frame.create_physical_plan().await?;
        if is_ordered {
            plan = in_given_order(plan, files)?;
            // A table that knew of the limit would leave out files, and not the last ones of those that are given.
            if let Some(rows) = limit {
                let limited = plan.with_fetch(Some(rows)).unwrap_or(plan);
                plan = Arc::new(GlobalLimitExec::new(limited, 0, Some(rows)));
            }
        }
        let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::default()).ok();
        let count = known.and_then(|known| known.num_rows.get_value().copied()).map(|rows| rows as u64);
        let order =
            plan.output_ordering().filter(|_| plan.output_partitioning().partition_count() == 1).cloned();
        let batches = execute_stream(Arc::clone(&plan), self.context.task_ctx())?;
        let place = if let [file] = files { Some(file.name.clone()) } else { None };
        let batches = batches.map_err(move |error| {
            let error = with_name(error.into(), &read);
            match &place {
                Some(place) => Failure::at(place, error),
                None => error,
            }
        });
        Ok(Rows { schema: plan.schema(), count, order, batches: batches.boxed() })
    }

    /// All rows of a table of files, or some of their columns, in partitions that follow each other in the order of the
    /// files.
    async fn scan(
        &self,
        table: &dyn TableProvider,
        columns: Option<Vec<usize>>,
        files: &[Found],
    ) -> Outcome<Arc<dyn ExecutionPlan>> {
        let state = self.context.state();
        let scan = table.scan(&state, columns.as_ref(), &[], None).await?;
        let options = state.config_options();
        let divided = scan.repartitioned(options.execution.target_partitions, options)?;
        Ok(in_given_order(divided.unwrap_or(scan), files)?)
    }
}

/// Checks that there are columns of these names, and tells which there are, with advice about the one that is missing.
fn check_columns<'a>(
    place: &str,
    mut names: impl Iterator<Item = &'a str>,
    schema: &DFSchema,
    advice: fn(&str) -> &'static str,
) -> Outcome {
    let fields = schema.fields();
    let Some(name) = names.find(|name| fields.find(name).is_none()) else { return Ok(()) };
    let there = fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
    let advice = advice(name);
    Err(Failure::error(format!("{place}: no column `{name}`; there are: {there}{advice}")))
}

/// An error about a value of a CSV file with the name of the column, instead of its position, and the line as editors
/// count.
fn with_name(failure: Failure, table: &Schema) -> Failure {
    let Failure::Error(message) = failure else { return failure };
    let named = || {
        let (before, rest) = message.split_once("' for column ")?;
        let (column, rest) = rest.split_once(" at line ")?;
        let (line, after) = rest.split_once('.')?;
        let (column, line) = (column.parse::<usize>().ok()?, line.parse::<u64>().ok()? + 1);
        let name = table.fields().get(column)?.name();
        Some(format!("{before}' for column `{name}` at line {line}.{after}"))
    };
    Failure::Error(named().unwrap_or(message))
}

pub(super) fn are_local(files: &[Found]) -> bool {
    files.iter().all(|file| file.url.scheme() == "file")
}

pub(super) fn reader_of(format: Format, form: TextForm) -> Arc<dyn FileFormat> {
    match format {
        Format::Vortex => {
            let mut options = VortexOptions::default();
            options.string_type = StringType::Stored;
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

fn sort_expr(key: &SortKey) -> SortExpr {
    Expr::Column(Column::from_name(&key.column)).sort(!key.descending, key.nulls_first)
}
