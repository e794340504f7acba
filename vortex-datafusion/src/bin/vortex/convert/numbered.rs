//! Rows with their numbers in the input, by which a sort keeps the order of those with equal keys. DataFusion's sorts
//! and exchanges do not.

use std::mem;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use futures::future::ready;
use futures::{TryStreamExt as _, stream};

/// The bits that number the rows of a partition; those above them are the number of the partition.
const ROW_BITS: u32 = 48;

/// The rows of a plan whose partitions follow each other, as a table with a column of their numbers, and its name.
pub(super) fn numbered(plan: &Arc<dyn ExecutionPlan>) -> Result<(StreamingTable, String)> {
    let schema = plan.schema();
    let longest = schema.fields().iter().map(|field| field.name().len()).max().unwrap_or(0);
    let name = "#".repeat(longest + 1);
    let mut fields = schema.fields().to_vec();
    fields.push(Arc::new(Field::new(&name, DataType::UInt64, false)));
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    let of_partition = |partition: usize| -> Arc<dyn PartitionStream> {
        Arc::new(Numbered { plan: Arc::clone(plan), partition, schema: Arc::clone(&schema) })
    };
    let partitions = (0..plan.output_partitioning().partition_count()).map(of_partition).collect();
    Ok((StreamingTable::try_new(Arc::clone(&schema), partitions)?, name))
}

/// The rows of a partition.
#[derive(Debug)]
struct Numbered {
    plan: Arc<dyn ExecutionPlan>,
    partition: usize,
    schema: SchemaRef,
}

impl PartitionStream for Numbered {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = stream::iter([self.plan.execute(self.partition, task)]).try_flatten();
        let mut next = (self.partition as u64) << ROW_BITS;
        let schema = Arc::clone(&self.schema);
        let rows = rows.and_then(move |batch: RecordBatch| {
            let end = next + batch.num_rows() as u64;
            let numbers = UInt64Array::from_iter_values(mem::replace(&mut next, end)..end);
            let mut columns = batch.columns().to_vec();
            columns.push(Arc::new(numbers));
            ready(RecordBatch::try_new(Arc::clone(&schema), columns).map_err(Into::into))
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}
