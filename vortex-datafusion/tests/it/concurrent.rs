//! Queries that run at the same time: in one session, in several, and on several runtimes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream, execute_stream_partitioned};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::future::join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _, PutPayload};
use test_store::TestStore;
use tokio::runtime::Builder;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use vortex_core::io::{ObjectFile, ReadAt};
use vortex_datafusion::VortexTable;

use crate::counting::{over_with, settle};
use crate::files::{copy, create, numbers, physical, plan, run, run_again, show};

const FILES: i64 = 8;
const ROWS_PER_FILE: i64 = 75_000;
const ROWS: i64 = FILES * ROWS_PER_FILE;
const MIB: usize = 1 << 20;

/// A query that may have to wait for others ends within this time, or hangs.
const LONG: Duration = Duration::from_secs(60);

/// Queries with one right answer, for which a few megabytes suffice.
const STATEMENTS: [&str; 8] = [
    "SELECT count(*) AS n, sum(noise) AS s, max(text) AS t FROM t WHERE mixed > 5",
    "SELECT grp, count(*) AS n, sum(more) AS s FROM t GROUP BY grp ORDER BY grp",
    "SELECT key, text FROM t ORDER BY mixed DESC, key LIMIT 20",
    "SELECT key, most FROM t WHERE text LIKE '%777%' ORDER BY key LIMIT 50",
    "SELECT count(*) AS n, sum(a.noise) AS s FROM t a JOIN t b ON a.key = b.mixed \
     WHERE a.grp = 7 AND b.grp = 11",
    "SELECT count(DISTINCT mixed) AS n FROM t WHERE grp < 5",
    "SELECT sum(length(label)) AS l, min(most) AS m FROM t WHERE key % 3 = 1",
    "SELECT max(n) AS n FROM (SELECT more % 1000 AS m, count(*) AS n FROM t GROUP BY m)",
];

/// All statements, two times.
const TWICE: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7];

/// The columns of the table, computed from a query for keys. Numbers without a pattern make files larger than
/// what is kept of them with their footers; long labels make splits short.
fn rows(keys: &str) -> String {
    let random = |(a, b)| format!("(hash % {a}) * (hash % {b}) % {PRIME}");
    let (noise, more, most) = (random(NOISE), random(MORE), random(MOST));
    format!(
        "SELECT key, key % 97 AS grp, key * key % 1000003 AS mixed, \
                {noise} AS noise, {more} AS more, {most} AS most, \
                'text ' || (key * key % 99991) AS text, repeat('abcdefg ', 20) || (key % 50) AS label \
         FROM (SELECT key, key * {FACTOR} % {PRIME} AS hash FROM ({keys}))"
    )
}

const FACTOR: i64 = 2_654_435_761;
const PRIME: i64 = 4_294_967_291;
const NOISE: (i64, i64) = (1_000_003, 999_983);
const MORE: (i64, i64) = (999_979, 999_961);
const MOST: (i64, i64) = (999_959, 999_953);

/// The value of one of the three columns without a pattern.
fn random(key: i64, (a, b): (i64, i64)) -> i64 {
    let hash = key * FACTOR % PRIME;
    (hash % a) * (hash % b) % PRIME
}

/// The files of the table, each with every eighth row, in the order of the keys. Written once for all tests.
async fn files() -> &'static [PutPayload] {
    static TABLE: OnceCell<Vec<PutPayload>> = OnceCell::const_new();
    let write = || async {
        let store = TestStore::new();
        let context = session(&store, &runtime(&unbounded()), 1);
        let mut files = Vec::new();
        for file in 0..FILES {
            let last = ROWS_PER_FILE - 1;
            let keys = format!("SELECT value * {FILES} + {file} AS key FROM generate_series(0, {last})");
            let rows = format!("{} ORDER BY key", rows(&keys));
            copy(&context, &rows, format!("counting://store/{file}.vortex")).await;
            let path = Path::from(format!("{file}.vortex"));
            let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
            assert!(bytes.len() > MIB, "{} bytes would be kept with the footer", bytes.len());
            files.push(PutPayload::from(bytes));
        }
        files
    };
    TABLE.get_or_init(write).await
}

/// A store that holds the files of the table.
async fn filled() -> Arc<TestStore> {
    let store = TestStore::new();
    for (number, file) in files().await.iter().enumerate() {
        store.put(&Path::from(format!("t/{number}.vortex")), file.clone()).await.unwrap();
    }
    store
}

fn unbounded() -> Arc<dyn MemoryPool> {
    greedy(usize::MAX)
}

