//! Filters that protect parts which may fail, evaluated row by row.
//!
//! ```text
//! a OR b! OR c                CASE WHEN a THEN true WHEN b! THEN true ELSE c END          ! may fail for some rows
//! a AND b! AND c, in an OR    CASE WHEN a IS DISTINCT FROM true THEN false
//!                                  WHEN b! IS DISTINCT FROM true THEN false ELSE c END
//! ```
//!
//! SQL lets `b = 0 OR a / b > 1` protect its division. DataFusion evaluates the right side for a whole batch, unless the
//! left one decides all of its rows or almost all: whether such a query fails depends on which rows share a batch, and
//! a scan evaluates more rows at a time than operators do. `CASE` is also affected, since DataFusion makes ANDs and ORs
//! of one that is a filter; but a `CASE` that it evaluates computes each branch only for the rows that need it.
//!
//! Conjuncts of the whole filter are not rewritten: the scan evaluates them in turn (`opener/conjuncts.rs`).

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion_common::Result;
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, CaseExpr, lit};

use super::chains::{chain, joined};
use super::is_fallible;

/// A filter over columns of `schema` that passes the same rows, and evaluates what may fail only for rows that the
/// operands of ANDs and ORs before it leave undecided. It may return false for rows for which `filter` returns null.
///
/// # Errors
/// If an expression cannot be built with its new children.
pub(crate) fn guarded(filter: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    let Some((op, operands)) = chain(filter).filter(|_| is_fallible(filter, schema)) else {
        return Ok(Arc::clone(filter));
    };
    let mut parts = Vec::with_capacity(operands.len());
    for operand in operands {
        // An untyped NULL cannot be a condition.
        if operand.data_type(schema)? != DataType::Boolean {
            return Ok(Arc::clone(filter));
        }
        parts.push((guarded(operand, schema)?, is_fallible(operand, schema)));
    }
    // What cannot fail is evaluated at once.
    let mut groups = parts.chunk_by(|(_, before), (_, fallible)| !before && !fallible).map(|group| {
        let operands: Vec<_> = group.iter().map(|(operand, _)| Arc::clone(operand)).collect();
        joined(op, &operands)
    });
    let Some(last) = groups.next_back() else { return Ok(Arc::clone(filter)) };
    let decides = |group| match op {
        Operator::Or => (group, lit(true)),
        _ => (Arc::new(BinaryExpr::new(group, Operator::IsDistinctFrom, lit(true))) as _, lit(false)),
    };
    let cases: Vec<_> = groups.map(decides).collect();
    if cases.is_empty() {
        return Ok(last);
    }
    Ok(Arc::new(CaseExpr::try_new(None, cases, Some(last))?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, BooleanArray, Int32Array, RecordBatch};
    use arrow::datatypes::Field;
    use datafusion_common::ScalarValue;
    use datafusion_physical_expr::expressions::{binary, col, is_null};

    use super::super::chains::tests::chained;
    use super::*;

    type Part = Arc<dyn PhysicalExpr>;

    fn rows() -> RecordBatch {
        let x = Int32Array::from(vec![Some(0), Some(1), None, Some(-3), Some(200), Some(0)]);
        let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int32, true)]));
        RecordBatch::try_new(schema, vec![Arc::new(x)]).unwrap()
    }

    fn compare(op: Operator, with: i32) -> Part {
        binary(col("x", &rows().schema()).unwrap(), op, lit(with), &rows().schema()).unwrap()
    }

    /// `100 / x >= 0`, which fails for some rows.
    fn quotient() -> Part {
        let schema = rows().schema();
        let quotient = binary(lit(100), Operator::Divide, col("x", &schema).unwrap(), &schema).unwrap();
        binary(quotient, Operator::GtEq, lit(0), &schema).unwrap()
    }

    fn passed(filter: &Part) -> Result<Vec<bool>> {
        let outcome = guarded(filter, &rows().schema())?.evaluate(&rows())?.into_array(rows().num_rows())?;
        let outcome: &BooleanArray = outcome.as_boolean();
        Ok(outcome.iter().map(|row| row == Some(true)).collect())
    }

    #[test]
    fn a_part_that_may_fail_is_evaluated_only_for_rows_that_those_before_leave_undecided() {
        use Operator::{And, Eq, Gt, NotEq, Or};
        let any = chained(Or, [compare(Eq, 0), quotient()]);
        assert!(any.evaluate(&rows()).is_err(), "as DataFusion evaluates it");
        assert_eq!(passed(&any).unwrap(), [true, true, false, false, true, true]);

        // CASE WHEN x <> 0 THEN 100 / x >= 0 ELSE x > 5 END, as DataFusion simplifies it.
        let protected = chained(And, [compare(NotEq, 0), quotient()]);
        let other = chained(And, [compare(Eq, 0), compare(Gt, 5)]);
        let case = chained(Or, [protected, other]);
        assert!(case.evaluate(&rows()).is_err(), "as DataFusion evaluates it");
        assert_eq!(passed(&case).unwrap(), [false, true, false, false, true, false]);

        let many = [compare(Eq, 7), compare(Eq, 0), quotient(), compare(Eq, -3), quotient()];
        assert_eq!(passed(&chained(Or, many)).unwrap(), [true, true, false, true, true, true]);
    }

    #[test]
    fn a_part_that_nothing_protects_still_fails() {
        use Operator::{Eq, Or};
        for parts in [vec![quotient(), compare(Eq, 0)], vec![compare(Eq, 1), quotient()]] {
            assert!(passed(&chained(Or, parts)).is_err());
        }
    }

    #[test]
    fn other_filters_are_left_alone() {
        use Operator::{Eq, Or};
        let infallible = chained(Or, [compare(Eq, 1), is_null(col("x", &rows().schema()).unwrap()).unwrap()]);
        let untyped = chained(Or, [compare(Eq, 0), lit(ScalarValue::Null), quotient()]);
        for filter in [infallible, untyped, quotient()] {
            assert!(Arc::ptr_eq(&guarded(&filter, &rows().schema()).unwrap(), &filter));
        }
    }
}
