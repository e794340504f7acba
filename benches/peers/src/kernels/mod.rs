//! Decoding speed of each encoding, compared with the reference in the same run.
//!
//! ```text
//! Arrow array --reference encoder--> array --serialize--> bytes | --+-- ours: parse, load, decode
//!                                                               | --+-- reference: parse, to Arrow
//! ```
//!
//! What follows the bar is timed: from the bytes of a segment to an Arrow array. (The reference checks views of text
//! when it loads an array, ours when it decodes one.) Both implementations read the same bytes and load them again for
//! each round, so that neither can use cached results. They take turns; throughput is in decoded bytes. The mean
//! excludes cases stored without encoding, where some bytes of the file are returned unchanged.
//!
//! | module | what it defines |
//! |---|---|
//! | [`columns`] | the values |
//! | [`cases`] | how they are encoded |
//! | [`measure`] | what is timed |

mod cases;
mod columns;
mod measure;

use std::time::{Duration, Instant};

use datafusion::error::Result;

use crate::report::{geometric_mean, median, write_head, write_row};

/// Larger than any cache.
const COPIED_BYTES: usize = 256 << 20;

/// What to decode, and how often.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub(crate) rows: usize,
    pub(crate) iterations: usize,
    /// Substrings of the names of cases; empty means all cases.
    pub(crate) only: Vec<String>,
    /// Whether to leave out the reference, for profiling.
    pub(crate) alone: bool,
}

/// The measurements of one case.
#[derive(Debug)]
struct Outcome {
    name: String,
    /// Size of the decoded array in bytes.
    bytes: usize,
    /// Whether the bytes in the file are those of the array.
    is_stored: bool,
    ours: Vec<Duration>,
    reference: Vec<Duration>,
    /// A problem with one of the answers.
    objection: Option<String>,
}

impl Kernels {
    /// Runs all cases; returns a Markdown table.
    pub(crate) fn run(&self) -> Result<String> {
        let mut outcomes = Vec::new();
        for case in cases::all(self.rows) {
            if self.only.is_empty() || self.only.iter().any(|part| case.name.contains(part.as_str())) {
                outcomes.push(measure::run(&case, self.iterations, self.alone)?);
            }
        }
        Ok(self.table(&outcomes))
    }

    fn table(&self, outcomes: &[Outcome]) -> String {
        let mut out = format!(
            "## Loading and decoding {} rows, GB/s of decoded bytes (copying memory: {:.1} GB/s)\n\n",
            self.rows,
            copy_throughput(),
        );
        let header = ["case", "MB", "ours", "reference", "ours / reference", "by least times"];
        write_head(&mut out, &header.map(str::to_owned));
        let mut ratios = Vec::new();
        for outcome in outcomes {
            let by_median = [&outcome.ours, &outcome.reference].map(|times| median(times));
            let by_least = [&outcome.ours, &outcome.reference].map(|times| least(times));
            let throughput = |millis: Option<f64>| {
                millis.map_or_else(String::new, |ms| format!("{:.2}", outcome.bytes as f64 / 1e6 / ms))
            };
            let ratio = |[ours, reference]: [Option<f64>; 2]| Some(reference? / ours?);
            let cell = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            if !outcome.is_stored {
                ratios.extend(ratio(by_median).zip(ratio(by_least)));
            }
            let megabytes = format!("{:.2}", outcome.bytes as f64 / 1e6);
            let [ours, reference] = by_median.map(throughput);
            let ratios = [cell(ratio(by_median)), cell(ratio(by_least))];
            let [by_median, by_least] = ratios;
            write_row(&mut out, &[outcome.name.clone(), megabytes, ours, reference, by_median, by_least]);
        }
        let mean = |values: &mut dyn Iterator<Item = f64>| {
            geometric_mean(values).map_or_else(String::new, |mean| format!("**{mean:.2}**"))
        };
        let means = [
            mean(&mut ratios.iter().map(|(by_median, _)| *by_median)),
            mean(&mut ratios.iter().map(|(_, by_least)| *by_least)),
        ];
        let [by_median, by_least] = means;
        let name = format!("**geomean of {}**", ratios.len());
        write_row(&mut out, &[name, String::new(), String::new(), String::new(), by_median, by_least]);
        for outcome in outcomes {
            if let Some(objection) = &outcome.objection {
                out.push_str(&format!("\n{}: {objection}", outcome.name));
            }
        }
        out
    }
}

/// The shortest time in milliseconds.
fn least(times: &[Duration]) -> Option<f64> {
    times.iter().min().map(|time| time.as_secs_f64() * 1e3)
}

/// The throughput in GB/s of copying memory on one thread.
fn copy_throughput() -> f64 {
    let from = vec![1u8; COPIED_BYTES];
    let mut to = vec![2u8; COPIED_BYTES];
    let times: Vec<Duration> = (0..5)
        .map(|_| {
            let start = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
            start.elapsed()
        })
        .collect();
    median(&times).map_or(0.0, |millis| COPIED_BYTES as f64 / 1e6 / millis)
}
