//! `vortex sql`: the DataFusion shell with support for Vortex.
//!
//! Session, printing, completion and commands are those of the `datafusion-cli` library, and arguments have
//! the same names. Statements are run by [`statement`], so that `OPTIONS` of Vortex tables are supported, and
//! results in formats other than tables are streamed.

mod completion;
mod from_first;
mod home;
mod ignored;
mod long_cells;
mod places;
mod printer;
mod records;
mod reset;
mod script;
mod session;
mod shell;
mod show_columns;
mod statement;
mod visit;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreMode;
use datafusion_cli::pool_type::PoolType;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::MaxRows;

use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;
use crate::text::{counted, parse_size};
use session::Session;

/// Arguments of `vortex sql`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run these statements, after those of `--command`, then exit.
    #[arg(value_name = "SQL")]
    statements: Option<String>,
    /// Run these statements, then exit.
    #[arg(short, long, value_name = "SQL")]
    command: Vec<String>,
    /// Run the statements of these files, before those of `--command`, then exit; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Run these files first: before the shell starts, instead of `~/.datafusionrc`, or before statements from
    /// a pipe.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["statements", "command", "file"])]
    rc: Option<Vec<PathBuf>>,
    /// Folder that relative paths start from.
    #[arg(short = 'p', long, value_name = "FOLDER")]
    data_path: Option<PathBuf>,
    /// How results are printed; `automatic` is a table.
    #[arg(long, value_enum, default_value_t = PrintFormat::Automatic)]
    format: PrintFormat,
    /// Print each column of a row on a line of its own, instead of tables; `\x` switches this.
    #[arg(short = 'x', long)]
    expanded: bool,
    /// Print results only.
    #[arg(short, long)]
    quiet: bool,
    /// Maximum number of rows of a printed table; `inf` for all.
    #[arg(long, value_name = "ROWS", default_value = "40")]
    maxrows: MaxRows,
    /// Colour statements while they are typed.
    #[arg(long)]
    color: bool,
    /// Rows per batch.
    #[arg(short, long, value_name = "ROWS")]
    batch_size: Option<std::num::NonZeroUsize>,
    /// Maximum memory of queries, like `4g`; unlimited by default.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    memory_limit: Option<usize>,
    /// How queries share limited memory.
    #[arg(long, value_name = "greedy|fair", default_value_t = PoolType::Greedy)]
    mem_pool_type: PoolType,
    /// How many of the largest consumers to name when memory runs out; 0 for none.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    top_memory_consumers: usize,
    /// Maximum disk space for queries that spill, like `100g`.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    disk_limit: Option<usize>,
    /// Count requests to object stores: `disabled`, `summary` or `trace`.
    #[arg(long, value_name = "MODE", default_value = "disabled")]
    object_store_profiling: InstrumentedObjectStoreMode,
}

impl Arguments {
    /// Whether statements are entered interactively.
    pub(crate) fn is_shell(&self) -> bool {
        !self.has_statements() && std::io::stdin().is_terminal()
    }

    fn has_statements(&self) -> bool {
        self.statements.is_some() || !self.command.is_empty() || !self.file.is_empty()
    }
}

/// Runs statements, scripts, or the shell.
pub(crate) async fn run(arguments: Arguments, interrupts: &mut Interrupts) -> Outcome {
    if let Some(folder) = &arguments.data_path {
        std::env::set_current_dir(folder)
            .map_err(|error| Failure::Usage(format!("{}: {error}", folder.display())))?;
    }
    if !arguments.is_shell() {
        return interrupts.run(run_statements(arguments)).await;
    }
    let session = async {
        let mut session = Session::open(&arguments).await?;
        for file in arguments.rc.unwrap_or_else(session::default_rc) {
            script::run_file(&mut session, &file).await?;
        }
        Ok(session)
    };
    let mut session = interrupts.run(session).await?;
    shell::run(&mut session, interrupts).await
}

async fn run_statements(arguments: Arguments) -> Outcome {
    let mut session = Session::open(&arguments).await?;
    if !arguments.has_statements() {
        for file in arguments.rc.iter().flatten() {
            script::run_file(&mut session, file).await?;
        }
        // Piped statements are a script: no prompt, and an error ends it.
        return script::run_file(&mut session, Path::new("-")).await;
    }
    let inputs: Vec<_> = arguments.command.iter().chain(&arguments.statements).collect();
    let mut left = arguments.file.len() + inputs.len();
    // Success would say that all of them were run.
    let mut checked = |failure| {
        left -= 1;
        match failure {
            Failure::ClosedPipe if left > 0 => statement::not_run(&counted(left as u64, "other argument")),
            failure => failure,
        }
    };
    for file in &arguments.file {
        script::run_file(&mut session, file).await.map_err(&mut checked)?;
    }
    for statements in inputs {
        if let shell::Next::Quit = shell::run_input(&mut session, statements).await.map_err(&mut checked)? {
            break;
        }
    }
    Ok(())
}
