//! What a sink does not write, refused before there are rows.

use datafusion_common::{Result, not_impl_err, plan_err};
use datafusion_datasource::file_sink_config::FileSinkConfig;
use datafusion_expr::dml::InsertOp;
use object_store::path::{Path, PathPart};

/// Like the names that DataFusion gives to the files that it writes to a table.
const EXAMPLE_NAME: &str = "q7Xm2VtRb9KcL4Zd_0.vortex";

/// Refuses what would not be written as it is meant.
///
/// # Errors
/// If rows are to replace others one by one, or there is no place for them, or the partition columns leave no files to
/// write.
pub(super) fn check(config: &FileSinkConfig) -> Result<()> {
    match config.insert_op {
        InsertOp::Append => {}
        // The files of the first place alone are known.
        InsertOp::Overwrite if config.table_paths.len() > 1 => {
            return plan_err!("INSERT OVERWRITE replaces the files of one place, and the table has several");
        }
        InsertOp::Overwrite => {}
        InsertOp::Replace => {
            return not_impl_err!(
                "REPLACE INTO needs a key by which rows are found, which Vortex files lack"
            );
        }
    }
    check_place(config)?;
    check_partition_columns(config)
}

/// Refuses rows without a place, or for a table over a pattern that the names of their files would not match.
fn check_place(config: &FileSinkConfig) -> Result<()> {
    let Some(url) = config.table_paths.first() else {
        return plan_err!("rows need a place to be written to, but the sink has no path");
    };
    let Ok(file) = Path::parse(format!("{}/{EXAMPLE_NAME}", url.prefix())) else { return Ok(()) };
    // The file is in no subfolder.
    if url.get_glob().is_some() && !url.contains(&file, true) {
        return plan_err!(
            "{url}: rows are written to files named like {EXAMPLE_NAME}, which this pattern leaves out"
        );
    }
    Ok(())
}

fn check_partition_columns(config: &FileSinkConfig) -> Result<()> {
    let names = || config.table_partition_cols.iter().map(|(name, _)| name);
    for (at, name) in names().enumerate() {
        if names().take(at).any(|other| other == name) {
            return plan_err!("PARTITIONED BY names `{name}` twice");
        }
        if config.output_schema.field_with_name(name).is_err() {
            return plan_err!("PARTITIONED BY names `{name}`, which is not a column of the rows");
        }
        // Names of folders are encoded when they are written, but not decoded when they are listed. See
        // `tests/it/upstream/files.rs`: `rows_in_folders_with_encoded_names_are_not_found`.
        if name.contains('=') || PathPart::from(name.as_str()).as_ref() != name {
            return plan_err!(
                "PARTITIONED BY names `{name}`, but rows in folders of that name would not be found: rename the column to \
                 one of letters, digits, spaces, `-`, `_` and `.`"
            );
        }
    }
    let partitions = config.table_partition_cols.len();
    if partitions > 0
        && partitions == config.output_schema.fields().len()
        && !config.keep_partition_by_columns
    {
        return plan_err!(
            "PARTITIONED BY names all columns, which leaves none for the files: select another one, or SET \
             datafusion.execution.keep_partition_by_columns = true, which repeats them in the files"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_datasource::ListingTableUrl;
    use datafusion_datasource::file_groups::FileGroup;
    use datafusion_execution::object_store::ObjectStoreUrl;

    use super::*;
    use crate::options::VortexOptions;
    use crate::sink::VortexSink;

    /// A sink for the columns a and b.
    fn config(place: &str, partitions: &[&str]) -> FileSinkConfig {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int64, true));
        FileSinkConfig {
            original_url: place.to_owned(),
            object_store_url: ObjectStoreUrl::local_filesystem(),
            file_group: FileGroup::default(),
            table_paths: vec![ListingTableUrl::parse(place).unwrap()],
            output_schema: Arc::new(Schema::new(fields.to_vec())),
            table_partition_cols: partitions
                .iter()
                .map(|name| ((*name).to_owned(), DataType::Int64))
                .collect(),
            insert_op: InsertOp::Append,
            keep_partition_by_columns: false,
            file_extension: "vortex".to_owned(),
            file_output_mode: Default::default(),
        }
    }

    fn refused(config: FileSinkConfig) -> String {
        VortexSink::try_new(config, VortexOptions::default(), None).unwrap_err().to_string()
    }

    #[test]
    fn a_sink_that_is_built_directly_refuses_what_a_statement_would() {
        let error = refused(FileSinkConfig { insert_op: InsertOp::Replace, ..config("/tmp/t/", &[]) });
        assert!(error.contains("needs a key"), "{error}");
        let table_paths = ["/tmp/t/", "/tmp/u/"].map(|place| ListingTableUrl::parse(place).unwrap()).to_vec();
        let insert_op = InsertOp::Overwrite;
        let error = refused(FileSinkConfig { insert_op, table_paths, ..config("/tmp/t/", &[]) });
        assert!(error.contains("the table has several"), "{error}");
        let error = refused(FileSinkConfig { table_paths: Vec::new(), ..config("/tmp/t/", &[]) });
        assert!(error.contains("no path"), "{error}");
        let error = refused(config("/tmp/t/day*.vortex", &[]));
        assert!(error.contains("this pattern leaves out"), "{error}");
        assert!(refused(config("/tmp/t/", &["a", "a"])).contains("names `a` twice"));
        assert!(refused(config("/tmp/t/", &["c"])).contains("`c`, which is not a column"));
        for name in ["größe", "a=b", "50%"] {
            let fields = ["a", name].map(|name| Field::new(name, DataType::Int64, true));
            let output_schema = Arc::new(Schema::new(fields.to_vec()));
            let error = refused(FileSinkConfig { output_schema, ..config("/tmp/t/", &[name]) });
            assert!(error.contains(name) && error.contains("would not be found"), "{error}");
        }
        assert!(refused(config("/tmp/t/", &["b", "a"])).contains("names all columns"));
    }

    #[test]
    fn what_can_be_written_is_accepted() {
        for (place, partitions) in [("/tmp/t/", &["b"][..]), ("/tmp/t/*.vortex", &[]), ("/tmp/a.vortex", &[])]
        {
            VortexSink::try_new(config(place, partitions), VortexOptions::default(), None).unwrap();
        }
        let repeated = FileSinkConfig { keep_partition_by_columns: true, ..config("/tmp/t/", &["a", "b"]) };
        VortexSink::try_new(repeated, VortexOptions::default(), None).unwrap();
    }
}
