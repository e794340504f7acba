//! The table that DataFusion reads: files of one format, and their columns.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use futures::TryStreamExt as _;
use object_store::path::Path as StorePath;
use vortex_core::io::object_name;
use vortex_datafusion::{folder_columns, merge_schemas};

use super::checked::Checked;
use super::find::{Found, folders_of};
use super::input::{Reader, Wanted};
use crate::columns::with_types;
use crate::failure::{Failure, Outcome};
use crate::formats::{Format, text_if_empty};

impl Reader {
    /// A table of files of one format, and its columns that are to be converted. Values in the names of folders become
    /// columns, and columns that some files lack are nullable.
    pub(super) async fn table(
        &self,
        files: &[Found],
        first: &Found,
        wanted: &Wanted<'_>,
    ) -> Outcome<(ListingTable, Checked)> {
        let format = first.format;
        let mut schemas = self.schemas(files, format).await?;
        declare(&mut schemas, wanted.types)?;
        let config = self.places(files, first).await?;
        if let Some(options) = &config.options {
            check_values(&options.table_partition_cols, &schemas, format)?;
        }
        let merged = merged(&wanted.of_schemas(schemas, format), format)?;
        let (schema, checked) = to_read(&merged, format);
        Ok((ListingTable::try_new(config.with_schema(Arc::new(schema)))?, checked))
    }

    /// Checks that files of folders that are named after different values contain these values: names of folders are
    /// read only of a folder as a whole.
    pub(super) async fn check_lost(&self, files: &[Found]) -> Outcome {
        if files.iter().any(|file| file.partitioned.is_some()) {
            return Ok(());
        }
        let folders: Vec<Vec<(String, String)>> = files.iter().map(values_of_folders).collect();
        let Some(first) = folders.first() else { return Ok(()) };
        let Some(at) = folders.iter().position(|values| values != first) else { return Ok(()) };
        let lacks = |other: &[(String, String)], value: &&(String, String)| !other.contains(value);
        let differing = first.iter().find(|value| lacks(&folders[at], value));
        let differing = differing.or_else(|| folders[at].iter().find(|value| lacks(first, value)));
        let Some((column, value)) = differing else { return Ok(()) };
        for (file, schema) in self.schemas(files, files[0].format).await? {
            if schema.index_of(column).is_err() {
                return Err(Failure::Usage(format!(
                    "{file}: has no column `{column}`, so that it would be lost which rows are from the folder \
                     `{column}={value}`; convert the folder that contains it as a whole, without a pattern, or each file \
                     by itself, or name the columns to keep with --columns"
                )));
            }
        }
        Ok(())
    }

    /// Where the files are: by themselves, or in folders that are named after values.
    async fn places(&self, files: &[Found], first: &Found) -> Outcome<ListingTableConfig> {
        let options = ListingOptions::new(first.reader());
        let mut folders: Vec<ListingTableUrl> = Vec::new();
        for folder in files.iter().filter_map(|file| file.partitioned.as_ref()) {
            if !folders.contains(folder) {
                folders.push(folder.clone());
            }
        }
        if folders.is_empty() {
            let urls = files.iter().map(|file| file.url.clone()).collect();
            let config = ListingTableConfig::new_with_multi_paths(urls);
            return Ok(config.with_listing_options(options.with_file_extension("")));
        }
        if let Some(file) = files.iter().find(|file| file.partitioned.is_none()) {
            let message = "is not in a folder named after a value, unlike other files";
            return Err(Failure::Usage(format!("{}: {message}", file.name)));
        }
        check_folders(files)?;
        // All files of a format may have another one of its extensions.
        let extension = extensions_of(&first.relative);
        let has_extension = |file: &Found| file.meta.location.as_ref().ends_with(&extension);
        let extension = if files.iter().all(has_extension) { extension.as_str() } else { "" };
        self.check_others(files, &folders, extension).await?;
        let config = ListingTableConfig::new_with_multi_paths(folders)
            .with_listing_options(options.with_file_extension(extension));
        Ok(config.infer_partitions_from_path(&self.context.state()).await?)
    }

    /// Checks that folders have no other files with this extension: DataFusion would read them, too.
    async fn check_others(&self, files: &[Found], folders: &[ListingTableUrl], extension: &str) -> Outcome {
        let known: HashSet<&StorePath> = files.iter().map(|file| &file.meta.location).collect();
        let state = self.context.state();
        for folder in folders {
            let store = self.stores.get_store(folder.as_ref())?;
            let mut listed = folder.list_all_files(&state, &store, extension).await?;
            while let Some(file) = listed.try_next().await? {
                if file.size > 0 && !known.contains(&file.location) {
                    return Err(Failure::Usage(format!(
                        "{}: is of another format than other files, or has another extension; move it away, since in \
                         folders named after values, files of one extension are read",
                        object_name(store.as_ref(), &file.location)
                    )));
                }
            }
        }
        Ok(())
    }
}

