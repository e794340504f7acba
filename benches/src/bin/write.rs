//! Time and memory of writing a whole table: `write FILE.parquet OUT [LEVEL[@RELEASE]] [MIB] [TIMES]`.
//!
//! The rows of the Parquet file are written `TIMES` times. `MIB` is the memory budget of the writer. The
//! last line contains the seconds, the size of the file in megabytes, and the peak memory of the process.

use std::error::Error;
use std::fs::File;
use std::time::Instant;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use vortex_core::io::LocalSink;
use vortex_core::write::{FileWriter, WriteOptions};

const USAGE: &str = "write FILE.parquet OUT [LEVEL[@RELEASE]] [MIB] [TIMES]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (input, output) = (args.next().ok_or(USAGE)?, args.next().ok_or(USAGE)?);
    let level = args.next().unwrap_or_else(|| "default".to_owned());
    let (level, release) =
        level.split_once('@').map_or((level.as_str(), None), |(level, at)| (level, Some(at)));
    let mut options = WriteOptions::new().with_level(level.parse()?);
    if let Some(release) = release {
        options = options.with_min_reader(release.parse()?);
    }
    if let Some(budget) = args.next() {
        options = options.with_memory_budget(budget.parse::<usize>()? << 20);
    }
    let times = args.next().map_or(Ok(1), |times| times.parse())?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let start = Instant::now();
        let mut writer: Option<FileWriter> = None;
        let mut most = 0;
        for _ in 0..times {
            for batch in ParquetRecordBatchReaderBuilder::try_new(File::open(&input)?)?.build()? {
                let batch = batch?;
                if writer.is_none() {
                    writer = Some(FileWriter::try_new(
                        LocalSink::create(&output)?,
                        batch.schema(),
                        options.clone(),
                    )?);
                }
                if let Some(writer) = &mut writer {
                    writer.write(&batch).await?;
                    most = most.max(writer.buffered_bytes());
                }
            }
        }
        let summary = writer.ok_or("no rows")?.finish().await?;
        let seconds = start.elapsed().as_secs_f64();
        let size = summary.file_size() as f64 / 1e6;
        println!("{} MB counted by the writer at most", most / 1_000_000);
        println!("{seconds:.2} s, {size:.2} MB, {} MB of memory", peak_memory().unwrap_or(0) / 1_000_000);
        Ok(())
    })
}

/// The peak memory of this process in bytes, if the system provides it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
