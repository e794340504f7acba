//! Determines the next split: in the order of the rows, or best first.
//!
//! ```text
//! zones by maximum       [ 40 ][ 90 ][ 70 ][ 90 ][ 10 ]
//! splits of two zones    [   90    ][   90    ][ 10 ]
//! best first, descending     0           1        2
//! ```

use std::ops::Range;

use super::aggregate::leading_splits;
use super::best_first::{Place, Unread};
use super::plan::{Plan, Split};
use super::zone_maps::ZoneMaps;

/// The next split to be admitted, unless it is put back.
#[derive(Debug)]
pub(super) struct Next {
    /// Its live rows are those that may match.
    pub(super) split: Split,
    /// Number of its other rows, to be counted as pruned once it is admitted.
    pub(super) pruned: u64,
    /// What was known about it before.
    pub(super) unread: Unread,
}

/// The splits that are yet to be admitted.
#[derive(Debug)]
pub(super) enum Cursor {
    /// First the splits that start at certain rows, the next one last; then all others from `row` on.
    InOrder { row: u64, first: Vec<u64>, done: Vec<u64> },
    /// These splits, the best one last.
    BestFirst(Vec<Unread>),
}

impl Cursor {
    /// All splits of a scan.
    pub(super) fn new(plan: &Plan, zone_maps: &ZoneMaps) -> Self {
        let order = plan.best_first.as_ref();
        if let Some(splits) = order.and_then(|order| order.splits(plan, zone_maps.of(&order.column)?)) {
            return Cursor::BestFirst(splits);
        }
        let mut first = leading_splits(plan, zone_maps);
        first.reverse();
        Cursor::InOrder { row: plan.rows.bounds().start, first, done: Vec::new() }
    }

    /// Number of splits that are to come before those in the order of the rows.
    pub(super) fn leading_count(&self) -> usize {
        match self {
            Cursor::InOrder { first, .. } => first.len(),
            Cursor::BestFirst(_) => 0,
        }
    }

    /// No splits.
    pub(super) fn at_end(plan: &Plan) -> Self {
        Cursor::InOrder { row: plan.rows.bounds().end, first: Vec::new(), done: Vec::new() }
    }

    /// The next split with rows that may match.
    pub(super) fn next(&mut self, plan: &Plan, zone_maps: &ZoneMaps) -> Option<Next> {
        loop {
            let (mut split, unread) = match self {
                Cursor::InOrder { row, first, done } => {
                    let split = match first.pop() {
                        Some(start) => {
                            done.push(start);
                            plan.split_from(start)?
                        }
                        None => {
                            let split = next_in_order(row, plan, zone_maps)?;
                            if done.contains(&split.rows.start) {
                                continue;
                            }
                            split
                        }
                    };
                    let unread = Unread { start: split.rows.start, bound: None };
                    (split, unread)
                }
                Cursor::BestFirst(splits) => {
                    let unread = splits.pop()?;
                    (plan.split_from(unread.start)?, unread)
                }
            };
            let live = zone_maps.prune(&split);
            let pruned = (split.live.true_count() - live.true_count()) as u64;
            if live.is_none() {
                plan.metrics.rows_pruned.add(pruned);
                count_splits(plan, zone_maps, &split.rows);
                continue;
            }
            split.live = live;
            return Some(Next { split, pruned, unread });
        }
    }

    /// Puts a split back, so that it comes first again.
    pub(super) fn put_back(&mut self, split: Unread) {
        match self {
            Cursor::InOrder { row, first, done } => match done.iter().position(|start| *start == split.start)
            {
                Some(at) => first.push(done.remove(at)),
                None => *row = split.start,
            },
            Cursor::BestFirst(splits) => splits.push(split),
        }
    }

    /// The first row that may yet be admitted.
    pub(super) fn first_row(&self) -> u64 {
        match self {
            Cursor::InOrder { row, first, .. } if first.is_empty() => *row,
            Cursor::InOrder { .. } | Cursor::BestFirst(_) => 0,
        }
    }

    /// Whether any of the remaining splits may hold a row that comes before `place`.
    pub(super) fn may_hold_better(&self, plan: &Plan, place: &Place) -> bool {
        match self {
            Cursor::InOrder { row, .. } => *row < plan.rows.bounds().end,
            Cursor::BestFirst(splits) => splits.last().is_some_and(|split| split.bound < *place),
        }
    }
}

/// The first split at or after `row`, which moves to its end. Rows that are ruled out are skipped in one step, no
/// matter how many there are.
fn next_in_order(row: &mut u64, plan: &Plan, zone_maps: &ZoneMaps) -> Option<Split> {
    let rest = *row..plan.rows.bounds().end.max(*row);
    let ruled_out = *row..plan.split_start(zone_maps.first_possible(&rest)).max(*row);
    count_splits(plan, zone_maps, &ruled_out);
    plan.metrics.rows_pruned.add(plan.count_rows(&ruled_out));
    let split = plan.split_from(ruled_out.end);
    *row = split.as_ref().map_or(plan.rows.bounds().end, |split| split.rows.end);
    split
}

/// Counts the splits that are skipped.
fn count_splits(plan: &Plan, zone_maps: &ZoneMaps, rows: &Range<u64>) {
    let (from_start, tightened) = zone_maps.count_ruled_out(plan, rows);
    plan.metrics.splits_pruned.add(from_start);
    plan.metrics.splits_pruned_dynamic.add(tightened);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, RecordBatch};
    use arrow::compute::SortOptions;

    use super::*;
    use crate::given::file_of;

    #[tokio::test]
    async fn a_split_that_is_put_back_may_hold_no_better_row_than_before() {
        let numbers = Int64Array::from_iter_values((0..4 << 16).rev());
        let table = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap();
        let file = file_of([table]).await;
        let plan = Plan::new(&file.scan().with_best_first("number", SortOptions::default())).unwrap();
        let zone_maps = ZoneMaps::read(&plan).await.unwrap();
        let mut cursor = Cursor::new(&plan, &zone_maps);
        let bound = match &cursor {
            Cursor::BestFirst(splits) => splits.last().unwrap().bound.clone(),
            Cursor::InOrder { .. } => panic!("the best splits come last"),
        };
        assert!(bound.is_some() && !cursor.may_hold_better(&plan, &bound));
        let first = cursor.next(&plan, &zone_maps).unwrap();
        assert_eq!(first.split.rows.end, 4 << 16);
        cursor.put_back(first.unread);
        assert!(!cursor.may_hold_better(&plan, &bound));
        assert_eq!(cursor.next(&plan, &zone_maps).unwrap().split.rows, first.split.rows);
    }
}
