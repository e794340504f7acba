//! Plans of scans: of files that a table provider has chosen, or that DataFusion has listed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::Field;
use datafusion_common::{Result, ScalarValue, Statistics, plan_err};
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::file_scan_config::{FileScanConfig, FileScanConfigBuilder};
use datafusion_datasource::source::DataSourceExec;
use datafusion_datasource::{PartitionedFile, TableSchema, compute_all_files_statistics};
use datafusion_execution::object_store::ObjectStoreUrl;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_session::Session;

use crate::format::VortexFormat;
use crate::optimizer::has_rules;
use crate::orders;
use crate::source::VortexSource;
use crate::statistics::scan::as_stated;

impl VortexFormat {
    /// Plans a scan of files that a table provider has chosen, such as those of a snapshot of a table format. It reads
    /// nothing.
    ///
    /// - `table` is the schema of the table, with its partition columns, if the files do not contain all columns:
    ///   `TableSchema::builder(schema).with_table_partition_cols(..)`.
    /// - `groups` are the files, a partition of the plan for each group, which takes memory and a task: as many as the
    ///   session has cores for, by `FileGroup::new(files).split_files(session.config().target_partitions())`.
    ///   DataFusion divides large files further.
    /// - `projection` and `limit` are those of `TableProvider::scan`.
    ///
    /// A file has what the provider attaches to its `PartitionedFile`:
    ///
    /// - a time of modification, an e-tag or a version (`new_from_meta`), without which nothing of it is kept for later
    ///   scans,
    /// - the values of the partition columns (`with_partition_values`),
    /// - [statistics](crate::statistics()), after these values (`with_statistics`): files are skipped by them, and if
    ///   all files have some, they are those of the scan. They are those of the whole file, even if only some rows are
    ///   read,
    /// - the order of its rows (`with_ordering`), such as [`recorded_order`](crate::recorded_order) tells: the scan
    ///   declares what all files share,
    /// - a [`RowSelection`](crate::RowSelection), or an open [`VortexFile`](vortex_core::VortexFile)
    ///   (`with_extension`).
    ///
    /// Filters are no argument: DataFusion's physical optimizer passes those above the scan to it, which decides what
    /// it takes over. A provider has them to choose files, and answers `Inexact` in `supports_filters_pushdown`; it
    /// must not answer `Exact`, unless no other rows are left in the files it has chosen.
    ///
    /// For anything else, such as an adapter of expressions or constraints, build a `FileScanConfig` on a
    /// [`VortexSource`], and pass it to `create_physical_plan` of this format, as this method does.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use datafusion::arrow::datatypes::SchemaRef;
    /// # use datafusion::catalog::Session;
    /// # use datafusion::datasource::listing::PartitionedFile;
    /// # use datafusion::datasource::physical_plan::FileGroup;
    /// # use datafusion::error::Result;
    /// # use datafusion::execution::object_store::ObjectStoreUrl;
    /// # use datafusion::physical_plan::ExecutionPlan;
    /// use vortex_datafusion::VortexFormat;
    ///
    /// # fn scan(session: &dyn Session, schema: &SchemaRef, files: Vec<PartitionedFile>,
    /// #     projection: Option<&Vec<usize>>, limit: Option<usize>) -> Result<Arc<dyn ExecutionPlan>> {
    /// let groups = FileGroup::new(files).split_files(session.config().target_partitions());
    /// let store = ObjectStoreUrl::parse("s3://bucket")?;
    /// VortexFormat::new().plan_scan(session, store, schema, groups, projection.cloned(), limit)
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the statistics or the partition values of a file are not those of the columns of the table, in number and
    /// type, if the table has virtual columns, of which files have none, or there is no column of the projection.
    pub fn plan_scan(
        &self,
        session: &dyn Session,
        store: ObjectStoreUrl,
        table: impl Into<TableSchema>,
        groups: Vec<FileGroup>,
        projection: Option<Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let table = table.into();
        let files = || groups.iter().flat_map(FileGroup::iter);
        files().try_for_each(|file| check_columns(file, &table))?;
        // DataFusion sums up those that have statistics, as if there were no other files.
        let are_known = files().all(|file| file.statistics.is_some());
        let order = orders::of_table(files());
        let schema = table.table_schema();
        let (groups, statistics) = if are_known {
            compute_all_files_statistics(groups, Arc::clone(schema), true, false)?
        } else {
            (groups, Statistics::new_unknown(schema))
        };
        let scan = scan_of(store, table)
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_output_ordering(order.into_iter().collect());
        self.plan_rows(session, scan, projection, limit)
    }

