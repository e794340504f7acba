//! Time to fetch a few rows of a file by position: `gather FILE [ROWS] [ROUNDS] [COLUMN]...`.
//!
//! Each round selects different rows, of the given columns or else of all. Times are measured with the file
//! opened in each round, with the file kept open, and both also with the file mapped into memory.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use vortex_core::VortexFile;
use vortex_core::io::LocalFile;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("gather FILE [ROWS] [ROUNDS] [COLUMN]...")?;
    let rows = args.next().map_or(Ok(100), |rows| rows.parse())?;
    let rounds: u64 = args.next().map_or(Ok(20), |rounds| rounds.parse())?;
    let columns: Vec<String> = args.collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let read = || async { VortexFile::open(Arc::new(LocalFile::open(&path)?)).await };
        let map = || async {
            #[expect(unsafe_code, reason = "a mapped file must not change")]
            // SAFETY: nothing changes the file while it is measured.
            let mapped = unsafe { LocalFile::map(&path) }?;
            VortexFile::open(Arc::new(mapped)).await
        };
        let (kept, kept_mapped) = (read().await?, map().await?);
        let mut times: [Vec<Duration>; 4] = Default::default();
        // The first round is a warm-up.
        for round in 0..=rounds {
            let wanted = sample(rows, kept.row_count(), round);
            let start = Instant::now();
            fetch(&read().await?, &wanted, &columns, false).await?;
            times[0].push(start.elapsed());
            let start = Instant::now();
            fetch(&kept, &wanted, &columns, round == rounds).await?;
            times[1].push(start.elapsed());
            let start = Instant::now();
            fetch(&map().await?, &wanted, &columns, false).await?;
            times[2].push(start.elapsed());
            let start = Instant::now();
            fetch(&kept_mapped, &wanted, &columns, false).await?;
            times[3].push(start.elapsed());
        }
        let names = ["opened each time", "kept open", "mapped each time", "kept mapped"];
        names.iter().zip(&mut times).for_each(|(name, times)| report(name, &mut times[1..]));
        Ok(())
    })
}

async fn fetch(
    file: &VortexFile,
    rows: &[u64],
    columns: &[String],
    show: bool,
) -> Result<(), Box<dyn Error>> {
    let mut scan = file.scan().with_row_indices(rows);
    if !columns.is_empty() {
        scan = scan.with_projection(columns);
    }
    let metrics = Arc::clone(scan.metrics());
    let batches: Vec<_> = scan.into_stream()?.try_collect().await?;
    let fetched: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    if fetched != rows.len() {
        return Err(format!("{fetched} of {} rows", rows.len()).into());
    }
    if show {
        metrics.snapshot().iter().for_each(|(name, count)| println!("{name:>22} {count}"));
    }
    Ok(())
}

/// Distinct rows in ascending order.
fn sample(count: usize, below: u64, round: u64) -> Vec<u64> {
    let mut state = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut rows = std::collections::BTreeSet::new();
    while rows.len() < count.min(usize::try_from(below).unwrap_or(usize::MAX)) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        rows.insert((state >> 24) % below);
    }
    rows.into_iter().collect()
}

fn report(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if let (Some(least), Some(median)) = (times.first(), times.get(times.len() / 2)) {
        println!("{name:>22} {:.1} ms (least {:.1})", ms(*median), ms(*least));
    }
}
