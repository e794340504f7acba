//! Order: which files, and which parts of them, contain the rows that a query needs first.
//!
//! A query that sorts and takes a few rows is fastest if it encounters those rows early: its threshold then
//! excludes, by statistics, most of what has not been read. The order is a hint; the sort above the scan
//! remains, unless files are declared to be sorted.

use std::cmp::Ordering;

use arrow::compute::SortOptions;
use datafusion_common::Result;
use datafusion_datasource::{PartitionedFile, TableSchema};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr::{EquivalenceProperties, PhysicalSortExpr};

/// What a scan can do for a requested order.
#[derive(Debug)]
pub(crate) enum Sorted {
    /// Rows are returned in that order anyway.
    Exactly,
    /// The best rows can be read first.
    BestFirst(BestFirst),
    /// The scan cannot help.
    No,
}

/// The column whose best rows are wanted first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BestFirst {
    pub(crate) column: Column,
    pub(crate) options: SortOptions,
    /// The columns that follow in the order, which tell files apart whose best values are equal: all files of a day, if
    /// rows are ordered by day and time.
    pub(crate) then: Vec<(Column, SortOptions)>,
    /// The number of rows wanted, if known.
    pub(crate) rows: Option<usize>,
}

/// What a scan that returns `projection` of `table` can do for `order`, which refers to its output.
///
/// # Errors
/// If the order cannot be compared with the known properties of the output.
pub(crate) fn sorted(
    order: &[PhysicalSortExpr],
    known: &EquivalenceProperties,
    projection: &ProjectionExprs,
    table: &TableSchema,
) -> Result<Sorted> {
    let Some(first) = order.first() else { return Ok(Sorted::No) };
    if known.ordering_satisfy(order.iter().cloned())? {
        return Ok(Sorted::Exactly);
    }
    // If the output satisfies a prefix of the order, it is better not to interfere with the sort.
    if known.ordering_satisfy([first.clone()])? {
        return Ok(Sorted::No);
    }
    let outputs: &[_] = projection.as_ref();
    let stored = |key: &PhysicalSortExpr| {
        let output = key.expr.downcast_ref::<Column>()?;
        let column = outputs.get(output.index())?.expr.downcast_ref::<Column>()?;
        (column.index() < table.file_schema().fields().len()).then(|| (column.clone(), key.options))
    };
    let mut keys = order.iter().map_while(stored);
    Ok(match keys.next() {
        Some((column, options)) => {
            Sorted::BestFirst(BestFirst { column, options, then: keys.collect(), rows: None })
        }
        None => Sorted::No,
    })
}

impl BestFirst {
    /// The files, sorted so that those with the best rows come first and those without statistics last.
    pub(crate) fn files(&self, mut files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        files.sort_by(|left, right| {
            let mut orders = self.keys().map(|(column, options)| by_best(left, right, column, options));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
        files
    }

    /// The columns of the order, with their options.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Column, SortOptions)> {
        let then = self.then.iter().map(|(column, options)| (column, *options));
        std::iter::once((&self.column, self.options)).chain(then)
    }
}

/// Compares files by their best values of a column; those without statistics come last.
fn by_best(
    left: &PartitionedFile,
    right: &PartitionedFile,
    column: &Column,
    options: SortOptions,
) -> Ordering {
    let best = |file: &PartitionedFile| {
        let column = file.statistics.as_ref()?.column_statistics.get(column.index())?;
        let bound = if options.descending { &column.max_value } else { &column.min_value };
        bound.get_value().filter(|value| !value.is_null()).cloned()
    };
    match (best(left), best(right)) {
        (Some(left), Some(right)) => {
            // Values of different types cannot be compared, but sorting needs an order of all.
            let by_type = || left.data_type().cmp(&right.data_type());
            let order = left.partial_cmp(&right).unwrap_or_else(by_type);
            if options.descending { order.reverse() } else { order }
        }
        (left, right) => right.is_some().cmp(&left.is_some()),
    }
}

impl std::fmt::Display for BestFirst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.column, if self.options.descending { "DESC" } else { "ASC" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_common::stats::Precision;
    use datafusion_common::{ColumnStatistics, ScalarValue, Statistics};
    use object_store::path::Path;

