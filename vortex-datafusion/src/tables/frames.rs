//! Vortex files without SQL: the counterparts of `read_parquet`, `register_parquet` and `write_parquet`.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::dataframe::DataFrame;
use datafusion::prelude::SessionContext;
use datafusion_catalog::TableProviderFactory as _;
use datafusion_common::{Result, TableReference, exec_err, plan_err};
use datafusion_datasource::file_format::format_as_file_type;
use datafusion_datasource::sink::DataSinkExec;
use datafusion_expr::LogicalPlanBuilder;
use datafusion_physical_plan::{ExecutionPlan, collect};
use datafusion_session::TableProvider;

use super::factory::VortexTableFactory;
use super::places::{listing_url, output_url, store_name};
use super::read_options::VortexReadOptions;
use super::write_options::VortexWriteOptions;
use crate::format::{EXTENSION, VortexFormatFactory};
use crate::options::{column_levels, user_metadata};
use crate::sink::{VortexSink, WrittenFile};

/// Reading Vortex files in a session that [supports](crate::register) them, with the options of the session unless a
/// table has its own.
///
/// ```
/// use datafusion::prelude::*;
/// use vortex_datafusion::{VortexContextExt as _, VortexDataFrameExt as _, VortexWriteOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::common::Result<()> {
/// # let lineitem = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
/// # let folder = tempfile::tempdir()?;
/// # let few = folder.path().join("few.vortex");
/// # let few = few.to_str().unwrap();
/// let context = SessionContext::new();
/// vortex_datafusion::register(&context)?;
/// let lines = context.read_vortex(lineitem).await?;
/// let lines = lines.filter(col("l_quantity").gt(lit(49)))?;
/// let files = lines.write_vortex(few, VortexWriteOptions::new()).await?;
/// context.register_vortex("few", few).await?;
/// assert_eq!(context.table("few").await?.count().await? as u64, files[0].summary.row_count());
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait VortexContextExt {
    /// Reads the files at a place: a path or URL of a file or a folder, or a glob. Folders named `key=value`
    /// become columns.
    ///
    /// # Errors
    /// If Vortex is not registered in the session, or there are no files with compatible schemas.
    async fn read_vortex(&self, place: &str) -> Result<DataFrame>;

    /// Registers the files at a place as a table, like `CREATE EXTERNAL TABLE … STORED AS VORTEX`.
    ///
    /// # Errors
    /// As for [`read_vortex`](Self::read_vortex), and if a table of this name exists.
    async fn register_vortex(&self, name: &str, place: &str) -> Result<()>;

    /// Reads the files at several places of one store as one table, which is told about them: its columns, so that no
    /// file is opened to find them, those of folders, the order of rows, options of its own.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use arrow::datatypes::{DataType, Field, Schema};
    /// use vortex_datafusion::{VortexContextExt as _, VortexReadOptions};
    ///
    /// # async fn example(context: datafusion::prelude::SessionContext) -> datafusion::common::Result<()> {
    /// let day = Field::new("day", DataType::Date32, false);
    /// let schema = Arc::new(Schema::new(vec![Field::new("visits", DataType::Int64, true), day]));
    /// let options = VortexReadOptions::new().with_schema(schema).with_partition_columns(["day"]);
    /// context.read_vortex_with(&["s3://bucket/by-day/"], options).await?.show().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`read_vortex`](Self::read_vortex), and if what the table is told contradicts itself.
    async fn read_vortex_with(&self, places: &[&str], options: VortexReadOptions) -> Result<DataFrame>;

    /// Registers the files at several places of one store as a table, which is told about them.
    ///
    /// # Errors
    /// As for [`read_vortex_with`](Self::read_vortex_with), and if a table of this name exists.
    async fn register_vortex_with(
        &self,
        name: &str,
        places: &[&str],
        options: VortexReadOptions,
    ) -> Result<()>;
}

#[async_trait]
impl VortexContextExt for SessionContext {
    async fn read_vortex(&self, place: &str) -> Result<DataFrame> {
        self.read_vortex_with(&[place], VortexReadOptions::new()).await
    }

    async fn register_vortex(&self, name: &str, place: &str) -> Result<()> {
        self.register_vortex_with(name, &[place], VortexReadOptions::new()).await
    }

    async fn read_vortex_with(&self, places: &[&str], options: VortexReadOptions) -> Result<DataFrame> {
        let name = match places.first() {
            Some(place) => store_name(&listing_url(place)?),
            None => TableReference::bare(EXTENSION),
        };
        self.read_table(table(self, name, places, options).await?)
    }

