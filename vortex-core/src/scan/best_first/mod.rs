//! Finding the first rows of an order: which splits to read first, and which to decode.
//!
//! ```text
//! best row of a split    filtered: it is 88, it is 61     unread, by statistics: at most 90, 70, 64
//! next                   filter the one that may hold 90, then decode the best one
//! ```
//!
//! Filtering is cheap, decoding is not: a split is decoded only once no other split can hold a better
//! row, and of its rows first those that are among the best found so far. They let the caller tighten the
//! filter, so that most other rows are never decoded. The order is only a hint: rows are returned unordered,
//! and none are left out.

mod best_rows;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef};
use arrow::compute::{SortOptions, sort_to_indices};
use arrow::row::{OwnedRow, RowConverter, SortField};

pub use self::best_rows::BestRows;
use super::column::Column;
use super::plan::{MAX_LISTED_SPLITS, Plan, Split};
use super::zone_maps::ZoneMaps;
use crate::array::row_bytes::copied_bytes;
use crate::array::{decode_as, take};
use crate::dtype::arrow::data_type;
use crate::layout::{SegmentSet, ZoneMap};
use crate::limits::Work;
use crate::mask::Mask;
use crate::pruning::RowBlocks;
use crate::{Error, Result};

/// Up to this many columns can be read out of order at little cost, except from remote storage: chunks
/// are longer than splits.
const FEW_COLUMNS: usize = 8;

/// Places of rows that take more bytes than this together are treated as unknown: rows may share their values, but not
/// their places.
const MAX_PLACE_BYTES: u64 = 1 << 20;

/// The same for the bounds of all zones, each of which has a place of its own, with so many bytes more.
const MAX_BOUND_PLACE_BYTES: u64 = 64 << 20;
const BYTES_PER_PLACE: u64 = 64;

/// The place of a row in the order; smaller places come first. `None`: unknown, so the row may come
/// before all others.
pub(super) type Place = Option<OwnedRow>;

/// The order in which rows are wanted.
#[derive(Debug)]
pub(super) struct BestFirst {
    pub(super) column: Column,
    options: SortOptions,
    order: SortField,
    places: RowConverter,
    /// The best rows found so far.
    found: Arc<BestRows>,
}

/// The best live rows of a split; by default, nothing is known about them.
#[derive(Debug, Clone, Default)]
pub(super) struct Best {
    /// A lower bound for the place of the best row.
    pub(super) place: Place,
    /// Places and positions of the rows that may be among those wanted, best first.
    rows: Vec<(OwnedRow, usize)>,
}

impl Best {
    /// Whether any row comes no later than `last`.
    pub(super) fn reaches(&self, last: &OwnedRow) -> bool {
        self.rows.first().is_some_and(|(place, _)| place <= last)
    }

    /// Takes out the rows that come no later than `last`, as a mask over `len` rows.
    pub(super) fn take_until(&mut self, last: &OwnedRow, len: usize) -> Mask {
        let count = self.rows.partition_point(|(place, _)| place <= last);
        let mut taken: Vec<usize> = self.rows.drain(..count).map(|(_, row)| row).collect();
        taken.sort_unstable();
        self.place = Some(self.rows.first().map_or(last, |(place, _)| place).clone());
        Mask::from_indices(len, taken)
    }
}

/// A split that has not been read, identified by its first row.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) start: u64,
    /// A lower bound for the place of its best row.
    pub(super) bound: Place,
}

impl BestFirst {
    /// The order of a column; `None` if its type has none.
    pub(super) fn new(column: Column, options: SortOptions, found: Arc<BestRows>) -> Option<Self> {
        let of = data_type(&column.dtype).ok()?;
        // Arrow compares rows of these, but does not sort them.
        if of.is_nested() || of.is_null() {
            return None;
        }
        let order = SortField::new_with_options(of, options);
        let places = RowConverter::new(vec![order.clone()]).ok()?;
        Some(Self { column, options, order, places, found })
    }

    /// Whether reading the best rows first has no benefit: statistics do not tell where they are, and so many are
    /// wanted that most splits hold some. On remote storage, it would even cost reads: one split after the other would
    /// request its columns.
    pub(super) fn is_useless(&self, plan: &Plan, zone_maps: &ZoneMaps) -> bool {
        let is_known = || zone_maps.of(&self.column).and_then(|map| self.splits(plan, map)).is_some();
        plan.is_remote() && self.found.are_in_most(plan.split_count()) && !is_known()
    }

