//! Latency and bandwidth of a store, learnt from the reads that it answers.
//!
//! The largest gap worth reading is what a stream delivers in the time that another request would wait
//! for its first byte: latency times bandwidth.

use std::time::Duration;

use super::StorageProfile;

/// Weight of the latest measurement.
const WEIGHT: f64 = 0.125;
/// Smaller reads are not used to measure bandwidth.
const MIN_MEASURED: u64 = 256 << 10;

/// Latency and bandwidth, as exponentially weighted averages.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Seconds to the first byte.
    latency: Option<f64>,
    /// Bytes per second of one stream.
    bandwidth: Option<f64>,
}

impl Pace {
    /// Records a read: the time to its first byte, and the time from then to the last of its `bytes`.
    pub(super) fn note(&mut self, first_byte: Duration, rest: Duration, bytes: u64) {
        blend(&mut self.latency, first_byte.as_secs_f64());
        if bytes >= MIN_MEASURED && rest > Duration::ZERO {
            blend(&mut self.bandwidth, bytes as f64 / rest.as_secs_f64());
        }
    }

    /// What a stream delivers in the time that a request waits for its first byte, if both were measured.
    pub(super) fn bytes_per_latency(&self) -> Option<u64> {
        // Casts from floats saturate.
        Some((self.latency? * self.bandwidth?) as u64)
    }

    /// The profile with the gap that is worth reading at this pace, limited by the declared one.
    pub(super) fn adapt(&self, profile: StorageProfile) -> StorageProfile {
        let Some(pays) = self.bytes_per_latency() else { return profile };
        let declared = profile.coalesce_gap;
        StorageProfile { coalesce_gap: pays.clamp(declared / 8, declared), ..profile }
    }

    /// The expected duration of a read of this many bytes, if it can be estimated.
    pub(super) fn expected(&self, bytes: u64) -> Option<Duration> {
        let streaming = match self.bandwidth {
            Some(bandwidth) => bytes as f64 / bandwidth,
            None if bytes < MIN_MEASURED => 0.0,
            None => return None,
        };
        Duration::try_from_secs_f64(self.latency? + streaming).ok()
    }

    /// How long to collect requests before sending the first of them.
    pub(super) fn patience(&self) -> Patience {
        let latency = Duration::from_secs_f64(self.latency.unwrap_or(0.0));
        let bound = |wait: Duration, most| wait.clamp(Duration::from_millis(1), Duration::from_millis(most));
        Patience { step: bound(latency / 8, 4), most: bound(latency / 2, 20) }
    }
}

/// How long to wait for requests that may share a read: while more arrive within each step, up to half
/// the latency of a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) step: Duration,
    pub(super) most: Duration,
}

fn blend(average: &mut Option<f64>, value: f64) {
    *average = Some(average.map_or(value, |before| before + WEIGHT * (value - before)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(first_byte: u64, bytes: u64, rest: u64) -> Pace {
        let mut pace = Pace::default();
        pace.note(Duration::from_millis(first_byte), Duration::from_millis(rest), bytes);
        pace
    }

    #[test]
    fn the_gap_is_what_a_stream_delivers_within_one_latency() {
        let profile = StorageProfile::REMOTE;
        assert_eq!(Pace::default().adapt(profile), profile);
        assert_eq!(after(10, 5_000_000, 100).adapt(profile).coalesce_gap, 500_000);
    }

    #[test]
    fn a_read_takes_its_latency_and_the_time_of_its_bytes() {
        let pace = after(10, 5_000_000, 100);
        assert_eq!(pace.expected(5_000_000), Some(Duration::from_millis(110)));
        assert_eq!(Pace::default().expected(1), None);
        assert_eq!(after(10, 1000, 1).expected(1000), Some(Duration::from_millis(10)));
        assert_eq!(after(10, 1000, 1).expected(1 << 20), None);
    }

    #[test]
    fn one_strange_answer_changes_little() {
        let mut pace = after(10, 5_000_000, 100);
        pace.note(Duration::from_secs(5), Duration::from_secs(1), 1 << 20);
        let gap = pace.adapt(StorageProfile::REMOTE).coalesce_gap;
        assert!(gap <= 2 * StorageProfile::REMOTE.coalesce_gap, "{gap}");
        assert!(pace.patience().most <= Duration::from_millis(20));
    }
}
