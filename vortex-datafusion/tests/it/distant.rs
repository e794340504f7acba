//! How much is asked of a store that is far away.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use vortex_datafusion::register;

use crate::files::{run, show};

/// Counts reads.
#[derive(Debug)]
struct Counting {
    inner: InMemory,
    reads: AtomicUsize,
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counting")
    }
}

#[async_trait]
impl ObjectStore for Counting {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.reads.fetch_add(usize::from(!options.head), Ordering::SeqCst);
        self.inner.get_opts(location, options).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A session over `copies` of the example file in a counting store, as table `lines`.
async fn session(copies: usize, memory: Option<usize>) -> (Arc<Counting>, SessionContext) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/lineitem.vortex");
    let bytes = std::fs::read(file).expect("the example is there");
    let store = Arc::new(Counting { inner: InMemory::new(), reads: AtomicUsize::new(0) });
    for copy in 0..copies {
        let path = Path::from(format!("lines/{copy:03}.vortex"));
        store.put(&path, PutPayload::from(bytes.clone())).await.expect("room in memory");
    }
    let config = SessionConfig::new().with_target_partitions(2);
    let context = match memory {
        Some(bytes) => {
            let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0).build_arc().unwrap();
            SessionContext::new_with_config_rt(config, runtime)
        }
        None => SessionContext::new_with_config(config),
    };
    register(&context).expect("the format registers");
    let url = url::Url::parse("counting://store").unwrap();
    context.register_object_store(&url, Arc::clone(&store) as _);
    run(&context, "CREATE EXTERNAL TABLE lines STORED AS VORTEX LOCATION 'counting://store/lines/'").await;
    (store, context)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_file_is_read_once_whatever_is_asked_of_it() {
    let (store, context) = session(20, None).await;
    run(&context, "SELECT sum(l_quantity), min(l_comment) FROM lines WHERE l_shipmode <> 'AIR'").await;
    run(&context, "SELECT count(*), max(l_orderkey) FROM lines").await;
    assert_eq!(store.reads.load(Ordering::SeqCst), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_an_order_are_those_of_a_full_sort() {
    let (_, context) = session(3, None).await;
    for order in ["l_orderkey DESC", "l_orderkey", "l_extendedprice DESC", "l_comment", "l_shipdate DESC"] {
        let columns = "l_orderkey, l_linenumber, l_extendedprice, l_comment, l_shipdate";
        let rest = "l_orderkey, l_linenumber";
        let few = format!("SELECT {columns} FROM lines ORDER BY {order}, {rest} LIMIT 20");
        let all = format!(
            "SELECT {columns} FROM (SELECT *, row_number() OVER (ORDER BY {order}, {rest}) AS n FROM lines) \
             WHERE n <= 20 ORDER BY n"
        );
        assert_eq!(show(&context, &few).await, show(&context, &all).await, "{order}");
    }
    let plan = show(&context, "EXPLAIN FORMAT INDENT SELECT * FROM lines ORDER BY l_orderkey LIMIT 3").await;
    assert!(plan.contains("best_first=[l_orderkey@0 ASC]"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_refuses_slows_a_scan_down_and_does_not_fail_it() {
    let sql = "SELECT sum(l_quantity), sum(l_extendedprice), count(l_comment) FROM lines";
    let (_, roomy) = session(3, None).await;
    let (_, tight) = session(3, Some(100_000)).await;
    assert_eq!(show(&roomy, sql).await, show(&tight, sql).await);
    assert_eq!(tight.runtime_env().memory_pool.reserved(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_scan_did_is_shown() {
    let (_, context) = session(2, None).await;
    let sql = "EXPLAIN ANALYZE SELECT sum(l_quantity) FROM lines WHERE l_comment LIKE '%even%'";
    let plan = show(&context, sql).await;
    for name in ["reads=", "bytes_scanned=", "io_wait_time=", "decode_time=", "predicate_eval_time="] {
        assert!(plan.contains(name), "{name} in {plan}");
    }
}
