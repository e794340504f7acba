//! Aggregations whose groups are found by codes.

use std::fmt::Display;
use std::sync::Arc;

use arrow::array::AsArray as _;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;
use vortex_core::VortexFile;
use vortex_datafusion::{VortexContextExt as _, VortexReadOptions, VortexTable};

use crate::files::{
    copy, create, physical, plan, pushed_answer, run, run_again, session, session_with, show, table_of,
};

/// Rows of which some columns have few values: `text`, some of it long, `few`, `flag` and `day`; and `n`, `x`.
const ROWS: &str = "SELECT value AS n, value * 0.5 AS x, \
     CASE WHEN value % 11 = 3 THEN NULL ELSE 'a text of the kind ' || (value % 7) END AS text, \
     nullif(CAST(value * 7919 % 23 AS SMALLINT), 4) AS few, \
     nullif(value % 3, 0) = 1 AS flag, \
     CAST('2026-01-01' AS DATE) + CAST(value % 31 AS INT) AS day";

fn is_coded(plan: &str) -> bool {
    plan.contains("CodedAggregateExec")
}

/// The answer with groups that are found by codes, which must be the same without.
async fn answer(context: &SessionContext, sql: &str) -> String {
    pushed_answer(context, sql, is_coded).await
}

/// Makes chunks short; columns of several share dictionaries.
const SHORT_CHUNKS: &str = "SET vortex.write_memory = 1048576";

/// Writes a file in short chunks.
async fn write(context: &SessionContext, rows: &str, to: impl Display) {
    run(context, SHORT_CHUNKS).await;
    copy(context, rows, to).await;
}

/// A table of files in short chunks.
async fn table_of_chunks<S: AsRef<str>>(context: &SessionContext, queries: &[S], declared: &str) -> TempDir {
    run(context, SHORT_CHUNKS).await;
    table_of(context, queries, declared).await
}

