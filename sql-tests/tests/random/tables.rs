//! The same rows in memory and in files, and sessions that query them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, new_null_array};
use arrow::compute::{CastOptions, SortOptions, cast_with_options, concat_batches};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig};
use datafusion::logical_expr::SortExpr;
use datafusion::prelude::{SessionConfig, SessionContext, ident};
use rand::Rng as _;
use rand::rngs::StdRng;
use sql_tests::rows;
use tempfile::TempDir;
use vortex_core::Level;
use vortex_datafusion::{
    VortexContextExt as _, VortexDataFrameExt as _, VortexFormat, VortexOptions, VortexReadOptions,
    VortexWriteOptions, listing_url,
};

use crate::queries::{COLUMNS, Statement};

/// Sizes of files: empty, one row, around one zone of 8,192 rows, and several of them.
const SIZES: [usize; 8] = [0, 1, 100, 8191, 8193, 20_000, 30_000, 60_000];

/// What is changed between sessions, each in a third of them.
const SETTINGS: [&str; 20] = [
    "vortex.predicate_pushdown = false",
    "vortex.fallback_filter_eval = false",
    "vortex.projection_pushdown = false",
    "vortex.aggregate_pushdown = false",
    "vortex.prune = false",
    "vortex.order_from_statistics = true",
    "vortex.string_type = 'stored'",
    "vortex.string_type = 'utf8'",
    "vortex.verify_checksums = true",
    "datafusion.execution.collect_statistics = false",
    "datafusion.execution.batch_size = 100",
    "datafusion.execution.coalesce_batches = false",
    "datafusion.execution.split_file_groups_by_statistics = true",
    "datafusion.execution.target_partitions = 1",
    "datafusion.execution.target_partitions = 7",
    "datafusion.optimizer.repartition_file_min_size = 1",
    "datafusion.optimizer.preserve_file_partitions = 1",
    "datafusion.optimizer.prefer_hash_join = false",
    "datafusion.optimizer.prefer_existing_sort = true",
    "datafusion.optimizer.enable_dynamic_filter_pushdown = false",
];

/// What a query returns.
pub(crate) enum Answer {
    /// Its rows as text, sorted unless the statement determines their order.
    Rows(Vec<String>),
    Error(String),
}

/// A large table `t` of a few files, and a small table `o` of one file.
pub(crate) struct Tables {
    /// The rows of `t`.
    pub(crate) rows: RecordBatch,
    /// The order that files may have recorded.
    pub(crate) order: String,
    /// Whether files are in folders named after values of `h`.
    is_partitioned: bool,
    /// Whether the columns are declared, and files may have narrower ones.
    is_declared: bool,
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
        let order = Order::new(random);
        let is_partitioned = random.random_ratio(1, 3);
        let is_declared = is_partitioned || random.random_ratio(1, 3);
        let mut tables = Self {
            rows: crate::rows::random(random, 0, 0)?,
            order: order.to_string(),
            is_partitioned,
            is_declared,
            memory,
            folder,
        };
        tables.rows = tables.write(random, "t", &files, &order).await?;
        let few = random.random_range(1..200);
        tables.write(random, "o", &[few], &order).await?;
        Ok(tables)
    }

    /// Writes a table into files of these sizes, and keeps its rows.
    async fn write(
        &self,
        random: &mut StdRng,
        name: &str,
        sizes: &[usize],
        order: &Order,
    ) -> Result<RecordBatch> {
        let Self { memory, folder, is_partitioned, is_declared, .. } = self;
        let mut parts = Vec::new();
        let mut first = 0;
        for size in sizes {
            parts.push(crate::rows::random(random, first, *size)?);
            first += *size as i64;
        }
        // Files in an order may follow each other in this order, or overlap.
        let is_sorted = random.random_ratio(2, 3);
        if is_sorted && random.random() {
            let all = memory.read_batch(concat_batches(&parts[0].schema(), &parts)?)?;
            let all = all.sort(order.keys(&parts[0]))?.collect().await?;
            let all = concat_batches(&parts[0].schema(), &all)?;
            let mut start = 0;
            for part in &mut parts {
                *part = all.slice(start, part.num_rows());
                start += part.num_rows();
            }
        }
        let mut batches = Vec::new();
        for (at, mut batch) in parts.into_iter().enumerate() {
            let mut stored = batch.clone();
            let value = at % 2;
            if at > 0 && random.random_ratio(1, 3) {
                // A file from before the column was added.
                let added = random.random_range(1..batch.num_columns());
                stored.remove_column(added);
                let mut columns = batch.columns().to_vec();
                columns[added] = new_null_array(columns[added].data_type(), batch.num_rows());
                batch = RecordBatch::try_new(batch.schema(), columns)?;
            }
            batch = with_partition(&batch, value)?;
            let path = if *is_partitioned {
                format!("{name}/h={value}/{at}.vortex")
            } else {
                stored = with_partition(&stored, value)?;
                format!("{name}/{at}.vortex")
            };
            if *is_declared && random.random() {
                stored = narrowed(&stored)?;
            }
            let path = folder.path().join(path);
            let keys = order.keys(&stored);
            let stored = memory.read_batch(stored)?;
            let stored = if is_sorted { stored.sort(keys)? } else { stored };
            let options = VortexWriteOptions::new().with_options(options(random));
            stored.write_vortex(&path.to_string_lossy(), options).await?;
            batches.push(batch);
        }
        let rows = concat_batches(&batches[0].schema(), &batches)?;
        memory.register_table(name, Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows.clone()]])?))?;
        Ok(rows)
    }

    pub(crate) async fn in_memory(&self, statement: &Statement) -> Answer {
        answer(&self.memory, statement).await
    }

    /// The answer of a new session, and what it differs in from others.
    pub(crate) async fn in_files(
        &self,
        random: &mut StdRng,
        statement: &Statement,
    ) -> (Vec<&'static str>, Answer) {
        let mut settings: Vec<_> = SETTINGS.into_iter().filter(|_| random.random_ratio(1, 3)).collect();
        // Without the optimizer rules, DataFusion 55 may pass filters above a join to other columns, and take rows of
        // the wrong branch of a union.
        let needs_rules = ["JOIN", "UNION"].iter().any(|word| statement.sql.contains(word));
        let session = if needs_rules || random.random_ratio(4, 5) {
            self.session(&settings).await
        } else {
            settings.retain(|setting| !setting.starts_with("vortex."));
            let session = self.unregistered_session(&settings).await;
            settings.push("no registration");
            session
        };
        let answer = match session {
            Ok(session) => answer(&session, statement).await,
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
            let mut options = VortexReadOptions::new();
            if self.is_declared {
                options = options.with_schema(self.rows.schema());
            }
            // Of a declared type: otherwise, the values in the names of folders would be text.
            if self.is_partitioned {
                options = options.with_partition_columns(["h"]);
            }
            session.register_vortex_with(name, &[&self.place_of(name)], options).await?;
        }
        Ok(session)
    }

    /// A session that knows nothing of Vortex but the format of its tables.
    async fn unregistered_session(&self, settings: &[&str]) -> Result<SessionContext> {
        let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(3));
        for setting in settings {
            session.sql(&format!("SET {setting}")).await?;
        }
        let (all, mut stored) = (self.rows.schema(), self.rows.schema());
        let mut options = ListingOptions::new(Arc::new(VortexFormat::new())).with_file_extension(".vortex");
        if self.is_partitioned {
            options = options.with_table_partition_cols(vec![("h".to_owned(), DataType::Int64)]);
            stored = Arc::new(all.project(&(0..all.fields().len() - 1).collect::<Vec<_>>())?);
        }
        for name in ["t", "o"] {
            let config = ListingTableConfig::new(listing_url(&self.place_of(name))?)
                .with_listing_options(options.clone())
                .with_schema(Arc::clone(&stored));
            session.register_table(name, Arc::new(ListingTable::try_new(config)?))?;
        }
        Ok(session)
    }

    fn place_of(&self, table: &str) -> String {
        format!("{}/{table}/", self.folder.path().display())
    }
}