    /// The best live rows of a split, which are added to those found so far.
    pub(super) fn best_of(&self, split: &Split, have: &SegmentSet<'_>) -> Result<Best> {
        if split.live.is_none() {
            return Ok(Best::default());
        }
        match self.find_best(split, have) {
            // Without an order, the scan would decode these rows in parts, or not at all.
            Err(error) if matches!(error.root(), Error::LimitExceeded(_)) => Ok(Best::default()),
            found => found,
        }
    }

    fn find_best(&self, split: &Split, have: &SegmentSet<'_>) -> Result<Best> {
        let _work = Work::begin();
        let rows = self.column.read_live(&split.rows, &split.live, have)?;
        let rows = decode_as(rows.as_ref(), &data_type(&self.column.dtype)?)?;
        let first = sort_to_indices(&rows, Some(self.options), Some(self.found.count().max(1)))?;
        let first_rows = take(&rows, &first)?;
        if copied_bytes(&first_rows) > MAX_PLACE_BYTES {
            return Ok(Best::default());
        }
        let places = self.places_of(&first_rows)?;
        let place = places.first().cloned();
        let live = split.live.indices();
        let rows = places.into_iter().zip(first.values()).map(|(place, at)| (place, live[*at as usize]));
        let mut rows: Vec<_> = rows.take(self.found.count()).collect();
        self.found.add(&self.order, rows.iter().map(|(place, _)| place));
        // Many splits may be filtered before one is decoded, and keep theirs until then.
        if let Some(last) = self.last_wanted() {
            rows.truncate(rows.partition_point(|(place, _)| place <= &last));
        }
        Ok(Best { place, rows })
    }

    /// The place of the last row among the best found so far; `None` if nothing is known about which rows
    /// are wanted.
    pub(super) fn last_wanted(&self) -> Option<OwnedRow> {
        self.found.last(&self.order)
    }

    fn places_of(&self, rows: &ArrayRef) -> Result<Vec<OwnedRow>> {
        let rows = self.places.convert_columns(std::slice::from_ref(rows))?;
        Ok(rows.iter().map(|row| row.owned()).collect())
    }

    /// The best place that each zone may hold; `None` if statistics do not tell. Nulls may come first, and NaN comes
    /// before or after all numbers, depending on its sign; bounds cover neither.
    fn bounds(&self, map: &ZoneMap) -> Option<Vec<Place>> {
        let bounds = if self.options.descending { map.max.as_ref()? } else { map.min.as_ref()? };
        if copied_bytes(bounds) + bounds.len() as u64 * BYTES_PER_PLACE > MAX_BOUND_PLACE_BYTES {
            return None;
        }
        let places = self.places_of(bounds).ok()?;
        let known = |zone: usize| {
            let nulls_first = self.options.nulls_first && map.nulls_of(zone) != Some(0);
            bounds.is_valid(zone) && !nulls_first && !map.may_have_nan(zone)
        };
        Some(places.into_iter().enumerate().map(|(zone, place)| known(zone).then_some(place)).collect())
    }

    /// All splits, the best one last; `None` if statistics do not tell, or if splits differ too little to
    /// be worth reading in an order other than that of the file.
    pub(super) fn splits(&self, plan: &Plan, map: &ZoneMap) -> Option<Vec<Unread>> {
        if plan.picks_rows() || plan.split_count() > MAX_LISTED_SPLITS {
            return None;
        }
        let bounds = self.bounds(map)?;
        let zones = |rows: &Range<u64>| {
            let zones = RowBlocks::of_zones(map).overlapping(rows);
            let within = bounds.get(zones.start..zones.end.min(bounds.len()))?;
            (!within.is_empty()).then_some((zones.start, within))
        };
        let (first, within) = zones(&plan.rows.bounds())?;
        let best = (0..within.len()).min_by_key(|zone| &within[*zone])?;
        // Once the best zone has been read, zones with nothing before its last row are ruled out.
        let worst = if self.options.descending { map.min.as_ref()? } else { map.max.as_ref()? };
        let last = self.places_of(&worst.slice(first + best, 1)).ok()?.pop();
        let ruled_out = within.iter().filter(|bound| **bound > last).count();
        let few = plan.projection.len() <= FEW_COLUMNS && !plan.is_remote();
        if ruled_out * 2 < within.len() && !few {
            return None;
        }
        let unread = |rows: &Range<u64>| {
            let bound = zones(rows).and_then(|(_, bounds)| bounds.iter().min().cloned()).flatten();
            Unread { start: rows.start, bound }
        };
        let mut splits: Vec<Unread> = plan.split_rows().iter().map(unread).collect();
        splits.sort_by(|a, b| (&b.bound, b.start).cmp(&(&a.bound, a.start)));
        Some(splits)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, RecordBatch, StringViewArray, UInt64Array};

