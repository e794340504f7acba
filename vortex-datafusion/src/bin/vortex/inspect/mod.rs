//! `vortex inspect`: shows the structure of files.
//!
//! It reads the description of the file, the ends of its segments, and the zone tables, but not the rows. For
//! a damaged file it prints what can still be read, and fails with an error about the rest.

mod json;
mod print;
mod report;

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use vortex_core::file::{OpenOptions, examine};
use vortex_core::io::ReadAt;
use vortex_core::{Error, VortexFile};

use crate::failure::{Failure, Outcome};
use crate::stores::Stores;
use report::Report;

/// Arguments of `vortex inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The files: files, folders, globs; paths or URLs (s3://, gs://, az://, https://).
    #[arg(required = true)]
    file: Vec<PathBuf>,
    /// Print one JSON object per file.
    #[arg(long)]
    json: bool,
    /// Print only these parts.
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Maximum number of zones to print per column; JSON contains all of them.
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    zones: usize,
}

/// A part of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Columns with their types, sizes and encodings.
    Schema,
    /// Statistics of each column for the whole file.
    Statistics,
    /// The tree of layouts and, in each segment, of encodings.
    Layout,
    /// Statistics per zone of rows.
    Zones,
    /// The position of each segment.
    Segments,
}

impl Arguments {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Inspects the files one after the other; returns an error if any has a problem.
pub(crate) async fn run(arguments: Arguments) -> Outcome {
    let stores = Stores::uncounted();
    let (places, mut failures) = stores.files(&arguments.file).await?;
    for place in &places {
        if let Err(failure) = inspect(place, &arguments, &stores).await {
            failures.report(failure)?;
        }
    }
    failures.outcome()
}

async fn inspect(path: &Path, arguments: &Arguments, stores: &Stores) -> Outcome {
    let source = stores.open(path).await?;
    let place = path.display().to_string();
    let place = place.as_str();
    let file = match VortexFile::open(Arc::clone(&source)).await {
        Ok(file) => file,
        Err(error) => return damaged(place, arguments.json, source.as_ref(), error).await,
    };
    let report = Report::read(place, &file, arguments).await;
    let mut out = BufWriter::new(std::io::stdout().lock());
    if arguments.json {
        serde_json::to_writer(&mut out, &json::report(&report, arguments))?;
        writeln!(out)?;
    } else {
        print::report(&mut out, &report, arguments)?;
    }
    out.flush()?;
    match report.problems.first() {
        None => Ok(()),
        Some(problem) => Err(Failure::at(place, Failure::error(problem))),
    }
}

/// Prints the parts of a file that cannot be opened, and returns the reason as an error.
async fn damaged(place: &str, as_json: bool, source: &dyn ReadAt, error: Error) -> Outcome {
    if let Ok(examination) = examine(source, &OpenOptions::new()).await {
        let mut out = BufWriter::new(std::io::stdout().lock());
        if as_json {
            serde_json::to_writer(&mut out, &json::examination(place, &examination, &error))?;
            writeln!(out)?;
        } else {
            print::examination(&mut out, place, &examination)?;
        }
        out.flush()?;
    }
    Err(Failure::at(place, error))
}
