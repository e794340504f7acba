//! The states of groups, computed batch by batch.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_expr::{EmitTo, GroupsAccumulator};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::ExecutionPlan as _;
use datafusion_physical_plan::aggregates::{AggregateExec, aggregate_expressions};
use datafusion_physical_plan::metrics::{BaselineMetrics, RecordOutput as _};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};

use super::codes::MAX_CODES;
use super::groups::Groups;

/// More groups than planning foresees begin anew: the final aggregation keeps them in any case.
const MAX_GROUPS: usize = 4 * MAX_CODES;

/// An aggregate function of all groups.
struct Function {
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    states: Box<dyn GroupsAccumulator>,
}

/// The groups of a partition, and their states.
pub(super) struct Aggregating {
    schema: SchemaRef,
    groups: Groups,
    functions: Vec<Function>,
    memory: MemoryReservation,
    metrics: BaselineMetrics,
    batch_size: usize,
}

impl Aggregating {
    /// # Errors
    /// If a function cannot be computed for groups.
    pub(super) fn try_new(
        of: &AggregateExec,
        metrics: BaselineMetrics,
        partition: usize,
        task: &TaskContext,
    ) -> Result<Self> {
        let arguments = aggregate_expressions(of.aggr_expr(), of.mode(), 0)?;
        let functions = of.aggr_expr().iter().zip(of.filter_expr()).zip(arguments);
        let functions = functions.map(|((function, filter), arguments)| {
            let states = function.create_groups_accumulator()?;
            Ok(Function { arguments, filter: filter.clone(), states })
        });
        let consumer = MemoryConsumer::new(format!("CodedAggregateExec[{partition}]"));
        Ok(Self {
            schema: of.schema(),
            groups: Groups::try_new(of.group_expr(), &of.input_schema())?,
            functions: functions.collect::<Result<_>>()?,
            memory: consumer.register(task.memory_pool()),
            metrics,
            batch_size: task.session_config().batch_size(),
        })
    }

    /// The states of the groups of all rows. If memory runs out, the states so far are returned, and groups begin anew:
    /// the final aggregation merges them.
    pub(super) fn run(
        self,
        input: SendableRecordBatchStream,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + use<> {
        let batch_size = self.batch_size;
        let states = stream::try_unfold((self, Some(input)), |(mut this, input)| async move {
            let Some(mut input): Option<SendableRecordBatchStream> = input else { return Ok(None) };
            while let Some(batch) = input.next().await.transpose()? {
                if !this.add(&batch)? {
                    let states = this.emit()?;
                    return Ok(Some((states, (this, Some(input)))));
                }
            }
            drop(input);
            Ok::<_, DataFusionError>(Some((this.emit()?, (this, None))))
        });
        states
            .map_ok(move |states| {
                let batches = states.into_iter().flat_map(move |states| in_batches(states, batch_size));
                stream::iter(batches.map(Ok))
            })
            .try_flatten()
    }

    /// Adds rows. Whether there is room for more groups.
    fn add(&mut self, batch: &RecordBatch) -> Result<bool> {
        let _timer = self.metrics.elapsed_compute().timer();
        self.groups.find(batch)?;
        let array = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(batch)?.into_array(batch.num_rows());
        let mut size = 0;
        for function in &mut self.functions {
            let arguments = function.arguments.iter().map(array).collect::<Result<Vec<_>>>()?;
            let filter = function.filter.as_ref().map(array).transpose()?;
            let filter = filter.as_ref().map(|filter| filter.as_boolean());
            function.states.update_batch(&arguments, self.groups.found(), filter, self.groups.len())?;
            size += function.states.size();
        }
        let is_granted = self.memory.try_resize(size + self.groups.size()).is_ok();
        Ok(is_granted && self.groups.len() <= MAX_GROUPS)
    }

    /// The states of all groups, of which there are none afterwards. Of no groups, some of DataFusion's have no keys to
    /// return.
    fn emit(&mut self) -> Result<Option<RecordBatch>> {
        let _timer = self.metrics.elapsed_compute().timer();
        if self.groups.len() == 0 {
            return Ok(None);
        }
        let mut columns: Vec<ArrayRef> = self.groups.emit()?;
        for function in &mut self.functions {
            columns.extend(function.states.state(EmitTo::All)?);
        }
        self.memory.free();
        let states = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        Ok(Some(states.record_output(&self.metrics)))
    }
}

/// Rows in batches of at most `batch_size`.
fn in_batches(rows: RecordBatch, batch_size: usize) -> impl Iterator<Item = RecordBatch> {
    let (count, step) = (rows.num_rows(), batch_size.max(1));
    (0..count).step_by(step).map(move |start| rows.slice(start, step.min(count - start)))
}
