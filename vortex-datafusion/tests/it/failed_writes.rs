//! Writes that fail or are dropped leave nothing behind.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray as _, Int32Array, Int64Array, RecordBatch, UnionArray};
use arrow::datatypes::{DataType, Field, Int64Type, SchemaRef, UnionFields};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use futures::StreamExt as _;
use object_store::ObjectStore as _;
use test_store::{TestStore, WriteFault as Fault};
use url::Url;

use crate::files::{create, error, run, session, session_within};

/// A source of rows that ends only when something fails.
#[derive(Debug)]
struct Endless {
    schema: SchemaRef,
    fails_after: Option<usize>,
    /// Bytes that each batch needs from the pool, and gives back.
    needs: usize,
}

impl Endless {
    fn register(context: &SessionContext, fails_after: Option<usize>) {
        Self { schema: Self::batch(0).schema(), fails_after, needs: 0 }.register_as_source(context);
    }

    fn register_as_source(self, context: &SessionContext) {
        let table = StreamingTable::try_new(Arc::clone(&self.schema), vec![Arc::new(self)]).unwrap();
        context.register_table("source", Arc::new(table)).unwrap();
    }

    /// Hard to compress, so that files grow.
    fn batch(at: usize) -> RecordBatch {
        let mut state = at as u64 + 1;
        let noise = Int64Array::from_iter_values((0..8192).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state ^ (state >> 31)) as i64
        }));
        let kind = Int32Array::from_iter_values((0..8192).map(|row| row % 3));
        RecordBatch::try_from_iter([("noise", Arc::new(noise) as ArrayRef), ("b", Arc::new(kind))]).unwrap()
    }
}

