//! The input of conversions: files found at places, and their rows as one stream.
//!
//! Vortex files with the same schema are scanned by the core, which preserves that schema exactly, and
//! Parquet files on local disks are read page by page. Everything else is read by DataFusion: other formats,
//! files that differ, rows that are to be sorted.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::convert::try_schema_from_ipc_buffer;
use datafusion::common::{Column, DataFusionError};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{Expr, SortExpr};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlanProperties as _, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use futures::future::ready;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::local::LocalFileSystem;
use object_store::{ObjectMeta, ObjectStore as _, ObjectStoreExt as _};
use url::Url;
use vortex_core::VortexFile;
use vortex_core::io::{ObjectFile, object_name};
use vortex_datafusion::{
    StringType, VortexFormat, VortexOptions, listing_url, merge_schemas, recorded_order,
};

use super::format::Format;
use super::parquet;
use super::sort::SortKey;
use crate::failure::{Failure, Outcome};
use crate::stores::{Stores, is_match};

/// Memory for sorting; rows that do not fit are spilled to temporary files.
const SORT_MEMORY: usize = 1 << 30;
/// Number of lines of CSV files, and of JSON files that are not on a local disk, from which the types of
/// columns are inferred.
const LINES_FOR_TYPES: usize = 100_000;
/// Schemas of Arrow files are expected within this many bytes.
const ARROW_SCHEMA_BYTES: u64 = 1 << 20;

const NOT_ARROW: &str =
    "is not an Arrow IPC file, or a damaged one; if it has another format, set that with --from";

/// A file to convert.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Its name in messages.
    pub(super) name: String,
    /// Its path below the given folder, or its name if there is none.
    pub(super) relative: PathBuf,
    pub(super) format: Format,
    url: ListingTableUrl,
    meta: ObjectMeta,
    /// The folder in which it was found, if subfolders are named after values: `day=1/`.
    partitioned: Option<ListingTableUrl>,
}

impl Found {
    /// The file by itself, without the values in the names of its folders.
    pub(super) fn alone(&self) -> Self {
        Self { partitioned: None, ..self.clone() }
    }

    /// The path of a Parquet file on a local disk.
    fn local_parquet(&self) -> Option<PathBuf> {
        let is_local = self.format == Format::Parquet && self.url.scheme() == "file";
        is_local.then(|| LocalFileSystem::new().path_to_filesystem(&self.meta.location).ok())?
    }
}

/// The rows to read, and their order.
#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) columns: Option<&'a [String]>,
    pub(super) limit: Option<u64>,
    pub(super) sort_by: &'a [SortKey],
}

impl Wanted<'_> {
    /// The schemas without columns that are not wanted, on which files may disagree. Columns that are read by
    /// position all count.
    fn of_schemas(&self, mut schemas: Vec<(String, SchemaRef)>, format: Format) -> Vec<(String, SchemaRef)> {
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
    stores: Arc<Stores>,
    context: SessionContext,
}

impl Reader {
    /// Creates a reader; one that sorts reads files concurrently, others read them in order.
    pub(super) fn open(sorts: bool) -> Outcome<Self> {
        let stores = Stores::new(Arc::new(InstrumentedObjectStoreRegistry::new()));
        let runtime = RuntimeEnvBuilder::new()
            .with_object_store_registry(Arc::clone(&stores) as _)
            .with_memory_pool(Arc::new(FairSpillPool::new(SORT_MEMORY)));
        let mut config = SessionConfig::new();
        let options = config.options_mut();
        options.execution.listing_table_ignore_subdirectory = false;
        options.execution.collect_statistics = true;
        // Types as they are in the file, with their metadata.
        options.execution.parquet.schema_force_view_types = false;
        options.execution.parquet.skip_metadata = false;
        if !sorts {
            options.execution.target_partitions = 1;
        }
        let context = SessionContext::new_with_config_rt(config, runtime.build_arc()?);
        vortex_datafusion::register(&context)?;
        Ok(Self { stores, context })
    }

