//! Files of text that are copied to temporary files, since DataFusion would not read all of their rows.

use std::io::{self, BufReader, BufWriter};

use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use tempfile::NamedTempFile;

use super::find::Found;
use super::input::Reader;
use super::json_array::write_lines;
use super::text_form::{CsvArguments, TextForm};
use crate::failure::{Failure, Outcome};
use crate::formats::{Format, Text};

/// Within these first bytes, a JSON file has a character that is no space.
const START_BYTES: u64 = 64 << 10;

/// What a copy has of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copied {
    /// Its text.
    Text,
    /// A line for each value of an array.
    Values,
}

/// The files, or copies in place of some, which are removed with the last clones of what is returned.
pub(super) async fn readable(reader: &Reader, csv: &CsvArguments, files: &[Found]) -> Outcome<Vec<Found>> {
    let mut wanted = Vec::with_capacity(files.len());
    for file in files {
        let copied = reader.copied(file).await.map_err(|failure| Failure::at(&file.name, failure))?;
        wanted.push(copied);
    }
    // A table has files of one store.
    let are_copied = wanted.iter().any(Option::is_some);
    let mut read = Vec::with_capacity(files.len());
    for (file, wanted) in files.iter().zip(wanted) {
        // A copy elsewhere would lose the values of folders, which is an error where others have none.
        let must_follow = are_copied && file.is_text() && is_remote(file) && file.partitioned.is_none();
        read.push(match wanted.or(must_follow.then_some(Copied::Text)) {
            None => file.clone(),
            Some(copied) => {
                let copy = reader.copy(csv, file, copied).await;
                copy.map_err(|failure| Failure::at(&file.name, failure))?
            }
        });
    }
    Ok(read)
}

fn is_remote(file: &Found) -> bool {
    file.url.scheme() != "file"
}

impl Reader {
    /// Whether a file has to be copied, and how. One of a folder whose name has a value is left alone: a copy elsewhere
    /// would lose that.
    async fn copied(&self, file: &Found) -> Outcome<Option<Copied>> {
        if !file.is_text() || file.partitioned.is_some() {
            return Ok(None);
        }
        if file.format == Format::Json
            && self.start(file, START_BYTES).await?.trim_ascii_start().starts_with(b"[")
        {
            return Ok(Some(Copied::Values));
        }
        // Of several streams in such a file, DataFusion reads the first one.
        use CompressionTypeVariant::{BZIP2, XZ, ZSTD};
        let has_streams = is_remote(file) && matches!(file.form.compression, BZIP2 | XZ | ZSTD);
        Ok(has_streams.then_some(Copied::Text))
    }

    async fn copy(&self, csv: &CsvArguments, file: &Found, copied: Copied) -> Outcome<Found> {
        let (lines, path) = NamedTempFile::new()?.into_parts();
        let mut lines = BufWriter::new(lines);
        let store = self.stores.get_store(file.url.as_ref())?;
        let text = Text::new(&store, Some(FileCompressionType::from(file.form.compression)));
        let copy = text.read(&file.meta, move |mut text| match copied {
            Copied::Values => Ok(write_lines(BufReader::new(text), lines)?),
            Copied::Text => {
                io::copy(&mut text, &mut lines)?;
                Ok(io::Write::flush(&mut lines)?)
            }
        });
        copy.await?;
        let copy = self.temporary(path, file.format, csv).await?;
        let form = TextForm { compression: CompressionTypeVariant::UNCOMPRESSED, ..file.form };
        let (name, relative) = (file.name.clone(), file.relative.clone());
        Ok(Found { name, relative, form, in_subfolder: file.in_subfolder, ..copy })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::ObjectStoreExt as _;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use url::Url;

    use super::*;

    #[tokio::test]
    async fn lines_follow_an_array_unless_their_folder_has_a_value() {
        let (memory, csv) = (InMemory::new(), CsvArguments::default());
        for (name, text) in
            [("a.json", "[{\"a\":1}]"), ("b.json", "{\"a\":2}"), ("t/k=1/c.json", "{\"a\":3}")]
        {
            memory.put(&Path::from(name), text.into()).await.unwrap();
        }
        let reader = Reader::open(false, 1 << 20).unwrap();
        reader.stores.register_store(&Url::parse("gs://bucket").unwrap(), Arc::new(memory));
        let mut files = Vec::new();
        for place in ["gs://bucket/a.json", "gs://bucket/b.json", "gs://bucket/t/"] {
            files.extend(reader.find(place, None, &csv).await.unwrap().0);
        }
        let read = readable(&reader, &csv, &files).await.unwrap();
        let schemes: Vec<&str> = read.iter().map(|file| file.url.scheme()).collect();
        assert_eq!(schemes, ["file", "file", "gs"]);
        assert!(read[2].partitioned.is_some());
        let lines = readable(&reader, &csv, &files[1..]).await.unwrap();
        assert!(lines.iter().all(is_remote));
    }
}
