//! From nodes to messages.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion_common::config::ExtensionOptions as _;
use datafusion_common::tree_node::TreeNode as _;
use datafusion_common::{Result, not_impl_err};
use datafusion_datasource::file::FileSource as _;
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::file_scan_config::{FileScanConfig, FileScanConfigBuilder};
use datafusion_datasource::file_sink_config::FileSink as _;
use datafusion_datasource::sink::DataSinkExec;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion_physical_plan::empty::EmptyExec;
use datafusion_proto::physical_plan::PhysicalProtoConverterExtension;
use datafusion_proto::physical_plan::to_proto::serialize_file_scan_config;
use datafusion_proto::protobuf;
use vortex_core::VortexFile;

use super::VortexCodec;
use super::messages::{Aggregate, File, Scan, Selection, Sink, SortKey};
use crate::grouping::CodedAggregateExec;
use crate::options::VortexOptions;
use crate::pushdown::BestFirst;
use crate::selection::RowSelection;
use crate::sink::VortexSink;
use crate::source::VortexSource;

/// The context for encoding a node.
pub(super) struct Encoding<'a> {
    pub(super) codec: &'a VortexCodec,
    pub(super) converter: &'a dyn PhysicalProtoConverterExtension,
}

impl Encoding<'_> {
    pub(super) fn scan(&self, config: &FileScanConfig, source: &VortexSource) -> Result<Scan> {
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
        // DataFusion encodes these.
        let mut outputs = source.projection().into_iter().flat_map(ProjectionExprs::iter);
        outputs.try_for_each(|output| check_expr(&output.expr))?;
        let (mut base, mut functions) = (config.clone(), Vec::new());
        if let Some((aggregation, of_rows)) = source.without_aggregation() {
            base = FileScanConfigBuilder::from(base).with_source(Arc::new(of_rows)).build();
            for function in aggregation.functions() {
                functions.push(Aggregate {
                    function: function.kind().name().to_owned(),
                    name: function.expr().name().to_owned(),
                    arguments: self.exprs(&function.expr().expressions())?,
                });
            }
        }
        let best_first = source.best_first.iter().flat_map(BestFirst::keys).map(|(column, options)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(column.clone());
            self.sort_key(&column, Some(options))
        });
        Ok(Scan {
            base: Some(serialize_file_scan_config(&base, self.codec, self.converter)?),
            accepted: self.exprs(source.filters.accepted())?,
            hints: self.exprs(source.filters.hints())?,
            options: to_map(source.options()),
            limit: config.limit.map(|limit| limit as u64),
            preserve_order: source.is_ordered(config),
            best_first: best_first.collect::<Result<_>>()?,
            best_rows: source.best_first.as_ref().and_then(|best| best.rows).map(|rows| rows as u64),
            files,
            functions,
            hides_filter: !source.tells_filter(),
        })
    }

    /// Expressions that the scan evaluates.
    fn exprs(&self, exprs: &[Arc<dyn PhysicalExpr>]) -> Result<Vec<protobuf::PhysicalExprNode>> {
        let encode = |expr| {
            check_expr(expr)?;
            self.converter.physical_expr_to_proto(expr, self.codec)
        };
        exprs.iter().map(encode).collect()
    }

    fn sort_key(&self, expr: &Arc<dyn PhysicalExpr>, options: Option<SortOptions>) -> Result<SortKey> {
        Ok(SortKey {
            expr: Some(self.converter.physical_expr_to_proto(expr, self.codec)?),
            descending: options.map(|options| options.descending),
            nulls_first: options.map(|options| options.nulls_first),
        })
    }

    pub(super) fn sink(&self, exec: &DataSinkExec, sink: &VortexSink) -> Result<Sink> {
        let keys = exec.sort_order().iter().flat_map(|order| order.iter());
        let order = keys.map(|key| self.sort_key(&key.expr, key.options));
        let levels = sink.column_levels().iter();
        Ok(Sink {
            config: Some(sink.config().try_into()?),
            options: to_map(sink.options()),
            order: order.collect::<Result<_>>()?,
            metadata: sink.metadata().iter().map(|(key, value)| (key.into(), value.into())).collect(),
            levels: levels.map(|(path, level)| (path.to_string(), level.to_string())).collect(),
        })
    }

    /// The aggregation over no rows: its input is encoded by itself.
    pub(super) fn grouping(&self, exec: &CodedAggregateExec) -> Result<protobuf::PhysicalPlanNode> {
        let nothing = Arc::new(EmptyExec::new(exec.partial().input().schema()));
        self.converter.execution_plan_to_proto(&exec.partial_over(nothing)?, self.codec)
    }
}

/// Refuses an expression with a result that DataFusion cannot hand over to the scan that is decoded.
fn check_expr(expr: &Arc<dyn PhysicalExpr>) -> Result<()> {
    if expr.exists(|node| Ok(node.is::<ScalarSubqueryExpr>()))? {
        return not_impl_err!("scans that compute with the result of a subquery cannot be serialized");
    }
    Ok(())
}

fn to_map(options: &VortexOptions) -> HashMap<String, String> {
    options.entries().into_iter().filter_map(|entry| Some((entry.key, entry.value?))).collect()
}
