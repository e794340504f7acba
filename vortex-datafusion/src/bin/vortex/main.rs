//! The `vortex` command line: parse, call the libraries, print.
//!
//! ```text
//! vortex sql      the DataFusion shell with support for Vortex
//! vortex inspect  the structure of files
//! vortex convert  conversion of files to other formats
//! vortex verify   consistency checks of files
//! ```
//!
//! Exit status: 0 for success, 1 for an error, which is reported in one line on stderr, 2 for wrong usage, 128
//! and the number of the signal if one ended it. It is not an error if a reader closes the pipe early.

mod allocator;
mod columns;
mod convert;
mod failure;
mod files;
mod formats;
mod inspect;
mod interrupts;
mod json;
mod memory;
mod min_reader;
mod sql;
mod stores;
mod subfolders;
mod text;
mod verify;
mod visible;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;

/// The end of the help of every command.
const AFTER_HELP: &str = "\
Stores are configured by environment variables (AWS_REGION, AWS_ENDPOINT, AWS_ACCESS_KEY_ID, \
AWS_SECRET_ACCESS_KEY, ..., AWS_SKIP_SIGNATURE=true for public buckets; GOOGLE_SERVICE_ACCOUNT, ...; \
AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, ...), for S3 also by AWS profiles, and in SQL by \
OPTIONS ('aws.region' '...').

Exit status: 0 for success, 1 for an error, 2 for wrong usage, 128 and the number of the signal if one ended \
the command.";

/// Vortex files on the command line.
#[derive(Debug, Parser)]
#[command(name = "vortex", version, about = "Query, inspect, convert and verify Vortex files")]
#[command(after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run SQL over Vortex and other files; starts a shell unless statements are given.
    #[command(after_help = AFTER_HELP)]
    Sql(sql::Arguments),
    /// Show the structure of files: schema, layout, encodings, segments, statistics.
    #[command(after_help = AFTER_HELP)]
    Inspect(inspect::Arguments),
    /// Convert files between Vortex, Parquet, Arrow, CSV and JSON lines.
    ///
    /// Types of CSV and JSON columns are inferred (CSV: from the first 100,000 lines): `01234` becomes 1234, unless
    /// `--type` says otherwise. CSV and JSON may be compressed: `.csv.gz`, `.bz2`, `.xz`, `.zst`.
    ///
    /// CSV has no nulls: they are written as empty fields, like empty strings.
    #[command(after_help = AFTER_HELP)]
    Convert(convert::Arguments),
    /// Check that files are consistent: structure, checksums, values, statistics.
    #[command(after_help = AFTER_HELP)]
    Verify(verify::Arguments),
}

/// The stacks of the thread that plans, and of each thread that computes. DataFusion recurses into expressions: the
/// usual stacks, of 8 and 2 MiB, end the process at 2,000 to 3,000 terms. Memory is taken only as far as they are used.
const STACK_BYTES: [usize; 2] = [64 << 20, 16 << 20];

fn main() -> ExitCode {
    allocator::keep_freed_memory();
    exit_quietly_on_closed_pipe();
    // Prints help, or an error of usage with status 2.
    let arguments = Arguments::parse();
    let main = std::thread::Builder::new().name("vortex".to_owned()).stack_size(STACK_BYTES[0]);
    match main.spawn(|| status(arguments)).map(std::thread::JoinHandle::join) {
        Ok(Ok(status)) => status,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "vortex: no thread can be started: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; reports its failure.
fn status(arguments: Arguments) -> ExitCode {
    let outcome = run(arguments.command).and_then(|()| Ok(std::io::stdout().flush()?));
    match outcome {
        Ok(()) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            let _ = writeln!(std::io::stderr(), "vortex: {message}");
            ExitCode::from(2)
        }
        Err(Failure::Interrupted(status)) => {
            let _ = writeln!(std::io::stderr(), "vortex: interrupted");
            ExitCode::from(status)
        }
        Err(Failure::Error(message)) => {
            let _ = writeln!(std::io::stderr(), "vortex: {message}");
            ExitCode::FAILURE
        }
    }
}

/// How long threads that have nothing left to do may take to end.
const END_OF_THREADS: Duration = Duration::from_millis(100);

fn run(command: Command) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK_BYTES[1]).build()?;
    let is_shell = matches!(&command, Command::Sql(arguments) if arguments.is_shell());
    let mut interrupts = Interrupts::watch(is_shell)?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Sql(arguments) => Box::pin(sql::run(arguments, &mut interrupts)).await,
            Command::Inspect(arguments) => interrupts.run(Box::pin(inspect::run(arguments))).await,
            Command::Convert(arguments) => interrupts.run(Box::pin(convert::run(arguments))).await,
            Command::Verify(arguments) => interrupts.run(Box::pin(verify::run(arguments))).await,
        }
    });
    if outcome.is_err() {
        // Dropping the work removes what it has written so far.
        interrupts::let_tasks_end(&runtime);
    }
    // A read that hangs must not keep the process alive once all output has been written. Threads that end are waited
    // for: glibc 2.36 may crash if it detaches one at that moment, which `shutdown_background` does.
    runtime.shutdown_timeout(END_OF_THREADS);
    outcome
}

/// `println!` in libraries panics if it writes to a closed pipe; this is not a bug to report, and there is no
/// reader for further output.
fn exit_quietly_on_closed_pipe() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        if message.starts_with("failed printing to std") && message.contains("roken pipe") {
            std::process::exit(0);
        }
        report(panic);
    }));
}
