//! The order of the rows of a file.
//!
//! The sink records the order of its input, which it checks, in a metadata entry that other readers ignore:
//!
//! ```text
//! asc,nulls_last,5:l_day desc,nulls_first,3:l_n      direction, placement of nulls, length and name
//! ```
//!
//! If a file has no such entry, its statistics may still prove that a column is sorted. This order is
//! declared only on request: a plan that knows an order preserves it, at the cost of merges.

mod row_order;
mod verify;

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Schema};
use datafusion_common::stats::Precision;
use datafusion_common::{ColumnStatistics, ScalarValue};
use datafusion_datasource::PartitionedFile;
use datafusion_datasource::file_scan_config::{FileScanConfig, FileScanConfigBuilder};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::{LexOrdering, LexRequirement, PhysicalSortExpr, PhysicalSortRequirement};
use vortex_core::dtype::DType;
use vortex_core::file::Footer;

pub use self::row_order::RowOrder;
pub use self::verify::verify_order;
use crate::convert::cast_is_strictly_monotonic;

/// The metadata entry that holds the order of a file's rows.
pub(crate) const KEY: &str = "vortex-datafusion.order";

/// A column and how it is sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SortedColumn {
    pub(crate) name: String,
    pub(crate) options: SortOptions,
}

/// The order of the rows of the file with this footer, over the columns of `schema`, if it was recorded, as by
/// [`RowOrder`](crate::RowOrder).
///
/// DataFusion may rely on it only where values that are equal in SQL are the same.
/// [`VortexFormat`](crate::VortexFormat) ensures that for scans that are planned by its `create_physical_plan`.
pub fn recorded_order(footer: &Footer, schema: &Schema) -> Option<LexOrdering> {
    of_file(footer, schema, false)
}

/// The columns by which rows that satisfy `requirement` are sorted, up to the first that is not in `schema`. Those
/// called `constant` are left out: they have the same value in all rows.
pub(crate) fn sorted_columns(
    requirement: &LexRequirement,
    schema: &Schema,
    constant: &[&str],
) -> Vec<SortedColumn> {
    let is_constant = |key: &PhysicalSortRequirement| {
        key.expr.downcast_ref::<Column>().is_some_and(|column| constant.contains(&column.name()))
    };
    let columns = requirement.iter().filter(|key| !is_constant(key)).map_while(|key| {
        let column = key.expr.downcast_ref::<Column>()?;
        schema.field_with_name(column.name()).ok()?;
        Some(SortedColumn { name: column.name().to_owned(), options: key.options? })
    });
    columns.collect()
}

/// The metadata entry for rows sorted by these columns; `None` without columns.
pub(crate) fn entry(columns: &[SortedColumn]) -> Option<String> {
    let columns: Vec<String> = columns.iter().map(|column| column.to_string()).collect();
    (!columns.is_empty()).then(|| columns.join(" "))
}

impl std::fmt::Display for SortedColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let direction = if self.options.descending { "desc" } else { "asc" };
        let nulls = if self.options.nulls_first { "nulls_first" } else { "nulls_last" };
        write!(f, "{direction},{nulls},{}:{}", self.name.len(), self.name)
    }
}

/// Parses an entry up to the first part that is invalid.
fn parse(entry: &str) -> Vec<SortedColumn> {
    let mut columns = Vec::new();
    let mut rest = entry;
    while let Some((column, after)) = parse_column(rest) {
        columns.push(column);
        rest = after.strip_prefix(' ').unwrap_or("");
    }
    columns
}

fn parse_column(text: &str) -> Option<(SortedColumn, &str)> {
    let (head, rest) = text.split_once(':')?;
    let mut parts = head.split(',');
    let descending = match parts.next()? {
        "asc" => false,
        "desc" => true,
        _ => return None,
    };
    let nulls_first = match parts.next()? {
        "nulls_first" => true,
        "nulls_last" => false,
        _ => return None,
    };
    let byte_len: usize = parts.next()?.parse().ok()?;
    let name = rest.get(..byte_len)?.to_owned();
    let options = SortOptions { descending, nulls_first };
    Some((SortedColumn { name, options }, rest.get(byte_len..)?))
}

