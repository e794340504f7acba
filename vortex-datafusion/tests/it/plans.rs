//! What plans show: the operations pushed down, and the metrics of a run.

use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::util::display::array_value_to_string;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use vortex_core::io::{LocalFile, ReadAt};
use vortex_datafusion::VortexTable;

use crate::files::{create, file, physical, plan, run, session, session_with, show, write_chunks};

#[tokio::test]
async fn filters_leave_the_plan_and_show_in_the_scan() {
    let path = file("tpch_lineitem");
    let context = session();
    let sql = format!(
        "SELECT l_orderkey FROM '{}' WHERE l_quantity > 10 AND l_orderkey % 2 = 0 AND upper(l_shipmode) = 'AIR'",
        path.display()
    );
    let plan = plan(&context, &sql).await;
    assert!(!plan.contains("FilterExec"), "{plan}");
    let scan = plan.lines().find(|line| line.contains("file_type=vortex")).unwrap();
    for part in ["l_quantity@4 > 10.00", "l_orderkey@0 % 2 = 0", "upper(l_shipmode@14) = AIR"] {
        assert!(scan.contains(part), "{part}: {plan}");
    }
}

#[tokio::test]
async fn one_file_is_cut_into_all_partitions() {
    let path = file("tpch_lineitem");
    let context = session();
    let sql = format!("SELECT l_returnflag, count(*) FROM '{}' GROUP BY 1", path.display());
    let plan = plan(&context, &sql).await;
    assert!(plan.contains("4 groups"), "{plan}");
}

#[tokio::test]
async fn expressions_and_struct_fields_are_computed_in_the_scan() {
    let context = session();
    for (name, output) in [("tpch_lineitem", "l_orderkey + 1"), ("struct_nested", "s['c']['x']")] {
        let sql = format!("SELECT {output} AS o FROM '{}'", file(name).display());
        let plan = plan(&context, &sql).await;
        assert!(!plan.contains("ProjectionExec") && plan.contains(" as o], file_type=vortex"), "{plan}");
    }
}

#[tokio::test]
async fn a_volatile_filter_stays_above() {
    let path = file("tpch_lineitem");
    let context = session();
    let sql = format!("SELECT l_orderkey FROM '{}' WHERE random() < 0.5 AND l_orderkey > 1", path.display());
    let plan = plan(&context, &sql).await;
    assert!(plan.contains("FilterExec: random()"), "{plan}");
}

#[tokio::test]
async fn a_filter_on_drawn_values_does_not_reach_the_scan() {
    let path = file("tpch_lineitem");
    let context = session();
    let drawn = format!("(SELECT l_discount, random() AS drawn FROM '{}')", path.display());
    for sql in [
        format!("SELECT count(*) FROM {drawn} WHERE l_discount < drawn"),
        format!("SELECT l_discount, drawn FROM {drawn} ORDER BY drawn LIMIT 3"),
    ] {
        let plan = plan(&context, &sql).await;
        let scan = plan.lines().find(|line| line.contains("DataSourceExec")).unwrap();
        assert!(!scan.contains("predicate=") && !scan.contains("dynamic_pruning"), "{plan}");
    }
}

#[tokio::test]
async fn a_topk_reaches_the_scan() {
    let path = file("tpch_lineitem");
    let context = session();
    let sql = format!("SELECT l_orderkey FROM '{}' ORDER BY l_extendedprice LIMIT 3", path.display());
    let plan = plan(&context, &sql).await;
    assert!(plan.contains("DynamicFilter") && plan.contains("dynamic_pruning=eligible"), "{plan}");
}

#[tokio::test]
async fn windows_below_a_limit_are_of_all_rows_unless_they_are_merged_in_order() {
    let path = file("tpch_lineitem");
    let context = session();
    create(&context, "t", path.display()).await;
    let windows = "SELECT l_tax, sum(l_quantity) OVER \
                   (PARTITION BY l_orderkey + 1 ORDER BY l_linenumber ROWS UNBOUNDED PRECEDING) AS s FROM t";
    let any = plan(&context, &format!("{windows} LIMIT 5")).await;
    assert!(any.contains("BoundedWindowAggExec") && any.contains("SortExec: expr"), "{any}");
    assert!(!any.contains("TopK"), "{any}");
    let tied = plan(&context, &format!("{windows} ORDER BY l_orderkey + 1 LIMIT 5")).await;
    assert!(tied.contains("BoundedWindowAggExec") && !tied.contains("SortExec: TopK"), "{tied}");
    let first = format!("{windows} ORDER BY l_orderkey + 1, l_linenumber LIMIT 5");
    let first = plan(&context, &first).await;
    assert!(first.contains("BoundedWindowAggExec") && first.contains("SortExec: TopK"), "{first}");
}

