//! Rows that DataFusion reads: formats other than Vortex, files that differ, rows that are to be sorted.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, DFSchema};
use datafusion::dataframe::DataFrame;
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use datafusion::logical_expr::{Expr, SortExpr};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, execute_stream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::limit::LimitStore;
use object_store::local::LocalFileSystem;

use super::checked::Checked;
use super::find::Found;
use super::given_order::in_given_order;
use super::input::{Reader, Rows, Wanted, are_local};
use super::numbered::numbered;
use super::sort::SortKey;
use crate::failure::{Failure, Outcome};

/// Number of requests at the same time for files on local disks, if there are more files than this.
const REQUESTS: usize = 64;

impl Reader {
    /// Rows of files of one format.
    pub(super) async fn query(&self, files: &[Found], wanted: &Wanted<'_>) -> Outcome<Rows> {
        let Some(first) = files.first() else {
            return Err(Failure::error("no file to convert"));
        };
        if let Some(other) = files.iter().find(|file| !file.is_read_like(first)) {
            return Err(Failure::Usage(format!(
                "{}: does not have the format of {}, or is compressed in another way; convert files of several formats into a \
                 folder",
                other.name, first.name
            )));
        }
        if let Some(other) = files.iter().find(|file| file.url.object_store() != first.url.object_store()) {
            return Err(Failure::Usage(format!(
                "{}: is in another store than {}; copy the files to one place first, or convert them one by one",
                other.name, first.name
            )));
        }
        if files.len() > REQUESTS && are_local(files) {
            // DataFusion asks for all files at once, and each request opens one.
            let store = LimitStore::new(LocalFileSystem::new(), REQUESTS);
            self.stores.register_store(first.url.as_ref(), Arc::new(store));
        }
        let (table, checked) = self.table(files, first, wanted).await?;
        let table: Arc<dyn TableProvider> = Arc::new(table);
        let read = table.schema();
        let frame = self.context.read_table(Arc::clone(&table))?;
        check_names(&first.name, frame.schema(), wanted)?;
        let mut frame = if wanted.sort_by.is_empty() {
            checked.converted(frame)?
        } else {
            self.sorted(table.as_ref(), &checked, files, wanted).await?
        };
        if let Some(names) = wanted.columns {
            frame = frame.select_columns(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        let plan = plan(frame, files, wanted).await?;
        self.run(&plan, read, files)
    }

    /// All rows of a table, or those of their columns that are needed, in the wanted order, in which rows of equal keys
    /// keep that of the files.
    async fn sorted(
        &self,
        table: &dyn TableProvider,
        checked: &Checked,
        files: &[Found],
        wanted: &Wanted<'_>,
    ) -> Outcome<DataFrame> {
        let needed = wanted.columns.map(|columns| {
            let is_needed = |name: &String| {
                columns.contains(name) || wanted.sort_by.iter().any(|key| key.column == *name)
            };
            let schema = table.schema();
            let fields = schema.fields().iter().enumerate();
            fields.filter(|(_, field)| is_needed(field.name())).map(|(at, _)| at).collect()
        });
        let (rows, number) = numbered(&self.scan(table, needed, files).await?)?;
        let number = Column::from_name(number);
        let keys = wanted.sort_by.iter().map(sort_expr);
        let keys = keys.chain([Expr::Column(number.clone()).sort(true, false)]).collect();
        let sorted = checked.converted(self.context.read_table(Arc::new(rows))?)?.sort(keys)?;
        Ok(sorted.drop_columns(&[number])?)
    }

    /// All rows of a table of files, or some of their columns, in partitions that follow each other in the order of the
    /// files.
    async fn scan(
        &self,
        table: &dyn TableProvider,
        columns: Option<Vec<usize>>,
        files: &[Found],
    ) -> Outcome<Arc<dyn ExecutionPlan>> {
        let state = self.context.state();
        let scan = table.scan(&state, columns.as_ref(), &[], None).await?;
        let options = state.config_options();
        let divided = scan.repartitioned(options.execution.target_partitions, options)?;
        Ok(in_given_order(divided.unwrap_or(scan), files)?)
    }

    /// Runs a plan over a table with these columns.
    fn run(&self, plan: &Arc<dyn ExecutionPlan>, read: SchemaRef, files: &[Found]) -> Outcome<Rows> {
        let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::default()).ok();
        let count = known.and_then(|known| known.num_rows.get_value().copied()).map(|rows| rows as u64);
        let order =
            plan.output_ordering().filter(|_| plan.output_partitioning().partition_count() == 1).cloned();
        let batches = execute_stream(Arc::clone(plan), self.context.task_ctx())?;
        let place = if let [file] = files { Some(file.name.clone()) } else { None };
        let batches = batches.map_err(move |error| {
            let error = with_name(error.into(), &read);
            match &place {
                Some(place) => Failure::at(place, error),
                None => error,
            }
        });
        Ok(Rows { schema: plan.schema(), count, order, batches: batches.boxed() })
    }
}

/// The plan of as many rows as are wanted, in the order of the files unless they are sorted.
async fn plan(mut frame: DataFrame, files: &[Found], wanted: &Wanted<'_>) -> Outcome<Arc<dyn ExecutionPlan>> {
    let limit = wanted.limit.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
    if !wanted.sort_by.is_empty() || files.len() == 1 {
        if limit.is_some() {
            frame = frame.limit(0, limit)?;
        }
        return Ok(frame.create_physical_plan().await?);
    }
    // A table that knew of the limit would leave out files, and not the last ones of those that are given.
    let plan = in_given_order(frame.create_physical_plan().await?, files)?;
    let Some(rows) = limit else { return Ok(plan) };
    let limited = plan.with_fetch(Some(rows)).unwrap_or(plan);
    Ok(Arc::new(GlobalLimitExec::new(limited, 0, Some(rows))))
}

/// Checks that there are the columns to sort by and to convert.
fn check_names(place: &str, schema: &DFSchema, wanted: &Wanted<'_>) -> Outcome {
    check_columns("--sort-by", wanted.sort_by.iter().map(|key| key.column.as_str()), schema, |name| {
        if name.contains(char::is_whitespace) {
            "; the words after a column are: asc, desc, nulls first, nulls last"
        } else {
            ""
        }
    })?;
    check_columns(place, wanted.columns.into_iter().flatten().map(String::as_str), schema, |_| "")
}

/// Checks that there are columns of these names, and tells which there are, with advice about the one that is missing.
fn check_columns<'a>(
    place: &str,
    mut names: impl Iterator<Item = &'a str>,
    schema: &DFSchema,
    advice: fn(&str) -> &'static str,
) -> Outcome {
    let fields = schema.fields();
    let Some(name) = names.find(|name| fields.find(name).is_none()) else { return Ok(()) };
    let there = fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
    let advice = advice(name);
    Err(Failure::error(format!("{place}: no column `{name}`; there are: {there}{advice}")))
}

/// An error about a value of a CSV file with the name of the column, instead of its position, and the line as editors
/// count.
fn with_name(failure: Failure, table: &Schema) -> Failure {
    let Failure::Error(message) = failure else { return failure };
    let named = || {
        let (before, rest) = message.split_once("' for column ")?;
        let (column, rest) = rest.split_once(" at line ")?;
        let (line, after) = rest.split_once('.')?;
        let (column, line) = (column.parse::<usize>().ok()?, line.parse::<u64>().ok()? + 1);
        let name = table.fields().get(column)?.name();
        Some(format!("{before}' for column `{name}` at line {line}.{after}"))
    };
    Failure::Error(named().unwrap_or(message))
}

fn sort_expr(key: &SortKey) -> SortExpr {
    Expr::Column(Column::from_name(&key.column)).sort(!key.descending, key.nulls_first)
}
