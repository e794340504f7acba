//! Rows that know where in their file they are: `file_row_index()`.
//!
//! DataFusion leaves the function to the scan, since nothing above it knows the number of a row. It
//! is the number of the row in the whole file, whatever filters and ranges leave out. So filters run
//! here, on rows that have been counted, instead of inside the scan of the core.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, exec_datafusion_err, internal_err};
use datafusion_functions::core::file_row_index::FileRowIndexFunc;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr::utils::conjunction;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_expr_adapter::rewrite::expr_references_scalar_udf;

use super::Adapted;
use crate::convert::Leaves;

/// Whether an output asks for the numbers of rows.
pub(crate) fn wants_row_numbers(projection: &ProjectionExprs) -> bool {
    projection.iter().any(|output| expr_references_scalar_udf::<FileRowIndexFunc>(&output.expr))
}

/// Numbers the rows of a scan that leaves none out, then filters them.
#[derive(Debug)]
pub(super) struct RowNumbers {
    next: u64,
    /// The leaves and, after them, the number.
    schema: SchemaRef,
    filter: Option<Arc<dyn PhysicalExpr>>,
}

impl RowNumbers {
    /// Numbers from `first` on.
    pub(super) fn new(first: u64, leaves: &Leaves, filter: Option<Arc<dyn PhysicalExpr>>) -> Self {
        let mut fields: Vec<FieldRef> = leaves.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new("file_row_index", DataType::Int64, true)));
        let schema = Arc::new(arrow::datatypes::Schema::new(fields));
        Self { next: first, schema, filter }
    }

    /// The next rows of the scan, numbered and filtered.
    ///
    /// # Errors
    /// If the filter fails.
    pub(super) fn apply(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let end = self.next.checked_add(batch.num_rows() as u64);
        let bounds = i64::try_from(self.next).ok().zip(end.and_then(|end| i64::try_from(end).ok()));
        let (first, end) = bounds.ok_or_else(|| exec_datafusion_err!("row numbers exceed 64 bits"))?;
        self.next += batch.num_rows() as u64;
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(Int64Array::from_iter_values(first..end)));
        let numbered = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        let Some(filter) = &self.filter else { return Ok(numbered) };
        let passes = filter.evaluate(&numbered)?.into_array(numbered.num_rows())?;
        match passes.as_boolean_opt() {
            Some(passes) => Ok(filter_record_batch(&numbered, passes)?),
            None => internal_err!("a filter is of type {}", passes.data_type()),
        }
    }
}

/// What a scan that numbers its rows evaluates itself, over `leaves` and, after them, the number of the row.
pub(super) struct Numbered {
    pub(super) leaves: Leaves,
    pub(super) outputs: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) filter: Option<Arc<dyn PhysicalExpr>>,
}

impl Adapted<'_> {
    /// The outputs and the filter over leaves and, after them, the number of the row.
    pub(super) fn numbered(&self) -> Result<Numbered> {
        let mut leaves = Leaves::default();
        let mut over_leaves = |expr: &Arc<dyn PhysicalExpr>| {
            leaves.rewrite(self.simplify(self.adapt(expr)?)?, &self.translator())
        };
        let outputs = self.scan.projection.iter().map(|output| over_leaves(&output.expr));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        let filters =
            self.scan.filters.accepted().iter().map(&mut over_leaves).collect::<Result<Vec<_>>>()?;
        let number = leaves.schema().fields().len();
        let outputs = outputs.into_iter().map(|output| with_number(output, number)).collect::<Result<_>>()?;
        let filter = (!filters.is_empty()).then(|| conjunction(filters));
        Ok(Numbered { leaves, outputs, filter })
    }
}

/// The expression with the function replaced by the column that holds its result.
fn with_number(expr: Arc<dyn PhysicalExpr>, at: usize) -> Result<Arc<dyn PhysicalExpr>> {
    let replaced = expr.transform_up(|node| {
        if ScalarFunctionExpr::try_downcast_func::<FileRowIndexFunc>(node.as_ref()).is_none() {
            return Ok(Transformed::no(node));
        }
        Ok(Transformed::yes(Arc::new(Column::new("file_row_index", at)) as Arc<dyn PhysicalExpr>))
    })?;
    Ok(replaced.data)
}
