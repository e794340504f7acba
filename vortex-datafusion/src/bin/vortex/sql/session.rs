//! The session that statements run in.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
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
    /// Whether each column of a row has a line of its own, instead of a table.
    pub(super) expanded: bool,
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
        Ok(Self { context, stores, print, expanded: arguments.expanded, scripts: Vec::new() })
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

/// Settings of DataFusion that differ from its own, unless the environment sets them.
pub(super) const SETTINGS: [(&str, &str); 8] = [
    // Plans are readable on a screen.
    ("datafusion.explain.format", "tree"),
    // Of metrics, those that are worth a look; a scan has forty.
    ("datafusion.explain.analyze_level", "summary"),
    // Nulls look different from empty text.
    ("datafusion.format.null", "NULL"),
    // Otherwise, line breaks within quotes end rows where DataFusion cuts a CSV file into parts.
    ("datafusion.catalog.newlines_in_values", "true"),
    // DataFusion 55 leaves out aggregates of expressions: of `min(b), min(abs(c))` over Parquet files, the second would
    // be that of the rows which may improve the first. See `tests/it/upstream/filters.rs`:
    // `filters_of_aggregations_leave_out_expressions`.
    ("datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown", "false"),
    // DataFusion 55 computes windows from too few rows if several of them look at later ones. See
    // `tests/it/upstream/windows.rs`: `limits_allow_for_the_later_rows_of_one_window_only`.
    ("datafusion.optimizer.enable_window_limits", "false"),
    // In nanoseconds, days before 1677 and after 2262 would be taken for others.
    ("datafusion.execution.parquet.coerce_int96", INT96_UNIT),
    // Each batch that waits on disk for a partition gets a file of its own: otherwise, DataFusion 55 may wait for ever
    // for a batch in a file that nobody continues. See `tests/it/upstream/memory.rs`:
    // `partitions_do_not_wait_for_ever_for_batches_in_files_of_their_own`.
    ("datafusion.execution.max_spill_file_size_bytes", "1"),
];

/// Whether [`ConfigOptions::from_env`] finds a setting.
fn is_in_environment(setting: &str) -> bool {
    std::env::var_os(setting.to_uppercase().replace('.', "_")).is_some()
}

/// Settings: those of the environment and the arguments, and [`SETTINGS`].
fn config(arguments: &Arguments) -> Outcome<SessionConfig> {
    let mut options = ConfigOptions::from_env()?;
    for (setting, value) in SETTINGS {
        if !is_in_environment(setting) {
            options.set(setting, value)?;
        }
    }
    if let Some(limit) = arguments.memory_limit {
        sort_within(limit, &mut options, is_in_environment);
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
