//! The output batches of one file: projected, and stopped once nothing more can match.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_pruning::FilePruner;
use futures::stream::try_unfold;
use futures::{Stream, TryStreamExt as _};
use vortex_core::scan::BatchStream;

use super::open_files::OpenFile;
use crate::convert::datafusion_error;
use crate::metrics::FileMetrics;

/// Computes the columns of the plan from decoded leaves.
#[derive(Debug)]
pub(crate) struct Projector {
    outputs: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    /// What errors name.
    file: String,
}

impl Projector {
    /// A projector that computes `outputs`, the columns of `schema`, from rows of the file with this name.
    pub(crate) fn new(outputs: Vec<Arc<dyn PhysicalExpr>>, schema: SchemaRef, file: &str) -> Self {
        Self { outputs, schema, file: file.to_owned() }
    }

    fn project(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.compute(batch).map_err(|error| error.context(&self.file))
    }

    fn compute(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let column = |output: &Arc<dyn PhysicalExpr>, data_type: &DataType| {
            let column = output.evaluate(batch)?.into_array(rows)?;
            if column.data_type() == data_type {
                return Ok(column);
            }
            // A literal that simplification left in another representation.
            Ok(cast_with_options(&column, data_type, &CastOptions { safe: false, ..Default::default() })?)
        };
        let outputs = self.outputs.iter().zip(self.schema.fields());
        let columns = outputs
            .map(|(output, field)| {
                column(output, field.data_type())
                    .map_err(|error: DataFusionError| error.context(output.to_string()))
            })
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// The batches of one file, or of one range of it, as the plan expects them. They end early if dynamic filters that the
/// `pruner` watches exclude the rest. `file` stays open for other ranges of it.
pub(crate) fn projected(
    scan: BatchStream,
    projector: Projector,
    pruner: Option<FilePruner>,
    metrics: FileMetrics,
    file: OpenFile,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let state = (scan, pruner, projector, metrics, file);
    try_unfold(state, |(mut scan, mut pruner, projector, metrics, file)| async move {
        let Some(batch) = scan.try_next().await.map_err(datafusion_error)? else { return Ok(None) };
        if let Some(pruner) = &mut pruner
            && pruner.should_prune()?
        {
            metrics.stopped_early();
            return Ok(None);
        }
        Ok(Some((projector.project(&batch)?, (scan, pruner, projector, metrics, file))))
    })
}
