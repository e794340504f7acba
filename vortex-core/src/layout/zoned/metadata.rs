//! Serializes which columns a zone table has.

use prost::Message as _;

use super::{AggregateSpec, NanOptions, ZonedMetadata};
use crate::stats::text_bounds::MAX_BOUND_BYTES;

/// A column of a zone table to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Max,
    Min,
    BoundedMax,
    BoundedMin,
    NullCount,
    NanCount,
    /// Whether the bound in the preceding column is truncated; only in `vortex.stats`.
    Flag,
}

/// The metadata of `vortex.stats`, whose columns are ordered by the numbers of their statistics.
pub(crate) fn stats(zone_len: u32, columns: &[Kind]) -> Vec<u8> {
    let bit = |kind: &Kind| match kind {
        Kind::Max | Kind::BoundedMax => 1u16 << 3,
        Kind::Min | Kind::BoundedMin => 1 << 4,
        Kind::NullCount => 1 << 6,
        Kind::NanCount => 1 << 8,
        Kind::Flag => 0,
    };
    let bits = columns.iter().fold(0, |bits, kind| bits | bit(kind));
    let mut metadata = zone_len.to_le_bytes().to_vec();
    metadata.extend(bits.to_le_bytes());
    metadata
}

/// The metadata of `vortex.zoned`, which lists the columns in order.
pub(crate) fn zoned(zone_len: u32, columns: &[Kind]) -> Vec<u8> {
    let skip_nans = || NanOptions { skip_nans: true }.encode_to_vec();
    let max_bytes = || (MAX_BOUND_BYTES as u64).to_le_bytes().to_vec();
    let spec = |kind: &Kind| {
        let (id, options) = match kind {
            Kind::Max => ("vortex.max", skip_nans()),
            Kind::Min => ("vortex.min", skip_nans()),
            Kind::BoundedMax => ("vortex.bounded_max", max_bytes()),
            Kind::BoundedMin => ("vortex.bounded_min", max_bytes()),
            Kind::NullCount => ("vortex.null_count", Vec::new()),
            Kind::NanCount => ("vortex.nan_count", Vec::new()),
            Kind::Flag => return None,
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
    fn metadata_is_what_released_writers_write() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let metadata = zoned(8192, &[Kind::Max, Kind::Min, Kind::NullCount]);
        assert_eq!(metadata.len(), 61);
        assert_eq!(metadata[..6], [1, 0x08, 0x80, 0x40, 0x12, 0x10]);
        assert!(text(&metadata).ends_with("vortex.null_count"));
        assert_eq!(
            stats(8192, &[Kind::Max, Kind::Flag, Kind::Min, Kind::Flag, Kind::NullCount]),
            [0, 0x20, 0, 0, 0x58, 0]
        );
        assert_eq!(stats(8192, &[Kind::NullCount, Kind::NanCount])[4..], [0x40, 1]);
    }
}
