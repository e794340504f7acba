//! The session that statements run in.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::config::{ConfigNonZeroUsize, ConfigOptions};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::ExplainFormat;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_cli::functions::{
    ListFilesCacheFunc, MetadataCacheFunc, ParquetMetadataFunc, StatisticsCacheFunc,
};
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use datafusion_cli::pool_type::PoolType;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::PrintOptions;

use super::Arguments;
use crate::failure::Outcome;
use crate::formats::{self, INT96_UNIT};
use crate::memory::sort_within;
use crate::stores::Stores;

/// A DataFusion session, and settings for printing its results.
pub(super) struct Session {
    pub(super) context: SessionContext,
    pub(super) stores: Arc<Stores>,
    pub(super) print: PrintOptions,
    /// The scripts that are being run, each included by the one before it.
    pub(super) scripts: Vec<PathBuf>,
}

impl Session {
    /// Creates a session with Vortex, object stores and the functions of the DataFusion shell.
    pub(super) async fn open(arguments: &Arguments) -> Outcome<Self> {
        let known =
            InstrumentedObjectStoreRegistry::new().with_profile_mode(arguments.object_store_profiling);
        let known = Arc::new(known);
        let stores = Stores::new(Arc::clone(&known));
        let mut runtime = RuntimeEnvBuilder::new().with_object_store_registry(Arc::clone(&stores) as _);
        if let Some(limit) = arguments.memory_limit {
            runtime = runtime.with_memory_pool(memory_pool(arguments, limit));
        }
        if let Some(limit) = arguments.disk_limit {
            let disk = DiskManagerBuilder::default()
                .with_mode(DiskManagerMode::OsTmpDirectory)
                .with_max_temp_directory_size(limit as u64);
            runtime = runtime.with_disk_manager_builder(disk);
        }
        let context = SessionContext::new_with_config_rt(config(arguments)?, runtime.build_arc()?);
        vortex_datafusion::register(&context)?;
        formats::register(&context)?;
        context.refresh_catalogs().await?;
        vortex_datafusion::enable_url_tables(&context);
        register_functions(&context);
        let print = PrintOptions {
            format: arguments.format,
            // Programs read the other formats.
            quiet: arguments.quiet
                || !matches!(arguments.format, PrintFormat::Automatic | PrintFormat::Table),
            maxrows: arguments.maxrows,
            color: arguments.color,
            instrumented_registry: known,
        };
        Ok(Self { context, stores, print, scripts: Vec::new() })
    }
}

/// The functions that the DataFusion shell adds to SQL.
fn register_functions(context: &SessionContext) {
    let caches = || Arc::clone(&context.runtime_env().cache_manager);
    context.register_udtf("parquet_metadata", Arc::new(ParquetMetadataFunc {}));
    context.register_udtf("metadata_cache", Arc::new(MetadataCacheFunc::new(caches())));
    context.register_udtf("statistics_cache", Arc::new(StatisticsCacheFunc::new(caches())));
    context.register_udtf("list_files_cache", Arc::new(ListFilesCacheFunc::new(caches())));
}

/// Settings: those of the environment and the arguments, formats that are readable on a screen, line breaks in values of
/// CSV files, and none with which DataFusion returns wrong rows, or waits for ever.
fn config(arguments: &Arguments) -> Outcome<SessionConfig> {
    let mut options = ConfigOptions::from_env()?;
    if std::env::var_os("DATAFUSION_EXPLAIN_FORMAT").is_none() {
        options.explain.format = ExplainFormat::Tree;
    }
    if std::env::var_os("DATAFUSION_FORMAT_NULL").is_none() {
        options.format.null = "NULL".to_owned();
    }
    if std::env::var_os("DATAFUSION_CATALOG_NEWLINES_IN_VALUES").is_none() {
        // Otherwise, line breaks within quotes end rows where DataFusion cuts a file into parts.
        options.catalog.newlines_in_values = true;
    }
    if std::env::var_os("DATAFUSION_OPTIMIZER_ENABLE_AGGREGATE_DYNAMIC_FILTER_PUSHDOWN").is_none() {
        // DataFusion 55 leaves out aggregates of expressions: of `min(b), min(abs(c))` over Parquet files, the second
        // would be that of the rows which may improve the first. See `tests/it/upstream/filters.rs`:
        // `filters_of_aggregations_leave_out_expressions`.
        options.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    }
    if std::env::var_os("DATAFUSION_OPTIMIZER_ENABLE_WINDOW_LIMITS").is_none() {
        // DataFusion 55 computes windows from too few rows if several of them look at later ones. See
        // `tests/it/upstream/windows.rs`: `limits_allow_for_the_later_rows_of_one_window_only`.
        options.optimizer.enable_window_limits = false;
    }
    if std::env::var_os("DATAFUSION_EXECUTION_PARQUET_COERCE_INT96").is_none() {
        options.execution.parquet.coerce_int96 = Some(INT96_UNIT.to_owned());
    }
    if std::env::var_os("DATAFUSION_EXECUTION_MAX_SPILL_FILE_SIZE_BYTES").is_none() {
        // Each batch that waits on disk for a partition gets a file of its own: otherwise, DataFusion 55 may wait for ever
        // for a batch in a file that nobody continues. See `tests/it/upstream/memory.rs`:
        // `partitions_do_not_wait_for_ever_for_batches_in_files_of_their_own`.
        options.execution.max_spill_file_size_bytes = ConfigNonZeroUsize::try_new(1)?;
    }
    if let Some(limit) = arguments.memory_limit {
        sort_within(limit, &mut options, |name| std::env::var_os(name).is_some());
    }
    let mut config = SessionConfig::from(options).with_information_schema(true);
    if let Some(rows) = arguments.batch_size {
        config = config.with_batch_size(rows.get());
    }
    Ok(config)
}

fn memory_pool(arguments: &Arguments, limit: usize) -> Arc<dyn MemoryPool> {
    let named = NonZeroUsize::new(arguments.top_memory_consumers);
    match (&arguments.mem_pool_type, named) {
        (PoolType::Fair, None) => Arc::new(FairSpillPool::new(limit)),
        (PoolType::Fair, Some(count)) => Arc::new(TrackConsumersPool::new(FairSpillPool::new(limit), count)),
        (PoolType::Greedy, None) => Arc::new(GreedyMemoryPool::new(limit)),
        (PoolType::Greedy, Some(count)) => {
            Arc::new(TrackConsumersPool::new(GreedyMemoryPool::new(limit), count))
        }
    }
}

/// The file that DataFusion's shell runs when it starts, if there is one.
pub(super) fn default_rc() -> Vec<PathBuf> {
    let home = std::env::home_dir();
    home.map(|home| home.join(".datafusionrc")).filter(|path| path.is_file()).into_iter().collect()
}
