//! `COPY`, `INSERT INTO`: reading returns what was written.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray as _, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    Float32Array, Float64Array, Int8Array, Int32Array, Int64Array, LargeStringArray, ListArray, RecordBatch,
    StringArray, StringViewArray, StructArray, Time64MicrosecondArray, TimestampMillisecondArray,
    UInt16Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use vortex_core::{Level, Release};
use vortex_datafusion::{
    VortexDataFrameExt as _, VortexOptions, VortexSink, VortexWriteOptions, enable_url_tables,
};

use crate::files::{copy, create, error, physical, plan, run, session, session_within, show};

/// A batch with columns of many types, `rows` long.
fn many_types(rows: i64) -> RecordBatch {
    let numbers = || 0..rows;
    let text = |at: i64| format!("text {}", at % 100);
    let maybe = |at: i64| (at % 7 != 0).then_some(at);
    let keyed: DictionaryArray<Int32Type> =
        numbers().map(|at| ["red", "green", "blue"][at as usize % 3]).collect();
    let point = StructArray::from(vec![
        (
            Arc::new(Field::new("x", DataType::Int32, true)),
            Arc::new(Int32Array::from_iter(numbers().map(|at| maybe(at).map(|at| at as i32)))) as ArrayRef,
        ),
        (
            Arc::new(Field::new("y", DataType::Utf8, true)),
            Arc::new(StringArray::from_iter(numbers().map(|at| maybe(at).map(text)))) as ArrayRef,
        ),
    ]);
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(
        numbers().map(|at| maybe(at).map(|at| (0..at % 4).map(|item| Some(item as i32)))),
    );
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("flag", Arc::new(numbers().map(|at| maybe(at).map(|at| at % 2 == 0)).collect::<BooleanArray>())),
        ("tiny", Arc::new(numbers().map(|at| maybe(at).map(|at| (at % 100) as i8)).collect::<Int8Array>())),
        ("short", Arc::new(UInt16Array::from_iter_values(numbers().map(|at| at as u16)))),
        ("number", Arc::new(Int64Array::from_iter_values(numbers()))),
        ("unsigned", Arc::new(UInt64Array::from_iter_values(numbers().map(|at| u64::MAX - at as u64)))),
        ("single", Arc::new(Float32Array::from_iter_values(numbers().map(|at| at as f32 / 7.0)))),
        (
            "double",
            Arc::new(numbers().map(|at| maybe(at).map(|at| at as f64 / 3.0)).collect::<Float64Array>()),
        ),
        ("view", Arc::new(numbers().map(|at| maybe(at).map(text)).collect::<StringViewArray>())),
        ("string", Arc::new(StringArray::from_iter_values(numbers().map(text)))),
        ("large", Arc::new(LargeStringArray::from_iter_values(numbers().map(text)))),
        ("bytes", Arc::new(BinaryArray::from_iter_values(numbers().map(|at| at.to_be_bytes())))),
        ("keyed", Arc::new(keyed)),
        ("day", Arc::new(Date32Array::from_iter_values(numbers().map(|at| at as i32)))),
        ("time", Arc::new(Time64MicrosecondArray::from_iter_values(numbers()))),
        (
            "moment",
            Arc::new(
                TimestampMillisecondArray::from_iter_values(numbers().map(|at| at * 977))
                    .with_timezone("UTC"),
            ),
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from_iter_values(numbers().map(i128::from))
                    .with_precision_and_scale(12, 2)
                    .unwrap(),
            ),
        ),
        ("point", Arc::new(point)),
        ("list", Arc::new(list)),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), column.null_count() > 0))
        .collect();
    RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns.into_iter().map(|(_, column)| column).collect(),
    )
    .unwrap()
}

/// The relative paths of the files below a folder, including hidden ones.
fn files_in(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn with_source(context: &SessionContext, batches: Vec<RecordBatch>) {
    let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
    context.register_table("source", Arc::new(table)).unwrap();
}

#[tokio::test]
async fn a_copied_file_gives_back_its_rows_and_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.vortex");
    let file = file.display();
    let context = session();
    let batch = many_types(20_000);
    run(&context, "SET vortex.string_type = 'stored'").await;
    with_source(&context, vec![batch.clone()]);
    let count = show(&context, &format!("COPY source TO '{file}'")).await;
    assert!(count.contains("| 20000 |"), "{count}");
    let back = run(&context, &format!("SELECT * FROM '{file}' ORDER BY number")).await;
    assert_eq!(back.schema(), batch.schema());
    assert_eq!(back, batch);
    assert_eq!(files_in(folder.path()), ["all.vortex"]);
}

