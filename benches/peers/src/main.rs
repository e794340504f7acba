//! The same queries over the same data: Arrow in memory, Parquet, the reference plugin, and this
//! repository's plugin.
//!
//! ```text
//! cargo bench-peers generate                      create the data once
//! cargo bench-peers sql --suite points            queries over local files, warm
//! cargo bench-peers sql --suite tpch --remote     cold, over a remote store
//! cargo bench-peers gather                        random rows by position, also from Lance with `--lance PYTHON`
//! cargo bench-peers kernels                       decoding, encoding by encoding
//! cargo bench-peers write                         time and size of writing
//! cargo bench-peers write-memory                  the memory that writing takes
//! ```
//!
//! | module | what it defines |
//! |---|---|
//! | [`data`] | the tables, how they are generated, where they are stored |
//! | [`engines`] | the engines compared |
//! | [`suites`] | the queries |
//! | [`store`] | the latency and bandwidth of a remote store |
//! | [`run`], [`gather`], [`write`], [`kernels`] | what is measured |
//! | [`compare`] | when two answers are equal |
//! | [`report`] | how measurements are presented |

mod compare;
mod data;
mod engines;
mod gather;
mod kernels;
mod lance;
mod report;
mod run;
mod store;
mod suites;
mod write;

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use datafusion::error::Result;

use crate::data::{DataSet, Format, Scale, generate};
use crate::engines::Engine;
use crate::gather::Gather;
use crate::kernels::Kernels;
use crate::run::Plan;
use crate::store::Distance;
use crate::suites::Suite;
use crate::write::{Child, Memory, Write};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares columnar formats under DataFusion.
#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    data: DataArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct DataArgs {
    /// The folder of the data.
    #[arg(long, global = true, default_value = "target/bench-data")]
    data: PathBuf,
    /// TPC-H scale factor.
    #[arg(long, global = true, default_value_t = 1.0)]
    scale_factor: f64,
    /// Rows of the web-analytics table.
    #[arg(long, global = true, default_value_t = data::analytics::DEFAULT_ROWS)]
    rows: u64,
    /// Number of small files: of 2,000 rows each, or of 100 if there are 1,000 files or more.
    #[arg(long, global = true, default_value_t = 300)]
    small_files: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Generates missing data.
    Generate {
        /// Data sets; all by default.
        #[arg(long = "set")]
        sets: Vec<DataSet>,
    },
    /// Runs queries.
    Sql(SqlArgs),
    /// Fetches random rows by position.
    Gather {
        /// Number of rows per gather.
        #[arg(long, default_value_t = 100)]
        count: usize,
        /// Number of timed rounds.
        #[arg(long, default_value_t = 10)]
        iterations: usize,
        /// A Python with the package `pylance`, to include Lance.
        #[arg(long, value_name = "PYTHON")]
        lance: Option<PathBuf>,
    },
    /// Decodes arrays of each encoding.
    Kernels {
        /// Rows per array.
        #[arg(long, default_value_t = 128 << 10)]
        decoded_rows: usize,
        /// Number of timed rounds.
        #[arg(long, default_value_t = 200)]
        iterations: usize,
        /// Substrings of the names of cases; all cases by default.
        #[arg(long)]
        only: Vec<String>,
        /// Leave out the reference, for profiling.
        #[arg(long)]
        alone: bool,
    },
    /// Writes tables from memory.
    Write {
        /// Data sets; all by default.
        #[arg(long = "set")]
        sets: Vec<DataSet>,
        /// Names of formats, as in the report; all by default.
        #[arg(long = "format")]
        formats: Vec<String>,
        /// Number of timed rounds.
        #[arg(long, default_value_t = 3)]
        iterations: usize,
        /// Target number of partitions in DataFusion.
        #[arg(long, default_value_t = 2)]
        target_partitions: usize,
    },
    /// Writes a stream of rows in separate processes, to measure their peak memory.
    WriteMemory {
        /// The set whose largest table is written.
        #[arg(long, default_value = "analytics")]
        set: DataSet,
        /// Numbers of rows.
        #[arg(long = "row-count", default_values_t = [2_000_000, 10_000_000])]
        row_counts: Vec<u64>,
        /// Names of formats, as in the report; all by default.
        #[arg(long = "format")]
        formats: Vec<String>,
    },
    /// The child process of `write-memory`.
    #[command(hide = true)]
    WriteStream {
        #[arg(long)]
        set: DataSet,
        #[arg(long)]
        format: String,
    },
}

