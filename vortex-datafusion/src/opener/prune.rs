//! What excludes a file by what is known of it before it is opened: its statistics, and [values that all its rows
//! have](FileConstants).
//!
//! ```text
//! the same for all files     prepared once     day > 3, id IN (1, 2, …)
//! own of each file           per file          folder = 'x' OR id > 5
//! dynamic                    per file          id < ?, watched while the file is read
//! ```

use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion_common::pruning::PrunableStatistics;
use datafusion_common::tree_node::TreeNode as _;
use datafusion_common::{DataFusionError, Result};
use datafusion_datasource::{PartitionedFile, TableSchema};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{CastExpr, NegativeExpr, TryCastExpr};
use datafusion_physical_expr::utils::{collect_columns, conjunction, split_conjunction};
use datafusion_physical_plan::metrics::Count;
use datafusion_pruning::{FilePruner, PruningPredicate, build_pruning_predicate};

use super::constants::{FileConstants, differs_by_file};
use super::listed_values::ListedValues;
use super::literal;
use crate::convert::{
    balanced, cast_is_monotonic, cast_is_strictly_monotonic, is_coarse, is_dynamic, reads_nested, simplify,
};
use crate::pushdown::Filters;

/// What filters tell of a file that is not open yet.
pub(super) enum Outlook {
    /// No row passes.
    Excluded,
    /// Some may pass. Dynamic filters, if they are watched, may exclude the rest of the file later.
    Open(Option<FilePruner>),
}

/// Decides which files are not opened.
pub(crate) struct FilePruning {
    table: TableSchema,
    /// Whether statistics may exclude files, or only their constants.
    by_statistics: bool,
    /// Filters that are the same for all files.
    same: Vec<Arc<dyn PhysicalExpr>>,
    /// Those, prepared when the first file is opened: subqueries have run by then.
    prepared: OnceLock<Result<Prepared, Arc<DataFusionError>>>,
    /// Filters that have to be made for each file.
    own: Vec<Arc<dyn PhysicalExpr>>,
}

impl FilePruning {
    /// Prunes files of a table by these filters, and statistics if these may be used.
    pub(crate) fn new(filters: &Filters, table: &TableSchema, by_statistics: bool) -> Self {
        let is_own = |filter: &Arc<dyn PhysicalExpr>| is_dynamic(filter) || differs_by_file(filter, table);
        let (own, same) = filters.all().cloned().partition(is_own);
        Self { table: table.clone(), by_statistics, same, prepared: OnceLock::new(), own }
    }

    /// What the filters tell of a file.
    ///
    /// # Errors
    /// If an expression cannot be built with its new children.
    pub(super) fn outlook(
        &self,
        constants: &FileConstants,
        file: &PartitionedFile,
        errors: &Count,
    ) -> Result<Outlook> {
        let prepare = || Prepared::new(&self.same, &self.table, constants, errors).map_err(Arc::new);
        let prepared = self.prepared.get_or_init(prepare).as_ref();
        let prepared = prepared.map_err(|error| DataFusionError::Shared(Arc::clone(error)))?;
        if prepared.is_never {
            return Ok(Outlook::Excluded);
        }
        let Some(own) = usable(&self.own, &self.table, constants)? else { return Ok(Outlook::Excluded) };
        if !self.by_statistics {
            return Ok(Outlook::Open(None));
        }
        if prepared.exclude(file, self.table.file_schema(), errors) {
            return Ok(Outlook::Excluded);
        }
        if own.is_empty() {
            return Ok(Outlook::Open(None));
        }
        // The pruner recurses for every operand of a chain. A test without this would overflow the stack, which ends
        // the process, so that there is none in `tests/it/upstream/`.
        let own = balanced(&conjunction(own));
        let Some(mut pruner) = FilePruner::try_new(own, self.table.file_schema(), file, errors.clone())
        else {
            return Ok(Outlook::Open(None));
        };
        if pruner.should_prune()? {
            return Ok(Outlook::Excluded);
        }
        Ok(Outlook::Open(pruner.is_watching().then_some(pruner)))
    }
}

/// Filters that are the same for all files.
struct Prepared {
    /// Whether no row of any file passes.
    is_never: bool,
    bounds: Option<Arc<PruningPredicate>>,
    lists: Vec<ListedValues>,
}

impl Prepared {
    fn new(
        filters: &[Arc<dyn PhysicalExpr>],
        table: &TableSchema,
        constants: &FileConstants,
        errors: &Count,
    ) -> Result<Self> {
        let usable = usable(filters, table, constants)?;
        let (is_never, usable) = (usable.is_none(), usable.unwrap_or_default());
        let schema = table.file_schema();
        let lists = usable.iter().filter_map(|part| ListedValues::of(part, schema)).collect();
        let bounds = (!usable.is_empty())
            .then(|| build_pruning_predicate(balanced(&conjunction(usable)), schema, errors))
            .flatten();
        Ok(Self { is_never, bounds, lists })
    }

