//! A filter that the scan cannot answer itself, evaluated by DataFusion on decoded columns.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanArray, RecordBatch};
use arrow::compute::{and_kleene, prep_null_mask_filter};
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, plan_err};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::ColumnarValue;
use vortex_core::expr::{FieldPath, RowPredicate};

use super::{Leaves, Translator, core_error};

/// Boolean DataFusion expressions over columns of one file, all of which must be true. They are evaluated in
/// turn, each only on rows for which those before it are true.
#[derive(Debug)]
pub(crate) struct PhysicalPredicate {
    parts: Vec<Part>,
    columns: Vec<FieldPath>,
    schema: SchemaRef,
}

#[derive(Debug)]
struct Part {
    /// Over the columns that it reads.
    expr: Arc<dyn PhysicalExpr>,
    /// Positions of these columns among those of the predicate.
    columns: Vec<usize>,
}

impl PhysicalPredicate {
    /// A predicate from expressions over the physical schema of a file.
    ///
    /// # Errors
    /// If one of them reads a column that the file lacks.
    pub(crate) fn try_new(exprs: &[Arc<dyn PhysicalExpr>], file: &Translator) -> Result<Self> {
        let mut all = Leaves::default();
        let part = |expr: &Arc<dyn PhysicalExpr>| {
            let mut leaves = Leaves::default();
            let expr = leaves.rewrite(Arc::clone(expr), file)?;
            Ok(Part { expr, columns: all.extend(&leaves) })
        };
        let parts = exprs.iter().map(part).collect::<Result<Vec<_>>>()?;
        Ok(Self { parts, columns: all.paths().to_vec(), schema: all.schema() })
    }

    fn outcome(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let rows = batch.num_rows();
        let mut outcome: Option<BooleanArray> = None;
        for part in &self.parts {
            // Only what the part reads is copied if rows were rejected.
            let batch = batch.project(&part.columns)?;
            let Some(before) = outcome else {
                outcome = Some(boolean(part.expr.evaluate(&batch)?, rows)?);
                continue;
            };
            let passed = match before.null_count() {
                0 => before,
                _ => prep_null_mask_filter(&before),
            };
            if !passed.has_true() {
                return Ok(passed);
            }
            let next = boolean(part.expr.evaluate_selection(&batch, &passed)?, rows)?;
            outcome = Some(and_kleene(&passed, &next)?);
        }
        Ok(outcome.unwrap_or_else(|| BooleanArray::from(vec![true; rows])))
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
        self.outcome(batch).map_err(core_error)
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
        for (at, part) in self.parts.iter().enumerate() {
            let and = if at == 0 { "" } else { " AND " };
            write!(f, "{and}{}", part.expr)?;
        }
        Ok(())
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
        let predicate = PhysicalPredicate::try_new(&[odd], &file.translator()).unwrap();
        assert_eq!(predicate.columns(), [FieldPath::from("i")]);
        let schema = predicate.schema().unwrap();
        let rows = Arc::new(Int32Array::from(vec![Some(1), Some(2), None]));
        let batch = RecordBatch::try_new(schema, vec![rows]).unwrap();
        let outcome = predicate.evaluate(&batch).unwrap();
        assert_eq!(outcome.iter().collect::<Vec<_>>(), [Some(true), Some(false), None]);
    }

    #[test]
    fn a_part_is_evaluated_only_on_rows_that_passed_those_before_it() {
        let file = File::sample();
        let compare = |left, op, right: i32| binary(left, op, lit(right), &file.schema).unwrap();
        let quotient = |of: i32, by| binary(lit(of), Operator::Divide, by, &file.schema).unwrap();
        let lower = |by: i32| binary(file.column("i"), Operator::Minus, lit(by), &file.schema).unwrap();
        let parts = [
            compare(file.column("i"), Operator::NotEq, 0),
            // 50 and NULL are rejected.
            compare(quotient(100, file.column("i")), Operator::Gt, 4),
            compare(file.column("i"), Operator::NotEq, 9),
            compare(quotient(100, lower(9)), Operator::Lt, 0),
            // 50 would fail.
            compare(quotient(100, lower(50)), Operator::Lt, -1),
        ];
        let predicate = PhysicalPredicate::try_new(&parts, &file.translator()).unwrap();
        assert_eq!(predicate.columns(), [FieldPath::from("i")]);
        let passed = |rows: Vec<Option<i32>>| {
            let rows = Arc::new(Int32Array::from(rows));
            let batch = RecordBatch::try_new(predicate.schema().unwrap(), vec![rows]).unwrap();
            let outcome = predicate.evaluate(&batch).unwrap();
            outcome.iter().map(|row| row == Some(true)).collect::<Vec<bool>>()
        };
        assert_eq!(
            passed(vec![Some(0), Some(2), Some(9), Some(12), Some(50), None, Some(8)]),
            [false, true, false, false, false, false, true]
        );
        assert_eq!(passed(vec![Some(50), None]), [false, false]);
        assert_eq!(passed(vec![Some(2), Some(3)]), [true, true]);
        assert_eq!(passed(vec![]), [false; 0]);
    }

    #[test]
    fn each_part_reads_its_own_columns() {
        let file = File::sample();
        let small = binary(file.column("i"), Operator::Lt, lit(9i32), &file.schema).unwrap();
        let parts = [file.column("b"), Arc::clone(&small), file.column("b"), small];
        let predicate = PhysicalPredicate::try_new(&parts, &file.translator()).unwrap();
        assert_eq!(predicate.columns(), [FieldPath::from("b"), FieldPath::from("i")]);
        let columns: Vec<_> = predicate.parts.iter().map(|part| part.columns.as_slice()).collect();
        assert_eq!(columns, [[0], [1], [0], [1]]);
        assert_eq!(predicate.to_string(), "b@0 AND i@0 < 9 AND b@0 AND i@0 < 9");
    }
}
