//! Columns that the names of folders give.

use object_store::ObjectStoreExt as _;
use test_store::TestStore;

use crate::counting::over;
use crate::files::{copy, create, error, number, own_session, run};

#[tokio::test]
async fn the_folders_of_all_places_of_a_table_name_the_same_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), folder.path().display());
    for name in ["named/day=1/x", "plain/y", "hours/hour=1/z", "more/day=2/x"] {
        copy(&context, "SELECT 1 AS a", format!("{place}/{name}.vortex")).await;
    }
    for (first, second) in [("named", "plain"), ("plain", "named"), ("named", "hours")] {
        let table = format!("t STORED AS VORTEX LOCATION ('{place}/{first}/', '{place}/{second}/')");
        let message = error(&context, &format!("CREATE EXTERNAL TABLE {table}")).await;
        assert!(message.contains(first) && message.contains(second) && message.contains("a view of both"));
    }
    run(
        &context,
        &format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION ('{place}/named/', '{place}/more/')"),
    )
    .await;
    assert_eq!(number(&context, "SELECT sum(day::INT) FROM t").await, 3);
    // A place without files is fine: those of tomorrow, for instance.
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    for (first, second) in [("empty", "named"), ("named", "empty")] {
        let table = "e STORED AS VORTEX PARTITIONED BY (day INT)";
        let places = format!("('{place}/{first}/', '{place}/{second}/')");
        run(&context, &format!("CREATE OR REPLACE EXTERNAL TABLE {table} LOCATION {places}")).await;
        assert_eq!(number(&context, "SELECT sum(day)::BIGINT FROM e").await, 1);
    }
    // What a statement declares is not believed of folders that lack it.
    for places in [format!("'{place}/plain/'"), format!("('{place}/named/', '{place}/plain/')")] {
        let table = format!("u STORED AS VORTEX PARTITIONED BY (day) LOCATION {places}");
        let message = error(&context, &format!("CREATE EXTERNAL TABLE {table}")).await;
        assert!(message.contains("y.vortex is not in a folder named day=…/"), "{message}");
    }
}

#[tokio::test]
async fn one_file_outside_of_the_folders_of_many_is_not_left_out() {
    let store = TestStore::new();
    // The store lists the other one last. No file has to be opened to notice it.
    let many = (0..1100).map(|at| format!("t/day=1/{at:04}.vortex"));
    for path in many.chain(["t/z.vortex".to_owned()]) {
        store.put(&path.into(), "x".into()).await.unwrap();
    }
    let context = over(&store, None);
    vortex_datafusion::enable_url_tables(&context);
    let place = "'counting://store/t/'";
    for sql in [
        format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION {place}"),
        format!("CREATE EXTERNAL TABLE t STORED AS VORTEX PARTITIONED BY (day) LOCATION {place}"),
        format!(
            "CREATE EXTERNAL TABLE t (a INT, day INT) STORED AS VORTEX PARTITIONED BY (day) LOCATION {place}"
        ),
        format!("SELECT count(*) FROM {place}"),
    ] {
        let message = error(&context, &sql).await;
        assert!(message.contains("z.vortex") && message.contains("day"), "{sql}: {message}");
    }
}

#[tokio::test]
async fn columns_of_folders_may_be_all_that_is_declared() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), folder.path().display());
    copy(&context, "SELECT 7 AS a", format!("{place}/day=2020-02-03/x.vortex")).await;
    for partitions in ["day DATE", "day"] {
        create(&context, &format!("t PARTITIONED BY ({partitions})"), format!("{place}/")).await;
        assert_eq!(number(&context, "SELECT a FROM t WHERE day = '2020-02-03'").await, 7);
        assert_eq!(run(&context, "SELECT * FROM t").await.num_columns(), 2);
    }
    create(&context, "t PARTITIONED BY (day DATE)", format!("{place}/")).await;
    assert_eq!(number(&context, "SELECT date_part('year', day)::BIGINT FROM t").await, 2020);
}

#[tokio::test]
async fn names_of_folders_may_be_encoded() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), folder.path().join("").display().to_string());
    for (name, a) in [("k=a%3Ab", 1), ("k=a[b", 2), ("k=x", 3)] {
        let (file, named) = (folder.path().join("file.vortex"), folder.path().join(name));
        copy(&context, &format!("SELECT {a} AS a"), file.display()).await;
        std::fs::create_dir(&named).unwrap();
        std::fs::rename(&file, named.join("x.vortex")).unwrap();
    }
    create(&context, "inferred", &place).await;
    create(&context, "declared (k VARCHAR) PARTITIONED BY (k)", &place).await;
    for table in ["inferred", "declared", &format!("'{place}'")] {
        for (value, a) in [("a:b", 1), ("a[b", 2), ("x", 3)] {
            let sql = format!("SELECT sum(a) FROM {table} WHERE k = '{value}'");
            assert_eq!(number(&context, &sql).await, a, "{sql}");
        }
    }
}

