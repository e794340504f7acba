//! The formats that rows are read from and written to, and their extensions, which are the same for all commands.
//!
//! All but Vortex are formats of DataFusion, of which some faults are [`Corrected`].

mod corrected;
mod csv;
mod ipc;
mod json;
mod parquet;
mod text;
mod whole_files;

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use datafusion::common::Result;
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::datasource::file_format::arrow::ArrowFormatFactory;
use datafusion::datasource::file_format::csv::CsvFormatFactory;
use datafusion::datasource::file_format::json::JsonFormatFactory;
use datafusion::datasource::file_format::parquet::ParquetFormatFactory;
use datafusion::prelude::SessionContext;

pub(crate) use corrected::Corrected;
use corrected::CorrectedFormats;
pub(crate) use csv::text_if_empty;
pub(crate) use parquet::INT96_UNIT;
pub(crate) use text::Text;

/// Number of lines of CSV files, and of JSON files unless all are looked at, from which the types of columns are
/// inferred.
pub(crate) const LINES_FOR_TYPES: usize = 100_000;

/// A format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Vortex.
    Vortex,
    /// Parquet; written with zstd.
    Parquet,
    /// Arrow IPC: files; streams on standard output and as `.arrows`.
    Arrow,
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    Json,
}

impl Format {
    /// The format that corresponds to the extension of a path.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_string_lossy().to_lowercase();
        let is_of = |format: &&Self| format.extensions().contains(&extension.as_str());
        Self::value_variants().iter().find(is_of).copied()
    }

    /// The extension for files named by this program.
    pub(crate) fn extension(self) -> &'static str {
        self.extensions()[0]
    }

    /// The extensions of files that have this format.
    fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Vortex => &["vortex"],
            Self::Parquet => &["parquet", "pq"],
            Self::Arrow => &["arrow", "arrows", "ipc", "feather"],
            Self::Csv => &["csv"],
            Self::Json => &["json", "jsonl", "ndjson"],
        }
    }
}

/// Makes a session that knows Vortex files read and write files of all these extensions.
pub(crate) fn register(context: &SessionContext) -> Result<()> {
    let state = context.state_ref();
    let mut state = state.write();
    let formats: [(Format, Arc<dyn FileFormatFactory>); 4] = [
        (Format::Arrow, Arc::new(ArrowFormatFactory::new())),
        (Format::Csv, Arc::new(CsvFormatFactory::new())),
        (Format::Json, Arc::new(JsonFormatFactory::new())),
        (Format::Parquet, Arc::new(ParquetFormatFactory::new())),
    ];
    for (format, formats) in formats {
        for extension in format.extensions() {
            let formats = Arc::clone(&formats);
            state.register_file_format(Arc::new(CorrectedFormats { extension, formats }), true)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_read_as_they_are_written() {
        for format in Format::value_variants() {
            assert_eq!(
                Format::of_path(Path::new("a.b").with_extension(format.extension()).as_path()),
                Some(*format)
            );
        }
        assert_eq!(Format::of_path(Path::new("A.PARQUET")), Some(Format::Parquet));
        assert_eq!(Format::of_path(Path::new("parquet")), None);
    }
}
