//! What a session holds for its tables: settings, limits, encodings, a scheduler, optimizer rules.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use vortex_core::array::{EncodedRef, Node};
use vortex_core::encodings::Encoding;
use vortex_core::io::{MemoryFile, ReadAt, Scheduler};
use vortex_core::{Limits, Registry};
use vortex_datafusion::{VortexSessionExt as _, VortexTable, register};

use crate::files::{create, error, file, folder_of, number, plan, run, session, session_with, show};

#[tokio::test]
async fn a_session_may_limit_what_files_demand() {
    let folder = folder_of(&[(&file("tpch_orders"), "a.vortex")]);
    let place = folder.path().join("").display().to_string();
    let limited = |limits: Limits| session_with(SessionConfig::new().with_extension(Arc::new(limits)));
    let table = format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{place}'");
    let message = error(&limited(Limits::new().with_max_columns(3)), &table).await;
    assert!(message.contains("a.vortex") && message.contains("too many fields"), "{message}");
    let context = limited(Limits::new().with_max_decoded_bytes(1000));
    run(&context, &table).await;
    let message = error(&context, "SELECT * FROM t").await;
    assert!(message.contains("a.vortex") && message.contains("1000"), "{message}");
}

/// An encoding that counts how often it is used.
struct Counted(Arc<dyn Encoding>, Arc<AtomicUsize>);

impl Encoding for Counted {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    fn load(&self, node: &Node<'_>) -> vortex_core::Result<EncodedRef> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.load(node)
    }
}

#[tokio::test]
async fn a_session_may_know_other_encodings() {
    let path = file("tpch_orders").display().to_string();
    let uses = Arc::new(AtomicUsize::new(0));
    let known = Registry::built_in();
    let encodings = known.encoding_ids().into_iter().filter_map(|id| known.encoding(id));
    let counted = encodings.fold(known.clone(), |registry, encoding| {
        registry.with_encoding(Arc::new(Counted(Arc::clone(encoding), Arc::clone(&uses))))
    });
    let other = session();
    let context = session_with(SessionConfig::new().with_extension(Arc::new(counted)));
    let context = SessionContext::new_with_state(
        SessionStateBuilder::from(context.state()).with_runtime_env(other.runtime_env()).build(),
    );
    // They share the cache of footers, but not what it has.
    let sql = format!("SELECT sum(length(o_comment)) FROM '{path}'");
    let sum = number(&other, &sql).await;
    assert_eq!(uses.load(Ordering::Relaxed), 0);
    assert_eq!(number(&context, &sql).await, sum);
    let used = uses.load(Ordering::Relaxed);
    assert!(used > 0);
    assert_eq!(number(&other, &sql).await, sum);
    assert_eq!(uses.load(Ordering::Relaxed), used);
}

#[tokio::test]
async fn a_session_may_have_a_scheduler_of_its_own() {
    let path = file("tpch_orders");
    let source: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(fs::read(&path).unwrap()));
    let open = Arc::new(VortexTable::open([source]).await.unwrap());
    for from in [format!("'{}'", path.display()), "open".to_owned()] {
        let scheduler = Scheduler::new(64 << 20);
        let context = session_with(SessionConfig::new().with_extension(Arc::clone(&scheduler)));
        context.register_table("open", Arc::clone(&open) as _).unwrap();
        run(&context, &format!("SELECT o_comment FROM {from} WHERE o_orderkey % 3 = 1")).await;
        assert!(scheduler.peak_bytes() > 0, "{from}");
        assert_eq!(scheduler.bytes_in_use(), 0);
    }
}

#[tokio::test]
async fn a_session_is_built_with_the_format() {
    let path = file("tpch_orders");
    let state = SessionStateBuilder::new()
        .with_config(SessionConfig::new().set_bool("datafusion.catalog.information_schema", true))
        .with_default_features()
        .with_vortex()
        .build();
    let context = SessionContext::new_with_state(state);
    create(&context, "o", path.display()).await;
    run(&context, "SET vortex.prune = false").await;
    assert!(show(&context, "SHOW vortex.prune").await.contains("false"));
    assert_eq!(number(&context, "SELECT count(*) FROM o").await, 1500);
}

#[tokio::test]
async fn settings_of_the_session_apply() {
    let path = file("tpch_orders");
    let context = session();
    run(&context, "SET vortex.predicate_pushdown = false").await;
    let sql = format!("SELECT * FROM '{}' WHERE o_orderkey = 7", path.display());
    assert!(plan(&context, &sql).await.contains("FilterExec"));
    run(&context, "SET vortex.predicate_pushdown = true").await;
    assert!(!plan(&context, &sql).await.contains("FilterExec"));
    assert!(context.sql("SET vortex.nonsense = 1").await.is_err());
}

#[tokio::test]
async fn registering_changes_nothing_else_of_a_session() {
    let context = SessionContext::new();
    run(&context, "CREATE TABLE before AS SELECT 1 AS a").await;
    let (id, config) = (context.state().session_id().to_owned(), context.copied_config());
    register(&context).unwrap();
    register(&context).unwrap();
    assert_eq!(context.state().session_id(), id);
    assert_eq!(run(&context, "SELECT a FROM before").await.num_rows(), 1);
    let settings = |config: &SessionConfig| {
        let entries =
            config.options().entries().into_iter().filter(|entry| !entry.key.starts_with("vortex."));
        entries.map(|entry| (entry.key, entry.value)).collect::<Vec<_>>()
    };
    assert_eq!(settings(&context.copied_config()), settings(&config));
    let state = context.state();
    let rules = state.physical_optimizers().iter().map(|rule| rule.name());
    let ours: Vec<_> = rules.filter(|rule| rule.contains("vortex")).collect();
    assert_eq!(
        ours,
        [
            "vortex_first",
            "vortex_before_requirements",
            "vortex_before_window_limits",
            "vortex_before_pushdown_sort",
            "vortex_last"
        ]
    );
}
