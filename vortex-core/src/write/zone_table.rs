//! Writes zone maps: a table of one row per zone, in one of the two forms of
//! [`layout::zoned`](crate::layout::ZoneMap).

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef as ArrowRef, AsArray as _, BooleanArray, NullArray, StructArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::concat;

use super::ZONE_LEN;
use crate::compress::Compressor;
use crate::dtype::arrow::{data_type, field};
use crate::dtype::{DType, PType, StructType};
use crate::layout::zone_metadata::{self, Kind};
use crate::release::since;
use crate::scalar::{Value, array_of};
use crate::stats::compute::{Zone, has_bounds};
use crate::stats::extreme::Extreme;
use crate::stats::is_float;
use crate::wire::WriteNode;
use crate::{Release, Result};

/// Number of zones kept in their original form before they are packed.
const FRESH_ZONES: usize = 128;

/// The zone map of a column.
#[derive(Debug)]
pub(super) struct ZoneTable {
    /// The id of the layout.
    pub(super) id: &'static str,
    pub(super) metadata: Vec<u8>,
    pub(super) table: WriteNode,
    pub(super) zone_count: u64,
}

/// Zones of a column, packed to take little memory even for many rows.
#[derive(Debug, Default)]
pub(super) struct Zones {
    fresh: Vec<Zone>,
    packed: Vec<Packed>,
    count: usize,
}

/// Statistics of several zones.
#[derive(Debug)]
struct Packed {
    null_counts: ArrowRef,
    nan_counts: ArrowRef,
    min: Bounds,
    max: Bounds,
}

/// A bound per zone.
#[derive(Debug)]
struct Bounds {
    values: ArrowRef,
    /// Whether a bound is not an actual value of the zone.
    truncated: ArrowRef,
    /// Whether there are values, but no bound.
    unknown: ArrowRef,
    /// Whether there are values.
    present: ArrowRef,
}

impl Zones {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Appends a zone of a column of this type.
    ///
    /// # Errors
    /// If the type has no Arrow type.
    pub(super) fn push(&mut self, zone: Zone, dtype: &DType) -> Result<()> {
        self.fresh.push(zone);
        self.count += 1;
        if self.fresh.len() < FRESH_ZONES { Ok(()) } else { self.pack(dtype) }
    }

    fn pack(&mut self, dtype: &DType) -> Result<()> {
        let zones = std::mem::take(&mut self.fresh);
        let count = |of: fn(&Zone) -> u64| -> ArrowRef {
            Arc::new(UInt64Array::from_iter_values(zones.iter().map(of)))
        };
        let bounds = |of: fn(&Zone) -> &Extreme| Bounds::new(zones.iter().map(of), dtype);
        self.packed.push(Packed {
            null_counts: count(|zone| zone.null_count),
            nan_counts: count(|zone| zone.nan_count),
            min: bounds(|zone| &zone.min)?,
            max: bounds(|zone| &zone.max)?,
        });
        Ok(())
    }

    fn join(&self, of: impl Fn(&Packed) -> &ArrowRef) -> Result<ArrowRef> {
        let parts: Vec<_> = self.packed.iter().map(|packed| of(packed).as_ref()).collect();
        Ok(concat(&parts)?)
    }
}

impl Bounds {
    fn new<'a>(extremes: impl Iterator<Item = &'a Extreme> + Clone, dtype: &DType) -> Result<Self> {
        let flags = |of: fn(&Extreme) -> bool| -> ArrowRef {
            Arc::new(extremes.clone().map(|extreme| Some(of(extreme))).collect::<BooleanArray>())
        };
        let values = if has_bounds(dtype) {
            let bounds = extremes.clone().map(|extreme| extreme.bound().unwrap_or(&Value::Null));
            array_of(bounds, dtype, &data_type(dtype)?)?
        } else {
            Arc::new(NullArray::new(extremes.clone().count()))
        };
        Ok(Self {
            values,
            truncated: flags(|extreme| matches!(extreme, Extreme::Bound { exact: false, .. })),
            unknown: flags(|extreme| *extreme == Extreme::Unbounded),
            present: flags(|extreme| *extreme != Extreme::Nothing),
        })
    }
}

