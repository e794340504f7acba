//! Data accompanied by statistics per zone of rows.
//!
//! Zone `i` starts at row `i * zone_len`; the last zone may be shorter. Children: the data, and a table
//! with one row per zone and one column per statistic. Columns have no names in the file; their order
//! follows from the [metadata].
//!
//! A zone table is what is stored; decoded, it is a zone map. A table that is inconsistent, or contains
//! aggregates of unknown kind, is ignored: the data can be read without it.

mod exact;
pub(crate) mod metadata;
mod zone_map;

use std::ops::Range;
use std::sync::Arc;

use self::metadata::{Columns, ZoneColumn};
pub use self::zone_map::ZoneMap;
use super::{Layout, LayoutKind, LayoutNode, LayoutRef, PieceSet, SegmentSet, ids};
use crate::array::{EncodedRef, Measures, has_sum};
use crate::dtype::{DType, StructType};
use crate::limits::Work;
use crate::segments::SegmentId;
use crate::{Error, Result};

/// The `vortex.stats` layout.
pub(super) struct Stats;
/// The `vortex.zoned` layout.
pub(super) struct Zoned;

/// Tables with more zones are ignored: evaluating them would cost more than they save.
const MAX_ZONES: u64 = 1 << 22;

/// The zone table of a column, which holds statistics per zone of rows.
#[derive(Debug)]
pub struct Zones {
    zone_len: u64,
    row_count: u64,
    dtype: DType,
    /// The content of each column of the table.
    columns: Vec<ZoneColumn>,
    table: LayoutRef,
}

impl Zones {
    /// Rows per zone.
    pub fn zone_len(&self) -> u64 {
        self.zone_len
    }

    /// Number of zones.
    pub fn zone_count(&self) -> u64 {
        self.table.row_count()
    }

    /// Whether bounds are values of their zone. Those of text may be cut, and releases before 0.54 state `false` as the
    /// minimum of booleans that are all true.
    fn has_exact_bounds(&self) -> bool {
        let may_differ = matches!(self.dtype.storage(), DType::Utf8(_) | DType::Binary(_) | DType::Bool(_));
        let mut bounds = self.columns.iter().filter(|column| column.is_bound());
        !may_differ && bounds.all(|column| matches!(column, ZoneColumn::Min | ZoneColumn::Max))
    }

    /// Whether the table has bounds of the values, be they exact or not.
    pub(crate) fn has_bounds(&self) -> bool {
        self.columns.iter().any(|column| column.is_bound())
    }

    /// Whether the table may have what is wanted of the column. Of a column of nulls, writers state only their number.
    pub(crate) fn may_state(&self, measures: Measures) -> bool {
        let has = |column: ZoneColumn| self.columns.contains(&column);
        let has_bounds = self.has_bounds();
        (has(ZoneColumn::NullCount) || !self.dtype.is_nullable())
            && (!measures.has_extremes() || !has_bounds || self.has_exact_bounds())
            && (!measures.sum || !has_bounds || !has_sum(&self.dtype) || has(ZoneColumn::Sum))
    }

    /// The layout of the table.
    pub fn table(&self) -> &LayoutRef {
        &self.table
    }

    /// Adds the segments that reading the table needs and `have` lacks.
    ///
    /// # Errors
    /// If the table's layout cannot be read.
    pub(crate) fn request(&self, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        self.table.request(&(0..self.table.row_count()), have, want)
    }

    /// Reads the table.
    ///
    /// # Errors
    /// If segments are missing or corrupt.
    pub(crate) fn read(&self, have: &SegmentSet<'_>) -> Result<ZoneMap> {
        let _work = Work::begin();
        let table = self.table.read(&(0..self.table.row_count()), have)?;
        ZoneMap::read(self, &table)
    }
}

impl LayoutKind for Stats {
    fn id(&self) -> &'static str {
        ids::STATS
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        load(node, ids::STATS, metadata::read_stats(node.metadata(), node.dtype()))
    }
}

impl LayoutKind for Zoned {
    fn id(&self) -> &'static str {
        ids::ZONED
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        load(node, ids::ZONED, metadata::read_zoned(node.metadata(), node.dtype()))
    }
}

/// The layout of a node whose second child is a zone table of so many rows per zone, with these columns.
fn load(node: &LayoutNode, id: &'static str, table: Option<(u64, Columns)>) -> Result<LayoutRef> {
    node.expect_children(2)?;
    let data = node.load_child(0, node.dtype(), node.row_count())?;
    // Release 0.36 wrote a zone of no rows, which describes nothing.
    let is_useful =
        |zone_len: u64, columns: &Columns| zone_len > 0 && !columns.is_empty() && node.row_count() > 0;
    let table = table.filter(|(zone_len, columns)| is_useful(*zone_len, columns));
    let zones = table.map(|(zone_len, columns)| load_zones(node, zone_len, columns));
    let (zones, unusable) = match zones.transpose() {
        Ok(zones) => (zones, None),
        Err(error) => (None, Some(error)),
    };
    Ok(Arc::new(ZonedLayout { id, data, zones, unusable }))
}

fn load_zones(node: &LayoutNode, zone_len: u64, columns: Columns) -> Result<Zones> {
    let fields = columns.iter().enumerate().map(|(at, (_, dtype))| (at.to_string().into(), dtype.clone()));
    let dtype = DType::Struct(Arc::new(StructType::new(fields)), false);
    let table = node.child(1, &dtype)?.load()?;
    let (zones, found) = (node.row_count().div_ceil(zone_len), table.row_count());
    if found != zones || zones > MAX_ZONES {
        let rows = node.row_count();
        return Err(Error::corrupt(format!("{found} zones of {zone_len} rows describe {rows} rows")));
    }
    let columns = columns.into_iter().map(|(column, _)| column).collect();
    Ok(Zones { zone_len, row_count: node.row_count(), dtype: node.dtype().clone(), columns, table })
}

#[derive(Debug)]
struct ZonedLayout {
    id: &'static str,
    data: LayoutRef,
    zones: Option<Zones>,
    /// Why there are none although the file has a zone table.
    unusable: Option<Error>,
}

impl Layout for ZonedLayout {
    fn id(&self) -> &str {
        self.id
    }

    fn dtype(&self) -> &DType {
        self.data.dtype()
    }

    fn row_count(&self) -> u64 {
        self.data.row_count()
    }

    fn children(&self) -> Result<Vec<(String, LayoutRef)>> {
        let mut children = vec![("data".to_owned(), Arc::clone(&self.data))];
        children.extend(self.zones.iter().map(|zones| ("zones".to_owned(), Arc::clone(&zones.table))));
        Ok(children)
    }

    fn field(&self, at: usize) -> Result<Option<LayoutRef>> {
        self.data.field(at)
    }

    fn nulls(&self) -> Result<Option<LayoutRef>> {
        self.data.nulls()
    }

    fn dictionary_values(&self) -> Option<u64> {
        self.data.dictionary_values()
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        self.data.request(rows, have, want)
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        self.data.read(rows, have)
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        self.data.read_rows(rows, have)
    }

    fn zones(&self) -> Option<&Zones> {
        self.zones.as_ref()
    }

    fn unusable_zones(&self) -> Option<&Error> {
        self.unusable.as_ref()
    }
}
