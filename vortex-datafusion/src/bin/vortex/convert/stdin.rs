//! Standard input as a file: formats are read more than once, and some from the end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::{NamedTempFile, TempPath};

use super::find::Found;
use super::input::Reader;
use crate::failure::{Failure, Outcome};
use crate::formats::Format;

/// How messages call it.
const NAME: &str = "standard input";

/// Copies standard input to a temporary file, which is removed with the last clone of what is returned.
pub(super) async fn copied(reader: &Reader, format: Option<Format>) -> Outcome<Vec<Found>> {
    if format.is_none() {
        return Err(Failure::Usage(format!("{NAME}: unknown format; set it with --from")));
    }
    let copied = tokio::task::spawn_blocking(copy).await.map_err(Failure::error)?;
    let path = Arc::new(copied.map_err(|error| Failure::at(NAME, error))?);
    let place =
        path.to_str().ok_or_else(|| Failure::error("the folder for temporary files is not Unicode"))?;
    let mut files = reader.find(place, format).await?;
    for file in &mut files {
        file.name = NAME.to_owned();
        file.relative = PathBuf::from("stdin");
        file.temporary = Some(Arc::clone(&path));
    }
    Ok(files)
}

fn copy() -> io::Result<TempPath> {
    let mut file = NamedTempFile::new()?;
    io::copy(&mut io::stdin().lock(), file.as_file_mut())?;
    Ok(file.into_temp_path())
}