#[tokio::test]
async fn a_file_without_rows_has_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.vortex");
    let context = session();
    with_source(&context, vec![many_types(3)]);
    copy(&context, "SELECT * FROM source WHERE number < 0", file.display()).await;
    let back = run(&context, &format!("SELECT * FROM '{}'", file.display())).await;
    assert_eq!((back.num_rows(), back.num_columns()), (0, many_types(1).num_columns()));
}

#[tokio::test]
async fn rows_are_inserted_into_tables_of_folders() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    create(&context, "t (a BIGINT NOT NULL, b VARCHAR)", folder.path().join("").display()).await;
    for start in [0, 10] {
        let insert = format!("INSERT INTO t SELECT {start} + value, 'x' FROM generate_series(0, 9)");
        assert!(show(&context, &insert).await.contains("| 10 "));
    }
    run(&context, "INSERT INTO t VALUES (100, NULL), (101, 'y')").await;
    let totals = show(&context, "SELECT count(*), sum(a), count(b) FROM t").await;
    assert!(["| 22 ", "| 391 ", "| 21 "].iter().all(|total| totals.contains(total)), "{totals}");
    assert!(files_in(folder.path()).iter().all(|name| name.ends_with(".vortex")));
    let told = error(&context, "INSERT INTO t VALUES ('a', 'b', 'c')").await;
    assert!(told.contains("expected 2"), "{told}");
}

#[tokio::test]
async fn partition_columns_become_folders_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    with_source(&context, vec![many_types(1000)]);
    let out = folder.path().join("out");
    let copy = format!(
        "COPY (SELECT number, string, tiny % 3 AS kind FROM source WHERE tiny IS NOT NULL)
         TO '{}/' STORED AS VORTEX PARTITIONED BY (kind)",
        out.display()
    );
    run(&context, &copy).await;
    let names = files_in(&out);
    assert_eq!(names.len(), 3);
    assert!((0..3).all(|kind| names[kind].starts_with(&format!("kind={kind}/"))), "{names:?}");
    create(&context, "t PARTITIONED BY (kind)", out.join("").display()).await;
    let differing = "SELECT count(*) FROM
        (SELECT number, string, CAST(kind AS BIGINT) AS kind FROM t
         EXCEPT SELECT number, string, CAST(tiny % 3 AS BIGINT) FROM source)";
    assert!(show(&context, differing).await.contains("| 0 "));
    run(&context, "INSERT INTO t SELECT 5000 + value, 'new', '9' FROM generate_series(1, 5)").await;
    assert_eq!(files_in(&out).len(), 4);
    assert!(show(&context, "SELECT count(*) FROM t WHERE kind = '9'").await.contains("| 5 "));
}

#[tokio::test]
async fn a_full_file_is_followed_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    run(&context, "SET datafusion.execution.minimum_parallel_output_files = 1").await;
    run(&context, "SET vortex.target_file_size = 100000").await;
    let out = folder.path().display();
    let rows = "SELECT value AS n, random() AS noise FROM generate_series(1, 100000)";
    run(&context, &format!("COPY ({rows}) TO '{out}/' STORED AS VORTEX")).await;
    // The noise takes some 700 KB, and a batch of 8,192 rows nearly 60.
    let names = files_in(folder.path());
    assert!(names.len() > 3 && names.len() < 10, "{names:?}");
    let totals = show(&context, &format!("SELECT count(*), sum(n) FROM '{out}/'")).await;
    assert!(totals.contains("| 100000 ") && totals.contains("| 5000050000 "), "{totals}");
}

#[tokio::test]
async fn files_that_datafusion_ends_early_do_not_wait_in_memory_for_the_last_row() {
    let folder = tempfile::tempdir().unwrap();
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(16 << 20));
    let context = session_within(&pool);
    run(&context, "SET datafusion.execution.minimum_parallel_output_files = 1").await;
    run(&context, "SET datafusion.execution.soft_max_rows_per_output_file = 20000").await;
    let out = folder.path().display();
    // 100 files of some 500 KB.
    let rows = "SELECT value AS n, random() AS a, random() AS b FROM generate_series(1, 2000000)";
    run(&context, &format!("COPY ({rows}) TO '{out}/' STORED AS VORTEX")).await;
    let names = files_in(folder.path());
    assert!(names.len() > 50, "{names:?}");
    assert_eq!(pool.reserved(), 0);
    let totals = show(&session(), &format!("SELECT count(*), sum(n) FROM '{out}/'")).await;
    assert!(totals.contains("| 2000000 ") && totals.contains("| 2000001000000 "), "{totals}");
}

