//! Tables of several files with a recorded order.

use std::path::{Path, PathBuf};

use arrow::compute::concat_batches;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::Partitioning;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext, col};
use vortex_datafusion::{VortexOptions, VortexSessionExt as _, register};

use crate::files::{copy, create, numbers, plan, register_files, run, session_with, table, table_of};

fn session(partitions: usize) -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions))
}

fn registered(partitions: usize) -> SessionContext {
    let context = session(partitions);
    register(&context).unwrap();
    context
}

/// Files that are each sorted by `a`, and overlap.
pub(crate) async fn write(folder: &Path, files: usize) {
    let context = registered(1);
    for file in 0..files {
        let rows = format!(
            "SELECT value * {files} + {file} AS a, value % 7 AS b FROM generate_series(0, 20000) ORDER BY a"
        );
        let path = folder.join(format!("{file}.vortex"));
        copy(&context, &rows, path.display()).await;
    }
}

/// Writes a file that is sorted by timestamps.
async fn write_times(folder: &Path) -> PathBuf {
    let path = folder.join("t.vortex");
    let rows = "SELECT arrow_cast(value * 25200, 'Timestamp(Second, None)') AS ts, value AS n \
                FROM generate_series(1, 40) ORDER BY ts";
    copy(&registered(1), rows, path.display()).await;
    path
}

#[tokio::test]
async fn orders_are_withheld_only_where_casts_change_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_times(folder.path()).await;
    let context = registered(1);
    register_files(&context, &path).await;
    for (sql, declared) in [
        // Hash joins are in no order of their build side.
        ("SELECT x.ts FROM t x JOIN t y ON x.n = y.n AND x.ts > y.ts", 1),
        // What a join compares equates nothing, unless it is a key.
        ("SELECT x.ts FROM t x JOIN t y ON x.n = y.n AND CAST(x.ts AS TIME) < CAST(y.ts AS TIME)", 1),
        ("SELECT x.ts FROM t x JOIN t y ON CAST(x.ts AS DATE) < CAST(y.ts AS DATE)", 2),
        ("SELECT x.ts FROM t x JOIN t y ON CAST(x.ts AS TIME) < CAST(y.ts AS TIME)", 0),
        ("SELECT x.ts FROM t x JOIN t y ON CAST(x.ts AS TIME) = CAST(y.ts AS TIME)", 0),
        ("SELECT log(3, x.n) FROM t x JOIN t y ON x.ts = y.ts", 1),
        // The order of one scan does not reach the operators above another.
        ("SELECT ts FROM t UNION ALL (SELECT ts FROM t ORDER BY CAST(ts AS TIME) LIMIT 3)", 1),
        // The timestamps of both are equal, and so are these times of day and others.
        (
            "SELECT x.ts FROM t x JOIN (SELECT ts FROM t WHERE CAST(ts AS TIME) = \
             CAST(arrow_cast(n * n, 'Timestamp(Second, None)') AS TIME)) y ON x.ts = y.ts",
            0,
        ),
    ] {
        let plan = plan(&context, sql).await;
        assert_eq!(plan.matches("output_ordering").count(), declared, "{sql}: {plan}");
    }
}

#[tokio::test]
async fn an_order_that_statistics_prove_is_asked_for_by_a_table_or_by_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rising.vortex");
    let context = registered(1);
    // The order of the rows of a VALUES list is not defined.
    copy(&context, "VALUES (1), (2), (3)", file.display()).await;
    for (name, options) in [("plain", ""), ("asking", "OPTIONS (order_from_statistics 'true')")] {
        create(&context, &format!("{name} {options}"), file.display()).await;
    }
    for asked in [false, true, false] {
        run(&context, &format!("SET vortex.order_from_statistics = {asked}")).await;
        for (name, declared) in [("plain", asked), ("asking", true)] {
            let plan = plan(&context, &format!("SELECT * FROM {name} ORDER BY column1")).await;
            assert_eq!(!plan.contains("SortExec"), declared, "{name}, {asked}: {plan}");
            assert_eq!(plan.contains("output_ordering"), declared, "{name}, {asked}: {plan}");
        }
    }
}

