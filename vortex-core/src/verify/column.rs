//! Checks of the values: every column is decoded, and its zones and statistics are compared with it.

use std::sync::Arc;

use arrow::datatypes::Schema;
use futures::TryStreamExt as _;

use super::bloom_filters::FilterCheck;
use super::statistics::{Actual, Findings, check_no_nulls};
use super::{Verification, unless_storage};
use crate::bloom::can_hash;
use crate::dtype::arrow::{field, presents};
use crate::dtype::{DType, ROOT_COLUMN, StructType};
use crate::expr::FieldPath;
use crate::file::Footer;
use crate::layout::{LayoutRef, ZoneMap};
use crate::scan::ScanBuilder;
use crate::{Result, VortexFile};

/// A column with its own layout.
pub(super) struct Column {
    pub(super) path: FieldPath,
    /// The position among the columns of the file; `None` for a field of one.
    at: Option<usize>,
    /// Whether the path leads to it, and not to a column before it that has the same name.
    is_named: bool,
    pub(super) dtype: DType,
    layout: LayoutRef,
    /// Whether its statistics describe the values that readers see, which is not so below a nullable struct.
    is_visible: bool,
}

impl Column {
    /// Whether paths of Bloom filters may lead to it, and its values have hashes.
    pub(super) fn can_have_bloom_filter(&self) -> bool {
        self.is_named && can_hash(&self.dtype)
    }
}

/// The columns of a file, or their fields if these are stored separately; broken layouts are recorded as
/// problems.
pub(super) fn columns_of(file: &VortexFile, found: &mut Verification) -> Vec<Column> {
    let whole = |path, at| Column {
        path,
        at,
        is_named: true,
        dtype: file.footer().dtype().clone(),
        layout: Arc::clone(file.footer().layout()),
        is_visible: true,
    };
    let mut columns = Vec::new();
    match file.footer().dtype().as_columns() {
        Some(_) => collect(file.footer(), whole(FieldPath::new([""; 0]), None), &mut columns, found),
        None => columns.push(whole(FieldPath::new([ROOT_COLUMN]), Some(0))),
    }
    columns
}

/// Adds a column, or those of its fields if these are stored separately.
fn collect(footer: &Footer, column: Column, columns: &mut Vec<Column>, found: &mut Verification) {
    let is_root = column.path.names().is_empty();
    let paths_lead_to_all = |fields: &StructType| {
        let mut names = fields.names().iter().enumerate();
        column.is_named && (is_root || names.all(|(at, name)| fields.position(name) == Some(at)))
    };
    // Fields are stored separately if the first one is, even if its layout is broken.
    let are_apart = || !matches!(column.layout.field(0), Ok(None));
    let fields = column.dtype.as_struct();
    let fields = fields.filter(|fields| !fields.is_empty() && paths_lead_to_all(fields) && are_apart());
    let Some(fields) = fields else { return columns.push(column) };
    let nullable = column.dtype.is_nullable();
    let stated = column.at.and_then(|at| footer.column_statistics(at));
    // How many rows of a nullable struct are null, its fields do not tell.
    if let Some(stated) = stated.filter(|_| !nullable) {
        check_no_nulls(&format!("statistics of column `{}`", column.path), stated, found);
    }
    for (at, (name, dtype)) in fields.fields().enumerate() {
        let path = column.path.child(name);
        match column.layout.field(at) {
            Ok(Some(layout)) => {
                let field = Column {
                    path,
                    at: is_root.then_some(at),
                    is_named: fields.position(name) == Some(at),
                    dtype: if nullable { dtype.with_nullable(true) } else { dtype.clone() },
                    layout,
                    is_visible: column.is_visible && !nullable,
                };
                collect(footer, field, columns, found);
            }
            Ok(None) => {}
            Err(error) => found.report(format!("layout of column `{path}`"), error),
        }
    }
}

