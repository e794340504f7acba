//! The `vortex` command line: parse, call the libraries, print.
//!
//! ```text
//! vortex sql      the DataFusion shell with Vortex built in
//! vortex inspect  what a file is made of
//! vortex convert  files in another format
//! vortex verify   is a file what it says it is?
//! ```
//!
//! Exit status: 0 fine, 1 an error told in one line on stderr, 2 wrong usage. A reader that
//! closes the pipe early is fine.

mod convert;
mod failure;
mod inspect;
mod interrupts;
mod sql;
mod stores;
mod text;
mod verify;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::{Failure, Outcome};

/// Vortex files on the command line.
#[derive(Debug, Parser)]
#[command(name = "vortex", version, about = "SQL over Vortex files, their anatomy, and conversion")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run SQL over Vortex and other files; a shell unless statements are given.
    Sql(sql::Arguments),
    /// Show what a file is made of: schema, layout, encodings, segments, statistics.
    Inspect(inspect::Arguments),
    /// Turn files of Vortex, Parquet, Arrow, CSV and JSON lines into each other.
    Convert(convert::Arguments),
    /// Hold files against themselves: structure, checksums, values, statistics.
    Verify(verify::Arguments),
}

fn main() -> ExitCode {
    exit_quietly_on_closed_pipe();
    // Prints help, or wrong usage with status 2.
    let arguments = Arguments::parse();
    let outcome = run(arguments.command).and_then(|()| Ok(std::io::stdout().flush()?));
    match outcome {
        Ok(()) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            let _ = writeln!(std::io::stderr(), "vortex: {message}");
            ExitCode::from(2)
        }
        Err(Failure::Error(message)) => {
            let _ = writeln!(std::io::stderr(), "vortex: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let is_shell = matches!(&command, Command::Sql(arguments) if arguments.is_shell());
    let outcome = runtime.block_on(async {
        let run = async {
            match command {
                Command::Sql(arguments) => Box::pin(sql::run(arguments)).await,
                Command::Inspect(arguments) => Box::pin(inspect::run(arguments)).await,
                Command::Convert(arguments) => Box::pin(convert::run(arguments)).await,
                Command::Verify(arguments) => Box::pin(verify::run(arguments)).await,
            }
        };
        if is_shell {
            // It takes interrupts itself, for single statements.
            return run.await;
        }
        let interrupted = interrupts::watch();
        let outcome = tokio::select! {
            outcome = run => outcome,
            _ = interrupted => Err(Failure::error("interrupted; no file was left half-written")),
        };
        if outcome.is_err() {
            // Dropping the work removes what it has written so far.
            interrupts::let_tasks_end().await;
        }
        outcome
    });
    // A read that hangs must not keep the process once there is nothing left to say.
    runtime.shutdown_background();
    outcome
}

/// `println!` in libraries panics where a write to a closed pipe fails; that is no bug of ours
/// to report, and nobody is left to read more.
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
