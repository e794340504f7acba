//! Zone maps: decoded zone tables.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, UInt64Array, new_null_array};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, UInt64Type};

use super::Zones;
use super::metadata::ZoneColumn;
use crate::array::EncodedRef;
use crate::array::row_bytes::copied_bytes;
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::scalar::Scalar;
use crate::stats::{FieldStats, Precision, is_float, sum_dtype, text_bounds};
use crate::{Error, Result};

/// Bounds that take more bytes are ignored: per zone, twice as many as writers leave those of text, but at least these
/// of few zones.
const MAX_BOUND_BYTES: u64 = 16 << 20;
const MAX_BYTES_PER_ZONE: u64 = 4 * text_bounds::MAX_BOUND_BYTES as u64;

/// Statistics of a column, one row per zone. A null bound provides no information about its zone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ZoneMap {
    /// The type of the column.
    pub dtype: DType,
    /// Rows per zone; the last zone may have fewer.
    pub zone_len: u64,
    /// Rows of the column.
    pub row_count: u64,
    /// Number of zones.
    pub zone_count: usize,
    /// Lower bounds of the values, ignoring nulls and NaN; none of nested types.
    pub min: Option<ArrayRef>,
    /// Upper bounds of the values, ignoring nulls and NaN; none of nested types.
    pub max: Option<ArrayRef>,
    /// Numbers of nulls.
    pub null_count: Option<UInt64Array>,
    /// Numbers of NaN values; for floats only.
    pub nan_count: Option<UInt64Array>,
    /// Sums in the widened type of [statistics](crate::stats::FieldStats::sum). A null sum is unknown.
    pub sum: Option<ArrayRef>,
    /// Whether bounds are values of their zone.
    pub(crate) is_exact: bool,
}

impl ZoneMap {
    pub(super) fn read(zones: &Zones, table: &EncodedRef) -> Result<Self> {
        let table = table.decode_preferred()?;
        let table = table.as_struct_opt().ok_or_else(|| Error::corrupt("zone table is not a struct"))?;
        let mut map = ZoneMap {
            dtype: zones.dtype.clone(),
            zone_len: zones.zone_len,
            row_count: zones.row_count,
            zone_count: table.len(),
            min: None,
            max: None,
            null_count: None,
            nan_count: None,
            sum: None,
            is_exact: zones.has_exact_bounds(),
        };
        for (column, values) in zones.columns.iter().zip(table.columns()) {
            match column {
                // They rule out nothing: values of nested types are not compared.
                bound if bound.is_bound() && zones.dtype.is_nested() => {}
                ZoneColumn::Min | ZoneColumn::BoundedMin => map.min = Some(Arc::clone(values)),
                ZoneColumn::Max => map.max = Some(Arc::clone(values)),
                ZoneColumn::BoundedMax => map.max = Some(bounded(values)?),
                ZoneColumn::NullCount if zones.dtype.has_nullable_variants() => {}
                ZoneColumn::NullCount => map.null_count = values.as_primitive_opt::<UInt64Type>().cloned(),
                ZoneColumn::NanCount => map.nan_count = values.as_primitive_opt::<UInt64Type>().cloned(),
                ZoneColumn::Sum => map.sum = Some(Arc::clone(values)),
                // Nothing uses the others.
                _ => {}
            }
        }
        // Zones may share a long bound, but what evaluates filters copies it for each of them.
        let bounds = [&map.min, &map.max].into_iter().flatten();
        let bytes = bounds.map(|bounds| copied_bytes(bounds)).fold(0, u64::saturating_add);
        if bytes > MAX_BOUND_BYTES.max(map.zone_count as u64 * MAX_BYTES_PER_ZONE) {
            return Err(Error::limit(format!("bounds of {} zones take {bytes} bytes", map.zone_count)));
        }
        Ok(map)
    }

    /// Converts file statistics to a map of one zone.
    pub(crate) fn of_file(stats: &FieldStats, dtype: &DType, row_count: u64) -> Result<Self> {
        let arrow = data_type(dtype)?;
        let bound = |bound: &Precision<Scalar>| bound.value().and_then(|v| v.to_arrow(&arrow, 1).ok());
        let count = |count: Option<u64>| count.map(|count| UInt64Array::from(vec![count]));
        let sum = stats.sum.as_ref().and_then(|sum| sum.to_arrow(&data_type(sum.dtype()).ok()?, 1).ok());
        let is_exact = |bound: &Precision<Scalar>| !matches!(bound, Precision::Inexact(_));
        Ok(Self {
            dtype: dtype.clone(),
            zone_len: row_count.max(1),
            row_count,
            zone_count: 1,
            min: bound(&stats.min),
            max: bound(&stats.max),
            null_count: count(stats.null_count),
            nan_count: count(stats.nan_count),
            sum,
            is_exact: is_exact(&stats.min) && is_exact(&stats.max),
        })
    }

