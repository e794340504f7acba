//! Sessions over files in a store that counts requests.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use test_store::TestStore;
use tokio::time::{sleep, timeout};
use url::Url;
use vortex_datafusion::register;

use crate::files::{create, file};

/// A session over `copies` of the example file in a counting store, as table `lines`.
pub(crate) async fn session(copies: usize, memory: Option<usize>) -> (Arc<TestStore>, SessionContext) {
    let objects: Vec<String> = (0..copies).map(|copy| format!("lines/{copy:03}.vortex")).collect();
    let store = store_of(&objects).await;
    let context = over(&store, memory);
    create(&context, "lines", "counting://store/lines/").await;
    (store, context)
}

/// A store with objects that are copies of the example file.
pub(crate) async fn store_of<S: AsRef<str>>(objects: &[S]) -> Arc<TestStore> {
    let bytes = std::fs::read(file("tpch_lineitem")).expect("the example is there");
    let store = TestStore::new();
    for object in objects {
        store.put(&Path::from(object.as_ref()), bytes.clone().into()).await.expect("room in memory");
    }
    store
}

/// A session with two partitions that finds the store at `counting://store/`.
pub(crate) fn over(store: &Arc<TestStore>, memory: Option<usize>) -> SessionContext {
    let runtime = match memory {
        Some(bytes) => RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0),
        None => RuntimeEnvBuilder::new(),
    };
    let config = SessionConfig::new().with_target_partitions(2);
    over_with(store, config, runtime.build_arc().unwrap())
}

pub(crate) fn over_with(
    store: &Arc<TestStore>,
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
) -> SessionContext {
    let context = SessionContext::new_with_config_rt(config, runtime);
    register(&context).expect("the format registers");
    // A machine that is busy makes reads late, which would be counted twice.
    context.state_ref().write().config_mut().options_mut().set("vortex.hedge", "0").unwrap();
    let url = Url::parse("counting://store").unwrap();
    context.register_object_store(&url, Arc::clone(store) as _);
    context
}

/// Waits until no request is in flight and no memory is held: streams that are dropped end a moment later.
pub(crate) async fn settle(store: &TestStore, pool: &Arc<dyn MemoryPool>) {
    let settled = async {
        while store.in_flight.get() > 0 || pool.reserved() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let in_time = timeout(Duration::from_secs(5), settled).await;
    assert!(in_time.is_ok(), "{} requests, {} bytes", store.in_flight.get(), pool.reserved());
}