/// Whether bounds of this type are written for readers since `min_reader`.
pub(super) fn shows_bounds(dtype: &DType, min_reader: Release) -> bool {
    let half = matches!(dtype.storage(), DType::Primitive(PType::F16, _));
    has_bounds(dtype) && (!half || min_reader >= since::HALF_SCALARS)
}

impl ZoneTable {
    /// Builds the table.
    ///
    /// # Errors
    /// If the compressor does not support the type.
    pub(super) fn new(
        mut zones: Zones,
        dtype: &DType,
        min_reader: Release,
        compressor: &Compressor,
    ) -> Result<Self> {
        if !zones.fresh.is_empty() || zones.packed.is_empty() {
            zones.pack(dtype)?;
        }
        let zoned = min_reader >= since::ZONED;
        let mut columns: Vec<(Kind, ArrowRef, DType)> = Vec::new();
        let mut add = |kind, array: ArrowRef, dtype| columns.push((kind, array, dtype));
        if shows_bounds(dtype, min_reader) {
            let (min, max) = (zones.join(|of| &of.min.values)?, zones.join(|of| &of.max.values)?);
            let bound = dtype.with_nullable(true);
            if min.null_count() + max.null_count() < 2 * zones.len() {
                let text = matches!(dtype.storage(), DType::Utf8(_) | DType::Binary(_));
                if zoned && text {
                    let unknown = zones.join(|of| &of.max.unknown)?;
                    let present = zones.join(|of| &of.max.present)?;
                    let present = NullBuffer::new(present.as_boolean().values().clone());
                    let (array, dtype) = bounded(max, unknown, present, &bound)?;
                    add(Kind::BoundedMax, array, dtype);
                    add(Kind::BoundedMin, min, bound);
                } else {
                    add(Kind::Max, max, bound.clone());
                    if !zoned {
                        add(Kind::Flag, zones.join(|of| &of.max.truncated)?, DType::Bool(false));
                    }
                    add(Kind::Min, min, bound);
                    if !zoned {
                        add(Kind::Flag, zones.join(|of| &of.min.truncated)?, DType::Bool(false));
                    }
                }
            }
        }
        let nulls = (Kind::NullCount, zones.join(|of| &of.null_counts)?);
        let nans = match is_float(dtype) {
            true => Some((Kind::NanCount, zones.join(|of| &of.nan_counts)?)),
            false => None,
        };
        // Columns are ordered by name in one form, and by the number of the statistic in the other.
        let counted = if zoned {
            nans.into_iter().chain([nulls]).collect::<Vec<_>>()
        } else {
            [nulls].into_iter().chain(nans).collect()
        };
        for (kind, array) in counted {
            add(kind, array, DType::Primitive(PType::U64, true));
        }
        let kinds: Vec<Kind> = columns.iter().map(|(kind, ..)| *kind).collect();
        let table = columns.iter().map(|(_, array, dtype)| compressor.compress(array, dtype));
        let table = WriteNode::new("vortex.struct").children(table.collect::<Result<Vec<_>>>()?);
        let zone_len = ZONE_LEN as u32;
        let (id, metadata) = if zoned {
            ("vortex.zoned", zone_metadata::zoned(zone_len, &kinds))
        } else {
            ("vortex.stats", zone_metadata::stats(zone_len, &kinds))
        };
        Ok(Self { id, metadata, table, zone_count: zones.len() as u64 })
    }
}

/// `struct{bound, unknown}`, which is null where there is no value at all.
fn bounded(
    bound: ArrowRef,
    unknown: ArrowRef,
    has_values: NullBuffer,
    dtype: &DType,
) -> Result<(ArrowRef, DType)> {
    let fields = [("bound".into(), dtype.clone()), ("unknown".into(), DType::Bool(false))];
    let fields = StructType::new(fields);
    let arrow = fields.fields().map(|(name, dtype)| field(name, dtype)).collect::<Result<Vec<_>>>()?;
    let array = StructArray::try_new(arrow.into(), vec![bound, unknown], Some(has_values))?;
    Ok((Arc::new(array), DType::Struct(Arc::new(fields), true)))
}
