//! Filters that protect parts which may fail, evaluated row by row.
//!
//! ```text
//! a OR b! OR c      a for all rows, b for those of which a is not true, c for those of which neither is
//! a AND b! AND c    a for all rows, b for those of which a is not false, ...          ! may fail for some rows
//! ```
//!
//! A filter passes no row for which it is null, so that in one, an AND is decided where an operand is null.
//!
//! SQL lets `b = 0 OR a / b > 1` protect its division. DataFusion evaluates the right side for a whole batch, unless
//! the left one decides all of its rows or almost all: whether such a query fails depends on which rows share a batch,
//! and a scan evaluates more rows at a time than operators do. `CASE` is also affected, since DataFusion makes ANDs and
//! ORs of one that is a filter; but a `CASE` that it evaluates computes each branch only for the rows that need it. See
//! `tests/it/upstream/pruning.rs`: `conditions_do_not_protect_what_follows_them`.
//!
//! Conjuncts of the whole filter are not rewritten: the scan evaluates them in turn (`opener/conjuncts.rs`).

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::{and_kleene, or_kleene};
use arrow::datatypes::{DataType, Schema};
use datafusion_common::Result;
use datafusion_expr::{ColumnarValue, Operator};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr_common::physical_expr::with_new_children_if_necessary;

use super::chains::{chain, joined};
use super::is_fallible;

type Part = Arc<dyn PhysicalExpr>;

/// A filter over columns of `schema` that passes the same rows, in which ANDs and ORs evaluate what may fail only for
/// rows that the operands before it leave undecided.
///
/// # Errors
/// If an expression cannot be built with its new children.
pub(crate) fn guarded(filter: &Part, schema: &Schema) -> Result<Part> {
    in_turn(filter, schema, true)
}

/// The same expression, evaluated in turn; one that is also false where `filter` is null if `null_is_false`.
fn in_turn(filter: &Part, schema: &Schema, null_is_false: bool) -> Result<Part> {
    if !is_fallible(filter, schema) {
        return Ok(Arc::clone(filter));
    }
    let Some((op, operands)) = chain(filter) else {
        let children = filter.children().into_iter().map(|child| in_turn(child, schema, false));
        return with_new_children_if_necessary(Arc::clone(filter), children.collect::<Result<_>>()?);
    };
    let mut parts = Vec::with_capacity(operands.len());
    for operand in operands {
        // An untyped NULL cannot be a condition.
        if operand.data_type(schema)? != DataType::Boolean {
            return Ok(Arc::clone(filter));
        }
        parts.push((in_turn(operand, schema, null_is_false)?, is_fallible(operand, schema)));
    }
    // What cannot fail is evaluated at once.
    let groups = parts.chunk_by(|(_, before), (_, fallible)| !before && !fallible).map(|group| {
        let operands: Vec<_> = group.iter().map(|(operand, _)| Arc::clone(operand)).collect();
        joined(op, &operands)
    });
    Ok(Arc::new(InTurn { op, operands: groups.collect(), null_is_false }))
}

/// An AND or an OR whose operands are evaluated in turn, each for the rows that those before it leave undecided.
#[derive(Debug, PartialEq, Eq, Hash)]
struct InTurn {
    op: Operator,
    operands: Vec<Part>,
    null_is_false: bool,
}

impl InTurn {
    /// The rows whose outcome depends on further operands, given that of those before.
    fn undecided(&self, outcome: &BooleanArray) -> BooleanArray {
        let valid = outcome.nulls().map(NullBuffer::inner);
        let is_true = match valid {
            Some(valid) => outcome.values() & valid,
            None => outcome.values().clone(),
        };
        let undecided = match (self.op, valid) {
            (Operator::Or, _) => !&is_true,
            (_, Some(valid)) if !self.null_is_false => &is_true | &!valid,
            _ => is_true,
        };
        BooleanArray::new(undecided, None)
    }
}