/// The rows with a last column `h` of one value, after which a folder may be named.
fn with_partition(rows: &RecordBatch, value: usize) -> Result<RecordBatch> {
    let mut fields = rows.schema().fields().to_vec();
    fields.push(Arc::new(Field::new("h", DataType::Int64, true)));
    let mut columns = rows.columns().to_vec();
    columns.push(Arc::new(Int64Array::from_value(value as i64, rows.num_rows())));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// The rows with columns of other types that have the same values, where there are such.
fn narrowed(rows: &RecordBatch) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let narrow = |field: &Field, column: &ArrayRef| {
        let to = match field.data_type() {
            DataType::Int64 => DataType::Int32,
            DataType::Int32 => DataType::Int16,
            DataType::Int16 => DataType::UInt8,
            DataType::Decimal128(12, 2) => DataType::Decimal64(8, 2),
            DataType::Utf8View => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            _ => return (Arc::new(field.clone()), Arc::clone(column)),
        };
        match cast_with_options(column, &to, &options) {
            Ok(narrow) => (Arc::new(field.clone().with_data_type(to)), narrow),
            Err(_) => (Arc::new(field.clone()), Arc::clone(column)),
        }
    };
    let schema = rows.schema();
    let columns = schema.fields().iter().zip(rows.columns()).map(|(field, column)| narrow(field, column));
    let (fields, columns): (Vec<_>, Vec<_>) = columns.unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// An order of rows: by a few random columns, then by `id`.
struct Order(Vec<(&'static str, SortOptions)>);

impl Order {
    fn new(random: &mut StdRng) -> Self {
        let mut keys = Vec::new();
        for _ in 0..random.random_range(0..3) {
            let (column, _) = COLUMNS[random.random_range(1..COLUMNS.len())];
            keys.push((column, SortOptions { descending: random.random(), nulls_first: random.random() }));
        }
        keys.push((COLUMNS[0].0, SortOptions { descending: random.random(), nulls_first: false }));
        Self(keys)
    }

    /// The keys that these rows have.
    fn keys(&self, rows: &RecordBatch) -> Vec<SortExpr> {
        let keys = self.0.iter().filter(|(column, _)| rows.column_by_name(column).is_some());
        keys.map(|(column, options)| ident(*column).sort(!options.descending, options.nulls_first)).collect()
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (column, options)) in self.0.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            let direction = if options.descending { "DESC" } else { "ASC" };
            let nulls = if options.nulls_first { "FIRST" } else { "LAST" };
            write!(f, "{comma}{column} {direction} NULLS {nulls}")?;
        }
        Ok(())
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

async fn answer(session: &SessionContext, statement: &Statement) -> Answer {
    match lines(session, &statement.sql).await {
        Ok(mut lines) => {
            if !statement.is_ordered {
                lines.sort_unstable();
            }
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