fn greedy(bytes: usize) -> Arc<dyn MemoryPool> {
    Arc::new(GreedyMemoryPool::new(bytes))
}

fn fair(bytes: usize) -> Arc<dyn MemoryPool> {
    Arc::new(FairSpillPool::new(bytes))
}

fn runtime(pool: &Arc<dyn MemoryPool>) -> Arc<RuntimeEnv> {
    RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(pool)).build_arc().unwrap()
}

fn session(store: &Arc<TestStore>, runtime: &Arc<RuntimeEnv>, partitions: usize) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(partitions);
    // Each sort reserves this, by default more than some of the pools hold.
    let config = config.with_sort_spill_reservation_bytes(64 << 10);
    over_with(store, config, Arc::clone(runtime))
}

/// A session with the table `t`.
async fn over(store: &Arc<TestStore>, pool: &Arc<dyn MemoryPool>, partitions: usize) -> SessionContext {
    let context = session(store, &runtime(pool), partitions);
    create(&context, "t", "counting://store/t/").await;
    context
}

/// What DataFusion answers over the rows that were written.
async fn expected<S: AsRef<str>>(statements: &[S]) -> Vec<String> {
    let context = SessionContext::new();
    let keys = format!("SELECT value AS key FROM generate_series(0, {})", ROWS - 1);
    run(&context, &format!("CREATE VIEW t AS {}", rows(&keys))).await;
    let mut answers = Vec::new();
    for sql in statements {
        answers.push(show(&context, sql.as_ref()).await);
    }
    answers
}

/// The answers to [`STATEMENTS`].
async fn right_answers() -> &'static [String] {
    static ANSWERS: OnceCell<Vec<String>> = OnceCell::const_new();
    ANSWERS.get_or_init(|| expected(&STATEMENTS)).await
}

async fn answer(context: &SessionContext, sql: &str) -> Result<String> {
    let batches = context.sql(sql).await?.collect().await?;
    Ok(pretty_format_batches(&batches)?.to_string())
}

/// Runs the statements all at once, each of them in one of the sessions.
async fn answers(contexts: &[&SessionContext], statements: &[&str]) -> Vec<Result<String>> {
    let tasks = statements.iter().enumerate().map(|(at, sql)| {
        let (context, sql) = (contexts[at % contexts.len()].clone(), (*sql).to_owned());
        tokio::spawn(async move { answer(&context, &sql).await })
    });
    let outcomes = within("a query", join_all(tasks)).await;
    outcomes.into_iter().map(|outcome| outcome.expect("no panic")).collect()
}

/// Runs some of [`STATEMENTS`], by number, all at once; each of them must succeed.
async fn assert_right(contexts: &[&SessionContext], numbers: &[usize]) {
    let statements: Vec<&str> = numbers.iter().map(|number| STATEMENTS[*number]).collect();
    let found = answers(contexts, &statements).await;
    for (number, found) in numbers.iter().zip(found) {
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", STATEMENTS[*number]));
        assert_eq!(found, right_answers().await[*number]);
    }
}

fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// What some work comes to; it may take a while, but not hang.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

fn keys_of(batches: &[RecordBatch]) -> Vec<i64> {
    batches.iter().flat_map(|batch| numbers(batch, 0)).collect()
}

/// The rest of some streams, all polled at once.
async fn drain(streams: impl IntoIterator<Item = SendableRecordBatchStream>) -> Vec<RecordBatch> {
    let streams = streams.into_iter().map(|stream| stream.try_collect::<Vec<_>>());
    let batches = within("a stream", join_all(streams)).await;
    batches.into_iter().flat_map(|batches| batches.unwrap()).collect()
}

fn sorted(mut keys: Vec<i64>) -> Vec<i64> {
    keys.sort_unstable();
    keys
}

/// A plan without filters that its operators change while it runs, which could be executed only once.
const REUSABLE: &str = "SELECT key, text FROM t WHERE mixed % 5 = 3";

fn reusable_keys() -> Vec<i64> {
    (0..ROWS).filter(|key| key * key % 1_000_003 % 5 == 3).collect()
}

