//! Files of other formats that are written by SQL: whole, or not at all.
//!
//! DataFusion ends files properly if the rows to be written end in an error: one of the first rows, or of none, would
//! replace a complete file. See `tests/it/upstream/files.rs`: `a_copy_that_fails_replaces_the_file`. Here, writing is
//! dropped. What CSV and JSON cannot hold is such an error, too, before a file is written.

use std::any::Any;
use std::future::pending;
use std::sync::Arc;
use std::{fmt, io};

use arrow::array::RecordBatch;
use arrow::csv::WriterBuilder;
use arrow::datatypes::{FieldRef, SchemaRef};
use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::csv::CsvSink;
use datafusion::datasource::file_format::json::JsonSink;
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::{Stream, StreamExt as _, stream};
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::json::JsonRows;

/// A plan that writes files, as one that completes none of them after an error.
pub(super) fn whole_files(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match (Arc::clone(&plan) as Arc<dyn Any + Send + Sync>).downcast::<DataSinkExec>() {
        Ok(writes) => {
            let (rows, order) = (Arc::clone(writes.input()), writes.sort_order().clone());
            Arc::new(DataSinkExec::new(rows, Arc::new(WholeFiles { writes }), order))
        }
        Err(_) => plan,
    }
}

/// The sink of a plan.
#[derive(Debug)]
struct WholeFiles {
    writes: Arc<DataSinkExec>,
}

#[async_trait]
impl DataSink for WholeFiles {
    fn metrics(&self) -> Option<MetricsSet> {
        self.writes.sink().metrics()
    }

    fn schema(&self) -> &SchemaRef {
        self.writes.sink().schema()
    }

    async fn write_all(&self, rows: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        let (failed, failure) = oneshot::channel();
        let schema = rows.schema();
        let sink = self.writes.sink();
        let rows = if sink.is::<JsonSink>() {
            until_failure(json_rows(rows), failed).boxed()
        } else if let Some(sink) = sink.downcast_ref::<CsvSink>() {
            until_failure(csv_rows(rows, sink.writer_options().writer_options.clone()), failed).boxed()
        } else {
            until_failure(rows, failed).boxed()
        };
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema, rows));
        tokio::select! {
            biased;
            Ok(error) = failure => Err(error),
            written = sink.write_all(rows, context) => written,
        }
    }
}

impl DisplayAs for WholeFiles {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.writes.sink().fmt_as(kind, f)
    }
}

/// Rows that do not end once there is an error, which goes elsewhere.
fn until_failure(
    rows: impl Stream<Item = Result<RecordBatch>> + Send + Unpin + 'static,
    failed: oneshot::Sender<DataFusionError>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    stream::unfold((rows, failed), |(mut rows, failed)| async move {
        match rows.next().await? {
            Ok(batch) => Some((Ok(batch), (rows, failed))),
            Err(error) => {
                // It is only received while the rows are written.
                _ = failed.send(error);
                pending().await
            }
        }
    })
}

/// Rows up to the first batch with something that CSV cannot hold, which is an error.
fn csv_rows(
    rows: SendableRecordBatchStream,
    options: WriterBuilder,
) -> impl Stream<Item = Result<RecordBatch>> + Send + Unpin {
    // All other values are shown.
    let may_fail = |field: &FieldRef| field.data_type().is_nested() || field.data_type().is_temporal();
    let fields = rows.schema().fields().clone();
    let checked: Vec<usize> = (0..fields.len()).filter(|at| may_fail(&fields[*at])).collect();
    rows.map(move |batch| {
        let batch = batch?;
        if !checked.is_empty() {
            options.clone().build(io::sink()).write(&batch.project(&checked)?)?;
        }
        Ok(batch)
    })
}

/// Rows up to the first batch with a value that JSON cannot hold, which is an error.
fn json_rows(rows: SendableRecordBatchStream) -> impl Stream<Item = Result<RecordBatch>> + Send + Unpin {
    let mut checked = JsonRows::new();
    rows.map(move |batch| {
        let batch = batch?;
        match checked.write(&batch, |_| Ok(())) {
            Err(Failure::Error(message)) => Err(DataFusionError::External(message.into())),
            // Nothing is written that could be closed, and no signal is waited for.
            _ => Ok(batch),
        }
    })
}