impl PartitionStream for Endless {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (fails_after, needs) = (self.fails_after, self.needs);
        let memory = MemoryConsumer::new("source").register(task.memory_pool());
        let batches = futures::stream::iter(0..).map(move |at| match fails_after {
            Some(end) if at >= end => Err(DataFusionError::Execution("the source broke".into())),
            _ => memory.try_grow(needs).map(|()| {
                memory.shrink(needs);
                Self::batch(at)
            }),
        });
        // A point at which a cancelled query can stop.
        let batches = batches.then(|batch| async {
            tokio::task::yield_now().await;
            batch
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

/// A session that finds the store at `faulty://x/`.
pub(crate) fn session_over(store: &Arc<TestStore>) -> SessionContext {
    let context = session();
    context.register_object_store(&Url::parse("faulty://x").unwrap(), Arc::clone(store) as _);
    context
}

/// An empty store, and a session over it with an endless table `source`.
fn endless(fails_after: Option<usize>) -> (Arc<TestStore>, SessionContext) {
    let store = TestStore::new();
    let context = session_over(&store);
    Endless::register(&context, fails_after);
    (store, context)
}

async fn objects(store: &TestStore) -> Vec<String> {
    let listed: Vec<_> = store.list(None).collect().await;
    listed.into_iter().map(|object| object.unwrap().location.to_string()).collect()
}

async fn leaves_nothing(store: &TestStore) {
    assert_eq!(objects(store).await, Vec::<String>::new());
    assert_eq!(store.uploads.open.get(), 0);
}

#[tokio::test]
async fn a_store_that_fails_is_named_and_nothing_stays_in_it() {
    let copies = [
        "COPY (SELECT * FROM source LIMIT 3000000) TO 'faulty://x/one.vortex'",
        "COPY (SELECT * FROM source LIMIT 12000000) TO 'faulty://x/many/' STORED AS VORTEX",
    ];
    for fault in [Fault::Part(1), Fault::Part(2), Fault::Complete] {
        for copy in copies {
            let (store, context) = endless(None);
            store.fail_writes(fault);
            let error = error(&context, copy).await;
            assert!(error.contains("the disk is full") && error.contains(".vortex"), "{fault:?}: {error}");
            assert!(store.uploads.parts.get() > 0, "{fault:?}: nothing was uploaded");
            leaves_nothing(&store).await;
        }
    }
}

#[tokio::test]
async fn a_small_file_that_cannot_be_put_fails_the_statement() {
    let (store, context) = endless(None);
    store.fail_writes(Fault::Put);
    let error = error(&context, "COPY (SELECT * FROM source LIMIT 10) TO 'faulty://x/a.vortex'").await;
    assert!(error.contains("the disk is full") && error.contains("a.vortex"), "{error}");
    leaves_nothing(&store).await;
}

#[tokio::test]
async fn files_of_a_statement_go_when_one_of_them_fails() {
    let (store, context) = endless(None);
    store.fail_writes(Fault::PutOf("b=2"));
    let copy = "COPY (SELECT * FROM source LIMIT 1000) TO 'faulty://x/' STORED AS VORTEX PARTITIONED BY (b)";
    let error = error(&context, copy).await;
    assert!(error.contains("the disk is full") && error.contains("b=2"), "{error}");
    leaves_nothing(&store).await;
}

#[tokio::test]
async fn a_query_that_fails_midway_leaves_no_file() {
    for (target, rest) in
        [("x/a.vortex", ""), ("x/", "STORED AS VORTEX"), ("x/", "STORED AS VORTEX PARTITIONED BY (b)")]
    {
        let (store, context) = endless(Some(20));
        let error = error(&context, &format!("COPY source TO 'faulty://{target}' {rest}")).await;
        assert!(error.contains("the source broke"), "{error}");
        leaves_nothing(&store).await;
    }
}

#[tokio::test]
async fn a_null_after_which_a_folder_should_be_named_fails_the_statement() {
    let value = "CASE WHEN value < 20000 THEN value % 3 END";
    for partition in [
        value.to_owned(),
        format!("CAST({value} AS VARCHAR)"),
        "CASE WHEN value < 20000 THEN DATE '2026-01-01' END".to_owned(),
        format!("{value} > 0"),
        format!("arrow_cast({value}, 'Float64')"),
        format!("arrow_cast(CAST({value} AS VARCHAR), 'Dictionary(Int32, Utf8)')"),
    ] {
        let store = TestStore::new();
        let context = session_over(&store);
        let rows = format!("SELECT value AS n, 1 AS a, {partition} AS p FROM generate_series(1, 30000)");
        let copy =
            |rows: &str| format!("COPY ({rows}) TO 'faulty://x/' STORED AS VORTEX PARTITIONED BY (a, p)");
        let error = error(&context, &copy(&rows)).await;
        assert!(error.contains("`p` has nulls") && error.contains("p IS NOT NULL"), "{partition}: {error}");
        leaves_nothing(&store).await;
        run(&context, &copy(&format!("SELECT * FROM ({rows}) WHERE p IS NOT NULL"))).await;
        assert!(!objects(&store).await.is_empty(), "{partition}");
    }
}

#[tokio::test]
async fn a_null_that_is_inserted_into_a_partition_column_fails_with_the_same_advice() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    create(&context, "t (n BIGINT, p VARCHAR) PARTITIONED BY (p)", folder.path().join("").display()).await;
    let error = error(&context, "INSERT INTO t SELECT 1, NULL").await;
    assert!(error.contains("`p` has nulls") && error.contains("p IS NOT NULL"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    run(&context, "INSERT INTO t SELECT 1, 'x'").await;
    assert!(folder.path().join("p=x").is_dir());
}

#[tokio::test]
async fn an_error_of_a_local_file_names_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let context = session();
    let target = folder.path().join("a.vortex");
    let rows = "SELECT a.i, b.i FROM (SELECT 1 AS i) a JOIN (SELECT 1 AS i) b ON a.i = b.i";
    let error = error(&context, &format!("COPY ({rows}) TO '{}'", target.display())).await;
    assert!(error.contains("duplicate column"), "{error}");
    assert!(error.contains(&format!("writing {}", target.display())), "{error}");
}

#[tokio::test]
async fn full_files_that_have_appeared_go_when_the_query_fails() {
    let (store, context) = endless(Some(300));
    run(&context, "SET datafusion.execution.minimum_parallel_output_files = 1").await;
    // More than a part, so that files are uploads, which are counted.
    run(&context, "SET vortex.target_file_size = 9000000").await;
    let error = error(&context, "COPY source TO 'faulty://x/' STORED AS VORTEX").await;
    assert!(error.contains("the source broke"), "{error}");
    assert!(store.uploads.started.get() > store.uploads.aborts.get(), "no file was full");
    leaves_nothing(&store).await;
}

#[tokio::test]
async fn files_that_datafusion_ended_early_go_when_the_query_fails() {
    let (store, context) = endless(Some(60));
    run(&context, "SET datafusion.execution.minimum_parallel_output_files = 1").await;
    run(&context, "SET datafusion.execution.soft_max_rows_per_output_file = 1").await;
    let error = error(&context, "COPY source TO 'faulty://x/' STORED AS VORTEX").await;
    assert!(error.contains("the source broke"), "{error}");
    leaves_nothing(&store).await;
}

#[tokio::test]
async fn a_dropped_query_leaves_no_file_and_no_part() {
    let (store, context) = endless(None);
    store.set_part_time(Duration::from_millis(20));
    let pool = Arc::clone(&context.runtime_env().memory_pool);
    let copy = context.sql("COPY source TO 'faulty://x/a.vortex'").await.unwrap();
    let running = tokio::spawn(copy.collect());
    while store.uploads.parts.get() < 2 {
        assert!(!running.is_finished(), "the query ended by itself");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if store.uploads.open.get() == 0 && pool.reserved() == 0 {
            break;
        }
    }
    let parts = store.uploads.parts.get();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(store.uploads.parts.get(), parts, "it goes on uploading");
    assert_eq!((pool.reserved(), store.uploads.aborts.get()), (0, 1));
    leaves_nothing(&store).await;
}

/// Runs a statement until a file is in a store, and drops it before the store says so.
async fn cut_off(copy: &str) -> Arc<TestStore> {
    let (store, context) = endless(None);
    store.hold_answers(Some(".vortex"));
    let running = tokio::spawn(context.sql(copy).await.unwrap().collect());
    while objects(&store).await.is_empty() {
        assert!(!running.is_finished(), "the query ended by itself");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    store.hold_answers(None);
    store
}

async fn becomes_empty(store: &TestStore) {
    for _ in 0..400 {
        if objects(store).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("these stay: {:?}", objects(store).await);
}

#[tokio::test]
async fn files_that_appear_although_their_query_was_dropped_are_removed() {
    for rest in ["", "PARTITIONED BY (b)"] {
        let rows = "SELECT * FROM source LIMIT 1000";
        let store = cut_off(&format!("COPY ({rows}) TO 'faulty://x/' STORED AS VORTEX {rest}")).await;
        becomes_empty(&store).await;
    }
}

#[tokio::test]
async fn a_given_name_that_a_dropped_query_may_have_replaced_is_not_removed() {
    let store = cut_off("COPY (SELECT * FROM source LIMIT 1000) TO 'faulty://x/a.vortex'").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(objects(&store).await, ["a.vortex"]);
    let context = session_over(&store);
    create(&context, "a", "faulty://x/a.vortex").await;
    assert_eq!(run(&context, "SELECT * FROM a").await.num_rows(), 1000);
}

#[test]
fn a_query_dropped_outside_of_its_runtime_leaves_no_file() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (store, query) = runtime.block_on(async {
        let (store, context) = endless(None);
        store.hold_answers(Some("b=2"));
        let copy =
            "COPY (SELECT * FROM source LIMIT 1000) TO 'faulty://x/' STORED AS VORTEX PARTITIONED BY (b)";
        let mut query = context.sql(copy).await.unwrap().execute_stream().await.unwrap();
        let appeared = async {
            while objects(&store).await.len() < 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // The query learns that two of the files are complete.
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        tokio::select! {
            _ = query.next() => panic!("the query ended by itself"),
            () = appeared => {}
        }
        (store, query)
    });
    drop(query);
    store.hold_answers(None);
    runtime.block_on(becomes_empty(&store));
}

#[tokio::test]
async fn writers_charge_the_pool_and_give_it_back() {
    let folder = tempfile::tempdir().unwrap();
    for (limit, fits) in [(1 << 20, false), (512 << 20, true)] {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
        let context = session_within(&pool);
        Endless::register(&context, None);
        let target = folder.path().join(format!("{limit}.vortex"));
        let copy = format!("COPY (SELECT * FROM source LIMIT 2000000) TO '{}'", target.display());
        let outcome = async { context.sql(&copy).await?.collect().await }.await;
        match outcome {
            Ok(_) => assert!(fits),
            Err(error) => {
                assert!(!fits, "{error}");
                assert!(error.to_string().contains("VortexSink["), "{error}");
            }
        }
        assert_eq!(target.exists(), fits);
        assert_eq!(pool.reserved(), 0);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn writers_leave_memory_to_the_operators_whose_rows_they_write() {
    let folder = tempfile::tempdir().unwrap();
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(64 << 20));
    for (name, kinds) in [("one.vortex", ""), ("three/", "PARTITIONED BY (b)")] {
        let context = session_within(&pool);
        let source = Endless { schema: Endless::batch(0).schema(), fails_after: None, needs: 24 << 20 };
        source.register_as_source(&context);
        let target = folder.path().join(name);
        let copy = format!(
            "COPY (SELECT * FROM source LIMIT 8000000) TO '{}' STORED AS VORTEX {kinds}",
            target.display()
        );
        run(&context, &copy).await;
        assert_eq!(pool.reserved(), 0);
    }
}

#[tokio::test]
async fn partitions_that_wait_for_rows_make_room_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(16 << 20));
    let context = session_within(&pool);
    let target = folder.path().display();
    let rows = "SELECT value * 7919 % 1000003 AS v, value / 600000 AS p FROM generate_series(0, 4799999)";
    run(&context, &format!("COPY ({rows}) TO '{target}/' STORED AS VORTEX PARTITIONED BY (p)")).await;
    assert_eq!(pool.reserved(), 0);
    let written = session();
    let table = format!("CREATE EXTERNAL TABLE t STORED AS VORTEX PARTITIONED BY (p) LOCATION '{target}/'");
    run(&written, &table).await;
    let counts = run(&written, "SELECT count(*) FROM t GROUP BY p").await;
    assert_eq!(counts.column(0).as_primitive::<Int64Type>().values(), &[600_000; 8]);
}

#[tokio::test]
async fn what_cannot_be_stored_is_named_before_anything_is_written() {
    let store = TestStore::new();
    let context = session_over(&store);
    let fields = UnionFields::try_new([0], [Field::new("n", DataType::Int64, false)]).unwrap();
    let union =
        UnionArray::try_new(fields, vec![0i8; 2].into(), None, vec![Arc::new(Int64Array::from(vec![1, 2]))]);
    let batch = RecordBatch::try_from_iter([
        ("fine", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
        ("odd", Arc::new(union.unwrap())),
    ]);
    context.register_batch("source", batch.unwrap()).unwrap();
    let error = error(&context, "COPY source TO 'faulty://x/a.vortex'").await;
    assert!(error.contains("odd") && error.contains("Union"), "{error}");
    leaves_nothing(&store).await;
}