    /// Plans the scan of those columns and rows of its files that are wanted.
    pub(crate) fn plan_rows(
        &self,
        session: &dyn Session,
        scan: FileScanConfigBuilder,
        projection: Option<Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.plan(session, scan.with_projection_indices(projection)?.with_limit(limit).build())
    }

    /// Plans a scan: sets what the source lacks, and states only what plans may rely on.
    pub(crate) fn plan(&self, session: &dyn Session, scan: FileScanConfig) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(source) = scan.file_source().downcast_ref::<VortexSource>().cloned() else {
            return plan_err!(
                "a scan of Vortex files needs a VortexSource, but has a source of `{}`",
                scan.file_source().file_type()
            );
        };
        if let Some(field) = source.table.virtual_columns().first() {
            return plan_err!(
                "`{}` is a virtual column, which scans of Vortex files do not have; `file_row_index()` is the position of a \
                 row in its file",
                field.name()
            );
        }
        let source = source.for_scan().or_options(self.options(session)?).with_session(session);
        let mut scan = FileScanConfigBuilder::from(scan).with_source(Arc::new(source)).build();
        // A plan needs a partition, even of no files.
        if scan.file_groups.is_empty() {
            scan.file_groups.push(FileGroup::default());
        }
        let has_rules = has_rules(session);
        if !has_rules {
            tell_of_missing_rules(session.session_id());
        }
        Ok(DataSourceExec::from_data_source(orders::reliable_orders(as_stated(scan), has_rules)))
    }
}

/// A scan of a table without files yet.
pub(crate) fn scan_of(store: ObjectStoreUrl, table: impl Into<TableSchema>) -> FileScanConfigBuilder {
    FileScanConfigBuilder::new(store, Arc::new(VortexSource::new(table)))
}

/// Refuses a file of which something is known about other columns, or columns of other types, than the table has.
fn check_columns(file: &PartitionedFile, table: &TableSchema) -> Result<()> {
    let location = &file.object_meta.location;
    let (values, partitions) = (file.partition_values.len(), table.table_partition_cols().len());
    if values != partitions {
        return plan_err!("{location} has {values} partition values for {partitions} partition columns");
    }
    let check = |value: &ScalarValue, field: &Field, what: &str| match value.data_type() {
        found if found == *field.data_type() => Ok(()),
        found => plan_err!(
            "{location} has a {what} of type {found} for the column `{}`, which is of type {}",
            field.name(),
            field.data_type()
        ),
    };
    for (value, field) in file.partition_values.iter().zip(table.table_partition_cols()) {
        check(value, field, "partition value")?;
    }
    let Some(known) = &file.statistics else { return Ok(()) };
    let (known, fields) = (&known.column_statistics, table.table_schema().fields());
    if known.len() != fields.len() {
        return plan_err!(
            "{location} has statistics of {} columns, but the table has {}: those of columns of files come first, and \
             `with_statistics` adds those of partition columns if `with_partition_values` was called before",
            known.len(),
            fields.len()
        );
    }
    for (known, field) in known.iter().zip(fields) {
        let bounds = [(&known.min_value, "minimum"), (&known.max_value, "maximum")];
        bounds.into_iter().try_for_each(|(bound, what)| match bound.get_value() {
            Some(value) if !value.is_null() => check(value, field, what),
            _ => Ok(()),
        })?;
    }
    Ok(())
}

/// Warns of the first such session: see [`register`](crate::register#without-the-rules).
fn tell_of_missing_rules(session: &str) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            session,
            "a session scans Vortex files without the optimizer rules of vortex-datafusion: it is slower, and some of its \
             queries may return wrong rows; `register` and `with_vortex` add them, and later changes of the rules remove them"
        );
    }
}
