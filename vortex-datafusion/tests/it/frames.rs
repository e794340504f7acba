//! Reading and writing without SQL.

use std::fs;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext, col, lit};
use vortex_core::{Release, VortexFile};
use vortex_datafusion::{
    VortexContextExt as _, VortexDataFrameExt as _, VortexOptions, VortexReadOptions, VortexSessionExt as _,
    VortexWriteOptions, WrittenFile, register,
};

use crate::files::{create, file, number, plan, run, session, show};

/// Writes the numbers up to `last`; returns how many.
async fn write(context: &SessionContext, last: u64, to: &str, options: Option<VortexOptions>) -> u64 {
    let numbers = context.sql(&format!("SELECT value AS n FROM generate_series(1, {last})")).await.unwrap();
    let told = match options {
        Some(options) => VortexWriteOptions::new().with_options(options),
        None => VortexWriteOptions::new(),
    };
    row_count(&numbers.write_vortex(to, told).await.unwrap())
}

fn row_count(files: &[WrittenFile]) -> u64 {
    files.iter().map(|file| file.summary.row_count()).sum()
}

#[tokio::test]
async fn files_in_folders_are_written_and_read_with_the_names_of_folders_as_columns() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().display();
    let context = session();
    for (day, rows) in [(1, 1000), (2, 2000)] {
        assert_eq!(write(&context, rows, &format!("{base}/day={day}/"), None).await, rows);
    }
    let all = context.read_vortex(&format!("{base}/")).await.unwrap();
    assert_eq!(all.schema().field_names().len(), 2);
    assert_eq!(all.clone().count().await.unwrap(), 3000);
    assert_eq!(all.filter(col("day").eq(lit("2"))).unwrap().count().await.unwrap(), 2000);
    let matched = context.read_vortex(&format!("{base}/day=1/*.vortex")).await.unwrap();
    assert_eq!(matched.count().await.unwrap(), 1000);
}

#[tokio::test]
async fn rows_are_written_into_folders_named_after_columns() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("{}/", folder.path().display());
    let context = session();
    let rows = "SELECT value AS n, value % 2 AS odd, value % 3 AS rest FROM generate_series(1, 600)";
    let rows = context.sql(rows).await.unwrap();
    let by = |columns: &[&str]| VortexWriteOptions::new().with_partition_by(columns.iter().copied());
    let missing = rows.clone().write_vortex(&place, by(&["even"])).await.unwrap_err();
    assert!(missing.to_string().contains("even"), "{missing}");
    let one_file = by(&["odd"]).with_single_file_output(true);
    let contradiction = rows.clone().write_vortex(&place, one_file).await.unwrap_err().to_string();
    assert!(contradiction.contains("are not one file"), "{contradiction}");
    assert_eq!(row_count(&rows.write_vortex(&place, by(&["odd", "rest"])).await.unwrap()), 600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    assert_eq!(fs::read_dir(folder.path().join("odd=1/rest=2")).unwrap().count(), 1);
    context.register_vortex("numbers", &place).await.unwrap();
    let sums = show(&context, "SELECT count(*), sum(n) FROM numbers WHERE odd = '1' AND rest = '2'").await;
    // 5, 11, ..., 599
    assert!(sums.contains("| 100 ") && sums.contains("| 30200 "), "{sums}");
}

#[tokio::test]
async fn the_files_that_were_written_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("{}/", folder.path().display());
    let context = session();
    let rows = context.sql("SELECT value AS n, value % 2 AS odd FROM generate_series(1, 600)").await.unwrap();
    let by_odd = VortexWriteOptions::new().with_partition_by(["odd"]);
    let mut files = rows.clone().write_vortex(&place, by_odd).await.unwrap();
    files.sort_by(|left, right| left.path.cmp(&right.path));
    let [even, odd] = files.as_slice() else { panic!("{files:?}") };
    assert!(even.path.as_ref().contains("odd=0/") && odd.path.as_ref().contains("odd=1/"));
    assert_eq!(odd.summary.row_count(), 300);
    assert_eq!(odd.partition_values, [ScalarValue::Int64(Some(1))]);
    let one = folder.path().join("one.vortex");
    let files = rows.write_vortex(&one.to_string_lossy(), VortexWriteOptions::new()).await.unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].partition_values, []);
    assert_eq!(one.metadata().unwrap().len(), files[0].summary.file_size());
}

