//! Which rows may change the extremes that an aggregation looks for: those of a zone do not, if the bounds of the zone
//! lie between the extremes found so far.
//!
//! ```text
//! zones by bound of max    [ wat.. ][ zeb.. ][ abc.. ][ yak.. ]
//! read first                         zebra
//! cannot change the max       x                  x        x
//! ```
//!
//! The bounds need not be exact, and it does not matter which rows pass a filter.

use std::cmp::Ordering;
use std::collections::HashSet;

use arrow::array::{Array as _, ArrayRef, Scalar as ArrowScalar, UInt64Array};
use arrow::compute::kernels::cmp::{gt, lt};
use arrow::compute::{SortOptions, sort_to_indices};
use parking_lot::Mutex;

use crate::array::{Aggregate, Measures};
use crate::dtype::DType;
use crate::expr::{CompareOp, Predicate};
use crate::layout::ZoneMap;
use crate::pruning::{RowBlocks, may_hold};
use crate::scalar::Scalar;
use crate::scan::plan::Plan;
use crate::scan::zone_maps::ZoneMaps;

/// The extremes of a column found by scans that [aggregate](crate::scan::ScanBuilder::aggregate_only). Scans of several
/// files, one after the other, whose results are merged can share it: those that follow need not find extremes that lie
/// between these.
#[derive(Debug, Default)]
pub struct Extremes(Mutex<Found>);

#[derive(Debug, Clone, Default)]
struct Found {
    min: Option<Scalar>,
    max: Option<Scalar>,
}

impl Extremes {
    /// Adds those of some rows.
    pub(super) fn add(&self, found: &Aggregate) {
        let mut known = self.0.lock();
        keep(&mut known.min, found.min.as_ref(), Ordering::Less);
        keep(&mut known.max, found.max.as_ref(), Ordering::Greater);
    }

    /// What would change what is wanted of a column of type `dtype`.
    pub(super) fn changes(&self, dtype: &DType, measures: Measures) -> Changes {
        if measures.adds_up() {
            return Changes::Any;
        }
        let found = self.0.lock().clone();
        let beyond = |op, found: Option<Scalar>| match found {
            Some(found) => Predicate::Compare(op, found),
            None => Predicate::IsNotNull,
        };
        let lower = measures.min.then(|| beyond(CompareOp::Lt, found.min));
        let higher = measures.max.then(|| beyond(CompareOp::Gt, found.max));
        let values: Vec<Predicate> = lower.into_iter().chain(higher).collect();
        // Extremes found in another file may be of another type.
        let fit = values.iter().all(|value| value.check(dtype).is_ok());
        if fit { Changes::Values(values) } else { Changes::Any }
    }
}

/// What would change the aggregates that are wanted of a column.
#[derive(Debug)]
pub(super) enum Changes {
    /// Any row.
    Any,
    /// Values that match one of these.
    Values(Vec<Predicate>),
}

impl Changes {
    /// Whether a zone may hold any.
    pub(super) fn may_be_in(&self, map: &ZoneMap, zone: usize) -> bool {
        match self {
            Changes::Any => true,
            Changes::Values(values) => values.iter().any(|value| may_hold(value, map, zone)),
        }
    }
}

fn keep(known: &mut Option<Scalar>, found: Option<&Scalar>, wins: Ordering) {
    let Some(found) = found else { return };
    if known.as_ref().is_none_or(|known| found.compare(known) == Some(wins)) {
        *known = Some(found.clone());
    }
}

/// The first rows of splits to read before all others: those that may hold an extreme which rules out most of the rest.
pub(in crate::scan) fn leading_splits(plan: &Plan, zone_maps: &ZoneMaps) -> Vec<u64> {
    if plan.totals.is_none() || !plan.prune || plan.picks_rows() {
        return Vec::new();
    }
    let rows = zone_maps.possible(plan, plan.rows.bounds().start);
    let (mut starts, mut known) = (Vec::new(), HashSet::new());
    for (column, measures) in plan.wanted_columns() {
        let Some(map) = zone_maps.of_field(plan, column).filter(|_| !measures.adds_up()) else {
            continue;
        };
        let blocks = RowBlocks::of_zones(map);
        let zones: Vec<u64> = blocks.holding(&rows).map(|zone| zone as u64).collect();
        for (is_wanted, descending) in [(measures.min, false), (measures.max, true)] {
            // Where bounds are values, they are the answer already.
            let is_answered = plan.conjuncts.is_empty() && map.is_exact;
            let zone = (is_wanted && !is_answered)
                .then(|| leading_zone(map, &zones, descending, !plan.conjuncts.is_empty()))
                .flatten();
            let row = zone.and_then(|zone| {
                rows.at_or_after(blocks.rows(zone).start)
                    .map(|range| plan.split_start(range.start.max(blocks.rows(zone).start)))
            });
            starts.extend(row.filter(|row| known.insert(*row)));
        }
    }
    starts
}

/// The zone with the best bound, if it is likely to rule out most of the others.
fn leading_zone(map: &ZoneMap, zones: &[u64], descending: bool, is_filtered: bool) -> Option<usize> {
    let (best, worst) = if descending { (&map.max, &map.min) } else { (&map.min, &map.max) };
    let zones = UInt64Array::from(zones.to_vec());
    let bounds = take_zones(best.as_ref()?, &zones)?;
    let options = SortOptions { descending, nulls_first: false };
    let first = sort_to_indices(&bounds, Some(options), Some(1)).ok()?;
    let first = first.values().first().copied()? as usize;
    // Of rows that pass a filter, the zone may hold none but the worst.
    let expected = if is_filtered { take_zones(worst.as_ref()?, &zones)? } else { ArrayRef::clone(&bounds) };
    if bounds.is_null(first) || expected.is_null(first) {
        return None;
    }
    let expected = ArrowScalar::new(expected.slice(first, 1));
    let ruled_out = if descending { lt(&bounds, &expected) } else { gt(&bounds, &expected) };
    let pays = ruled_out.ok()?.true_count() * 2 >= zones.len();
    pays.then(|| zones.value(first) as usize)
}

fn take_zones(bounds: &ArrayRef, zones: &UInt64Array) -> Option<ArrayRef> {
    arrow::compute::take(bounds, zones, None).ok()
}