    /// The files at a place: a path or URL of a file or a folder, or a glob.
    pub(super) async fn find(&self, place: &str, format: Option<Format>) -> Outcome<Vec<Found>> {
        let at_place = |error: Failure| Failure::at(place, error);
        let url = listing_url(place).map_err(|error| at_place(error.into()))?;
        if let Ok(path) = url.get_url().to_file_path()
            && path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir())
        {
            return Err(Failure::error(format!("{place}: is neither a file nor a folder")));
        }
        let found = async {
            self.stores.prepare(url.as_ref(), &[]).await?;
            let store = self.stores.get_store(url.as_ref())?;
            if url.get_glob().is_none() {
                let state = self.context.state();
                return Ok(url.list_all_files(&state, &store, "").await?.try_collect().await?);
            }
            // Folders of partitions are like other folders here; DataFusion does not treat them as part of
            // the path.
            let listed = store.list(Some(url.prefix())).try_filter(|object| ready(is_match(&url, object)));
            Ok::<Vec<ObjectMeta>, Failure>(listed.try_collect().await?)
        };
        let mut objects = found.await.map_err(at_place)?;
        if objects.is_empty() {
            return Err(Failure::error(format!("{place}: there is no such file, or the folder is empty")));
        }
        objects.sort_by(|left, right| left.location.cmp(&right.location));
        let store = self.stores.get_store(url.as_ref())?;
        let is_one = objects.len() == 1 && !url.is_collection();
        let mut files = Vec::with_capacity(objects.len());
        for meta in objects {
            let relative = match url.strip_prefix(&meta.location) {
                Some(parts) if !is_one => parts.collect::<PathBuf>(),
                _ => PathBuf::from(meta.location.filename().unwrap_or_default()),
            };
            let format = match format.or_else(|| Format::of_path(&relative)) {
                Some(format) => format,
                // A folder may contain other files too.
                None if !is_one => continue,
                None => return Err(Failure::Usage(format!("{place}: unknown format; set it with --from"))),
            };
            let name = if is_one { place.to_owned() } else { object_name(store.as_ref(), &meta.location) };
            let has_values = url.is_collection() && url.get_glob().is_none() && names_values(&relative);
            let partitioned = has_values.then(|| url.clone());
            let url = one_file(&url, &meta)?;
            files.push(Found { name, relative, format, url, meta, partitioned });
        }
        if files.is_empty() {
            return Err(Failure::error(format!("{place}: no file has the extension of a known format")));
        }
        Ok(files)
    }

    /// The rows of files, one file after the other.
    pub(super) async fn rows(&self, files: &[Found], wanted: &Wanted<'_>) -> Outcome<Rows> {
        if files.iter().any(|file| file.partitioned.is_some()) {
            return self.queried(files, wanted).await;
        }
        if wanted.sort_by.is_empty()
            && files.iter().all(|file| file.format == Format::Vortex)
            && let Some(rows) = self.scanned(files, wanted).await?
        {
            return Ok(rows);
        }
        let local: Option<Vec<_>> = files.iter().map(|file| Some((file, file.local_parquet()?))).collect();
        if wanted.sort_by.is_empty()
            && let Some(local) = local
            && let Some(rows) = parquet::paged(&local, wanted)?
        {
            return Ok(rows);
        }
        self.queried(files, wanted).await
    }

    /// Rows of Vortex files, read by the core; `None` if the files have different schemas.
    async fn scanned(&self, files: &[Found], wanted: &Wanted<'_>) -> Outcome<Option<Rows>> {
        let mut schema: Option<SchemaRef> = None;
        let mut count = 0u64;
        let mut opened = Vec::with_capacity(files.len());
        for found in files {
            let file = self.vortex(found).await.map_err(|error| Failure::at(&found.name, error))?;
            let own = file.schema().map_err(|error| Failure::at(&found.name, error))?;
            if *schema.get_or_insert_with(|| Arc::clone(&own)) != own {
                return Ok(None);
            }
            count = count.saturating_add(file.row_count());
            opened.push((found.name.clone(), file));
        }
        let order_of = if let [(_, file)] = opened.as_slice() { Some(file.clone()) } else { None };
        let mut left = wanted.limit;
        let mut scans = Vec::with_capacity(opened.len());
        let mut projected = None;
        for (name, file) in opened {
            let mut scan = file.scan();
            if let Some(names) = wanted.columns {
                scan = scan.with_projection(names.iter().map(String::as_str));
            }
            if let Some(rows) = left {
                // Without a filter, the number of rows is known in advance.
                left = Some(rows.saturating_sub(file.row_count()));
                scan = scan.with_limit(rows);
            }
            if projected.is_none() {
                let batches = scan.clone().into_stream().map_err(|error| Failure::at(&name, error))?;
                projected = Some(Arc::clone(batches.schema()));
            }
            scans.push((name, scan));
        }
        let Some(schema) = projected else { return Ok(None) };
        // Several files may be in order each, but not together.
        let order = order_of.and_then(|file| recorded_order(file.footer(), &schema));
        // A scan starts when the preceding one has ended.
        let batches = stream::iter(scans).map(|(name, scan)| {
            let batches = scan.into_stream().map_err(|error| Failure::at(&name, error))?;
            Ok::<_, Failure>(batches.map_err(move |error| Failure::at(&name, error)))
        });
        let count = count.min(wanted.limit.unwrap_or(u64::MAX));
        let batches = batches.try_flatten().boxed();
        Ok(Some(Rows { schema, count: Some(count), order, batches }))
    }

    async fn vortex(&self, found: &Found) -> Outcome<VortexFile> {
        let store = self.stores.get_store(found.url.as_ref())?;
        Ok(VortexFile::open(Arc::new(ObjectFile::new(store, found.meta.clone()))).await?)
    }

    /// Rows read by DataFusion.
    async fn queried(&self, files: &[Found], wanted: &Wanted<'_>) -> Outcome<Rows> {
        let Some(format) = files.first().map(|file| file.format) else {
            return Err(Failure::error("no file to convert"));
        };
        if let Some(other) = files.iter().find(|file| file.format != format) {
            return Err(Failure::Usage(format!(
                "{}: does not have the format of {}; convert files of several formats into a folder",
                other.name, files[0].name
            )));
        }
        let table = self.table(files, format, wanted).await?;
        let mut frame = self.context.read_table(Arc::new(table))?;
        if !wanted.sort_by.is_empty() {
            let names: Vec<&str> =
                frame.schema().fields().iter().map(|field| field.name().as_str()).collect();
            if let Some(key) = wanted.sort_by.iter().find(|key| !names.contains(&key.column.as_str())) {
                let message =
                    format!("--sort-by: no column `{}`; there are: {}", key.column, names.join(", "));
                return Err(Failure::error(message));
            }
            frame = frame.sort(wanted.sort_by.iter().map(sort_expr).collect())?;
        }
        if let Some(names) = wanted.columns {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            frame = frame.select_columns(&names)?;
        }
        if let Some(rows) = wanted.limit {
            frame = frame.limit(0, Some(usize::try_from(rows).unwrap_or(usize::MAX)))?;
        }
        let plan = frame.create_physical_plan().await?;
        let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::default()).ok();
        let count = known.and_then(|known| known.num_rows.get_value().copied()).map(|rows| rows as u64);
        let order =
            plan.output_ordering().filter(|_| plan.output_partitioning().partition_count() == 1).cloned();
        let batches = execute_stream(Arc::clone(&plan), self.context.task_ctx())?;
        let place = if let [file] = files { Some(file.name.clone()) } else { None };
        let batches = batches.map_err(move |error| match &place {
            Some(place) => Failure::at(place, error),
            None => error.into(),
        });
        Ok(Rows { schema: plan.schema(), count, order, batches: batches.boxed() })
    }

    /// Checks that no two columns of an Arrow file have the same name: DataFusion takes them for one.
    async fn check_names(&self, file: &Found) -> Outcome {
        let store = self.stores.get_store(file.url.as_ref())?;
        if file.meta.size == 0 {
            return Err(Failure::error("is empty, unlike any Arrow IPC file"));
        }
        let start = 0..file.meta.size.min(ARROW_SCHEMA_BYTES);
        let start = store.get_range(&file.meta.location, start).await?;
        // Files begin with their magic and padding, streams at once with the schema. What is wrong with those
        // that have none is told when they are read.
        let padded = start.strip_prefix(b"ARROW1").unwrap_or(&start);
        let padding = padded.iter().take_while(|byte| **byte == 0).count();
        let Ok(schema) = try_schema_from_ipc_buffer(&padded[padding..]) else { return Ok(()) };
        let mut names = HashSet::new();
        match schema.fields().iter().find(|field| !names.insert(field.name())) {
            None => Ok(()),
            Some(field) => Err(Failure::error(format!("duplicate column `{}`", field.name()))),
        }
    }

    /// The schemas of files of one format, with the names of the files.
    async fn schemas(&self, files: &[Found], format: Format) -> Outcome<Vec<(String, SchemaRef)>> {
        let is_local = are_local(files);
        let state = self.context.state();
        let mut schemas: Vec<(String, SchemaRef)> = Vec::with_capacity(files.len());
        for file in files {
            let options = ListingOptions::new(reader_of(format, is_local)).with_file_extension("");
            let schema = options.infer_schema(&state, &file.url).await;
            let schema = schema.map_err(|error| {
                // DataFusion takes bytes that it cannot read as Arrow for a bug of its own.
                let is_other =
                    format == Format::Arrow && matches!(error.find_root(), DataFusionError::Internal(_));
                let error = if is_other { Failure::error(NOT_ARROW) } else { error.into() };
                Failure::at(&file.name, error)
            })?;
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
            with_floats(&mut schemas);
        }
        Ok(schemas)
    }

    /// A table of files of one format. Values in the names of folders become columns, and columns that some
    /// files lack are nullable.
    async fn table(&self, files: &[Found], format: Format, wanted: &Wanted<'_>) -> Outcome<ListingTable> {
        if format == Format::Arrow {
            for file in files {
                self.check_names(file).await.map_err(|error| Failure::at(&file.name, error))?;
            }
        }
        let is_local = are_local(files);
        let state = self.context.state();
        let extension = format!(".{}", format.extension());
        let has_extension = |file: &Found| file.meta.location.as_ref().ends_with(&extension);
        let options = ListingOptions::new(reader_of(format, is_local));
        let schemas = self.schemas(files, format).await?;
        let mut folders: Vec<ListingTableUrl> = Vec::new();
        for folder in files.iter().filter_map(|file| file.partitioned.as_ref()) {
            if !folders.contains(folder) {
                folders.push(folder.clone());
            }
        }
        if !folders.is_empty() {
            if let Some(file) = files.iter().find(|file| file.partitioned.is_none()) {
                let message = "is not in a folder named after a value, unlike other files";
                return Err(Failure::Usage(format!("{}: {message}", file.name)));
            }
            let extension = if files.iter().all(has_extension) { extension.as_str() } else { "" };
            let config = ListingTableConfig::new_with_multi_paths(folders)
                .with_listing_options(options.with_file_extension(extension))
                .infer_partitions_from_path(&state)
                .await?
                .infer_schema(&state)
                .await?;
            if let Some(options) = &config.options {
                check_values(&options.table_partition_cols, &schemas, format)?;
            }
            return Ok(ListingTable::try_new(config)?);
        }
        let options = options.with_file_extension("");
        let schema = merge_schemas(&wanted.of_schemas(schemas, format))?;
        let urls = files.iter().map(|file| file.url.clone()).collect();
        let config = ListingTableConfig::new_with_multi_paths(urls)
            .with_listing_options(options)
            .with_schema(Arc::new(schema));
        Ok(ListingTable::try_new(config)?)
    }
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

