//! Opens a file for a scan that aggregates its rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion_common::{HashMap, Result, ScalarValue, exec_err};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, Literal};
use futures::{StreamExt as _, TryStreamExt as _};
use vortex_core::dtype::arrow::presents;
use vortex_core::expr::FieldPath;
use vortex_core::scan::{Aggregate, Extremes, Measures, ScanBuilder, WantedAggregate, WantedAggregates};

use super::{Adapted, Batches};
use crate::aggregation::{Aggregation, ByRows, Function};
use crate::convert::datafusion_error;

/// The states of a file, or of a range of it.
pub(super) struct Aggregated {
    aggregation: Aggregation,
    /// What each function aggregates, unless some have to aggregate row by row.
    inputs: Option<Vec<Input>>,
    /// Aggregates the columns.
    scan: ScanBuilder,
    /// For each function, where extremes are noted; empty if files do not share them.
    extremes: Vec<Arc<Extremes>>,
    file: String,
}

/// What a function aggregates.
enum Input {
    /// A value that all rows of the file have.
    Constant(ScalarValue),
    /// The column at this position among those of the scan.
    Column {
        at: usize,
        /// Whether the table allows nulls, or the file has none.
        may_be_null: bool,
    },
}

impl Aggregated {
    /// Finds out how to aggregate the rows of `scan`.
    pub(super) fn try_new(
        adapted: &Adapted<'_>,
        aggregation: &Aggregation,
        scan: &ScanBuilder,
    ) -> Result<Self> {
        let mut positions = HashMap::new();
        let functions = aggregation.functions().iter();
        let inputs = functions.map(|function| adapted.input(function, &mut positions));
        let inputs: Option<Vec<Input>> = inputs.collect::<Result<_>>()?;
        let mut columns: Vec<(FieldPath, usize)> = positions.into_iter().collect();
        columns.sort_unstable_by_key(|(_, at)| *at);
        let scan = scan.clone().with_projection(columns.into_iter().map(|(path, _)| path));
        let extremes = adapted.scan.extremes.clone();
        let file = adapted.file.source().name().to_owned();
        Ok(Self { aggregation: aggregation.clone(), inputs, scan, extremes, file })
    }

    /// A batch with one row. Unless the scan can aggregate, `rows` returns the arguments of the functions.
    pub(super) fn into_batches(self, rows: impl FnOnce() -> Result<Batches> + Send + 'static) -> Batches {
        let states = async move {
            let states = match self.states().await? {
                Some(states) => states,
                None => by_rows(&self.aggregation, rows()?).await?,
            };
            let columns = states.iter().map(ScalarValue::to_array).collect::<Result<_>>()?;
            Ok(RecordBatch::try_new(self.aggregation.schema(), columns)?)
        };
        futures::stream::once(states).boxed()
    }

    /// The states, unless they have to be computed row by row.
    async fn states(&self) -> Result<Option<Vec<ScalarValue>>> {
        let Some(inputs) = &self.inputs else { return Ok(None) };
        let wanted = self.wanted(inputs);
        let found = self.scan.clone().aggregate_only(wanted).await.map_err(datafusion_error)?;
        let mut states = Vec::new();
        for (function, input) in self.aggregation.functions().iter().zip(inputs) {
            let of_function = match input {
                Input::Constant(value) => {
                    function.states_of_constant(found.row_count, value)?.map(|state| vec![state])
                }
                Input::Column { at, may_be_null } => {
                    let column = &found.columns[*at];
                    self.check_nulls(function, column, *may_be_null)?;
                    function.states(column)?
                }
            };
            let Some(of_function) = of_function else { return Ok(None) };
            states.extend(of_function);
        }
        Ok(Some(states))
    }

    /// What the functions need of the columns of the scan.
    fn wanted(&self, inputs: &[Input]) -> WantedAggregates {
        let mut columns: Vec<(WantedAggregate, Option<Column>)> = Vec::new();
        for (number, (function, input)) in self.aggregation.functions().iter().zip(inputs).enumerate() {
            let Input::Column { at, may_be_null } = input else { continue };
            let measures = if *may_be_null {
                function.measures()
            } else {
                // Those that are not expected are looked for.
                function.measures().or(Measures::COUNTS)
            };
            let column = function.column();
            match columns.get_mut(*at) {
                // The first function of a column adds it.
                None => {
                    let extremes = self.extremes.get(number).cloned().unwrap_or_default();
                    columns.push((WantedAggregate { measures, extremes }, column));
                }
                Some((wanted, known)) => {
                    wanted.measures = wanted.measures.or(measures);
                    // An adapter takes two columns of the table from this one; other files may have both.
                    if *known != column {
                        wanted.extremes = Arc::default();
                    }
                }
            }
        }
        let counts_rows = inputs.iter().any(|input| !matches!(input, Input::Column { .. }));
        WantedAggregates::new(counts_rows, columns.into_iter().map(|(wanted, _)| wanted))
    }

    fn check_nulls(&self, function: &Function, found: &Aggregate, may_be_null: bool) -> Result<()> {
        match function.column() {
            Some(column) if found.null_count > 0 && !may_be_null => {
                exec_err!(
                    "{}: column `{}` is declared as non-nullable but contains nulls",
                    self.file,
                    column.name()
                )
            }
            _ => Ok(()),
        }
    }
}

async fn by_rows(aggregation: &Aggregation, mut rows: Batches) -> Result<Vec<ScalarValue>> {
    let mut functions = ByRows::new(aggregation)?;
    while let Some(batch) = rows.try_next().await? {
        functions.add(&batch)?;
    }
    functions.states()
}

impl Adapted<'_> {
    /// What a function aggregates; columns are added to those of the scan, at these `positions`. `None` if it has to
    /// aggregate row by row: if it reads a column that is converted, values such that the order of additions matters,
    /// or NaN.
    fn input(&self, function: &Function, positions: &mut HashMap<FieldPath, usize>) -> Result<Option<Input>> {
        let Some(column) = function.column() else { return Ok(Some(Input::Constant(1.into()))) };
        let field = self.scan.table.table_schema().field(column.index());
        let expr: Arc<dyn PhysicalExpr> = Arc::new(column);
        let adapted = self.simplify(self.adapt(&expr)?)?;
        if let Some(constant) = adapted.downcast_ref::<Literal>() {
            let is_allowed = field.is_nullable() || !constant.value().is_null();
            return Ok((is_allowed && !function.adds()).then(|| Input::Constant(constant.value().clone())));
        }
        let footer = self.file.footer();
        let stored = adapted.downcast_ref::<Column>().and_then(|column| footer.dtype().column(column.name()));
        let Some((at, dtype)) = stored else { return Ok(None) };
        let statistics = footer.column_statistics(at);
        let bounds = statistics.map(|known| [known.min.value(), known.max.value()]).unwrap_or_default();
        let has_nan = statistics.is_some_and(|known| known.nan_count > Some(0));
        // Whether the core aggregates the column as the function does.
        let is_aggregated = presents(dtype, field.data_type())
            && (!function.adds() || Aggregate::empty(dtype).sum.is_some())
            && (!has_nan || function.ignores_nan())
            && function.adds_exactly(self.file.row_count(), bounds);
        let Some((path, _)) = self.translator().field(&adapted)?.filter(|_| is_aggregated) else {
            return Ok(None);
        };
        let next = positions.len();
        let at = *positions.entry(path).or_insert(next);
        Ok(Some(Input::Column { at, may_be_null: field.is_nullable() || !dtype.is_nullable() }))
    }
}
