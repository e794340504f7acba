//! How files of text are read: what the names of files and the arguments say.

use std::path::{Path, PathBuf};

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr;

use crate::failure::{Failure, Outcome};
use crate::formats::Format;

/// How CSV files are read.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(super) struct CsvArguments {
    /// What separates values of CSV files, like `;` or `\t`; by default a comma, and a tab in `.tsv` files.
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// CSV files begin with a row, not with names: columns are column_1, column_2, ...
    #[arg(long)]
    no_header: bool,
    /// The type of a column of CSV files, as SQL names it, like `zip=VARCHAR`; may be repeated. By default, values
    /// tell.
    #[arg(long = "type", value_name = "COLUMN=TYPE", value_parser = column_type)]
    types: Vec<(String, String)>,
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text {
        "\\t" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
            _ => Err("expected one ASCII character, like ; or \\t".to_owned()),
        },
    }
}

/// A column and its type. The name of the column may contain a `=`.
fn column_type(text: &str) -> Result<(String, String), String> {
    let (column, name) = text.rsplit_once('=').ok_or("expected a column and its type, like zip=VARCHAR")?;
    Ok((column.trim().to_owned(), name.trim().to_owned()))
}

impl CsvArguments {
    pub(super) fn is_given(&self) -> bool {
        self.delimiter.is_some() || self.no_header || !self.types.is_empty()
    }

    /// The types of columns that are given.
    pub(super) fn types(&self, state: &SessionState) -> Outcome<Vec<(String, DataType)>> {
        let types = self.types.iter().map(|(column, name)| match sql_type(name, state) {
            Some(data_type) => Ok((column.clone(), data_type)),
            None => Err(Failure::Usage(format!(
                "--type: `{name}` is no type of SQL, such as VARCHAR, BIGINT, DOUBLE, DECIMAL(10, 2), DATE or TIMESTAMP"
            ))),
        });
        types.collect()
    }
}

/// The type that SQL calls so.
fn sql_type(name: &str, state: &SessionState) -> Option<DataType> {
    match state.create_logical_expr(&format!("CAST(NULL AS {name})"), &DFSchema::empty()).ok()? {
        Expr::Cast(cast) => Some(match cast.field.data_type() {
            DataType::Utf8View => DataType::Utf8,
            other => other.clone(),
        }),
        _ => None,
    }
}

/// How a file of text is divided into rows and values. The same for all files of other formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextForm {
    /// What separates values, if that is given; otherwise, a comma does.
    pub(super) delimiter: Option<u8>,
    pub(super) has_header: bool,
    pub(super) compression: CompressionTypeVariant,
}

impl Default for TextForm {
    fn default() -> Self {
        Self { delimiter: None, has_header: true, compression: CompressionTypeVariant::UNCOMPRESSED }
    }
}

/// The format of a file, and how it is read: by its name, unless a format is given; `None` if its name tells none.
///
/// # Errors
/// If it is compressed, but no text.
pub(super) fn form_of(
    path: &Path,
    from: Option<Format>,
    csv: &CsvArguments,
) -> Result<Option<(Format, TextForm)>, String> {
    let (path, compressed) = uncompressed(path);
    let is_tsv = has_extension(&path, "tsv");
    let Some(format) = from.or_else(|| is_tsv.then_some(Format::Csv)).or_else(|| Format::of_path(&path))
    else {
        return Ok(None);
    };
    let mut form = TextForm::default();
    if let Some((extension, compression)) = compressed {
        if !matches!(format, Format::Csv | Format::Json) {
            return Err(format!(
                "is compressed ({extension}), which only CSV and JSON may be; decompress it first"
            ));
        }
        form.compression = compression;
    }
    if format == Format::Csv {
        form.delimiter = csv.delimiter.or(is_tsv.then_some(b'\t'));
        form.has_header = !csv.no_header;
    }
    Ok(Some((format, form)))
}

/// Whether a file of this name would be read as plain text, if it is of this format of text.
pub(super) fn is_read_as(path: &Path, format: Format) -> bool {
    let plain = |(_, form)| form == TextForm::default();
    let is_text = matches!(format, Format::Csv | Format::Json);
    !is_text || form_of(path, Some(format), &CsvArguments::default()).is_ok_and(|read| read.is_none_or(plain))
}

