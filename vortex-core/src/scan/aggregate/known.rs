//! What statistics know of the rows of a split: aggregates for which they need not be read.

use std::ops::Range;
use std::sync::Arc;

use super::Totals;
use crate::array::{Aggregate, Measures};
use crate::layout::ZoneMap;
use crate::mask::Mask;
use crate::pruning::RowBlocks;
use crate::scan::plan::Plan;
use crate::scan::zone_maps::ZoneMaps;

/// For each projected column, the aggregates of the rows of a split, if statistics contain them, or none if its rows
/// cannot change what is wanted. Other columns are read.
#[derive(Debug, Clone, Default)]
pub(in crate::scan) struct Known(Option<Arc<[Option<Aggregate>]>>);

impl Known {
    /// What is known of a whole file from the statistics of its footer. If `all_pass`, all rows pass the filter.
    pub(super) fn of_file(plan: &Plan, totals: &Totals, all_pass: bool) -> Self {
        let footer = plan.file.footer();
        let Some(stats) = footer.statistics() else { return Self::default() };
        let known = totals.wanted(plan).map(|(column, measures, extremes)| {
            let stats = stats.get(column.position_in_file(footer)?)?;
            let map = ZoneMap::of_file(stats, &column.dtype, footer.row_count()).ok()?;
            let stated = if all_pass { of_rows(&map, &(0..footer.row_count()), measures) } else { None };
            stated.or_else(|| {
                let changes = extremes.changes(&column.dtype, measures);
                (!changes.may_be_in(&map, 0)).then(|| Aggregate::empty(&column.dtype))
            })
        });
        Self::new(known.collect())
    }

    /// What is known of rows, and those of them that may change what is not known. If `all_pass`, all rows pass the
    /// filter.
    pub(super) fn of_rows(
        plan: &Plan,
        totals: &Totals,
        zone_maps: &ZoneMaps,
        rows: &Range<u64>,
        all_pass: bool,
    ) -> (Self, Mask) {
        let len = (rows.end - rows.start) as usize;
        let mut idle = Mask::all(len);
        let known = totals.wanted(plan).map(|(column, measures, extremes)| {
            let Some(map) = zone_maps.of_field(plan, column) else {
                idle = Mask::none(len);
                return None;
            };
            if all_pass && let Some(stated) = of_rows(map, rows, measures) {
                return Some(stated);
            }
            let changes = extremes.changes(&column.dtype, measures);
            let blocks = RowBlocks::of_zones(map);
            let of_column = blocks.mask(rows, |zone| !changes.may_be_in(map, zone));
            idle = idle.and(&of_column);
            of_column.is_all().then(|| Aggregate::empty(&column.dtype))
        });
        let known = Self::new(known.collect());
        (known, Mask::all(len).without(&idle))
    }

    fn new(columns: Vec<Option<Aggregate>>) -> Self {
        let is_useful = columns.is_empty() || columns.iter().any(Option::is_some);
        Self(is_useful.then(|| columns.into()))
    }

    /// Whether the aggregates of the projected column at this position are known.
    pub(in crate::scan) fn has(&self, at: usize) -> bool {
        self.get(at).is_some()
    }

    /// The aggregates of the projected column at this position.
    pub(super) fn get(&self, at: usize) -> Option<&Aggregate> {
        self.0.as_ref()?.get(at)?.as_ref()
    }

    /// Whether those of all columns are.
    pub(super) fn is_complete(&self) -> bool {
        self.0.as_ref().is_some_and(|columns| columns.iter().all(Option::is_some))
    }
}

/// The aggregates of rows that are whole zones.
fn of_rows(map: &ZoneMap, rows: &Range<u64>, measures: Measures) -> Option<Aggregate> {
    let is_boundary = |row: u64| row.is_multiple_of(map.zone_len) || row == map.row_count;
    if !is_boundary(rows.start) || !is_boundary(rows.end) {
        return None;
    }
    let zones = RowBlocks::of_zones(map).overlapping(rows);
    if zones.end > map.zone_count { None } else { map.aggregate(zones, measures) }
}