#[tokio::test]
async fn times_of_day_are_sorted_although_their_timestamps_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_times(folder.path()).await;
    for is_registered in [true, false] {
        let context = if is_registered { registered(1) } else { session(1) };
        register_files(&context, &path).await;
        for (by, is_sorted) in [
            ("CAST(ts AS TIME)", true),
            ("TRY_CAST(ts AS TIME)", true),
            ("ts", !is_registered),
            ("CAST(ts AS DATE)", !is_registered),
        ] {
            let plan = plan(&context, &format!("SELECT {by} FROM t ORDER BY 1")).await;
            assert_eq!(plan.contains("SortExec"), is_sorted, "{plan}");
        }
        let late = "SELECT ts FROM t WHERE CAST(ts AS TIME) > '20:00:00' ORDER BY ts";
        let plan = plan(&context, late).await;
        assert_eq!(plan.contains("SortExec"), !is_registered, "a filter changes no order: {plan}");
        let least = run(&context, "SELECT n FROM t ORDER BY CAST(ts AS TIME), n LIMIT 3").await;
        assert_eq!(numbers(&least, 0), [24, 7, 31]);
    }
}

#[tokio::test]
async fn bins_of_times_are_sorted_although_the_times_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.vortex");
    let times = "VALUES ('0001-01-01'), ('2024-01-01'), ('9999-12-31')";
    let rows = format!(
        "SELECT arrow_cast(t, 'Timestamp(Microsecond, None)') AS t FROM ({times}) AS t (t) ORDER BY t"
    );
    let context = registered(1);
    copy(&context, &rows, path.display()).await;
    register_files(&context, &path).await;
    let by_time = plan(&context, "SELECT t FROM t ORDER BY t").await;
    assert!(!by_time.contains("SortExec"), "{by_time}");
    // Those of the first and of the last are null: nanoseconds cannot count them.
    let groups = "SELECT date_bin(INTERVAL '1 day', t) AS bin, count(*) FROM t GROUP BY bin ORDER BY bin";
    let found = run(&context, groups).await;
    assert_eq!(numbers(&found, 1), [1, 2]);
}

#[tokio::test]
async fn a_session_whose_rules_are_replaced_is_not_registered() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_times(folder.path()).await;
    let rules = PhysicalOptimizer::default().rules;
    let builder = SessionStateBuilder::new().with_default_features().with_vortex();
    let context = SessionContext::new_with_state(builder.with_physical_optimizer_rules(rules).build());
    register_files(&context, &path).await;
    let plan = plan(&context, "SELECT ts FROM t ORDER BY ts LIMIT 3").await;
    assert!(plan.contains("SortExec") && !plan.contains("best_first"), "{plan}");
    let least = run(&context, "SELECT n FROM t ORDER BY CAST(ts AS TIME), n LIMIT 3").await;
    assert_eq!(numbers(&least, 0), [24, 7, 31]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rows_of_an_order_are_the_first_however_partitions_run() {
    for (is_registered, partitions) in [(true, 4), (true, 2), (false, 4), (false, 2)] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), partitions).await;
        let url = folder.path().join("");
        let context = if is_registered { registered(partitions) } else { session(partitions) };
        register_files(&context, &url).await;
        for sql in
            ["SELECT a FROM t ORDER BY a LIMIT 300", "SELECT a FROM t WHERE b = 3 ORDER BY a LIMIT 300"]
        {
            let plan = plan(&context, sql).await;
            assert_eq!(plan.contains("output_ordering=[a@0 ASC"), is_registered, "{plan}");
            let frame = context.sql(&sql.replace("ORDER BY a LIMIT", "ORDER BY a + 0 LIMIT")).await.unwrap();
            let expected = frame.collect().await.unwrap();
            let expected: Vec<i64> = expected.iter().flat_map(|batch| numbers(batch, 0)).collect();
            for _ in 0..20 {
                assert_eq!(
                    numbers(&run(&context, sql).await, 0),
                    expected,
                    "{is_registered} {partitions} {sql}"
                );
            }
        }
    }
}