/// Makes columns floating-point in all files if they are in any: a file may have only whole numbers.
fn with_floats(schemas: &mut [(String, SchemaRef)]) {
    let mut floats = HashSet::new();
    for field in schemas.iter().flat_map(|(_, schema)| schema.fields()) {
        if *field.data_type() == DataType::Float64 {
            floats.insert(field.name().clone());
        }
    }
    for (_, schema) in schemas {
        let fields = schema.fields().iter().map(|field| {
            let is_whole = *field.data_type() == DataType::Int64 && floats.contains(field.name());
            let data_type = if is_whole { DataType::Float64 } else { field.data_type().clone() };
            field.as_ref().clone().with_data_type(data_type)
        });
        *schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    }
}

fn are_local(files: &[Found]) -> bool {
    files.iter().all(|file| file.url.scheme() == "file")
}

/// Whether a folder of a path is named after a value: `day=1/`.
fn names_values(path: &Path) -> bool {
    let folders = path.parent().into_iter().flat_map(Path::components);
    folders.filter_map(|folder| folder.as_os_str().to_str()).any(|name| name.contains('='))
}

/// One of the files below a URL, with its name taken literally.
fn one_file(within: &ListingTableUrl, meta: &ObjectMeta) -> Outcome<ListingTableUrl> {
    let mut url = Url::parse(within.object_store().as_str()).map_err(Failure::error)?;
    let cannot = |()| Failure::error(format!("{}: no URL names this file", meta.location));
    // `set_path` would not encode `%`, so that a name with `%2F` would become two.
    url.path_segments_mut().map_err(cannot)?.extend(meta.location.parts());
    Ok(ListingTableUrl::try_new(url, None)?)
}

