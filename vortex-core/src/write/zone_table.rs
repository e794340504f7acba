//! Zone maps on their way out: a table of one row per zone, in one of the two forms of
//! [`layout::zoned`](crate::layout::ZoneMap).

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef as ArrowRef, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array,
    PrimitiveArray, StringViewArray, StructArray, UInt64Array, make_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::ZONE_LEN;
use crate::compress::Compressor;
use crate::dtype::arrow::{data_type, field};
use crate::dtype::{DType, PType, StructType};
use crate::layout::zone_metadata::{self, Kind};
use crate::scalar::Value;
use crate::stats::compute::{Extreme, Zone, has_bounds};
use crate::stats::is_float;
use crate::wire::WriteNode;
use crate::{Release, Result};

/// The first release that reads `vortex.zoned`, whose files all later ones read.
const ZONED_SINCE: Release = Release::new(0, 84);
/// The first release that reads half-precision scalars as the format has them today.
const HALF_SINCE: Release = Release::new(0, 44);

/// The zone map of a column.
#[derive(Debug)]
pub(super) struct ZoneTable {
    /// The id of the layout.
    pub(super) id: &'static str,
    pub(super) metadata: Vec<u8>,
    pub(super) table: WriteNode,
    pub(super) zone_count: u64,
}

/// Whether bounds of this type are shown to readers of `min_reader`.
pub(super) fn shows_bounds(dtype: &DType, min_reader: Release) -> bool {
    let half = matches!(dtype.storage(), DType::Primitive(PType::F16, _));
    has_bounds(dtype) && (!half || min_reader >= HALF_SINCE)
}

