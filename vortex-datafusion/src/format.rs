//! The file format: schema and statistics of files, and the plans that read and write them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion_common::parsers::CompressionTypeVariant;
use datafusion_common::{GetExt, Result, Statistics, not_impl_err, plan_err};
use datafusion_datasource::TableSchema;
use datafusion_datasource::file::FileSource;
use datafusion_datasource::file_compression_type::FileCompressionType;
use datafusion_datasource::file_format::{FileFormat, FileFormatFactory, FileMeta};
use datafusion_datasource::file_scan_config::FileScanConfig;
use datafusion_datasource::file_sink_config::{FileSink as _, FileSinkConfig};
use datafusion_datasource::sink::DataSinkExec;
use datafusion_physical_expr::{LexOrdering, LexRequirement};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_session::Session;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{ObjectMeta, ObjectStore};
use vortex_core::VortexFile;
use vortex_core::file::Footer;
use vortex_core::io::object_name;

use crate::convert::{datafusion_error, schema};
use crate::options::{TableOptions, VortexOptions};
use crate::orders;
use crate::reading::{Reading, SessionResources};
use crate::sink::VortexSink;
use crate::source::VortexSource;
use crate::statistics::kept::LastColumns;
use crate::statistics::statistics;

/// File extension, and name of the format in `STORED AS`.
pub(crate) const EXTENSION: &str = "vortex";

/// Vortex files in DataFusion.
///
/// The format keeps the statistics of files in DataFusion's cache for them. A listing table that is created with that
/// cache (`with_cache`, `register_listing_table`) keeps them there a second time; a limit for one copy is then too low,
/// and files that others replace by ones of the same size and time have outdated statistics.
#[derive(Debug, Clone, Default)]
pub struct VortexFormat {
    /// Options that replace those of the session.
    base: Option<VortexOptions>,
    table: TableOptions,
    columns: LastColumns,
    /// Columns that the names of folders give, whether files contain them as well or not, as in Hive and Spark.
    left_out: Arc<[String]>,
}

impl VortexFormat {
    /// A format with the options of the session in which it is used.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves these columns out of the schemas of files.
    pub(crate) fn leaving_out(mut self, columns: Vec<String>) -> Self {
        self.left_out = columns.into();
        self
    }

    /// Uses these options instead of those of the session.
    #[must_use]
    pub fn with_options(mut self, options: VortexOptions) -> Self {
        self.base = Some(options);
        self
    }

    /// Fetches the metadata of a file and puts its footer into the cache, in one request. Returns `None` where
    /// [`Reading::find`] does: if a footer is already cached, for instance, or if there is no file.
    ///
    /// # Errors
    /// If it is not a Vortex file, or the store fails.
    pub(crate) async fn find(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        location: &object_store::path::Path,
    ) -> Result<Option<ObjectMeta>> {
        let found = Footers::new(self, state, store)?.reading.find(store, location).await;
        found.map_err(|error| error.context(format!("reading the footer of {location}")))
    }

    pub(crate) fn options(&self, state: &dyn Session) -> Result<VortexOptions> {
        let base = self.base.clone();
        self.table.over(base.unwrap_or_else(|| VortexOptions::from_session(state.config_options())))
    }
}

/// Opens files to read their footers.
struct Footers<'a> {
    reading: Reading,
    store: &'a Arc<dyn ObjectStore>,
}

impl<'a> Footers<'a> {
    fn new(format: &VortexFormat, state: &dyn Session, store: &'a Arc<dyn ObjectStore>) -> Result<Self> {
        let options = format.options(state)?;
        let session = SessionResources::new(state.runtime_env(), state.config());
        Ok(Self { reading: Reading::new(session, options), store })
    }

    async fn open(&self, object: &ObjectMeta) -> Result<VortexFile> {
        self.reading.open(self.store, object, None).await.map_err(|error| {
            let name = object_name(self.store.as_ref(), &object.location);
            error.context(format!("reading the footer of {name}"))
        })
    }

    fn order(&self, footer: &Footer, table: &Schema) -> Option<LexOrdering> {
        orders::of_file(footer, table, self.reading.options().order_from_statistics)
    }
}

