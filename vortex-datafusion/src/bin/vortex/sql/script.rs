//! Statements from a file or a pipe.
//!
//! A statement ends at a `;`, except in comments and quotes, if nothing but a comment follows it in its line. What is
//! within quotes is kept byte for byte. Lines between statements that start with `--` or `#!` are comments; those that
//! start with `\` are commands of the shell. The first error ends the script.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::session::Session;
use super::shell::{Next, run_command};
use super::statement::not_run;
use crate::failure::{Failure, Outcome};

/// Runs the statements of a file; `-` is standard input.
pub(super) async fn run_file(session: &mut Session, path: &Path) -> Outcome {
    let is_input = path.as_os_str() == "-";
    let place = if is_input { "standard input".to_owned() } else { path.display().to_string() };
    let script = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if session.scripts.contains(&script) {
        return Err(Failure::error(format!("{place} includes itself")));
    }
    session.scripts.push(script);
    let outcome = if is_input {
        run(session, std::io::stdin().lock(), &place).await
    } else {
        match File::open(path) {
            Ok(file) => {
                let mut lines = BufReader::new(file);
                match run(session, &mut lines, &place).await {
                    Err(Failure::ClosedPipe) if has_more(&mut lines) => {
                        Err(not_run(&format!("the rest of {place}")))
                    }
                    outcome => outcome,
                }
            }
            Err(error) => Err(Failure::at(&place, error)),
        }
    };
    session.scripts.pop();
    outcome
}

/// Whether there are statements left, or commands.
fn has_more(lines: &mut impl BufRead) -> bool {
    let is_empty = |line: &str| line.is_empty() || line.starts_with("--");
    lines.lines().any(|line| line.is_ok_and(|line| !is_empty(line.trim())))
}

/// Runs statements as they are read.
async fn run(session: &mut Session, mut lines: impl BufRead, place: &str) -> Outcome {
    let mut statement = String::new();
    let mut first_line = 0;
    for at in 1.. {
        let mut line = String::new();
        let read = lines.read_line(&mut line);
        if read.map_err(|error| Failure::at(format!("{place}:{at}"), error))? == 0 {
            break;
        }
        if at == 1 && line.starts_with('\u{feff}') {
            // Some editors put a byte-order mark at the start.
            line.remove(0);
        }
        if statement.is_empty() {
            first_line = at;
            let line = line.trim_end();
            if line.is_empty() || line.starts_with("--") || line.starts_with("#!") {
                continue;
            }
            if let Some(command) = line.strip_prefix('\\') {
                let next = Box::pin(run_command(session, command)).await;
                match next.map_err(|error| Failure::at(format!("{place}:{at}"), error))? {
                    Next::Continue => continue,
                    Next::Quit => return Ok(()),
                }
            }
        }
        statement.push_str(&line);
        if may_end(&line) && session.is_complete(&statement) {
            run_one(session, &statement, place, first_line).await?;
            statement.clear();
        }
    }
    if statement.trim().is_empty() { Ok(()) } else { run_one(session, &statement, place, first_line).await }
}

/// Whether a statement may end in a line: finding out whether a `;` is within quotes takes the longer the more lines
/// there are before.
fn may_end(line: &str) -> bool {
    let mut after = line.match_indices(';').map(|(at, _)| line[at + 1..].trim_start());
    after.any(|rest| rest.is_empty() || rest.starts_with("--") || rest.starts_with("/*"))
}

async fn run_one(session: &Session, statement: &str, place: &str, line: usize) -> Outcome {
    session.run(statement).await.map_err(|error| Failure::at(format!("{place}:{line}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_may_end_where_at_most_a_comment_follows() {
        for line in ["SELECT 1;\n", "SELECT 1; -- one\r\n", ";/* one */", "('a;b'); --"] {
            assert!(may_end(line), "{line}");
        }
        for line in ["('a;b', 17),\n", "SELECT 1; SELECT 2\n", ""] {
            assert!(!may_end(line), "{line}");
        }
    }
}
