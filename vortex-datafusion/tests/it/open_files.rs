//! Tables over files that are already open.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::array_value_to_string;
use datafusion::common::Result;
use datafusion::datasource::TableProvider as _;
use datafusion::datasource::file_format::FileFormat as _;
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryPool, MemoryReservation, UnboundedMemoryPool,
};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use parking_lot::Mutex;
use url::Url;
use vortex_core::Limits;
use vortex_core::file::OpenOptions;
use vortex_core::io::{MemoryFile, ReadAt};
use vortex_datafusion::{StringType, VortexFormat, VortexOptions, VortexSource, VortexTable};

use crate::files::{copy, error, file, folder_of, plan, run, session, session_with, show, written};

/// A table of files in memory; nothing of them is on disk.
async fn in_memory(paths: &[&Path]) -> VortexTable {
    let source = |path: &&Path| Arc::new(MemoryFile::new(fs::read(path).unwrap())) as Arc<dyn ReadAt>;
    VortexTable::open(paths.iter().map(source)).await.unwrap()
}

fn register_table(context: &SessionContext, table: VortexTable) {
    context.register_table("t", Arc::new(table)).unwrap();
}

#[tokio::test]
async fn files_in_memory_answer_like_files_on_disk() {
    let path = file("tpch_lineitem");
    let context = session();
    register_table(&context, in_memory(&[&path, &path]).await);
    let folder = folder_of(&[(&path, "a.vortex"), (&path, "b.vortex")]);
    let disk = format!("'{}/' AS t", folder.path().display());
    for sql in [
        "SELECT count(*), min(l_orderkey), max(l_shipdate) FROM t",
        "SELECT l_returnflag, sum(l_quantity) FROM t WHERE l_shipmode = 'AIR' GROUP BY 1 ORDER BY 1",
        "SELECT l_orderkey, l_comment FROM t WHERE l_orderkey % 11 = 3 ORDER BY 1, 2 LIMIT 50",
    ] {
        assert_eq!(
            run(&context, sql).await,
            run(&context, &sql.replace("FROM t", &format!("FROM {disk}"))).await
        );
    }
}

#[tokio::test]
async fn a_scan_of_no_files_has_no_rows() {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let context = session();
    let source = Arc::new(VortexSource::new(TableSchema::from(&schema)));
    let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source).build();
    assert!(config.file_groups.is_empty());
    let scan = VortexFormat::new().create_physical_plan(&context.state(), config).await.unwrap();
    assert_eq!(scan.properties().output_partitioning().partition_count(), 1);
    register_table(&context, VortexTable::try_new([]).unwrap());
    assert!(show(&context, "SELECT count(*) FROM t").await.contains("| 0        |"));
    for sql in ["SELECT row_number() OVER () FROM t", "SELECT * FROM t AS a, t AS b LIMIT 3"] {
        assert_eq!(run(&context, sql).await.num_rows(), 0, "{sql}");
    }
}

#[tokio::test]
async fn filters_and_counts_are_planned_as_for_other_tables() {
    let path = file("tpch_lineitem");
    let context = session();
    let table = in_memory(&[&path]).await;
    register_table(&context, table.clone());
    let filtered = plan(&context, "SELECT l_comment FROM t WHERE l_orderkey = 7").await;
    assert!(!filtered.contains("FilterExec") && filtered.contains("predicate=l_orderkey"), "{filtered}");
    let counted = plan(&context, "SELECT count(*) FROM t").await;
    assert!(counted.contains("PlaceholderRowExec"), "{counted}");
    let mut options = VortexOptions::default();
    options.predicate_pushdown = false;
    context.register_table("plain", Arc::new(table.with_options(options))).unwrap();
    assert!(plan(&context, "SELECT l_comment FROM plain WHERE l_orderkey = 7").await.contains("FilterExec"));
}

#[tokio::test]
async fn files_of_different_columns_make_one_table() {
    let (orders, part) = (file("tpch_orders"), file("tpch_part"));
    let context = session();
    let table = in_memory(&[&orders, &part]).await;
    assert!(table.schema().field_with_name("p_partkey").unwrap().is_nullable());
    context.register_table("both", Arc::new(table)).unwrap();
    let counts = show(&context, "SELECT count(*), count(o_orderkey), count(p_partkey) FROM both").await;
    assert!(["| 2300 ", "| 1500 ", "| 800 "].iter().all(|count| counts.contains(count)), "{counts}");
    let nothing = VortexTable::try_new([]).unwrap();
    assert_eq!(nothing.schema().fields().len(), 0);
}

#[tokio::test]
async fn scans_are_charged_to_the_pool_of_the_session() {
    let pool = Arc::new(Noting::default());
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool) as _).build_arc().unwrap();
    let context = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
    register_table(&context, in_memory(&[&file("tpch_lineitem")]).await);
    run(&context, "SELECT l_comment FROM t WHERE l_quantity > 10").await;
    assert_eq!(pool.reserved(), 0);
    let charged = pool.charged.lock();
    assert!(charged.iter().any(|name| name.starts_with("VortexScan")), "{charged:?}");
}

/// A pool that records which consumers take memory.
#[derive(Debug, Default)]
struct Noting {
    inner: UnboundedMemoryPool,
    charged: Mutex<Vec<String>>,
}

impl std::fmt::Display for Noting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("noting")
    }
}

impl MemoryPool for Noting {
    fn name(&self) -> &str {
        "noting"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.inner.register(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, bytes: usize) {
        self.inner.grow(reservation, bytes);
    }

    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        self.inner.shrink(reservation, bytes);
    }

