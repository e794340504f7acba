//! Which split comes next: in the order of the rows, or best first.
//!
//! ```text
//! zones by maximum       [ 40 ][ 90 ][ 70 ][ 90 ][ 10 ]
//! splits of two zones    [   90    ][   90    ][ 10 ]
//! best first, descending     0           1        2
//! ```

use std::ops::Range;

use arrow::compute::{concat, rank};

use super::ScanMetrics;
use super::plan::{BestFirst, MAX_LISTED_SPLITS, Plan, Split};
use super::zone_maps::ZoneMaps;
use crate::layout::ZoneMap;

/// So few columns are read out of order at little cost, unless they are far away: chunks are
/// longer than splits.
const FEW_COLUMNS: usize = 8;

/// The splits that are still to be put to work.
#[derive(Debug)]
pub(super) enum Cursor {
    /// Those from this row on.
    InOrder(u64),
    /// The first rows of splits, best last.
    BestFirst(Vec<u64>),
}

impl Cursor {
    /// All splits of a scan.
    pub(super) fn new(plan: &Plan, zone_maps: &ZoneMaps) -> Self {
        let ranked = plan.best_first.as_ref().and_then(|order| ranked(plan, order, zone_maps.best_first()?));
        match ranked {
            Some(starts) => Cursor::BestFirst(starts),
            None => Cursor::InOrder(plan.rows.start),
        }
    }

    /// No splits.
    pub(super) fn at_end(plan: &Plan) -> Self {
        Cursor::InOrder(plan.rows.end)
    }

    /// The next split with a row that may match; its live rows are those.
    pub(super) fn next(&mut self, plan: &Plan, zone_maps: &ZoneMaps) -> Option<Split> {
        loop {
            let mut split = match self {
                Cursor::InOrder(row) => {
                    // Rows that are ruled out are skipped in one leap, however many they are.
                    let possible = plan.split_start(zone_maps.first_possible(*row));
                    let ruled_out = *row..possible.max(*row).min(plan.rows.end);
                    ScanMetrics::add(&plan.metrics.splits_pruned, plan.count_splits(&ruled_out));
                    ScanMetrics::add(&plan.metrics.rows_pruned, plan.count_rows(&ruled_out));
                    let split = plan.split_from(ruled_out.end);
                    *row = split.as_ref().map_or(plan.rows.end, |split| split.rows.end);
                    split?
                }
                Cursor::BestFirst(starts) => plan.split_from(starts.pop()?)?,
            };
            let live = zone_maps.prune(&split);
            let pruned = split.live.true_count() - live.true_count();
            ScanMetrics::add(&plan.metrics.rows_pruned, pruned as u64);
            if live.is_none() {
                ScanMetrics::add(&plan.metrics.splits_pruned, 1);
                continue;
            }
            split.live = live;
            return Some(split);
        }
    }

    /// Puts a split back, to come first again.
    pub(super) fn put_back(&mut self, split: &Split) {
        match self {
            Cursor::InOrder(row) => *row = split.rows.start,
            Cursor::BestFirst(starts) => starts.push(split.rows.start),
        }
    }
}

/// The first rows of all splits, best last; nothing if statistics do not say, or if splits differ
/// too little to be worth reading in another order than that of the file.
fn ranked(plan: &Plan, order: &BestFirst, map: &ZoneMap) -> Option<Vec<u64>> {
    if plan.picks_rows() || plan.count_splits(&plan.rows) > MAX_LISTED_SPLITS || map.zone_len == 0 {
        return None;
    }
    let (best, worst) = match order.options.descending {
        true => (map.max.as_ref()?, map.min.as_ref()?),
        false => (map.min.as_ref()?, map.max.as_ref()?),
    };
    let zones = zones_of(&plan.rows, map)?;
    let best = best.slice(zones.start, zones.len());
    let ranks = rank(&best, Some(order.options)).ok()?;
    let first = (0..ranks.len()).min_by_key(|zone| ranks[*zone])?;
    // Once the best zone is read, those that start behind its last row are ruled out.
    let edge = concat(&[&best, &worst.slice(zones.start + first, 1)]).ok()?;
    let edges = rank(&edge, Some(order.options)).ok()?;
    let (edge, edges) = edges.split_last()?;
    let ruled_out = edges.iter().filter(|rank| *rank > edge).count();
    let few = plan.projection.len() <= FEW_COLUMNS && !plan.file.source().profile().remote;
    if ruled_out * 2 < zones.len() && !few {
        return None;
    }
    let rank_of = |rows: &Range<u64>| {
        let within = zones_of(rows, map)?;
        ranks.get(within.start - zones.start..within.end - zones.start)?.iter().min().copied()
    };
    let mut splits: Vec<(u32, u64)> =
        plan.split_rows().iter().map(|rows| (rank_of(rows).unwrap_or(u32::MAX), rows.start)).collect();
    splits.sort_unstable_by(|a, b| b.cmp(a));
    Some(splits.into_iter().map(|(_, start)| start).collect())
}

/// Zones that overlap `rows`.
fn zones_of(rows: &Range<u64>, map: &ZoneMap) -> Option<Range<usize>> {
    let first = usize::try_from(rows.start / map.zone_len).ok()?;
    let end = usize::try_from(rows.end.div_ceil(map.zone_len)).ok()?.min(map.zone_count);
    (first < end).then_some(first..end)
}
