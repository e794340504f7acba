//! Compares the answers of two engines.
//!
//! If a query does not determine the order of its rows, they are sorted first. Texts, dates and exact
//! numbers must be equal as text, regardless of their Arrow types; floats may differ by rounding, since
//! sums depend on the order of the rows.

use std::cmp::Ordering;

use arrow::array::AsArray;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// Permitted relative difference of floats.
const TOLERANCE: f64 = 1e-9;

/// How far the order of rows is part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Not at all: rows are sorted before they are compared.
    Any,
    /// Completely.
    Total,
    /// Only for the first column. Rows with equal values there may be in any order, or replaced by rows
    /// that a limit cut off, so only this column is compared.
    FirstColumn,
}

/// The rows of a result, in a form that can be compared.
#[derive(Debug)]
pub(crate) struct Answer {
    rows: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Null,
    Text(String),
    Float(f64),
}

impl Answer {
    /// Extracts what can be compared under `order`.
    pub(crate) fn new(batches: &[RecordBatch], order: Order) -> Result<Self, ArrowError> {
        let mut rows = Vec::new();
        for batch in batches {
            let compared = match order {
                Order::FirstColumn => 1,
                Order::Any | Order::Total => batch.num_columns(),
            };
            let columns = batch.columns()[..compared].iter().map(cells).collect::<Result<Vec<_>, _>>()?;
            rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|c| c[row].clone()).collect()));
        }
        if order == Order::Any {
            rows.sort_by(compare_rows);
        }
        Ok(Self { rows })
    }

    /// The number of rows.
    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// A description of the first difference from the expected answer.
    pub(crate) fn difference(&self, expected: &Self) -> Option<String> {
        if self.rows.len() != expected.rows.len() {
            return Some(format!("{} rows instead of {}", self.rows.len(), expected.rows.len()));
        }
        self.rows.iter().zip(&expected.rows).enumerate().find_map(|(row, (actual, expected))| {
            if actual.len() != expected.len() {
                return Some(format!("{} columns instead of {}", actual.len(), expected.len()));
            }
            let column = actual.iter().zip(expected).position(|(a, b)| !is_close(a, b))?;
            Some(format!(
                "row {row}, column {column}: {:?} instead of {:?}",
                actual[column], expected[column]
            ))
        })
    }
}

fn cells(column: &ArrayRef) -> Result<Vec<Cell>, ArrowError> {
    if column.data_type().is_floating() {
        let floats = cast(column, &DataType::Float64)?;
        return Ok(floats
            .as_primitive::<Float64Type>()
            .iter()
            .map(|v| v.map_or(Cell::Null, Cell::Float))
            .collect());
    }
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let cell =
        |row| if column.is_null(row) { Cell::Null } else { Cell::Text(formatter.value(row).to_string()) };
    Ok((0..column.len()).map(cell).collect())
}

/// Exact cells are compared first, so that floats that differ by rounding do not change the order of rows.
fn compare_rows(a: &Vec<Cell>, b: &Vec<Cell>) -> Ordering {
    let exact = |(a, b): (&Cell, &Cell)| match (a, b) {
        (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
        (Cell::Float(_), Cell::Float(_)) => Ordering::Equal,
        _ => (*a != Cell::Null).cmp(&(*b != Cell::Null)),
    };
    let rounded = |(a, b): (&Cell, &Cell)| match (a, b) {
        (Cell::Float(a), Cell::Float(b)) => a.total_cmp(b),
        _ => Ordering::Equal,
    };
    let mut by_exact = a.iter().zip(b).map(exact);
    let mut by_float = a.iter().zip(b).map(rounded);
    by_exact.find(|o| o.is_ne()).or_else(|| by_float.find(|o| o.is_ne())).unwrap_or(Ordering::Equal)
}

fn is_close(a: &Cell, b: &Cell) -> bool {
    match (a, b) {
        (Cell::Float(a), Cell::Float(b)) => {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, StringArray, StringViewArray};

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> [RecordBatch; 1] {
        [RecordBatch::try_from_iter(columns).expect("columns are of one length")]
    }

    #[test]
    fn order_string_type_and_rounding_do_not_matter() -> Result<(), ArrowError> {
        let a = batch(vec![
            ("k", Arc::new(StringArray::from(vec!["x", "y"]))),
            ("v", Arc::new(Float64Array::from(vec![0.3, 2.0]))),
        ]);
        let b = batch(vec![
            ("k", Arc::new(StringViewArray::from(vec!["y", "x"]))),
            ("v", Arc::new(Float64Array::from(vec![2.0, 0.1 + 0.2]))),
        ]);
        assert_eq!(Answer::new(&a, Order::Any)?.difference(&Answer::new(&b, Order::Any)?), None);
        assert!(Answer::new(&a, Order::Total)?.difference(&Answer::new(&b, Order::Total)?).is_some());
        Ok(())
    }

    #[test]
    fn null_is_not_the_empty_text() -> Result<(), ArrowError> {
        let a = batch(vec![("k", Arc::new(StringArray::from(vec![Some("")])))]);
        let b = batch(vec![("k", Arc::new(StringArray::from(vec![None::<&str>])))]);
        assert!(Answer::new(&a, Order::Any)?.difference(&Answer::new(&b, Order::Any)?).is_some());
        Ok(())
    }
}