impl ZoneTable {
    /// Makes the table.
    ///
    /// # Errors
    /// If the compressor refuses the type.
    pub(super) fn new(
        zones: &[Zone],
        dtype: &DType,
        min_reader: Release,
        compressor: &Compressor,
    ) -> Result<Self> {
        let zoned = min_reader >= ZONED_SINCE;
        let mut columns: Vec<(Kind, ArrowRef, DType)> = Vec::new();
        let mut add = |kind, array: ArrowRef, dtype| columns.push((kind, array, dtype));
        let count = |of: fn(&Zone) -> u64| -> ArrowRef {
            Arc::new(UInt64Array::from_iter_values(zones.iter().map(of)))
        };
        let counts = DType::Primitive(PType::U64, true);
        if shows_bounds(dtype, min_reader) {
            let bounds = |of: fn(&Zone) -> &Extreme| -> Result<ArrowRef> {
                values(zones.iter().map(|zone| of(zone).bound()), dtype)
            };
            let (min, max) = (bounds(|zone| &zone.min)?, bounds(|zone| &zone.max)?);
            let bound = dtype.with_nullable(true);
            if min.null_count() + max.null_count() < 2 * zones.len() {
                let text = matches!(dtype.storage(), DType::Utf8(_) | DType::Binary(_));
                if zoned && text {
                    let unknown = zones.iter().map(|zone| zone.max == Extreme::Unbounded).collect::<Vec<_>>();
                    let nothing = zones.iter().map(|zone| zone.max != Extreme::Nothing);
                    let (array, dtype) = bounded(max, unknown, nothing.collect(), &bound)?;
                    add(Kind::BoundedMax, array, dtype);
                    add(Kind::BoundedMin, min, bound);
                } else {
                    add(Kind::Max, max, bound.clone());
                    if !zoned {
                        add(Kind::Flag, truncated(zones, |zone| &zone.max), DType::Bool(false));
                    }
                    add(Kind::Min, min, bound);
                    if !zoned {
                        add(Kind::Flag, truncated(zones, |zone| &zone.min), DType::Bool(false));
                    }
                }
            }
        }
        let nulls = (Kind::NullCount, count(|zone| zone.null_count));
        let nans = is_float(dtype).then(|| (Kind::NanCount, count(|zone| zone.nan_count)));
        // Columns follow their names in one form, numbers of statistics in the other.
        let counted = if zoned {
            nans.into_iter().chain([nulls]).collect::<Vec<_>>()
        } else {
            [nulls].into_iter().chain(nans).collect()
        };
        for (kind, array) in counted {
            add(kind, array, counts.clone());
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

/// Whether each bound is something else than a value of the zone.
fn truncated(zones: &[Zone], of: fn(&Zone) -> &Extreme) -> ArrowRef {
    let inexact = |extreme: &Extreme| matches!(extreme, Extreme::Bound { exact: false, .. });
    Arc::new(zones.iter().map(|zone| Some(inexact(of(zone)))).collect::<BooleanArray>())
}

/// `struct{bound, unknown}`: null where there is no value at all.
fn bounded(
    bound: ArrowRef,
    unknown: Vec<bool>,
    has_values: Vec<bool>,
    dtype: &DType,
) -> Result<(ArrowRef, DType)> {
    let fields = [("bound".into(), dtype.clone()), ("unknown".into(), DType::Bool(false))];
    let fields = StructType::new(fields);
    let arrow = fields.fields().map(|(name, dtype)| field(name, dtype)).collect::<Result<Vec<_>>>()?;
    let columns: Vec<ArrowRef> = vec![bound, Arc::new(BooleanArray::from(unknown))];
    let array = StructArray::try_new(arrow.into(), columns, Some(NullBuffer::from(has_values)))?;
    Ok((Arc::new(array), DType::Struct(Arc::new(fields), true)))
}

/// Values of a type in the Arrow type that decoding prefers.
fn values<'a>(values: impl Iterator<Item = Option<&'a Value>>, dtype: &DType) -> Result<ArrowRef> {
    let to = data_type(dtype)?;
    macro_rules! primitive {
        ($T:ty, $pattern:pat => $value:expr) => {
            primitive::<$T>(values.map(|value| match value? {
                $pattern => Some($value as <$T as ArrowPrimitiveType>::Native),
                _ => None,
            }))
        };
    }
    let array: ArrowRef = match dtype.storage() {
        DType::Bool(_) => Arc::new(
            values
                .map(|value| match value? {
                    Value::Bool(v) => Some(*v),
                    _ => None,
                })
                .collect::<BooleanArray>(),
        ),
        DType::Primitive(ptype, _) => match ptype {
            PType::U8 => primitive!(UInt8Type, Value::UInt(v) => *v),
            PType::U16 => primitive!(UInt16Type, Value::UInt(v) => *v),
            PType::U32 => primitive!(UInt32Type, Value::UInt(v) => *v),
            PType::U64 => primitive!(UInt64Type, Value::UInt(v) => *v),
            PType::I8 => primitive!(Int8Type, Value::Int(v) => *v),
            PType::I16 => primitive!(Int16Type, Value::Int(v) => *v),
            PType::I32 => primitive!(Int32Type, Value::Int(v) => *v),
            PType::I64 => primitive!(Int64Type, Value::Int(v) => *v),
            PType::F16 => primitive!(Float16Type, Value::F16(v) => *v),
            PType::F32 => primitive!(Float32Type, Value::F32(v) => *v),
            PType::F64 => primitive!(Float64Type, Value::F64(v) => *v),
        },
        DType::Decimal(..) => {
            let values = values.map(|value| match value? {
                Value::Decimal(v) => Some(*v),
                _ => None,
            });
            match to {
                DataType::Decimal128(..) => Arc::new(
                    values.map(|v| v?.to_i128()).collect::<Decimal128Array>().with_data_type(to.clone()),
                ),
                _ => Arc::new(values.collect::<Decimal256Array>().with_data_type(to.clone())),
            }
        }
        DType::Utf8(_) => Arc::new(
            values
                .map(|value| match value? {
                    Value::Utf8(v) => Some(v.as_ref()),
                    _ => None,
                })
                .collect::<StringViewArray>(),
        ),
        _ => Arc::new(
            values
                .map(|value| match value? {
                    Value::Binary(v) => Some(v.as_ref()),
                    _ => None,
                })
                .collect::<BinaryViewArray>(),
        ),
    };
    if *array.data_type() == to {
        return Ok(array);
    }
    // Dates and times have the bytes of their integers.
    Ok(make_array(array.to_data().into_builder().data_type(to).build()?))
}

fn primitive<T: ArrowPrimitiveType>(values: impl Iterator<Item = Option<T::Native>>) -> ArrowRef {
    Arc::new(values.collect::<Vec<_>>().into_iter().collect::<PrimitiveArray<T>>())
}
