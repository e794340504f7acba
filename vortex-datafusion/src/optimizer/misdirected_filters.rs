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
//! The same happens after `join_selection` has swapped the inputs of a join: a projection that restores the order of
//! its columns looks for names in its output, although the filter above refers to them by their position.
//!
//! Scans ignore such filters if they are dynamic (`tell_scans.rs`). Others would be lost: whatever accepts them, a scan
//! or another filter, applies them to a wrong column, and the plan drops them. Therefore, the first rule marks those
//! that may be misdirected as volatile, so that they are not passed on at all, and the last rule restores them.
//!
//! See `tests/it/upstream/names.rs`: `filters_reach_the_first_column_of_a_name`,
//! `filters_above_groups_of_several_sets_reach_the_first_column_of_a_name`,
//! `filters_above_swapped_joins_reach_the_first_column_of_a_name`. An aggregation that groups by an expression under
//! the name of a column of its input has no test there: SQL gives it another name.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion_common::{JoinType, Result};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::conjunction;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::utils::{collect_columns, split_conjunction};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::union::UnionExec;

/// Names of the columns of a filter.
pub(super) type Names = BTreeSet<String>;

pub(super) fn names_of(expr: &Arc<dyn PhysicalExpr>) -> Names {
    collect_columns(expr).into_iter().map(|column| column.name().to_owned()).collect()
}

/// A conjunct that is not passed on, since it claims to be volatile.
#[derive(Debug)]
struct HeldBack(Arc<dyn PhysicalExpr>);

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for HeldBack {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq(&other.0)
    }
}

impl Eq for HeldBack {}

impl Hash for HeldBack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PhysicalExpr for HeldBack {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.0.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.0.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self(children.pop().unwrap_or_else(|| Arc::clone(&self.0)))))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }

    fn is_volatile_node(&self) -> bool {
        true
    }
}

/// Marks conjuncts of filters that might be misdirected, so that they stay where they are: also above tables of other
/// formats, since filters below a join accept them as well.
pub(super) fn hold_back(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_down(|node| {
        with_conjuncts(node, |filter, conjunct| {
            let is_held_back = may_be_misdirected(filter.input().as_ref(), &names_of(conjunct));
            is_held_back.then(|| Arc::new(HeldBack(Arc::clone(conjunct))) as _)
        })
    })
    .data()
}

/// Restores what [`hold_back`] marked.
pub(super) fn release(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_down(|node| {
        with_conjuncts(node, |_, conjunct| conjunct.downcast_ref().map(|HeldBack(inner)| Arc::clone(inner)))
    })
    .data()
}

/// A filter with some of its conjuncts replaced.
fn with_conjuncts(
    node: Arc<dyn ExecutionPlan>,
    replace: impl Fn(&FilterExec, &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
    let (mut conjuncts, mut is_changed) = (Vec::new(), false);
    for conjunct in split_conjunction(filter.predicate()) {
        let replacement = replace(filter, conjunct);
        is_changed |= replacement.is_some();
        conjuncts.push(replacement.unwrap_or_else(|| Arc::clone(conjunct)));
    }
    if !is_changed {
        return Ok(Transformed::no(node));
    }
    let filter = FilterExecBuilder::from(filter).with_predicate(conjunction(conjuncts)).build()?;
    Ok(Transformed::yes(Arc::new(filter)))
}

/// Whether a filter on columns of these names may be misdirected on its way down from `node`.
fn may_be_misdirected(node: &dyn ExecutionPlan, names: &Names) -> bool {
    if names.is_empty() {
        return false;
    }
    misdirects(node, names) || misdirects_if_swapped(node, names) || {
        let below = names_below(node, names);
        node.children().into_iter().any(|child| may_be_misdirected(child.as_ref(), &below))
    }
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
    // Columns of unions belong together by their positions. See `tests/it/upstream/names.rs`:
    // `unions_pass_filters_on_with_names_of_other_columns`.
    let own = node.schema();
    let differs = |input: &Arc<Schema>| {
        let pairs = own.fields().iter().zip(input.fields());
        pairs.into_iter().any(|(own, input)| names.contains(own.name()) && own.name() != input.name())
    };
    node.is::<UnionExec>() && inputs.iter().any(differs)
}

/// Whether `node` is a join that may pass a filter on columns of these names to others once its inputs are swapped.
fn misdirects_if_swapped(node: &dyn ExecutionPlan, names: &Names) -> bool {
    node.children().len() == 2 && !node.is::<UnionExec>() && repeats(&node.schema(), names)
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
/// of a column which is not compared with it. See `tests/it/upstream/names.rs`:
/// `filters_on_keys_of_semi_joins_reach_other_columns_of_that_name`.
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
