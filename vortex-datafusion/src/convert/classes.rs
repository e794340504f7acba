//! Classes of expressions: what a scan may do with them depends on more than the columns that they read.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_common::tree_node::TreeNode as _;
use datafusion_functions::core::file_row_index::FileRowIndexFunc;
use datafusion_functions::core::input_file_name::InputFileNameFunc;
use datafusion_physical_expr::expressions::{Column, DynamicFilterTracking};
use datafusion_physical_expr::utils::collect_columns;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// Whether any part of the expression may change while the query runs.
pub(crate) fn is_dynamic(expr: &Arc<dyn PhysicalExpr>) -> bool {
    DynamicFilterTracking::classify(expr).contains_dynamic_filter()
}

/// Whether two evaluations for one row may differ. DataFusion rejects such filters, but only before
/// projections replace columns by what they compute. It also treats the name of a file and the numbers of its
/// rows as volatile, which do not change.
pub(crate) fn is_volatile(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.exists(|node| Ok(node.is_volatile_node() && !is_of_file(node.as_ref()))).unwrap_or(true)
}

/// Whether only the scan can compute an expression.
pub(crate) fn needs_scan(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.exists(|node| Ok(is_of_file(node.as_ref()))).unwrap_or(true)
}

/// Whether this is a function that no operator above the scan can compute: the name of the file or the number of
/// the row.
fn is_of_file(node: &dyn PhysicalExpr) -> bool {
    ScalarFunctionExpr::try_downcast_func::<InputFileNameFunc>(node).is_some()
        || ScalarFunctionExpr::try_downcast_func::<FileRowIndexFunc>(node).is_some()
}

/// Whether the expression reads columns of nested types, for which files have no bounds.
pub(crate) fn reads_nested(expr: &Arc<dyn PhysicalExpr>, table: &Schema) -> bool {
    let is_nested = |column: &Column| {
        table.fields().get(column.index()).is_some_and(|field| field.data_type().is_nested())
    };
    collect_columns(expr).iter().any(is_nested)
}
