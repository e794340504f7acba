//! Arguments of `vortex convert`.

use std::collections::HashSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use arrow::datatypes::Schema;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use vortex_core::Level;
use vortex_core::write::WriteOptions;
use vortex_datafusion::{VortexOptions, column_path};

use super::sort::SortKey;
use super::text_form::CsvArguments;
use crate::failure::{Failure, Outcome};
use crate::formats::Format;
use crate::min_reader::MinReader;
use crate::text::parse_size;

/// Arguments of `vortex convert`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "vortex convert [OPTIONS] <INPUT>... <OUTPUT>")]
pub(crate) struct Arguments {
    /// What to convert: files, folders, globs; paths or URLs (s3://, gs://, az://, https://); `-` is standard
    /// input. The last place is the file or, if it ends in `/` or is one, the folder to write: a path, or the URL of a
    /// bucket; `-` is standard output. Files that exist are replaced; parts (--target-file-size) are refused if they
    /// exist.
    #[arg(required = true, value_name = "PLACE", value_parser = PathBufValueParser::new().map(standard))]
    places: Vec<PathBuf>,
    /// The format to read; by default, extensions determine it.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(super) from: Option<Format>,
    /// The format to write; by default, the extension determines it, and folders get Vortex files.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(super) to: Option<Format>,
    /// Only these columns, in this order; names that contain commas cannot be given, use SQL.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = trimmed)]
    pub(super) columns: Option<Vec<String>>,
    /// All columns but these.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = trimmed, conflicts_with = "columns")]
    pub(super) exclude: Option<Vec<String>>,
    /// At most this many rows of each output.
    #[arg(long, value_name = "ROWS")]
    pub(super) limit: Option<u64>,
    /// Sort the rows of each output: `day,price desc,note nulls first`; nulls last, with `desc` first.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub(super) sort_by: Vec<SortKey>,
    /// Memory for sorting, like `4g`; rows that do not fit are spilled to temporary files. Some batches must fit.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, default_value = "1g")]
    pub(super) memory_limit: usize,
    /// Cut the output into files of about this size, like `256m`.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) target_file_size: Option<usize>,
    /// Go on after a file that cannot be converted; the exit code tells. By default, no more files are begun.
    #[arg(short, long)]
    pub(super) keep_going: bool,
    #[command(flatten)]
    pub(super) csv: CsvArguments,
    #[command(flatten)]
    pub(super) vortex: VortexArguments,
}

/// How Vortex files are written.
#[derive(Debug, clap::Args)]
pub(super) struct VortexArguments {
    /// `fast`: decodes fastest, larger files; `default`: about the size of Parquet; `compact`: smallest,
    /// slowest to decode.
    #[arg(long, value_name = "LEVEL", ignore_case = true, value_parser = levels())]
    level: Option<Level>,
    /// The level of one column, like `id=fast`, or of a field of structs, like `address.city=compact`; may be repeated.
    #[arg(long, value_name = "COLUMN=LEVEL", value_parser = column_level)]
    column_level: Vec<(String, Level)>,
    /// Store a Bloom filter of a column, for looking up single values, like `id`, or of a field of structs, like
    /// `address.zip`; may be repeated.
    #[arg(long, value_name = "COLUMN")]
    bloom_filter: Vec<String>,
    /// The oldest release of the reference implementation that must read the files: `0.76`, `newest`.
    #[arg(long, value_name = "RELEASE")]
    min_reader: Option<MinReader>,
    /// Store checksums, for `vortex verify`.
    #[arg(long)]
    checksums: bool,
}

/// The levels, which help and errors list.
fn levels() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(Level::ALL.map(Level::name)).try_map(|name| name.parse::<Level>())
}

/// A column and its level. The name of the column may contain a `=`.
fn column_level(text: &str) -> Result<(String, Level), String> {
    let (column, level) = text.rsplit_once('=').ok_or("expected a column and its level, like id=fast")?;
    match level.trim().parse() {
        Ok(level) => Ok((column.trim().to_owned(), level)),
        Err(_) => {
            Err(format!("`{level}` is not a level; write one of {}", Level::ALL.map(Level::name).join(", ")))
        }
    }
}

/// The path, or `-` for a standard stream: a file that it is redirected to would be replaced otherwise.
fn standard(path: PathBuf) -> PathBuf {
    if ["/dev/stdin", "/dev/stdout"].iter().any(|stream| path == Path::new(stream)) {
        "-".into()
    } else {
        path
    }
}

/// A name without the spaces around it.
#[expect(clippy::unnecessary_wraps, reason = "what clap expects of a parser")]
fn trimmed(name: &str) -> Result<String, Infallible> {
    Ok(name.trim().to_owned())
}

impl VortexArguments {
    pub(super) fn is_given(&self) -> bool {
        self.level.is_some()
            || !self.column_level.is_empty()
            || !self.bloom_filter.is_empty()
            || self.min_reader.is_some()
            || self.checksums
    }

    pub(super) fn options(&self) -> WriteOptions {
        let mut options = VortexOptions::default();
        options.level = self.level.unwrap_or_default();
        options.checksums = self.checksums;
        if let Some(reader) = &self.min_reader {
            options.min_reader = Some(reader.release);
            reader.warn_if_unknown();
        }
        options.write_options()
    }

    /// The options for a file with these columns.
    pub(super) fn with_columns(&self, mut options: WriteOptions, schema: &Schema) -> Outcome<WriteOptions> {
        let path = |option, column: &str| {
            column_path(schema, column).map_err(|found| Failure::error(format!("{option}: {found}")))
        };
        for (column, level) in &self.column_level {
            options = options.with_column_level(path("--column-level", column)?, *level);
        }
        for column in &self.bloom_filter {
            options = options.with_bloom_filter(path("--bloom-filter", column)?);
        }
        Ok(options)
    }
}

impl Arguments {
    /// The inputs and the output.
    pub(super) fn places(&self) -> Outcome<(Vec<&str>, &Path)> {
        fn place(path: &Path) -> Outcome<&str> {
            let not_unicode = || format!("{}: is not Unicode; give the file another name", path.display());
            path.to_str().ok_or_else(|| Failure::Usage(not_unicode()))
        }
        match self.places.split_last() {
            Some((output, inputs)) if !inputs.is_empty() => {
                Ok((inputs.iter().map(|input| place(input)).collect::<Outcome<_>>()?, output))
            }
            _ => Err(Failure::Usage("convert needs an input and an output".to_owned())),
        }
    }

    /// A column that `--columns` names twice.
    pub(super) fn twice(&self) -> Option<&String> {
        let mut names = HashSet::new();
        self.columns.iter().flatten().find(|name| !names.insert(*name))
    }
}
