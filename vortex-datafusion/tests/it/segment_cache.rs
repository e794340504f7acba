//! Fetched bytes kept between queries: `vortex.segment_cache`.

use std::sync::Arc;
use std::time::Duration;

use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::prelude::SessionContext;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use test_store::TestStore;
use vortex_core::io::BlockCache;
use vortex_datafusion::{VortexContextExt as _, VortexFormat, VortexOptions, VortexReadOptions};

use crate::counting::{over, store_of};
use crate::distant::write_large;
use crate::files::{copy, create, run, show};

const SUM: &str = "SELECT sum(mixed * 2), max(text || 'x') FROM large";

/// A session with settings, over a file of some megabytes whose bytes arrive in small pieces.
async fn session(settings: &[(&str, u64)]) -> (Arc<TestStore>, SessionContext) {
    let store = TestStore::new();
    let context = over(&store, None);
    set(&context, settings).await;
    write_large(&context).await;
    settled(&store).await;
    store.take();
    store.set_piece_len(10_000);
    (store, context)
}

/// Waits until no more bytes arrive, even after the end of the query.
async fn settled(store: &TestStore) {
    while store.in_flight.get() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn set(context: &SessionContext, settings: &[(&str, u64)]) {
    for (name, value) in settings {
        run(context, &format!("SET vortex.{name} = {value}")).await;
    }
}

fn cache(context: &SessionContext) -> Arc<BlockCache> {
    context.copied_config().get_extension().expect("registered")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_query_has_fetched_the_next_does_not_read() {
    let (store, context) = session(&[("segment_cache", 64 << 20)]).await;
    let (plain_store, plain) = session(&[]).await;
    let answer = show(&context, SUM).await;
    assert!(store.take().0 > 0);
    assert_eq!(answer, show(&plain, SUM).await);
    assert_eq!(show(&context, SUM).await, answer);
    // Other columns of the same rows were read as a gap, or are read now and never again.
    run(&context, "SELECT max(key + 1) FROM large").await;
    store.take();
    for sql in [SUM, "SELECT max(key + 1) FROM large", "SELECT * FROM large WHERE mixed = 12345"] {
        assert_eq!(show(&context, sql).await, show(&plain, sql).await);
        assert_eq!(store.take(), (0, 0), "{sql}");
        assert!(plain_store.take().0 > 0, "{sql}");
    }
    let plan = show(&context, &format!("EXPLAIN ANALYZE {SUM}")).await;
    let hits = plan.split("cache_hits=").nth(1).expect("shown").split([',', ']']).next().unwrap().to_owned();
    assert_ne!(hits, "0", "{plan}");
    assert!(plan.contains(", reads=0,"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_unless_asked_for() {
    let (store, context) = session(&[]).await;
    for _ in 0..2 {
        run(&context, SUM).await;
        assert!(store.take().1 > 1 << 20);
    }
    assert_eq!(cache(&context).bytes_in_use(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_has_changed_is_read_again() {
    let (store, context) = session(&[("segment_cache", 64 << 20)]).await;
    let context = context.enable_url_table();
    let sum = |from: &str| format!("SELECT sum(key + 0) AS keys, max(text || 'x') AS text FROM {from}");
    for factor in [1, 3] {
        let rows = format!("SELECT key * {factor} AS key, text || '{factor}' AS text FROM large");
        copy(&context, &rows, "counting://store/changes.vortex").await;
        let expected = show(&context, &sum(&format!("({rows})"))).await;
        store.take();
        assert_eq!(show(&context, &sum("'counting://store/changes.vortex'")).await, expected);
        assert!(store.take().1 > 1 << 20, "{factor}");
        assert_eq!(show(&context, &sum("'counting://store/changes.vortex'")).await, expected);
        assert_eq!(store.take(), (0, 0), "{factor}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_kept_than_was_said() {
    let limit = 1 << 20;
    let (store, context) = session(&[("segment_cache", limit), ("segment_cache_block_size", 64 << 10)]).await;
    let answer = show(&context, SUM).await;
    store.take();
    assert_eq!(show(&context, SUM).await, answer);
    assert!(store.take().0 > 0, "it did not all fit");
    let used = cache(&context).bytes_in_use();
    assert!(used > limit / 2 && used <= limit, "{used}");
    set(&context, &[("segment_cache", 128 << 10)]).await;
    assert_eq!(show(&context, SUM).await, answer);
    assert!(cache(&context).bytes_in_use() <= 128 << 10);
    set(&context, &[("segment_cache", 0)]).await;
    assert_eq!(show(&context, SUM).await, answer);
    assert_eq!(cache(&context).bytes_in_use(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_fetch_whole_blocks() {
    let block = 1 << 20;
    let (store, context) = session(&[("segment_cache", 64 << 20), ("segment_cache_block_size", block)]).await;
    let size = store.inner.head(&Path::from("large.vortex")).await.unwrap().size;
    let few = "SELECT text FROM large WHERE key = 200000";
    let answer = show(&context, few).await;
    settled(&store).await;
    let (reads, bytes) = store.take();
    assert!(reads > 0 && (bytes % block == 0 || bytes % block == size % block), "{bytes} bytes of {size}");
    assert_eq!(show(&context, few).await, answer);
    assert_eq!(store.take(), (0, 0), "all of the blocks were kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn small_enough_files_are_read_as_a_whole() {
    let (store, context) = session(&[("segment_cache", 64 << 20), ("segment_cache_preload", 32 << 20)]).await;
    let size = store.inner.head(&Path::from("large.vortex")).await.unwrap().size;
    let reader = over(&store, None);
    set(&reader, &[("segment_cache", 64 << 20), ("segment_cache_preload", 32 << 20)]).await;
    create(&reader, "large", "counting://store/large.vortex").await;
    assert_eq!(store.take(), (1, size));
    assert_eq!(show(&reader, SUM).await, show(&context, SUM).await);
    assert_eq!(store.take(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn scans_at_the_same_time_get_the_same_answer() {
    let (_, context) = session(&[("segment_cache", 2 << 20), ("segment_cache_block_size", 16 << 10)]).await;
    let expected = show(&context, SUM).await;
    let queries = (0..8).map(|_| show(&context, SUM));
    for answer in futures::future::join_all(queries).await {
        assert_eq!(answer, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_does_not_resize_the_cache_of_its_session() {
    let (store, context) = session(&[("segment_cache", 64 << 20)]).await;
    let mut options = VortexOptions::from_session(context.copied_config().options());
    options.segment_cache = 128 << 10;
    let reads = VortexReadOptions::new().with_options(options.clone());
    context.register_vortex_with("t", &["counting://store/large.vortex"], reads).await.unwrap();
    let format = VortexFormat::new().with_options(options);
    let url = ListingTableUrl::parse("counting://store/large.vortex").unwrap();
    let config = ListingTableConfig::new(url).with_listing_options(ListingOptions::new(Arc::new(format)));
    let listed = ListingTable::try_new(config.infer_schema(&context.state()).await.unwrap()).unwrap();
    context.register_table("l", Arc::new(listed)).unwrap();
    let sum = |table: &str| format!("SELECT sum(mixed * 2) AS s, max(text || 'x') AS t FROM {table}");
    let answer = show(&context, &sum("large")).await;
    store.take();
    for table in ["t", "l", "large"] {
        assert_eq!(show(&context, &sum(table)).await, answer);
        assert_eq!(store.take(), (0, 0), "{table}");
    }
    // A session without a cache has none for them, either.
    set(&context, &[("segment_cache", 0)]).await;
    assert_eq!(show(&context, &sum("l")).await, answer);
    assert!(store.take().0 > 0);
    assert_eq!(cache(&context).bytes_in_use(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_may_do_without() {
    let store = store_of(&["lines.vortex"]).await;
    let context = over(&store, None);
    set(&context, &[("segment_cache", 64 << 20)]).await;
    create(&context, "lines OPTIONS (segment_cache '0')", "counting://store/lines.vortex").await;
    run(&context, "SELECT max(l_comment || 'x') FROM lines").await;
    assert_eq!(cache(&context).bytes_in_use(), 0);
}