#[derive(Debug, Args)]
struct SqlArgs {
    /// Suites; all by default.
    #[arg(long = "suite")]
    suites: Vec<Suite>,
    /// Engines; all by default.
    #[arg(long = "engine")]
    engines: Vec<Engine>,
    /// Names of queries; all by default.
    #[arg(long = "query")]
    queries: Vec<String>,
    /// Number of timed rounds.
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Target number of partitions in DataFusion.
    #[arg(long, default_value_t = 2)]
    target_partitions: usize,
    /// Also print the answers of the first engine.
    #[arg(long)]
    show: bool,
    /// Read through a remote store, with cold caches for each run.
    #[arg(long)]
    remote: bool,
    /// Milliseconds to the first byte of a remote read.
    #[arg(long, default_value_t = 20)]
    first_byte_ms: u64,
    /// Bandwidth of each remote stream in megabytes per second.
    #[arg(long, default_value_t = 80.0)]
    megabytes_per_second: f64,
    /// One in this many remote reads is late; none by default.
    #[arg(long, value_name = "READS")]
    late_every: Option<NonZeroU64>,
    /// Milliseconds to the first byte of a late read.
    #[arg(long, default_value_t = 500)]
    late_first_byte_ms: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Cli { data: DataArgs { data, scale_factor, rows, small_files }, command } = Cli::parse();
    std::fs::create_dir_all(&data)?;
    let data = data.canonicalize()?;
    let scale = Scale { tpch: scale_factor, events: rows, files: small_files };
    match command {
        Command::Generate { sets } => {
            for set in or_all(sets) {
                generate(&data, set, &scale, &[Format::Parquet, Format::Reference]).await?;
            }
            Ok(())
        }
        Command::Sql(args) => args.run(data, scale).await,
        Command::Gather { count, iterations, lance } => {
            let gather = Gather { data, scale, rows: count, iterations, lance };
            println!("{}", gather.run().await?);
            Ok(())
        }
        Command::Kernels { decoded_rows, iterations, only, alone } => {
            println!("{}", Kernels { rows: decoded_rows, iterations, only, alone }.run()?);
            Ok(())
        }
        Command::Write { sets, formats, iterations, target_partitions } => {
            let write = Write { data, scale, sets: or_all(sets), iterations, target_partitions, formats };
            println!("{}", write.run().await?);
            Ok(())
        }
        Command::WriteMemory { set, row_counts, formats } => {
            println!("{}", Memory { data, set, row_counts, scale, formats }.run()?);
            Ok(())
        }
        Command::WriteStream { set, format } => {
            println!("{}", Child { data, set, scale, format }.run().await?);
            Ok(())
        }
    }
}

impl SqlArgs {
    async fn run(self, data: PathBuf, scale: Scale) -> Result<()> {
        let mut engines = or_all(self.engines);
        let distance = self.remote.then(|| Distance {
            first_byte: Duration::from_millis(self.first_byte_ms),
            bytes_per_second: self.megabytes_per_second * 1e6,
            late_every: self.late_every,
            late_first_byte: Duration::from_millis(self.late_first_byte_ms),
        });
        // Memory is never far away, and of local reads none is hedged.
        let apart = if distance.is_some() { Engine::Memory } else { Engine::OursUnhedged };
        engines.retain(|&engine| engine != apart);
        for suite in or_all(self.suites) {
            let plan = Plan {
                data: data.clone(),
                scale,
                suite,
                engines: engines.clone(),
                queries: self.queries.clone(),
                iterations: self.iterations,
                target_partitions: self.target_partitions,
                show: self.show,
                distance,
            };
            let outcomes = plan.run().await?;
            let title = match distance {
                Some(distance) => format!(
                    "{}, cold, {:?} to the first byte, {} MB/s a stream",
                    suite.name(),
                    distance.first_byte,
                    distance.bytes_per_second / 1e6
                ),
                None => format!("{}, local, warm", suite.name()),
            };
            println!("{}", report::queries(&title, &engines, &outcomes));
        }
        Ok(())
    }
}

/// The chosen values; all if none were chosen.
fn or_all<T: ValueEnum + Clone>(chosen: Vec<T>) -> Vec<T> {
    if chosen.is_empty() { T::value_variants().to_vec() } else { chosen }
}
