//! The best rows that scans for the first rows of an order have found so far.
//!
//! ```text
//! three rows wanted     found   90  88  61 | 40  12       the last wanted row is 61
//! splits                90 40   88 61   12                the rows 90, 88 and 61 are decoded first
//! ```
//!
//! What is found is only a hint for which rows to decode first. An operator above may drop some of them, so
//! the others are decoded as well, unless a filter that has tightened rules them out.

use std::collections::BinaryHeap;

use arrow::row::{OwnedRow, SortField};
use parking_lot::Mutex;

/// Default number of rows wanted.
const DEFAULT_COUNT: usize = 10;

/// Maximum number of rows worth ranking: more of them are in most splits.
const MOST: usize = 1024;

/// The best rows found by scans with [`with_best_first`](crate::scan::ScanBuilder::with_best_first). Scans of
/// several files, one after the other, for the first rows of all of them can share it.
#[derive(Debug)]
pub struct BestRows {
    count: usize,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    /// What the places refer to; those of other types cannot be compared.
    order: Option<SortField>,
    /// The places of the best rows; the worst one is on top.
    places: BinaryHeap<OwnedRow>,
}

impl Default for BestRows {
    /// For scans from which about ten rows are wanted.
    fn default() -> Self {
        Self::new(DEFAULT_COUNT)
    }
}

impl BestRows {
    /// For scans from which about `count` rows are wanted. With a lower number than are really wanted, rows
    /// are decoded in more steps; with a higher one, more of them than necessary.
    pub fn new(count: usize) -> Self {
        Self { count, found: Mutex::default() }
    }

    /// Number of rows of a split that may be among those wanted; 0 if so many are wanted that it is of no
    /// use to know.
    pub(super) fn count(&self) -> usize {
        if self.are_many() { 0 } else { self.count }
    }

    /// Whether so many rows are wanted that they are not ranked.
    fn are_many(&self) -> bool {
        self.count > MOST
    }

    /// Whether so many rows are wanted that they are not ranked, and that most of so many splits hold some of them.
    pub(super) fn are_in_most(&self, splits: u64) -> bool {
        self.are_many() && self.count as u64 >= splits
    }

    /// Adds the places of rows in an order.
    pub(super) fn add<'a>(&self, order: &SortField, places: impl Iterator<Item = &'a OwnedRow>) {
        let mut found = self.found.lock();
        if found.order.get_or_insert_with(|| order.clone()) != order {
            return;
        }
        for place in places {
            if found.places.len() < self.count() {
                found.places.push(place.clone());
            } else if let Some(mut worst) = found.places.peek_mut()
                && place < &*worst
            {
                *worst = place.clone();
            }
        }
    }

    /// The place of the last wanted row; `None` as long as fewer rows were found than are wanted.
    pub(super) fn last(&self, order: &SortField) -> Option<OwnedRow> {
        let found = self.found.lock();
        let enough = found.places.len() >= self.count() && found.order.as_ref() == Some(order);
        found.places.peek().filter(|_| enough).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array};
    use arrow::datatypes::DataType;
    use arrow::row::RowConverter;

    use super::*;

    fn places(order: &SortField, values: impl IntoIterator<Item = i32>) -> Vec<OwnedRow> {
        let values = Arc::new(Int32Array::from_iter_values(values)) as ArrayRef;
        let rows = RowConverter::new(vec![order.clone()]).unwrap().convert_columns(&[values]).unwrap();
        rows.iter().map(|row| row.owned()).collect()
    }

    #[test]
    fn the_last_wanted_row_is_known_once_enough_are_found() {
        let order = SortField::new(DataType::Int32);
        let best = BestRows::new(3);
        best.add(&order, places(&order, [40, 10]).iter());
        assert_eq!(best.last(&order), None);
        best.add(&order, places(&order, [30, 50, 20]).iter());
        assert_eq!(best.last(&order), places(&order, [30]).pop());
    }

    #[test]
    fn rows_of_another_type_are_left_out() {
        let (order, other) = (SortField::new(DataType::Int32), SortField::new(DataType::Int64));
        let best = BestRows::new(1);
        best.add(&order, places(&order, [7]).iter());
        best.add(&other, places(&order, [1]).iter());
        assert_eq!(best.last(&order), places(&order, [7]).pop());
        assert_eq!(best.last(&other), None);
    }

    #[test]
    fn too_many_rows_are_not_ranked() {
        let order = SortField::new(DataType::Int32);
        let best = BestRows::new(MOST + 1);
        best.add(&order, places(&order, 0..10).iter());
        assert_eq!((best.count(), best.last(&order)), (0, None));
        assert_eq!(BestRows::new(0).last(&order), None);
    }
}
