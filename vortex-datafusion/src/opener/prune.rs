//! What is known about a file before it is opened: values that are the same for all its rows, and statistics
//! that may exclude it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode};
use datafusion_common::{Result, ScalarValue};
use datafusion_datasource::{PartitionedFile, TableSchema};
use datafusion_functions::core::input_file_name::InputFileNameFunc;
use datafusion_physical_expr::expressions::{CastExpr, Column, NegativeExpr, TryCastExpr, lit};
use datafusion_physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion_physical_expr::utils::{collect_columns, conjunction, split_conjunction};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::ColumnarValue;
use datafusion_physical_plan::metrics::Count;
use datafusion_pruning::FilePruner;

use crate::convert::{balanced, cast_is_monotonic, cast_is_strictly_monotonic, reads_nested};
use crate::pushdown::Filters;

/// Adapts expressions over a table to one of its files: values that are constant there become literals.
pub(crate) struct FileConstants<'a> {
    file_columns: usize,
    partition_values: &'a [ScalarValue],
    file_name: &'a str,
}

impl<'a> FileConstants<'a> {
    /// The constants of `file`.
    pub(crate) fn new(table: &TableSchema, file: &'a PartitionedFile) -> Self {
        Self {
            file_columns: table.file_schema().fields().len(),
            partition_values: &file.partition_values,
            file_name: file.object_meta.location.as_ref(),
        }
    }

    /// The expression with partition columns, the file's name and results of subqueries filled in.
    ///
    /// # Errors
    /// If an expression cannot be built with its new children.
    pub(crate) fn fill(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        Arc::clone(expr)
            .transform_up(|node| match self.value(&node) {
                Some(value) => Ok(Transformed::yes(lit(value))),
                None => Ok(Transformed::no(node)),
            })
            .data()
    }

    fn value(&self, node: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
        let node = node.as_ref();
        if let Some(column) = node.downcast_ref::<Column>() {
            let at = column.index().checked_sub(self.file_columns)?;
            return self.partition_values.get(at).cloned();
        }
        if ScalarFunctionExpr::try_downcast_func::<InputFileNameFunc>(node).is_some() {
            return Some(ScalarValue::Utf8(Some(self.file_name.to_owned())));
        }
        // Subqueries have run by the time a file is opened; one that has not run is left unchanged.
        let subquery = node.downcast_ref::<ScalarSubqueryExpr>()?;
        let no_rows = arrow::array::RecordBatch::new_empty(Arc::new(Schema::empty()));
        match subquery.evaluate(&no_rows) {
            Ok(ColumnarValue::Scalar(value)) => Some(value),
            _ => None,
        }
    }
}

/// A pruner that checks the file's statistics against all filters, including dynamic ones. `None` if there is
/// nothing to check.
///
/// # Errors
/// If an expression cannot be built with its new children.
pub(crate) fn file_pruner(
    filters: &Filters,
    constants: &FileConstants,
    table: &TableSchema,
    file: &PartitionedFile,
    errors: &Count,
) -> Result<Option<FilePruner>> {
    let schema = table.file_schema();
    let mut usable = Vec::new();
    for filter in filters.all().filter(|filter| !reads_nested(filter, table.table_schema())) {
        let filled = constants.fill(filter)?;
        let parts = split_conjunction(&filled).into_iter().filter(|part| keeps_bounds(part, schema));
        usable.extend(parts.cloned());
    }
    if usable.is_empty() {
        return Ok(None);
    }
    // The pruner recurses for every operand of a chain. A test without this would overflow the stack, which ends the
    // process, so that there is none in `tests/it/upstream/`.
    Ok(FilePruner::try_new(balanced(&conjunction(usable)), schema, file, errors.clone()))
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
    // It divides by zero if the scale is negative.
    let panics = |data_type: &DataType| match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale < 0,
        _ => false,
    };
    cast_is_monotonic(from, to) && !rounds && !panics(from) && !panics(to)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, TimeUnit};
    use datafusion_common::stats::Precision;
    use datafusion_common::{ColumnStatistics, Statistics};
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::{
        DynamicFilterPhysicalExpr, binary, cast, col, negative, try_cast,
    };

    use super::*;
    use crate::options::VortexOptions;

    #[test]
    fn partition_columns_are_filled_in_by_position() {
        let file_schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Utf8, true)]));
        let partition = Arc::new(Field::new("p", DataType::Utf8, false));
        let table = TableSchema::builder(file_schema).with_table_partition_cols(vec![partition]).build();
        let file = PartitionedFile::new("p=x/a.vortex", 10)
            .with_partition_values(vec![ScalarValue::Utf8(Some("x".into()))]);
        let schema = table.table_schema();
        let both =
            binary(col("a", schema).unwrap(), Operator::Eq, col("p", schema).unwrap(), schema).unwrap();
        let filled = FileConstants::new(&table, &file).fill(&both).unwrap();
        assert_eq!(filled.to_string(), "a@0 = x");
    }

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
            let pruner = file_pruner(&filters, &constants, &self.table, &self.file, &Count::new()).unwrap();
            pruner.is_some_and(|mut pruner| pruner.should_prune().unwrap())
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
