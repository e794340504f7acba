//! `vortex verify`: checks that files are consistent.

use std::io::Write as _;
use std::sync::Arc;

use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use vortex_core::file::{OpenOptions, Verification, verify};

use crate::failure::{Failure, Failures, Outcome};
use crate::stores::Stores;
use crate::text::{counted, visible};

/// Arguments of `vortex verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The files, or folders of them: paths, or URLs (s3://, gs://, az://, https://).
    #[arg(required = true)]
    file: Vec<String>,
    /// Print only problems.
    #[arg(short, long)]
    quiet: bool,
}

/// Verifies the files one after the other; returns an error if any has a problem.
pub(crate) async fn run(arguments: Arguments) -> Outcome {
    let stores = Stores::new(Arc::new(InstrumentedObjectStoreRegistry::new()));
    let places = stores.files(&arguments.file).await?;
    let mut failures = Failures::among(places.len());
    for place in &places {
        match verified(place, &stores).await {
            Ok(found) => {
                print(place, &found, arguments.quiet)?;
                failures.count(!found.problems.is_empty());
            }
            Err(failure) => failures.report(failure)?,
        }
    }
    failures.outcome()
}

async fn verified(place: &str, stores: &Stores) -> Outcome<Verification> {
    let source = stores.open(place).await?;
    verify(source, &OpenOptions::new()).await.map_err(|error| Failure::at(place, error))
}

fn print(place: &str, found: &Verification, quiet: bool) -> Outcome {
    let mut out = std::io::stdout().lock();
    for problem in &found.problems {
        writeln!(out, "{place}: {}", visible(&problem.to_string()))?;
    }
    if found.problems.is_empty() && !quiet {
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