    async fn register_vortex_with(
        &self,
        name: &str,
        places: &[&str],
        options: VortexReadOptions,
    ) -> Result<()> {
        let name = TableReference::from(name);
        self.register_table(name.clone(), table(self, name, places, options).await?)?;
        Ok(())
    }
}

async fn table(
    context: &SessionContext,
    name: TableReference,
    places: &[&str],
    options: VortexReadOptions,
) -> Result<Arc<dyn TableProvider>> {
    let statement = options.statement(name, places)?;
    VortexTableFactory.create(&context.state(), &statement).await
}

/// Writing rows into Vortex files.
#[async_trait]
pub trait VortexDataFrameExt {
    /// Writes the rows, like `COPY … TO`, and returns the files: their paths, partition values, sizes, row counts and
    /// statistics, which a catalogue records. They appear, except full ones, when all rows are written. Unlike for
    /// `COPY`, a path without a `/` at its end is a single file, whatever its extension, unless it is that of a local
    /// folder.
    ///
    /// ```
    /// # use datafusion::prelude::*;
    /// use vortex_datafusion::{VortexDataFrameExt as _, VortexWriteOptions};
    ///
    /// # async fn example(context: SessionContext) -> datafusion::common::Result<()> {
    /// let visits = context.table("visits").await?;
    /// let files = visits.clone().write_vortex("visits.vortex", VortexWriteOptions::new()).await?;
    /// println!("{} rows", files[0].summary.row_count());
    ///
    /// let by_day = VortexWriteOptions::new().with_partition_by(["day"]);
    /// for file in visits.write_vortex("by-day/", by_day).await? {
    ///     println!("{}: {} rows of day {}", file.path, file.summary.row_count(), file.partition_values[0]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a type cannot be written, or the query or storage fails; nothing is left behind then. If a column to name
    /// folders after does not exist, or no folder can be named after it or its values: its name has letters that names
    /// of folders encode, one of the values is null or a date with a time of day, or their type is not supported. If an
    /// entry of metadata is refused, or a level is for a column that files will not have. If the planner of the session
    /// plans something else than to write Vortex files.
    async fn write_vortex(self, path: &str, options: VortexWriteOptions) -> Result<Vec<WrittenFile>>;
}

#[async_trait]
impl VortexDataFrameExt for DataFrame {
    async fn write_vortex(self, path: &str, options: VortexWriteOptions) -> Result<Vec<WrittenFile>> {
        if options.is_single_file(path)?
            && options.options.as_ref().is_some_and(|own| own.target_file_size > 0)
        {
            return plan_err!(
                "{path}: target_file_size cuts rows into the files of a folder, but this is a single file"
            );
        }
        let copy = copy(self, path, &options)?;
        let context = Arc::new(copy.task_ctx());
        let plan = copy.create_physical_plan().await?;
        let Some(sink) = sink_of(&plan) else {
            return exec_err!(
                "{path}: the session has planned `{}` instead of a VortexSink, which tells what was written; use COPY",
                plan.name()
            );
        };
        collect(Arc::clone(&plan), context).await?;
        Ok(sink.written())
    }
}

/// The sink of a plan, perhaps below operators that rules of the session have added.
fn sink_of(plan: &Arc<dyn ExecutionPlan>) -> Option<&VortexSink> {
    match plan.downcast_ref::<DataSinkExec>() {
        Some(exec) => exec.sink().downcast_ref::<VortexSink>(),
        None => plan.children().into_iter().find_map(sink_of),
    }
}

/// The rows as a statement that writes them, like `COPY`.
fn copy(rows: DataFrame, path: &str, options: &VortexWriteOptions) -> Result<DataFrame> {
    for column in &options.partition_by {
        rows.schema().field_with_unqualified_name(column)?;
    }
    let formats = VortexFormatFactory::new();
    let formats = match &options.options {
        Some(options) => formats.with_options(options.clone()),
        None => formats,
    };
    let format = format_as_file_type(Arc::new(formats));
    let single_file = options.is_single_file(path)?.to_string();
    let mut of_sink = HashMap::from([("single_file_output".to_owned(), single_file)]);
    let metadata = options.metadata.iter();
    of_sink.extend(
        metadata.map(|(key, value)| (format!("format.{}{key}", user_metadata::PREFIX), value.clone())),
    );
    let levels = options.column_levels.iter();
    of_sink.extend(
        levels
            .map(|(column, level)| (format!("format.{}{column}", column_levels::PREFIX), level.to_string())),
    );
    let (state, rows) = rows.into_parts();
    let (rows, columns) = (options.sorted(rows)?, options.partition_by.clone());
    let copy = LogicalPlanBuilder::copy_to(rows, output_url(path)?, format, of_sink, columns)?;
    Ok(DataFrame::new(state, copy.build()?))
}
