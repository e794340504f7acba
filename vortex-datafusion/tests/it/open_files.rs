//! Tables over files that are already open.

use std::fs;
use std::sync::Arc;

use datafusion::datasource::TableProvider as _;
use vortex_core::io::{MemoryFile, ReadAt};
use vortex_datafusion::{VortexOptions, VortexTable};

use crate::files::{file, plan, run, session, show};

/// A file in memory; nothing of it is on disk.
fn in_memory(path: &std::path::Path) -> Arc<dyn ReadAt> {
    Arc::new(MemoryFile::new(fs::read(path).unwrap()))
}

#[tokio::test]
async fn files_in_memory_answer_like_files_on_disk() {
    let Some(path) = file("tpch_lineitem") else { return };
    let context = session();
    let table = VortexTable::open([in_memory(&path), in_memory(&path)]).await.unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.vortex", "b.vortex"] {
        fs::copy(&path, folder.path().join(name)).unwrap();
    }
    let disk = format!("'{}/'", folder.path().display());
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
async fn filters_and_counts_are_planned_as_for_other_tables() {
    let Some(path) = file("tpch_lineitem") else { return };
    let context = session();
    let table = VortexTable::open([in_memory(&path)]).await.unwrap();
    context.register_table("t", Arc::new(table.clone())).unwrap();
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
    let (Some(orders), Some(part)) = (file("tpch_orders"), file("tpch_part")) else { return };
    let context = session();
    let table = VortexTable::open([in_memory(&orders), in_memory(&part)]).await.unwrap();
    assert!(table.schema().field_with_name("p_partkey").unwrap().is_nullable());
    context.register_table("both", Arc::new(table)).unwrap();
    let counts = show(&context, "SELECT count(*), count(o_orderkey), count(p_partkey) FROM both").await;
    assert!(["| 2300 ", "| 1500 ", "| 800 "].iter().all(|count| counts.contains(count)), "{counts}");
    let nothing = VortexTable::try_new([]).unwrap();
    assert_eq!(nothing.schema().fields().len(), 0);
}