/// DataFusion arranges the files of a partition by `b`, although their order by `a` decides which rows are limited.
#[tokio::test]
async fn a_limit_takes_the_first_rows_of_its_own_order() {
    let rows = [
        "SELECT value AS a, 10 - value AS b FROM generate_series(1, 4) ORDER BY a",
        "SELECT value AS a, value + 100 AS b FROM generate_series(5, 8) ORDER BY a",
    ];
    let folder = table_of(&registered(1), &rows, "").await;
    let url = folder.path().join("");
    for is_registered in [true, false] {
        let context = if is_registered { registered(1) } else { session(1) };
        register_files(&context, &url).await;
        let first = "SELECT a, b FROM t WHERE b <> 8 ORDER BY a LIMIT 3";
        let sql = format!("SELECT a FROM ({first}) ORDER BY b");
        assert_eq!(numbers(&run(&context, &sql).await, 0), [4, 3, 1], "{is_registered}");
        let plan = plan(&context, &sql).await;
        let sorts = if is_registered { 1 } else { 2 };
        assert_eq!(plan.matches("SortExec").count(), sorts, "{plan}");
    }
}

#[tokio::test]
async fn windows_are_of_all_rows_whatever_is_sorted_and_limited_above() {
    let context = registered(4);
    let hundred = |first| format!("SELECT value AS a FROM generate_series({first}, {first} + 99) ORDER BY a");
    let _folder = table_of(&context, &[1, 101].map(hundred), "").await;
    let windows =
        "SELECT a, count(*) OVER () AS c, sum(a) OVER (ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS s";
    for (source, filter) in [
        ("t", ""),
        ("t", "WHERE a + c > 0"),
        ("(SELECT a FROM t GROUP BY a)", ""),
        ("(SELECT * FROM t WHERE a <= 100 UNION ALL SELECT * FROM t WHERE a > 100)", ""),
    ] {
        let sql = format!("SELECT * FROM ({windows} FROM {source}) {filter} ORDER BY a LIMIT 3");
        let rows = run(&context, &sql).await;
        assert_eq!(numbers(&rows, 0), [1, 2, 3], "{sql}");
        assert_eq!(numbers(&rows, 1), [200; 3], "{sql}");
    }
    let limited =
        "SELECT a, count(*) OVER () AS c FROM (SELECT a FROM t ORDER BY a LIMIT 5) ORDER BY a LIMIT 3";
    assert_eq!(numbers(&run(&context, limited).await, 1), [5; 3]);
    // Dealing rows out helps nobody, so it is left out.
    let frame = context.sql("SELECT a, count(*) OVER () AS c FROM t").await.unwrap();
    let dealt_out = frame.repartition(Partitioning::RoundRobinBatch(4)).unwrap();
    let first = dealt_out.sort(vec![col("a").sort(true, false)]).unwrap().limit(0, Some(3)).unwrap();
    let batches = first.collect().await.unwrap();
    let rows = concat_batches(&batches[0].schema(), &batches).unwrap();
    assert_eq!(numbers(&rows, 1), [200; 3]);
}

#[tokio::test]
async fn windows_of_computed_columns_are_of_files_in_their_order() {
    let context = registered(2);
    let rows = |file: usize| {
        format!(
            "SELECT {} AS v, {file} AS g, value AS id FROM generate_series(1, 100) ORDER BY g, id",
            4 - file
        )
    };
    let _folder = table_of(&context, &[0, 1, 2, 3].map(rows), "").await;
    for column in ["'x'", "v * 2", "-v"] {
        let sql = format!(
            "SELECT id, g, row_number() OVER (PARTITION BY g ORDER BY id ROWS UNBOUNDED PRECEDING) AS n, k
             FROM (SELECT g, id, {column} AS k FROM t) ORDER BY g, id LIMIT 2"
        );
        let rows = run(&context, &sql).await;
        assert_eq!(numbers(&rows, 0), [1, 2], "{sql}");
        assert_eq!(numbers(&rows, 1), [0, 0], "{sql}");
    }
}

