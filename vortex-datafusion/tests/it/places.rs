//! Tables find what is written to them.

use std::fs;

use test_store::TestStore;
use vortex_datafusion::VortexContextExt as _;

use crate::counting::over;
use crate::files::{copy, create, error, number, own_session, plan, run, session};

#[tokio::test]
async fn rows_are_inserted_where_the_table_finds_them() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    for name in ["g[1]", "a?b", "a*b", "a:b"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        let place = format!("{}/{name}/", folder.path().display());
        create(&context, "t (i INT)", &place).await;
        run(&context, "INSERT INTO t VALUES (1)").await;
        assert_eq!(number(&context, "SELECT count(*) FROM t").await, 1, "{name}");
        run(&context, "DROP TABLE t").await;
        create(&context, "t", &place).await;
        assert_eq!(number(&context, "SELECT count(*) FROM t").await, 1, "{name}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);

    create(&context, "t (i INT)", folder.path().join("7*.vortex").display()).await;
    let message = error(&context, "INSERT INTO t VALUES (1)").await;
    assert!(message.contains("which this pattern leaves out"), "{message}");
}

#[tokio::test]
async fn a_folder_is_its_vortex_files_even_if_columns_are_declared() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (session(), format!("{}/", folder.path().display()));
    fs::write(folder.path().join("_SUCCESS"), "").unwrap();
    fs::write(folder.path().join("notes.txt"), "text").unwrap();
    create(&context, "t (i INT)", &place).await;
    assert_eq!(number(&context, "SELECT count(*) FROM t").await, 0);
    run(&context, "INSERT INTO t VALUES (1), (2)").await;
    assert_eq!(number(&context, "SELECT count(*) FROM t").await, 2);
    let sql = format!("CREATE UNBOUNDED EXTERNAL TABLE u (i INT) STORED AS VORTEX LOCATION '{place}'");
    assert!(error(&context, &sql).await.contains("cannot be unbounded"));
}

#[tokio::test]
async fn rows_are_inserted_into_a_folder_that_is_yet_to_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let store = TestStore::new();
    let context = over(&store, None);
    for place in [folder.path().display().to_string(), "counting://store".to_owned()] {
        for (columns, rows) in [("(a BIGINT)", "(1), (2)"), ("(a BIGINT, day INT)", "(1, 3), (2, 4)")] {
            let (name, partitions) =
                if columns.contains("day") { ("by-day", "PARTITIONED BY (day)") } else { ("new", "") };
            let (table, location) = (format!("t {columns} {partitions}"), format!("{place}/{name}"));
            create(&context, &table, &location).await;
            assert_eq!(number(&context, "SELECT count(*) FROM t").await, 0, "{table}");
            run(&context, &format!("INSERT INTO t VALUES {rows}")).await;
            assert_eq!(number(&context, "SELECT sum(a) FROM t").await, 3, "{table}");
            create(&context, "t", &location).await;
            assert_eq!(number(&context, "SELECT count(*) FROM t").await, 2, "{table}");
        }
    }
    assert!(folder.path().join("new").is_dir() && folder.path().join("by-day/day=3").is_dir());
    // A name with an extension is that of a file.
    let file = folder.path().join("none.vortex");
    create(&context, "f (a BIGINT)", file.display()).await;
    error(&context, "INSERT INTO f VALUES (1)").await;
    assert!(!file.exists());
}

#[tokio::test]
async fn a_folder_is_read_without_hidden_files() {
    let folder = tempfile::tempdir().unwrap();
    // The URL tables of DataFusion read hidden files.
    let (context, place) = (own_session(), folder.path().display());
    for name in ["a", "_b", ".c", "_y/f", ".z/g", "values/_x=1/d", "values/_x=1/_e", "values/_x=2/f"] {
        copy(&context, "SELECT 1 AS i", format!("{place}/{name}.vortex")).await;
    }
    for (read, files) in [("", 1), ("values/", 2)] {
        let read = format!("{place}/{read}");
        create(&context, "t", &read).await;
        let metadata = format!("(SELECT DISTINCT file FROM vortex_metadata('{read}'))");
        for from in ["t".to_owned(), format!("'{read}'"), metadata] {
            assert_eq!(number(&context, &format!("SELECT count(*) FROM {from}")).await, files, "{from}");
        }
        assert_eq!(context.read_vortex(&read).await.unwrap().count().await.unwrap() as i64, files, "{read}");
    }
    // Nor is a folder of nothing else a table; in one of another format, they do not matter.
    copy(&context, "SELECT 1 AS i", format!("{place}/none/_a.vortex")).await;
    for sql in ["SELECT * FROM '{}'", "SELECT * FROM vortex_metadata('{}')"] {
        let message = error(&context, &sql.replace("{}", &format!("{place}/none/"))).await;
        assert!(message.contains("no file at"), "{message}");
    }
    for name in ["csv/_a.vortex", "csv/b.csv"] {
        copy(&context, "SELECT 1 AS i", format!("{place}/{name}")).await;
    }
    assert_eq!(number(&context, &format!("SELECT count(*) FROM '{place}/csv/'")).await, 1);
    assert_eq!(number(&context, &format!("SELECT count(*) FROM '{place}/values/' WHERE _x = '2'")).await, 1);
    for named in ["_b.vortex", ".c.vortex", "_*.vortex", "_y/"] {
        assert_eq!(number(&context, &format!("SELECT count(*) FROM '{place}/{named}'")).await, 1, "{named}");
    }
}

