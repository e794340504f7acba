//! What statistics know of the rows of a split that all are live: aggregates for which they need not be read.

use std::ops::Range;
use std::sync::Arc;

use super::plan::Plan;
use super::zone_maps::ZoneMaps;
use crate::array::{Aggregate, Measures};
use crate::layout::ZoneMap;

/// For each projected column, the aggregates of the rows of a split, if statistics contain them. Other columns are read.
#[derive(Debug, Clone, Default)]
pub(super) struct Known(Option<Arc<[Option<Aggregate>]>>);

impl Known {
    /// What is known of these rows.
    pub(super) fn of(plan: &Plan, zone_maps: &ZoneMaps, rows: &Range<u64>) -> Self {
        let Some(totals) = plan.totals.as_ref().filter(|_| plan.prune && !plan.projection.is_empty()) else {
            return Self::default();
        };
        // The zones of a file with a single split are not read: its footer states as much.
        if *rows == (0..plan.file.row_count()) {
            return Self::of_file(plan);
        }
        let columns = plan.projection.iter().zip(totals.measures());
        let known =
            columns.map(|(column, measures)| of_rows(zone_maps.of_field(plan, column)?, rows, *measures));
        Self::new(known.collect())
    }

    /// What is known of a whole file from the statistics of its footer.
    pub(super) fn of_file(plan: &Plan) -> Self {
        let footer = plan.file.footer();
        let (Some(totals), Some(stats)) = (&plan.totals, footer.statistics()) else { return Self::default() };
        let columns = plan.projection.iter().zip(totals.measures());
        let known = columns.map(|(column, measures)| {
            let stats = stats.get(column.position_in_file(footer)?)?;
            let map = ZoneMap::of_file(stats, &column.dtype, footer.row_count()).ok()?;
            of_rows(&map, &(0..footer.row_count()), *measures)
        });
        Self::new(known.collect())
    }

    fn new(columns: Vec<Option<Aggregate>>) -> Self {
        Self(columns.iter().any(Option::is_some).then(|| columns.into()))
    }

    /// Whether the aggregates of the projected column at this position are known.
    pub(super) fn has(&self, at: usize) -> bool {
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
    let zone = |row: u64| usize::try_from(row.div_ceil(map.zone_len)).ok();
    let zones = zone(rows.start)?..zone(rows.end)?;
    if zones.end > map.zone_count { None } else { map.aggregate(zones, measures) }
}
