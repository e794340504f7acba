//! Which requests go first. Footers, which all else depends on, do not queue at all.

/// How urgent a request is: what others wait for first, then the order of the splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency {
    class: Class,
    split: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    ZoneMaps,
    Filter,
    Projection,
}

impl Urgency {
    /// Statistics, which decide what else is read.
    pub const ZONE_MAPS: Self = Self { class: Class::ZoneMaps, split: 0 };

    /// Columns of a filter, for the split that is wanted as number `split`.
    pub const fn filter(split: u64) -> Self {
        Self { class: Class::Filter, split }
    }

    /// Other columns, for the split that is wanted as number `split`.
    pub const fn projection(split: u64) -> Self {
        Self { class: Class::Projection, split }
    }

    /// Whether more requests of the same kind are likely to follow within moments.
    pub(super) fn comes_in_crowds(self) -> bool {
        self.class >= Class::Filter
    }
}
