//! The schemas of files that DataFusion reads: their names, order and types of columns.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::ListingOptions;
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use vortex_datafusion::folder_columns;

use super::find::{Found, folders_of};
use super::input::Reader;
use super::json_keys;
use crate::columns::with_types;
use crate::failure::{Failure, Outcome};
use crate::formats::{Format, Text};

/// First lines of JSON files are expected within this many bytes.
const START_BYTES: u64 = 1 << 20;

const NOT_ARROW: &str =
    "is not an Arrow IPC file, or a damaged one; if it has another format, set that with --from";

impl Reader {
    /// The names of the columns of files and of the folders that they are in, except those that are `excluded`.
    pub(super) async fn columns_without(&self, files: &[Found], excluded: &[String]) -> Outcome<Vec<String>> {
        let Some(format) = files.first().map(|file| file.format) else { return Ok(Vec::new()) };
        let schemas = self.schemas(files, format).await?;
        let fields = schemas.iter().flat_map(|(_, schema)| schema.fields().iter());
        let of_files = fields.map(|field| field.name().as_str());
        let partitioned = files.iter().filter(|file| file.partitioned.is_some());
        let of_folders = partitioned.flat_map(|file| folder_columns(folders_of(&file.relative)));
        let mut seen = HashSet::new();
        let mut names: Vec<&str> = of_files.chain(of_folders).filter(|name| seen.insert(*name)).collect();
        if let Some(name) = excluded.iter().find(|name| !seen.contains(name.as_str())) {
            let (place, there) = (&files[0].name, names.join(", "));
            return Err(Failure::error(format!(
                "{place}: no column `{name}` to exclude; there are: {there}"
            )));
        }
        names.retain(|name| !excluded.iter().any(|excluded| excluded == name));
        if names.is_empty() {
            return Err(Failure::Usage("--exclude: no column is left".to_owned()));
        }
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    /// Refuses files without columns if one of them has nothing at all.
    async fn check_not_empty(&self, files: &[Found]) -> Outcome {
        for file in files {
            let start =
                self.start(file, START_BYTES).await.map_err(|failure| Failure::at(&file.name, failure))?;
            if file.meta.size == 0 || (!start.is_empty() && start.trim_ascii().is_empty()) {
                return Err(Failure::error(format!("{}: is empty, so that it has no columns", file.name)));
            }
        }
        Ok(())
    }

    /// So many bytes of the text of a file from its start, or fewer if it ends, or cannot be decompressed further.
    pub(super) async fn start(&self, file: &Found, bytes: u64) -> Outcome<Vec<u8>> {
        let store = self.stores.get_store(file.url.as_ref())?;
        let text = Text::new(&store, Some(FileCompressionType::from(file.form.compression)));
        let start = text.read(&file.meta, move |text| {
            let mut start = Vec::new();
            _ = text.take(bytes).read_to_end(&mut start);
            Ok(start)
        });
        Ok(start.await?)
    }

    /// The columns of a JSON file in the order of the keys of its first line. DataFusion sorts them by name.
    async fn in_order_of_keys(&self, file: &Found, schema: &SchemaRef) -> Outcome<SchemaRef> {
        let start = self.start(file, START_BYTES).await?;
        let text = String::from_utf8_lossy(&start);
        let keys = json_keys::of_object(text.trim_start().lines().next().unwrap_or_default());
        let place = |field: &FieldRef| keys.iter().position(|key| key == field.name()).unwrap_or(keys.len());
        let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        fields.sort_by_key(place);
        Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
    }

    /// The schemas of files of one format, with the names of the files.
    pub(super) async fn schemas(&self, files: &[Found], format: Format) -> Outcome<Vec<(String, SchemaRef)>> {
        let state = self.context.state();
        let mut schemas: Vec<(String, SchemaRef)> = Vec::with_capacity(files.len());
        for file in files {
            if format == Format::Arrow && file.meta.size == 0 {
                return Err(Failure::error(format!("{}: is empty, unlike any Arrow IPC file", file.name)));
            }
            let options = ListingOptions::new(file.reader()).with_file_extension("");
            let schema = options.infer_schema(&state, &file.url).await;
            let schema = schema.map_err(|error| {
                // DataFusion takes bytes that it cannot read as Arrow for a bug of its own.
                let is_other =
                    format == Format::Arrow && matches!(error.find_root(), DataFusionError::Internal(_));
                let error = if is_other { Failure::error(NOT_ARROW) } else { error.into() };
                Failure::at(&file.name, error)
            })?;
            if format == Format::Csv && file.form.delimiter.is_none() {
                check_delimiter(&file.name, &schema)?;
            }
            let schema = match format {
                Format::Json => {
                    let ordered = self.in_order_of_keys(file, &schema).await;
                    ordered.map_err(|error| Failure::at(&file.name, error))?
                }
                _ => schema,
            };
            // A file without even a header has no rows either.
            let first = schemas.iter().find(|(_, first)| !first.fields().is_empty());
            if let Some((name, first)) = first
                && !schema.fields().is_empty()
                && !reads_alike(format, first, &schema)
            {
                return Err(Failure::error(format!(
                    "{}: has the columns {}, unlike {name}: {}; convert them one by one, into a folder",
                    file.name,
                    columns(&schema),
                    columns(first)
                )));
            }
            schemas.push((file.name.clone(), schema));
        }
        if format == Format::Csv || format == Format::Json {
            if schemas.iter().all(|(_, schema)| schema.fields().is_empty()) {
                self.check_not_empty(files).await?;
            }
            with_wider_numbers(&mut schemas);
        }
        Ok(schemas)
    }
}

/// Refuses a header that seems to be separated by something else than commas.
fn check_delimiter(file: &str, schema: &Schema) -> Outcome {
    let [column] = schema.fields().as_ref() else { return Ok(()) };
    let name = column.name();
    let Some((_, option)) =
        [(';', "';'"), ('|', "'|'"), ('\t', "'\\t'")].into_iter().find(|(other, _)| name.contains(*other))
    else {
        return Ok(());
    };
    Err(Failure::error(format!(
        "{file}: its only column is called `{name}`; give what separates values, such as --delimiter {option}, or ',' if \
         it is called so"
    )))
}

/// Whether a file can be read as part of the same table as another one: columns of CSV and Arrow files are
/// read by position.
fn reads_alike(format: Format, first: &Schema, schema: &Schema) -> bool {
    let (first, fields) = (first.fields(), schema.fields());
    let mut pairs = first.iter().zip(fields);
    match format {
        Format::Csv => first.len() == fields.len() && pairs.all(|(one, other)| one.name() == other.name()),
        Format::Arrow => {
            let alike = |one: &Field, other: &Field| {
                one.name() == other.name() && one.data_type() == other.data_type()
            };
            first.len() == fields.len() && pairs.all(|(one, other)| alike(one, other))
        }
        Format::Vortex | Format::Parquet | Format::Json => true,
    }
}

/// The columns of a schema with their types, for messages.
fn columns(schema: &Schema) -> String {
    let columns = schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type()));
    columns.collect::<Vec<_>>().join(", ")
}

/// Makes columns of whole numbers floating-point or unsigned in all files if they are in any.
fn with_wider_numbers(schemas: &mut [(String, SchemaRef)]) {
    let mut wider: HashMap<String, DataType> = HashMap::new();
    for field in schemas.iter().flat_map(|(_, schema)| schema.fields()) {
        let known = wider.get(field.name());
        match field.data_type() {
            DataType::Float64 => wider.insert(field.name().clone(), DataType::Float64),
            DataType::UInt64 if known.is_none() => wider.insert(field.name().clone(), DataType::UInt64),
            _ => continue,
        };
    }
    for (_, schema) in schemas {
        *schema = Arc::new(with_types(schema, |column| {
            let is_whole = matches!(column.data_type(), DataType::Int64 | DataType::UInt64);
            wider.get(column.name()).filter(|_| is_whole).unwrap_or(column.data_type()).clone()
        }));
    }
}
