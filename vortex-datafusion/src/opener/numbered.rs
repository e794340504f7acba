//! Numbers of rows within their file: `file_row_index()`.
//!
//! DataFusion leaves this function to the scan, since no operator above it knows the number of a row. Rows
//! are counted from the start of the file, including those that filters and ranges leave out. Filters on the
//! number are checked above the scan, which takes from them the rows that it has to read.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Operator;
use datafusion_functions::core::file_row_index::FileRowIndexFunc;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, Column, InListExpr, Literal};
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_expr_adapter::rewrite::expr_references_scalar_udf;
use datafusion_physical_expr_common::physical_expr::snapshot_physical_expr;
use vortex_core::scan::RowRanges;

use crate::convert::chain;

/// The name of the column of row numbers in scans.
pub(super) const ROW_NUMBER: &str = "file_row_index";

/// Whether an output requires row numbers.
pub(super) fn wants_row_numbers(projection: &ProjectionExprs) -> bool {
    projection.iter().any(|output| expr_references_scalar_udf::<FileRowIndexFunc>(&output.expr))
}

/// The expression with the function replaced by column `at`, which holds the numbers.
pub(super) fn with_number(expr: Arc<dyn PhysicalExpr>, at: usize) -> Result<Arc<dyn PhysicalExpr>> {
    expr.transform_up(|node| {
        if ScalarFunctionExpr::try_downcast_func::<FileRowIndexFunc>(node.as_ref()).is_none() {
            return Ok(Transformed::no(node));
        }
        let number = Arc::new(Column::new(ROW_NUMBER, at));
        let number: Arc<dyn PhysicalExpr> = Arc::new(CastExpr::new(number, DataType::Int64, None));
        Ok(Transformed::yes(number))
    })
    .data()
}

/// The most rows that are listed individually.
const MAX_LISTED: u64 = 1 << 16;

/// The rows that may pass all filters; `None` if no filter compares numbers of rows with constants.
pub(super) fn passing(filters: &[Arc<dyn PhysicalExpr>]) -> Option<RowRanges> {
    filters
        .iter()
        .filter(|filter| expr_references_scalar_udf::<FileRowIndexFunc>(filter))
        .filter_map(|filter| passing_one(&snapshot_physical_expr(Arc::clone(filter)).ok()?))
        .reduce(|all, rows| all.intersection(&rows))
}

/// The numbers of some rows, which can be read individually, unless there are many.
pub(super) fn listed(rows: &RowRanges) -> Option<Vec<u64>> {
    (rows.row_count() <= MAX_LISTED).then(|| rows.iter().flatten().collect())
}

/// The rows for which a filter may be true; `None` if its shape is unknown.
fn passing_one(filter: &Arc<dyn PhysicalExpr>) -> Option<RowRanges> {
    if let Some(list) = filter.downcast_ref::<InListExpr>() {
        let rows = list.list().iter().map(|item| Some(compared(Operator::Eq, constant(item)?)));
        let rows: RowRanges = rows.collect::<Option<_>>()?;
        let fits = is_number(list.expr()) && !list.negated();
        return fits.then_some(rows);
    }
    if let Some((op, operands)) = chain(filter) {
        let operands = operands.into_iter().map(passing_one);
        if op == Operator::And {
            return operands.flatten().reduce(|all, rows| all.intersection(&rows));
        }
        let rows = operands.collect::<Option<Vec<_>>>()?;
        return Some(rows.iter().flat_map(RowRanges::iter).collect());
    }
    let binary = filter.downcast_ref::<BinaryExpr>()?;
    let (left, op, right) = (binary.left(), *binary.op(), binary.right());
    match (is_number(left), is_number(right)) {
        (true, false) => Some(compared(op, constant(right)?).into()),
        (false, true) => Some(compared(op.swap()?, constant(left)?).into()),
        _ => None,
    }
}

/// The rows whose number compares to a constant in this way; all rows for operators unknown here.
fn compared(op: Operator, constant: i128) -> Range<u64> {
    // The first numbers at and after the constant.
    let at = u64::try_from(constant.max(0)).unwrap_or(u64::MAX);
    let after = u64::try_from(constant.saturating_add(1).max(0)).unwrap_or(u64::MAX);
    match op {
        Operator::Eq => at..after,
        Operator::Lt => 0..at,
        Operator::LtEq => 0..after,
        Operator::Gt => after..u64::MAX,
        Operator::GtEq => at..u64::MAX,
        _ => 0..u64::MAX,
    }
}

/// Whether this is the number of the row, as an integer of 64 bits.
fn is_number(expr: &Arc<dyn PhysicalExpr>) -> bool {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) => {
            matches!(cast.cast_type(), DataType::Int64 | DataType::UInt64) && is_number(cast.expr())
        }
        None => ScalarFunctionExpr::try_downcast_func::<FileRowIndexFunc>(expr.as_ref()).is_some(),
    }
}

fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<i128> {
    match expr.downcast_ref::<Literal>()?.value() {
        ScalarValue::Int64(value) => value.map(i128::from),
        ScalarValue::UInt64(value) => value.map(i128::from),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "they are lists of ranges")]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion_common::config::ConfigOptions;
    use datafusion_expr::ScalarUDF;
    use datafusion_physical_expr::expressions::{binary, cast, in_list, lit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![Field::new("a", DataType::Int64, true)])
    }

    fn number() -> Arc<dyn PhysicalExpr> {
        let function = Arc::new(ScalarUDF::from(FileRowIndexFunc::new()));
        let config = Arc::new(ConfigOptions::new());
        Arc::new(ScalarFunctionExpr::try_new(function, Vec::new(), &schema(), config).unwrap())
    }

    fn compare(op: Operator, constant: impl datafusion_expr::Literal) -> Arc<dyn PhysicalExpr> {
        binary(number(), op, physical(constant), &schema()).unwrap()
    }

    fn physical(constant: impl datafusion_expr::Literal) -> Arc<dyn PhysicalExpr> {
        match constant.lit() {
            datafusion_expr::Expr::Literal(value, _) => lit(value),
            other => panic!("{other}"),
        }
    }

    fn both(
        op: Operator,
        left: Arc<dyn PhysicalExpr>,
        right: Arc<dyn PhysicalExpr>,
    ) -> Arc<dyn PhysicalExpr> {
        binary(left, op, right, &schema()).unwrap()
    }

    /// The rows of a file of 100 rows that may pass.
    fn rows(filter: Arc<dyn PhysicalExpr>) -> Vec<Range<u64>> {
        let all = RowRanges::from(0..100);
        passing(&[filter]).map_or(all.clone(), |rows| rows.intersection(&all)).iter().collect()
    }

    #[test]
    fn comparisons_select_ranges_of_rows() {
        assert_eq!(rows(compare(Operator::Eq, 7i64)), [7..8]);
        assert_eq!(rows(compare(Operator::Lt, 7i64)), [0..7]);
        assert_eq!(rows(compare(Operator::LtEq, 7i64)), [0..8]);
        assert_eq!(rows(compare(Operator::Gt, 97i64)), [98..100]);
        assert_eq!(rows(compare(Operator::GtEq, 97i64)), [97..100]);
        let reversed = binary(lit(97i64), Operator::Lt, number(), &schema()).unwrap();
        assert_eq!(rows(reversed), [98..100]);
        let unsigned = cast(number(), &schema(), DataType::UInt64).unwrap();
        assert_eq!(rows(binary(unsigned, Operator::Eq, lit(u64::MAX), &schema()).unwrap()), []);
    }

    #[test]
    fn constants_beyond_all_rows_select_none_or_all() {
        assert_eq!(rows(compare(Operator::Eq, -1i64)), []);
        assert_eq!(rows(compare(Operator::LtEq, -1i64)), []);
        assert_eq!(rows(compare(Operator::Gt, -1i64)), [0..100]);
        assert_eq!(rows(compare(Operator::GtEq, i64::MIN)), [0..100]);
        assert_eq!(rows(compare(Operator::Gt, i64::MAX)), []);
        assert_eq!(rows(compare(Operator::Eq, 100i64)), []);
    }

    #[test]
    fn conjunctions_disjunctions_and_lists_combine_rows() {
        let few = in_list(number(), vec![lit(9i64), lit(3i64), lit(4i64), lit(500i64)], &false, &schema());
        assert_eq!(rows(few.unwrap()), [3..5, 9..10]);
        let ends = both(Operator::Or, compare(Operator::Lt, 5i64), compare(Operator::Eq, 50i64));
        assert_eq!(rows(Arc::clone(&ends)), [0..5, 50..51]);
        assert_eq!(rows(both(Operator::And, ends, compare(Operator::Gt, 2i64))), [3..5, 50..51]);
    }

    #[test]
    fn thousands_of_ranges_are_combined() {
        let few = |at: i64| {
            let (from, to) = (compare(Operator::GtEq, at * 3), compare(Operator::Lt, at * 3 + 1));
            both(Operator::And, from, to)
        };
        let chain =
            |left, right| Arc::new(BinaryExpr::new(left, Operator::Or, right)) as Arc<dyn PhysicalExpr>;
        let found = passing(&[(0..2_500).map(few).reduce(chain).unwrap()]).unwrap();
        assert_eq!((found.iter().count(), found.bounds()), (2_500, 0..7_498));
    }

    #[test]
    fn what_else_a_filter_reads_neither_adds_nor_removes_rows() {
        let other = binary(Arc::new(Column::new("a", 0)), Operator::Eq, lit(1i64), &schema()).unwrap();
        let few = compare(Operator::Lt, 5i64);
        assert_eq!(rows(both(Operator::And, Arc::clone(&other), Arc::clone(&few))), [0..5]);
        assert_eq!(rows(both(Operator::Or, other, few)), [0..100]);
        assert_eq!(rows(compare(Operator::NotEq, 5i64)), [0..100]);
        let not_few = in_list(number(), vec![lit(9i64)], &true, &schema()).unwrap();
        assert_eq!(rows(not_few), [0..100]);
        assert_eq!(rows(compare(Operator::Eq, ScalarValue::Int64(None))), [0..100]);
    }

    #[test]
    fn ranges_become_lists_if_they_are_short() {
        assert_eq!(listed(&RowRanges::new([7..9, 3..4])), Some(vec![3, 7, 8]));
        assert_eq!(listed(&RowRanges::new([0..5, 9..u64::MAX])), None);
    }
}