    /// Approximate memory size in bytes.
    pub fn memory_size(&self) -> usize {
        let values = [&self.min, &self.max, &self.sum]
            .into_iter()
            .flatten()
            .map(|bound| bound.get_array_memory_size());
        let counts = [&self.null_count, &self.nan_count]
            .into_iter()
            .flatten()
            .map(|count| count.get_array_memory_size());
        size_of::<Self>() + values.chain(counts).sum::<usize>()
    }

    /// Number of rows of a zone.
    pub fn rows_of(&self, zone: usize) -> u64 {
        let start = (zone as u64).saturating_mul(self.zone_len);
        self.row_count.saturating_sub(start).min(self.zone_len)
    }

    /// Number of nulls in a zone, if it is known and plausible.
    pub(crate) fn nulls_of(&self, zone: usize) -> Option<u64> {
        if !self.dtype.is_nullable() {
            return Some(0);
        }
        count_at(&self.null_count, zone).filter(|count| *count <= self.rows_of(zone))
    }

    /// Number of NaN values in a zone, if it is stated.
    pub(crate) fn nans_of(&self, zone: usize) -> Option<u64> {
        count_at(&self.nan_count, zone)
    }

    /// Whether a zone may contain NaN, which its bounds do not cover.
    pub(crate) fn may_have_nan(&self, zone: usize) -> bool {
        is_float(&self.dtype) && self.nans_of(zone) != Some(0)
    }

    /// The type of bounds: that of the column, but nullable.
    pub(crate) fn bound_dtype(&self) -> DType {
        self.dtype.with_nullable(true)
    }

    /// The bounds of a zone that are stated. `dtype` is [`bound_dtype`](Self::bound_dtype), made once for many zones.
    pub(crate) fn bounds_of(&self, zone: usize, dtype: &DType) -> (Option<Scalar>, Option<Scalar>) {
        (scalar_at(&self.min, zone, dtype), scalar_at(&self.max, zone, dtype))
    }

    /// The sum of a zone, if it is stated.
    pub(crate) fn sum_of(&self, zone: usize) -> Option<Scalar> {
        scalar_at(&self.sum, zone, &sum_dtype(&self.dtype)?)
    }
}

fn count_at(counts: &Option<UInt64Array>, zone: usize) -> Option<u64> {
    counts.as_ref().filter(|counts| counts.is_valid(zone)).map(|counts| counts.value(zone))
}

fn scalar_at(values: &Option<ArrayRef>, zone: usize, dtype: &DType) -> Option<Scalar> {
    let values = values.as_ref().filter(|values| zone < values.len() && values.is_valid(zone))?;
    Scalar::from_arrow(values.as_ref(), zone, dtype).ok()
}

/// Converts `struct{bound, unknown}` to bounds that are null where they are unknown.
fn bounded(column: &ArrayRef) -> Result<ArrayRef> {
    let parts = column.as_struct_opt().filter(|parts| parts.num_columns() == 2);
    let parts = parts.ok_or_else(|| Error::corrupt("zone bound is not a struct of two fields"))?;
    let (bound, unknown) = (parts.column(0), parts.column(1));
    if unknown.data_type() != &DataType::Boolean {
        return Ok(new_null_array(bound.data_type(), bound.len()));
    }
    let bound = nullif(bound, unknown.as_boolean())?;
    Ok(nullif(&bound, &arrow::compute::is_null(column)?)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, RecordBatch, StringArray, StringViewBuilder, StructArray};

    use super::*;
    use crate::array::Decoded;
    use crate::given::file_of;
    use crate::limits::Limits;

    /// Rows that share their texts, which are of this length.
    fn sharing(data_type: &DataType, rows: usize, text_len: usize) -> ArrayRef {
        match data_type {
            DataType::Utf8View => {
                let mut views = StringViewBuilder::new();
                let block = views.append_block("a".repeat(text_len).into_bytes().into());
                let len = u32::try_from(text_len).unwrap();
                (0..rows).for_each(|_| views.try_append_view(block, 0, len).unwrap());
                Arc::new(views.finish())
            }
            DataType::Boolean => Arc::new(BooleanArray::from(vec![false; rows])),
            DataType::Struct(fields) => {
                let columns = fields.iter().map(|field| sharing(field.data_type(), rows, text_len));
                Arc::new(StructArray::new(fields.clone(), columns.collect(), None))
            }
            other => arrow::compute::cast(&UInt64Array::from(vec![0; rows]), other).unwrap(),
        }
    }

    #[tokio::test]
    async fn bounds_that_many_zones_share_count_for_each() {
        let texts = Arc::new(StringArray::from(vec!["a"; 20_000]));
        let file = file_of([RecordBatch::try_from_iter([("text", texts as _)]).unwrap()]).await;
        let column = file.footer().layout().field(0).unwrap().unwrap();
        let (zones, limits) = (column.zones().unwrap(), Limits::default());
        let read = |text_len| {
            let dtype = zones.table().dtype();
            let table = sharing(&data_type(dtype).unwrap(), 20_000, text_len);
            ZoneMap::read(zones, &(Arc::new(Decoded::new(dtype.clone(), table, &limits)) as EncodedRef))
        };
        assert_eq!(read(64).unwrap().zone_count, 20_000);
        let error = read(100_000).unwrap_err();
        assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
    }
}
