//! Serialization of plans, see [`VortexCodec`]: each node is a protobuf message, with DataFusion's own for what it knows of
//! scans, sinks and expressions.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::Schema;
use datafusion_common::config::ExtensionOptions as _;
use datafusion_common::tree_node::TreeNode as _;
use datafusion_common::{Result, exec_datafusion_err, exec_err, internal_datafusion_err, not_impl_err};
use datafusion_datasource::TableSchema;
use datafusion_datasource::file::FileSource as _;
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::file_scan_config::{FileScanConfig, FileScanConfigBuilder};
use datafusion_datasource::file_sink_config::{FileSink as _, FileSinkConfig};
use datafusion_datasource::sink::DataSinkExec;
use datafusion_datasource::source::DataSourceExec;
use datafusion_execution::TaskContext;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion_physical_expr::{LexRequirement, PhysicalExpr, PhysicalSortRequirement};
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::empty::EmptyExec;
use datafusion_physical_plan::{ExecutionPlan, replace_children_if_necessary};
use datafusion_proto::physical_plan::from_proto::{
    parse_protobuf_file_scan_config, parse_table_schema_from_proto,
};
use datafusion_proto::physical_plan::to_proto::serialize_file_scan_config;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf;
use prost::Message as _;

use crate::aggregation::{Aggregation, Function, Kind};
use crate::grouping::CodedAggregateExec;
use crate::options::VortexOptions;
use crate::pushdown::{BestFirst, Filters};
use crate::selection::RowSelection;
use crate::sink::VortexSink;
use crate::source::VortexSource;
use vortex_core::VortexFile;

/// The first bytes of every message; the last of them is the version.
const MAGIC: &[u8] = b"vortex-datafusion\x05";

