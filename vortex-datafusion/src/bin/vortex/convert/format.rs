//! The formats that rows are read from and written to.

use std::path::Path;

use clap::ValueEnum;

/// A format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Vortex.
    Vortex,
    /// Parquet; written with zstd.
    Parquet,
    /// Arrow IPC: files; a stream on standard output.
    Arrow,
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    Json,
}

impl Format {
    /// The format that corresponds to the extension of a path.
    pub(super) fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_string_lossy().to_lowercase();
        Some(match extension.as_str() {
            "vortex" => Self::Vortex,
            "parquet" | "pq" => Self::Parquet,
            "arrow" | "arrows" | "ipc" | "feather" => Self::Arrow,
            "csv" => Self::Csv,
            "json" | "jsonl" | "ndjson" => Self::Json,
            _ => return None,
        })
    }

    /// The extension for files named by this program.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Vortex => "vortex",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }
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
