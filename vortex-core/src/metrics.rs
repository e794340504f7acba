//! Counters of what a scan does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of what a scan does, which may be read while it runs.
        #[derive(Debug, Default)]
        #[non_exhaustive]
        pub struct ScanMetrics {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl ScanMetrics {
            /// The names and values of all counters.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

metrics! {
    /// Reads of storage.
    reads,
    /// Segments requested.
    requests,
    /// Bytes read from storage; those of a read count once it starts.
    bytes_read,
    /// Bytes read that were not requested.
    bytes_wasted,
    /// Segments that were already available.
    segments_shared,
    /// Segments that an earlier scan has left in a block cache.
    cache_hits,
    /// Reads that took so long that they were requested a second time.
    reads_hedged,
    /// Peak number of bytes of segments that the scan held or had in flight.
    peak_bytes,
    /// Splits that the scan consists of.
    splits_planned,
    /// Splits skipped because of statistics and what was known of the filter from the start.
    splits_pruned,
    /// Splits skipped because filters tightened during the scan.
    splits_pruned_dynamic,
    /// Splits dropped after they were requested, because filters tightened in the meantime.
    splits_withdrawn,
    /// Splits read.
    splits_scanned,
    /// Zones skipped by static filters, because of statistics.
    zones_pruned,
    /// Other zones skipped because of Bloom filters.
    zones_pruned_bloom,
    /// Zones skipped by filters that tightened during the scan.
    zones_pruned_dynamic,
    /// Zones whose rows all match a filter according to statistics.
    zones_fully_matched,
    /// Rows skipped without reading them, because of statistics.
    rows_pruned,
    /// Rows aggregated without reading them, from statistics.
    rows_answered,
    /// Rows read and rejected by the filter.
    rows_filtered,
    /// Rows returned, or aggregated.
    rows_produced,
    /// Total nanoseconds that splits waited for bytes.
    io_wait_nanos,
    /// Total nanoseconds spent evaluating filters.
    filter_nanos,
    /// Total nanoseconds spent decoding.
    decode_nanos,
}

/// A number that a scan, and the reads that it shares with others, add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to the number; outside of this crate, only tests of what shows it do.
    #[doc(hidden)]
    pub fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    pub(crate) fn add_since(&self, start: Instant) {
        self.add(nanos_since(start));
    }
}

/// The nanoseconds since `start`.
pub(crate) fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