#[tokio::test]
async fn windows_that_look_ahead_see_rows_beyond_a_limit() {
    let context = registered(4);
    let hundred = |first| format!("SELECT 1 AS p, value AS a FROM generate_series({first}, {first} + 99)");
    let _folder = table_of(&context, &[1, 101, 201].map(hundred), "").await;
    for (window, order, expected) in [
        ("sum(a) OVER (PARTITION BY p)", "p", [45_150; 3]),
        ("sum(a) OVER (PARTITION BY p ORDER BY a)", "p, a", [1, 3, 6]),
        ("lead(a) OVER (PARTITION BY p ORDER BY a)", "p, a", [2, 3, 4]),
        ("lag(a, -1) OVER (PARTITION BY p ORDER BY a)", "p, a", [2, 3, 4]),
        (
            "sum(a) OVER (PARTITION BY p ORDER BY a ROWS UNBOUNDED PRECEDING), \
             lag(a) OVER (PARTITION BY p ORDER BY a DESC)",
            "p, a DESC",
            [45_150, 44_850, 44_551],
        ),
        (
            "sum(a) OVER (PARTITION BY p ORDER BY a ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)",
            "p, a",
            [3, 5, 7],
        ),
    ] {
        let sql = format!("SELECT p, a, {window} FROM t ORDER BY {order} LIMIT 3");
        assert_eq!(numbers(&run(&context, &sql).await, 2), expected, "{sql}");
    }
    // Those that look at earlier rows only are computed from the first rows.
    let numbered = "SELECT p, a, row_number() OVER (PARTITION BY p ORDER BY a) FROM t ORDER BY p, a LIMIT 3";
    let plan = plan(&context, numbered).await;
    assert_eq!(plan.matches("TopK(fetch=3)").count(), 2, "{plan}");
}

#[tokio::test]
async fn joins_and_offsets_take_all_rows_whatever_is_sorted_and_limited_above() {
    let context = registered(4);
    let hundred = |first| {
        format!("SELECT value AS a, value * 2 AS b FROM generate_series({first}, {first} + 99) ORDER BY a")
    };
    let _folder = table_of(&context, &[1, 101].map(hundred), "").await;
    run(&context, "CREATE TABLE d AS SELECT value * 5 AS k FROM generate_series(1, 40)").await;
    let w = "(SELECT a, count(*) OVER () AS c FROM t) w";
    for sql in [
        format!("SELECT w.a, w.c FROM d JOIN {w} ON d.k = w.a ORDER BY w.a LIMIT 3"),
        format!("SELECT a, c FROM {w} WHERE a IN (SELECT k FROM d) ORDER BY a LIMIT 3"),
    ] {
        let rows = run(&context, &sql).await;
        assert_eq!((numbers(&rows, 0), numbers(&rows, 1)), (vec![5, 10, 15], vec![200; 3]), "{sql}");
    }
    let left = format!("SELECT w.a, w.c FROM {w} LEFT JOIN d ON d.k = w.a ORDER BY w.a LIMIT 3");
    assert_eq!(numbers(&run(&context, &left).await, 1), [200; 3]);
    let skipped = "SELECT * FROM (SELECT a, b FROM t WHERE b % 3 >= 0 LIMIT 5 OFFSET 10) ORDER BY a LIMIT 3";
    assert_eq!(run(&context, skipped).await.num_rows(), 3);
}

#[tokio::test]
async fn orders_end_at_floats_that_may_be_zero() {
    let context = registered(1);
    for (values, keys) in [
        ("(1, 0.5, 1), (1, 2.0, 2)", 3),
        ("(1, -2.0, 1), (1, -0.5, 2)", 3),
        ("(1, 0.0, 1), (1, 2.0, 2)", 1),
        ("(1, -2.0, 1), (1, 0.5, 2)", 1),
        ("(1, 2.0, 1), (1, 'NaN', 2)", 1),
    ] {
        let rows = format!(
            "SELECT a, CAST(f AS DOUBLE) AS f, b FROM (VALUES {values}) AS t (a, f, b) ORDER BY a, 2, b"
        );
        let _folder = table_of(&context, &[rows], "").await;
        let plan = plan(&context, "SELECT * FROM t").await;
        let (_, order) = plan.split_once("output_ordering=[").expect("an order");
        let (order, _) = order.split_once(']').unwrap();
        assert_eq!(order.split(',').count(), keys, "{values}: {order}");
    }
}