#[tokio::test]
async fn one_file_cannot_be_cut_into_several() {
    let folder = tempfile::tempdir().unwrap();
    let (context, out) = (session(), folder.path().display());
    let sized = |to: &str, size: &str| {
        let options = format!("OPTIONS (target_file_size '{size}')");
        format!("COPY (SELECT 1 AS a) TO '{out}/{to}' STORED AS VORTEX {options}")
    };
    let message = error(&context, &sized("x.vortex", "1k")).await;
    assert!(message.contains("x.vortex is a single file") && message.contains("ends with `/`"), "{message}");
    assert!(files_in(folder.path()).is_empty());
    for (to, size) in [("x.vortex", "0"), ("parts/", "1k"), ("others", "1k")] {
        run(&context, &sized(to, size)).await;
    }
    // A setting of the session is for those statements that write to folders.
    run(&context, "SET vortex.target_file_size = '1k'").await;
    copy(&context, "SELECT 1 AS a", format!("{out}/y.vortex")).await;
    assert_eq!(files_in(folder.path()).len(), 4);
}

#[tokio::test]
async fn the_order_of_the_input_is_recorded_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sorted.vortex");
    let file = file.display();
    let context = session();
    run(&context, "SET vortex.string_type = 'stored'").await;
    with_source(&context, vec![many_types(5000)]);
    let rows = "SELECT string, number, double FROM source ORDER BY string DESC, number";
    copy(&context, rows, &file).await;
    create(&context, "t", &file).await;
    run(&context, "SET datafusion.execution.target_partitions = 1").await;
    let sorted = plan(&context, "SELECT * FROM t ORDER BY string DESC, number").await;
    assert!(!sorted.contains("SortExec") && sorted.contains("output_ordering=[string@0 DESC"), "{sorted}");
    let other = plan(&context, "SELECT * FROM t ORDER BY number").await;
    assert!(other.contains("SortExec"), "{other}");
    assert_eq!(run(&context, "SELECT * FROM t").await, run(&context, rows).await);
}

#[tokio::test]
async fn an_order_that_rows_do_not_have_is_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let context = session();
    run(&context, "SET datafusion.execution.target_partitions = 1").await;
    fs::write(path("a.csv"), "a,b\n1,2\n1,1\n2,9\n").unwrap();
    let declare = format!(
        "CREATE EXTERNAL TABLE wrong (a BIGINT, b BIGINT) STORED AS CSV WITH ORDER (a, b) LOCATION '{}'",
        path("a.csv")
    );
    run(&context, &declare).await;
    copy(&context, "SELECT * FROM wrong ORDER BY a, b", &path("a.vortex")).await;
    create(&context, "t", &path("a.vortex")).await;
    let by_both = plan(&context, "SELECT * FROM t ORDER BY a, b").await;
    assert!(
        by_both.contains("SortExec") && by_both.contains("output_ordering=[a@0 ASC NULLS LAST],"),
        "{by_both}"
    );
    let by_first = plan(&context, "SELECT * FROM t ORDER BY a").await;
    assert!(!by_first.contains("SortExec"), "{by_first}");
}

#[tokio::test]
async fn a_declared_order_is_kept_by_inserts() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    create(&context, "t (a BIGINT, b VARCHAR) WITH ORDER (a)", folder.path().join("").display()).await;
    run(&context, "INSERT INTO t VALUES (3, 'c'), (1, 'a'), (2, 'b')").await;
    let inserted = run(&context, "SELECT a FROM t").await;
    assert_eq!(inserted.column(0).as_ref(), &Int64Array::from(vec![1, 2, 3]));
}

