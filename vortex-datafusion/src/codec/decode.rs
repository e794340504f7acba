//! From messages to nodes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::Schema;
use datafusion_common::config::ExtensionOptions as _;
use datafusion_common::{DataFusionError, Result, exec_datafusion_err, exec_err, not_impl_err};
use datafusion_datasource::TableSchema;
use datafusion_datasource::file_scan_config::FileScanConfigBuilder;
use datafusion_datasource::file_sink_config::FileSinkConfig;
use datafusion_datasource::sink::DataSinkExec;
use datafusion_datasource::source::DataSourceExec;
use datafusion_execution::TaskContext;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::{LexRequirement, PhysicalExpr, PhysicalSortRequirement};
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::{ExecutionPlan, replace_children_if_necessary};
use datafusion_proto::physical_plan::from_proto::{
    parse_protobuf_file_scan_config, parse_table_schema_from_proto,
};
use datafusion_proto::physical_plan::{PhysicalPlanDecodeContext, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf;

use super::VortexCodec;
use super::messages::{Scan, Selection, Sink, SortKey};
use crate::aggregation::{Aggregation, Function, Kind};
use crate::grouping::CodedAggregateExec;
use crate::options::VortexOptions;
use crate::options::column_levels::level_of;
use crate::pushdown::{BestFirst, Filters};
use crate::selection::RowSelection;
use crate::sink::VortexSink;
use crate::source::VortexSource;

/// The context for decoding a node.
pub(super) struct Decoding<'a> {
    pub(super) codec: &'a VortexCodec,
    pub(super) task: &'a TaskContext,
    pub(super) converter: &'a dyn PhysicalProtoConverterExtension,
}

impl Decoding<'_> {
    pub(super) fn scan(&self, scan: &Scan) -> Result<Arc<dyn ExecutionPlan>> {
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
    pub(super) fn grouping(
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

    pub(super) fn sink(&self, sink: &Sink, input: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
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
        for (column, level) in &sink.levels {
            decoded = decoded.with_column_level(column, level_of(column, level)?)?;
        }
        Ok(Arc::new(DataSinkExec::new(Arc::clone(input), Arc::new(decoded), order)))
    }

    /// The columns of the order whose best rows come first.
    fn best_first(&self, scan: &Scan, table: &TableSchema) -> Result<Option<BestFirst>> {
        let mut keys = scan.best_first.iter().map(|key| {
            let (expr, options) = self.sort_key(key, table.table_schema())?;
            let column = expr.downcast_ref::<Column>().cloned().ok_or_else(|| missing("column"))?;
            Ok::<_, DataFusionError>((column, options.ok_or_else(|| missing("descending"))?))
        });
        let Some((column, options)) = keys.next().transpose()? else { return Ok(None) };
        let rows = scan.best_rows.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        Ok(Some(BestFirst { column, options, then: keys.collect::<Result<_>>()?, rows }))
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

/// Options with the values in a map, and defaults for the others.
fn from_map(map: &HashMap<String, String>) -> Result<VortexOptions> {
    let mut options = VortexOptions::default();
    map.iter().try_for_each(|(name, value)| options.set(name, value))?;
    Ok(options)
}

fn missing(field: &str) -> DataFusionError {
    exec_datafusion_err!("a plan node of vortex-datafusion lacks `{field}`")
}
