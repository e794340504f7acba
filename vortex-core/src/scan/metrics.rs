//! What a scan did, as plain numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a scan did, as plain counters that may be read while it runs.
        #[derive(Debug, Default)]
        #[non_exhaustive]
        pub struct ScanMetrics {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl ScanMetrics {
            /// Names and values of all counters.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

metrics! {
    /// Reads of storage.
    reads,
    /// Segments asked for.
    requests,
    /// Bytes read from storage.
    bytes_read,
    /// Bytes read that nobody asked for.
    bytes_wasted,
    /// Segments that were at hand already.
    segments_shared,
    /// Segments that an earlier scan has left in a cache of bytes.
    cache_hits,
    /// Reads that took so long that they were asked for a second time.
    reads_hedged,
    /// Most bytes of segments that the scan held or had in flight at once.
    peak_bytes,
    /// Splits the scan consists of.
    splits_planned,
    /// Splits skipped, by statistics and what was known of the filter from the start.
    splits_pruned,
    /// Splits skipped, by filters that tightened while scanning.
    splits_pruned_dynamic,
    /// Splits given up after they were asked for, by filters that tightened meanwhile.
    splits_withdrawn,
    /// Splits read.
    splits_scanned,
    /// Zones skipped by static filters.
    zones_pruned,
    /// Zones skipped by filters that tightened while scanning.
    zones_pruned_dynamic,
    /// Zones whose rows all match a filter, by statistics.
    zones_fully_matched,
    /// Rows skipped unread, by statistics.
    rows_pruned,
    /// Rows read and rejected by the filter.
    rows_filtered,
    /// Rows handed out.
    rows_produced,
    /// Nanoseconds that splits waited for bytes, summed.
    io_wait_nanos,
    /// Nanoseconds spent evaluating filters, summed.
    filter_nanos,
    /// Nanoseconds spent decoding, summed.
    decode_nanos,
}

impl ScanMetrics {
    pub(crate) fn add(counter: &AtomicU64, value: u64) {
        counter.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn raise(counter: &AtomicU64, value: u64) {
        counter.fetch_max(value, Ordering::Relaxed);
    }

    pub(crate) fn add_since(counter: &AtomicU64, start: Instant) {
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counter.fetch_add(nanos, Ordering::Relaxed);
    }
}
