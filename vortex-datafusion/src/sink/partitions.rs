//! The values of partition columns: which of them may name folders, and which ones the paths of files tell.
//!
//! DataFusion divides rows among folders and hands over only the paths, in which values are text: `day=2026-11-26`.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Date32Type, Date64Type, Fields, Schema, SchemaRef};
use arrow::temporal_conversions::{date32_to_datetime, date64_to_datetime};
use datafusion_common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion_datasource::file_sink_config::FileSinkConfig;
use datafusion_execution::SendableRecordBatchStream;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt as _;
use object_store::path::Path;
use percent_encoding::percent_decode_str;

const MILLISECONDS_PER_DAY: i64 = 86_400_000;

/// The columns that folders are named after.
#[derive(Debug)]
pub(super) struct PartitionColumns {
    /// The folder of all of these folders.
    base: Path,
    columns: Vec<(String, DataType)>,
}

impl PartitionColumns {
    /// The columns of a sink. DataFusion does not tell `COPY` their types, which those of the rows are.
    pub(super) fn new(config: &FileSinkConfig) -> Self {
        let columns = config.table_partition_cols.iter().map(|(name, declared)| {
            let of_rows = config.output_schema.field_with_name(name).map(|field| field.data_type().clone());
            (name.clone(), of_rows.unwrap_or_else(|_| declared.clone()))
        });
        let base = config.table_paths.first().map(|url| url.prefix().clone()).unwrap_or_default();
        Self { base, columns: columns.collect() }
    }

    /// The values of the rows of the file at `path`, in the order of the columns.
    ///
    /// # Errors
    /// If the path has no folder for a column, or its name is not that of a value of the type.
    pub(super) fn values(&self, path: &Path) -> Result<Vec<ScalarValue>> {
        let mut folders = path.prefix_match(&self.base).into_iter().flatten();
        let values = self.columns.iter().map(|(name, data_type)| {
            let folder = folders.next();
            let folder = folder.as_ref().map_or("", |folder| folder.as_ref());
            let Ok(folder) = percent_decode_str(folder).decode_utf8() else {
                return exec_err!("{path}: the name of the folder `{folder}` is not text");
            };
            let Some(value) = folder.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('='))
            else {
                return exec_err!("{path}: the folder `{folder}` is not named after the column `{name}`");
            };
            // Folders name the day, also of a type that holds milliseconds.
            let day = (*data_type == DataType::Date64).then_some(&DataType::Date32);
            ScalarValue::try_from_string(value.to_owned(), day.unwrap_or(data_type))
                .and_then(|value| value.cast_to(data_type))
                .map_err(|error: DataFusionError| error.context(format!("{path}: the column `{name}`")))
        });
        values.collect()
    }
}

/// The schema in which these columns may have nulls.
pub(super) fn with_nullable(schema: &SchemaRef, columns: &[(String, DataType)]) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        if columns.iter().any(|(name, _)| name == field.name()) {
            Arc::new(field.as_ref().clone().with_nullable(true))
        } else {
            Arc::clone(field)
        }
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()))
}

/// The rows up to the first batch with a value in a partition column that is no name of a folder, which is an error. Of
/// a null, the demultiplexer of DataFusion 55 would take the value below it, such as 0, of a `Date64` the day, and of a
/// distant date, it would panic. See `tests/it/upstream/files.rs`: `folders_are_named_after_the_value_below_a_null`,
/// `folders_are_named_after_the_day_of_a_time`.
pub(super) fn checked(
    rows: SendableRecordBatchStream,
    partition_columns: Vec<String>,
) -> SendableRecordBatchStream {
    if partition_columns.is_empty() {
        return rows;
    }
    let schema = rows.schema();
    let checked = rows.map(move |batch| {
        let batch = batch?;
        check_values(&batch, &partition_columns)?;
        Ok(batch)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, checked))
}

fn check_values(rows: &RecordBatch, partition_columns: &[String]) -> Result<()> {
    for name in partition_columns {
        let Some(column) = rows.column_by_name(name) else { continue };
        if column.logical_null_count() > 0 {
            return exec_err!(
                "the partition column `{name}` has nulls, after which no folder can be named: exclude these rows \
                 with `WHERE {name} IS NOT NULL`, or replace the nulls with `coalesce({name}, ...)`"
            );
        }
        let is_day = |milliseconds: i64| milliseconds % MILLISECONDS_PER_DAY == 0;
        let is_named = match column.data_type() {
            DataType::Date32 => column
                .as_primitive::<Date32Type>()
                .values()
                .iter()
                .all(|day| date32_to_datetime(*day).is_some()),
            DataType::Date64 => {
                let mut times = column.as_primitive::<Date64Type>().values().iter();
                times.all(|time| is_day(*time) && date64_to_datetime(*time).is_some())
            }
            _ => true,
        };
        if !is_named {
            return exec_err!(
                "the partition column `{name}` has a date with a time of day, or one that is too far away for a folder to \
                 be named after it: cast it to DATE or to text"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(columns: &[(&str, DataType)]) -> PartitionColumns {
        let columns = columns.iter().map(|(name, data_type)| ((*name).to_owned(), data_type.clone()));
        PartitionColumns { base: Path::from("a/t"), columns: columns.collect() }
    }

    #[test]
    fn values_have_the_types_of_the_columns() {
        let of = columns(&[("day", DataType::Date32), ("a/b", DataType::Utf8View)]);
        let folder = Path::from("a/t").join("day=+10000-01-01").join("a/b=50% of x/y=z");
        let found = of.values(&folder.join("x.vortex")).unwrap();
        let day = ScalarValue::Date32(Some(2_932_897));
        assert_eq!(found, [day, ScalarValue::Utf8View(Some("50% of x/y=z".to_owned()))]);
        let of = columns(&[("day", DataType::Date64)]);
        let found = of.values(&Path::from("a/t/day=+12000-01-02/x.vortex")).unwrap();
        assert_eq!(found[0].data_type(), DataType::Date64);
        assert_eq!(columns(&[]).values(&Path::from("a/t/x.vortex")).unwrap(), []);
    }

    #[test]
    fn paths_that_tell_no_values_are_named() {
        let of = columns(&[("n", DataType::Int64)]);
        for (path, complaint) in
            [("a/t/m=1/x.vortex", "`m=1`"), ("a/t/n=x/y.vortex", "'x'"), ("b/n=1/y.vortex", "``")]
        {
            let error = of.values(&Path::from(path)).unwrap_err().to_string();
            assert!(error.contains(path) && error.contains(complaint), "{error}");
        }
    }
}
