//! Data accompanied by statistics per zone of rows.
//!
//! Zone `i` starts at row `i * zone_len`; the last zone may be shorter. Children: the data, and a table
//! with one row per zone and one column per statistic. Columns have no names in the file; their order
//! follows from the metadata:
//!
//! - `vortex.stats` (0.36 to 0.75): `zone_len` as u32, then a bit set of statistic numbers;
//!   columns in order of the numbers, each minimum and maximum followed by a flag column.
//! - `vortex.zoned` (since 0.76): version byte 1, then protobuf with `zone_len` and the
//!   aggregates in column order.
//!
//! A zone table that is inconsistent, or contains aggregates of unknown kind, is ignored: the data can be
//! read without it.

pub(crate) mod metadata;
mod zone_map;

use std::ops::Range;
use std::sync::Arc;

use prost::Message as _;
pub use zone_map::ZoneMap;

use super::{Layout, LayoutKind, LayoutNode, LayoutRef, PieceSet, SegmentSet};
use crate::array::ArrayRef;
use crate::dtype::{DType, PType, StructType};
use crate::limits::Work;
use crate::segments::SegmentId;
use crate::stats::{is_float, sum_dtype};
use crate::{Error, Result};

/// The `vortex.stats` layout.
pub(super) struct Stats;
/// The `vortex.zoned` layout.
pub(super) struct Zoned;

const STATS_ID: &str = "vortex.stats";
const ZONED_ID: &str = "vortex.zoned";

/// Tables with more zones are ignored: evaluating them would cost more than they save.
const MAX_ZONES: u64 = 1 << 22;

/// The content of a column of a zone table.
#[derive(Debug, Clone, Copy)]
enum Statistic {
    /// Minimum value, ignoring nulls and NaN, or a lower bound.
    Min,
    /// Maximum value, ignoring nulls and NaN, or an upper bound.
    Max,
    /// `struct{bound, unknown}`: an upper bound, or the information that none is known.
    BoundedMax,
    /// Number of nulls.
    NullCount,
    /// Number of NaN values.
    NanCount,
    /// A statistic that pruning does not use.
    Other,
}

/// The per-zone statistics of a column.
#[derive(Debug)]
pub struct Zones {
    zone_len: u64,
    row_count: u64,
    dtype: DType,
    /// The content of each column of the table.
    columns: Vec<Statistic>,
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
        // Lists are decoded when they are read.
        let _work = Work::begin();
        let table = self.table.read(&(0..self.table.row_count()), have)?;
        ZoneMap::read(self, &table)
    }
}

/// A zone table's columns and their types.
type Columns = Vec<(Statistic, DType)>;

impl LayoutKind for Stats {
    fn id(&self) -> &'static str {
        STATS_ID
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        let Some((zone_len, bits)) = node.metadata().split_first_chunk::<4>() else {
            return Err(Error::corrupt("metadata is too short"));
        };
        let present = |stat: usize| bits.get(stat / 8).is_some_and(|byte| byte >> (stat % 8) & 1 == 1);
        let mut columns = Columns::new();
        for stat in (0..=8).filter(|stat| present(*stat)) {
            columns.extend(legacy_columns(stat, node.dtype()));
        }
        load(node, STATS_ID, u64::from(u32::from_le_bytes(*zone_len)), Some(columns))
    }
}

