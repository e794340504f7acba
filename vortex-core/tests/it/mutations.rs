//! Damaged files result in values or errors, but never in a panic, a hang, or memory use that grows
//! because a header claims so. Decoded data is valid Arrow, and a pushed-down operation returns the same as
//! the operation on decoded rows.
//!
//! Every mutant has its own seed. `VORTEX_MUTATION_SEED` sets the first one and `VORTEX_MUTATIONS` the
//! number of mutants; a failure reports its seed and keeps the mutant's bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::allocations::{self, Watch};
use crate::mutant_reads::read_all_ways;
use crate::mutants::{mutate, of_long_segments, specimens};
use crate::random::Random;

/// Default number of mutants per run.
const MUTANTS: u64 = 4000;
/// Default of the first seed.
const SEED: u64 = 1;
/// Maximum time per mutant.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Limits of a single allocation, and of the peak memory of a mutant.
const MAX_ALLOCATION: usize = 1 << 30;
const MAX_PEAK: usize = 2 << 30;
/// One in this many mutants is made of a generated file, the others of golden files.
const GENERATED: usize = 25;
/// Number of failures after which a run stops.
const MAX_FAILURES: usize = 20;

/// Ends the process if a mutant takes too long, reporting its seed: nothing else can stop an endless loop.
fn start_watchdog(at_work_on: &Arc<AtomicU64>) {
    let at_work_on = Arc::clone(at_work_on);
    std::thread::spawn(move || {
        let (mut last, mut since) = (u64::MAX, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = at_work_on.load(Ordering::Relaxed);
            if now == u64::MAX {
                return;
            }
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > MAX_TIME {
                eprintln!("the mutant of seed {now} takes longer than {MAX_TIME:?}");
                std::process::abort();
            }
        }
    });
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Reads one mutant: returns whether it decodes, or what is wrong.
fn check(runtime: &Runtime, bytes: &[u8], random: &mut Random, watch: Watch) -> Result<bool, String> {
    let read = || runtime.block_on(read_all_ways(bytes.to_vec(), random));
    let outcome = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", message.unwrap_or_default()))
    })?;
    if watch.largest() > MAX_ALLOCATION || watch.peak() > MAX_PEAK {
        return Err(format!("{} bytes requested at once, {} in all", watch.largest(), watch.peak()));
    }
    Ok(outcome)
}

fn keep(seed: u64, bytes: &[u8]) -> String {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutant-{seed}.vortex"));
    std::fs::write(&kept, bytes).expect("a writable folder");
    kept.display().to_string()
}

#[test]
fn mutants_of_golden_files_do_no_harm() {
    let specimens = specimens();
    let (first, count) = (from_env("VORTEX_MUTATION_SEED", SEED), from_env("VORTEX_MUTATIONS", MUTANTS));
    println!("seeds {first} to {}, {} files", first.saturating_add(count), specimens.len());
    let at_work_on = Arc::new(AtomicU64::new(first));
    start_watchdog(&at_work_on);
    let start =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let mut runtime = start();
    let generated = runtime.block_on(of_long_segments());
    let (mut decoded, mut peak, mut slowest) = (0, 0, Duration::ZERO);
    let mut failures = Vec::new();
    for seed in first..first.saturating_add(count) {
        at_work_on.store(seed, Ordering::Relaxed);
        let mut random = Random(seed);
        let specimen = match random.below(GENERATED) {
            0 => &generated,
            _ => random.pick(&specimens).expect("golden files"),
        };
        let bytes = mutate(specimen, &mut random);
        if count == 1 {
            keep(seed, &bytes);
        }
        let watch = allocations::watch(seed);
        let started = Instant::now();
        match check(&runtime, &bytes, &mut random, watch) {
            Ok(values) => decoded += u64::from(values),
            Err(what) => {
                println!("seed {seed}, {}: {what}; kept as {}", specimen.path.display(), keep(seed, &bytes));
                failures.push(seed);
                runtime = start();
            }
        }
        (peak, slowest) = (peak.max(watch.peak()), slowest.max(started.elapsed()));
        if failures.len() >= MAX_FAILURES {
            break;
        }
    }
    at_work_on.store(u64::MAX, Ordering::Relaxed);
    println!(
        "{count} mutants of {} files: {} do harm, 0 time-outs; {decoded} decode; at most {peak} bytes in use and \
         {slowest:?} for one",
        specimens.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "mutants of seeds {failures:?} do harm; the output says how");
}
