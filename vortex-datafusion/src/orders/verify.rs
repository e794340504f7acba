//! Checks the recorded order of a file.

use arrow::array::RecordBatch;
use datafusion_physical_expr::expressions::Column;
use futures::TryStreamExt as _;
use vortex_core::expr::FieldPath;
use vortex_core::{Result, VortexFile};

use super::{RowOrder, recorded_order};

/// Checks that the rows of a file are in the [order that it records](recorded_order), on which plans rely: a file that
/// somebody else wrote may record any. Reads the columns of the order. Returns what is wrong, if anything is.
///
/// [`vortex_core::verify`](vortex_core::verify()) checks everything else; `vortex verify`, the command, does both.
///
/// # Errors
/// If these columns cannot be read.
pub async fn verify_order(file: &VortexFile) -> Result<Option<String>> {
    let schema = file.schema()?;
    let Some(order) = recorded_order(file.footer(), &schema) else { return Ok(None) };
    let columns = order.iter().filter_map(|key| key.expr.downcast_ref::<Column>());
    let columns = columns.map(|column| FieldPath::new([column.name()]));
    let mut batches = file.scan().with_projection(columns).into_stream()?;
    let (mut so_far, mut start) = (RowOrder::new(&order, &schema), 0);
    while let Some(batch) = batches.try_next().await? {
        let before = so_far.clone();
        if so_far.shorten_to(&batch) {
            let row = start + first_that_breaks(&before, &batch);
            return Ok(Some(format!("recorded order: row {row} is not in the order {order}")));
        }
        start += batch.num_rows();
    }
    Ok(None)
}

/// The first row of a batch before which an order holds, but not with it.
fn first_that_breaks(order: &RowOrder, batch: &RecordBatch) -> usize {
    let (mut holds, mut breaks) = (0, batch.num_rows());
    while breaks - holds > 1 {
        let middle = holds.midpoint(breaks);
        if order.clone().shorten_to(&batch.slice(0, middle)) { breaks = middle } else { holds = middle }
    }
    holds
}
