//! The same rows in memory and in files, and sessions that query them.

use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::concat_batches;
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::Rng as _;
use rand::rngs::StdRng;
use sql_tests::rows;
use tempfile::TempDir;
use vortex_core::Level;
use vortex_datafusion::{VortexContextExt as _, VortexDataFrameExt as _, VortexOptions};

/// Sizes of files: empty, one row, around one zone of 8,192 rows, and several of them.
const SIZES: [usize; 8] = [0, 1, 100, 8191, 8193, 20_000, 30_000, 60_000];

/// What is changed between sessions, each in a third of them.
const SETTINGS: [&str; 14] = [
    "vortex.predicate_pushdown = false",
    "vortex.fallback_filter_eval = false",
    "vortex.projection_pushdown = false",
    "vortex.prune = false",
    "vortex.order_from_statistics = true",
    "datafusion.execution.collect_statistics = false",
    "datafusion.execution.batch_size = 100",
    "datafusion.execution.coalesce_batches = false",
    "datafusion.execution.target_partitions = 1",
    "datafusion.execution.target_partitions = 7",
    "datafusion.optimizer.repartition_file_min_size = 1",
    "datafusion.optimizer.prefer_hash_join = false",
    "datafusion.optimizer.prefer_existing_sort = true",
    "datafusion.optimizer.enable_dynamic_filter_pushdown = false",
];

/// What a query returns.
pub(crate) enum Answer {
    /// Its rows as text, sorted.
    Rows(Vec<String>),
    Error(String),
}

/// A large table `t` of a few files, and a small table `o` of one file.
pub(crate) struct Tables {
    /// The rows of `t`.
    pub(crate) rows: RecordBatch,
    memory: SessionContext,
    folder: TempDir,
}

impl Tables {
    pub(crate) async fn create(random: &mut StdRng) -> Result<Self> {
        let folder = TempDir::new()?;
        let config = SessionConfig::new().with_target_partitions(1);
        let memory = SessionContext::new_with_config(config);
        vortex_datafusion::register(&memory)?;
        let mut files = Vec::new();
        for _ in 0..random.random_range(1..4) {
            files.push(SIZES[random.random_range(0..SIZES.len())]);
        }
        let t = Self::write(random, &memory, &folder, "t", &files).await?;
        let few = random.random_range(1..200);
        Self::write(random, &memory, &folder, "o", &[few]).await?;
        Ok(Self { rows: t, memory, folder })
    }

    /// Writes a table into files of these sizes, and keeps its rows.
    async fn write(
        random: &mut StdRng,
        memory: &SessionContext,
        folder: &TempDir,
        name: &str,
        sizes: &[usize],
    ) -> Result<RecordBatch> {
        std::fs::create_dir(folder.path().join(name))?;
        let mut batches = Vec::new();
        let mut first = 0;
        for (at, size) in sizes.iter().enumerate() {
            let mut batch = crate::rows::random(random, first, *size)?;
            first += *size as i64;
            let mut stored = batch.clone();
            if at > 0 && random.random_ratio(1, 3) {
                // A file from before the column was added.
                let added = random.random_range(1..batch.num_columns());
                stored.remove_column(added);
                let mut columns = batch.columns().to_vec();
                columns[added] = new_null_array(columns[added].data_type(), *size);
                batch = RecordBatch::try_new(batch.schema(), columns)?;
            }
            let path = folder.path().join(format!("{name}/{at}.vortex"));
            memory.read_batch(stored)?.write_vortex(&path.to_string_lossy(), Some(options(random))).await?;
            batches.push(batch);
        }
        let rows = concat_batches(&batches[0].schema(), &batches)?;
        memory.register_table(name, Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows.clone()]])?))?;
        Ok(rows)
    }

    pub(crate) async fn in_memory(&self, sql: &str) -> Answer {
        answer(&self.memory, sql).await
    }

    /// The answer of a new session, and its settings.
    pub(crate) async fn in_files(&self, random: &mut StdRng, sql: &str) -> (Vec<&'static str>, Answer) {
        let settings: Vec<_> = SETTINGS.into_iter().filter(|_| random.random_ratio(1, 3)).collect();
        let answer = match self.session(&settings).await {
            Ok(session) => answer(&session, sql).await,
            Err(error) => Answer::Error(error.to_string()),
        };
        (settings, answer)
    }

    async fn session(&self, settings: &[&str]) -> Result<SessionContext> {
        let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(3));
        vortex_datafusion::register(&session)?;
        for setting in settings {
            session.sql(&format!("SET {setting}")).await?;
        }
        for name in ["t", "o"] {
            session.register_vortex(name, &format!("{}/{name}/", self.folder.path().display())).await?;
        }
        Ok(session)
    }
}

fn options(random: &mut StdRng) -> VortexOptions {
    let mut options = VortexOptions::default();
    options.level = [Level::Fast, Level::Default, Level::Compact][random.random_range(0..3)];
    // With little memory, chunks are short.
    options.write_memory = [0, 1 << 20][random.random_range(0..2)];
    options.checksums = random.random();
    options
}

async fn answer(session: &SessionContext, sql: &str) -> Answer {
    match lines(session, sql).await {
        Ok(mut lines) => {
            lines.sort_unstable();
            Answer::Rows(lines)
        }
        Err(error) => Answer::Error(error.to_string()),
    }
}

async fn lines(session: &SessionContext, sql: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for batch in session.sql(sql).await?.collect().await? {
        lines.extend(rows(&batch)?.into_iter().map(|cells| cells.join(" | ")));
    }
    Ok(lines)
}
