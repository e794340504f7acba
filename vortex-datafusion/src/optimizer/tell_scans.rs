//! The last pass: tells scans what the plan above them relies on, and replaces operators whose work scans do.
//!
//! ```text
//! SortPreservingMergeExec: [a ASC], fetch=10               SortExec: TopK(fetch=10), expr=[b DESC]
//!   DataSourceExec: {[x], [y]}, output_ordering=[a ASC]      DataSourceExec: best_first=[b DESC]
//! ```
//!
//! Order: DataFusion 55 lets a partition that has finished take over files of other partitions, unless the
//! scan is told to preserve the order; and pushing down a limit resets that flag. Merges above then receive
//! rows out of order. The flag is set again here, after all other optimizations. See `tests/it/upstream/orders.rs`:
//! `limits_let_partitions_take_over_files_whose_order_a_merge_relies_on`.
//!
//! Number of rows: a scan that reads the best rows first is not told how many of them the sort above needs,
//! nor that there is a limit in between, so that the best of other rows are wanted.
//!
//! Partitions: a file of which only the best rows are wanted is not divided, if all that becomes of its partitions
//! is that their best rows are merged. Each partition would have to find as many rows as the sort needs before its
//! part of the sort can rule out others, so that several times as many rows would be decoded; and a scan works on
//! several parts of a file at once in any case.
//!
//! Dynamic filters: scans are made to ignore those that drop rows which the plan needs. `tests/it/upstream/filters.rs`
//! shows each without this crate.
//! - Operators with a limit (filters, joins) let filters of operators above them pass, which concern the
//!   limited rows only: `filters_cross_limits_of_filters_and_joins`.
//! - Operators whose columns share a name pass filters to the wrong one: see `misdirected_filters.rs`.
//! - A filter that is passed through a projection, or adapted to a file, gets other keys from the leaves up: of keys
//!   `y` and `y + b`, the second is no longer found once its `y` is replaced, and its `b` remains that of the
//!   projection. Of keys `y` and `a IS NULL`, the test for nulls of `y` is taken for the second key if `y` becomes `a`:
//!   `keys_that_are_found_in_others_are_replaced_wrongly`.
//! - An aggregation without groups produces one filter for all of its minima and maxima, which keeps rows that
//!   improve any of them. DataFusion 55 leaves out those that are not of plain columns, and those without a
//!   value so far. When the plan runs again, as in a recursive query, the filter still has the bounds of the
//!   first run. Parquet files are affected, too, but whole row groups at a time:
//!   `filters_of_aggregations_leave_out_expressions`, `filters_of_aggregations_leave_out_those_without_a_value`,
//!   `filters_of_aggregations_outlive_a_run`.
//!
//! Sorts without a limit evaluate dynamic filters that nobody below them takes, as if these were part of the query.
//! Those of joins are not: they take the zeros of floats for different, and may fail. They are removed.
//! `tests/it/upstream/keys.rs`: `sorts_evaluate_filters_that_no_scan_takes`.
//!
//! Sums, minima and maxima: see `exact_statistics.rs`. Aggregations that scans compute: see `pushed_aggregates.rs`.
//! Sorts of partitions that differ in a constant: see `merged_sorts.rs`.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::TreeNode as _;
use datafusion_datasource::PartitionedFile;
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::file_scan_config::{FileScanConfig, FileScanConfigBuilder};
use datafusion_datasource::source::DataSourceExec;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, IsNotNullExpr, IsNullExpr};
use datafusion_physical_expr::utils::{conjunction, split_conjunction};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use vortex_core::VortexFile;

use super::misdirected_filters::{Names, misdirects, names_below, names_of};
use super::{coded_groups, exact_statistics, merged_sorts, pushed_aggregates, vortex_scan, with_children};
use crate::convert::is_dynamic;
use crate::selection::RowSelection;
use crate::source::{BestWanted, VortexSource};

/// Keeps ordered files in their partitions, passes on how many of the best rows are wanted and which dynamic filters
/// are wrong, answers sums, minima and maxima, and lets scans aggregate and find groups.
pub(super) fn complete(
    plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    complete_below(plan, config, &Above::default())
}

/// What the operators above a node mean for the scans below it.
#[derive(Debug, Clone, Default)]
struct Above {
    /// How many of the best rows are wanted.
    best: BestWanted,
    /// The dynamic filters that they produce.
    filters: Vec<Produced>,
    /// Ids of those that scans must ignore.
    distrusted: Vec<u64>,
    /// What becomes of the partitions.
    partitions: Partitions,
}

/// A dynamic filter on its way to the scans.
#[derive(Debug, Clone)]
struct Produced {
    id: u64,
    names: Names,
}

/// What operators do with the partitions of their input.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Partitions {
    /// They may rely on them.
    #[default]
    Kept,
    /// They merge them.
    Merged,
    /// They merge the best rows of each.
    BestMerged,
}

