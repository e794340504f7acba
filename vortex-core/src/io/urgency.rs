//! The order in which requests are served.

/// The urgency of a request: first by what other requests depend on, then by the order of the splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency {
    class: Class,
    split: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Descriptions,
    ZoneMaps,
    Filter,
    Projection,
}

impl Urgency {
    /// Descriptions of files, which everything else depends on.
    pub(crate) const DESCRIPTION: Self = Self { class: Class::Descriptions, split: 0 };

    /// Statistics, which determine what else is read.
    pub(crate) const ZONE_MAPS: Self = Self { class: Class::ZoneMaps, split: 0 };

    /// Columns of a filter, for the split at position `split` of the scan.
    pub(crate) const fn filter(split: u64) -> Self {
        Self { class: Class::Filter, split }
    }

    /// Other columns, for the split at position `split` of the scan.
    pub(crate) const fn projection(split: u64) -> Self {
        Self { class: Class::Projection, split }
    }

    /// Whether more requests of the same kind are likely to follow shortly.
    pub(super) fn comes_in_crowds(self) -> bool {
        self.class >= Class::Filter
    }
}