#[tokio::test]
async fn a_file_of_which_only_the_best_rows_are_wanted_is_not_cut() {
    let path = file("tpch_lineitem");
    let context = session();
    for (sql, groups) in [
        ("SELECT * FROM t ORDER BY l_extendedprice LIMIT 3", "1 group"),
        ("SELECT l_orderkey + 1 FROM t WHERE l_tax > 0 ORDER BY l_extendedprice, l_tax LIMIT 3", "1 group"),
        ("SELECT * FROM t ORDER BY l_extendedprice", "4 groups"),
        ("SELECT l_tax, count(*) FROM t GROUP BY 1 ORDER BY 1 LIMIT 3", "4 groups"),
        ("SELECT *, rank() OVER (PARTITION BY l_tax ORDER BY l_partkey) FROM t LIMIT 3", "4 groups"),
    ] {
        let plan = plan(&context, &sql.replace(" t ", &format!(" '{}' ", path.display()))).await;
        assert!(plan.contains(groups), "{sql}: {plan}");
        let plan = plan.replace("1 group:", "").replace("4 groups:", "");
        assert!(!plan.contains(" groups:") && !plan.contains(" group:"), "{sql}: {plan}");
    }
}

#[tokio::test]
async fn analyze_counts_what_was_read_and_skipped() {
    let path = file("tpch_lineitem");
    let context = session_with(SessionConfig::new().with_target_partitions(1));
    let sql = format!("EXPLAIN ANALYZE SELECT l_orderkey FROM '{}' WHERE l_orderkey < 100", path.display());
    let analyzed = show(&context, &sql).await;
    for metric in [
        "output_rows=105,",
        "files_ranges_pruned_statistics=1 total → 1 matched,",
        "zones_pruned_statistics=1,",
        "rows_pruned_statistics=108,",
        "reads=1,",
        "decode_time=",
    ] {
        assert!(analyzed.contains(metric), "{metric}: {analyzed}");
    }
    assert!(analyzed.contains("bytes_scanned=") && !analyzed.contains("bytes_scanned=0,"), "{analyzed}");
}

#[tokio::test]
async fn the_name_of_the_file_is_known_to_the_scan() {
    let path = file("tpch_orders");
    let context = session();
    let sql = format!("SELECT DISTINCT input_file_name() AS f FROM '{}'", path.display());
    assert!(show(&context, &sql).await.contains("tpch_orders.vortex"));
    // No operator above the scan could compute it.
    run(&context, "SET vortex.projection_pushdown = false").await;
    assert!(show(&context, &sql).await.contains("tpch_orders.vortex"));
    let upper = format!("SELECT upper(input_file_name()) AS f, o_orderkey FROM '{}' LIMIT 1", path.display());
    assert!(show(&context, &upper).await.contains("TPCH_ORDERS.VORTEX"));
}

#[tokio::test]
async fn rows_know_their_number_in_the_file() {
    let path = file("tpch_lineitem");
    let context = session();
    let path = path.display();
    // Rows of the file in its order, by one partition without a filter.
    run(&context, "SET datafusion.execution.target_partitions = 1").await;
    let all = run(&context, &format!("SELECT l_orderkey, l_linenumber FROM '{path}'")).await;
    run(&context, "SET datafusion.execution.target_partitions = 4").await;
    let numbered = format!("SELECT file_row_index() AS n, l_orderkey, l_linenumber FROM '{path}' ORDER BY n");
    let numbered = run(&context, &numbered).await;
    let expected: Vec<i64> = (0..all.num_rows() as i64).collect();
    assert_eq!(numbered.column(0).as_ref(), &arrow::array::Int64Array::from(expected));
    assert_eq!(&numbered.columns()[1..], all.columns());
    let few = format!(
        "SELECT file_row_index() + 1 AS n, l_orderkey FROM '{path}' WHERE l_shipmode = 'AIR' AND l_linenumber = 3
         ORDER BY n LIMIT 5"
    );
    let by_hand = format!(
        "SELECT n, l_orderkey FROM (SELECT file_row_index() + 1 AS n, * FROM '{path}')
         WHERE l_shipmode = 'AIR' AND l_linenumber = 3 AND n > 0 ORDER BY n LIMIT 5"
    );
    assert_eq!(run(&context, &few).await, run(&context, &by_hand).await);
    let plan = plan(&context, &few).await;
    assert!(plan.contains("predicate=l_shipmode") && !plan.contains("FilterExec"), "{plan}");
}

