//! The metrics of a scan, as shown by EXPLAIN ANALYZE.
//!
//! Names follow DataFusion's Parquet scan where the meaning is the same, so that existing dashboards work.
//! There is one set per partition, never one per file: their number would grow without bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datafusion_physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricCategory, MetricType, MetricValue,
    PruningMetrics, Time,
};
use vortex_core::scan::{Counter, ScanMetrics};

/// A counter of the core.
type Of = fn(&ScanMetrics) -> &Counter;

/// The counters of the core, each with its name here and the kind of metric.
const COUNTERS: &[(Of, &str, MetricType, MetricCategory)] = {
    use MetricCategory::{Bytes, Rows, Uncategorized};
    use MetricType::{Dev, Summary};
    &[
        (|scan| &scan.bytes_read, "bytes_scanned", Summary, Bytes),
        (|scan| &scan.bytes_wasted, "bytes_wasted_gap", Dev, Bytes),
        (|scan| &scan.reads, "reads", Summary, Uncategorized),
        (|scan| &scan.requests, "requests", Dev, Uncategorized),
        (|scan| &scan.segments_shared, "segments_shared", Dev, Uncategorized),
        (|scan| &scan.cache_hits, "cache_hits", Summary, Uncategorized),
        (|scan| &scan.reads_hedged, "reads_hedged", Dev, Uncategorized),
        (|scan| &scan.splits_planned, "splits_planned", Dev, Uncategorized),
        (|scan| &scan.splits_pruned, "splits_pruned", Dev, Uncategorized),
        (|scan| &scan.splits_pruned_dynamic, "splits_pruned_dynamic_filter", Dev, Uncategorized),
        (|scan| &scan.splits_withdrawn, "splits_withdrawn", Dev, Uncategorized),
        (|scan| &scan.splits_scanned, "splits_scanned", Dev, Uncategorized),
        (|scan| &scan.zones_pruned, "zones_pruned_statistics", Summary, Uncategorized),
        (|scan| &scan.zones_pruned_bloom, "zones_pruned_bloom_filter", Summary, Uncategorized),
        (|scan| &scan.zones_pruned_dynamic, "zones_pruned_dynamic_filter", Summary, Uncategorized),
        (|scan| &scan.zones_fully_matched, "zones_fully_matched", Dev, Uncategorized),
        (|scan| &scan.rows_pruned, "rows_pruned_statistics", Dev, Rows),
        (|scan| &scan.rows_answered, "rows_answered_statistics", Summary, Rows),
        (|scan| &scan.rows_filtered, "pushdown_rows_pruned", Summary, Rows),
        (|scan| &scan.rows_produced, "pushdown_rows_matched", Summary, Rows),
    ]
};

/// Durations measured by the core, in nanoseconds, each with its name here.
const TIMES: &[(Of, &str)] = &[
    (|scan| &scan.io_wait_nanos, "io_wait_time"),
    (|scan| &scan.filter_nanos, "predicate_eval_time"),
    (|scan| &scan.decode_nanos, "decode_time"),
];

/// The name of the most bytes that the scan of a file held or had in flight.
const PEAK: &str = "peak_inflight_bytes";

/// That gauge, if a partition has registered it: all have the same one, since DataFusion adds up those of partitions.
fn peak_of(set: &ExecutionPlanMetricsSet) -> Option<Gauge> {
    set.clone_inner().iter().find_map(|metric| match metric.value() {
        MetricValue::Gauge { name, gauge } if name == PEAK => Some(gauge.clone()),
        _ => None,
    })
}

/// The metrics of one partition of a scan.
#[derive(Debug, Clone)]
pub(crate) struct ScanCounters {
    /// Files and ranges of files, skipped or not, according to statistics known from planning.
    pub(crate) files_pruned: PruningMetrics,
    /// Time spent reading footers that were not cached.
    pub(crate) metadata_time: Time,
    /// Filters that could not be translated into checks of statistics.
    pub(crate) predicate_errors: Count,
    counters: Vec<(Of, Count)>,
    times: Vec<(Of, Time)>,
    peak: Gauge,
    read: Arc<ReadBytes>,
}

/// Bytes of the files, or ranges of files, that were read to the end, and how many of them were read.
#[derive(Debug, Default)]
struct ReadBytes {
    all: AtomicU64,
    read: AtomicU64,
}