#[tokio::test]
async fn options_come_from_the_statement_before_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let noise: Vec<RecordBatch> = (0..4).map(|_| many_types(20_000)).collect();
    with_source(&context, noise);
    let size = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
    let copy = |name: &str, options: &str| {
        format!("COPY source TO '{}' {options}", folder.path().join(name).display())
    };
    run(&context, "SET vortex.level = 'compact'").await;
    run(&context, &copy("compact.vortex", "")).await;
    run(&context, &copy("fast.vortex", "OPTIONS (level 'fast')")).await;
    run(&context, &copy("old.vortex", "OPTIONS ('vortex.min_reader' '0.36', level 'default')")).await;
    assert!(size("compact.vortex") < size("fast.vortex"));
    for wrong in ["levle 'fast'", "level 'faster'", "min_reader 'yesterday'"] {
        let error = error(&context, &copy("x.vortex", &format!("OPTIONS ({wrong})"))).await;
        assert!(error.contains("level") || error.contains("min_reader"), "{wrong}: {error}");
    }
    assert_eq!(files_in(folder.path()), ["compact.vortex", "fast.vortex", "old.vortex"]);
}

#[tokio::test]
async fn analyze_counts_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    with_source(&context, vec![many_types(1000)]);
    let copy = format!("EXPLAIN ANALYZE COPY source TO '{}'", folder.path().join("a.vortex").display());
    let analyzed = show(&context, &copy).await;
    for metric in ["rows_written=1.00 K", "files_written=1", "bytes_written="] {
        assert!(analyzed.contains(metric), "{metric}: {analyzed}");
    }
}

#[tokio::test]
async fn a_sink_tells_what_it_has_written() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let rows = "SELECT value AS n, value % 3 AS k FROM generate_series(1, 1000)";
    let folder_sql = folder.path().display();
    let options = "STORED AS VORTEX PARTITIONED BY (k) OPTIONS (min_reader '0.36')";
    let copy = format!("COPY ({rows}) TO '{folder_sql}/' {options}");
    let plan = physical(&context, &copy).await;
    let exec = plan.downcast_ref::<DataSinkExec>().expect("a sink");
    let sink = exec.sink().downcast_ref::<VortexSink>().expect("one of ours");
    assert!(sink.written().is_empty());
    collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
    let written = sink.written();
    assert!(written.len() >= 3, "a file for each value at least");
    assert_eq!(written.iter().map(|file| file.summary.row_count()).sum::<u64>(), 1000);
    for file in &written {
        let path = std::path::Path::new("/").join(file.path.as_ref());
        assert_eq!(path.metadata().unwrap().len(), file.summary.file_size(), "{}", file.path);
        assert_eq!(file.summary.min_reader(), Some(Release::OLDEST));
        let [ScalarValue::Int64(Some(k))] = file.partition_values[..] else { panic!("{file:?}") };
        assert!(file.path.as_ref().contains(&format!("/k={k}/")), "{}", file.path);
    }
}

#[tokio::test]
async fn checksums_are_verified_by_queries_that_ask_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sums.vortex");
    let context = session();
    let rows = "SELECT value AS n, value * 7919 % 10007 AS m FROM generate_series(1, 50000)";
    run(&context, &format!("COPY ({rows}) TO '{}' OPTIONS (checksums true)", path.display())).await;
    let sql = format!("SELECT sum(m * 2) FROM '{}'", path.display());
    let expected = run(&context, &sql).await;
    run(&context, "SET vortex.verify_checksums = true").await;
    // The footer is known by now, but not its checksums.
    assert_eq!(run(&context, &sql).await, expected);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let fresh = session();
    run(&fresh, "SET vortex.verify_checksums = true").await;
    let error = error(&fresh, &format!("SELECT n, m FROM '{}'", path.display())).await;
    assert!(error.contains("checksum") && error.contains("sums.vortex"), "{error}");
}

/// Rows with columns that climb by uneven steps, which only encodings that decode slowly make small.
const CLIMBING: &str =
    "SELECT value AS id, id AS \"Id2\", named_struct('Lat', id, 'lon', id) AS place, value % 2 AS day
    FROM (SELECT value, value * 1000 + value * value * 7919 % 1009 AS id FROM generate_series(1, 40000))";