#[tokio::test]
async fn values_of_partition_columns_have_their_types_whatever_folders_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("{}/", folder.path().display());
    let context = session();
    let values =
        "DATE '2026-11-26' AS day, 'a/b=c %20 ä' AS name, 2.5 AS x, true AS ok, arrow_cast(7, 'UInt8') AS u";
    // The noise takes some 700 KB.
    let rows = format!("SELECT {values}, random() AS noise FROM generate_series(1, 100000)");
    let rows = context.sql(&rows).await.unwrap();
    let small = VortexOptions::default().with(|options| options.target_file_size = 100_000);
    let options =
        VortexWriteOptions::new().with_partition_by(["day", "name", "x", "ok", "u"]).with_options(small);
    let files = rows.write_vortex(&place, options).await.unwrap();
    assert!(files.len() > 1, "the first file is full");
    for file in &files {
        let expected = [
            ScalarValue::Date32(Some(20783)),
            ScalarValue::from("a/b=c %20 ä"),
            ScalarValue::from(2.5),
            ScalarValue::from(true),
            ScalarValue::UInt8(Some(7)),
        ];
        assert_eq!(file.partition_values, expected, "{}", file.path);
    }
    assert_eq!(row_count(&files), 100_000);
}

#[tokio::test]
async fn rows_are_written_in_an_order_that_files_record() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("{}/sorted.vortex", folder.path().display());
    let context = session();
    let rows = context.sql("SELECT value % 100 AS n FROM generate_series(1, 1000)").await.unwrap();
    let sorted = VortexWriteOptions::new().with_sort_by(vec![col("n").sort(false, false)]);
    rows.write_vortex(&place, sorted).await.unwrap();
    context.register_vortex("t", &place).await.unwrap();
    let ordered = "SELECT n FROM t ORDER BY n DESC NULLS LAST";
    let plan = plan(&context, ordered).await;
    assert!(!plan.contains("SortExec"), "{plan}");
    assert_eq!(number(&context, "SELECT n FROM t LIMIT 1").await, 99);
}

#[tokio::test]
async fn the_name_says_whether_there_is_one_file_unless_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let place = |name: &str| format!("{}/{name}", folder.path().display());
    for (name, single_file, is_file) in [
        ("a.vortex", None, true),
        ("b", None, true),
        ("c/", None, false),
        ("d.vortex", Some(false), false),
        ("e", Some(true), true),
    ] {
        let rows = context.sql("SELECT 1 AS n").await.unwrap();
        let options = VortexWriteOptions::new();
        let options = match single_file {
            Some(single_file) => options.with_single_file_output(single_file),
            None => options,
        };
        assert_eq!(row_count(&rows.write_vortex(&place(name), options).await.unwrap()), 1);
        assert_eq!(folder.path().join(name).is_file(), is_file, "{name}");
    }
}

#[tokio::test]
async fn a_single_file_is_not_cut_into_several() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.vortex").display().to_string();
    let rows = session().sql("SELECT 1 AS n").await.unwrap();
    let small = VortexOptions::default().with(|options| options.target_file_size = 1000);
    let options = VortexWriteOptions::new().with_options(small);
    let refused = rows.write_vortex(&path, options).await.unwrap_err().to_string();
    assert!(refused.contains("target_file_size"), "{refused}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_name_is_registered_once() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("{}/", folder.path().display());
    let context = session();
    write(&context, 10, &place, None).await;
    context.register_vortex("numbers", &place).await.unwrap();
    assert!(show(&context, "SELECT sum(n) FROM numbers").await.contains("| 55 "));
    let error = context.register_vortex("numbers", &place).await.unwrap_err().to_string();
    assert!(error.contains("numbers") && error.contains("already exists"), "{error}");
}

#[tokio::test]
async fn settings_of_the_session_apply_unless_options_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    run(&context, "SET vortex.checksums = true").await;
    for (name, options, expected) in
        [("session", None, true), ("given", Some(VortexOptions::default()), false)]
    {
        let path = folder.path().join(format!("{name}.vortex"));
        write(&context, 10, path.to_str().unwrap(), options).await;
        let file = VortexFile::open_path(&path).await.unwrap();
        assert_eq!(file.footer().has_checksums(), expected, "{name}");
    }
}

