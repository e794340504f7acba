//! Locations of test files, and sessions that read them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::prelude::{SessionConfig, SessionContext};
use vortex_datafusion::{VortexFormat, VortexOptions, register};

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

/// Writes a file of 270,000 rows in several chunks.
pub(crate) async fn write_chunks(folder: &Path) -> PathBuf {
    let path = folder.join("chunks.vortex");
    let rows = "SELECT value AS key, value * value % 1000003 AS mixed FROM generate_series(1, 270000)";
    run(&session(), &format!("COPY ({rows}) TO '{}'", path.display())).await;
    path
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

/// Options that leave everything the scan could do to the plan above it.
pub(crate) fn nothing_pushed() -> VortexOptions {
    let mut options = VortexOptions::default();
    options.predicate_pushdown = false;
    options.projection_pushdown = false;
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
