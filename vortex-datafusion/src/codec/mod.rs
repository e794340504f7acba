//! Serialization of plans, see [`VortexCodec`]: each node is a protobuf message, with DataFusion's own for what it
//! knows of scans, sinks and expressions.

mod decode;
mod encode;
mod messages;

use std::sync::Arc;

use datafusion_common::{Result, exec_datafusion_err, exec_err, internal_datafusion_err, not_impl_err};
use datafusion_datasource::sink::DataSinkExec;
use datafusion_datasource::source::DataSourceExec;
use datafusion_execution::TaskContext;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use prost::Message as _;

use crate::grouping::CodedAggregateExec;
use crate::optimizer::unordered::{UnorderedExec, never_ordered};
use crate::sink::VortexSink;
use crate::source::VortexSource;
use decode::Decoding;
use encode::Encoding;
use messages::{Node, Unordered};

/// The first bytes of every message; the last of them is the version.
const MAGIC: &[u8] = b"vortex-datafusion\x07";

/// Serializes plans: encodes and decodes scans of and writes to Vortex files, for engines that plan a query in one
/// process and run it in another. It returns an error for all other nodes.
///
/// With the feature `proto`, pass it to `datafusion-proto`, or to the engine that uses it:
///
/// ```
/// use datafusion::prelude::SessionContext;
/// use datafusion_proto::bytes::{
///     physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
/// };
/// use vortex_datafusion::VortexCodec;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::common::Result<()> {
/// let context = SessionContext::new();
/// vortex_datafusion::register(&context)?;
/// vortex_datafusion::enable_url_tables(&context);
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
/// let plan = context.sql(&format!("SELECT count(*) FROM '{file}' WHERE l_quantity > 49")).await?;
/// let plan = plan.create_physical_plan().await?;
/// let bytes = physical_plan_to_bytes_with_extension_codec(plan, &VortexCodec)?;
/// // Elsewhere:
/// let plan = physical_plan_from_bytes_with_extension_codec(&bytes, &context.task_ctx(), &VortexCodec)?;
/// # assert_eq!(datafusion::physical_plan::collect(plan, context.task_ctx()).await?.len(), 1);
/// # Ok(())
/// # }
/// ```
///
/// A message contains DataFusion's own description of the file scan, the filters and the order that the scan
/// has been offered, and the options. Caches and object stores are those of the session that runs the plan. The
/// files must be those that were planned, not copies: they are read by their e-tags and versions.
///
/// Partitions of a plan may run in different processes, each of which decodes its own copy: a scan that was decoded
/// reads in each partition the files of that partition. Other scans hand over files to partitions that have none left,
/// unless `datafusion.execution.enable_file_stream_work_stealing` is off; each copy would do so on its own, and read
/// the files of all partitions.
///
/// Aggregations whose groups are found by codes name their functions, which the other session must have. A function
/// that another codec has to encode takes `SET vortex.aggregate_pushdown = false`.
///
/// Serialize plans before they run: afterwards, operators such as `SortExec` state in their message which rows they
/// have ruled out.
///
/// Logical plans need no codec of this crate, and have none: `datafusion-proto` 55 encodes scans of listing tables
/// itself, and only those of formats that it knows. Ship physical plans, or SQL.
///
/// # Errors
/// These have no bytes:
///
/// - scans of open files, such as those of a [`VortexTable`](crate::VortexTable),
/// - scans that compute with the result of a subquery,
/// - scans of tables that have an adapter of expressions of their own.
#[derive(Debug, Clone, Copy, Default)]
pub struct VortexCodec;

impl PhysicalExtensionCodec for VortexCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        task: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(message) = bytes.strip_prefix(MAGIC) else {
            return exec_err!("not a plan node of this version of vortex-datafusion");
        };
        let node = Node::decode(message)
            .map_err(|error| exec_datafusion_err!("damaged plan node of vortex-datafusion: {error}"))?;
        let decoding = Decoding { codec: self, task, converter };
        match (node.scan, node.sink, node.grouping, node.unordered, inputs) {
            (Some(scan), None, None, None, []) => decoding.scan(&scan),
            (None, Some(sink), None, None, [input]) => decoding.sink(&sink, input),
            (None, None, Some(grouping), None, [input]) => decoding.grouping(&grouping, input),
            (None, None, None, Some(_), [input]) => Ok(never_ordered(Arc::clone(input))),
            (.., inputs) => exec_err!("a plan node of vortex-datafusion has {} inputs", inputs.len()),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let encoding = Encoding { codec: self, converter };
        let mut message = Node::default();
        if let Some((config, source)) = node
            .downcast_ref::<DataSourceExec>()
            .and_then(|exec| exec.downcast_to_file_source::<VortexSource>())
        {
            message.scan = Some(encoding.scan(config, source)?);
        } else if let Some((exec, sink)) = node
            .downcast_ref::<DataSinkExec>()
            .and_then(|exec| Some((exec, exec.sink().downcast_ref::<VortexSink>()?)))
        {
            message.sink = Some(encoding.sink(exec, sink)?);
        } else if let Some(exec) = node.downcast_ref::<CodedAggregateExec>() {
            message.grouping = Some(encoding.grouping(exec)?);
        } else if node.is::<UnorderedExec>() {
            message.unordered = Some(Unordered {});
        } else {
            return not_impl_err!("{} is not a plan node of vortex-datafusion", node.name());
        }
        bytes.extend_from_slice(MAGIC);
        message.encode(bytes).map_err(|error| internal_datafusion_err!("{error}"))
    }
}
