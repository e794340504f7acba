//! The order of the rows of a file, checked while they are written.
//!
//! A plan may be wrong about the order of its rows: a table `WITH ORDER` is in another one, or a node declares what it
//! does not keep; a Parquet file states the order of each of its row groups, but not of all rows. Queries rely on the
//! order that a file records for as long as the file exists. Therefore, files record only the order in which their rows
//! really are.

use std::cmp::Ordering;

use arrow::array::{Array as _, ArrayRef, RecordBatch, make_comparator};
use arrow::datatypes::Schema;
use datafusion_common::{Result, ScalarValue};
use datafusion_physical_expr::LexOrdering;
use vortex_core::write::FileWriter;

use crate::orders::{self, SortedColumn, sorted_columns};

/// The columns by which the rows of a file are sorted, checked while they are written, so that the file can record them
/// and queries need not sort it.
///
/// ```
/// # use arrow::array::RecordBatch;
/// # use datafusion::physical_expr::LexOrdering;
/// # use vortex_core::write::FileWriter;
/// # use vortex_datafusion::RowOrder;
/// # async fn write(mut writer: FileWriter, batches: Vec<RecordBatch>, expected: &LexOrdering)
/// # -> vortex_core::Result<()> {
/// # let schema = batches[0].schema();
/// let mut order = RowOrder::new(expected, &schema);
/// for batch in &batches {
///     if order.shorten_to(batch) {
///         eprintln!("rows are not in the expected order");
///     }
///     writer.write(batch).await?;
/// }
/// order.record(&mut writer)?;
/// writer.finish().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RowOrder {
    columns: Vec<SortedColumn>,
    /// The values of the last row in these columns, in memory of their own; none before the first row.
    last: Vec<ArrayRef>,
}

impl RowOrder {
    /// The order in which rows are supposed to come, up to the first key that is not a column of `schema`.
    ///
    /// The order is that in which DataFusion sorts. It distinguishes the two zeros of floats, which are equal in SQL.
    pub fn new(order: &LexOrdering, schema: &Schema) -> Self {
        Self::by(sorted_columns(&order.clone().into(), schema, &[]))
    }

    /// The same, by columns.
    pub(crate) fn by(columns: Vec<SortedColumn>) -> Self {
        Self { columns, last: Vec::new() }
    }

    /// Leaves of the columns those by which the next rows are sorted, too, after all rows before. Returns whether these
    /// are fewer columns than before.
    pub fn shorten_to(&mut self, batch: &RecordBatch) -> bool {
        let rows = batch.num_rows();
        if self.columns.is_empty() || rows == 0 {
            return false;
        }
        let values = self.columns.iter().map_while(|column| batch.column_by_name(&column.name).cloned());
        let values: Vec<ArrayRef> = values.collect();
        let mut kept = self.keys_that_hold(&values, &values, (1..rows).map(|row| (row - 1, row)));
        if !self.last.is_empty() {
            kept = kept.min(self.keys_that_hold(&self.last, &values, std::iter::once((0, 0))));
        }
        self.last = values[..kept].iter().map_while(|column| row_of(column, rows - 1).ok()).collect();
        let kept = self.last.len();
        let is_shorter = kept < self.columns.len();
        self.columns.truncate(kept);
        is_shorter
    }

    /// Records the columns by which all rows seen are sorted, if there are any, in the file that holds these rows.
    ///
    /// # Errors
    /// If the file has no room for another entry of metadata.
    pub fn record(&self, writer: &mut FileWriter) -> vortex_core::Result<()> {
        match orders::entry(&self.columns) {
            Some(entry) => writer.set_user_metadata(orders::KEY, entry),
            None => Ok(()),
        }
    }

    /// Number of leading columns by which, in each pair, the row of `left` does not come after that of `right`.
    fn keys_that_hold(
        &self,
        left: &[ArrayRef],
        right: &[ArrayRef],
        pairs: impl Iterator<Item = (usize, usize)>,
    ) -> usize {
        let values = left.iter().zip(right).zip(&self.columns);
        // Values that cannot be compared have no order.
        let mut keys: Vec<_> =
            values.map_while(|((left, right), key)| make_comparator(left, right, key.options).ok()).collect();
        for (left, right) in pairs {
            let unequal = keys.iter().position(|compare| compare(left, right) != Ordering::Equal);
            if let Some(key) = unequal
                && keys[key](left, right) == Ordering::Greater
            {
                keys.truncate(key);
            }
        }
        keys.len()
    }
}