/// The order of a file's rows, over the columns of a table: as recorded or, with `ask_statistics`, as proven
/// by statistics. It ends at the first column for which the table declares a type that orders values
/// differently: '10' comes before '9', but 10 after 9.
pub(crate) fn of_file(footer: &Footer, table: &Schema, ask_statistics: bool) -> Option<LexOrdering> {
    let recorded = footer.user_metadata().iter().find(|entry| &*entry.key == KEY);
    let columns = match recorded.and_then(|entry| entry.value.as_deref()) {
        Some(bytes) => parse(std::str::from_utf8(bytes).ok()?),
        None if ask_statistics => proven(footer).into_iter().collect(),
        None => return None,
    };
    let own = footer.schema().ok()?;
    let keys = columns.into_iter().map_while(|column| {
        let (at, field) = table.column_with_name(&column.name)?;
        let from = own.field_with_name(&column.name).ok()?;
        if !cast_is_strictly_monotonic(from.data_type(), field.data_type()) {
            return None;
        }
        let expr = Arc::new(Column::new(field.name(), at));
        Some(PhysicalSortExpr::new(expr, column.options))
    });
    LexOrdering::new(keys)
}

/// The first column that is sorted in ascending order according to statistics. Floats are excluded:
/// statistics do not order NaN and the zeros as SQL does. So are columns with nulls, which may be anywhere.
fn proven(footer: &Footer) -> Option<SortedColumn> {
    let fields = footer.dtype().as_columns()?;
    let columns = fields.fields().zip(footer.statistics()?);
    let mut rising = columns.filter(|((_, dtype), known)| {
        let rises = known.is_sorted == Some(true) || known.is_strict_sorted == Some(true);
        let nulls = if dtype.is_nullable() { known.null_count } else { Some(0) };
        rises && nulls == Some(0) && is_ordered_alike(dtype) && known.is_constant != Some(true)
    });
    rising.next().map(|((name, _), _)| SortedColumn {
        name: name.to_string(),
        options: SortOptions { descending: false, nulls_first: false },
    })
}

/// Whether the format and SQL order values of this type the same way.
fn is_ordered_alike(dtype: &DType) -> bool {
    match dtype.storage() {
        DType::Primitive(ptype, _) => !ptype.is_float(),
        DType::Bool(_) | DType::Decimal(..) | DType::Utf8(_) | DType::Binary(_) => true,
        _ => false,
    }
}

/// Restricts the declared orders of a scan to what plans may rely on. DataFusion does more with an order than to
/// merge and to omit sorts:
///
/// - It supposes that rows which are equal follow each other. But `=` does not distinguish the two zeros of floats,
///   which an order separates: among rows with `f = 0`, the order of the next column begins twice, and so does each
///   group. The order ends at a column of floats, unless its bounds exclude zeros (and NaN, with which there are no
///   bounds). It also ends at nested values, which may contain floats. See `tests/it/upstream/orders.rs`:
///   `rows_that_are_equal_in_sql_are_taken_for_neighbours`. Whatever the bounds, it ends at a column of floats after
///   another one, since filters such as `a = sqrt(b)` cannot be planned in the order of `a, b`:
///   `filters_cannot_be_planned_in_the_order_of_a_root_and_its_square`.
/// - If a partition reads several files one after the other, it compares their bounds, which do not cover nulls: the
///   order ends at the first column that may have nulls: `bounds_of_files_are_compared_without_their_nulls`.
/// - It relies on orders where it must not. Only the optimizer rules of this crate prevent that (`withhold_orders.rs`,
///   `limited_scans.rs`), and that files leave their partitions (`tell_scans.rs`). In a session without them
///   (`has_rules`), scans declare no order.
pub(crate) fn reliable_orders(config: FileScanConfig, has_rules: bool) -> FileScanConfig {
    if config.output_ordering.is_empty() {
        return config;
    }
    if !has_rules {
        return FileScanConfigBuilder::from(config).with_output_ordering(Vec::new()).build();
    }
    let schema = config.file_source().table_schema().table_schema();
    let all = || config.file_groups.iter().flat_map(|group| group.iter());
    let in_turn: Vec<&PartitionedFile> =
        config.file_groups.iter().filter(|group| group.len() > 1).flat_map(|group| group.iter()).collect();
    let keeps = |column: &Column| {
        let data_type = schema.fields().get(column.index()).map(|field| field.data_type());
        in_turn.iter().all(|file| has_no_nulls(file, column.index()))
            && (data_type.is_some_and(equals_are_identical)
                || all().all(|file| has_no_zeros(file, column.index())))
    };
    let orders = config.output_ordering.iter().filter_map(|order| {
        let mut after_float = false;
        let keys = order.iter().take_while(|key| {
            let is_float = key.expr.data_type(schema).is_ok_and(|data_type| data_type.is_floating());
            let is_second = std::mem::replace(&mut after_float, is_float) && is_float;
            !is_second && key.expr.downcast_ref::<Column>().is_some_and(keeps)
        });
        LexOrdering::new(keys.cloned())
    });
    let orders = orders.collect();
    FileScanConfigBuilder::from(config).with_output_ordering(orders).build()
}

