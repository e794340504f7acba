//! A filter that the scan cannot answer itself, evaluated by DataFusion on decoded columns.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, plan_err};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::ColumnarValue;
use vortex_core::expr::{FieldPath, RowPredicate};

use super::{Leaves, Translator, core_error};

/// A boolean DataFusion expression over columns of one file.
#[derive(Debug)]
pub(crate) struct PhysicalPredicate {
    /// Over the columns that it reads.
    expr: Arc<dyn PhysicalExpr>,
    columns: Vec<FieldPath>,
    schema: SchemaRef,
}

impl PhysicalPredicate {
    /// A predicate from an expression over the physical schema of a file.
    ///
    /// # Errors
    /// If it reads a column that the file lacks.
    pub(crate) fn try_new(expr: &Arc<dyn PhysicalExpr>, file: &Translator) -> Result<Self> {
        let mut leaves = Leaves::default();
        let expr = leaves.rewrite(Arc::clone(expr), file)?;
        Ok(Self { expr, columns: leaves.paths().to_vec(), schema: leaves.schema() })
    }
}

impl RowPredicate for PhysicalPredicate {
    fn columns(&self) -> &[FieldPath] {
        &self.columns
    }

    fn schema(&self) -> Option<SchemaRef> {
        Some(Arc::clone(&self.schema))
    }

    fn evaluate(&self, batch: &RecordBatch) -> vortex_core::Result<BooleanArray> {
        let outcome = self.expr.evaluate(batch).and_then(|value| boolean(value, batch.num_rows()));
        outcome.map_err(core_error)
    }
}

fn boolean(value: ColumnarValue, rows: usize) -> Result<BooleanArray> {
    let array = value.into_array(rows)?;
    match array.as_boolean_opt() {
        Some(outcome) => Ok(outcome.clone()),
        // An untyped NULL: unknown for every row.
        None if array.data_type().is_null() => Ok(BooleanArray::new_null(rows)),
        None => plan_err!("a filter must be boolean, not {}", array.data_type()),
    }
}

impl fmt::Display for PhysicalPredicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expr)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::{binary, lit};

    use super::super::expr::tests::File;
    use super::*;

    #[test]
    fn a_predicate_sees_only_the_columns_it_reads() {
        let file = File::sample();
        let odd = binary(file.column("i"), Operator::Modulo, lit(2i32), &file.schema).unwrap();
        let odd = binary(odd, Operator::Eq, lit(1i32), &file.schema).unwrap();
        let predicate = PhysicalPredicate::try_new(&odd, &file.translator()).unwrap();
        assert_eq!(predicate.columns(), [FieldPath::from("i")]);
        let schema = predicate.schema().unwrap();
        let rows = Arc::new(Int32Array::from(vec![Some(1), Some(2), None]));
        let batch = RecordBatch::try_new(schema, vec![rows]).unwrap();
        let outcome = predicate.evaluate(&batch).unwrap();
        assert_eq!(outcome.iter().collect::<Vec<_>>(), [Some(true), Some(false), None]);
    }
}