/// The path with the extension of a format, in place of that of another format, and of a compression.
pub(super) fn renamed(path: &Path, format: Format) -> PathBuf {
    let is_known = |path: &Path| Format::of_path(path).is_some() || has_extension(path, "tsv");
    let (whole, _) = uncompressed(path);
    if is_known(&whole) {
        whole.with_extension(format.extension())
    } else {
        path.with_added_extension(format.extension())
    }
}

/// The path without the extension of a compression, and this extension.
fn uncompressed(path: &Path) -> (PathBuf, Option<(&'static str, CompressionTypeVariant)>) {
    use CompressionTypeVariant::{BZIP2, GZIP, XZ, ZSTD};
    let known = [("gz", GZIP), ("bz2", BZIP2), ("xz", XZ), ("zst", ZSTD)];
    match known.into_iter().find(|(extension, _)| has_extension(path, extension)) {
        Some(compression) => (path.with_extension(""), Some(compression)),
        None => (path.to_owned(), None),
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|it| it.eq_ignore_ascii_case(extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arguments_tell_how_text_is_read() {
        let given = |delimiter| CsvArguments { delimiter, no_header: false, types: Vec::new() };
        let form = |name: &str, from, delimiter| form_of(Path::new(name), from, &given(delimiter));
        let separated = |delimiter| TextForm { delimiter, ..TextForm::default() };
        let gzip = TextForm { compression: CompressionTypeVariant::GZIP, ..separated(Some(b'\t')) };
        assert_eq!(form("a.csv", None, None), Ok(Some((Format::Csv, separated(None)))));
        assert_eq!(form("a.csv", None, Some(b';')), Ok(Some((Format::Csv, separated(Some(b';'))))));
        assert_eq!(form("b/a.TSV.gz", None, None), Ok(Some((Format::Csv, gzip))));
        assert_eq!(form("a.txt", Some(Format::Csv), None), Ok(Some((Format::Csv, separated(None)))));
        assert_eq!(form("a.parquet", None, Some(b';')), Ok(Some((Format::Parquet, TextForm::default()))));
        assert_eq!(form("a.txt.gz", None, None), Ok(None));
        assert!(form("a.parquet.gz", None, None).is_err());
    }

    #[test]
    fn the_extension_of_the_format_replaces_what_tells_another() {
        for (name, expected) in [
            ("a.csv", "a.vortex"),
            ("b/a.csv.gz", "b/a.vortex"),
            ("a.tsv.zst", "a.vortex"),
            ("a.b", "a.b.vortex"),
            ("a.b.gz", "a.b.gz.vortex"),
        ] {
            assert_eq!(renamed(Path::new(name), Format::Vortex), Path::new(expected));
        }
    }

    #[test]
    fn text_is_written_under_names_that_tell_no_other_form() {
        let is_read = |name: &str, format| is_read_as(Path::new(name), format);
        assert!(
            is_read("a.csv", Format::Csv) && is_read("a.txt", Format::Csv) && is_read("a.gz", Format::Vortex)
        );
        assert!(
            !is_read("a.csv.gz", Format::Csv)
                && !is_read("a.tsv", Format::Csv)
                && !is_read("a.zst", Format::Json)
        );
    }

    #[test]
    fn a_delimiter_is_one_character() {
        assert_eq!((delimiter(";"), delimiter("\\t"), delimiter("\t")), (Ok(b';'), Ok(b'\t'), Ok(b'\t')));
        assert!(["", ";;", "\u{20ac}", "\"", "\n"].iter().all(|text| delimiter(text).is_err()));
    }

    #[test]
    fn types_are_named_as_in_sql() {
        let state = datafusion::prelude::SessionContext::new().state();
        assert_eq!(sql_type("varchar", &state), Some(DataType::Utf8));
        assert_eq!(sql_type("DECIMAL(10, 2)", &state), Some(DataType::Decimal128(10, 2)));
        assert_eq!(sql_type("int) + (1", &state), None);
        assert_eq!(sql_type("money", &state), None);
    }
}
