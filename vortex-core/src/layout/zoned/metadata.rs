//! Which columns a zone table has: a column per statistic, as listed in the metadata of the layout.
//!
//! - `vortex.stats` (0.36 to 0.75): `zone_len` as u32, then a bit set of statistic numbers;
//!   columns in order of the numbers, each minimum and maximum followed by a flag column.
//! - `vortex.zoned` (since 0.76): version byte 1, then protobuf with `zone_len` and the
//!   aggregates in column order.

use std::sync::Arc;

use prost::Message as _;

use crate::dtype::{DType, PType, StructType};
use crate::stats::text_bounds::MAX_BOUND_BYTES;
use crate::stats::{is_float, sum_dtype};

/// The content of a column of a zone table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZoneColumn {
    /// Maximum value, ignoring nulls and NaN, or an upper bound.
    Max,
    /// Minimum value, ignoring nulls and NaN, or a lower bound.
    Min,
    /// `struct{bound, unknown}`: an upper bound, or the information that none is known.
    BoundedMax,
    /// A lower bound.
    BoundedMin,
    /// Whether the bound in the preceding column is truncated; only in `vortex.stats`.
    Truncated,
    /// Number of nulls.
    NullCount,
    /// Number of NaN values.
    NanCount,
    /// A minimum or maximum for which NaN counts as a value, unlike for pruning.
    NanBound,
    Sum,
    IsConstant,
    IsSorted,
    IsStrictSorted,
    /// Size of the decoded values.
    ByteSize,
    BloomFilter,
}

/// The columns of a zone table, and their types.
pub(super) type Columns = Vec<(ZoneColumn, DType)>;

/// The statistics of `vortex.stats`, in the order of their numbers.
const NUMBERED: [ZoneColumn; 9] = [
    ZoneColumn::IsConstant,
    ZoneColumn::IsSorted,
    ZoneColumn::IsStrictSorted,
    ZoneColumn::Max,
    ZoneColumn::Min,
    ZoneColumn::Sum,
    ZoneColumn::NullCount,
    ZoneColumn::ByteSize,
    ZoneColumn::NanCount,
];

/// The aggregates of `vortex.zoned`.
const AGGREGATES: [(&str, ZoneColumn); 9] = [
    ("vortex.max", ZoneColumn::Max),
    ("vortex.min", ZoneColumn::Min),
    ("vortex.bounded_max", ZoneColumn::BoundedMax),
    ("vortex.bounded_min", ZoneColumn::BoundedMin),
    ("vortex.null_count", ZoneColumn::NullCount),
    ("vortex.nan_count", ZoneColumn::NanCount),
    ("vortex.sum", ZoneColumn::Sum),
    ("vortex.uncompressed_size_in_bytes", ZoneColumn::ByteSize),
    ("vortex.bloom_filter.sbbf", ZoneColumn::BloomFilter),
];

impl ZoneColumn {
    /// The type of the column in the table of a column of type `dtype`; `None` if there is none for this type.
    pub(crate) fn dtype(self, dtype: &DType) -> Option<DType> {
        match self {
            Self::Max | Self::Min | Self::BoundedMin | Self::NanBound => Some(dtype.with_nullable(true)),
            Self::BoundedMax => Some(DType::Struct(Arc::new(bounded(dtype)), true)),
            Self::NullCount | Self::ByteSize => Some(DType::Primitive(PType::U64, true)),
            Self::NanCount => is_float(dtype).then_some(DType::Primitive(PType::U64, true)),
            Self::Sum => sum_dtype(dtype),
            Self::Truncated => Some(DType::Bool(false)),
            Self::IsConstant | Self::IsSorted | Self::IsStrictSorted => Some(DType::Bool(true)),
            Self::BloomFilter => Some(DType::Binary(true)),
        }
    }

    fn of(self, dtype: &DType) -> Option<(Self, DType)> {
        Some((self, self.dtype(dtype)?))
    }

    pub(super) fn is_bound(self) -> bool {
        matches!(self, Self::Max | Self::Min | Self::BoundedMax | Self::BoundedMin)
    }
}

/// The fields of [`ZoneColumn::BoundedMax`], for a column of type `dtype`.
pub(crate) fn bounded(dtype: &DType) -> StructType {
    StructType::new([("bound".into(), dtype.with_nullable(true)), ("unknown".into(), DType::Bool(false))])
}

/// Reads the metadata of `vortex.stats`, for a column of type `dtype`: rows per zone, and columns; `None` if it is too
/// short.
pub(super) fn read_stats(metadata: &[u8], dtype: &DType) -> Option<(u64, Columns)> {
    let (zone_len, bits) = metadata.split_first_chunk::<4>()?;
    let is_present = |number: usize| bits.get(number / 8).is_some_and(|byte| byte >> (number % 8) & 1 == 1);
    let mut columns = Columns::new();
    for (_, column) in NUMBERED.into_iter().enumerate().filter(|(number, _)| is_present(*number)) {
        match column {
            ZoneColumn::Max | ZoneColumn::Min if dtype == &DType::Null => {}
            ZoneColumn::Max | ZoneColumn::Min => {
                columns.extend(column.of(dtype));
                columns.extend(ZoneColumn::Truncated.of(dtype));
            }
            // Release 0.36 summed extension columns by their storage.
            ZoneColumn::Sum => columns.extend(column.of(dtype.storage())),
            _ => columns.extend(column.of(dtype)),
        }
    }
    Some((u64::from(u32::from_le_bytes(*zone_len)), columns))
}

