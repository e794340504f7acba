//! The interactive shell: history, completion, and the commands that start with `\`.

use std::path::{Path, PathBuf};

use datafusion_cli::command::{Command, OutputFormat};
use datafusion_cli::helper::CliHelper;
use rustyline::Editor;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;

use super::completion::{LineHelper, names};
use super::script;
use super::session::Session;
use crate::failure::{Failure, Outcome};
use crate::interrupts::{CTRL_C, Interrupts};

/// What `\?` prints.
const HELP: &str = "\
\\d                    list tables
\\d TABLE              list the columns of a table
\\h                    list statements with help
\\h STATEMENT          show its syntax
\\i FILE               run the statements of a file
\\pset                 show the format of results
\\pset format FORMAT   set it: automatic, table, csv, tsv, json, nd-json
\\x [on|off]           set or switch whether each column has a line of its own
\\quiet [on|off]       show or set whether only results are printed
\\object_store_profiling [disabled|summary|trace]
                      show or set how requests to object stores are reported
\\?                    show this list
\\q                    quit

SHOW FUNCTIONS;       list functions

A statement ends with a semicolon at the end of a line, which a comment may
follow. Ctrl-C interrupts it; if it does not yield, a second Ctrl-C ends the shell.";

/// The tables that `\d` lists: those that somebody has created.
const TABLES: &str =
    "SELECT * FROM information_schema.tables WHERE table_schema <> 'information_schema' ORDER BY 1, 2, 3";

/// What to do after a command.
pub(super) enum Next {
    Continue,
    Quit,
}

/// Reads and runs statements until the user quits. Errors are printed, and the shell continues.
pub(super) async fn run(session: &mut Session, interrupts: &mut Interrupts) -> Outcome {
    if !session.print.quiet {
        println!("vortex {} with DataFusion {}", env!("CARGO_PKG_VERSION"), datafusion::DATAFUSION_VERSION);
        println!("Try: SELECT * FROM 'file.vortex' LIMIT 10; or \\? for help, \\q to quit.");
    }
    let mut editor = Editor::<LineHelper, DefaultHistory>::new().map_err(Failure::error)?;
    editor.set_helper(Some(helper(session).await));
    let history = history_file();
    if let Some(file) = &history {
        // The first session has none yet.
        let _ = editor.load_history(file);
    }
    loop {
        match editor.readline("> ") {
            Ok(input) => {
                let _ = editor.add_history_entry(input.trim_end());
                if let Some(file) = &history {
                    // The statement may end the shell. What cannot be kept now is told at the end.
                    let _ = editor.append_history(file);
                }
                match interrupts.run(run_input(session, &input)).await {
                    Ok(Next::Continue) => {}
                    Ok(Next::Quit) | Err(Failure::ClosedPipe) => break,
                    Err(Failure::Error(message) | Failure::Usage(message)) => eprintln!("{message}"),
                    Err(Failure::Interrupted(CTRL_C)) => println!("^C"),
                    Err(interrupted @ Failure::Interrupted(_)) => return Err(interrupted),
                }
                // There may be other tables, and SET may have changed the dialect.
                editor.set_helper(Some(helper(session).await));
            }
            Err(ReadlineError::Interrupted) => println!("^C"),
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Failure::error(error)),
        }
    }
    if let Some(file) = &history {
        editor.save_history(file).map_err(|error| Failure::at(file.display(), Failure::error(error)))?;
    }
    Ok(())
}

async fn helper(session: &Session) -> LineHelper {
    let dialect = session.context.state().config().options().sql_parser.dialect;
    let names = names(&session.context).await;
    LineHelper::new(CliHelper::new(&dialect, session.print.color), names, session.dialect().ok())
}

/// Runs statements, or a command that starts with `\`.
pub(super) async fn run_input(session: &mut Session, input: &str) -> Outcome<Next> {
    // One that was interrupted no longer runs.
    session.scripts.clear();
    if let Some(command) = command_of(input) {
        return run_command(session, command).await;
    }
    session.run(input).await?;
    Ok(Next::Continue)
}

/// The command that an input is, without its `\`: some are words in other shells.
pub(super) fn command_of(input: &str) -> Option<&str> {
    let input = input.trim();
    match input.trim_end_matches(';').trim_end().to_ascii_lowercase().as_str() {
        "quit" | "exit" => Some("q"),
        "help" => Some("?"),
        _ => input.strip_prefix('\\'),
    }
}

/// Runs a command, given without its `\`.
pub(super) async fn run_command(session: &mut Session, command: &str) -> Outcome<Next> {
    let words = command.split_whitespace().collect::<Vec<_>>().join(" ");
    let unknown = || {
        let name = words.split(' ').next().unwrap_or_default();
        Failure::error(match name.parse::<Command>() {
            Err(()) if name != "x" => format!("\\{words}: no such command; \\? lists them"),
            _ => format!("\\{words}: \\{name} does not take this; \\? lists what it takes"),
        })
    };
    if let Some(expanded) = expanded_by(&words, session.expanded) {
        session.expanded = expanded;
        if !session.print.quiet {
            println!("Expanded display is {}.", if expanded { "on" } else { "off" });
        }
        return Ok(Next::Continue);
    }
    match words.parse::<Command>().map_err(|()| unknown())? {
        Command::Quit => return Ok(Next::Quit),
        Command::Help => println!("{HELP}"),
        Command::Include(Some(file)) => Box::pin(script::run_file(session, Path::new(&file))).await?,
        Command::OutputFormat(Some(format)) => {
            format.parse::<OutputFormat>().map_err(|()| unknown())?.execute(&mut session.print)?;
        }
        Command::OutputFormat(None) => println!("Output format is {:?}.", session.print.format),
        Command::ListTables => session.run(TABLES).await?,
        Command::DescribeTableStmt(table) => session.run(&format!("DESCRIBE {table}")).await?,
        help @ Command::SearchFunctions(_) => {
            let no_help =
                |_| Failure::error(format!("\\{words}: no such statement; \\h lists those with help"));
            help.execute(&session.context, &mut session.print).await.map_err(no_help)?;
        }
        other => other.execute(&session.context, &mut session.print).await?,
    }
    Ok(Next::Continue)
}

/// What `\x` makes of the current setting; `None` for other commands.
fn expanded_by(words: &str, current: bool) -> Option<bool> {
    match words {
        "x" => Some(!current),
        "x on" => Some(true),
        "x off" => Some(false),
        _ => None,
    }
}

/// The file that keeps earlier statements: with the user's other state, not in the current folder.
fn history_file() -> Option<PathBuf> {
    let state = match std::env::var_os("XDG_STATE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => std::env::home_dir()?.join(".local/state"),
    };
    let folder = state.join("vortex");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}
