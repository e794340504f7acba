//! What is known about a file before it is opened: values that are the same for all its rows, and statistics
//! that may exclude it.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, ScalarValue};
use datafusion_datasource::{PartitionedFile, TableSchema};
use datafusion_functions::core::input_file_name::InputFileNameFunc;
use datafusion_physical_expr::expressions::{Column, lit};
use datafusion_physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion_physical_expr::utils::conjunction;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::ColumnarValue;
use datafusion_physical_plan::metrics::Count;
use datafusion_pruning::FilePruner;

use crate::pushdown::{Filters, reads_nested};

/// Adapts expressions over a table to one of its files: values that are constant there become literals.
pub(crate) struct FileConstants<'a> {
    file_columns: usize,
    partition_values: &'a [ScalarValue],
    file_name: &'a str,
}

impl<'a> FileConstants<'a> {
    /// The constants of `file`.
    pub(crate) fn new(table: &TableSchema, file: &'a PartitionedFile) -> Self {
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
    pub(crate) fn fill(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let filled = Arc::clone(expr).transform_up(|node| match self.value(&node) {
            Some(value) => Ok(Transformed::yes(lit(value))),
            None => Ok(Transformed::no(node)),
        })?;
        Ok(filled.data)
    }

    fn value(&self, node: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
        let node = node.as_ref();
        if let Some(column) = node.downcast_ref::<Column>() {
            let at = column.index().checked_sub(self.file_columns)?;
            return self.partition_values.get(at).cloned();
        }
        if ScalarFunctionExpr::try_downcast_func::<InputFileNameFunc>(node).is_some() {
            return Some(ScalarValue::Utf8(Some(self.file_name.to_owned())));
        }
        // Subqueries have run by the time a file is opened; one that has not run is left unchanged.
        let subquery = node.downcast_ref::<ScalarSubqueryExpr>()?;
        let no_rows = arrow::array::RecordBatch::new_empty(Arc::new(arrow::datatypes::Schema::empty()));
        match subquery.evaluate(&no_rows) {
            Ok(ColumnarValue::Scalar(value)) => Some(value),
            _ => None,
        }
    }
}

/// A pruner that checks the file's statistics against all filters, including dynamic ones. `None` if there is
/// nothing to check.
///
/// # Errors
/// If an expression cannot be built with its new children.
pub(crate) fn file_pruner(
    filters: &Filters,
    constants: &FileConstants,
    table: &TableSchema,
    file: &PartitionedFile,
    errors: &Count,
) -> Result<Option<FilePruner>> {
    let comparable = filters.all().filter(|filter| !reads_nested(filter, table));
    let filled = comparable.map(|filter| constants.fill(filter)).collect::<Result<Vec<_>>>()?;
    if filled.is_empty() {
        return Ok(None);
    }
    Ok(FilePruner::try_new(conjunction(filled), table.file_schema(), file, errors.clone()))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
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
    }
}