/// The metadata of `vortex.stats`, whose columns are ordered by the numbers of their statistics.
pub(crate) fn write_stats(zone_len: u32, columns: &[ZoneColumn]) -> Vec<u8> {
    let numbers = (0..NUMBERED.len()).filter(|number| columns.contains(&NUMBERED[*number]));
    let bits = numbers.fold(0u16, |bits, number| bits | 1 << number);
    let mut metadata = zone_len.to_le_bytes().to_vec();
    metadata.extend(bits.to_le_bytes());
    metadata
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

/// Bytes of metadata beyond which it is not read: aggregates take far more bytes once they are parsed, of which there
/// are a dozen.
const MAX_MESSAGE: usize = 64 << 10;

/// Reads the metadata of `vortex.zoned`, for a column of type `dtype`: rows per zone, and columns. `None` if
/// it is unknown what the table contains.
pub(super) fn read_zoned(metadata: &[u8], dtype: &DType) -> Option<(u64, Columns)> {
    let Some((1, message)) = metadata.split_first() else { return None };
    let metadata =
        ZonedMetadata::decode(Some(message).filter(|message| message.len() <= MAX_MESSAGE)?).ok()?;
    let mut columns = Columns::new();
    for spec in &metadata.aggregates {
        let column = aggregate(spec, dtype)?;
        if !column.is_bound() || is_comparable(dtype) {
            columns.extend(column.of(dtype));
        }
    }
    Some((metadata.zone_len.into(), columns))
}

/// The column of an aggregate; `None` if it is unknown.
fn aggregate(spec: &AggregateSpec, dtype: &DType) -> Option<ZoneColumn> {
    let (_, column) = AGGREGATES.into_iter().find(|(id, _)| *id == spec.id)?;
    if !is_float(dtype) || !matches!(column, ZoneColumn::Max | ZoneColumn::Min) {
        return Some(column);
    }
    let skips_nans = NanOptions::decode(spec.options.as_slice()).is_ok_and(|options| options.skip_nans);
    Some(if skips_nans { column } else { ZoneColumn::NanBound })
}

fn is_comparable(dtype: &DType) -> bool {
    match dtype.storage() {
        DType::List(element, _) | DType::FixedSizeList(element, _, _) => is_comparable(element),
        other => other.is_scalar(),
    }
}

/// The metadata of `vortex.zoned`, which lists the columns in order.
pub(crate) fn write_zoned(zone_len: u32, columns: &[ZoneColumn]) -> Vec<u8> {
    let spec = |column: &ZoneColumn| {
        let (id, _) = AGGREGATES.into_iter().find(|(_, aggregate)| aggregate == column)?;
        let options = match column {
            ZoneColumn::Max | ZoneColumn::Min => NanOptions { skip_nans: true }.encode_to_vec(),
            ZoneColumn::BoundedMax | ZoneColumn::BoundedMin => {
                (MAX_BOUND_BYTES as u64).to_le_bytes().to_vec()
            }
            _ => Vec::new(),
        };
        Some(AggregateSpec { id: id.to_owned(), options })
    };
    let message = ZonedMetadata { zone_len, aggregates: columns.iter().filter_map(spec).collect() };
    let mut metadata = vec![1];
    metadata.extend(message.encode_to_vec());
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_metadata_is_not_read() {
        let of = |count: usize| {
            let aggregates = vec![AggregateSpec { id: AGGREGATES[0].0.to_owned(), options: vec![] }; count];
            let message = ZonedMetadata { zone_len: 8, aggregates };
            read_zoned(&[vec![1], message.encode_to_vec()].concat(), &DType::Bool(false))
        };
        assert!(of(2).is_some() && of(MAX_MESSAGE).is_none());
    }

    #[test]
    fn metadata_that_is_too_short_describes_no_table() {
        let metadata = write_stats(8192, &[ZoneColumn::NullCount]);
        assert!(read_stats(&metadata, &DType::Bool(true)).is_some());
        assert!((0..4).all(|len| read_stats(&metadata[..len], &DType::Bool(true)).is_none()));
    }

    #[test]
    fn metadata_is_what_released_writers_write() {
        use ZoneColumn::{Max, Min, NanCount, NullCount, Truncated};

        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let metadata = write_zoned(8192, &[Max, Min, NullCount]);
        assert_eq!(metadata.len(), 61);
        assert_eq!(metadata[..6], [1, 0x08, 0x80, 0x40, 0x12, 0x10]);
        assert!(text(&metadata).ends_with("vortex.null_count"));
        assert_eq!(write_stats(8192, &[Max, Truncated, Min, Truncated, NullCount]), [0, 0x20, 0, 0, 0x58, 0]);
        assert_eq!(write_stats(8192, &[NullCount, NanCount])[4..], [0x40, 1]);
    }
}