    use super::*;

    /// A file with the least and the greatest value of each column, if it has statistics.
    fn file(name: &str, ranges: &[(i32, i32)]) -> PartitionedFile {
        let mut file = PartitionedFile::new(name, 1);
        let columns = ranges.iter().map(|(min, max)| ColumnStatistics {
            min_value: Precision::Exact(ScalarValue::Int32(Some(*min))),
            max_value: Precision::Inexact(ScalarValue::Int32(Some(*max))),
            ..ColumnStatistics::default()
        });
        let known = Statistics { column_statistics: columns.collect(), ..Statistics::default() };
        file.statistics = (!ranges.is_empty()).then(|| Arc::new(known));
        file
    }

    fn names(descending: bool) -> Vec<String> {
        let options = SortOptions { descending, nulls_first: false };
        let files = vec![file("none", &[]), file("low", &[(0, 5)]), file("wide", &[(1, 9)])];
        let best = BestFirst { column: Column::new("a", 0), options, then: Vec::new(), rows: None };
        best.files(files).into_iter().map(|file| file.object_meta.location.to_string()).collect()
    }

    #[test]
    fn files_with_the_best_rows_come_first() {
        assert_eq!(names(false), ["low", "wide", "none"]);
        assert_eq!(names(true), ["wide", "low", "none"]);
    }

    #[test]
    fn files_whose_values_have_several_types_have_an_order() {
        let options = SortOptions::default();
        let best = BestFirst { column: Column::new("a", 0), options, then: Vec::new(), rows: None };
        let mut files: Vec<_> = (0..100).map(|at| file(&format!("{at:02}"), &[(-at, 0)])).collect();
        for (at, file) in files.iter_mut().enumerate().step_by(2) {
            let known = Arc::make_mut(file.statistics.as_mut().unwrap());
            known.column_statistics[0].min_value = Precision::Exact(ScalarValue::Int64(Some(at as i64)));
        }
        let sorted: Vec<_> = best.files(files).into_iter().map(|file| file.object_meta.location).collect();
        let (narrow, wide) = ((1..100).rev().step_by(2), (0..100).step_by(2));
        let expected: Vec<_> = narrow.chain(wide).map(|at| Path::from(format!("{at:02}"))).collect();
        assert_eq!(sorted, expected);
    }

    #[test]
    fn files_with_equal_best_values_are_told_apart_by_the_columns_that_follow() {
        let options = SortOptions { descending: true, nulls_first: false };
        let then = vec![(Column::new("time", 1), options)];
        let best = BestFirst { column: Column::new("day", 0), options, then, rows: None };
        let files = vec![
            file("morning", &[(7, 7), (6, 11)]),
            file("before", &[(6, 6), (0, 23)]),
            file("unknown", &[]),
            file("evening", &[(7, 7), (18, 23)]),
        ];
        let names = best.files(files).into_iter().map(|file| file.object_meta.location.to_string());
        assert_eq!(names.collect::<Vec<_>>(), ["evening", "morning", "before", "unknown"]);
    }

    #[test]
    fn an_order_is_followed_through_the_projection() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Int32, true),
        ]));
        let table = TableSchema::builder(Arc::clone(&schema)).build();
        let projection = ProjectionExprs::from_indices(&[1], &schema);
        let output = Arc::new(projection.project_schema(&schema).unwrap());
        let order = [PhysicalSortExpr::new_default(Arc::new(Column::new("b", 0)))];
        let known = EquivalenceProperties::new(output);
        match sorted(&order, &known, &projection, &table).unwrap() {
            Sorted::BestFirst(best) => assert_eq!(best.column, Column::new("b", 1)),
            other => panic!("{other:?}"),
        }
    }
}