/// A table of files with different dictionaries: that of several chunks is in the layout, that of one in its array.
async fn table(context: &SessionContext) -> TempDir {
    let rows = |(first, last)| format!("{ROWS} FROM generate_series({first}, {last})");
    table_of_chunks(context, &[(0, 39_999), (40_000, 45_999)].map(rows), "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_text_integers_dates_and_booleans_are_found_by_codes() {
    let context = session();
    let _folder = table(&context).await;
    for partitions in [1, 4] {
        run(&context, &format!("SET datafusion.execution.target_partitions = {partitions}")).await;
        for keys in ["text", "few", "flag, day", "flag, few, text"] {
            // Other functions than these are not computed in two steps if one is enough.
            let more = if partitions > 1 { ", bool_or(n % 1000 = 3)" } else { "" };
            let functions = "count(*), count(n), sum(n), avg(n), min(n), sum(x), avg(x), max(upper(substr('abcdefghi', \
                 CAST(n % 9 AS INT)))), sum(n) FILTER (WHERE n % 2 = 0)";
            answer(
                &context,
                &format!("SELECT {keys}, {functions}{more} FROM t GROUP BY {keys} ORDER BY {keys}"),
            )
            .await;
            let filtered =
                "count(*), sum(n) FROM t WHERE n % 4 = 1 AND (text LIKE '%3' OR text IS NULL OR few > 9)";
            let found =
                answer(&context, &format!("SELECT {keys}, {filtered} GROUP BY {keys} ORDER BY {keys}")).await;
            assert!(found.lines().count() > 5, "{found}");
            answer(&context, &format!("SELECT DISTINCT {keys} FROM t ORDER BY {keys}")).await;
            let none =
                answer(&context, &format!("SELECT {keys}, count(*) FROM t WHERE n < 0 GROUP BY {keys}"))
                    .await;
            assert_eq!(none.lines().count(), 4, "{none}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_are_dealt_out_to_partitions_have_codes() {
    let context = session_with(SessionConfig::new().with_target_partitions(4));
    let _folder = table_of_chunks(&context, &[format!("{ROWS} FROM generate_series(1, 40000)")], "").await;
    run(&context, "SET datafusion.optimizer.repartition_file_scans = false").await;
    for keys in ["text", "few", "text, few"] {
        let sql = format!("SELECT {keys}, count(*), sum(n) FROM t GROUP BY {keys} ORDER BY {keys}");
        assert!(plan(&context, &sql).await.contains("RoundRobinBatch"));
        answer(&context, &sql).await;
    }
}

#[tokio::test]
async fn floats_are_added_in_the_order_of_rows() {
    let context = session_with(SessionConfig::new().with_target_partitions(1));
    let _folder = table(&context).await;
    let functions = "sum(x / 7), avg(x / 7), max(n)";
    answer(&context, &format!("SELECT text, few, {functions} FROM t GROUP BY text, few")).await;
}

#[tokio::test]
async fn keys_that_functions_read_too_or_have_many_values_and_limited_groups_are_not_coded() {
    let context = session();
    let _folder = table(&context).await;
    for partitions in [1, 4] {
        run(&context, &format!("SET datafusion.execution.target_partitions = {partitions}")).await;
        for sql in [
            "SELECT text, max(text) FROM t GROUP BY text",
            "SELECT text, count(*) FILTER (WHERE text LIKE '%3') FROM t GROUP BY text",
            "SELECT n, count(*) FROM t GROUP BY n",
            "SELECT x, count(*) FROM t GROUP BY x",
            "SELECT text, few, count(*) FROM t GROUP BY ROLLUP (text, few)",
            "SELECT upper(text), count(*) FROM t GROUP BY 1",
            "SELECT text, array_agg(n ORDER BY n) FROM t GROUP BY text",
            "SELECT text FROM t GROUP BY text LIMIT 3",
            "SELECT text, sum(n) FILTER (WHERE n > (SELECT avg(few) FROM t)) FROM t GROUP BY text",
        ] {
            assert!(!is_coded(&plan(&context, sql).await), "{sql}");
            show(&context, sql).await;
        }
    }
}

#[tokio::test]
async fn a_file_whose_keys_have_many_values_is_grouped_as_well() {
    let context = session();
    let few = format!("{ROWS} FROM generate_series(1, 40000)");
    let files = [
        few.as_str(),
        "SELECT value AS n, 'text ' || value AS text, CAST(value - 5000 AS SMALLINT) AS few \
         FROM generate_series(1, 10000)",
        // Another type, and a file without the column.
        "SELECT value AS n, CAST('a' AS BYTEA) AS text FROM generate_series(1, 30)",
        "SELECT value AS n FROM generate_series(1, 30)",
    ];
    let _folder = table_of_chunks(&context, &files, "(n BIGINT, text VARCHAR, few SMALLINT)").await;
    let found = answer(&context, "SELECT text, count(*), sum(n) FROM t GROUP BY text ORDER BY text").await;
    assert_eq!(found.lines().count(), 4 + 10_000 + 9, "{}", &found[..500]);
}

#[tokio::test]
async fn integers_and_times_of_all_types_have_codes() {
    let context = session();
    let rows = "SELECT value AS n, arrow_cast(value % 256 - 128, 'Int8') AS tiny, \
         arrow_cast('18446744073709551000', 'UInt64') + arrow_cast(value % 9, 'UInt64') AS great, \
         arrow_cast(value % 11, 'UInt16') AS u, \
         arrow_cast(nullif(value % 7, 2), 'Timestamp(Second, Some(\"+02:00\"))') AS zoned, \
         arrow_cast(arrow_cast(value % 5, 'Int32'), 'Time32(Second)') AS time, arrow_cast(value % 3, 'Date64') AS date64 \
         FROM generate_series(5, 20004)";
    let _folder = table_of(&context, &[rows], "").await;
    for keys in ["tiny", "u", "zoned", "time", "date64", "tiny, zoned", "time, u, date64"] {
        let sql = format!("SELECT {keys}, count(*), sum(n) FROM t GROUP BY {keys} ORDER BY {keys}");
        answer(&context, &sql).await;
    }
    // These do not fit into signed integers of 64 bits.
    let sql = "SELECT great, count(*) FROM t GROUP BY great ORDER BY great";
    assert!(!is_coded(&plan(&context, sql).await));
    assert!(show(&context, sql).await.contains("18446744073709551008"));
}

#[tokio::test]
async fn indices_that_do_not_fit_into_a_narrow_dictionary_do_no_harm() {
    let (context, folder) = (session(), tempfile::tempdir().unwrap());
    let place = format!("{}/a.vortex", folder.path().display());
    let rows =
        "SELECT value AS n, 'one of many texts ' || (value % 300) AS text FROM generate_series(1, 40000)";
    write(&context, rows, &place).await;
    let packed = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let fields = vec![Field::new("text", packed, true), Field::new("n", DataType::Int64, true)];
    let told = VortexReadOptions::new().with_schema(Arc::new(Schema::new(fields)));
    context.register_vortex_with("t", &[&place], told).await.unwrap();
    let sql = "SELECT text, count(*) FROM t WHERE n % 300 BETWEEN 280 AND 290 GROUP BY text ORDER BY text";
    let found = answer(&context, sql).await;
    assert_eq!(found.lines().count(), 4 + 11, "{found}");
}

#[tokio::test]
async fn a_column_is_read_as_values_beside_its_dictionary() {
    let context = session();
    let _folder = table(&context).await;
    let sql = "SELECT text, k, count(*) FROM (SELECT text, arrow_cast(text, 'Dictionary(UInt32, Utf8View)') AS k FROM t) \
         GROUP BY text, k ORDER BY text, k";
    let found = show(&context, sql).await;
    run(&context, "SET vortex.projection_pushdown = false").await;
    assert_eq!(show(&context, sql).await, found);
    assert_eq!(found.lines().count(), 4 + 8, "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_runs_again_begins_with_no_groups() {
    let context = session();
    let _folder = table(&context).await;
    let sql = "WITH RECURSIVE r AS (SELECT CAST(0 AS BIGINT) AS k UNION ALL SELECT k + 1 FROM r, \
         (SELECT text, count(*) AS c FROM t GROUP BY text) AS g WHERE k < 3 AND g.text LIKE '%3') SELECT k FROM r ORDER BY k";
    let found = show(&context, sql).await;
    assert_eq!(found.lines().count(), 4 + 4, "{found}");
    let plan = physical(&context, "SELECT text, count(*) FROM t GROUP BY text").await;
    for _ in 0..2 {
        let rows = run_again(&plan, &context).await.unwrap();
        assert_eq!(rows.iter().map(|rows| rows.num_rows()).sum::<usize>(), 8);
    }
}

#[tokio::test]
async fn functions_that_round_when_states_are_merged_are_computed_at_once() {
    let context = session_with(SessionConfig::new().with_target_partitions(1));
    let _folder = table(&context).await;
    let sql = "SELECT text, var_pop(x * 1e200) FROM t WHERE n < 7 GROUP BY text ORDER BY text";
    assert!(!is_coded(&plan(&context, sql).await));
    let found = show(&context, sql).await;
    assert!(found.contains("0.0") && !found.contains("NaN"), "{found}");
}

#[tokio::test]
async fn an_infinity_after_nan_is_an_extreme() {
    let context = session_with(SessionConfig::new().with_target_partitions(1));
    let values = "(true, CAST('NaN' AS DOUBLE)), (true, CAST('-inf' AS DOUBLE))";
    let _folder = table_of(&context, &[format!("SELECT * FROM (VALUES {values}) v (b, f)")], "").await;
    let found = show(&context, "SELECT b, max(f) AS max, min(-f) AS min FROM t GROUP BY b").await;
    assert!(found.contains("| true | -inf | inf |"), "{found}");
}

#[tokio::test]
async fn text_that_only_some_files_store_as_dictionaries_has_no_codes() {
    let context = session();
    let files = [
        "SELECT value AS n, 'text ' || value AS text FROM generate_series(1, 40000)",
        &format!("SELECT n, text FROM ({ROWS} FROM generate_series(1, 40000))"),
    ];
    let folder = table_of_chunks(&context, &files, "").await;
    let sql = "SELECT text, count(*) FROM t GROUP BY text";
    assert!(!is_coded(&plan(&context, sql).await));
    create(&context, "t", folder.path().join("1.vortex").display()).await;
    assert!(is_coded(&plan(&context, sql).await));
}

#[tokio::test]
async fn partition_columns_and_open_files_have_codes() {
    let (context, folder) = (session(), tempfile::tempdir().unwrap());
    for day in ["x", "y"] {
        let place = format!("{}/p={day}/a.vortex", folder.path().display());
        write(&context, &format!("{ROWS} FROM generate_series(1, 40000)"), &place).await;
    }
    let place = folder.path().display();
    create(&context, "t PARTITIONED BY (p)", format!("{place}/")).await;
    for keys in ["p", "p, text", "few, p"] {
        answer(&context, &format!("SELECT {keys}, count(*), sum(n) FROM t GROUP BY {keys} ORDER BY {keys}"))
            .await;
    }
    let open = VortexFile::open_path(format!("{place}/p=x/a.vortex")).await.unwrap();
    context.register_table("open", Arc::new(VortexTable::try_new(vec![open]).unwrap())).unwrap();
    answer(&context, "SELECT text, avg(n) FROM open GROUP BY text ORDER BY text").await;
}

#[tokio::test]
async fn partition_columns_of_other_types_are_grouped_as_well() {
    let (context, folder) = (session(), tempfile::tempdir().unwrap());
    let place = folder.path().display();
    for (q, d, z) in [(1, "2026-01-01", true), (7, "2026-01-03", false)] {
        let to = format!("{place}/q={q}/d={d}/z={z}/a.vortex");
        write(&context, &format!("SELECT n, text FROM ({ROWS} FROM generate_series(1, 40000))"), to).await;
    }
    let table = "t (n BIGINT, text VARCHAR, q INT, d DATE, z BOOLEAN) PARTITIONED BY (q, d, z)";
    create(&context, table, format!("{place}/")).await;
    for keys in ["z", "z, text", "q", "text, d", "z, text, q"] {
        let sql = format!("SELECT {keys}, count(*), sum(n) FROM t GROUP BY {keys} ORDER BY {keys}");
        let found = show(&context, &sql).await;
        run(&context, "SET vortex.aggregate_pushdown = false").await;
        assert_eq!(show(&context, &sql).await, found, "{sql}");
        run(&context, "SET vortex.aggregate_pushdown = true").await;
    }
    answer(&context, "SELECT z, text, avg(n) FROM t GROUP BY z, text ORDER BY z, text").await;
}

#[tokio::test]
async fn keys_have_the_type_of_the_table() {
    let (context, folder) = (session(), tempfile::tempdir().unwrap());
    let place = format!("{}/a.vortex", folder.path().display());
    write(&context, &format!("{ROWS} FROM generate_series(1, 40000)"), &place).await;
    let packed = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    for data_type in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View, DataType::Binary, packed] {
        let fields =
            vec![Field::new("text", data_type.clone(), true), Field::new("n", DataType::Int32, true)];
        let told = VortexReadOptions::new().with_schema(Arc::new(Schema::new(fields)));
        let context = session();
        context.register_vortex_with("t", &[&place], told).await.unwrap();
        let sql = "SELECT text, sum(n), arrow_typeof(text) FROM t GROUP BY text ORDER BY 2";
        let found = answer(&context, sql).await;
        assert!(found.contains(&data_type.to_string()), "{found}");
    }
}

#[tokio::test]
async fn groups_begin_anew_when_there_is_no_memory_for_more() {
    let context = session();
    let _folder = table(&context).await;
    let plan = physical(&context, "SELECT text, count(*) FROM t GROUP BY text").await;
    let mut coded = &plan;
    while coded.name() != "CodedAggregateExec" {
        coded = coded.children().into_iter().next().expect("groups are found by codes");
    }
    let states = |task: Arc<TaskContext>| async {
        let states = collect(Arc::clone(coded), task).await.unwrap();
        let counts = states.iter().flat_map(|states| states.column(1).as_primitive::<Int64Type>().values());
        (counts.clone().count(), counts.sum::<i64>())
    };
    let (groups, rows) = states(context.task_ctx()).await;
    assert!(rows == 46_000 && groups <= 8 * 4, "{groups}");
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc().unwrap();
    let (groups, rows) = states(Arc::new(TaskContext::default().with_runtime(runtime))).await;
    assert!(rows == 46_000 && groups > 8 * 4, "{groups}");
    assert_eq!(pool.reserved(), 0);
}
