//! How a data frame is written without SQL.

use datafusion_common::{Result, plan_err};
use datafusion_expr::{LogicalPlan, LogicalPlanBuilder, SortExpr};
use vortex_core::Level;

use crate::options::VortexOptions;

/// How rows are written: the counterpart of `DataFrameWriteOptions`, which keeps what it is told to DataFusion's own
/// writers, and of the clauses of `COPY`.
///
/// ```
/// # use datafusion::prelude::*;
/// use vortex_core::Level;
/// use vortex_datafusion::{VortexDataFrameExt as _, VortexOptions, VortexWriteOptions};
///
/// # async fn example(context: SessionContext) -> datafusion::common::Result<()> {
/// let session = VortexOptions::from_session(context.copied_config().options());
/// let options = VortexWriteOptions::new()
///     .with_partition_by(["day"])
///     .with_sort_by(vec![col("city").sort(true, false)])
///     .with_options(session.with(|options| options.level = Level::Compact));
/// context.table("visits").await?.write_vortex("by-day/", options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct VortexWriteOptions {
    pub(super) partition_by: Vec<String>,
    sort_by: Vec<SortExpr>,
    single_file_output: Option<bool>,
    pub(super) options: Option<VortexOptions>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) column_levels: Vec<(String, Level)>,
}

impl VortexWriteOptions {
    /// Rows in their order, with the options of the session, into one file; into files in a folder if the path ends in
    /// `/` or is that of a local folder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes into folders, like `COPY … PARTITIONED BY`: one folder per value of the first column, named
    /// `column=value`, with those of the next column in it. The files do not contain these columns; tables over the
    /// path take them from the names of the folders.
    #[must_use]
    pub fn with_partition_by<N: Into<String>>(mut self, columns: impl IntoIterator<Item = N>) -> Self {
        self.partition_by = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Sorts the rows, which each file records, so that reading them in this order needs no sort.
    #[must_use]
    pub fn with_sort_by(mut self, order: Vec<SortExpr>) -> Self {
        self.sort_by = order;
        self
    }

    /// Whether to write one file of exactly this name, even if there are no rows, instead of files in a folder of this
    /// name, whatever the path looks like.
    #[must_use]
    pub fn with_single_file_output(mut self, single_file_output: bool) -> Self {
        self.single_file_output = Some(single_file_output);
        self
    }

    /// Options that apply in place of those of the session.
    #[must_use]
    pub fn with_options(mut self, options: VortexOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Adds an entry of metadata to all files, which readers return unchanged:
    /// [`VortexFile::user_metadata`](vortex_core::VortexFile::user_metadata). One with the same key is replaced. In
    /// SQL, `OPTIONS ('metadata::station' 'Oslo')`, with keys in lower case.
    #[must_use]
    pub fn with_user_metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Compresses a column at another level than [that of the options](VortexOptions::level). A field of a struct is
    /// named like `address.city`; the level of a struct is that of its fields, too, unless they have one of their own.
    /// If no column has exactly this name, case is ignored. In SQL, `OPTIONS ('level::address.city' 'compact')`.
    #[must_use]
    pub fn with_column_level(mut self, column: impl Into<String>, level: Level) -> Self {
        self.column_levels.push((column.into(), level));
        self
    }

    /// The rows in the order in which they are written.
    ///
    /// # Errors
    /// If an expression of the order does not fit the rows.
    pub(super) fn sorted(&self, rows: LogicalPlan) -> Result<LogicalPlan> {
        if self.sort_by.is_empty() {
            Ok(rows)
        } else {
            LogicalPlanBuilder::from(rows).sort(self.sort_by.clone())?.build()
        }
    }

    /// Whether to write one file with the name that ends `path`; DataFusion would take a name without an extension for
    /// that of a folder.
    ///
    /// # Errors
    /// If one file is wanted, and folders, too.
    pub(super) fn is_single_file(&self, path: &str) -> Result<bool> {
        let is_partitioned = !self.partition_by.is_empty();
        if is_partitioned && self.single_file_output == Some(true) {
            return plan_err!("{path}: rows in folders named after {:?} are not one file", self.partition_by);
        }
        let is_folder = || path.ends_with(std::path::is_separator) || std::path::Path::new(path).is_dir();
        Ok(!is_partitioned && self.single_file_output.unwrap_or_else(|| !is_folder()))
    }
}
