//! `vortex convert`: writes files in another format, or again in the same format.
//!
//! ```text
//! one file        rows of all inputs, in the order given, into that file
//! a folder        each input into its own file, at the same relative path
//! a folder, with --target-file-size
//!                 rows of all inputs, in the order given, into part-00000, part-00001, ...
//! ```
//!
//! Batches are written as they are decoded, so memory does not grow with the files; only sorting needs more
//! space, on disk. Each output has a temporary name, or is an upload, until it is complete: a file with the final name
//! is always complete.

mod arguments;
mod checked;
mod copies;
mod destination;
mod encoder;
mod find;
mod given_order;
mod input;
mod jobs;
mod json_array;
mod json_keys;
mod numbered;
mod output;
mod parquet;
mod partial;
mod query;
mod schemas;
mod sort;
mod stdin;
mod table;
mod text_form;
mod vortex;
mod writer_types;

use std::collections::HashSet;
use std::io::Write as _;
use std::path::PathBuf;

use crate::failure::{Failure, Outcome};
use crate::formats::Format;
use crate::text::counted;
pub(crate) use arguments::Arguments;
use destination::Destination;
use find::Found;
use input::Reader;
use jobs::{Job, jobs, run_jobs};
pub(crate) use partial::remove_all as remove_partial_files;

/// Number of files that are named of those that are left out.
const TOLD: usize = 3;

/// Converts the files.
pub(crate) async fn run(arguments: Arguments) -> Outcome {
    let options = arguments.vortex.options();
    let Prepared { reader, jobs, notes } = prepare(&arguments).await?;
    let outcome = run_jobs(&jobs, &arguments, &reader, &options).await;
    if outcome.is_ok() || arguments.keep_going {
        notes.iter().for_each(|note| _ = writeln!(std::io::stderr(), "vortex: {note}"));
    }
    outcome
}

/// What is known before anything is written.
struct Prepared {
    reader: Reader,
    jobs: Vec<Job>,
    /// What to tell once the files are converted.
    notes: Vec<String>,
}

/// Finds the files, and the conversions to run.
async fn prepare(arguments: &Arguments) -> Outcome<Prepared> {
    let refused = |why: &str| Err(Failure::Usage(why.to_owned()));
    let (inputs, output) = arguments.places()?;
    if inputs.iter().filter(|input| **input == "-").count() > 1 {
        return refused("standard input can be read only once");
    }
    if let Some(name) = arguments.twice() {
        return refused(&format!("--columns: `{name}` is named twice"));
    }
    let reader = Reader::open(!arguments.sort_by.is_empty(), arguments.memory_limit)?;
    let (mut files, mut notes, mut merged_notes) = (Vec::new(), Vec::new(), Vec::new());
    for place in inputs {
        let (found, unknown) = reader.find(place, arguments.from, &arguments.csv).await?;
        notes.extend(note_of_unknown(place, &unknown));
        merged_notes.extend(note_of_subfolders(place, &found));
        files.extend(found);
    }
    if arguments.csv.is_given() && files.iter().any(|file| file.format != Format::Csv) {
        return refused("--delimiter, --no-header and --type apply to CSV files only");
    }
    let mut seen = HashSet::new();
    if let Some(twice) = files.iter().find(|file| !seen.insert(file.url.to_string())) {
        return refused(&format!("{}: is among the inputs twice", twice.name));
    }
    let output = Destination::find(output, &reader.stores).await?;
    let jobs = jobs(arguments, &output, files)?;
    if arguments.vortex.is_given() && jobs.iter().any(|job| job.format != Format::Vortex) {
        return refused(
            "--level, --column-level, --bloom-filter, --min-reader and --checksums apply to Vortex files only",
        );
    }
    if jobs.iter().any(|job| job.files.len() > 1) {
        if arguments.keep_going {
            return refused(
                "--keep-going: the files become one, in which it could not be seen that one is missing",
            );
        }
        notes.append(&mut merged_notes);
    }
    Ok(Prepared { reader, jobs, notes })
}

/// What to tell about files of a folder that are not converted.
fn note_of_unknown(place: &str, files: &[PathBuf]) -> Option<String> {
    let names: Vec<String> = files.iter().take(TOLD).map(|file| file.display().to_string()).collect();
    let more = if files.len() > TOLD { ", .." } else { "" };
    (!files.is_empty()).then(|| {
        let count = counted(files.len() as u64, "file");
        format!(
            "{place}: left out {count} of unknown format, which --from would set: {}{more}",
            names.join(", ")
        )
    })
}

/// What to tell about files of a folder that become part of an output, but not of a table over that folder.
fn note_of_subfolders(place: &str, files: &[Found]) -> Option<String> {
    let below = files.iter().filter(|file| file.in_subfolder).count();
    let format = files.iter().find(|file| file.in_subfolder)?.format.extension();
    let (separator, all) = (if place.ends_with('/') { "" } else { "/" }, files.len());
    Some(format!(
        "{place}: {below} of {all} files are in subfolders, which SQL over this folder leaves out; a pattern like \
         '{place}{separator}*.{format}' does, too"
    ))
}
