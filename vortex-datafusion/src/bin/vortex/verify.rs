//! `vortex verify`: checks that files are consistent.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use vortex_core::file::OpenOptions;
use vortex_core::{Verification, verify};
use vortex_datafusion::verify_order;

use crate::failure::{Failure, Outcome};
use crate::stores::Stores;
use crate::text::{counted, visible};

/// Arguments of `vortex verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The files: files, folders, globs; paths or URLs (s3://, gs://, az://, https://).
    #[arg(required = true)]
    file: Vec<PathBuf>,
    /// Print only problems.
    #[arg(short, long)]
    quiet: bool,
}

/// Verifies the files one after the other; returns an error if any has a problem.
pub(crate) async fn run(arguments: Arguments) -> Outcome {
    let stores = Stores::uncounted();
    let (places, mut failures) = stores.files(&arguments.file).await?;
    for (at, place) in places.iter().enumerate() {
        match verified(place, &stores).await {
            Ok((found, problems)) => {
                failures.count(!problems.is_empty());
                match print(&place.display().to_string(), &found, &problems, arguments.quiet) {
                    // Success would say that all files are fine.
                    Err(Failure::ClosedPipe) => match places.len() - at - 1 {
                        0 => return failures.outcome(),
                        rest => {
                            return Err(Failure::error(format!(
                                "the output is no longer read; {} not verified",
                                counted(rest as u64, "file")
                            )));
                        }
                    },
                    printed => printed?,
                }
            }
            Err(failure) => failures.report(failure)?,
        }
    }
    failures.outcome()
}

/// What was found in a file, and its problems.
async fn verified(path: &Path, stores: &Stores) -> Outcome<(Verification, Vec<String>)> {
    let place = path.display();
    let found = verify(stores.open(path).await?, &OpenOptions::new()).await;
    let found = found.map_err(|error| Failure::at(&place, error))?;
    let mut problems: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
    if found.other_problems > 0 {
        problems.push(format!("and {}", counted(found.other_problems, "other problem")));
    }
    // Rows of a damaged file may be in any order.
    if problems.is_empty()
        && let Some(file) = &found.file
    {
        problems.extend(verify_order(file).await.map_err(|error| Failure::at(&place, error))?);
    }
    Ok((found, problems))
}

fn print(place: &str, found: &Verification, problems: &[String], quiet: bool) -> Outcome {
    let mut out = std::io::stdout().lock();
    for problem in problems {
        writeln!(out, "{place}: {}", visible(problem))?;
    }
    if problems.is_empty() && !quiet {
        let checksums = match found.checked_segments {
            0 => "no checksums".to_owned(),
            segments => format!("checksums of {}", counted(segments as u64, "segment")),
        };
        writeln!(
            out,
            "{place}: fine; {}, {}, {checksums}, {}",
            counted(found.row_count, "row"),
            counted(found.column_count as u64, "column"),
            counted(found.checked_zones, "zone")
        )?;
    }
    Ok(())
}
