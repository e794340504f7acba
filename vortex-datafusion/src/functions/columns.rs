//! `vortex_metadata`: the columns of a file, and what is known of them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion_common::Result;
use vortex_core::file::Footer;
use vortex_core::layout::LayoutRef;
use vortex_core::scalar::Scalar;
use vortex_core::stats::{FieldStats, Precision};

use super::table::Column;
use super::table::Values::{Count, Flag, Text};
use super::text::{Room, shown};
use crate::convert::datafusion_error;

/// A column of a file.
pub(super) struct ColumnRow<'a> {
    name: &'a str,
    dtype: String,
    row_count: u64,
    used: Used,
    /// Those of its fields included.
    bloom_filter_bytes: Option<u64>,
    known: Option<&'a FieldStats>,
    min: Option<String>,
    max: Option<String>,
    sum: Option<String>,
}

pub(super) fn columns<'a>() -> [Column<ColumnRow<'a>>; 16] {
    [
        ("column", Text(|row| Some(row.name))),
        ("type", Text(|row| Some(&row.dtype))),
        ("row_count", Count(|row| Some(row.row_count))),
        ("segments", Count(|row| Some(row.used.segments))),
        ("bytes", Count(|row| Some(row.used.bytes))),
        ("bloom_filter_bytes", Count(|row| row.bloom_filter_bytes)),
        ("decoded_bytes", Count(|row| row.known?.uncompressed_size)),
        ("null_count", Count(|row| row.known?.null_count)),
        ("nan_count", Count(|row| row.known?.nan_count)),
        ("min", Text(|row| row.min.as_deref())),
        ("min_is_exact", Flag(|row| is_exact(&row.known?.min))),
        ("max", Text(|row| row.max.as_deref())),
        ("max_is_exact", Flag(|row| is_exact(&row.known?.max))),
        ("sum", Text(|row| row.sum.as_deref())),
        ("is_constant", Flag(|row| row.known?.is_constant)),
        ("is_sorted", Flag(|row| row.known?.is_sorted)),
    ]
}

fn is_exact(bound: &Precision<Scalar>) -> Option<bool> {
    bound.value().map(|_| bound.exact().is_some())
}

pub(super) fn rows<'a>(footer: &'a Footer, room: &mut Room) -> Result<Vec<ColumnRow<'a>>> {
    let mut filters: HashMap<&str, u64> = HashMap::new();
    for (path, bytes) in footer.bloom_filter_columns() {
        path.names().first().into_iter().for_each(|name| *filters.entry(name).or_default() += bytes);
    }
    // Columns without layouts of their own are in that of the root.
    let mut of_root = None;
    let rows = footer.columns().enumerate().map(|(at, (name, dtype))| {
        let layout = footer.column_layout(at).map_err(datafusion_error)?;
        let used = match of_root.filter(|_| Arc::ptr_eq(&layout, footer.layout())) {
            Some(known) => known,
            None => Used::by(&layout, footer)?,
        };
        if Arc::ptr_eq(&layout, footer.layout()) {
            of_root = Some(used);
        }
        let known = footer.column_statistics(at);
        let mut value = |of: fn(&FieldStats) -> Option<&Scalar>| {
            known.and_then(of).map(|value| room.text(shown(value))).transpose()
        };
        let min = value(|known| known.min.value())?;
        let max = value(|known| known.max.value())?;
        let sum = value(|known| known.sum.as_ref())?;
        let dtype = room.text(dtype)?;
        let bloom_filter_bytes = filters.get(name).copied();
        let row_count = footer.row_count();
        Ok(ColumnRow { name, dtype, row_count, used, bloom_filter_bytes, known, min, max, sum })
    });
    rows.collect()
}

/// The number and the bytes of the segments of a layout and those below it.
#[derive(Debug, Clone, Copy)]
struct Used {
    segments: u64,
    bytes: u64,
}

impl Used {
    fn by(layout: &LayoutRef, footer: &Footer) -> Result<Self> {
        let used = layout.all_segments().map_err(datafusion_error)?;
        let lengths = used.iter().filter_map(|id| footer.segment(*id).ok());
        let bytes = lengths.map(|segment| u64::from(segment.length)).sum();
        Ok(Self { segments: used.len() as u64, bytes })
    }
}
