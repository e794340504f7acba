//! Values that are the same for all rows of a file: partition columns, the file's name, results of subqueries.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode};
use datafusion_common::{Result, ScalarValue};
use datafusion_datasource::{PartitionedFile, TableSchema};
use datafusion_functions::core::input_file_name::InputFileNameFunc;
use datafusion_physical_expr::expressions::{Column, lit};
use datafusion_physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::ColumnarValue;

/// Adapts expressions over a table to one of its files: values that are constant there become literals.
pub(super) struct FileConstants<'a> {
    file_columns: usize,
    partition_values: &'a [ScalarValue],
    file_name: &'a str,
}

impl<'a> FileConstants<'a> {
    /// The constants of `file`.
    pub(super) fn new(table: &TableSchema, file: &'a PartitionedFile) -> Self {
        Self {
            file_columns: table.file_schema().fields().len(),
            partition_values: &file.partition_values,
            file_name: file.object_meta.location.as_ref(),
        }
    }

    /// The expression with partition columns, the file's name and results of subqueries filled in.
    ///
    /// # Errors
    /// If an expression cannot be built with its new children.
    pub(super) fn fill(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        Arc::clone(expr)
            .transform_up(|node| match self.value(&node) {
                Some(value) => Ok(Transformed::yes(lit(value))),
                None => Ok(Transformed::no(node)),
            })
            .data()
    }

    fn value(&self, node: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
        let node = node.as_ref();
        if let Some(column) = node.downcast_ref::<Column>() {
            let at = column.index().checked_sub(self.file_columns)?;
            return self.partition_values.get(at).cloned();
        }
        if is_file_name(node) {
            return Some(ScalarValue::Utf8(Some(self.file_name.to_owned())));
        }
        // Subqueries have run by the time a file is opened; one that has not run is left unchanged.
        let subquery = node.downcast_ref::<ScalarSubqueryExpr>()?;
        let no_rows = RecordBatch::new_empty(Arc::new(Schema::empty()));
        match subquery.evaluate(&no_rows) {
            Ok(ColumnarValue::Scalar(value)) => Some(value),
            _ => None,
        }
    }
}

/// Whether an expression has another meaning for each file.
pub(crate) fn differs_by_file(expr: &Arc<dyn PhysicalExpr>, table: &TableSchema) -> bool {
    let file_columns = table.file_schema().fields().len();
    let differs = |node: &Arc<dyn PhysicalExpr>| {
        let is_constant = node.downcast_ref::<Column>().is_some_and(|column| column.index() >= file_columns);
        Ok(is_constant || is_file_name(node.as_ref()))
    };
    expr.exists(differs).unwrap_or(true)
}

fn is_file_name(node: &dyn PhysicalExpr) -> bool {
    ScalarFunctionExpr::try_downcast_func::<InputFileNameFunc>(node).is_some()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::{binary, col};

    use super::*;

    #[test]
    fn partition_columns_are_filled_in_by_position() {
        let file_schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Utf8, true)]));
        let partition = Arc::new(Field::new("p", DataType::Utf8, false));
        let table = TableSchema::builder(file_schema).with_table_partition_cols(vec![partition]).build();
        let file = PartitionedFile::new("p=x/a.vortex", 10)
            .with_partition_values(vec![ScalarValue::Utf8(Some("x".into()))]);
        let schema = table.table_schema();
        let both =
            binary(col("a", schema).unwrap(), Operator::Eq, col("p", schema).unwrap(), schema).unwrap();
        let filled = FileConstants::new(&table, &file).fill(&both).unwrap();
        assert_eq!(filled.to_string(), "a@0 = x");
        assert!(differs_by_file(&both, &table) && !differs_by_file(&filled, &table));
    }
}
