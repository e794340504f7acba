//! Filters that DataFusion 55 passes to the wrong column.
//!
//! Most operators pass a filter from above on to their input by the names of its columns (`FilterRemapper`). If
//! two columns of the input have that name, it gets to the first, although it may concern the second:
//!
//! ```text
//! HashJoinExec: on z = id@2                a dynamic filter on id@2
//!   RepartitionExec                        becomes one on id@0
//!     HashJoinExec: o.cid = c.id           columns id, cid, id
//! ```
//!
//! Scans ignore such filters if they are dynamic (`tell_scans.rs`). If they are not, the plan would drop them as
//! soon as a scan accepts them; where any may be misdirected, scans decline all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_common::{JoinType, Result};
use datafusion_datasource::file_scan_config::FileScanConfigBuilder;
use datafusion_datasource::source::DataSourceExec;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::utils::{collect_columns, split_conjunction};
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::union::UnionExec;
use datafusion_physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::source::VortexSource;

/// Names of the columns of a filter.
pub(super) type Names = BTreeSet<String>;

pub(super) fn names_of(expr: &Arc<dyn PhysicalExpr>) -> Names {
    collect_columns(expr).into_iter().map(|column| column.name().to_owned()).collect()
}

/// Makes scans decline filters of the plan if one may be misdirected on its way to them. `above` are the columns
/// of each filter above `node`; `declines` is whether one may have been misdirected already. These scans decline
/// their own filters, too, which they cannot tell apart; such plans are rare, since filters on single tables
/// usually are below joins before this rule runs.
pub(super) fn decline_misdirected(
    node: Arc<dyn ExecutionPlan>,
    above: &[Names],
    declines: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        let scan = scan.downcast_to_file_source::<VortexSource>().filter(|_| declines);
        return Ok(match scan {
            Some((config, source)) => {
                let source = Arc::new(source.clone().with_declined_filters());
                let config = FileScanConfigBuilder::from(config.clone()).with_source(source).build();
                DataSourceExec::from_data_source(config) as Arc<_>
            }
            None => node,
        });
    }
    let declines = declines || above.iter().any(|names| misdirects(node.as_ref(), names));
    let mut below: Vec<Names> = above.iter().map(|names| names_below(node.as_ref(), names)).collect();
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        below.extend(split_conjunction(filter.predicate()).into_iter().map(names_of));
    }
    let children = node.children().into_iter();
    let children = children.map(|child| decline_misdirected(Arc::clone(child), &below, declines));
    let children = children.collect::<Result<_>>()?;
    replace_children_if_necessary(node, children)
}

/// Whether `node` may pass a filter on columns of these names to others.
pub(super) fn misdirects(node: &dyn ExecutionPlan, names: &Names) -> bool {
    // Projections look for names in their output.
    if node.is::<ProjectionExec>() {
        return repeats(&node.schema(), names);
    }
    let inputs: Vec<_> = node.children().into_iter().map(|child| child.schema()).collect();
    if inputs.iter().any(|input| repeats(input, names)) {
        return true;
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr().expr().iter();
        let mut wanted = groups.filter(|(_, name)| names.contains(name));
        return wanted.any(|(expr, name)| !is_column(expr, name));
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return joins_other_column(join, names);
    }
    // Columns of unions belong together by their positions.
    let own = node.schema();
    let differs = |input: &Arc<Schema>| {
        let pairs = own.fields().iter().zip(input.fields());
        pairs.into_iter().any(|(own, input)| names.contains(own.name()) && own.name() != input.name())
    };
    node.is::<UnionExec>() && inputs.iter().any(differs)
}

/// The names that these columns have below `node`.
pub(super) fn names_below(node: &dyn ExecutionPlan, names: &Names) -> Names {
    let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return names.clone() };
    let wanted = projection.expr().iter().filter(|output| names.contains(&output.alias));
    wanted.flat_map(|output| names_of(&output.expr)).collect()
}

fn repeats(schema: &Schema, names: &Names) -> bool {
    let repeated = |name: &String| schema.fields().iter().filter(|field| field.name() == name).count() > 1;
    names.iter().any(repeated)
}

fn is_column(expr: &Arc<dyn PhysicalExpr>, name: &str) -> bool {
    expr.downcast_ref::<Column>().is_some_and(|column| column.name() == name)
}

/// Semi-joins also pass filters on a key to the side that they do not return, where the name of the key may be that
/// of a column which is not compared with it.
fn joins_other_column(join: &HashJoinExec, names: &Names) -> bool {
    let (is_left, other) = match join.join_type() {
        JoinType::LeftSemi => (true, join.right()),
        JoinType::RightSemi => (false, join.left()),
        _ => return false,
    };
    let other_schema = other.schema();
    join.on().iter().any(|(left, right)| {
        let (own, other) = if is_left { (left, right) } else { (right, left) };
        let own = own.downcast_ref::<Column>().map(Column::name).filter(|name| names.contains(*name));
        own.is_some_and(|name| other_schema.index_of(name).is_ok() && !is_column(other, name))
    })
}
