//! Tables whose columns an adapter of the application computes from those of files.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;
use vortex_datafusion::VortexFormat;

use crate::files::{copy, numbers, plan, run, session, show};

/// What an adapter makes of a node of an expression, given the schema of a file.
type Rewrite = fn(Arc<dyn PhysicalExpr>, &SchemaRef) -> Result<Transformed<Arc<dyn PhysicalExpr>>>;

/// Rewrites expressions before they are adapted as usual.
#[derive(Debug)]
struct Adapting(Rewrite);

impl PhysicalExprAdapterFactory for Adapting {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        let inner = DefaultPhysicalExprAdapterFactory.create(table, Arc::clone(&file))?;
        Ok(Arc::new(Adapter { rewrite: self.0, file, inner }))
    }
}

#[derive(Debug)]
struct Adapter {
    rewrite: Rewrite,
    file: SchemaRef,
    inner: Arc<dyn PhysicalExprAdapter>,
}

impl PhysicalExprAdapter for Adapter {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        self.inner.rewrite(expr.transform_up(|node| (self.rewrite)(node, &self.file)).data()?)
    }
}

fn name_of(node: &Arc<dyn PhysicalExpr>) -> Option<&str> {
    node.downcast_ref::<Column>().map(Column::name)
}

/// Reads `100 - a` for `a`, and 5 for `c` where a file lacks it.
fn computed(node: Arc<dyn PhysicalExpr>, file: &SchemaRef) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    Ok(match name_of(&node) {
        Some("a") => Transformed::yes(Arc::new(BinaryExpr::new(lit(100i64), Operator::Minus, node))),
        Some("c") if file.index_of("c").is_err() => Transformed::yes(lit(5i64)),
        _ => Transformed::no(node),
    })
}

/// Reads `price` for `list`, where a file lacks it.
fn renamed(node: Arc<dyn PhysicalExpr>, file: &SchemaRef) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    Ok(match name_of(&node) {
        Some("list") if file.index_of("list").is_err() => {
            Transformed::yes(Arc::new(Column::new_with_schema("price", file)?))
        }
        _ => Transformed::no(node),
    })
}

/// Registers the files of a folder as table `t`, with an adapter.
async fn register_adapted(context: &SessionContext, folder: &TempDir, rewrite: Rewrite) {
    let config = ListingTableConfig::new(ListingTableUrl::parse(folder.path().to_str().unwrap()).unwrap())
        .with_listing_options(ListingOptions::new(Arc::new(VortexFormat::new())))
        .infer_schema(&context.state())
        .await
        .unwrap()
        .with_expr_adapter_factory(Arc::new(Adapting(rewrite)));
    context.register_table("t", Arc::new(ListingTable::try_new(config).unwrap())).unwrap();
}

/// The table `t` over two files that are sorted by the `a` that they store, and its rows as `expected`.
async fn adapted() -> (SessionContext, TempDir) {
    let context = session();
    let folder = tempfile::tempdir().unwrap();
    let stored = [
        "SELECT value AS a FROM generate_series(1, 50) ORDER BY a",
        "SELECT value AS a, nullif(value - 50, 10) AS c FROM generate_series(51, 100) ORDER BY a",
    ];
    for (at, rows) in stored.iter().enumerate() {
        copy(&context, rows, folder.path().join(format!("{at}.vortex")).display()).await;
    }
    register_adapted(&context, &folder, computed).await;
    let expected = "CREATE TABLE expected AS \
                    SELECT 100 - value AS a, 5 AS c FROM generate_series(1, 50) UNION ALL \
                    SELECT 100 - value, nullif(value - 50, 10) FROM generate_series(51, 100)";
    run(&context, expected).await;
    (context, folder)
}

#[tokio::test]
async fn columns_that_an_adapter_fills_or_rewrites_are_counted_filtered_and_sorted_as_adapted() {
    let (context, _folder) = adapted().await;
    for query in [
        "SELECT count(*), count(a), count(c) FROM t",
        "SELECT min(a), max(a), sum(a), min(c), max(c), sum(c) FROM t",
        "SELECT count(*) FROM t WHERE c = 5",
        "SELECT count(c), sum(a), avg(a), min(c) FROM t WHERE a > 20",
        "SELECT count(*) FROM t WHERE c IS NULL",
        "SELECT count(*) FROM t WHERE c IS NOT NULL AND a < 60",
        "SELECT a, c FROM t WHERE a BETWEEN 40 AND 60 ORDER BY a",
        "SELECT a FROM t WHERE a <= 0",
        "SELECT a FROM t ORDER BY a",
        "SELECT a FROM t ORDER BY a LIMIT 3",
        "SELECT a FROM t ORDER BY a DESC LIMIT 3",
        "SELECT c, a FROM t ORDER BY c, a LIMIT 3",
        "SELECT c, a FROM t ORDER BY c DESC NULLS LAST, a LIMIT 3",
        "SELECT count(*) FROM t JOIN (VALUES (5), (7)) AS keys(k) ON t.c = keys.k",
        "SELECT count(*) FROM t JOIN (VALUES (98), (99)) AS keys(k) ON t.a = keys.k",
        "SELECT c, min(a), max(a) FROM t GROUP BY c ORDER BY c LIMIT 8",
    ] {
        let expected = show(&context, &query.replace("FROM t", "FROM expected t")).await;
        assert_eq!(show(&context, query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn extremes_of_one_column_do_not_rule_out_another_that_an_adapter_takes_from_the_same() {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    vortex_datafusion::register(&context).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (at, columns) in ["value AS price, value + 100 AS list", "value + 50 AS price"].iter().enumerate() {
        let rows = format!("SELECT {columns}, value % 7 AS quantity FROM generate_series(1, 9)");
        copy(&context, &rows, folder.path().join(format!("{at}.vortex")).display()).await;
    }
    register_adapted(&context, &folder, renamed).await;
    for (functions, expected) in [("min(price), min(list)", [1, 51]), ("max(list), max(price)", [109, 59])] {
        let found = run(&context, &format!("SELECT {functions} FROM t WHERE quantity > 0")).await;
        assert_eq!([numbers(&found, 0), numbers(&found, 1)].concat(), expected, "{functions}");
    }
}

#[tokio::test]
async fn rows_that_an_adapter_changes_are_still_counted_without_reading_them() {
    let (context, _folder) = adapted().await;
    let plan = plan(&context, "SELECT count(*) FROM t").await;
    assert!(plan.contains("PlaceholderRowExec"), "{plan}");
}