/// The columns of a statistic number, in the order required by the format.
fn legacy_columns(stat: usize, dtype: &DType) -> Columns {
    let nullable = |ptype| DType::Primitive(ptype, true);
    let bound = |kind| match dtype {
        DType::Null => vec![],
        _ => vec![(kind, dtype.with_nullable(true)), (Statistic::Other, DType::Bool(false))],
    };
    match stat {
        0..=2 => vec![(Statistic::Other, DType::Bool(true))],
        3 => bound(Statistic::Max),
        4 => bound(Statistic::Min),
        // Release 0.36 summed extension columns by their storage.
        5 => sum_dtype(dtype.storage()).map(|sum| (Statistic::Other, sum)).into_iter().collect(),
        6 => vec![(Statistic::NullCount, nullable(PType::U64))],
        7 => vec![(Statistic::Other, nullable(PType::U64))],
        8 if is_float(dtype) => vec![(Statistic::NanCount, nullable(PType::U64))],
        _ => vec![],
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct ZonedMetadata {
    #[prost(uint32, tag = "1")]
    zone_len: u32,
    #[prost(message, repeated, tag = "2")]
    aggregates: Vec<AggregateSpec>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AggregateSpec {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(bytes = "vec", tag = "2")]
    options: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NanOptions {
    #[prost(bool, tag = "1")]
    skip_nans: bool,
}

impl LayoutKind for Zoned {
    fn id(&self) -> &'static str {
        ZONED_ID
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        let metadata = match node.metadata().split_first() {
            Some((1, message)) => ZonedMetadata::decode(message).ok(),
            _ => None,
        };
        let Some(metadata) = metadata else { return load(node, ZONED_ID, 0, None) };
        let mut columns = Some(Columns::new());
        for spec in &metadata.aggregates {
            match (columns.as_mut(), zoned_column(spec, node.dtype())) {
                (Some(columns), Some(column)) => columns.extend(column),
                _ => columns = None,
            }
        }
        load(node, ZONED_ID, metadata.zone_len.into(), columns)
    }
}

/// The column of an aggregate, if it applies to the type; `None` for unknown aggregates.
fn zoned_column(spec: &AggregateSpec, dtype: &DType) -> Option<Option<(Statistic, DType)>> {
    let nullable = |ptype| DType::Primitive(ptype, true);
    let value = dtype.with_nullable(true);
    let comparable = comparable(dtype);
    // Without that option, NaN counts as a value, and bounds have a different meaning.
    let usable = |kind| {
        let skips = NanOptions::decode(spec.options.as_slice()).is_ok_and(|options| options.skip_nans);
        if skips || !is_float(dtype) { kind } else { Statistic::Other }
    };
    Some(match spec.id.as_str() {
        "vortex.max" => comparable.then(|| (usable(Statistic::Max), value)),
        "vortex.min" => comparable.then(|| (usable(Statistic::Min), value)),
        "vortex.bounded_min" => comparable.then_some((Statistic::Min, value)),
        "vortex.bounded_max" => {
            let fields = [("bound".into(), value), ("unknown".into(), DType::Bool(false))];
            let bounded = DType::Struct(Arc::new(StructType::new(fields)), true);
            comparable.then_some((Statistic::BoundedMax, bounded))
        }
        "vortex.null_count" => Some((Statistic::NullCount, nullable(PType::U64))),
        "vortex.nan_count" => is_float(dtype).then(|| (Statistic::NanCount, nullable(PType::U64))),
        "vortex.sum" => sum_dtype(dtype).map(|sum| (Statistic::Other, sum)),
        "vortex.uncompressed_size_in_bytes" => Some((Statistic::Other, nullable(PType::U64))),
        "vortex.bloom_filter.sbbf" => Some((Statistic::Other, DType::Binary(true))),
        _ => return None,
    })
}

fn comparable(dtype: &DType) -> bool {
    match dtype.storage() {
        DType::Bool(_) | DType::Primitive(..) | DType::Decimal(..) | DType::Utf8(_) | DType::Binary(_) => {
            true
        }
        DType::List(element, _) | DType::FixedSizeList(element, _, _) => comparable(element),
        _ => false,
    }
}

/// The layout of a node whose second child is a zone table of `columns`.
fn load(node: &LayoutNode, id: &'static str, zone_len: u64, columns: Option<Columns>) -> Result<LayoutRef> {
    node.expect_children(2)?;
    let data = node.load_child(0, node.dtype(), node.row_count())?;
    let zones = columns.filter(|columns| zone_len > 0 && !columns.is_empty()).and_then(|columns| {
        let fields =
            columns.iter().enumerate().map(|(at, (_, dtype))| (at.to_string().into(), dtype.clone()));
        let dtype = DType::Struct(Arc::new(StructType::new(fields)), false);
        let table = node.child(1, &dtype).and_then(|child| child.load()).ok()?;
        let fits = table.row_count() == node.row_count().div_ceil(zone_len) && table.row_count() <= MAX_ZONES;
        fits.then(|| Zones {
            zone_len,
            row_count: node.row_count(),
            dtype: node.dtype().clone(),
            columns: columns.into_iter().map(|(kind, _)| kind).collect(),
            table,
        })
    });
    Ok(Arc::new(ZonedLayout { id, data, zones }))
}

#[derive(Debug)]
struct ZonedLayout {
    id: &'static str,
    data: LayoutRef,
    zones: Option<Zones>,
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

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        self.data.request(rows, have, want)
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<ArrayRef> {
        self.data.read(rows, have)
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<ArrayRef> {
        self.data.read_rows(rows, have)
    }

    fn zones(&self) -> Option<&Zones> {
        self.zones.as_ref()
    }
}
