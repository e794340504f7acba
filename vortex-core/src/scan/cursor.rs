//! Determines the next split: in the order of the rows, or best first.
//!
//! ```text
//! zones by maximum       [ 40 ][ 90 ][ 70 ][ 90 ][ 10 ]
//! splits of two zones    [   90    ][   90    ][ 10 ]
//! best first, descending     0           1        2
//! ```

use std::ops::Range;

use super::ScanMetrics;
use super::best_first::{Place, Unread};
use super::plan::{Plan, Split};
use super::zone_maps::ZoneMaps;

/// The splits that are yet to be admitted.
#[derive(Debug)]
pub(super) enum Cursor {
    /// All splits from this row on.
    InOrder(u64),
    /// These splits, the best one last.
    BestFirst(Vec<Unread>),
}

impl Cursor {
    /// All splits of a scan.
    pub(super) fn new(plan: &Plan, zone_maps: &ZoneMaps) -> Self {
        let order = plan.best_first.as_ref();
        match order.and_then(|order| order.splits(plan, zone_maps.best_first()?)) {
            Some(splits) => Cursor::BestFirst(splits),
            None => Cursor::InOrder(plan.rows.start),
        }
    }

    /// No splits.
    pub(super) fn at_end(plan: &Plan) -> Self {
        Cursor::InOrder(plan.rows.end)
    }

    /// The next split with rows that may match; these become its live rows. Also returns the number of its
    /// other rows, to be counted as pruned once the split is admitted, since it may be put back.
    pub(super) fn next(&mut self, plan: &Plan, zone_maps: &ZoneMaps) -> Option<(Split, u64)> {
        loop {
            let mut split = match self {
                Cursor::InOrder(row) => {
                    // Rows that are ruled out are skipped in one step, no matter how many there are.
                    let possible = plan.split_start(zone_maps.first_possible(*row));
                    let ruled_out = *row..possible.max(*row).min(plan.rows.end);
                    count_splits(plan, zone_maps, &ruled_out);
                    ScanMetrics::add(&plan.metrics.rows_pruned, plan.count_rows(&ruled_out));
                    let split = plan.split_from(ruled_out.end);
                    *row = split.as_ref().map_or(plan.rows.end, |split| split.rows.end);
                    split?
                }
                Cursor::BestFirst(splits) => plan.split_from(splits.pop()?.start)?,
            };
            let live = zone_maps.prune(&split);
            let pruned = (split.live.true_count() - live.true_count()) as u64;
            if live.is_none() {
                ScanMetrics::add(&plan.metrics.rows_pruned, pruned);
                count_splits(plan, zone_maps, &split.rows);
                continue;
            }
            split.live = live;
            return Some((split, pruned));
        }
    }

    /// Puts a split back, so that it comes first again.
    pub(super) fn put_back(&mut self, split: &Split) {
        match self {
            Cursor::InOrder(row) => *row = split.rows.start,
            Cursor::BestFirst(splits) => splits.push(Unread { start: split.rows.start, bound: None }),
        }
    }

    /// Whether any of the remaining splits may hold a row that comes before `place`.
    pub(super) fn may_hold_better(&self, plan: &Plan, place: &Place) -> bool {
        match self {
            Cursor::InOrder(row) => *row < plan.rows.end,
            Cursor::BestFirst(splits) => splits.last().is_some_and(|split| split.bound < *place),
        }
    }
}

/// Counts the splits that are skipped.
fn count_splits(plan: &Plan, zone_maps: &ZoneMaps, rows: &Range<u64>) {
    let (from_start, tightened) = zone_maps.count_ruled_out(plan, rows);
    ScanMetrics::add(&plan.metrics.splits_pruned, from_start);
    ScanMetrics::add(&plan.metrics.splits_pruned_dynamic, tightened);
}
