//! A store in memory that counts what is asked of it, and sessions over files in it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

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
use parking_lot::Mutex;
use vortex_datafusion::register;

use crate::files::run;

/// Counts reads, which take a while if told to.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) inner: InMemory,
    pub(crate) latency: Mutex<Duration>,
    pub(crate) reads: AtomicUsize,
    pub(crate) bytes: AtomicU64,
    pub(crate) in_flight: AtomicUsize,
}

impl Counting {
    /// Reads and bytes since the last time.
    pub(crate) fn take(&self) -> (usize, u64) {
        (self.reads.swap(0, Ordering::SeqCst), self.bytes.swap(0, Ordering::SeqCst))
    }
}

/// A read that has begun and not ended.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counting")
    }
}

#[async_trait]
impl ObjectStore for Counting {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let _in_flight = InFlight(&self.in_flight);
        let latency = *self.latency.lock();
        tokio::time::sleep(latency).await;
        let head = options.head;
        let result = self.inner.get_opts(location, options).await?;
        if !head {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.bytes.fetch_add(result.range.end - result.range.start, Ordering::SeqCst);
        }
        Ok(result)
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
pub(crate) async fn session(copies: usize, memory: Option<usize>) -> (Arc<Counting>, SessionContext) {
    let bytes = example();
    let store = Arc::new(Counting::default());
    for copy in 0..copies {
        let path = Path::from(format!("lines/{copy:03}.vortex"));
        store.put(&path, PutPayload::from(bytes.clone())).await.expect("room in memory");
    }
    let context = over(&store, memory);
    run(&context, "CREATE EXTERNAL TABLE lines STORED AS VORTEX LOCATION 'counting://store/lines/'").await;
    (store, context)
}

/// The example file.
pub(crate) fn example() -> Vec<u8> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/lineitem.vortex");
    std::fs::read(file).expect("the example is there")
}

/// A session that finds the store at `counting://store/`.
pub(crate) fn over(store: &Arc<Counting>, memory: Option<usize>) -> SessionContext {
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
    context.register_object_store(&url, Arc::clone(store) as _);
    context
}