#[tokio::test]
async fn filters_on_numbers_of_rows_select_the_rows_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_chunks(folder.path()).await;
    let context = session();
    let create = format!("CREATE VIEW v AS SELECT file_row_index() AS n, * FROM '{}'", path.display());
    run(&context, &create).await;
    for (filter, wanted) in [
        ("n = 200000", vec![200_000]),
        ("n < 2 OR 269998 < n", vec![0, 1, 269_999]),
        ("n BETWEEN 99999 AND 100001", vec![99_999, 100_000, 100_001]),
        ("n IN (7, 131072, 131071, 269999, 270000)", vec![7, 131_071, 131_072, 269_999]),
        ("n IN (SELECT column1 FROM (VALUES (5), (5), (140000), (NULL)))", vec![5, 140_000]),
        ("n > 200000 AND n < 200010 AND key % 4 = 0", vec![200_003, 200_007]),
        ("n = 270000", vec![]),
        ("n = -1 OR n IS NULL", vec![]),
    ] {
        let sql = format!("SELECT n, key FROM v WHERE {filter} ORDER BY n");
        let rows = run(&context, &sql).await;
        let numbers = Int64Array::from(wanted.clone());
        let keys: Int64Array = wanted.iter().map(|n| Some(n + 1)).collect();
        assert_eq!(rows.num_columns(), 2, "{filter}");
        assert_eq!(rows.column(0).as_ref(), &numbers, "{filter}");
        assert_eq!(rows.column(1).as_ref(), &keys, "{filter}");
    }
    let sql = "EXPLAIN ANALYZE SELECT * FROM v WHERE n = 200000 OR n = 7";
    let plan = show(&context, sql).await;
    let scan = plan.lines().find(|line| line.contains("DataSourceExec")).unwrap();
    assert!(scan.contains("output_rows=2,"), "{scan}");
    run(&context, "SET vortex.predicate_pushdown = false").await;
    assert_eq!(run(&context, "SELECT key FROM v WHERE n = 200000").await.num_rows(), 1);
}

#[tokio::test]
async fn filters_on_numbers_of_rows_keep_all_rows_that_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_chunks(folder.path()).await;
    std::fs::copy(&path, folder.path().join("again.vortex")).unwrap();
    let open = VortexTable::open([Arc::new(LocalFile::open(&path).unwrap()) as Arc<dyn ReadAt>]);
    let context = session();
    context.register_table("open", Arc::new(open.await.unwrap())).unwrap();
    let files =
        [format!("'{}'", path.display()), format!("'{}/'", folder.path().display()), "open".to_owned()];
    // In partitioned joins, each partition looks up its own keys.
    for threshold in [0, 1 << 20] {
        let set = "SET datafusion.optimizer.hash_join_single_partition_threshold";
        run(&context, &format!("{set} = {threshold}")).await;
        for (file, filter) in files.iter().flat_map(|file| {
            let filters = [
                // More rows than are listed one by one.
                "n < 40000 OR n >= 230000",
                "n NOT BETWEEN 10 AND 269000",
                "n <> 7 AND (n > 269990 OR key < 5)",
                // More keys than DataFusion lists.
                "n IN (SELECT value FROM generate_series(0, 269999, 1000))",
                "n IN (SELECT value FROM generate_series(100, 269999, 90000))",
            ];
            filters.map(|filter| (file, filter))
        }) {
            let rows = format!("SELECT n, key FROM (SELECT file_row_index() AS n, * FROM {file})");
            let found = format!("SELECT count(*), sum(key), min(n), max(n) FROM ({rows} WHERE {filter})");
            // Keys are one more than the numbers, and the scan does not know that.
            let rows = format!("SELECT key - 1 AS n, key FROM {file}");
            let expected = format!("SELECT count(*), sum(key), min(n), max(n) FROM ({rows}) WHERE {filter}");
            assert_eq!(show_rows(&context, &found).await, show_rows(&context, &expected).await, "{found}");
        }
    }
    let last = "SELECT n FROM (SELECT file_row_index() AS n, * FROM open) ORDER BY n DESC LIMIT 3";
    assert_eq!(show_rows(&context, last).await, "269999 269998 269997");
    let mixed = "SELECT n FROM (SELECT file_row_index() AS n, * FROM open) ORDER BY key % 7, n LIMIT 3";
    assert_eq!(show_rows(&context, mixed).await, "6 13 20");
}