#[async_trait]
impl FileFormat for VortexFormat {
    fn get_ext(&self) -> String {
        EXTENSION.to_owned()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        match compression.get_variant() {
            CompressionTypeVariant::UNCOMPRESSED => Ok(self.get_ext()),
            other => {
                not_impl_err!("Vortex files compress themselves; {other:?} around them is not supported")
            }
        }
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        None
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let footers = Footers::new(self, state, store)?;
        let concurrency: usize = state.config_options().execution.meta_fetch_concurrency.into();
        let mut objects = objects.to_vec();
        // The store determines the order of a listing, which must not affect the order of columns.
        objects.sort_by(|left, right| left.location.cmp(&right.location));
        let schemas: Vec<(String, SchemaRef)> = futures::stream::iter(objects)
            .map(|object| {
                let footers = &footers;
                async move {
                    let schema = footers.open(&object).await?.schema().map_err(datafusion_error)?;
                    let schema = schema::without(&schema, |name| {
                        self.left_out.iter().any(|left_out| left_out == name)
                    });
                    Ok::<_, datafusion_common::DataFusionError>((
                        object_name(store.as_ref(), &object.location),
                        schema,
                    ))
                }
            })
            .boxed()
            .buffered(concurrency)
            .try_collect()
            .await?;
        let merged = schema::with_nullable_fields(&schema::merge(&schemas)?);
        Ok(Arc::new(schema::with_strings(&merged, footers.reading.options().string_type)))
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        Ok(self.infer_stats_and_ordering(state, store, table_schema, object).await?.statistics)
    }

    async fn infer_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Option<LexOrdering>> {
        Ok(self.infer_stats_and_ordering(state, store, table_schema, object).await?.ordering)
    }

    async fn infer_stats_and_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<FileMeta> {
        let footers = Footers::new(self, state, store)?;
        let columns = self.columns.of(&table_schema);
        let kept = footers.reading.statistics(store, object);
        if let Some(known) = kept.as_ref().and_then(|kept| kept.get(store, object, &columns)) {
            return Ok(known);
        }
        let file = footers.open(object).await?;
        let order = footers.order(file.footer(), &table_schema);
        let known = FileMeta::new(statistics(file.footer(), &table_schema)).with_ordering(order);
        if let Some(kept) = kept {
            kept.put(store, object, columns, &known);
        }
        Ok(known)
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.plan(state, config)
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let sink = VortexSink::try_new(config, self.options(state)?, order.as_ref())?
            .with_all_metadata(self.table.metadata().clone());
        let mut levels = self.table.levels();
        let sink = levels.try_fold(sink, |sink, (column, level)| sink.with_column_level(column, level))?;
        // The session may have set it for other statements.
        if sink.is_single_file() && self.table.over(VortexOptions::default())?.target_file_size > 0 {
            return plan_err!(
                "target_file_size cuts rows into the files of a folder, and {} is a single file: leave the option out, or \
                 write to a folder, whose name ends with `/`",
                sink.config().original_url
            );
        }
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), order)))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        let base = self.base.clone().unwrap_or_default();
        // Table options were checked when they were given.
        let options = self.table.over(base).unwrap_or_default();
        Arc::new(VortexSource::new(table_schema).or_options(options))
    }
}

/// Makes a [`VortexFormat`] for each table: `STORED AS VORTEX OPTIONS (...)`.
#[derive(Debug, Clone, Default)]
pub struct VortexFormatFactory {
    base: Option<VortexOptions>,
}

impl VortexFormatFactory {
    /// A factory whose formats use the options of their session.
    pub fn new() -> Self {
        Self { base: None }
    }

    /// Makes formats start from these options instead of those of the session.
    #[must_use]
    pub fn with_options(mut self, options: VortexOptions) -> Self {
        self.base = Some(options);
        self
    }
}

impl GetExt for VortexFormatFactory {
    fn get_ext(&self) -> String {
        EXTENSION.to_owned()
    }
}

impl FileFormatFactory for VortexFormatFactory {
    fn create(
        &self,
        state: &dyn Session,
        format_options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        let table = TableOptions::try_new(format_options, &state.table_options().extensions)?;
        Ok(Arc::new(VortexFormat { base: self.base.clone(), table, ..VortexFormat::default() }))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(VortexFormat { base: self.base.clone(), ..VortexFormat::default() })
    }
}
