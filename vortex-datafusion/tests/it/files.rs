//! Locations of test files, and sessions that read them.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, Schema};
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::Result;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;
use vortex_core::io::MemorySink;
use vortex_core::write::{FileWriter, WriteOptions};
use vortex_datafusion::{VortexFormat, VortexOptions, enable_url_tables, register};

/// The files committed with the project.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vortex-core/tests/files")
}

/// The full set is next to the checkout of maintainers, or where the environment specifies.
fn full_set() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let root = std::env::var_os("VORTEX_FIXTURES").map_or(beside, PathBuf::from);
    root.join("manifest.json").is_file().then_some(root)
}

/// The files of the newest release, as many as are available.
pub(crate) fn newest() -> PathBuf {
    full_set().unwrap_or_else(golden).join("0.91.0")
}

/// A committed file of the newest release.
pub(crate) fn file(case: &str) -> PathBuf {
    let path = match case {
        "tpch_lineitem" => Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/lineitem.vortex"),
        case => golden().join(format!("0.91.0/{case}.vortex")),
    };
    assert!(path.is_file(), "{} is missing", path.display());
    path
}

/// A folder with copies of files, each under another name.
pub(crate) fn folder_of(files: &[(&Path, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in files {
        let to = folder.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
    folder
}

/// Writes a file of 270,000 rows in several chunks.
pub(crate) async fn write_chunks(folder: &Path) -> PathBuf {
    let path = folder.join("chunks.vortex");
    let rows = "SELECT value AS key, value * value % 1000003 AS mixed FROM generate_series(1, 270000)";
    copy(&session(), rows, path.display()).await;
    path
}

/// The bytes of a file with these rows.
pub(crate) async fn written(rows: &RecordBatch) -> Vec<u8> {
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), rows.schema(), WriteOptions::new()).unwrap();
    writer.write(rows).await.unwrap();
    writer.finish().await.unwrap();
    sink.bytes().expect("a complete file").to_vec()
}

/// A session with four partitions that cuts even small files.
pub(crate) fn session() -> SessionContext {
    session_with(SessionConfig::new().with_target_partitions(4))
}

pub(crate) fn session_with(mut config: SessionConfig) -> SessionContext {
    config.options_mut().optimizer.repartition_file_min_size = 1;
    let context = SessionContext::new_with_config(config).enable_url_table();
    register(&context).expect("the format registers");
    context
}

/// A session that has only the URL tables of this crate: those of DataFusion read other files as well.
pub(crate) fn own_session() -> SessionContext {
    let context = SessionContext::new();
    register(&context).expect("the format registers");
    enable_url_tables(&context);
    context
}

/// A session with two partitions, whose operators take memory from a pool.
pub(crate) fn session_within(pool: &Arc<dyn MemoryPool>) -> SessionContext {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(pool)).build_arc().unwrap();
    let context = SessionContext::new_with_config_rt(SessionConfig::new().with_target_partitions(2), runtime);
    register(&context).expect("the format registers");
    context
}

/// Options that leave everything the scan could do to the plan above it.
pub(crate) fn nothing_pushed() -> VortexOptions {
    let mut options = VortexOptions::default();
    options.predicate_pushdown = false;
    options.projection_pushdown = false;
    options.aggregate_pushdown = false;
    options.prune = false;
    options
}

/// A table over one file or folder.
pub(crate) async fn table(
    context: &SessionContext,
    path: &Path,
    options: VortexOptions,
) -> Arc<ListingTable> {
    let url = ListingTableUrl::parse(path.to_str().expect("a path in UTF-8")).expect("a URL");
    let format = Arc::new(VortexFormat::new().with_options(options));
    let config = ListingTableConfig::new(url)
        .with_listing_options(ListingOptions::new(format))
        .infer_schema(&context.state())
        .await
        .expect("a schema");
    Arc::new(ListingTable::try_new(config).expect("a table"))
}