#[tokio::test]
async fn the_configuration_of_a_session_holds_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let options = VortexOptions::default().with(|options| options.checksums = true);
    let config = SessionConfig::new().with_option_extension(options.clone());
    let built = SessionStateBuilder::new().with_config(config.clone()).with_default_features().with_vortex();
    let registered = SessionContext::new_with_config(config);
    register(&registered).unwrap();
    for context in [SessionContext::new_with_state(built.build()), registered] {
        assert_eq!(VortexOptions::from_session(context.copied_config().options()), options);
        let path = folder.path().join("a.vortex");
        write(&context, 10, path.to_str().unwrap(), None).await;
        assert!(VortexFile::open_path(&path).await.unwrap().footer().has_checksums());
    }
}

#[tokio::test]
async fn places_without_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for place in ["none.vortex", "none/", "none/*.vortex"] {
        let place = folder.path().join(place);
        let error = session().read_vortex(place.to_str().unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("none"), "{}: {error}", place.display());
    }
}

#[tokio::test]
async fn a_session_without_vortex_reads_no_files() {
    let path = file("tpch_orders");
    let error = SessionContext::new().read_vortex(path.to_str().unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("does not know Vortex files"), "{error}");
}

#[tokio::test]
async fn a_query_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().display();
    for to in [format!("{base}/x.vortex"), format!("{base}/x/")] {
        let broken = "SELECT 1 / (value - 50000) AS n FROM generate_series(1, 100000)";
        let rows = session().sql(broken).await.unwrap();
        let error = rows.write_vortex(&to, VortexWriteOptions::new()).await.unwrap_err().to_string();
        assert!(error.to_lowercase().contains("divide by zero"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{to}");
    }
}

#[tokio::test]
async fn a_table_has_the_columns_that_it_is_told_also_those_of_folders() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("{}/", folder.path().display());
    let context = session();
    for (day, rows) in [(1, 10), (2, 20)] {
        write(&context, rows, &format!("{place}day={day}/"), None).await;
    }
    fs::write(folder.path().join("day=2/broken.vortex"), "no Vortex file").unwrap();
    let column = |name: &str, data_type| Field::new(name, data_type, true);
    let schema = Arc::new(Schema::new(vec![
        column("day", DataType::Int32),
        column("n", DataType::Decimal128(20, 1)),
        column("later", DataType::Utf8),
    ]));
    let told = VortexReadOptions::new().with_schema(schema).with_partition_columns(["day"]);
    // No file is opened before one has to be read.
    context.register_vortex_with("numbers", &[&place], told).await.unwrap();
    let first = "SELECT sum(n), count(later), count(*), sum(day) FROM numbers WHERE day = 1";
    let first = show(&context, first).await;
    assert!(first.contains("| 55.0 ") && first.contains("| 0 ") && first.contains("| 10 "), "{first}");
    let all = context.sql("SELECT sum(n) FROM numbers").await.unwrap().collect().await;
    assert!(all.unwrap_err().to_string().contains("broken.vortex"));
}

#[tokio::test]
async fn a_table_of_several_places_has_options_and_an_order_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let places: Vec<String> =
        ["a", "b"].iter().map(|name| format!("{}/{name}.vortex", folder.path().display())).collect();
    for place in &places {
        write(&context, 10, place, None).await;
    }
    let mut options = VortexOptions::default();
    options.predicate_pushdown = false;
    options.min_reader = Some(Release::OLDEST);
    let order = vec![col("n").sort(true, false)];
    let told = VortexReadOptions::new().with_options(options).with_order(order);
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    context.register_vortex_with("numbers", &places, told).await.unwrap();
    let above = "SELECT n FROM numbers WHERE n > 7 ORDER BY n";
    let plan = plan(&context, above).await;
    assert!(plan.contains("FilterExec") && !plan.contains("SortExec"), "{plan}");
    assert_eq!(show(&context, above).await.matches("| 9 ").count(), 2);
    let none = context.read_vortex_with(&[], VortexReadOptions::new()).await.unwrap_err().to_string();
    assert!(none.contains("place"), "{none}");
}