/// Serializes plans: encodes and decodes scans of and writes to Vortex files, for engines that plan a query in one process
/// and run it in another. It returns an error for all other nodes.
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
/// Partitions of a plan may run in different processes, each of which decodes its own copy: a scan that was decoded reads in
/// each partition the files of that partition. Other scans hand over files to partitions that have none left, unless
/// `datafusion.execution.enable_file_stream_work_stealing` is off; each copy would do so on its own, and read the files of
/// all partitions.
///
/// Aggregations whose groups are found by codes name their functions, which the other session must have. A function that
/// another codec has to encode takes `SET vortex.aggregate_pushdown = false`.
///
/// Serialize plans before they run: afterwards, operators such as `SortExec` state in their message which rows they have
/// ruled out.
///
/// Logical plans need no codec of this crate, and have none: `datafusion-proto` 55 encodes scans of listing tables itself,
/// and only those of formats that it knows. Ship physical plans, or SQL.
///
/// # Errors
/// These have no bytes:
///
/// - scans of open files, such as those of a [`VortexTable`](crate::VortexTable),
/// - scans that compute with the result of a subquery,
/// - scans of tables that have an adapter of expressions of their own.
#[derive(Debug, Clone, Copy, Default)]
pub struct VortexCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct Node {
    #[prost(message, optional, tag = "1")]
    scan: Option<Scan>,
    #[prost(message, optional, tag = "2")]
    sink: Option<Sink>,
    /// The aggregation whose groups are found by codes, over no rows.
    #[prost(message, optional, tag = "3")]
    grouping: Option<protobuf::PhysicalPlanNode>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Scan {
    #[prost(message, optional, tag = "1")]
    base: Option<protobuf::FileScanExecConf>,
    #[prost(message, repeated, tag = "2")]
    accepted: Vec<protobuf::PhysicalExprNode>,
    #[prost(message, repeated, tag = "3")]
    hints: Vec<protobuf::PhysicalExprNode>,
    #[prost(map = "string, string", tag = "4")]
    options: HashMap<String, String>,
    /// The limit in `base` has only 32 bits.
    #[prost(uint64, optional, tag = "5")]
    limit: Option<u64>,
    #[prost(bool, tag = "6")]
    preserve_order: bool,
    #[prost(message, optional, tag = "7")]
    best_first: Option<SortKey>,
    #[prost(uint64, optional, tag = "8")]
    best_rows: Option<u64>,
    /// What `base` lacks of each of its files.
    #[prost(message, repeated, tag = "9")]
    files: Vec<File>,
    /// The functions whose states the scan returns instead of rows; `base` then projects all columns.
    #[prost(message, repeated, tag = "10")]
    functions: Vec<Aggregate>,
    /// Whether the plan is not told which filter the rows satisfy.
    #[prost(bool, tag = "11")]
    hides_filter: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Aggregate {
    /// The name of the function in a session.
    #[prost(string, tag = "1")]
    function: String,
    /// The name of the column that it computes.
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    arguments: Vec<protobuf::PhysicalExprNode>,
}

/// A file, which DataFusion identifies only by its size and time.
#[derive(Clone, PartialEq, prost::Message)]
struct File {
    #[prost(string, optional, tag = "1")]
    e_tag: Option<String>,
    #[prost(string, optional, tag = "2")]
    version: Option<String>,
    #[prost(message, optional, tag = "3")]
    selection: Option<Selection>,
}

/// A [`RowSelection`].
#[derive(Clone, PartialEq, prost::Message)]
struct Selection {
    #[prost(uint64, repeated, tag = "1")]
    rows: Vec<u64>,
    /// Whether these rows are skipped, instead of all others.
    #[prost(bool, tag = "2")]
    except: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sink {
    #[prost(message, optional, tag = "1")]
    config: Option<protobuf::FileSinkConfig>,
    #[prost(map = "string, string", tag = "2")]
    options: HashMap<String, String>,
    #[prost(message, repeated, tag = "3")]
    order: Vec<SortKey>,
    #[prost(map = "string, string", tag = "4")]
    metadata: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SortKey {
    #[prost(message, optional, tag = "1")]
    expr: Option<protobuf::PhysicalExprNode>,
    #[prost(bool, optional, tag = "2")]
    descending: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    nulls_first: Option<bool>,
}

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
        let context = Decoding { codec: self, task, converter };
        match (node.scan, node.sink, node.grouping, inputs) {
            (Some(scan), None, None, []) => context.scan(&scan),
            (None, Some(sink), None, [input]) => context.sink(&sink, input),
            (None, None, Some(grouping), [input]) => context.grouping(&grouping, input),
            (_, _, _, inputs) => exec_err!("a plan node of vortex-datafusion has {} inputs", inputs.len()),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let mut message = Node::default();
        if let Some((config, source)) = node
            .downcast_ref::<DataSourceExec>()
            .and_then(|exec| exec.downcast_to_file_source::<VortexSource>())
        {
            message.scan = Some(self.scan(config, source, converter)?);
        } else if let Some((exec, sink)) = node
            .downcast_ref::<DataSinkExec>()
            .and_then(|exec| Some((exec, exec.sink().downcast_ref::<VortexSink>()?)))
        {
            message.sink = Some(self.sink(exec, sink, converter)?);
        } else if let Some(exec) = node.downcast_ref::<CodedAggregateExec>() {
            let nothing = Arc::new(EmptyExec::new(exec.partial().input().schema()));
            message.grouping = Some(converter.execution_plan_to_proto(&exec.partial_over(nothing)?, self)?);
        } else {
            return not_impl_err!("{} is not a plan node of vortex-datafusion", node.name());
        }
        bytes.extend_from_slice(MAGIC);
        message.encode(bytes).map_err(|error| internal_datafusion_err!("{error}"))
    }
}

impl VortexCodec {
    fn scan(
        &self,
        config: &FileScanConfig,
        source: &VortexSource,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Scan> {
        if config.expr_adapter_factory.is_some() {
            return not_impl_err!("the expression adapter of a scan cannot be serialized");
        }
        let mut files = Vec::new();
        for file in config.file_groups.iter().flat_map(FileGroup::iter) {
            let location = &file.object_meta.location;
            if file.extension::<VortexFile>().is_some() {
                return not_impl_err!(
                    "{location} is an open file of this process, which other processes cannot read"
                );
            }
            let selection = file.extension::<RowSelection>();
            files.push(File {
                e_tag: file.object_meta.e_tag.clone(),
                version: file.object_meta.version.clone(),
                selection: selection.map(|selection| Selection {
                    rows: selection.rows().to_vec(),
                    except: selection.is_except(),
                }),
            });
        }
        let encode = |exprs: &[Arc<dyn PhysicalExpr>]| {
            if exprs.iter().any(reads_subquery) {
                return not_impl_err!(
                    "scans that compute with the result of a subquery cannot be serialized"
                );
            }
            exprs.iter().map(|expr| converter.physical_expr_to_proto(expr, self)).collect::<Result<Vec<_>>>()
        };
        let outputs = source.projection().into_iter().flat_map(ProjectionExprs::iter);
        if outputs.into_iter().any(|output| reads_subquery(&output.expr)) {
            return not_impl_err!("scans that compute with the result of a subquery cannot be serialized");
        }
        let (mut base, mut functions) = (config.clone(), Vec::new());
        if let Some((aggregation, of_rows)) = source.without_aggregation() {
            base = FileScanConfigBuilder::from(base).with_source(Arc::new(of_rows)).build();
            for function in aggregation.functions() {
                functions.push(Aggregate {
                    function: function.kind().name().to_owned(),
                    name: function.expr().name().to_owned(),
                    arguments: encode(&function.expr().expressions())?,
                });
            }
        }
        let best_first = |best: &BestFirst| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(best.column.clone());
            self.sort_key(&column, Some(best.options), converter)
        };
        Ok(Scan {
            base: Some(serialize_file_scan_config(&base, self, converter)?),
            accepted: encode(source.filters.accepted())?,
            hints: encode(source.filters.hints())?,
            options: to_map(source.options()),
            limit: config.limit.map(|limit| limit as u64),
            preserve_order: source.is_ordered(config),
            best_first: source.best_first.as_ref().map(best_first).transpose()?,
            best_rows: source.best_first.as_ref().and_then(|best| best.rows).map(|rows| rows as u64),
            files,
            functions,
            hides_filter: !source.tells_filter(),
        })
    }

    fn sort_key(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        options: Option<SortOptions>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<SortKey> {
        Ok(SortKey {
            expr: Some(converter.physical_expr_to_proto(expr, self)?),
            descending: options.map(|options| options.descending),
            nulls_first: options.map(|options| options.nulls_first),
        })
    }

    fn sink(
        &self,
        exec: &DataSinkExec,
        sink: &VortexSink,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Sink> {
        let keys = exec.sort_order().iter().flat_map(|order| order.iter());
        let order = keys.map(|key| self.sort_key(&key.expr, key.options, converter));
        Ok(Sink {
            config: Some(sink.config().try_into()?),
            options: to_map(sink.options()),
            order: order.collect::<Result<_>>()?,
            metadata: sink.metadata().iter().map(|(key, value)| (key.into(), value.into())).collect(),
        })
    }
}

/// The context for decoding a node.
struct Decoding<'a> {
    codec: &'a VortexCodec,
    task: &'a TaskContext,
    converter: &'a dyn PhysicalProtoConverterExtension,
}

impl Decoding<'_> {
    fn scan(&self, scan: &Scan) -> Result<Arc<dyn ExecutionPlan>> {
        let base = scan.base.as_ref().ok_or_else(|| missing("base"))?;
        let table = parse_table_schema_from_proto(base)?;
        let filters = |nodes: &[protobuf::PhysicalExprNode]| {
            nodes.iter().map(|node| self.expr(node, table.table_schema())).collect::<Result<Vec<_>>>()
        };
        let options: VortexOptions = from_map(&scan.options)?;
        // The source has accepted the projection already.
        let accepting = VortexOptions { projection_pushdown: true, ..options.clone() };
        let mut source = VortexSource::new(table.clone())
            .with_options(accepting)
            .with_runtime(&self.task.runtime_env(), self.task.session_config());
        source.filters = Filters::new(filters(&scan.accepted)?, filters(&scan.hints)?);
        source.best_first = self.best_first(scan, &table)?;
        let context = PhysicalPlanDecodeContext::new(self.task, self.codec);
        let mut config = parse_protobuf_file_scan_config(base, &context, self.converter, Arc::new(source))?;
        let mut files = scan.files.iter();
        for group in &mut config.file_groups {
            for (at, found) in files.by_ref().take(group.len()).enumerate() {
                let meta = &mut group[at].object_meta;
                (meta.e_tag, meta.version) = (found.e_tag.clone(), found.version.clone());
                if let Some(Selection { rows, except }) = &found.selection {
                    let rows = rows.as_slice();
                    let selection =
                        if *except { RowSelection::except(rows) } else { RowSelection::only(rows) }?;
                    group[at] = group[at].clone().with_extension(selection);
                }
            }
        }
        let Some(source) = config.file_source().downcast_ref::<VortexSource>() else {
            return exec_err!("damaged plan node of vortex-datafusion: a scan of another source");
        };
        let source = source.clone().with_options(options).preserving_order(scan.preserve_order);
        let source = if scan.hides_filter { source.without_telling_filter() } else { source };
        let source = match self.aggregation(scan, &table)? {
            Some(aggregation) => source.aggregated(aggregation),
            None => source,
        };
        let limit = scan.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let config = FileScanConfigBuilder::from(config)
            .with_limit(limit)
            // This keeps files in their partitions: another copy of the plan may run the others.
            .with_preserve_order(true)
            .with_source(Arc::new(source))
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    /// An aggregation whose groups are found by codes.
    fn grouping(
        &self,
        grouping: &protobuf::PhysicalPlanNode,
        input: &Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let context = PhysicalPlanDecodeContext::new(self.task, self.codec);
        let over_nothing = self.converter.proto_to_execution_plan(grouping, &context)?;
        if over_nothing.children().iter().any(|nothing| nothing.schema() != input.schema()) {
            return exec_err!("damaged plan node of vortex-datafusion: an aggregation of other columns");
        }
        let partial = replace_children_if_necessary(over_nothing, vec![Arc::clone(input)])?;
        match partial.downcast_ref::<AggregateExec>() {
            Some(partial) => Ok(Arc::new(CodedAggregateExec::try_new(partial.clone())?)),
            None => exec_err!("damaged plan node of vortex-datafusion: {} is no aggregation", partial.name()),
        }
    }

    /// The aggregation whose states the scan returns.
    fn aggregation(&self, scan: &Scan, table: &TableSchema) -> Result<Option<Aggregation>> {
        let table = table.table_schema();
        let functions = scan.functions.iter().map(|stored| {
            let name = stored.function.as_str();
            let function = self.task.aggregate_functions().get(name).cloned();
            let Some((kind, function)) = Kind::named(name).zip(function) else {
                return not_impl_err!("the aggregate function `{name}` is not supported here");
            };
            let arguments = stored.arguments.iter().map(|argument| self.expr(argument, table));
            let function = AggregateExprBuilder::new(function, arguments.collect::<Result<_>>()?)
                .schema(Arc::clone(table))
                .alias(&stored.name)
                .build()?;
            let computed = Function::try_new(kind, Arc::new(function), table)?;
            computed.ok_or_else(|| exec_datafusion_err!("scans do not compute {}", stored.name))
        });
        let functions = functions.collect::<Result<Vec<_>>>()?;
        Ok((!functions.is_empty()).then(|| Aggregation::new(functions)))
    }

    fn sink(&self, sink: &Sink, input: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let config: FileSinkConfig = sink.config.as_ref().ok_or_else(|| missing("config"))?.try_into()?;
        let order = sink.order.iter().map(|key| {
            let (expr, options) = self.sort_key(key, &input.schema())?;
            Ok(PhysicalSortRequirement::new(expr, options))
        });
        let order = LexRequirement::new(order.collect::<Result<Vec<_>>>()?);
        let options = from_map(&sink.options)?;
        let mut decoded = VortexSink::try_new(config, options, order.as_ref())?;
        for (key, value) in &sink.metadata {
            decoded = decoded.with_user_metadata(key, value)?;
        }
        Ok(Arc::new(DataSinkExec::new(Arc::clone(input), Arc::new(decoded), order)))
    }

    /// The column whose best rows come first.
    fn best_first(&self, scan: &Scan, table: &TableSchema) -> Result<Option<BestFirst>> {
        let Some(key) = &scan.best_first else { return Ok(None) };
        let (expr, options) = self.sort_key(key, table.table_schema())?;
        let column = expr.downcast_ref::<Column>().cloned().ok_or_else(|| missing("column"))?;
        let options = options.ok_or_else(|| missing("descending"))?;
        let rows = scan.best_rows.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        Ok(Some(BestFirst { column, options, rows }))
    }

    fn sort_key(
        &self,
        key: &SortKey,
        schema: &Schema,
    ) -> Result<(Arc<dyn PhysicalExpr>, Option<SortOptions>)> {
        let expr = key.expr.as_ref().ok_or_else(|| missing("expr"))?;
        let options = key.descending.zip(key.nulls_first);
        let options = options.map(|(descending, nulls_first)| SortOptions { descending, nulls_first });
        Ok((self.expr(expr, schema)?, options))
    }

    fn expr(&self, node: &protobuf::PhysicalExprNode, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        let context = PhysicalPlanDecodeContext::new(self.task, self.codec);
        self.converter.proto_to_physical_expr(node, schema, &context)
    }
}

/// Whether an expression contains a result that DataFusion cannot hand over to the scan that is decoded.
fn reads_subquery(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.exists(|node| Ok(node.downcast_ref::<ScalarSubqueryExpr>().is_some())).unwrap_or(true)
}

fn to_map(options: &VortexOptions) -> HashMap<String, String> {
    options.entries().into_iter().filter_map(|entry| Some((entry.key, entry.value?))).collect()
}

/// Options with the values in a map, and defaults for the others.
fn from_map(map: &HashMap<String, String>) -> Result<VortexOptions> {
    let mut options = VortexOptions::default();
    map.iter().try_for_each(|(name, value)| options.set(name, value))?;
    Ok(options)
}

fn missing(field: &str) -> datafusion_common::DataFusionError {
    exec_datafusion_err!("a plan node of vortex-datafusion lacks `{field}`")
}