/// Makes the file or folder at a path the table `t`.
pub(crate) async fn register_files(context: &SessionContext, path: &Path) {
    let listed = table(context, path, VortexOptions::default()).await;
    context.register_table("t", listed).expect("a new name");
}

/// Creates or replaces a table over what lies at a location. Columns and other clauses may follow its name.
pub(crate) async fn create(context: &SessionContext, table: &str, location: impl Display) {
    let create = format!("CREATE OR REPLACE EXTERNAL TABLE {table} STORED AS VORTEX LOCATION '{location}'");
    run(context, &create).await;
}

/// The table `t` over files written by queries, one file per query. Columns and other clauses may be declared.
pub(crate) async fn table_of<S: AsRef<str>>(
    context: &SessionContext,
    queries: &[S],
    declared: &str,
) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (at, query) in queries.iter().enumerate() {
        let path = folder.path().join(format!("{at}.vortex"));
        copy(context, query.as_ref(), path.display()).await;
    }
    create(context, &format!("t {declared}"), folder.path().join("").display()).await;
    folder
}

/// Writes the rows of a query to a file.
pub(crate) async fn copy(context: &SessionContext, rows: &str, to: impl Display) {
    run(context, &format!("COPY ({rows}) TO '{to}'")).await;
}

/// Runs a statement; returns its rows as one batch.
pub(crate) async fn run(context: &SessionContext, sql: &str) -> RecordBatch {
    let frame = context.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let schema: Schema = frame.schema().as_arrow().clone();
    let batches = frame.collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let schema = batches.first().map_or(Arc::new(schema), |batch| batch.schema());
    concat_batches(&schema, &batches).expect("one schema")
}

/// Rows as text.
pub(crate) async fn show(context: &SessionContext, sql: &str) -> String {
    pretty_format_batches(&[run(context, sql).await]).expect("printable").to_string()
}

/// The physical plan as text.
pub(crate) async fn plan(context: &SessionContext, sql: &str) -> String {
    show(context, &format!("EXPLAIN FORMAT INDENT {sql}")).await
}

/// The answer of an aggregation that is pushed down, as its plan shows; it must be the same without.
pub(crate) async fn pushed_answer(
    context: &SessionContext,
    sql: &str,
    is_pushed: fn(&str) -> bool,
) -> String {
    let told = plan(context, sql).await;
    assert!(is_pushed(&told), "{told}");
    let pushed = show(context, sql).await;
    run(context, "SET vortex.aggregate_pushdown = false").await;
    assert!(!is_pushed(&plan(context, sql).await));
    assert_eq!(pushed, show(context, sql).await, "{sql}");
    run(context, "SET vortex.aggregate_pushdown = true").await;
    pushed
}

/// The plan as it is executed.
pub(crate) async fn physical(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    context.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
}

/// Runs a plan that may have run before; without a reset, it would have no files left.
pub(crate) fn run_again(
    plan: &Arc<dyn ExecutionPlan>,
    context: &SessionContext,
) -> impl Future<Output = Result<Vec<RecordBatch>>> {
    let plan = reset_plan_states(Arc::clone(plan)).expect("a plan that can run again");
    collect(plan, context.task_ctx())
}

/// The error of a statement that fails when it is planned or when it runs.
pub(crate) async fn error(context: &SessionContext, sql: &str) -> String {
    let outcome = async { context.sql(sql).await?.collect().await };
    outcome.await.expect_err("the statement fails").to_string()
}

/// The numbers of a column.
pub(crate) fn numbers(rows: &RecordBatch, column: usize) -> Vec<i64> {
    rows.column(column).as_primitive::<Int64Type>().values().to_vec()
}

/// The number that is the first column of the only row of a query.
pub(crate) async fn number(context: &SessionContext, sql: &str) -> i64 {
    let [number] = numbers(&run(context, sql).await, 0)[..] else { panic!("{sql}: not one row") };
    number
}