/// What a plan returns when it runs four times at once, and then once more.
async fn runs_of(plan: &Arc<dyn ExecutionPlan>, context: &SessionContext) -> Vec<Vec<RecordBatch>> {
    let at_once = within("a plan", join_all((0..4).map(|_| run_again(plan, context)))).await;
    let after = within("a plan", run_again(plan, context)).await;
    at_once.into_iter().chain([after]).map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_queries_share_a_pool_that_suffices() {
    let (store, pool) = (filled().await, greedy(32 * MIB));
    let context = over(&store, &pool, 2).await;
    assert_right(&[&context], &TWICE).await;
    settle(&store, &pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_queries_end_in_a_pool_that_does_not_suffice() {
    let store = filled().await;
    for pool in [greedy(2 * MIB), fair(2 * MIB), greedy(8 * MIB), fair(8 * MIB), fair(32 * MIB)] {
        let context = over(&store, &pool, 4).await;
        let statements = TWICE.map(|number| STATEMENTS[number]);
        for (number, found) in TWICE.into_iter().zip(answers(&[&context], &statements).await) {
            match found {
                Ok(found) => assert_eq!(found, right_answers().await[number], "{pool}"),
                Err(error) => assert!(is_exhausted(&error), "{pool}: {}: {error}", STATEMENTS[number]),
            }
        }
        settle(&store, &pool).await;
    }
}

#[tokio::test]
async fn queries_share_one_thread() {
    let (store, pool) = (filled().await, greedy(32 * MIB));
    let context = over(&store, &pool, 2).await;
    store.set_latency(Duration::from_millis(2));
    assert_right(&[&context], &TWICE[..8]).await;
    settle(&store, &pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_leaves_as_much_of_a_pool_as_it_takes() {
    let store = filled().await;
    // Each of the two partitions reads a split of some 1.3 MB in any case.
    for pool in [greedy(8 * MIB), fair(8 * MIB)] {
        let context = over(&store, &pool, 2).await;
        let mut stream = context.sql("SELECT * FROM t").await.unwrap().execute_stream().await.unwrap();
        let (mut rows, mut most) = (0, 0);
        while let Some(batch) = within("a scan", stream.next()).await {
            rows += batch.unwrap().num_rows() as i64;
            most = most.max(pool.reserved());
        }
        assert_eq!(rows, ROWS);
        assert!(most > MIB && most <= 4 * MIB, "{pool}: {most} bytes");
        settle(&store, &pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_get_the_memory_that_scans_could_use() {
    let (store, pool) = (filled().await, greedy(8 * MIB));
    let context = over(&store, &pool, 1).await;
    // A sort fails if it does not get this with its first rows; there is more to read than the pool holds.
    run(&context, &format!("SET datafusion.execution.sort_spill_reservation_bytes = {}", 3 * MIB)).await;
    let sql = "SELECT key, text, noise, more, most FROM t WHERE grp = 7 ORDER BY noise, key";
    let expected = expected(&[sql]).await;
    for _ in 0..3 {
        let found = within("a sort", answer(&context, sql)).await;
        assert_eq!(found.unwrap_or_else(|error| panic!("{error}")), expected[0]);
        settle(&store, &pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_runs_several_times_at_once_and_one_after_the_other() {
    let store = filled().await;
    for latency in [0, 2] {
        store.set_latency(Duration::from_millis(latency));
        let pool = greedy(8 * MIB);
        let context = over(&store, &pool, 4).await;
        run(&context, "SET datafusion.optimizer.repartition_file_min_size = 1").await;
        let plan = physical(&context, REUSABLE).await;
        for batches in runs_of(&plan, &context).await {
            assert_eq!(sorted(keys_of(&batches)), reusable_keys());
        }
        settle(&store, &pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extremes_are_not_lost_to_another_run_of_the_plan() {
    let sql = "SELECT min(key) AS a, max(key) AS b, min(text) AS c, max(text) AS d FROM t WHERE grp < 50";
    let (store, expected) = (filled().await, expected(&[sql]).await);
    for latency in [0, 2] {
        store.set_latency(Duration::from_millis(latency));
        for partitions in [1, 4] {
            let context = over(&store, &unbounded(), partitions).await;
            let plan = physical(&context, sql).await;
            for batches in runs_of(&plan, &context).await {
                assert_eq!(pretty_format_batches(&batches).unwrap().to_string(), expected[0]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_end_although_another_is_not_polled() {
    let store = filled().await;
    // Files are given to whichever partition wants the next one, or they belong to partitions.
    for stealing in [true, false] {
        // How often the first partition is polled before it is left alone.
        for polled in [0, 1] {
            let pool = greedy(4 * MIB);
            let context = over(&store, &pool, 4).await;
            let set = "SET datafusion.execution.enable_file_stream_work_stealing";
            run(&context, &format!("{set} = {stealing}")).await;
            run(&context, "SET datafusion.optimizer.repartition_file_min_size = 1").await;
            let plan = physical(&context, REUSABLE).await;
            for is_dropped in [false, true] {
                let plan = reset_plan_states(Arc::clone(&plan)).unwrap();
                let mut streams = execute_stream_partitioned(plan, context.task_ctx()).unwrap();
                assert_eq!(streams.len(), 4);
                let mut idle = streams.remove(0);
                let mut found = Vec::new();
                for _ in 0..polled {
                    found.extend(within("a partition", idle.next()).await.transpose().unwrap());
                }
                let idle = (!is_dropped).then_some(idle);
                found.extend(drain(streams).await);
                assert!(!found.is_empty());
                if idle.is_some() {
                    found.extend(drain(idle).await);
                    assert_eq!(sorted(keys_of(&found)), reusable_keys());
                }
                settle(&store, &pool).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_end_while_the_streams_of_others_are_left_alone() {
    let store = filled().await;
    for pool in [greedy(8 * MIB), fair(8 * MIB)] {
        let context = over(&store, &pool, 2).await;
        let mut idle = Vec::new();
        for sql in ["SELECT * FROM t", "SELECT * FROM t WHERE noise % 7 > 0", "SELECT label, key FROM t"] {
            let mut stream = context.sql(sql).await.unwrap().execute_stream().await.unwrap();
            let first = within("a stream", stream.next()).await.unwrap().unwrap();
            idle.push((first.num_rows() as i64, stream));
        }
        assert_right(&[&context], &[0, 1, 6]).await;
        let filtered = (0..ROWS).filter(|key| random(*key, NOISE) % 7 > 0).count() as i64;
        for ((first, stream), count) in idle.into_iter().zip([ROWS, filtered, ROWS]) {
            let rest: i64 = drain([stream]).await.iter().map(|batch| batch.num_rows() as i64).sum();
            assert_eq!(first + rest, count);
        }
        settle(&store, &pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_share_a_pool_and_a_cache_of_footers() {
    let (store, pool) = (filled().await, greedy(32 * MIB));
    let runtime = runtime(&pool);
    let sessions = [session(&store, &runtime, 2), session(&store, &runtime, 3)];
    create(&sessions[0], "t", "counting://store/t/").await;
    store.take();
    create(&sessions[1], "t", "counting://store/t/").await;
    run(&sessions[1], "SELECT count(*), min(key), max(key) FROM t").await;
    assert_eq!(store.take(), (0, 0), "the other session has read all footers");
    assert_right(&[&sessions[0], &sessions[1]], &TWICE).await;
    settle(&store, &pool).await;
}

#[test]
fn a_runtime_that_stands_still_holds_up_no_other() {
    let still = Builder::new_current_thread().enable_all().build().unwrap();
    let busy = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let pool = greedy(8 * MIB);
    let (store, context, plan, first, rest) = still.block_on(async {
        let store = filled().await;
        store.set_latency(Duration::from_millis(2));
        let context = over(&store, &pool, 2).await;
        let plan = physical(&context, REUSABLE).await;
        let own = reset_plan_states(Arc::clone(&plan)).unwrap();
        let mut streams = execute_stream_partitioned(own, context.task_ctx()).unwrap();
        let first = within("a stream", streams[0].next()).await.unwrap().unwrap();
        (store, context, plan, first, streams)
    });
    // Requests, files opened ahead and segments of the first runtime are in progress, but nobody polls it.
    busy.block_on(async {
        assert_right(&[&context], &[0, 6]).await;
        let batches = within("the same plan", run_again(&plan, &context)).await.unwrap();
        assert_eq!(sorted(keys_of(&batches)), reusable_keys());
    });
    still.block_on(async {
        let batches: Vec<_> = [first].into_iter().chain(drain(rest).await).collect();
        assert_eq!(sorted(keys_of(&batches)), reusable_keys());
        settle(&store, &pool).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_dropped_in_the_middle_leave_nothing_and_harm_no_other() {
    let (store, pool) = (filled().await, greedy(16 * MIB));
    store.set_latency(Duration::from_millis(5));
    let context = over(&store, &pool, 4).await;
    run(&context, "SET datafusion.optimizer.repartition_file_min_size = 1").await;
    for polled in [0, 1, 3] {
        let mut kept = Vec::new();
        let mut found = Vec::new();
        for query in 0..8 {
            let plan = physical(&context, REUSABLE).await;
            let streams = execute_stream_partitioned(plan, context.task_ctx()).unwrap();
            let polling = streams.into_iter().map(|mut stream| async move {
                let mut first = Vec::new();
                for _ in 0..polled {
                    // Waits only briefly, so that some requests are still in flight.
                    match timeout(Duration::from_millis(3), stream.next()).await {
                        Ok(Some(batch)) => first.push(batch.unwrap()),
                        Ok(None) | Err(_) => break,
                    }
                }
                (first, stream)
            });
            let streams = join_all(polling).await;
            // The streams of every second query are dropped here, while others have requests in flight.
            if query % 2 == 0 {
                for (first, stream) in streams {
                    found.push(first);
                    kept.push(stream);
                }
            }
        }
        let mut found = found.concat();
        found.extend(drain(kept).await);
        let expected: Vec<i64> = reusable_keys().into_iter().flat_map(|key| [key; 4]).collect();
        assert_eq!(sorted(keys_of(&found)), expected, "polled {polled} times");
        settle(&store, &pool).await;
    }
    for sql in STATEMENTS {
        let mut stream = execute_stream(physical(&context, sql).await, context.task_ctx()).unwrap();
        drop(timeout(Duration::from_millis(3), stream.next()).await);
    }
    settle(&store, &pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_joined_with_itself_and_read_eight_times_at_once() {
    let union = ["SELECT noise, grp FROM t"; 8].join(" UNION ALL ");
    let statements = [
        format!("SELECT count(*) AS n, sum(noise) AS s, max(grp) AS g FROM ({union}) WHERE grp > 3"),
        format!("SELECT grp, count(*) AS n, min(noise) AS m FROM ({union}) GROUP BY grp ORDER BY grp"),
        "SELECT count(*) AS n, sum(a.most) AS s FROM t a JOIN t b USING (key) WHERE a.mixed < b.noise"
            .to_owned(),
        "SELECT count(*) AS n FROM t a LEFT ANTI JOIN t b ON a.key = b.mixed".to_owned(),
        "SELECT key, text FROM t WHERE mixed = (SELECT max(mixed) FROM t) ORDER BY key".to_owned(),
    ];
    let (store, expected) = (filled().await, expected(&statements).await);
    let pool = greedy(512 * MIB);
    let listed = over(&store, &pool, 4).await;
    // Scans of files that are already open share their segments.
    let sources = (0..FILES).map(|file| {
        let store = Arc::clone(&store);
        async move {
            let meta: ObjectMeta = store.head(&Path::from(format!("t/{file}.vortex"))).await.unwrap();
            Arc::new(ObjectFile::new(store, meta)) as Arc<dyn ReadAt>
        }
    });
    let table = VortexTable::open(join_all(sources).await).await.unwrap();
    let opened = session(&store, &runtime(&pool), 4);
    opened.register_table("t", Arc::new(table)).unwrap();
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    for context in [&listed, &opened] {
        let found = answers(&[context], &statements).await;
        for ((found, expected), sql) in found.into_iter().zip(&expected).zip(&statements) {
            assert_eq!(&found.unwrap_or_else(|error| panic!("{sql}: {error}")), expected, "{sql}");
        }
        settle(&store, &pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ordered_files_are_merged_with_memory_for_few_splits() {
    let store = filled().await;
    let is_wanted = |key: &i64| random(*key, MORE) % 2 == 0 && random(*key, MOST) % 2 == 0;
    let expected: Vec<i64> = (0..ROWS).filter(is_wanted).collect();
    let sql =
        "SELECT key, noise FROM t WHERE more % 2 = 0 AND most % 2 = 0 AND length(text) > 4 ORDER BY key";
    // The merge holds a batch of each file; a split of each would not fit in addition.
    for (pool, others, suffices) in
        [(greedy(16 * MIB), 0, true), (fair(16 * MIB), 0, true), (greedy(16 * MIB), 14 * MIB, false)]
    {
        let context = over(&store, &pool, FILES as usize).await;
        let merged = plan(&context, sql).await;
        assert!(merged.contains("SortPreservingMergeExec") && !merged.contains("SortExec"), "{merged}");
        let held = MemoryConsumer::new("others").register(&pool);
        held.grow(others);
        let plan = physical(&context, sql).await;
        let at_once = (0..3).map(|_| run_again(&plan, &context));
        // One merge alone, then three at once.
        let alone = within("a merge", collect(physical(&context, sql).await, context.task_ctx())).await;
        let at_once = within("a merge", join_all(at_once)).await;
        for (batches, must) in
            [(alone, suffices)].into_iter().chain(at_once.into_iter().map(|of| (of, false)))
        {
            match batches {
                Ok(batches) => assert_eq!(keys_of(&batches), expected),
                Err(error) => assert!(!must && is_exhausted(&error), "{pool}: {error}"),
            }
        }
        held.free();
        settle(&store, &pool).await;
    }
}