#[tokio::test]
async fn values_of_folders_may_be_written_in_several_ways() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), folder.path().join("").display().to_string());
    for (at, file) in ["m=01/p=1.5", "m=1/p=1.50", "m=2/p=2"].into_iter().enumerate() {
        copy(&context, &format!("SELECT {at} AS a"), format!("{place}{file}/x.vortex")).await;
    }
    create(&context, "t (m INT, p DECIMAL(5, 2)) PARTITIONED BY (m, p)", &place).await;
    for (filter, count) in
        [("m = 1", 2), ("1 = m AND p = 1.5", 2), ("p = 2", 1), ("m IN (1)", 2), ("m = 3", 0)]
    {
        let sql = format!("SELECT count(*) FROM t WHERE {filter}");
        assert_eq!(number(&context, &sql).await, count, "{filter}");
    }
    create(&context, "u (m INT) PARTITIONED BY (m)", &place).await;
    run(&context, "INSERT INTO u VALUES (3, 1)").await;
    assert_eq!(number(&context, "SELECT sum(a) FROM u WHERE m = 1").await, 4);
}

#[tokio::test]
async fn folders_give_the_columns_that_files_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), folder.path().join("t/").display().to_string());
    run(&context, "SET datafusion.execution.keep_partition_by_columns = true").await;
    let rows = "SELECT * FROM (VALUES (1, 10), (2, 20)) AS t(day, a)";
    run(&context, &format!("COPY ({rows}) TO '{place}' STORED AS VORTEX PARTITIONED BY (day)")).await;
    create(&context, "t", &place).await;
    // Of another type than in the other files.
    run(&context, "INSERT INTO t VALUES (30, '3')").await;
    create(&context, "u PARTITIONED BY (day INT)", &place).await;
    assert_eq!(number(&context, "SELECT sum(day)::BIGINT FROM u WHERE a >= 20").await, 5);
    for table in ["t", &format!("'{place}'")] {
        assert_eq!(run(&context, &format!("SELECT * FROM {table}")).await.num_columns(), 2);
        let wanted = format!("SELECT sum(a) FROM {table} WHERE day = '2'");
        assert_eq!(number(&context, &wanted).await, 20);
    }
}

#[tokio::test]
async fn names_of_folders_may_be_quoted_and_have_capitals_and_spaces() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), folder.path().join("t/").display().to_string());
    let columns = "(a BIGINT, \"Day\" INT, \"my key\" INT)";
    create(&context, &format!("t {columns} PARTITIONED BY (\"Day\", \"my key\")"), &place).await;
    run(&context, "INSERT INTO t VALUES (10, 1, 7), (20, 2, 8)").await;
    for (columns, by) in [
        ("", "PARTITIONED BY (Day INT, \"my key\" BIGINT)"),
        ("(a BIGINT)", "PARTITIONED BY (\"Day\" INT, \"my key\" BIGINT)"),
        ("(\"my key\" BIGINT, a BIGINT, \"Day\" INT)", "PARTITIONED BY (Day, \"my key\")"),
    ] {
        create(&context, &format!("t {columns} {by}"), &place).await;
        let sum = "SELECT sum(a * \"my key\")::BIGINT FROM t WHERE \"Day\" > '1'";
        assert_eq!(number(&context, sum).await, 160, "{columns} {by}");
    }
    let sum = format!("SELECT sum(a * CAST(\"my key\" AS BIGINT)) FROM '{place}' WHERE \"Day\" > '1'");
    assert_eq!(number(&context, &sum).await, 160);
    let with_default = "t (a BIGINT, day INT DEFAULT 3, \"my key\" INT) PARTITIONED BY (Day, \"my key\")";
    create(&context, with_default, &place).await;
    run(&context, "INSERT INTO t (a, \"my key\") VALUES (30, 9)").await;
    assert_eq!(number(&context, "SELECT a FROM t WHERE \"Day\" = 3").await, 30);
    let refused = "CREATE EXTERNAL TABLE u (a BIGINT) STORED AS VORTEX PARTITIONED BY (Other)";
    let message = error(&context, &format!("{refused} LOCATION '{place}'")).await;
    assert!(message.contains("names Other, which is not among the columns"), "{message}");
}

#[tokio::test]
async fn values_that_no_folder_can_be_named_after_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), folder.path().display());
    for (day, is_named) in [
        ("arrow_cast(TIMESTAMP '2026-01-01T00:00:00', 'Date64')", true),
        ("arrow_cast(TIMESTAMP '1969-12-31T23:00:00', 'Date64')", false),
        ("arrow_cast(9223372036854775807, 'Date64')", false),
        ("arrow_cast(100000000, 'Date32')", false),
        ("arrow_cast(-2147483648, 'Date32')", false),
        ("DATE '2026-01-01'", true),
    ] {
        let copy =
            format!("COPY (SELECT 1 AS a, {day} AS d) TO '{place}/t/' STORED AS VORTEX PARTITIONED BY (d)");
        if is_named {
            drop(run(&context, &copy).await)
        } else {
            let message = error(&context, &copy).await;
            assert!(message.contains("cast it to DATE or to text"), "{day}: {message}");
        }
    }
    let folders: Vec<_> = std::fs::read_dir(folder.path().join("t")).unwrap().collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
}

#[tokio::test]
async fn formats_that_are_read_by_position_keep_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), folder.path().display());
    run(&context, "SET datafusion.execution.keep_partition_by_columns = true").await;
    for format in ["arrow", "csv"] {
        let rows = "SELECT * FROM (VALUES (1, 10), (2, 20)) AS t(day, a)";
        run(
            &context,
            &format!("COPY ({rows}) TO '{place}/{format}/' STORED AS {format} PARTITIONED BY (day)"),
        )
        .await;
        let message = error(&context, &format!("SELECT a FROM '{place}/{format}/'")).await;
        assert!(message.contains("day"), "{format}: {message}");
    }
}
