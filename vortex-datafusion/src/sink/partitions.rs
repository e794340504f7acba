//! The values of partition columns, as the paths of files tell them.
//!
//! DataFusion divides rows among folders and hands over only the paths, in which values are text: `day=2026-11-26`.

use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion_datasource::file_sink_config::FileSinkConfig;
use object_store::path::Path;
use percent_encoding::percent_decode_str;

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