#[tokio::test]
async fn nulls_of_one_file_do_not_come_between_the_values_of_two() {
    let folder = tempfile::tempdir().unwrap();
    let context = registered(1);
    for (name, values) in [("a", "(1), (2), (NULL)"), ("b", "(3), (4)")] {
        let path = folder.path().join(format!("{name}.vortex"));
        let rows = format!("SELECT * FROM (VALUES {values}) AS t (a) ORDER BY a NULLS LAST");
        copy(&context, &rows, path.display()).await;
    }
    let url = folder.path().join("");
    register_files(&context, &url).await;
    let sorted = run(&context, "SELECT a FROM t WHERE a IS NOT NULL ORDER BY a").await;
    assert_eq!(numbers(&sorted, 0), [1, 2, 3, 4]);
    let first = run(&context, "SELECT a FROM t ORDER BY a NULLS LAST LIMIT 3").await;
    assert_eq!(numbers(&first, 0), [1, 2, 3]);
    let all = run(&context, "SELECT a FROM t ORDER BY a NULLS LAST").await;
    assert_eq!(numbers(&all, 0)[..4], [1, 2, 3, 4]);
    // A single file keeps its order, including nulls.
    let alone = table(&context, &folder.path().join("a.vortex"), VortexOptions::default()).await;
    context.register_table("alone", alone).unwrap();
    let plan = plan(&context, "SELECT a FROM alone ORDER BY a NULLS LAST").await;
    assert!(!plan.contains("SortExec"), "{plan}");
}

#[tokio::test]
async fn sorts_that_are_needed_keep_their_limits_above_joins_and_offsets() {
    let context = registered(4);
    run(&context, "CREATE TABLE t AS SELECT value AS id, value % 4 AS f FROM generate_series(1, 100)").await;
    run(&context, "CREATE TABLE d AS SELECT value AS k FROM generate_series(1, 5)").await;
    let sql = "SELECT id FROM (SELECT id, f FROM t ORDER BY id DESC LIMIT 10 OFFSET 2)
               ORDER BY id DESC, f DESC LIMIT 5 OFFSET 5";
    assert_eq!(numbers(&run(&context, sql).await, 0), [93, 92, 91, 90, 89]);
    let joined = plan(&context, "SELECT id, f FROM t JOIN d ON f = k ORDER BY id LIMIT 3").await;
    assert!(joined.contains("TopK(fetch=3)"), "{joined}");
    // An order that windows change is none of the join.
    let one = registered(1);
    let rows = "SELECT value % 7 AS g, value AS id FROM generate_series(1, 30) ORDER BY g";
    let _folder = table_of(&one, &[rows], "").await;
    run(&one, "CREATE TABLE d AS SELECT value AS k FROM generate_series(1, 5)").await;
    let ranked = "SELECT *, rank() OVER (PARTITION BY id ORDER BY id DESC) AS n FROM t";
    let sql =
        format!("SELECT g, id, n FROM ({ranked}) LEFT SEMI JOIN d ON id = k ORDER BY g LIMIT 2 OFFSET 2");
    let ranked = plan(&one, &sql).await;
    assert!(ranked.contains("TopK(fetch=4)"), "{ranked}");
    let totals = "SELECT id, f, w FROM (SELECT *, count(*) OVER () AS w FROM t) JOIN d ON f = k ORDER BY w, id LIMIT 3";
    assert_eq!(numbers(&run(&context, totals).await, 0), [1, 2, 3]);
}