/// Which of the columns and fields have chunks that decode slowly, in the files at a place.
async fn compact(context: &SessionContext, place: impl std::fmt::Display) -> String {
    let sql = format!(
        "SELECT DISTINCT path FROM (SELECT unnest(paths) AS path, encodings FROM vortex_segments('{place}'))
         WHERE array_has_any(encodings, ['vortex.pco', 'vortex.zstd']) AND path NOT LIKE '%zones%' ORDER BY path"
    );
    let rows = run(context, &sql).await;
    let paths = rows.column(0).as_string::<i32>();
    let paths = paths.iter().flatten().map(|path| path.split(".data").next().unwrap().to_owned());
    let mut paths: Vec<String> = paths.collect();
    paths.dedup();
    paths.join(" ")
}

#[tokio::test]
async fn columns_are_compressed_at_the_levels_of_the_statement_the_table_or_the_frame() {
    let folder = tempfile::tempdir().unwrap();
    let (context, base) = (session(), folder.path().display());
    enable_url_tables(&context);
    let copy = format!(
        "COPY ({CLIMBING}) TO '{base}/a.vortex' OPTIONS (level 'fast', 'level::id2' 'Compact',
         'level::place' 'compact', 'level::place.lat' 'fast', 'level::day' 'default')"
    );
    run(&context, &copy).await;
    assert_eq!(compact(&context, format!("{base}/a.vortex")).await, "Id2 place.lon");
    let sums = |fields: &str, rows: &str| {
        format!("SELECT sum(id) AS a, sum(\"Id2\") AS b, sum({fields}) AS c FROM {rows}")
    };
    let expected = show(&context, &sums("\"Id2\" * 2", &format!("({CLIMBING})"))).await;
    let read = sums("place['Lat'] + place['lon']", &format!("'{base}/a.vortex'"));
    assert_eq!(show(&context, &read).await, expected);

    let table = "(id BIGINT, other BIGINT, day BIGINT) STORED AS VORTEX PARTITIONED BY (day)";
    let options = "OPTIONS (level 'fast', 'format.level::other' 'compact')";
    run(&context, &format!("CREATE EXTERNAL TABLE t {table} LOCATION '{base}/t/' {options}")).await;
    run(&context, &format!("INSERT INTO t SELECT id, \"Id2\", day FROM ({CLIMBING})")).await;
    assert_eq!(compact(&context, format!("{base}/t/")).await, "other");

    let levels = VortexWriteOptions::new()
        .with_options(VortexOptions::default().with(|options| options.level = Level::Fast))
        .with_column_level("Id2", Level::Compact)
        .with_column_level("place.Lat", Level::Compact);
    let rows = context.sql(CLIMBING).await.unwrap();
    rows.write_vortex(folder.path().join("b.vortex").to_str().unwrap(), levels).await.unwrap();
    assert_eq!(compact(&context, format!("{base}/b.vortex")).await, "Id2 place.Lat");
}

#[tokio::test]
async fn a_level_for_a_column_that_files_will_not_have_is_refused_before_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let (context, base) = (session(), folder.path().display());
    let rows = "SELECT 1 AS a, 2 AS day";
    for (options, complaint) in [
        (
            "OPTIONS ('level::b' 'fast')",
            "level::b: the files that are written have no column `b`; there are: a, day",
        ),
        ("PARTITIONED BY (day) OPTIONS ('level::day' 'fast')", "no column `day`; there are: a"),
        ("OPTIONS ('level::a.b' 'fast')", "no column `a.b`; there are: a, day"),
        ("OPTIONS ('level::a' 'quick')", "`quick` is not a value of the Vortex option `level::a`"),
    ] {
        let error =
            error(&context, &format!("COPY ({rows}) TO '{base}/x/' STORED AS VORTEX {options}")).await;
        assert!(error.contains(complaint), "{error}");
    }
    let table = "CREATE EXTERNAL TABLE t (a BIGINT) STORED AS VORTEX";
    run(&context, &format!("{table} LOCATION '{base}/t/' OPTIONS ('level::b' 'fast')")).await;
    let error = error(&context, "INSERT INTO t VALUES (1)").await;
    assert!(error.contains("no column `b`; there are: a"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let options = "OPTIONS ('level::day' 'fast', 'execution.keep_partition_by_columns' 'true')";
    let copy = format!("COPY ({rows}) TO '{base}/x/' STORED AS VORTEX PARTITIONED BY (day) {options}");
    run(&context, &copy).await;
    let error = crate::files::error(&context, "SET vortex.\"level::a\" = 'fast'").await;
    assert!(error.contains("`level::a` is an option of a table or a COPY"), "{error}");
}