impl ScanCounters {
    /// Registers the metrics of one partition.
    pub(crate) fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let summary = || MetricBuilder::new(set).with_type(MetricType::Summary);
        let counters = COUNTERS.iter().map(|(of, name, kind, category)| {
            let builder = MetricBuilder::new(set).with_type(*kind).with_category(*category);
            (*of, builder.counter(*name, partition))
        });
        let times = TIMES.iter().map(|(of, name)| (*of, summary().subset_time(*name, partition)));
        Self {
            files_pruned: summary().pruning_metrics("files_ranges_pruned_statistics", partition),
            metadata_time: summary().subset_time("metadata_load_time", partition),
            predicate_errors: MetricBuilder::new(set)
                .with_category(MetricCategory::Rows)
                .counter("num_predicate_creation_errors", partition),
            counters: counters.collect(),
            times: times.collect(),
            peak: peak_of(set).unwrap_or_else(|| {
                MetricBuilder::new(set)
                    .with_type(MetricType::Dev)
                    .with_category(MetricCategory::Bytes)
                    .gauge(PEAK, partition)
            }),
            read: Arc::default(),
        }
    }

    /// Metrics of the scan of one file of this length, or of a range; they are added to these when dropped.
    pub(crate) fn file(&self, len: u64) -> FileMetrics {
        FileMetrics { scan: Arc::default(), len, partition: self.clone() }
    }

    /// How many bytes of a file of this length are going to be read, as far as those before tell.
    pub(crate) fn expected_bytes(&self, len: u64) -> u64 {
        match self.read.all.load(Ordering::Relaxed) {
            0 => len,
            all => (len as f64 * self.read.read.load(Ordering::Relaxed) as f64 / all as f64) as u64,
        }
    }

    fn add(&self, scan: &ScanMetrics) {
        let count = |counter: &Counter| usize::try_from(counter.get()).unwrap_or(usize::MAX);
        for (of, counter) in &self.counters {
            counter.add(count(of(scan)));
        }
        for (of, time) in &self.times {
            time.add_duration(Duration::from_nanos(of(scan).get()));
        }
        // The maximum over all files of all partitions.
        self.peak.set_max(count(&scan.peak_bytes));
    }
}

/// The metrics of one file's scan.
#[derive(Debug)]
pub(crate) struct FileMetrics {
    scan: Arc<ScanMetrics>,
    len: u64,
    partition: ScanCounters,
}

impl FileMetrics {
    /// The counters that the core updates.
    pub(crate) fn scan(&self) -> &Arc<ScanMetrics> {
        &self.scan
    }

    /// Counts a file as pruned that was counted as read, but whose scan was stopped early.
    pub(crate) fn stopped_early(&self) {
        self.partition.files_pruned.add_pruned(1);
        self.partition.files_pruned.subtract_matched(1);
    }
}

impl Drop for FileMetrics {
    fn drop(&mut self) {
        self.partition.add(&self.scan);
        self.partition.read.all.fetch_add(self.len, Ordering::Relaxed);
        self.partition.read.read.fetch_add(self.scan.bytes_read.get(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_the_core_is_shown_once() {
        let scan = ScanMetrics::default();
        let shown = COUNTERS.iter().map(|entry| entry.0).chain(TIMES.iter().map(|entry| entry.0));
        shown.for_each(|of| of(&scan).add(1));
        scan.peak_bytes.add(1);
        let counts = scan.snapshot();
        assert!(counts.iter().all(|(_, count)| *count == 1), "{counts:?}");
    }

    #[test]
    fn the_counts_of_files_add_up() {
        let set = ExecutionPlanMetricsSet::new();
        let counters = ScanCounters::new(&set, 0);
        assert_eq!(counters.expected_bytes(1000), 1000);
        for bytes in [10, 32] {
            let file = counters.file(100);
            file.scan().bytes_read.add(bytes);
        }
        let total = set.clone_inner().sum_by_name("bytes_scanned").unwrap();
        assert_eq!(total.as_usize(), 42);
        assert_eq!(counters.expected_bytes(1000), 210);
    }

    #[test]
    fn the_peak_is_that_of_all_partitions() {
        let set = ExecutionPlanMetricsSet::new();
        for (partition, bytes) in [10, 32, 20].into_iter().enumerate() {
            ScanCounters::new(&set, partition).file(100).scan().peak_bytes.add(bytes);
        }
        assert_eq!(set.clone_inner().sum_by_name(PEAK).unwrap().as_usize(), 32);
    }
}