#[tokio::test]
async fn windows_are_of_all_groups_whatever_is_limited_above() {
    let context = registered(4);
    run(&context, "CREATE TABLE t AS SELECT value AS id, value % 4 AS f FROM generate_series(1, 100)").await;
    for (sql, expected) in [
        ("SELECT f, count(*) OVER () FROM t GROUP BY f ORDER BY f LIMIT 2", [4, 4]),
        (
            "SELECT m, CAST(rank() OVER (ORDER BY m) AS BIGINT) FROM (SELECT f, max(id) AS m FROM t GROUP BY f)
             ORDER BY m DESC LIMIT 2",
            [4, 3],
        ),
        (
            "SELECT f, CAST(row_number() OVER (PARTITION BY f % 2 ORDER BY f) AS BIGINT) FROM t GROUP BY f
             ORDER BY f DESC LIMIT 2",
            [2, 2],
        ),
    ] {
        assert_eq!(numbers(&run(&context, sql).await, 1), expected, "{sql}");
    }
}

#[tokio::test]
async fn joins_are_in_no_order_of_their_build_side() {
    let folder = tempfile::tempdir().unwrap();
    for partitions in [1, 4] {
        let context = registered(partitions);
        for (name, rows) in [
            ("o", "SELECT value / 4 AS g, 20 - value AS id FROM generate_series(1, 12) ORDER BY g"),
            ("k", "SELECT value AS k FROM generate_series(1, 20) ORDER BY k"),
        ] {
            let path = folder.path().join(format!("{name}.vortex"));
            copy(&context, rows, path.display()).await;
            create(&context, name, path.display()).await;
        }
        let joined = "SELECT g, id FROM o JOIN k ON id = k ORDER BY g, id";
        let rows = run(&context, joined).await;
        assert_eq!(numbers(&rows, 1), [17, 18, 19, 13, 14, 15, 16, 9, 10, 11, 12, 8]);
        assert_eq!(numbers(&run(&context, &format!("{joined} LIMIT 4")).await, 1), [17, 18, 19, 13]);
        let sums =
            "SELECT sum(id) OVER (PARTITION BY g ORDER BY id) FROM o JOIN k ON id = k ORDER BY g, id LIMIT 3";
        assert_eq!(numbers(&run(&context, sums).await, 0), [17, 35, 54]);
        // Nor of what is sorted, or limited, on that side.
        for built in [
            "SELECT k FROM k ORDER BY k LIMIT 11",
            "SELECT k, row_number() OVER (ORDER BY k) FROM k LIMIT 11",
        ] {
            let joined = format!("SELECT g, id FROM o JOIN ({built}) ON id = k ORDER BY g, id");
            assert_eq!(numbers(&run(&context, &joined).await, 1), [9, 10, 11, 8], "{built}");
            let limited = format!("{joined} LIMIT 2");
            assert_eq!(numbers(&run(&context, &limited).await, 1), [9, 10], "{built}");
        }
        // On the side itself, the order holds.
        let ranked = "SELECT o.g, n FROM o JOIN (SELECT g, rank() OVER (ORDER BY g) AS n FROM o LIMIT 5) s ON o.id = s.n";
        let plan = plan(&context, ranked).await;
        assert!(!plan.contains("SortExec"), "{plan}");
    }
}

#[tokio::test]
async fn limits_stay_with_sorts_above_joins_whose_rows_are_dealt_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = SessionConfig::new().with_target_partitions(4);
    config.options_mut().optimizer.hash_join_single_partition_threshold = 0;
    config.options_mut().optimizer.hash_join_single_partition_threshold_rows = 0;
    let context = session_with(config);
    let path = folder.path().join("t.vortex");
    let rows = "SELECT value AS id, value % 4 AS f FROM generate_series(1, 300000) ORDER BY id";
    copy(&context, rows, path.display()).await;
    create(&context, "t", path.display()).await;
    run(&context, "CREATE TABLE d AS SELECT value AS k FROM generate_series(1, 5)").await;
    let sql = "SELECT id, f FROM d JOIN t ON f = k ORDER BY id LIMIT 3";
    let joined = plan(&context, sql).await;
    assert!(joined.contains("mode=Partitioned") && joined.contains("TopK(fetch=3)"), "{joined}");
    assert_eq!(numbers(&run(&context, sql).await, 0), [1, 2, 3]);
}
