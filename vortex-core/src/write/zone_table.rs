//! Writes zone tables: one row per zone, in one of the two forms of [`layout::zoned`](crate::layout::Zones).

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, NullArray, StructArray, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::concat;

use super::ZONE_LEN;
use crate::compress::Compressor;
use crate::dtype::arrow::{data_type, field};
use crate::dtype::{DType, PType};
use crate::encodings::struct_;
use crate::layout::ids;
use crate::layout::zone_metadata::{self, ZoneColumn, bounded};
use crate::release::since;
use crate::scalar::{Value, array_of};
use crate::stats::compute::{Summary, sum_scalar};
use crate::stats::extreme::Extreme;
use crate::stats::{is_float, sum_dtype};
use crate::wire::WriteNode;
use crate::{Error, Release, Result};

/// Number of zones kept in their original form before they are packed.
const FRESH_ZONES: usize = 128;

/// Sums are written if there are more zones. Fewer are read together, and the statistics of the file contain the sum of
/// all its rows.
const FEW_ZONES: usize = 8;

/// The zone table of a column.
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
pub(super) struct ZoneRows {
    fresh: Vec<Summary>,
    packed: Vec<Packed>,
    count: usize,
}

/// Statistics of several zones.
#[derive(Debug)]
struct Packed {
    null_counts: ArrayRef,
    nan_counts: ArrayRef,
    min: Bounds,
    max: Bounds,
    /// Null where a sum is unknown.
    sums: Option<ArrayRef>,
}

/// A bound per zone.
#[derive(Debug)]
struct Bounds {
    values: ArrayRef,
    /// Whether a bound is not an actual value of the zone.
    truncated: ArrayRef,
    /// Whether there are values, but no bound.
    unknown: ArrayRef,
    /// Whether there are values.
    present: ArrayRef,
}

impl ZoneRows {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Appends a zone of a column of this type.
    ///
    /// # Errors
    /// If the type has no Arrow type.
    pub(super) fn push(&mut self, zone: Summary, dtype: &DType) -> Result<()> {
        self.fresh.push(zone);
        self.count += 1;
        if self.fresh.len() < FRESH_ZONES { Ok(()) } else { self.pack(dtype) }
    }

    fn pack(&mut self, dtype: &DType) -> Result<()> {
        let zones = std::mem::take(&mut self.fresh);
        let count = |of: fn(&Summary) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(zones.iter().map(of)))
        };
        let bounds = |of: fn(&Summary) -> &Extreme| Bounds::new(zones.iter().map(of), dtype);
        self.packed.push(Packed {
            null_counts: count(|zone| zone.null_count),
            nan_counts: count(|zone| zone.nan_count),
            min: bounds(|zone| &zone.min)?,
            max: bounds(|zone| &zone.max)?,
            sums: sums(&zones, dtype)?,
        });
        Ok(())
    }

    fn join(&self, of: impl Fn(&Packed) -> &ArrayRef) -> Result<ArrayRef> {
        let parts: Vec<_> = self.packed.iter().map(|packed| of(packed).as_ref()).collect();
        Ok(concat(&parts)?)
    }
}

/// The sums of zones, for types that have sums which do not depend on the order of rows.
fn sums(zones: &[Summary], dtype: &DType) -> Result<Option<ArrayRef>> {
    let Some(to) = sum_dtype(dtype).filter(|_| !is_float(dtype)) else { return Ok(None) };
    let sums = zones.iter().map(|zone| sum_scalar(zone.sum?, dtype)).map(|sum| match sum {
        Some(sum) => sum.value().clone(),
        None => Value::Null,
    });
    let sums: Vec<Value> = sums.collect();
    Ok(Some(array_of(sums.iter(), &to, &data_type(&to)?)?))
}