#[tokio::test]
async fn a_table_has_options_of_its_own_in_a_session_with_a_segment_cache() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let place = format!("{}/a.vortex", folder.path().display());
    write(&context, 10, &place, None).await;
    run(&context, "SET vortex.segment_cache = '1 MiB'").await;
    let mut options = VortexOptions::from_session(context.state().config_options());
    options.predicate_pushdown = false;
    let told = VortexReadOptions::new().with_options(options);
    context.register_vortex_with("t", &[&place], told).await.unwrap();
    assert_eq!(number(&context, "SELECT count(*) FROM t WHERE n > 7").await, 3);
}

#[tokio::test]
async fn a_file_has_the_name_that_it_is_given_whatever_that_looks_like() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    for name in ["noext", "sales [2024].vortex", "what?.vortex", "a*b.vortex", "a:b.vortex"] {
        let path = folder.path().join(name);
        assert_eq!(write(&context, 7, path.to_str().unwrap(), None).await, 7);
        assert!(path.is_file(), "{name}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    let folder_of_name = folder.path().join("a[1]/");
    assert_eq!(write(&context, 7, folder_of_name.to_str().unwrap(), None).await, 7);
    assert!(folder_of_name.is_dir());
}

#[tokio::test]
async fn places_with_different_columns_have_a_table_together() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let place = |name: &str| format!("{}/{name}", folder.path().display());
    for (name, sql) in [("a.vortex", "SELECT 1 AS n"), ("b/c.vortex", "SELECT 2.5 AS m, 3 AS n")] {
        let rows = context.sql(sql).await.unwrap();
        rows.write_vortex(&place(name), VortexWriteOptions::new()).await.unwrap();
    }
    let (one, all) = (place("a.vortex"), [place("b/"), place("a.v*")]);
    context.register_vortex_with("t", &[&all[0], &all[1]], VortexReadOptions::new()).await.unwrap();
    let rows = show(&context, "SELECT m, n FROM t ORDER BY n").await;
    assert!(rows.contains("|     | 1 |") && rows.contains("| 2.5 | 3 |"), "{rows}");
    for (places, complaint) in
        [([&one, &one], "named twice"), ([&one, &"memory://x/y".to_owned()], "different stores")]
    {
        let places = places.map(String::as_str);
        let error =
            context.read_vortex_with(&places, VortexReadOptions::new()).await.unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
}

/// What files store under a key.
async fn stored(path: &std::path::Path, key: &str) -> Option<String> {
    let file = VortexFile::open_path(path).await.unwrap();
    let value = file.user_metadata(key).await.unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[tokio::test]
async fn files_get_the_metadata_of_statements_frames_and_tables() {
    let folder = tempfile::tempdir().unwrap();
    let (context, base) = (session(), folder.path().display());
    let path = |name: &str| folder.path().join(name);
    let options = "OPTIONS ('metadata::station' 'Oslo', 'vortex.metadata::Unit' 'K; m', level 'fast')";
    run(
        &context,
        &format!(
            "COPY (SELECT value AS a FROM generate_series(1, 9) ORDER BY a) TO '{base}/a.vortex' {options}"
        ),
    )
    .await;
    assert_eq!(stored(&path("a.vortex"), "station").await.as_deref(), Some("Oslo"));
    assert_eq!(
        stored(&path("a.vortex"), "unit").await.as_deref(),
        Some("K; m"),
        "keys of SQL are in lower case"
    );
    assert!(stored(&path("a.vortex"), "vortex-datafusion.order").await.is_some());

    let told = VortexWriteOptions::new()
        .with_user_metadata("Station", "Bergen")
        .with_user_metadata("Station", "Oslo");
    let rows = context.sql("SELECT 1 AS a").await.unwrap();
    rows.clone().write_vortex(path("b.vortex").to_str().unwrap(), told).await.unwrap();
    assert_eq!(stored(&path("b.vortex"), "Station").await.as_deref(), Some("Oslo"));
    let reserved = VortexWriteOptions::new().with_user_metadata("vortex-datafusion.order", "x");
    let error =
        rows.write_vortex(path("c.vortex").to_str().unwrap(), reserved).await.unwrap_err().to_string();
    assert!(error.contains("are reserved"), "{error}");

    create(&context, "t (a INT) OPTIONS ('metadata::station' 'Bodø')", format!("{base}/t/")).await;
    run(&context, "INSERT INTO t VALUES (1)").await;
    let written = fs::read_dir(path("t")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(stored(&written, "station").await.as_deref(), Some("Bodø"));
}
