//! Tables of more files than fit into DataFusion's metadata cache when they are parsed.

use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use test_store::TestStore;

use crate::counting::over;
use crate::files::{copy, create, show};

const FILES: u64 = 10_000;

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_small_files_is_read_once() {
    let store = TestStore::new();
    let writer = over(&store, None);
    let rows = "SELECT value AS id, value % 7 AS g, 'text ' || (value * value) AS text \
                FROM generate_series(1, 100)";
    copy(&writer, rows, "counting://store/one.vortex").await;
    let bytes = store.get(&Path::from("one.vortex")).await.unwrap().bytes().await.unwrap();
    for at in 0..FILES {
        let path = Path::from(format!("many/{at:05}.vortex"));
        store.put(&path, bytes.clone().into()).await.unwrap();
    }
    let context = over(&store, None);
    let one = over(&store, None);
    create(&one, "one", "counting://store/one.vortex").await;
    store.take();
    create(&context, "many", "counting://store/many/").await;
    assert_eq!(store.take(), (FILES, FILES * bytes.len() as u64));
    let counts = "SELECT count(*) AS n, min(id) AS least, max(id) AS greatest FROM";
    let groups =
        |count: &str, from: &str| format!("SELECT g, {count} AS n FROM {from} GROUP BY g ORDER BY g");
    let expected =
        show(&one, &format!("{} one", counts.replace("count(*)", &format!("count(*) * {FILES}")))).await;
    for (sql, expected) in [
        (format!("{counts} many"), expected),
        (groups("count(*)", "many"), show(&one, &groups(&format!("count(*) * {FILES}"), "one")).await),
        (groups("max(text)", "many"), show(&one, &groups("max(text)", "one")).await),
    ] {
        assert_eq!(show(&context, &sql).await, expected);
        assert_eq!(store.take(), (0, 0), "{sql}");
    }
}
