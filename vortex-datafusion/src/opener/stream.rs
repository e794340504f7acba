//! The output batches of one file: projected, and stopped once nothing more can match.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_pruning::FilePruner;
use futures::{Stream, StreamExt as _};
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

/// The stream of one file, or of one range of it.
pub(crate) struct FileBatches {
    scan: BatchStream,
    projector: Projector,
    /// Watches dynamic filters that may exclude the rest of the file.
    pruner: Option<FilePruner>,
    metrics: FileMetrics,
    /// Keeps the file open for other ranges of it.
    _file: OpenFile,
    done: bool,
}

impl FileBatches {
    /// A stream that projects the batches of `scan`.
    pub(crate) fn new(
        scan: BatchStream,
        projector: Projector,
        pruner: Option<FilePruner>,
        metrics: FileMetrics,
        file: OpenFile,
    ) -> Self {
        Self { scan, projector, pruner, metrics, _file: file, done: false }
    }

    /// The batch as the plan expects it; `None` if this batch and all further ones are irrelevant.
    fn emit(&mut self, batch: &RecordBatch) -> Result<Option<RecordBatch>> {
        if let Some(pruner) = &mut self.pruner
            && pruner.should_prune()?
        {
            self.metrics.stopped_early();
            return Ok(None);
        }
        self.projector.project(batch).map(Some)
    }
}

impl Stream for FileBatches {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        let next = match ready!(self.scan.poll_next_unpin(cx)) {
            Some(Ok(batch)) => self.emit(&batch).transpose(),
            Some(Err(error)) => Some(Err(datafusion_error(error))),
            None => None,
        };
        self.done = !matches!(next, Some(Ok(_)));
        Poll::Ready(next)
    }
}