/// A copy of a row, which does not keep the batch in memory as a slice or a view would.
fn row_of(column: &ArrayRef, row: usize) -> Result<ArrayRef> {
    let mut value = ScalarValue::try_from_array(column, row)?;
    value.compact();
    let mut row = value.to_array()?;
    row.shrink_to_fit();
    Ok(row)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray as _, Float64Array, Int32Array, StringArray, StringViewArray};
    use arrow::compute::SortOptions;

    use super::*;

    fn column(name: &str, descending: bool, nulls_first: bool) -> SortedColumn {
        SortedColumn { name: name.to_owned(), options: SortOptions { descending, nulls_first } }
    }

    fn batch(a: &[Option<i32>], b: &[&str]) -> RecordBatch {
        let a: ArrayRef = Arc::new(a.iter().copied().collect::<Int32Array>());
        let b: ArrayRef = Arc::new(StringArray::from_iter_values(b));
        RecordBatch::try_from_iter_with_nullable([("b", b, true), ("a", a, true)]).unwrap()
    }

    /// The columns by which the rows of the batches are sorted, of the order a, b descending.
    fn sorted_by(batches: &[RecordBatch]) -> Vec<String> {
        let mut order = RowOrder::by(vec![column("a", false, false), column("b", true, true)]);
        for batch in batches {
            let before = order.columns.len();
            assert_eq!(order.shorten_to(batch), order.columns.len() < before);
        }
        order.columns.iter().map(|column| column.name.clone()).collect()
    }

    #[test]
    fn an_order_holds_within_batches_and_across_them() {
        let first = batch(&[Some(1), Some(1), Some(2)], &["y", "x", "z"]);
        let next = batch(&[Some(2), None], &["z", "q"]);
        let none = batch(&[], &[]);
        assert_eq!(sorted_by(&[first, none, next]), ["a", "b"]);
        assert_eq!(sorted_by(&[]), ["a", "b"]);
    }

    #[test]
    fn an_order_ends_before_the_first_column_that_breaks_it() {
        let rows = batch(&[Some(1), Some(2)], &["x", "z"]);
        assert_eq!(sorted_by(&[rows.clone(), batch(&[Some(2)], &["zz"])]), ["a"]);
        assert_eq!(sorted_by(&[rows.clone(), batch(&[Some(1)], &["a"])]), [""; 0]);
        assert_eq!(sorted_by(&[rows, batch(&[None, Some(3)], &["z", "z"])]), [""; 0]);
        // A later pair may break an earlier column.
        let rows = batch(&[Some(1), Some(1), Some(0)], &["x", "y", "z"]);
        assert_eq!(sorted_by(std::slice::from_ref(&rows)), [""; 0]);
        assert_eq!(sorted_by(&[rows.slice(0, 2), rows.slice(1, 2)]), [""; 0]);
    }

    #[test]
    fn zeros_and_nan_are_ordered_as_they_are_sorted() {
        let sorted = |values: &[f64]| {
            let values: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
            let mut order = RowOrder::by(vec![column("f", false, false)]);
            !order.shorten_to(&RecordBatch::try_from_iter([("f", values)]).unwrap())
        };
        assert!(sorted(&[-1.0, -0.0, 0.0, f64::INFINITY, f64::NAN]));
        assert!(!sorted(&[0.0, -0.0]));
        assert!(!sorted(&[f64::NAN, 1.0]));
    }

    #[test]
    fn the_batches_before_are_not_kept_in_memory() {
        let text = |row: usize| format!("{row:06} {}", "x".repeat(200));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..1000).map(text)));
        let mut order = RowOrder::by(vec![column("a", false, true)]);
        let batch = RecordBatch::try_from_iter([("a", texts)]).unwrap();
        assert!(!order.shorten_to(&batch));
        assert_eq!(order.last[0].as_string_view().value(0), text(999));
        let kept = order.last[0].get_array_memory_size();
        assert!(kept < 2000, "{kept} bytes");
        // Rows that come before the last one are not in order.
        assert!(order.shorten_to(&batch));
    }
}
