//! Runs queries on all engines in turn and measures them.
//!
//! ```text
//! query 1:  first round, for the answers      A B C
//!           timed rounds                      A B C  B C A  C A B  ..
//! query 2:  ..
//! ```
//!
//! Engines take turns within each round, and a different one starts each time, so that a noisy machine
//! affects all of them equally.
//!
//! Locally, an engine keeps its session, with warm caches, for the whole suite. Remotely, each run gets a
//! new session over a [`DistantStore`]; its time includes inferring the schema.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use object_store::local::LocalFileSystem;
use url::Url;

use crate::compare::Answer;
use crate::data::{DataSet, Scale, generate, load};
use crate::engines::Engine;
use crate::store::{Distance, DistantStore, Traffic};
use crate::suites::{Query, Suite};

const STORE_URL: &str = "bench://data";

/// What to run, on which data, and how often.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) data: PathBuf,
    pub(crate) scale: Scale,
    pub(crate) suite: Suite,
    pub(crate) engines: Vec<Engine>,
    /// Names of queries; empty means all.
    pub(crate) queries: Vec<String>,
    pub(crate) iterations: usize,
    pub(crate) target_partitions: usize,
    /// Whether to print answers.
    pub(crate) show: bool,
    /// The distance of the files; `None` means the local disk.
    pub(crate) distance: Option<Distance>,
}

/// The measurements of one engine for one query.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// One per timed round; none if the query failed.
    pub(crate) times: Vec<Duration>,
    /// Traffic of the last round, if the store counts it.
    pub(crate) traffic: Option<Traffic>,
    /// The result of comparing the answer.
    pub(crate) verdict: Verdict,
}

/// The comparison of an answer with that of the first engine that returned one.
#[derive(Debug, Default)]
pub(crate) enum Verdict {
    /// Equal, or the first answer.
    #[default]
    Agrees,
    /// Different, with a description.
    Differs(String),
    /// No answer, with the reason.
    Failed(String),
}

/// The measurements of all engines for one query, in the order of the plan.
#[derive(Debug)]
pub(crate) struct QueryOutcome {
    pub(crate) query: Query,
    /// Number of rows of the answer, if any engine returned one.
    pub(crate) row_count: Option<usize>,
    pub(crate) outcomes: Vec<Outcome>,
}

/// One table of the suite.
struct Source {
    name: &'static str,
    set: DataSet,
}

/// Files at a simulated distance.
type Store = Arc<DistantStore<LocalFileSystem>>;

/// An engine, and what it keeps between queries.
enum Runner {
    /// One session in which all tables are registered.
    Warm(SessionContext),
    /// A new session for each run, over the store of all runs.
    Cold(Engine, Store),
}

impl Runner {
    /// The traffic so far of the store, if it counts it.
    fn traffic(&self) -> Option<Traffic> {
        match self {
            Self::Warm(_) => None,
            Self::Cold(_, store) => Some(store.traffic()),
        }
    }
}

impl From<Option<String>> for Verdict {
    fn from(difference: Option<String>) -> Self {
        difference.map_or(Self::Agrees, Self::Differs)
    }
}

impl Plan {
    /// Runs the whole plan; missing data is generated first.
    pub(crate) async fn run(&self) -> Result<Vec<QueryOutcome>> {
        let queries: Vec<Query> =
            self.suite.queries()?.into_iter().filter(|query| self.wants(query)).collect();
        let sources = self.sources(&queries).await?;
        let store = match self.distance {
            Some(distance) => {
                let files = LocalFileSystem::new_with_prefix(&self.data)?;
                Some(Arc::new(DistantStore::new(files, distance)))
            }
            None => None,
        };
        let mut runners = Vec::new();
        for &engine in &self.engines {
            runners.push(match &store {
                Some(store) => Runner::Cold(engine, Arc::clone(store)),
                None => Runner::Warm(self.warm_session(engine, &sources).await?),
            });
        }

        let mut outcomes = Vec::new();
        for query in queries {
            eprint!("{}/{} ", self.suite.name(), query.name);
            outcomes.push(self.run_query(query, &runners, &sources).await?);
            eprintln!();
        }
        Ok(outcomes)
    }

    fn wants(&self, query: &Query) -> bool {
        self.queries.is_empty() || self.queries.contains(&query.name)
    }