/// All values of a result.
async fn show_rows(context: &SessionContext, sql: &str) -> String {
    let batch = run(context, sql).await;
    let rows = 0..batch.num_rows();
    let values = rows.flat_map(|row| batch.columns().iter().map(move |column| (column, row)));
    let values = values.map(|(column, row)| array_value_to_string(column, row).unwrap());
    values.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_filter_above_a_limit_does_not_select_rows() {
    let path = file("tpch_lineitem");
    let context = session();
    // Several partitions would return any ten rows.
    run(&context, "SET datafusion.execution.target_partitions = 1").await;
    let limited = format!("SELECT file_row_index() AS n FROM '{}' LIMIT 10", path.display());
    assert_eq!(run(&context, &format!("SELECT n FROM ({limited}) WHERE n >= 4000")).await.num_rows(), 0);
    let offset = format!("SELECT n FROM ({limited} OFFSET 5) WHERE n IN (4, 5, 6)");
    assert_eq!(run(&context, &offset).await.num_rows(), 2);
}

#[tokio::test]
async fn a_limit_that_one_partition_reaches_is_left_to_it() {
    let path = file("tpch_lineitem");
    let context = session();
    run(&context, "SET datafusion.execution.target_partitions = 4").await;
    run(&context, "SET datafusion.optimizer.repartition_file_min_size = 1").await;
    for (rest, is_left) in
        [("LIMIT 5", true), ("LIMIT 65537", false), ("WHERE l_quantity > 30 LIMIT 5", false), ("", false)]
    {
        let plan = plan(&context, &format!("SELECT l_comment FROM '{}' {rest}", path.display())).await;
        assert_eq!(plan.contains("file_groups={1 group"), is_left, "{rest}: {plan}");
    }
}

#[tokio::test]
async fn branches_of_a_union_are_sorted_by_what_tells_them_apart() {
    let path = file("tpch_lineitem");
    let context = session();
    let branch = |k: i32| format!("SELECT l_orderkey, {k} AS k FROM '{}'", path.display());
    for columns in ["l_orderkey, k", "k, l_orderkey", "l_orderkey"] {
        let union = format!("({} UNION ALL {})", branch(1), branch(0));
        let sql = format!("SELECT {columns} FROM {union} ORDER BY k, l_orderkey DESC LIMIT 3");
        let plan = plan(&context, &sql).await;
        assert!(
            plan.contains("SortExec: TopK(fetch=3), expr=[k@1 ASC NULLS LAST, l_orderkey@0 DESC"),
            "{plan}"
        );
    }
}

#[tokio::test]
async fn a_plan_that_is_optimized_twice_counts_the_rows_that_pass() {
    let path = file("tpch_lineitem");
    let context = session();
    let table = format!("'{}'", path.display());
    let sql = format!(
        "SELECT l.n FROM (SELECT 1 AS one) r LEFT JOIN \
         (SELECT count(*) AS n FROM {table} WHERE l_linenumber = 1) l ON l.n > r.one"
    );
    let once = show_rows(&context, &sql).await;
    let mut plan = physical(&context, &sql).await;
    let state = context.state();
    for rule in state.physical_optimizers() {
        plan = rule.optimize(plan, state.config_options()).unwrap();
    }
    let batches = collect(plan, context.task_ctx()).await.unwrap();
    let twice = array_value_to_string(batches[0].column(0), 0).unwrap();
    assert_eq!(twice, once);
}