/// The extensions of a file, from that of its format on: `.csv.gz`. None if it has none.
fn extensions_of(path: &Path) -> String {
    let Some(last) = path.extension().and_then(OsStr::to_str) else { return String::new() };
    match path.with_extension("") {
        shorter if Format::of_path(path).is_none() && Format::of_path(&shorter).is_some() => {
            format!("{}.{last}", extensions_of(&shorter))
        }
        _ => format!(".{last}"),
    }
}

/// Gives columns the types that arguments say, in all files that have columns.
fn declare(schemas: &mut [(String, SchemaRef)], types: &[(String, DataType)]) -> Outcome {
    let lacks = |schema: &Schema, name: &str| !schema.fields().is_empty() && schema.index_of(name).is_err();
    for (name, _) in types {
        let Some((file, schema)) = schemas.iter().find(|(_, schema)| lacks(schema, name)) else {
            continue;
        };
        let there = schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("--type: {file} has no column `{name}`; there are: {there}")));
    }
    for (_, schema) in schemas {
        *schema = Arc::new(with_types(schema, |column| {
            let declared = types.iter().rev().find(|(name, _)| name == column.name());
            declared.map_or(column.data_type(), |(_, data_type)| data_type).clone()
        }));
    }
    Ok(())
}

/// The columns of all files. Those of Arrow files have the same types, which their reader does not convert.
fn merged(schemas: &[(String, SchemaRef)], format: Format) -> Outcome<Schema> {
    let merged = merge_schemas(schemas).map_err(without_table)?;
    let (Format::Arrow, Some((_, first))) = (format, schemas.first()) else { return Ok(merged) };
    Ok(with_types(&merged, |column| {
        first.field_with_name(column.name()).map_or(column.data_type(), Field::data_type).clone()
    }))
}

/// The error about files that have different types for a column, whose advice is for tables of SQL.
fn without_table(error: DataFusionError) -> Failure {
    let message = error.strip_backtrace();
    match message.strip_suffix("declare the schema of the table to choose") {
        Some(told) => Failure::error(format!(
            "{told}leave it out with --exclude, or choose: --type for CSV, or in SQL CREATE EXTERNAL TABLE t (name TYPE, ...)"
        )),
        None => error.into(),
    }
}

/// The schema to read files with, given the types inferred from their first lines, and the columns to convert.
fn to_read(inferred: &Schema, format: Format) -> (Schema, Checked) {
    match format {
        Format::Csv => Checked::of(&text_if_empty(inferred)),
        _ => (inferred.clone(), Checked::default()),
    }
}

/// The values that folders on the way to a file are named after, each with its column.
fn values_of_folders(file: &Found) -> Vec<(String, String)> {
    let parts: Vec<_> = file.meta.location.parts().collect();
    let folders = parts.split_last().map_or(&[][..], |(_name, folders)| folders);
    let values = folders.iter().filter_map(|folder| folder.as_ref().split_once('='));
    values.map(|(column, value)| (column.to_owned(), value.to_owned())).collect()
}

/// Checks that all files are in folders named after values of the same columns: DataFusion would leave out the others.
fn check_folders(files: &[Found]) -> Outcome {
    let columns = |file: &Found| -> Vec<String> {
        folder_columns(folders_of(&file.relative)).map(str::to_owned).collect()
    };
    let Some(first) = files.first() else { return Ok(()) };
    let expected = columns(first);
    for file in files {
        let found = columns(file);
        if found.is_empty() {
            return Err(Failure::Usage(format!(
                "{}: folders named after values are behind one that is not; convert that folder by itself",
                file.name
            )));
        }
        if found != expected {
            return Err(Failure::Usage(format!(
                "{}: is in folders of values of {}, and {} in those of {}; convert them one after the other",
                file.name,
                found.join(", "),
                first.name,
                expected.join(", ")
            )));
        }
    }
    Ok(())
}

/// Checks that no file has a column of the same name as the values in the names of folders.
fn check_values(values: &[(String, DataType)], schemas: &[(String, SchemaRef)], format: Format) -> Outcome {
    for (file, schema) in schemas {
        if let Some((name, _)) = values.iter().find(|(name, _)| schema.index_of(name).is_ok()) {
            return Err(Failure::error(format!(
                "{file}: column `{name}` is in the file, and the folder `{name}=…` gives it a value too; a glob \
                 like 'folder/**/*.{}' reads only what is in the files",
                format.extension()
            )));
        }
    }
    Ok(())
}
