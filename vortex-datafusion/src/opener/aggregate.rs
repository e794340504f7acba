//! Opens a file for a scan that aggregates its rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion_common::{Result, ScalarValue, exec_err};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use futures::{StreamExt as _, TryStreamExt as _};
use vortex_core::array::Aggregate;
use vortex_core::dtype::arrow::presents;
use vortex_core::expr::FieldPath;
use vortex_core::scan::ScanBuilder;

use super::{Adapted, Batches};
use crate::aggregation::{Aggregation, ByRows, Function};
use crate::convert::datafusion_error;

/// The states of a file, or of a range of it.
pub(super) struct Aggregated {
    aggregation: Aggregation,
    /// For each function, the position of its column among those of `scan`, and whether it may contain nulls.
    columns: Vec<Option<(usize, bool)>>,
    /// Aggregates the columns, unless they have to be aggregated row by row.
    scan: Option<ScanBuilder>,
    file: String,
}

impl Aggregated {
    /// Finds out how to aggregate the rows of `scan`.
    pub(super) fn try_new(
        adapted: &Adapted<'_>,
        aggregation: &Aggregation,
        scan: &ScanBuilder,
    ) -> Result<Self> {
        let (mut paths, mut columns) = (Vec::new(), Vec::new());
        for function in aggregation.functions() {
            match function.column() {
                None => columns.push(None),
                Some(column) => match adapted.stored(&column, function)? {
                    None => break,
                    Some(path) => {
                        let known = paths.iter().position(|known| *known == path);
                        let at = known.unwrap_or(paths.len());
                        if known.is_none() {
                            paths.push(path);
                        }
                        columns.push(Some((at, adapted.may_be_null(&column))));
                    }
                },
            }
        }
        let is_stored = columns.len() == aggregation.functions().len();
        Ok(Self {
            aggregation: aggregation.clone(),
            columns,
            scan: is_stored.then(|| scan.clone().with_projection(paths)),
            file: adapted.file.source().name().to_owned(),
        })
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

    /// The states, unless they depend on the order of rows.
    async fn states(&self) -> Result<Option<Vec<ScalarValue>>> {
        let Some(scan) = self.scan.clone() else { return Ok(None) };
        let functions = || self.aggregation.functions().iter().zip(&self.columns);
        let wanted = |at: usize| {
            let of_column = functions().filter(|(_, column)| column.is_some_and(|(of, _)| of == at));
            of_column
                .map(|(function, _)| function.measures())
                .reduce(|all, more| all.and(more))
                .unwrap_or_default()
        };
        let found = scan.aggregate_each(wanted).await.map_err(datafusion_error)?;
        let mut states = Vec::new();
        for (function, column) in functions() {
            let known = match column {
                None => None,
                Some((at, may_be_null)) => {
                    let known = &found.columns[*at];
                    self.check_nulls(function, known, *may_be_null)?;
                    Some(known)
                }
            };
            match function.states(found.row_count, known)? {
                Some(of_function) => states.extend(of_function),
                None => return Ok(None),
            }
        }
        Ok(Some(states))
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
    /// The column of the file that a function reads; `None` if it has to be converted, or its values are such that
    /// the order of rows matters.
    fn stored(&self, column: &Column, function: &Function) -> Result<Option<FieldPath>> {
        let table = self.scan.table.table_schema();
        let expr: Arc<dyn PhysicalExpr> = Arc::new(column.clone());
        let adapted = self.simplify(self.adapt(&expr)?)?;
        let Some(stored) = adapted.downcast_ref::<Column>() else { return Ok(None) };
        let footer = self.file.footer();
        let field = footer.columns().enumerate().find(|(_, (name, _))| *name == stored.name());
        let Some((at, (_, dtype))) = field else { return Ok(None) };
        let known = footer.column_statistics(at);
        let bounds = known.map(|known| [known.min.value(), known.max.value()]).unwrap_or_default();
        let is_plain = presents(dtype, table.field(column.index()).data_type());
        let fits = is_plain && function.may_add_exactly(footer.row_count(), bounds);
        let path = self.translator().field(&adapted)?.map(|(path, _)| path);
        Ok(path.filter(|_| fits))
    }

    fn may_be_null(&self, column: &Column) -> bool {
        self.scan.table.table_schema().field(column.index()).is_nullable()
    }
}