impl Partitions {
    /// What becomes of the partitions of the input of `node`.
    fn below(self, node: &dyn ExecutionPlan) -> Self {
        if node.is::<SortPreservingMergeExec>() {
            return Self::Merged;
        }
        let keeps_best = node.is::<FilterExec>() || node.is::<ProjectionExec>();
        match self {
            Self::Merged if node.is::<SortExec>() && node.fetch().is_some() => Self::BestMerged,
            Self::BestMerged if keeps_best && node.fetch().is_none() => self,
            _ => Self::Kept,
        }
    }
}

impl Above {
    /// What `node` and the operators above it mean for its children.
    fn below(&self, node: &dyn ExecutionPlan) -> Self {
        let mut below = self.clone();
        if let Some(sort) = node.downcast_ref::<SortExec>() {
            below.best = BestWanted::First(sort.fetch());
        } else if node.fetch().is_some() {
            below.best = BestWanted::InOrder;
        }
        let wrong = |filter: &&Produced| node.fetch().is_some() || misdirects(node, &filter.names);
        below.distrusted.extend(self.filters.iter().filter(wrong).map(|filter| filter.id));
        for filter in &mut below.filters {
            filter.names = names_below(node, &filter.names);
        }
        for filter in node.dynamic_expressions_produced() {
            let Some(id) = filter.expression_id() else { continue };
            if node.is::<AggregateExec>() || is_torn(&filter.children()) {
                below.distrusted.push(id)
            } else {
                below.filters.push(Produced { id, names: names_of(&filter) })
            }
        }
        below.partitions = self.partitions.below(node);
        below
    }
}

/// Whether a filter on these keys may become a wrong one once it is passed through a projection, or adapted to a file:
/// if one of several is found in another, or may be found where the filter compares them or tests them for nulls.
fn is_torn(keys: &[&Arc<dyn PhysicalExpr>]) -> bool {
    let compares = |key: &Arc<dyn PhysicalExpr>| match key.downcast_ref::<BinaryExpr>() {
        Some(binary) => !binary.op().is_numerical_operators(),
        None => key.is::<IsNullExpr>() || key.is::<IsNotNullExpr>(),
    };
    let contains_other = |key: &Arc<dyn PhysicalExpr>| {
        let is_key = |part: &dyn PhysicalExpr| keys.iter().any(|key| key.as_ref() == part);
        key.exists(|part| Ok(part.as_ref() != key.as_ref() && is_key(part.as_ref()))).unwrap_or(true)
    };
    keys.len() > 1 && keys.iter().any(|key| compares(key) || contains_other(key))
}