#[tokio::test]
async fn a_file_that_a_pattern_leaves_out_because_of_its_name_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), folder.path().display());
    for file in ["named/day=1", "day=1/a", "sub/b"] {
        copy(&context, "SELECT 1 AS i", format!("{place}/{file}.vortex")).await;
    }
    let named = format!("{place}/named/");
    for read in [format!("'{named}'"), format!("'{named}day=1.vortex'"), format!("'{place}/*.vortex'")] {
        assert_eq!(number(&context, &format!("SELECT count(*) FROM {read}")).await, 1, "{read}");
    }
    let table = |columns| format!("CREATE EXTERNAL TABLE t {columns} STORED AS VORTEX LOCATION '{named}'");
    let queries = [format!("SELECT * FROM '{named}*.vortex'"), format!("FROM vortex_metadata('{named}*')")];
    for sql in queries.into_iter().chain(["", "(i BIGINT)"].map(table)) {
        let message = error(&context, &sql).await;
        assert!(message.contains("day=1.vortex: names of files must not contain `=`"), "{sql}: {message}");
    }
    // This name is not hidden, although the pattern for visible files does not match it.
    copy(&context, "SELECT 1 AS i", format!("{place}/low/_b=2.vortex")).await;
    let table = format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{place}/low/'");
    let message = error(&context, &table).await;
    assert!(message.contains("_b=2.vortex: names of files"), "{message}");
    // Hidden files are left out by a pattern, too.
    copy(&context, "SELECT 1 AS i", format!("{named}_tmp.vortex")).await;
    let message = error(&context, &format!("SELECT * FROM '{named}'")).await;
    assert!(message.contains("day=1.vortex: names of files"), "{message}");
}

#[tokio::test]
async fn a_folder_is_read_without_files_whose_names_merely_end_like_those_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    // The URL tables of DataFusion compare without the dot.
    let (context, place) = (own_session(), folder.path().join("").display().to_string());
    copy(&context, "SELECT 1 AS i", format!("{place}a.vortex")).await;
    for other in ["b.oldvortex", "vortex", "sub.vortex/_SUCCESS", "sub.vortex/notes.txt"] {
        fs::create_dir_all(folder.path().join(other).parent().unwrap()).unwrap();
        fs::write(folder.path().join(other), "text").unwrap();
    }
    create(&context, "t", &place).await;
    let metadata = format!("vortex_metadata('{place}')");
    for from in ["t", &format!("'{place}'"), &format!("(SELECT DISTINCT file FROM {metadata})")] {
        assert_eq!(number(&context, &format!("SELECT count(*) FROM {from}")).await, 1, "{from}");
    }
}

#[tokio::test]
async fn a_folder_is_one_however_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let path = folder.path().join("k");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("notes.txt"), "text").unwrap();
    copy(&context, "SELECT 1 AS a, 2 AS yr", path.join("x.vortex").display()).await;
    let url = url::Url::from_file_path(&path).unwrap();
    for place in
        [path.display().to_string(), format!("{}/", path.display()), url.to_string(), format!("{url}/")]
    {
        create(&context, "t (a BIGINT)", &place).await;
        assert_eq!(number(&context, "SELECT count(*) FROM t").await, 1, "{place}");
    }
    let partitioned = "CREATE EXTERNAL TABLE u (a BIGINT, yr INT) STORED AS VORTEX PARTITIONED BY (year)";
    let message = error(&context, &format!("{partitioned} LOCATION '{}/'", path.display())).await;
    assert!(message.contains("names year, which is not among the columns"), "{message}");
}

#[tokio::test]
async fn files_of_partitions_record_the_order_of_the_other_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (context, place) = (own_session(), format!("{}/", folder.path().display()));
    let rows = "SELECT value % 3 AS p, 1000 - value AS a FROM generate_series(1, 900) ORDER BY p, a";
    run(&context, &format!("COPY ({rows}) TO '{place}' STORED AS VORTEX PARTITIONED BY (p)")).await;
    let file = fs::read_dir(folder.path().join("p=1")).unwrap().next().unwrap().unwrap().path();
    let twice = "COPY (SELECT 1 AS a, 2 AS p) TO 'p/' STORED AS VORTEX PARTITIONED BY (p, p)";
    let message = error(&context, twice).await;
    assert!(message.contains("PARTITIONED BY names `p` twice"), "{message}");
    let message = error(&context, "COPY (SELECT 1 AS p) TO 'p/' STORED AS VORTEX PARTITIONED BY (p)").await;
    assert!(message.contains("leaves none for the files"), "{message}");
    let sorted = format!("SELECT a FROM '{}' ORDER BY a", file.display());
    assert!(!plan(&context, &sorted).await.contains("SortExec"));
}
