//! Files that others take the place of: what is known of the old ones is not believed of the new.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::physical_plan::collect;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use test_store::TestStore;
use url::Url;

use crate::counting;
use crate::files::{copy, create, file, folder_of, number, physical, run, run_again, session, written};

#[tokio::test]
async fn a_file_replaced_by_another_is_read_anew() {
    let (orders, part) = (file("tpch_orders"), file("tpch_part"));
    let folder = folder_of(&[(&orders, "a.vortex")]);
    let path = folder.path().join("a.vortex");
    let context = session();
    let sql = format!("SELECT count(*) FROM '{}'", path.display());
    assert_eq!(number(&context, &sql).await, 1500);
    fs::copy(part, &path).unwrap();
    assert_eq!(number(&context, &sql).await, 800);
}

#[tokio::test]
async fn a_file_that_is_replaced_after_planning_is_an_error_although_its_store_has_no_e_tags() {
    let (store, place) = (TestStore::new(), Path::from("a.vortex"));
    let time = |seconds| store.set_time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    // Too large to be read along with its end.
    let scattered = (0..300_000u64).map(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let numbers = scattered.map(|number| (number ^ number >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) as i64);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let rows = RecordBatch::try_from_iter([("a", numbers)]).unwrap();
    let mut bytes = written(&rows).await.to_vec();
    assert!(bytes.len() > 2 << 20);
    store.hide_e_tags();
    store.put(&place, bytes.clone().into()).await.unwrap();
    time(1_000_000);
    let context = session();
    context.register_object_store(&Url::parse("test://bucket").unwrap(), Arc::clone(&store) as _);
    create(&context, "t", "test://bucket/a.vortex").await;
    let plan = physical(&context, "SELECT sum(a % 1000) FROM t").await;
    bytes[1000] ^= 1;
    store.put(&place, bytes.into()).await.unwrap();
    time(1_000_001);
    let error = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap_err().to_string();
    assert!(error.contains("a.vortex") && error.contains("replaced while it was read"), "{error}");
    // What is known of the old version is not kept, although the plan knows no better.
    assert_eq!(run_again(&plan, &context).await.unwrap()[0].num_rows(), 1);
}

#[tokio::test]
async fn a_file_that_changes_within_the_moment_is_an_error_and_later_another_table() {
    let store = TestStore::new();
    let writer = counting::over(&store, None);
    let rows = |count| {
        format!(
            "SELECT value * value % 1000003 AS b, 'text ' || (value * value % 99991 * value % 1000003) AS t \
             FROM generate_series(1, {count})"
        )
    };
    // Longer than what is kept with its footer.
    copy(&writer, &rows(500_000), "counting://store/long.vortex").await;
    let smaller = run(&writer, &rows(10)).await;
    let context = counting::over(&store, None);
    create(&context, "one", "counting://store/long.vortex").await;
    store.put(&Path::from("long.vortex"), written(&smaller).await.into()).await.unwrap();

    let sql = "SELECT sum(b * 2 + length(t) - length(t)) FROM one";
    let outcome = async { context.sql(sql).await?.collect().await }.await;
    match outcome {
        Err(error) => assert!(error.to_string().contains("long.vortex"), "{error}"),
        // On a slow machine, the moment may already have passed.
        Ok(_) => assert_eq!(number(&context, sql).await, 770),
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(number(&context, "SELECT count(*) FROM one").await, 10);
}

#[tokio::test]
async fn a_file_that_this_session_writes_anew_is_another_table_at_once() {
    let store = counting::store_of(&["lines/000.vortex"]).await;
    let context = counting::over(&store, None);
    create(&context, "one", "counting://store/lines/000.vortex").await;
    copy(&context, "SELECT * FROM one LIMIT 10", "counting://store/lines/000.vortex").await;
    assert_eq!(number(&context, "SELECT count(*) FROM one").await, 10);
    assert_eq!(run(&context, "SELECT * FROM one").await.num_rows(), 10);
}

#[tokio::test]
async fn a_file_written_anew_is_another_table_at_once_if_another_store_has_its_path() {
    let stores = [TestStore::new(), TestStore::new()];
    for store in &stores {
        copy(
            &counting::over(store, None),
            "SELECT 1 AS a UNION ALL SELECT 2",
            "counting://store/t/one.vortex",
        )
        .await;
    }
    let [one, other] = &stores;
    let context = counting::over(one, None);
    context.register_object_store(&Url::parse("counting://other").unwrap(), Arc::clone(other) as _);
    // The first store's footer has the place of the path.
    create(&context, "a", "counting://store/t/one.vortex").await;
    create(&context, "b", "counting://other/t/one.vortex").await;
    assert_eq!(number(&context, "SELECT sum(a) FROM b").await, 3);
    copy(&context, "SELECT 7 AS a", "counting://other/t/one.vortex").await;
    assert_eq!(number(&context, "SELECT count(*) FROM b").await, 1);
    assert_eq!(number(&context, "SELECT sum(a) FROM b").await, 7);
    assert_eq!(number(&context, "SELECT sum(a) FROM a").await, 3);
}

#[tokio::test]
async fn files_that_agree_in_size_and_time_are_told_apart() {
    for location in ["t/one.vortex", "t/", "t/*.vortex"] {
        for writes_in_session in [true, false] {
            let case = format!("{location}, written by the session itself: {writes_in_session}");
            let store = TestStore::new();
            store.set_time(SystemTime::now());
            let (context, other) = (counting::over(&store, None), counting::over(&store, None));
            let writer = if writes_in_session { &context } else { &other };
            let mut sizes = Vec::new();
            for value in [1, 2] {
                copy(writer, &format!("SELECT {value} AS a"), "counting://store/t/one.vortex").await;
                sizes.push(store.head(&"t/one.vortex".into()).await.unwrap().size);
                if value == 1 {
                    create(&context, "t", format!("counting://store/{location}")).await;
                } else if !writes_in_session {
                    // Listings, and what is found of one file, are kept for a while.
                    context.runtime_env().cache_manager.get_list_files_cache().unwrap().clear();
                    tokio::time::sleep(Duration::from_millis(1100)).await;
                }
                assert_eq!(number(&context, "SELECT max(a) FROM t").await, value, "{case}");
                let rows = format!("SELECT count(*) FROM t WHERE a = {value}");
                assert_eq!(number(&context, &rows).await, 1, "{case}");
            }
            assert_eq!(sizes[0], sizes[1], "{case}");
        }
    }
}

#[tokio::test]
async fn files_of_two_stores_that_agree_in_all_but_their_content_are_told_apart() {
    let time = SystemTime::now();
    let stores = [TestStore::new(), TestStore::new()];
    for (value, store) in stores.iter().enumerate() {
        store.set_time(time);
        copy(&counting::over(store, None), &format!("SELECT {value} AS a"), "counting://store/t/one.vortex")
            .await;
    }
    let [one, other] = &stores;
    let path = "t/one.vortex".into();
    assert_eq!(one.head(&path).await.unwrap(), other.head(&path).await.unwrap());
    let context = counting::over(one, None);
    let url = Url::parse("counting://other").unwrap();
    context.register_object_store(&url, Arc::clone(other) as _);
    for location in ["t/one.vortex", "t/"] {
        for (value, store) in ["store", "other"].iter().enumerate() {
            let table = format!("t_{store}_{}", location.len());
            create(&context, &table, format!("counting://{store}/{location}")).await;
            assert_eq!(
                number(&context, &format!("SELECT max(a) FROM {table}")).await,
                value as i64,
                "{table}"
            );
            let rows = format!("SELECT count(*) FROM {table} WHERE a = {value}");
            assert_eq!(number(&context, &rows).await, 1, "{table}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_lists_a_folder_while_rows_are_inserted_keeps_no_outdated_listing() {
    let store = TestStore::new();
    let context = counting::over(&store, None);
    copy(&context, "SELECT 1 AS a", "counting://store/t/1.vortex").await;
    create(&context, "t", "counting://store/t/").await;
    vortex_datafusion::enable_url_tables(&context);
    run(&context, "CREATE EXTERNAL TABLE e (a BIGINT) STORED AS VORTEX LOCATION 'counting://store/e/'").await;
    let listings = context.runtime_env().cache_manager.get_list_files_cache().unwrap();
    for (table, insert, expected) in [
        ("e", "INSERT INTO e VALUES (1)", 1),
        ("t", "INSERT INTO t VALUES (2)", 2),
        ("t", "INSERT OVERWRITE t VALUES (3), (4), (5)", 3),
        ("'counting://store/t/'", "INSERT INTO t VALUES (6)", 4),
    ] {
        let count = format!("SELECT count(*) FROM (SELECT * FROM {table} WHERE a > 0)");
        listings.clear();
        store.set_listing_time(Duration::from_millis(500));
        let (reader, sql) = (context.clone(), count.clone());
        let reading = tokio::spawn(async move { reader.sql(&sql).await?.create_physical_plan().await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        store.set_listing_time(Duration::ZERO);
        run(&context, insert).await;
        assert!(!reading.is_finished(), "the listing began before the statement, and ends after it");
        reading.await.unwrap().unwrap();
        for _ in 0..2 {
            assert_eq!(number(&context, &count).await, expected, "{insert}");
        }
    }
}

#[tokio::test]
async fn after_a_file_was_gone_or_replaced_a_folder_is_listed_anew() {
    let store = TestStore::new();
    let context = counting::over(&store, None);
    // Too large to be read along with its end.
    let rows = |file: i64| format!("SELECT {file} AS file, random() AS a FROM generate_series(1, 400000)");
    for file in 1..=3 {
        copy(&context, &rows(file), &format!("counting://store/t/{file}.vortex")).await;
    }
    create(&context, "t", "counting://store/t/").await;
    let sum = "SELECT CAST(sum(file) AS BIGINT) FROM t WHERE a * 2 < 5";
    assert_eq!(number(&context, sum).await, 2_400_000);
    store.inner.delete(&Path::from("t/1.vortex")).await.unwrap();
    let read = async || context.sql(sum).await?.collect().await;
    read().await.unwrap_err();
    assert_eq!(number(&context, sum).await, 2_000_000);
    let other = counting::over(&store, None);
    copy(&other, &rows(7), "counting://store/t/2.vortex").await;
    read().await.unwrap_err();
    assert_eq!(number(&context, sum).await, 4_000_000);
    // Nothing is known of the files yet, so that planning asks for one that is gone.
    let later = counting::over(&store, None);
    let place = "STORED AS VORTEX LOCATION 'counting://store/t/'";
    run(&later, &format!("CREATE EXTERNAL TABLE t (file BIGINT, a DOUBLE) {place}")).await;
    store.inner.delete(&Path::from("t/3.vortex")).await.unwrap();
    later.sql(sum).await.unwrap().collect().await.unwrap_err();
    assert_eq!(number(&later, sum).await, 2_800_000);
}
