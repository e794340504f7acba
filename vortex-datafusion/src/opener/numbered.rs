//! Numbers of rows within their file: `file_row_index()`.
//!
//! DataFusion leaves this function to the scan, since no operator above it knows the number of a row. Rows
//! are counted from the start of the file, including those that filters and ranges leave out.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_functions::core::file_row_index::FileRowIndexFunc;
use datafusion_physical_expr::expressions::{CastExpr, Column};
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_expr_adapter::rewrite::expr_references_scalar_udf;

/// The name of the column of row numbers in scans.
pub(super) const ROW_NUMBER: &str = "file_row_index";

/// Whether an output requires row numbers.
pub(crate) fn wants_row_numbers(projection: &ProjectionExprs) -> bool {
    projection.iter().any(|output| expr_references_scalar_udf::<FileRowIndexFunc>(&output.expr))
}

/// The expression with the function replaced by column `at`, which holds the numbers.
pub(super) fn with_number(expr: Arc<dyn PhysicalExpr>, at: usize) -> Result<Arc<dyn PhysicalExpr>> {
    let replaced = expr.transform_up(|node| {
        if ScalarFunctionExpr::try_downcast_func::<FileRowIndexFunc>(node.as_ref()).is_none() {
            return Ok(Transformed::no(node));
        }
        let number = Arc::new(Column::new(ROW_NUMBER, at));
        let number: Arc<dyn PhysicalExpr> = Arc::new(CastExpr::new(number, DataType::Int64, None));
        Ok(Transformed::yes(number))
    })?;
    Ok(replaced.data)
}
