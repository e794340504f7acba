//! Tables find what is written to them.

use std::fs;

use vortex_datafusion::enable_url_tables;

use crate::files::{error, number, run, session, show};

#[tokio::test]
async fn rows_are_inserted_where_the_table_finds_them() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    for name in ["g[1]", "a?b", "a*b", "a:b"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        let place = format!("{}/{name}/", folder.path().display());
        run(&context, &format!("CREATE EXTERNAL TABLE t (i INT) STORED AS VORTEX LOCATION '{place}'")).await;
        run(&context, "INSERT INTO t VALUES (1)").await;
        assert_eq!(number(&context, "SELECT count(*) FROM t").await, 1, "{name}");
        run(&context, "DROP TABLE t").await;
        run(&context, &format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{place}'")).await;
        assert_eq!(number(&context, "SELECT count(*) FROM t").await, 1, "{name}");
        run(&context, "DROP TABLE t").await;
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);

    let place = format!("{}/7*.vortex", folder.path().display());
    run(&context, &format!("CREATE EXTERNAL TABLE t (i INT) STORED AS VORTEX LOCATION '{place}'")).await;
    let message = error(&context, "INSERT INTO t VALUES (1)").await;
    assert!(message.contains("which this pattern leaves out"), "{message}");
}

#[tokio::test]
async fn a_folder_is_its_vortex_files_even_if_columns_are_declared() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (session(), format!("{}/", folder.path().display()));
    fs::write(folder.path().join("_SUCCESS"), "").unwrap();
    fs::write(folder.path().join("notes.txt"), "text").unwrap();
    run(&context, &format!("CREATE EXTERNAL TABLE t (i INT) STORED AS VORTEX LOCATION '{place}'")).await;
    assert_eq!(number(&context, "SELECT count(*) FROM t").await, 0);
    run(&context, "INSERT INTO t VALUES (1), (2)").await;
    assert_eq!(number(&context, "SELECT count(*) FROM t").await, 2);
    let sql = format!("CREATE UNBOUNDED EXTERNAL TABLE u (i INT) STORED AS VORTEX LOCATION '{place}'");
    assert!(error(&context, &sql).await.contains("cannot be unbounded"));
}

#[tokio::test]
async fn files_of_partitions_record_the_order_of_the_other_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (session(), format!("{}/", folder.path().display()));
    let rows = "SELECT value % 3 AS p, 1000 - value AS a FROM generate_series(1, 900) ORDER BY p, a";
    run(&context, &format!("COPY ({rows}) TO '{place}' STORED AS VORTEX PARTITIONED BY (p)")).await;
    let file = fs::read_dir(folder.path().join("p=1")).unwrap().next().unwrap().unwrap().path();
    let sorted = format!("EXPLAIN FORMAT INDENT SELECT a FROM '{}' ORDER BY a", file.display());
    enable_url_tables(&context);
    assert!(!show(&context, &sorted).await.contains("SortExec"));
}
