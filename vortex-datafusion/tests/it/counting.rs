//! Sessions over files in a store that counts requests.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use test_store::TestStore;
use vortex_datafusion::register;

use crate::files::run;

/// A session over `copies` of the example file in a counting store, as table `lines`.
pub(crate) async fn session(copies: usize, memory: Option<usize>) -> (Arc<TestStore>, SessionContext) {
    let bytes = example();
    let store = TestStore::new();
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
pub(crate) fn over(store: &Arc<TestStore>, memory: Option<usize>) -> SessionContext {
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