/// The scan with orders that end before the first column of a type that is withheld; `None` if none has one.
pub(crate) fn without_orders_of(
    config: &FileScanConfig,
    is_withheld: impl Fn(&DataType) -> bool,
) -> Option<FileScanConfig> {
    let schema = config.file_source().table_schema().table_schema();
    let is_withheld =
        |key: &PhysicalSortExpr| key.expr.data_type(schema).is_ok_and(|data_type| is_withheld(&data_type));
    if !config.output_ordering.iter().flat_map(|order| order.iter()).any(is_withheld) {
        return None;
    }
    let orders = config.output_ordering.iter();
    let orders = orders
        .filter_map(|order| LexOrdering::new(order.iter().take_while(|key| !is_withheld(key)).cloned()));
    let orders = orders.collect();
    Some(FileScanConfigBuilder::from(config.clone()).with_output_ordering(orders).build())
}

/// Whether values of a type that are equal in SQL are the same for every order.
fn equals_are_identical(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => equals_are_identical(values),
        DataType::RunEndEncoded(_, values) => equals_are_identical(values.data_type()),
        other => !other.is_floating() && !other.is_nested(),
    }
}

fn statistics_of(file: &PartitionedFile, column: usize) -> Option<&ColumnStatistics> {
    file.statistics.as_ref()?.column_statistics.get(column)
}

fn has_no_nulls(file: &PartitionedFile, column: usize) -> bool {
    statistics_of(file, column).is_some_and(|known| known.null_count == Precision::Exact(0))
}

/// Whether all floats of a column lie on the same side of zero.
fn has_no_zeros(file: &PartitionedFile, column: usize) -> bool {
    let side = |bound: &Precision<ScalarValue>| match bound {
        Precision::Exact(bound) => match bound.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(bound))) => bound.partial_cmp(&0.0),
            _ => None,
        },
        _ => None,
    };
    statistics_of(file, column).is_some_and(|known| {
        side(&known.min_value) == Some(Ordering::Greater) || side(&known.max_value) == Some(Ordering::Less)
    })
}

/// The order that all files of a table share: their longest common prefix.
pub(crate) fn of_table<'a>(files: impl IntoIterator<Item = &'a PartitionedFile>) -> Option<LexOrdering> {
    let mut orders = files.into_iter().map(|file| file.ordering.as_ref());
    let first = orders.next()??;
    let mut shared: Vec<PhysicalSortExpr> = first.iter().cloned().collect();
    for order in orders {
        let same = order?.iter().zip(&shared).take_while(|(left, right)| left == right).count();
        shared.truncate(same);
    }
    LexOrdering::new(shared)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion_physical_expr::PhysicalSortRequirement;

    use super::*;

    fn schema(names: &[&str]) -> Schema {
        Schema::new(names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect::<Vec<_>>())
    }

    fn requirement(columns: &[(&str, bool, bool)]) -> LexRequirement {
        let keys = columns.iter().map(|(name, descending, nulls_first)| {
            let options = SortOptions { descending: *descending, nulls_first: *nulls_first };
            PhysicalSortRequirement::new(Arc::new(Column::new(name, 7)), Some(options))
        });
        LexRequirement::new(keys).unwrap()
    }

    #[test]
    fn any_name_survives_being_recorded() {
        let names = ["a", "b c", "1:2", "", "asc,nulls_first,1:x", "日"];
        let columns: Vec<_> = names.iter().map(|name| (*name, name.len() % 2 == 0, true)).collect();
        let read = parse(&entry(&sorted_columns(&requirement(&columns), &schema(&names), &[])).unwrap());
        assert_eq!(read.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), names);
        assert_eq!(read[0].options, SortOptions { descending: false, nulls_first: true });
        assert_eq!(read[3].options, SortOptions { descending: true, nulls_first: true });
    }

    #[test]
    fn an_order_is_recorded_up_to_the_first_column_that_is_not_written() {
        let both = requirement(&[("a", false, false), ("gone", false, false), ("b", false, false)]);
        let entry = |names: &[&str]| entry(&sorted_columns(&both, &schema(names), &[]));
        assert_eq!(entry(&["a", "b"]).unwrap(), "asc,nulls_last,1:a");
        assert_eq!(entry(&["b"]), None);
    }

    #[test]
    fn nonsense_orders_nothing() {
        for text in ["", "x", "asc", "asc,nulls_first,9:a", "up,nulls_first,1:a", "asc,nulls_first,-1:a"] {
            assert_eq!(parse(text), [], "{text}");
        }
        assert_eq!(parse("asc,nulls_last,1:a desc").len(), 1);
        // A length that ends inside a character.
        assert_eq!(parse("asc,nulls_last,1:日"), []);
    }
}