    /// The tables that the queries read, generated if necessary.
    async fn sources(&self, queries: &[Query]) -> Result<Vec<Source>> {
        let mut formats: Vec<_> = self.engines.iter().map(|engine| engine.format()).collect();
        formats.dedup();
        let mut sources = Vec::new();
        for &set in self.suite.data_sets() {
            generate(&self.data, set, &self.scale, &formats).await?;
            let names = set.tables(&self.scale).into_iter().map(|table| table.name);
            let wanted = names.filter(|name| queries.iter().any(|query| query.mentions(name)));
            sources.extend(wanted.map(|name| Source { name, set }));
        }
        Ok(sources)
    }

    async fn warm_session(&self, engine: Engine, sources: &[Source]) -> Result<SessionContext> {
        let session = engine.session(self.target_partitions)?;
        for source in sources {
            let location = self.location(engine, source)?;
            if engine == Engine::Memory {
                session.register_table(source.name, load(&location, self.target_partitions).await?)?;
            } else {
                engine.register(&session, source.name, &location.to_string_lossy()).await?;
            }
        }
        Ok(session)
    }

    /// A file, or a folder with a trailing slash, as listing requires.
    fn location(&self, engine: Engine, source: &Source) -> Result<PathBuf> {
        let tables = source.set.tables(&self.scale);
        let table = tables.iter().find(|table| table.name == source.name);
        let table = table.ok_or_else(|| exec_datafusion_err!("no table {}", source.name))?;
        let location = table.location(&self.data, source.set, &self.scale, engine.format());
        Ok(if table.files.len() == 1 { location } else { location.join("") })
    }

    async fn run_query(&self, query: Query, runners: &[Runner], sources: &[Source]) -> Result<QueryOutcome> {
        let mut outcomes: Vec<Outcome> = runners.iter().map(|_| Outcome::default()).collect();
        let mut expected: Option<Answer> = None;
        for (runner, outcome) in runners.iter().zip(&mut outcomes) {
            match self.run_once(runner, &query, sources).await {
                Ok((batches, _)) => {
                    let answer = Answer::new(&batches, query.order)?;
                    match &expected {
                        Some(expected) => outcome.verdict = answer.difference(expected).into(),
                        None => {
                            expected = Some(answer);
                            if self.show {
                                println!("{}\n{}", query.name, pretty_format_batches(&batches)?);
                            }
                        }
                    }
                }
                Err(error) => outcome.verdict = Verdict::Failed(error.to_string()),
            }
        }
        for round in 0..self.iterations {
            for i in 0..runners.len() {
                let i = (i + round) % runners.len();
                if matches!(outcomes[i].verdict, Verdict::Failed(_)) {
                    continue;
                }
                let before = runners[i].traffic();
                let (_, time) = self.run_once(&runners[i], &query, sources).await?;
                outcomes[i].times.push(time);
                outcomes[i].traffic = runners[i].traffic().zip(before).map(|(after, before)| after - before);
            }
            eprint!(".");
        }
        Ok(QueryOutcome { query, row_count: expected.as_ref().map(Answer::row_count), outcomes })
    }

    /// Runs a query once. A panic of an engine counts as its failure and does not end the run.
    async fn run_once(
        &self,
        runner: &Runner,
        query: &Query,
        sources: &[Source],
    ) -> Result<(Vec<RecordBatch>, Duration)> {
        let sql = query.sql.clone();
        let (session, unknown) = match runner {
            Runner::Warm(session) => (session.clone(), Vec::new()),
            Runner::Cold(engine, store) => {
                let mut tables = Vec::new();
                for source in sources.iter().filter(|source| query.mentions(source.name)) {
                    let location = self.remote_location(&self.location(*engine, source)?);
                    tables.push((*engine, source.name, location));
                }
                let session = engine.session(self.target_partitions)?;
                let url = Url::parse(STORE_URL).map_err(|error| exec_datafusion_err!("{error}"))?;
                session.register_object_store(&url, Arc::clone(store) as _);
                (session, tables)
            }
        };
        let task = tokio::spawn(async move {
            let start = Instant::now();
            for (engine, name, location) in unknown {
                engine.register(&session, name, &location).await?;
            }
            let batches = session.sql(&sql).await?.collect().await?;
            Ok((batches, start.elapsed()))
        });
        task.await.map_err(|error| exec_datafusion_err!("{error}"))?
    }

    fn remote_location(&self, location: &Path) -> String {
        let relative = location.strip_prefix(&self.data).unwrap_or(location);
        format!("{STORE_URL}/{}", relative.to_string_lossy())
    }
}
