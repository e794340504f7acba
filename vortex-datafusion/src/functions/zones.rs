//! `vortex_zones`: the zones of the columns of a file, and what is known of their rows.

use arrow::array::{Array as _, ArrayRef, UInt64Array};
use datafusion_common::Result;
use vortex_core::VortexFile;
use vortex_core::layout::ZoneMap;

use super::layouts::walk;
use super::table::Column;
use super::table::Values::{Count, Text};
use super::text::{Room, shown_at};
use crate::convert::datafusion_error;

/// Bytes that a zone without texts counts for.
const ZONE_BYTES: usize = 64;

/// A zone of a file, and what is known of its rows.
pub(super) struct ZoneRow {
    path: String,
    zone: u64,
    first_row: Option<u64>,
    row_count: u64,
    min: Option<String>,
    max: Option<String>,
    sum: Option<String>,
    null_count: Option<u64>,
    nan_count: Option<u64>,
}

pub(super) fn columns() -> [Column<ZoneRow>; 9] {
    [
        ("path", Text(|row| Some(&row.path))),
        ("zone", Count(|row| Some(row.zone))),
        ("first_row", Count(|row| row.first_row)),
        ("row_count", Count(|row| Some(row.row_count))),
        ("min", Text(|row| row.min.as_deref())),
        ("max", Text(|row| row.max.as_deref())),
        ("sum", Text(|row| row.sum.as_deref())),
        ("null_count", Count(|row| row.null_count)),
        ("nan_count", Count(|row| row.nan_count)),
    ]
}

/// One zone table is in memory at a time.
pub(super) async fn rows(file: &VortexFile, room: &mut Room) -> Result<Vec<ZoneRow>> {
    let mut rows = Vec::new();
    for placed in walk(file.footer(), room)? {
        let Some(zones) = placed.layout.zones() else { continue };
        let map = file.zone_map(zones).await.map_err(datafusion_error)?;
        for zone in 0..map.zone_count {
            rows.push(ZoneRow::try_new(&placed.path, &map, zone, room)?);
        }
    }
    Ok(rows)
}

impl ZoneRow {
    fn try_new(path: &str, map: &ZoneMap, zone: usize, room: &mut Room) -> Result<Self> {
        room.take(ZONE_BYTES)?;
        let mut value = |values: &Option<ArrayRef>| {
            let text = values.as_ref().and_then(|values| shown_at(values, zone));
            text.map(|text| room.text(text)).transpose()
        };
        let count = |counts: &Option<UInt64Array>| {
            let counts = counts.as_ref().filter(|counts| zone < counts.len() && counts.is_valid(zone));
            counts.map(|counts| counts.value(zone))
        };
        Ok(Self {
            min: value(&map.min)?,
            max: value(&map.max)?,
            sum: value(&map.sum)?,
            path: room.text(path)?,
            zone: zone as u64,
            first_row: (zone as u64).checked_mul(map.zone_len),
            row_count: map.rows_of(zone),
            null_count: count(&map.null_count),
            nan_count: count(&map.nan_count),
        })
    }
}