impl Bounds {
    fn new<'a>(extremes: impl Iterator<Item = &'a Extreme> + Clone, dtype: &DType) -> Result<Self> {
        let flags = |of: fn(&Extreme) -> bool| -> ArrayRef {
            Arc::new(extremes.clone().map(|extreme| Some(of(extreme))).collect::<BooleanArray>())
        };
        let values = if dtype.is_scalar() {
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
    dtype.is_scalar() && (!half || min_reader >= since::HALF_SCALARS)
}

impl ZoneTable {
    /// Builds the table.
    ///
    /// # Errors
    /// If the compressor does not support the type.
    pub(super) fn new(
        mut zones: ZoneRows,
        dtype: &DType,
        min_reader: Release,
        compressor: &Compressor,
    ) -> Result<Self> {
        if !zones.fresh.is_empty() || zones.packed.is_empty() {
            zones.pack(dtype)?;
        }
        let sums = zones.sums(dtype, min_reader)?;
        // `vortex.stats` has had a place for sums since 0.36; those of `vortex.zoned` are in no edition of the format.
        let is_zoned = min_reader >= since::ZONED && sums.is_none();
        let mut columns = Columns::new();
        if shows_bounds(dtype, min_reader) {
            columns.extend(zones.bounds(dtype, is_zoned)?);
        }
        columns.extend(sums);
        columns.extend(zones.counts(dtype, is_zoned)?);
        let encoded = columns.iter().map(|(column, values)| {
            let dtype = column.dtype(dtype).ok_or_else(|| Error::unsupported("statistic to write", dtype))?;
            compressor.compress(values, &dtype)
        });
        let table = struct_::encode(encoded.collect::<Result<_>>()?, None);
        let columns: Vec<ZoneColumn> = columns.iter().map(|(column, _)| *column).collect();
        let (id, metadata) = if is_zoned {
            (ids::ZONED, zone_metadata::write_zoned(ZONE_LEN as u32, &columns))
        } else {
            (ids::STATS, zone_metadata::write_stats(ZONE_LEN as u32, &columns))
        };
        Ok(Self { id, metadata, table, zone_count: zones.len() as u64 })
    }
}

fn has_values(array: &ArrayRef) -> bool {
    array.null_count() < array.len()
}

/// The columns of a zone table.
type Columns = Vec<(ZoneColumn, ArrayRef)>;

impl ZoneRows {
    /// Minima and maxima, unless no zone has any.
    fn bounds(&self, dtype: &DType, is_zoned: bool) -> Result<Columns> {
        let (min, max) = (self.join(|of| &of.min.values)?, self.join(|of| &of.max.values)?);
        if min.null_count() + max.null_count() == 2 * self.len() {
            return Ok(Columns::new());
        }
        if !is_zoned {
            let min_truncated = self.join(|of| &of.min.truncated)?;
            let max_truncated = self.join(|of| &of.max.truncated)?;
            return Ok(vec![
                (ZoneColumn::Max, max),
                (ZoneColumn::Truncated, max_truncated),
                (ZoneColumn::Min, min),
                (ZoneColumn::Truncated, min_truncated),
            ]);
        }
        if !matches!(dtype.storage(), DType::Utf8(_) | DType::Binary(_)) {
            return Ok(vec![(ZoneColumn::Max, max), (ZoneColumn::Min, min)]);
        }
        let unknown = self.join(|of| &of.max.unknown)?;
        let present = self.join(|of| &of.max.present)?;
        let present = NullBuffer::new(present.as_boolean().values().clone());
        let fields = bounded(dtype);
        let fields = fields.fields().map(|(name, dtype)| field(name, dtype)).collect::<Result<Vec<_>>>()?;
        // Null where there is no value at all.
        let max = StructArray::try_new(fields.into(), vec![max, unknown], Some(present))?;
        Ok(vec![(ZoneColumn::BoundedMax, Arc::new(max)), (ZoneColumn::BoundedMin, min)])
    }

    /// Sums, if there are enough zones and any sum is known.
    fn sums(&self, dtype: &DType, min_reader: Release) -> Result<Option<(ZoneColumn, ArrayRef)>> {
        let is_known = self.packed.iter().any(|packed| packed.sums.as_ref().is_some_and(has_values));
        // Whether the oldest releases expect sums of decimals depends on the release.
        let is_expected = !matches!(dtype, DType::Decimal(..)) || min_reader >= since::ZONED;
        if self.len() <= FEW_ZONES || !is_known || !is_expected || matches!(dtype, DType::Bool(_)) {
            return Ok(None);
        }
        let parts: Vec<_> = self.packed.iter().filter_map(|packed| packed.sums.as_deref()).collect();
        Ok(Some((ZoneColumn::Sum, concat(&parts)?)))
    }

    /// Numbers of nulls, and of NaN values of floats.
    fn counts(&self, dtype: &DType, is_zoned: bool) -> Result<Columns> {
        let nulls = (ZoneColumn::NullCount, self.join(|of| &of.null_counts)?);
        if !is_float(dtype) {
            return Ok(vec![nulls]);
        }
        let nans = (ZoneColumn::NanCount, self.join(|of| &of.nan_counts)?);
        // Columns are ordered by name in one form, and by the number of the statistic in the other.
        Ok(if is_zoned { vec![nans, nulls] } else { vec![nulls, nans] })
    }
}