/// Tells the scans below `node`, or itself.
fn complete_below(
    node: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
    above: &Above,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some((config, source)) = vortex_scan(&node) {
        return Ok(tell_scan(config, source, above).unwrap_or(node));
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>()
        && let Some(without) = without_dynamic(filter)?
    {
        return complete_below(without, config, above);
    }
    if let Some(answer) = exact_statistics::answer(&node, config)? {
        return Ok(answer);
    }
    if let Some(pushed) = pushed_aggregates::push(&node)? {
        return Ok(pushed);
    }
    let below = above.below(node.as_ref());
    let node = with_children(&node, |_, child| complete_below(child, config, &below))?;
    let node = merged_sorts::complete(node)?;
    Ok(coded_groups::push(&node)?.unwrap_or(node))
}

/// A filter without those parts that change while the query runs, if it has any.
fn without_dynamic(filter: &FilterExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let parts = split_conjunction(filter.predicate()).into_iter().cloned();
    let (dynamic, others): (Vec<_>, Vec<_>) = parts.partition(is_dynamic);
    if dynamic.is_empty() {
        return Ok(None);
    }
    if others.is_empty() && filter.projection().is_none() && filter.fetch().is_none() {
        return Ok(Some(Arc::clone(filter.input())));
    }
    Ok(Some(Arc::new(FilterExecBuilder::from(filter).with_predicate(conjunction(others)).build()?)))
}

/// The scan, if there is anything to tell.
fn tell_scan(
    config: &FileScanConfig,
    source: &VortexSource,
    above: &Above,
) -> Option<Arc<dyn ExecutionPlan>> {
    let is_ordered = !config.output_ordering.is_empty() && config.file_groups.len() > 1;
    let best = if config.limit.is_some() { BestWanted::InOrder } else { above.best };
    let told = source.with_hints(&above.distrusted, best);
    let finds_best = told.as_ref().unwrap_or(source).best_first.is_some();
    let whole =
        (finds_best && above.partitions == Partitions::BestMerged).then(|| undivided(config)).flatten();
    // A limit that DataFusion passes to the scan resets this.
    let preserves_order = config.preserve_order || is_ordered;
    if told.is_none() && whole.is_none() && preserves_order == config.preserve_order {
        return None;
    }
    let mut builder = FileScanConfigBuilder::from(config.clone()).with_preserve_order(preserves_order);
    if let Some(told) = told {
        builder = builder.with_source(Arc::new(told));
    }
    if let Some(file) = whole {
        builder = builder.with_file_groups(vec![FileGroup::new(vec![file])]);
    }
    Some(DataSourceExec::from_data_source(builder.build()))
}

/// The file whose consecutive parts the groups of a scan are, unless a partitioning is declared, which has as many
/// partitions as there are groups.
fn undivided(config: &FileScanConfig) -> Option<PartitionedFile> {
    if config.output_partitioning.is_some() || config.file_groups.len() < 2 {
        return None;
    }
    let mut parts = config.file_groups.iter().flat_map(FileGroup::iter);
    let mut whole = parts.next()?.clone();
    let mut end = whole.range.as_ref()?.end;
    for part in parts {
        let range = part.range.as_ref()?;
        let same = part.object_meta == whole.object_meta
            && is_same_open(part.extension(), whole.extension())
            && part.partition_values == whole.partition_values
            && part.extension::<RowSelection>() == whole.extension::<RowSelection>();
        if !same || range.start != end {
            return None;
        }
        end = range.end;
    }
    whole.range.as_mut()?.end = end;
    Some(whole)
}

/// Whether parts of open files are parts of the same: files in memory may have equal names and sizes.
fn is_same_open(one: Option<&VortexFile>, other: Option<&VortexFile>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one.footer(), other.footer()),
        (one, other) => one.is_none() && other.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_datasource::TableSchema;
    use datafusion_execution::object_store::ObjectStoreUrl;
    use datafusion_expr::Operator;
    use datafusion_physical_expr::Partitioning;
    use datafusion_physical_expr::expressions::Column;

    use super::*;

    /// A scan with a group per part of a file of 30 bytes.
    fn scan(parts: impl IntoIterator<Item = PartitionedFile>) -> FileScanConfigBuilder {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let source = Arc::new(VortexSource::new(TableSchema::from(&schema)));
        let groups = parts.into_iter().map(|part| FileGroup::new(vec![part]));
        FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_groups(groups.collect())
    }

    fn part(start: i64) -> PartitionedFile {
        PartitionedFile::new("a.vortex", 30).with_range(start, start + 10)
    }

    fn united(scan: FileScanConfigBuilder) -> Option<(i64, i64)> {
        undivided(&scan.build()).and_then(|whole| whole.range).map(|range| (range.start, range.end))
    }

    #[test]
    fn consecutive_parts_of_a_file_are_united() {
        assert_eq!(united(scan([part(0), part(10), part(20)])), Some((0, 30)));
        assert_eq!(united(scan([part(0), part(20)])), None, "a part is missing");
        assert_eq!(united(scan([part(0)])), None, "there is nothing to unite");
        let other = PartitionedFile::new("b.vortex", 30).with_range(10, 20);
        assert_eq!(united(scan([part(0), other])), None);
    }

    #[test]
    fn parts_that_select_different_rows_stay_apart() {
        let selected =
            |start: i64, row: u64| part(start).with_extension(RowSelection::except([row]).unwrap());
        assert_eq!(united(scan([selected(0, 7), selected(10, 7)])), Some((0, 20)));
        assert_eq!(united(scan([selected(0, 7), selected(10, 8)])), None);
        assert_eq!(united(scan([selected(0, 7), part(10)])), None);
        assert_eq!(united(scan([part(0), selected(10, 7)])), None);
    }

    #[test]
    fn keys_are_torn_if_one_may_be_found_in_another_or_in_what_the_filter_makes_of_it() {
        let column = |name: &str, at| Arc::new(Column::new(name, at)) as Arc<dyn PhysicalExpr>;
        let of = |left: &Arc<dyn PhysicalExpr>, op, right: &Arc<dyn PhysicalExpr>| {
            Arc::new(BinaryExpr::new(Arc::clone(left), op, Arc::clone(right))) as Arc<dyn PhysicalExpr>
        };
        let (a, b, c) = (column("a", 0), column("b", 1), column("c", 2));
        let (sum, order) = (of(&a, Operator::Plus, &b), of(&b, Operator::Lt, &c));
        let null: Arc<dyn PhysicalExpr> = Arc::new(IsNullExpr::new(Arc::clone(&b)));
        for torn in [[&a, &sum], [&sum, &b], [&a, &null], [&a, &order]] {
            assert!(is_torn(&torn), "{torn:?}");
        }
        for whole in [&[&sum][..], &[&null], &[&a, &b], &[&sum, &c]] {
            assert!(!is_torn(whole), "{whole:?}");
        }
    }

    #[test]
    fn a_declared_partitioning_keeps_its_groups() {
        let declared =
            scan([part(0), part(10)]).with_output_partitioning(Some(Partitioning::UnknownPartitioning(2)));
        assert_eq!(united(declared), None);
    }
}