    /// Whether no row of the file passes, by its statistics.
    fn exclude(&self, file: &PartitionedFile, schema: &SchemaRef, errors: &Count) -> bool {
        let Some(statistics) = file.statistics.as_ref().filter(|_| file.has_statistics()) else {
            return false;
        };
        if self.lists.iter().any(|list| list.exclude(statistics)) {
            return true;
        }
        let Some(bounds) = &self.bounds else { return false };
        let known = PrunableStatistics::new(vec![Arc::clone(statistics)], Arc::clone(schema));
        match bounds.prune(&known) {
            Ok(may_pass) => may_pass.into_iter().all(|may_pass| !may_pass),
            Err(error) => {
                tracing::debug!(%error, "statistics of a file cannot be compared with a filter");
                errors.add(1);
                false
            }
        }
    }
}

/// The parts of filters that statistics may contradict, with the constants of a file filled in; `None` if no row
/// passes.
fn usable(
    filters: &[Arc<dyn PhysicalExpr>],
    table: &TableSchema,
    constants: &FileConstants,
) -> Result<Option<Vec<Arc<dyn PhysicalExpr>>>> {
    let mut usable = Vec::new();
    for filter in filters {
        let mut filled = constants.fill(filter)?;
        // What cannot be simplified fails where rows are filtered, if there are any.
        if !is_dynamic(&filled)
            && let Ok(simpler) = simplify(Arc::clone(&filled), table.table_schema())
        {
            filled = simpler;
        }
        let is_nested = reads_nested(&filled, table.table_schema());
        for part in split_conjunction(&filled) {
            match literal(part) {
                Some(Some(true)) => {}
                Some(_) => return Ok(None),
                None if !is_nested && keeps_bounds(part, table.file_schema()) => {
                    usable.push(Arc::clone(part));
                }
                None => {}
            }
        }
    }
    Ok(Some(usable))
}

/// Whether everything that the filter compares is bounded by what it makes of the bounds of columns, as
/// DataFusion 55 supposes unless text is cast. A dynamic filter changes, but not the operands that it compares:
/// they are its children. See `tests/it/upstream/pruning.rs`: `bounds_are_cast_whatever_a_cast_does_to_the_order`,
/// `bounds_are_negated_although_the_least_integer_has_no_negative`.
fn keeps_bounds(filter: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    !filter.exists(|node| loses_bounds(node, schema)).unwrap_or(true)
}