    use super::super::fetch::fetch;
    use super::*;
    use crate::dtype::DType;
    use crate::given::file_of;
    use crate::io::Urgency;

    /// Whether the best place in each of three zones is known: one of numbers, one with a NaN, one with a null.
    async fn known(descending: bool, nulls_first: bool, count_nulls: bool) -> Vec<bool> {
        let zone_len = 8192;
        let numbers = (0..3 * zone_len).map(|row| match row / zone_len {
            1 if row % zone_len == 7 => Some(f64::NAN),
            2 if row % zone_len == 7 => None,
            _ => Some(row as f64),
        });
        let table = RecordBatch::try_from_iter([("number", Arc::new(Float64Array::from_iter(numbers)) as _)]);
        let file = file_of([table.unwrap()]).await;
        let scan = file.scan().with_best_first("number", SortOptions { descending, nulls_first });
        let plan = Plan::new(&scan).unwrap();
        let zone_maps = ZoneMaps::read(&plan).await.unwrap();
        let mut map = zone_maps.of(&plan.best_first.as_ref().unwrap().column).unwrap().clone();
        if !count_nulls {
            map.null_count = Some(UInt64Array::new_null(map.zone_count));
        }
        let bounds = plan.best_first.as_ref().unwrap().bounds(&map).unwrap();
        bounds.iter().map(Option::is_some).collect()
    }

    #[tokio::test]
    async fn long_values_that_many_rows_share_have_no_places() {
        let place = async |text: &str| {
            let texts = StringViewArray::from_iter_values(std::iter::repeat_n(text, 100));
            let table = RecordBatch::try_from_iter([("text", Arc::new(texts) as _)]).unwrap();
            let file = file_of([table]).await;
            let plan = Plan::new(&file.scan().with_best_first("text", SortOptions::default())).unwrap();
            let (best_first, split) = (plan.best_first.as_ref().unwrap(), plan.split_from(0).unwrap());
            let mut have = SegmentSet::new(plan.table());
            fetch(&plan, Urgency::ZONE_MAPS, &mut have, |have, want| {
                best_first.column.request(&split.rows, have, want)
            })
            .await
            .unwrap();
            best_first.best_of(&split, &have).unwrap().place
        };
        assert!(place("a").await.is_some());
        assert!(place(&"a".repeat(MAX_PLACE_BYTES as usize)).await.is_none());
    }

    #[tokio::test]
    async fn long_bounds_that_many_zones_share_have_no_places() {
        let texts = StringViewArray::from_iter_values(["a", "b"]);
        let file = file_of([RecordBatch::try_from_iter([("text", Arc::new(texts) as _)]).unwrap()]).await;
        let plan = Plan::new(&file.scan().with_best_first("text", SortOptions::default())).unwrap();
        let places = |zone_count: usize, bound: &str| {
            let bound: ArrayRef = Arc::new(StringViewArray::from_iter_values([bound]));
            let bounds = take(&bound, &UInt64Array::from(vec![0; zone_count])).unwrap();
            let stats = crate::stats::FieldStats::default();
            let map = ZoneMap {
                min: Some(bounds),
                zone_count,
                ..ZoneMap::of_file(&stats, &DType::Utf8(false), 1).unwrap()
            };
            plan.best_first.as_ref().unwrap().bounds(&map).map(|places| places.len())
        };
        let long = "a".repeat(1 << 20);
        assert_eq!(places(10, &long), Some(10));
        assert_eq!(places(100, &long), None);
        assert_eq!(places(100_000, "a"), Some(100_000));
        assert_eq!(places(2_000_000, "a"), None);
    }

    #[tokio::test]
    async fn the_best_place_is_unknown_where_nan_or_nulls_may_come_first() {
        for descending in [true, false] {
            assert_eq!(known(descending, false, true).await, [true, false, true]);
            assert_eq!(known(descending, true, true).await, [true, false, false]);
            assert_eq!(known(descending, false, false).await, [true, false, true]);
            assert_eq!(known(descending, true, false).await, [false; 3]);
        }
    }
}