impl PhysicalExpr for InTurn {
    fn data_type(&self, _schema: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.operands.iter().try_fold(false, |nullable, operand| Ok(nullable || operand.nullable(schema)?))
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let rows = batch.num_rows();
        let mut outcome = BooleanArray::from(vec![self.op != Operator::Or; rows]);
        for operand in &self.operands {
            let undecided = self.undecided(&outcome);
            if !undecided.has_true() {
                break;
            }
            // Of other rows, whatever it is has no effect.
            let found = operand.evaluate_selection(batch, &undecided)?.into_array(rows)?;
            let found = found.as_boolean();
            outcome = match self.op {
                Operator::Or => or_kleene(&outcome, found)?,
                _ => and_kleene(&outcome, found)?,
            };
        }
        Ok(ColumnarValue::Array(Arc::new(outcome)))
    }

    fn children(&self) -> Vec<&Part> {
        self.operands.iter().collect()
    }

    fn with_new_children(self: Arc<Self>, operands: Vec<Part>) -> Result<Part> {
        Ok(Arc::new(Self { op: self.op, operands, null_is_false: self.null_is_false }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        joined(self.op, &self.operands).fmt_sql(f)
    }
}

impl fmt::Display for InTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        joined(self.op, &self.operands).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use arrow::datatypes::Field;
    use datafusion_common::ScalarValue;
    use datafusion_physical_expr::expressions::{CaseExpr, NotExpr, binary, col, is_null, lit};

    use super::super::chains::tests::chained;
    use super::*;

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
    fn other_expressions_may_use_the_outcome() {
        use Operator::{And, Eq, IsDistinctFrom, IsNotDistinctFrom, NotEq, Or};
        let schema = rows().schema();
        let safe = chained(And, [compare(NotEq, 0), quotient()]);
        let any = chained(Or, [compare(Eq, 0), compare(Eq, -3), quotient()]);
        let not = |part: &Part| Arc::new(NotExpr::new(Arc::clone(part))) as Part;
        let is = |part: &Part, op, with: bool| binary(Arc::clone(part), op, lit(with), &schema).unwrap();
        let case = |when: &Part| {
            let cases = vec![(Arc::clone(when), lit(true))];
            Arc::new(CaseExpr::try_new(None, cases, Some(lit(false))).unwrap()) as Part
        };
        for (filter, expected) in [
            (is(&safe, IsNotDistinctFrom, true), [false, true, false, false, true, false]),
            (is(&safe, IsDistinctFrom, true), [true, false, true, true, false, true]),
            (is(&safe, IsNotDistinctFrom, false), [true, false, false, true, false, true]),
            (is(&safe, Eq, false), [true, false, false, true, false, true]),
            (not(&is(&any, IsNotDistinctFrom, true)), [false, false, true, false, false, false]),
            (case(&safe), [false, true, false, false, true, false]),
            (
                chained(Or, [is(&safe, IsNotDistinctFrom, true), compare(Eq, 0)]),
                [true, true, false, false, true, true],
            ),
        ] {
            assert!(filter.evaluate(&rows()).is_err(), "as DataFusion evaluates it");
            assert_eq!(passed(&filter).unwrap(), expected, "{filter}");
        }
    }

    #[test]
    fn a_condition_that_is_null_protects_parts_of_filters_but_not_of_other_expressions() {
        use Operator::{And, IsNotDistinctFrom, Or};
        let schema = rows().schema();
        let unknown = is_null(col("x", &schema).unwrap()).unwrap();
        let null = lit(ScalarValue::Boolean(None));
        let filter = chained(Or, [chained(And, [null, quotient()]), unknown]);
        assert_eq!(passed(&filter).unwrap(), [false, false, true, false, false, false]);
        assert!(passed(&binary(filter, IsNotDistinctFrom, lit(true), &schema).unwrap()).is_err());
    }

    #[test]
    fn conditions_in_conditions_take_no_longer_than_one_after_the_other() {
        let mut filter = chained(Operator::Or, [compare(Operator::Eq, 0), quotient()]);
        for depth in 0..60 {
            let op = if depth % 2 == 0 { Operator::And } else { Operator::Or };
            let is_true = binary(filter, Operator::IsDistinctFrom, lit(false), &rows().schema()).unwrap();
            filter = chained(op, [compare(Operator::NotEq, 7), is_true, quotient()]);
        }
        assert_eq!(passed(&filter).unwrap(), [true; 6]);
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