fn loses_bounds(node: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<bool> {
    let loses = |operand: &Arc<dyn PhysicalExpr>, of: &dyn Fn(&DataType) -> bool| {
        Ok(!collect_columns(operand).is_empty() && of(&operand.data_type(schema)?))
    };
    if let Some(cast) = node.downcast_ref::<CastExpr>() {
        loses(cast.expr(), &|of| !bounds_can_be_cast(of, cast.cast_type()))
    } else if let Some(cast) = node.downcast_ref::<TryCastExpr>() {
        // DataFusion 55 takes values that cannot be cast, and become null, for values.
        loses(cast.expr(), &|of| {
            !bounds_can_be_cast(of, cast.cast_type()) || !cast_is_strictly_monotonic(of, cast.cast_type())
        })
    } else if let Some(negative) = node.downcast_ref::<NegativeExpr>() {
        // The least integer is its own negative.
        loses(negative.arg(), &|of| !of.is_floating() && !of.is_decimal())
    } else {
        Ok(false)
    }
}

/// Whether bounds may be cast instead of values. Where possible, DataFusion 55 instead casts the literal in the
/// opposite direction, even if that rounds the literal, or if the cast rounds the values. See
/// `tests/it/upstream/pruning.rs`: `literals_are_rounded_to_the_type_that_bounds_are_cast_from`.
fn bounds_can_be_cast(from: &DataType, to: &DataType) -> bool {
    let rounds = match (from, to) {
        (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) => from < to,
        (from, to) => from.is_decimal() && !to.is_floating() && !cast_is_strictly_monotonic(from, to),
    };
    cast_is_monotonic(from, to) && !rounds && !is_coarse(from) && !is_coarse(to)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, TimeUnit};
    use datafusion_common::stats::Precision;
    use datafusion_common::{ColumnStatistics, ScalarValue, Statistics};
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::{
        DynamicFilterPhysicalExpr, binary, cast, col, in_list, lit, negative, try_cast,
    };

    use super::*;
    use crate::options::VortexOptions;

    /// A table of one column, and a file of it whose values are within bounds.
    struct Bounded {
        table: TableSchema,
        file: PartitionedFile,
    }

    impl Bounded {
        fn new<T: Into<ScalarValue>>(min: T, max: T) -> Self {
            let (min, max) = (min.into(), max.into());
            let schema = Arc::new(Schema::new(vec![Field::new("c", min.data_type(), true)]));
            let column = ColumnStatistics {
                null_count: Precision::Exact(0),
                min_value: Precision::Exact(min),
                max_value: Precision::Exact(max),
                ..ColumnStatistics::default()
            };
            let statistics = Statistics {
                num_rows: Precision::Exact(2),
                column_statistics: vec![column],
                ..Statistics::default()
            };
            let file = PartitionedFile::new("a.vortex", 10).with_statistics(Arc::new(statistics));
            Self { table: TableSchema::builder(schema).build(), file }
        }

        fn column(&self) -> Arc<dyn PhysicalExpr> {
            col("c", self.table.table_schema()).unwrap()
        }

        fn cast(&self, to: DataType) -> Arc<dyn PhysicalExpr> {
            cast(self.column(), self.table.table_schema(), to).unwrap()
        }

        fn compared(
            &self,
            operand: Arc<dyn PhysicalExpr>,
            op: Operator,
            value: impl Into<ScalarValue>,
        ) -> Arc<dyn PhysicalExpr> {
            binary(operand, op, lit(value.into()), self.table.table_schema()).unwrap()
        }

        /// Whether the filter excludes the file.
        fn is_pruned_by(&self, filter: Arc<dyn PhysicalExpr>) -> bool {
            let mut filters = Filters::default();
            filters.offer(filter, &self.table, &VortexOptions::default());
            let constants = FileConstants::new(&self.table, &self.file);
            let pruning = FilePruning::new(&filters, &self.table, true);
            let outlook = pruning.outlook(&constants, &self.file, &Count::new()).unwrap();
            matches!(outlook, Outlook::Excluded)
        }
    }

    /// From 3 o'clock on the last day of 1969 to noon on 4 January 1970.
    fn days() -> Bounded {
        let time = |hours: i64| ScalarValue::TimestampSecond(Some(hours * 3600), None);
        Bounded::new(time(-21), time(84))
    }

    /// A time of day.
    const TIME: DataType = DataType::Time64(TimeUnit::Nanosecond);

    fn clock(hours: i64) -> ScalarValue {
        ScalarValue::Time64Nanosecond(Some(hours * 3_600_000_000_000))
    }

    #[test]
    fn a_file_is_excluded_by_its_bounds() {
        let numbers = Bounded::new(-3i64, 12i64);
        assert!(numbers.is_pruned_by(numbers.compared(numbers.column(), Operator::Gt, 12i64)));
        assert!(!numbers.is_pruned_by(numbers.compared(numbers.column(), Operator::Gt, 11i64)));
    }

    #[test]
    fn a_long_list_excludes_files_without_any_of_its_values() {
        let numbers = Bounded::new(100i64, 200i64);
        let is_pruned = |values: &mut dyn Iterator<Item = Option<i64>>, negated: bool| {
            let values = values.map(|value| lit(ScalarValue::Int64(value))).collect();
            numbers.is_pruned_by(
                in_list(numbers.column(), values, &negated, numbers.table.table_schema()).unwrap(),
            )
        };
        let around = || (0..50).map(|at| Some(if at % 2 == 0 { 99 - at } else { 201 + at }));
        assert!(is_pruned(&mut around(), false));
        assert!(is_pruned(&mut around().chain([None]), false));
        assert!(!is_pruned(&mut around(), true));
        for within in [100, 101, 200] {
            assert!(!is_pruned(&mut around().chain([Some(within)]), false));
        }
        assert!(
            !is_pruned(&mut (0..50).map(|_| None), false),
            "no file has bounds that nothing is compared with"
        );
    }

    #[test]
    fn a_partition_column_decides_of_either_side_of_an_or() {
        let file_schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Int64, true)]));
        let folder = Arc::new(Field::new("p", DataType::Utf8, false));
        let table = TableSchema::builder(file_schema).with_table_partition_cols(vec![folder]).build();
        let schema = table.table_schema();
        let file =
            Bounded::new(1i64, 9i64).file.with_partition_values(vec![ScalarValue::Utf8(Some("x".into()))]);
        let is_pruned = |folder: &str, least: i64| {
            let named = binary(col("p", schema).unwrap(), Operator::Eq, lit(folder), schema).unwrap();
            let above = binary(col("c", schema).unwrap(), Operator::Gt, lit(least), schema).unwrap();
            let mut filters = Filters::default();
            let either = binary(named, Operator::Or, above, schema).unwrap();
            filters.offer(either, &table, &VortexOptions::default());
            let constants = FileConstants::new(&table, &file);
            let pruning = FilePruning::new(&filters, &table, true);
            matches!(pruning.outlook(&constants, &file, &Count::new()).unwrap(), Outlook::Excluded)
        };
        assert!(is_pruned("y", 9));
        assert!(!is_pruned("y", 8) && !is_pruned("x", 9));
    }

    #[test]
    fn a_cast_keeps_bounds_only_if_it_keeps_the_order() {
        let days = days();
        let date = ScalarValue::Date32(Some(4));
        assert!(days.is_pruned_by(days.compared(days.cast(DataType::Date32), Operator::GtEq, date)));
        assert!(!days.is_pruned_by(days.compared(days.cast(TIME), Operator::Gt, clock(20))));
        let tried = try_cast(days.column(), days.table.table_schema(), TIME).unwrap();
        assert!(!days.is_pruned_by(days.compared(tried, Operator::Gt, clock(20))));
        let numbers = Bounded::new(-3i64, 12i64);
        let truth = numbers.cast(DataType::Boolean);
        assert!(!numbers.is_pruned_by(numbers.compared(truth, Operator::IsDistinctFrom, true)));
        let short = numbers.cast(DataType::Int8);
        assert!(numbers.is_pruned_by(numbers.compared(short, Operator::Lt, -3i8)));
    }

    #[test]
    fn values_that_cannot_be_cast_become_null() {
        let numbers = Bounded::new(1i64, 300i64);
        let cast_to = |to| try_cast(numbers.column(), numbers.table.table_schema(), to).unwrap();
        let nothing = numbers.compared(cast_to(DataType::Int8), Operator::IsNotDistinctFrom, None::<i8>);
        assert!(!numbers.is_pruned_by(nothing));
        let decimal = ScalarValue::Decimal128(Some(301), 20, 0);
        let wide = cast_to(decimal.data_type());
        assert!(numbers.is_pruned_by(numbers.compared(wide, Operator::GtEq, decimal)));
    }

    #[test]
    fn a_cast_that_rounds_keeps_bounds_only_if_it_is_not_moved_to_the_literal() {
        let decimal = |value| ScalarValue::Decimal128(Some(value), 10, 2);
        let decimals = Bounded::new(decimal(260), decimal(263));
        let whole = decimals.cast(DataType::Int32);
        assert!(!decimals.is_pruned_by(decimals.compared(whole, Operator::LtEq, 2i32)));
        let double = decimals.cast(DataType::Float64);
        assert!(decimals.is_pruned_by(decimals.compared(double, Operator::LtEq, 2.0)));
        let second = |value| ScalarValue::TimestampSecond(Some(value), None);
        let seconds = Bounded::new(second(1), second(1));
        let milliseconds = seconds.cast(DataType::Timestamp(TimeUnit::Millisecond, None));
        let later = ScalarValue::TimestampMillisecond(Some(1500), None);
        assert!(!seconds.is_pruned_by(seconds.compared(milliseconds, Operator::Lt, later)));
    }

    #[test]
    fn a_negative_integer_may_wrap() {
        let least = Bounded::new(i64::MIN, i64::MIN + 1);
        let opposite = negative(least.column(), least.table.table_schema()).unwrap();
        assert!(!least.is_pruned_by(least.compared(opposite, Operator::Lt, 4_294_967_295i64)));
        let floats = Bounded::new(1.0, 2.0);
        let opposite = negative(floats.column(), floats.table.table_schema()).unwrap();
        assert!(floats.is_pruned_by(floats.compared(opposite, Operator::Gt, -1.0)));
    }

    #[test]
    fn only_parts_of_a_filter_that_lose_bounds_are_left_out() {
        let days = days();
        let late = days.compared(days.cast(TIME), Operator::Gt, clock(20));
        let noon = ScalarValue::TimestampSecond(Some(302_400), None);
        let after = days.compared(days.column(), Operator::Gt, noon);
        assert!(days.is_pruned_by(conjunction([Arc::clone(&late), after])));
        assert!(!days.is_pruned_by(conjunction([late])));
    }

    #[test]
    fn the_operands_of_a_dynamic_filter_tell_whether_it_keeps_bounds() {
        let days = days();
        let date = ScalarValue::Date32(Some(4));
        for (to, value, is_pruned) in [(TIME, clock(20), false), (DataType::Date32, date, true)] {
            let operand = days.cast(to);
            let filter = Arc::new(DynamicFilterPhysicalExpr::new(vec![Arc::clone(&operand)], lit(true)));
            filter.update(days.compared(operand, Operator::GtEq, value)).unwrap();
            assert_eq!(days.is_pruned_by(filter), is_pruned);
        }
    }
}