/// Decodes a column and compares its statistics with its values.
pub(super) async fn check_column(file: &VortexFile, column: &Column, found: &mut Verification) -> Result<()> {
    let place = format!("column `{}`", column.path);
    let zones = zone_map(file, column, &place, found).await?;
    let zone_len = zones.as_ref().map_or(u64::MAX, |map| map.zone_len);
    let check_zone = |zone: usize, actual: &Actual, found: &mut Verification| {
        if let Some(map) = &zones {
            Findings::new(format!("zone {zone} of {place}"), &map.dtype, actual, found).check_zone(map, zone);
        }
    };
    let mut filters = FilterCheck::new(file, column);
    let (scan, preferred) = scan_of(file, column)?;
    let mut batches = scan.clone().with_schema(Arc::new(preferred)).into_stream()?;
    let (mut whole, mut open): (Option<Actual>, Option<Actual>) = (None, None);
    let mut zone = 0;
    while let Some(batch) = batches.try_next().await? {
        if let Some(filters) = &mut filters {
            filters.check(batch.column(0), found).await?;
        }
        let mut start = 0;
        while start < batch.num_rows() {
            let filled = open.as_ref().map_or(0, Actual::row_count);
            let len = usize::try_from(zone_len - filled).unwrap_or(usize::MAX).min(batch.num_rows() - start);
            let rows = Actual::of(&batch.column(0).slice(start, len), &column.dtype)?;
            open = Some(join(open, rows));
            start += len;
            if let Some(done) = open.take_if(|open| open.row_count() == zone_len) {
                check_zone(zone, &done, found);
                zone += 1;
                whole = Some(join(whole, done));
            }
        }
    }
    if let Some(done) = open {
        check_zone(zone, &done, found);
        whole = Some(join(whole, done));
    }
    let stated = column.at.and_then(|at| file.footer().column_statistics(at));
    if let (Some(stated), Some(actual)) = (stated, &whole) {
        Findings::new(format!("statistics of {place}"), &column.dtype, actual, found)
            .check_statistics(stated);
    }
    check_presentation(file, column, &scan).await
}

fn join(before: Option<Actual>, next: Actual) -> Actual {
    match before {
        Some(before) => before.merge(next),
        None => next,
    }
}

/// The zone map of a column, if it has one that describes what readers see; a broken one is recorded as a
/// problem.
async fn zone_map(
    file: &VortexFile,
    column: &Column,
    place: &str,
    found: &mut Verification,
) -> Result<Option<ZoneMap>> {
    if let Some(unusable) = column.layout.unusable_zones() {
        found.report(format!("zone map of {place}"), unusable);
    }
    let Some(zones) = column.layout.zones().filter(|_| column.is_visible) else { return Ok(None) };
    match file.zone_map(zones).await {
        Ok(map) => Ok(Some(map)),
        Err(error) => {
            found.report(format!("zone map of {place}"), unless_storage(error)?);
            Ok(None)
        }
    }
}

/// A scan that reads only the column, and the schema of its batches in types of the format.
fn scan_of(file: &VortexFile, column: &Column) -> Result<(ScanBuilder, Schema)> {
    let name = column.path.names().last().map_or(ROOT_COLUMN, |name| name);
    let scan = match column.at {
        Some(at) if !column.is_named => file.scan().with_root_field(at),
        _ => file.scan().with_projection([column.path.clone()]),
    };
    Ok((scan, Schema::new(vec![field(name, &column.dtype)?])))
}

/// Checks values that are read as types that the format lacks, which may be out of range for them.
async fn check_presentation(file: &VortexFile, column: &Column, scan: &ScanBuilder) -> Result<()> {
    let schema = file.schema()?;
    // The schema has the columns of the file in their order.
    let own = column.at.and_then(|at| schema.fields().get(at));
    if own.is_none_or(|own| presents(&column.dtype, own.data_type())) {
        return Ok(());
    }
    scan.clone().into_stream()?.try_for_each(|_| async { Ok(()) }).await
}