fn reader_of(format: Format, is_local: bool) -> Arc<dyn FileFormat> {
    match format {
        Format::Vortex => {
            let mut options = VortexOptions::default();
            options.string_type = StringType::Stored;
            Arc::new(VortexFormat::new().with_options(options))
        }
        Format::Parquet => {
            Arc::new(ParquetFormat::default().with_force_view_types(false).with_skip_metadata(false))
        }
        Format::Arrow => Arc::new(ArrowFormat),
        Format::Csv => Arc::new(
            CsvFormat::default()
                .with_has_header(true)
                .with_newlines_in_values(true)
                .with_schema_infer_max_rec(LINES_FOR_TYPES),
        ),
        // Keys that do not occur in these lines would be dropped silently. DataFusion reads remote files as a
        // whole for this.
        Format::Json => {
            let lines = if is_local { usize::MAX } else { LINES_FOR_TYPES };
            Arc::new(JsonFormat::default().with_schema_infer_max_rec(lines))
        }
    }
}

fn sort_expr(key: &SortKey) -> SortExpr {
    Expr::Column(Column::from_name(&key.column)).sort(!key.descending, key.nulls_first)
}

/// Whether a path is that of one of the files.
pub(super) fn is_among(path: &Path, files: &[Found]) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let url = path.to_str().and_then(|path| ListingTableUrl::parse(path).ok());
    url.is_some_and(|url| {
        files
            .iter()
            .any(|file| file.url.object_store() == url.object_store() && file.url.prefix() == url.prefix())
    })
}
