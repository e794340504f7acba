//! Standard input as a file: formats are read more than once, and some from the end.

use std::io;
use std::path::PathBuf;

use tempfile::NamedTempFile;

use super::find::Found;
use super::input::Reader;
use super::text_form::CsvArguments;
use crate::failure::{Failure, Outcome};
use crate::formats::Format;

/// How messages call it.
const NAME: &str = "standard input";

/// Copies standard input to a temporary file, which is removed with the last clone of what is returned.
pub(super) async fn copy(reader: &Reader, format: Option<Format>, csv: &CsvArguments) -> Outcome<Found> {
    let Some(format) = format else {
        return Err(Failure::Usage(format!("{NAME}: unknown format; set it with --from")));
    };
    let full = |error: io::Error| {
        Failure::at(format!("{NAME}, which is copied to {}", std::env::temp_dir().display()), error)
    };
    // If this is dropped, so is the file: a thread that still reads does not keep it.
    let (mut file, path) = NamedTempFile::new().map_err(full)?.into_parts();
    let copy = move || io::copy(&mut io::stdin().lock(), &mut file);
    tokio::task::spawn_blocking(copy).await.map_err(Failure::error)?.map_err(full)?;
    let file = reader.temporary(path, format, csv).await?;
    Ok(Found { name: NAME.to_owned(), relative: PathBuf::from("stdin"), ..file })
}