    fn try_grow(&self, reservation: &MemoryReservation, bytes: usize) -> Result<()> {
        self.charged.lock().push(reservation.consumer().name().to_owned());
        self.inner.try_grow(reservation, bytes)
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }
}

#[tokio::test]
async fn strings_come_as_the_options_of_the_table_say() {
    let mut options = VortexOptions::default();
    options.string_type = StringType::Utf8;
    let table = in_memory(&[&file("tpch_orders")]).await;
    let comment =
        |table: &VortexTable| table.schema().field_with_name("o_comment").unwrap().data_type().clone();
    assert_eq!(comment(&table), DataType::Utf8View);
    // Options that are set after a scan count, too.
    table.scan(&session().state(), None, &[], None).await.unwrap();
    let table = table.with_options(options);
    assert_eq!(comment(&table), DataType::Utf8);
    let context = session();
    register_table(&context, table);
    for rows in ["t WHERE o_orderkey < 100", "t"] {
        let rows = run(&context, &format!("SELECT min(o_comment), max(o_comment) FROM {rows}")).await;
        assert_eq!(rows.schema().field(0).data_type(), &DataType::Utf8);
    }
}

#[tokio::test]
async fn columns_written_from_plain_strings_are_views_unless_asked_for() {
    let text = StringArray::from_iter_values(["one", "two"]);
    let rows = RecordBatch::try_from_iter([("a", Arc::new(text) as ArrayRef)]).unwrap();
    let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(written(&rows).await));
    let table = VortexTable::open([source]).await.unwrap();
    let mut options = VortexOptions::default();
    options.string_type = StringType::Stored;
    let stored = table.clone().with_options(options);
    for (table, expected) in [(table, DataType::Utf8View), (stored, DataType::Utf8)] {
        let context = session();
        register_table(&context, table);
        let rows = run(&context, "SELECT a, count(*) FROM t WHERE a < 'p' GROUP BY a").await;
        assert_eq!(rows.schema().field(0).data_type(), &expected);
        assert_eq!(array_value_to_string(rows.column(0), 0).unwrap(), "one");
    }
}

#[tokio::test]
async fn files_keep_the_limits_with_which_they_were_opened() {
    let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(fs::read(file("tpch_orders")).unwrap()));
    let strict = OpenOptions::new().with_limits(Limits::new().with_max_decoded_bytes(1000));
    let context = session();
    register_table(&context, VortexTable::open_with([source], &strict).await.unwrap());
    let message = error(&context, "SELECT * FROM t").await;
    assert!(message.contains("1000"), "{message}");
}

#[tokio::test]
async fn checksums_that_were_not_asked_for_in_time_are_not_silently_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sums.vortex");
    let context = session();
    let rows = "SELECT value * 7919 % 10007 AS m FROM generate_series(1, 50000)";
    run(&context, &format!("COPY ({rows}) TO '{}' OPTIONS (checksums true)", path.display())).await;
    let mut bytes = fs::read(&path).unwrap();
    let sum = "SELECT sum(m * 2) FROM t";
    run(&context, "SET vortex.verify_checksums = true").await;
    register_table(&context, in_memory(&[&path]).await);
    let unverified = error(&context, sum).await;
    assert!(unverified.contains("with_verify_checksums"), "{unverified}");

    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(bytes));
    let verifies = OpenOptions::new().with_verify_checksums(true);
    let table = VortexTable::open_with([source], &verifies).await.unwrap();
    context.deregister_table("t").unwrap();
    register_table(&context, table);
    let damaged = error(&context, sum).await;
    assert!(damaged.contains("has checksum"), "{damaged}");
}

#[tokio::test]
async fn orders_follow_the_options_of_each_scan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rising.vortex");
    let context = session_with(SessionConfig::new().with_target_partitions(1));
    copy(&context, "VALUES (1), (2), (3)", path.display()).await;
    register_table(&context, in_memory(&[&path]).await);
    for asked in [false, true, false] {
        run(&context, &format!("SET vortex.order_from_statistics = {asked}")).await;
        let sorted = plan(&context, "SELECT * FROM t ORDER BY column1").await;
        assert_eq!(!sorted.contains("SortExec"), asked, "{sorted}");
    }
}

#[tokio::test]
async fn no_store_of_local_files_is_needed() {
    let context = session();
    context.runtime_env().deregister_object_store(&Url::parse("file://").unwrap()).unwrap();
    register_table(&context, in_memory(&[&file("tpch_orders")]).await);
    for _ in 0..2 {
        let rows = run(&context, "SELECT o_orderkey FROM t WHERE o_custkey > 0").await;
        assert_eq!(rows.num_rows(), 1500);
    }
}

#[tokio::test]
async fn values_of_maps_are_found_by_literal_keys() {
    let context = session();
    register_table(&context, in_memory(&[&file("exotic_types")]).await);
    let keys = "SELECT map_keys(\"map\")[1] FROM t WHERE cardinality(\"map\") > 0 LIMIT 1";
    let key = array_value_to_string(run(&context, keys).await.column(0), 0).unwrap();
    let sql = format!(
        "SELECT count(*) > 0, bool_and(\"map\"['{key}'] IS NOT DISTINCT FROM map_extract(\"map\", '{key}')[1])
         FROM t WHERE array_has(map_keys(\"map\"), '{key}')"
    );
    let found = run(&context, &sql).await;
    assert!(found.columns().iter().all(|column| column.as_boolean().value(0)), "{found:?}");
}
