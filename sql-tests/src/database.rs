//! A DataFusion session, adapted to sqllogictest.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use sqllogictest::{AsyncDB, DBOutput};
use tempfile::TempDir;

use crate::cells::{Cell, rows};
use crate::{Places, Store, sorted};

/// The variants of the data that suites run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// DataFusion's own reader over Arrow files: the source of the expected answers.
    Arrow,
    /// Vortex files with default settings.
    Vortex,
    /// Vortex files with all push-down disabled.
    Plain,
    /// Vortex files cut into as many partitions as possible, and read in tiny batches.
    Splits,
    /// Tables of several Vortex files with a recorded order, read one after the other.
    Sorted,
    /// The same in three partitions.
    Groups {
        /// Whether bounds of files decide which partition reads them, not only their names.
        by_statistics: bool,
    },
    /// Vortex files in an object store on a server.
    Store,
}

impl Variant {
    /// Labels for this variant in `skipif` and `onlyif`.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Arrow => &["arrow"],
            Self::Vortex => &["vortex", "pushdown"],
            Self::Plain | Self::Splits | Self::Sorted | Self::Groups { .. } => &["vortex"],
            Self::Store => &["vortex", "pushdown", "store"],
        }
    }

    /// Extension of the files this variant reads.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Arrow => "arrow",
            _ => "vortex",
        }
    }

    /// Statements that configure a session for this variant.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Arrow | Self::Vortex | Self::Store => &[],
            Self::Plain => &[
                "SET vortex.predicate_pushdown = false",
                "SET vortex.projection_pushdown = false",
                "SET vortex.aggregate_pushdown = false",
                "SET vortex.prune = false",
                "SET datafusion.execution.collect_statistics = false",
                "SET datafusion.optimizer.enable_dynamic_filter_pushdown = false",
            ],
            Self::Splits => &[
                "SET datafusion.execution.batch_size = 61",
                "SET datafusion.execution.target_partitions = 7",
                "SET datafusion.optimizer.repartition_file_min_size = 1",
            ],
            Self::Sorted => &[
                "SET datafusion.execution.batch_size = 100",
                "SET datafusion.execution.target_partitions = 1",
            ],
            Self::Groups { by_statistics: false } => &[
                "SET datafusion.execution.batch_size = 100",
                "SET datafusion.execution.target_partitions = 3",
            ],
            Self::Groups { by_statistics: true } => &[
                "SET datafusion.execution.batch_size = 100",
                "SET datafusion.execution.target_partitions = 3",
                "SET datafusion.execution.split_file_groups_by_statistics = true",
            ],
        }
    }
}

/// One session over one variant of the data.
pub struct Database {
    session: SessionContext,
    variant: Variant,
    places: Places,
    /// The folder that statements write to, if it is on this machine.
    _scratch: TempDir,
}

impl Database {
    /// Opens a session without tables, over the files in `places`.
    ///
    /// # Errors
    /// If Vortex cannot be registered, or does not know a setting of the variant.
    pub async fn open(variant: Variant, places: Places) -> Result<Self> {
        let config = SessionConfig::new().with_target_partitions(4).with_information_schema(true);
        let session = SessionContext::new_with_config(config);
        vortex_datafusion::register(&session)?;
        vortex_datafusion::enable_url_tables(&session);
        if let Some(Store { url, objects }) = &places.store {
            session.register_object_store(url, Arc::clone(objects));
        }
        for setting in variant.settings() {
            session.sql(setting).await?;
        }
        let scratch = TempDir::new()?;
        let places = places.with_scratch(scratch.path());
        Ok(Self { session, variant, places, _scratch: scratch })
    }

    /// Inserts the actual places and, for Arrow, the other file type into a statement.
    fn adapt(&self, sql: &str) -> String {
        let sql = sql
            .replace("{files}", &self.places.files)
            .replace("{tables}", &self.places.tables)
            .replace("{scratch}", &self.places.scratch);
        match self.variant {
            Variant::Arrow => {
                sql.replace("STORED AS VORTEX", "STORED AS ARROW").replace(".vortex'", ".arrow'")
            }
            _ => sql,
        }
    }

    async fn query(&self, sql: &str) -> Result<(SchemaRef, Vec<Vec<String>>)> {
        let mut sql = self.adapt(sql);
        if matches!(self.variant, Variant::Sorted | Variant::Groups { .. }) {
            sql = sorted::replaced(&sql, &self.places).await?;
        }
        let plan = self.session.sql(&sql).await?.create_physical_plan().await?;
        let schema = plan.schema();
        let mut lines = Vec::new();
        for batch in collect(plan, self.session.task_ctx()).await? {
            assert_eq!(batch.schema(), schema, "a batch differs from the plan's schema: {sql}");
            lines.extend(rows(&batch)?);
        }
        // Plans and messages name files; answers must not depend on their location.
        for (place, name) in self.places.as_shown() {
            for cell in lines.iter_mut().flatten() {
                *cell = cell.replace(&place, name);
            }
        }
        Ok((schema, lines))
    }
}

#[async_trait]
impl AsyncDB for Database {
    type Error = DataFusionError;
    type ColumnType = Cell;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<Cell>> {
        let (schema, mut rows) = self.query(sql).await?;
        if schema.fields().is_empty() {
            return Ok(DBOutput::StatementComplete(rows.len() as u64));
        }
        // The second column of EXPLAIN is a drawing: it is more readable with one row per line.
        if sql.trim_start().get(..7).is_some_and(|word| word.eq_ignore_ascii_case("explain")) {
            rows = rows.iter().map(|row| row.join(" ")).flat_map(|plan| plan_lines(&plan)).collect();
            return Ok(DBOutput::Rows { types: vec![Cell::Text], rows });
        }
        Ok(DBOutput::Rows { types: Cell::of(&schema), rows })
    }

    async fn shutdown(&mut self) {}
}

/// The lines of a plan as single cells, with indentation made visible so that comparisons do not ignore it.
fn plan_lines(plan: &str) -> Vec<Vec<String>> {
    let lines = plan.split("\\n").filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let text = line.trim_start();
            vec![format!("{}{text}", "-".repeat(line.len() - text.len()))]
        })
        .collect()
}
