//! Vortex files without SQL: the counterparts of `read_parquet`, `register_parquet` and `write_parquet`.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::UInt64Type;
use async_trait::async_trait;
use datafusion::dataframe::DataFrame;
use datafusion::prelude::SessionContext;
use datafusion_catalog::TableProviderFactory as _;
use datafusion_common::{Result, TableReference, exec_err};
use datafusion_datasource::file_format::format_as_file_type;
use datafusion_datasource::sink::DataSinkExec;
use datafusion_expr::LogicalPlanBuilder;
use datafusion_physical_plan::collect;
use datafusion_session::TableProvider;

use super::factory::VortexTableFactory;
use super::places::{listing_url, output_url, store_name};
use super::read_options::VortexReadOptions;
use crate::format::{EXTENSION, VortexFormatFactory};
use crate::options::VortexOptions;
use crate::sink::{VortexSink, WrittenFile};

/// Reading Vortex files in a session that [supports](crate::register) them, with the options of the session unless a
/// table has its own.
///
/// ```
/// use datafusion::prelude::*;
/// use vortex_datafusion::{VortexContextExt as _, VortexDataFrameExt as _};
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
/// let written = lines.filter(col("l_quantity").gt(lit(49)))?.write_vortex(few, None).await?;
/// context.register_vortex("few", few).await?;
/// assert_eq!(context.table("few").await?.count().await? as u64, written);
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
    /// Writes the rows, like `COPY … TO`: into one file, or into files in a folder if the path ends in `/`.
    /// Returns the number of rows. Without `options`, those of the session apply; to change some of them,
    /// start from these:
    ///
    /// ```
    /// # use datafusion::prelude::*;
    /// use vortex_core::Level;
    /// use vortex_datafusion::{VortexDataFrameExt as _, VortexOptions};
    ///
    /// # async fn example(context: SessionContext) -> datafusion::common::Result<()> {
    /// let mut options = VortexOptions::from_session(context.copied_config().options());
    /// options.level = Level::Compact;
    /// context.table("visits").await?.write_vortex("visits.vortex", Some(options)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a type cannot be written, or the query or storage fails; nothing is left behind then.
    async fn write_vortex(self, path: &str, options: Option<VortexOptions>) -> Result<u64>;

    /// Writes the rows into folders below `path`, like `COPY … PARTITIONED BY`: one folder per value of the
    /// first of `columns`, named `column=value`, with those of the next column in it. The files do not contain
    /// these columns; tables over `path` take them from the names of the folders.
    ///
    /// ```
    /// # use datafusion::prelude::*;
    /// # use vortex_datafusion::VortexDataFrameExt as _;
    /// # async fn example(context: SessionContext) -> datafusion::common::Result<()> {
    /// context.table("visits").await?.write_vortex_partitioned("by-day/", &["day"], None).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`write_vortex`](Self::write_vortex), and if there is no such column, or no folder can be named
    /// after its values: if one of them is null, or their type is not supported.
    async fn write_vortex_partitioned(
        self,
        path: &str,
        columns: &[&str],
        options: Option<VortexOptions>,
    ) -> Result<u64>;

    /// Writes the rows like [`write_vortex_partitioned`](Self::write_vortex_partitioned), or without `columns` like
    /// [`write_vortex`](Self::write_vortex), and returns the files: their paths, sizes, row counts and statistics, which a
    /// catalogue records.
    ///
    /// # Errors
    /// As for these, and if the planner of the session plans something else than to write Vortex files.
    async fn write_vortex_files(
        self,
        path: &str,
        columns: &[&str],
        options: Option<VortexOptions>,
    ) -> Result<Vec<WrittenFile>>;
}

#[async_trait]
impl VortexDataFrameExt for DataFrame {
    async fn write_vortex(self, path: &str, options: Option<VortexOptions>) -> Result<u64> {
        self.write_vortex_partitioned(path, &[], options).await
    }

    async fn write_vortex_partitioned(
        self,
        path: &str,
        columns: &[&str],
        options: Option<VortexOptions>,
    ) -> Result<u64> {
        let counts = copy(self, path, columns, options)?.collect().await?;
        let count = |batch: &RecordBatch| -> u64 {
            batch.column(0).as_primitive::<UInt64Type>().values().iter().sum()
        };
        Ok(counts.iter().map(count).sum())
    }

    async fn write_vortex_files(
        self,
        path: &str,
        columns: &[&str],
        options: Option<VortexOptions>,
    ) -> Result<Vec<WrittenFile>> {
        let copy = copy(self, path, columns, options)?;
        let context = Arc::new(copy.task_ctx());
        let plan = copy.create_physical_plan().await?;
        collect(Arc::clone(&plan), context).await?;
        let sink =
            plan.downcast_ref::<DataSinkExec>().and_then(|exec| exec.sink().downcast_ref::<VortexSink>());
        match sink {
            Some(sink) => Ok(sink.written()),
            None => exec_err!("{path}: the session has planned `{}` instead of a VortexSink", plan.name()),
        }
    }
}

/// The rows as a statement that writes them, like `COPY`.
fn copy(rows: DataFrame, path: &str, columns: &[&str], options: Option<VortexOptions>) -> Result<DataFrame> {
    for column in columns {
        rows.schema().field_with_unqualified_name(column)?;
    }
    let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
    let formats = VortexFormatFactory::new();
    let formats = match options {
        Some(options) => formats.with_options(options),
        None => formats,
    };
    let format = format_as_file_type(Arc::new(formats));
    let (state, rows) = rows.into_parts();
    // Without this, DataFusion takes a name without an extension for that of a folder.
    let is_file = columns.is_empty() && !path.ends_with(std::path::is_separator) && !Path::new(path).is_dir();
    let options = is_file.then(|| ("single_file_output".to_owned(), "true".to_owned()));
    let options = options.into_iter().collect();
    let copy = LogicalPlanBuilder::copy_to(rows, output_url(path)?, format, options, columns)?;
    Ok(DataFrame::new(state, copy.build()?))
}
