//! Standard input as a file: formats are read more than once, and some from the end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::find::Found;
use super::input::Reader;
use super::text_form::CsvArguments;
use crate::failure::{Failure, Outcome};
use crate::formats::Format;

/// How messages call it.
const NAME: &str = "standard input";

/// Copies standard input to a temporary file, which is removed with the last clone of what is returned.
pub(super) async fn copy(reader: &Reader, format: Option<Format>, csv: &CsvArguments) -> Outcome<Vec<Found>> {
    if format.is_none() {
        return Err(Failure::Usage(format!("{NAME}: unknown format; set it with --from")));
    }
    let full = |error: io::Error| {
        Failure::at(format!("{NAME}, which is copied to {}", std::env::temp_dir().display()), error)
    };
    // If this is dropped, so is the file: a thread that still reads does not keep it.
    let (mut file, path) = NamedTempFile::new().map_err(full)?.into_parts();
    let path = Arc::new(path);
    let copy = move || io::copy(&mut io::stdin().lock(), &mut file);
    tokio::task::spawn_blocking(copy).await.map_err(Failure::error)?.map_err(full)?;
    let place =
        path.to_str().ok_or_else(|| Failure::error("the folder for temporary files is not Unicode"))?;
    let mut files = reader.find(place, format, csv).await?;
    for file in &mut files {
        file.name = NAME.to_owned();
        file.relative = PathBuf::from("stdin");
        file.temporary = Some(Arc::clone(&path));
    }
    Ok(files)
}
