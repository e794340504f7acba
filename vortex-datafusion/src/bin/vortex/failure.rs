//! The ways in which commands fail.

use std::error::Error;
use std::io::{self, Write as _};
use std::iter::successors;

use arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use parquet::errors::ParquetError;

use crate::text::{counted, visible};

/// The result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The combination of arguments is invalid: exit status 2.
    Usage(String),
    /// An error, described in one line: exit status 1.
    Error(String),
    /// The output is no longer read: treated as success.
    ClosedPipe,
    /// A signal ended the work: the exit status for it.
    Interrupted(u8),
}

impl Failure {
    /// An error at a place: a file, a statement.
    pub(crate) fn at(place: impl std::fmt::Display, error: impl Into<Failure>) -> Self {
        match error.into() {
            // Many errors name the file themselves.
            Failure::Error(message) if is_named(&place.to_string(), &message) => Failure::Error(message),
            Failure::Error(message) => Failure::Error(format!("{place}: {message}")),
            other => other,
        }
    }

    pub(crate) fn error(message: impl std::fmt::Display) -> Self {
        Failure::Error(one_line(&message.to_string()))
    }
}

/// Whether a message contains this place, or the absolute path of it, and not as a part of something longer.
fn is_named(place: &str, message: &str) -> bool {
    let is_apart =
        |next: Option<char>| next.is_none_or(|next| !next.is_alphanumeric() && !"/._-".contains(next));
    let names = |place: &str| {
        message.match_indices(place).any(|(at, _)| {
            let rest = message[at + place.len()..].trim_start_matches('.');
            let ends = place.ends_with('/') || is_apart(rest.chars().next());
            ends && is_apart(message[..at].chars().next_back())
        })
    };
    let folder = || std::env::current_dir().ok().map(|folder| folder.join(place));
    names(place) || folder().is_some_and(|path| names(&path.to_string_lossy()))
}

/// Failures of files that do not prevent others from being examined.
#[derive(Debug)]
pub(crate) struct Failures {
    files: usize,
    failed: u64,
    only: Option<Failure>,
}

impl Failures {
    /// None so far, among this many files and folders that cannot be read.
    pub(crate) fn among(files: usize) -> Self {
        Self { files, failed: 0, only: None }
    }

    /// Counts a file whose problems have been printed, if it has any.
    pub(crate) fn count(&mut self, has_problems: bool) {
        self.failed += u64::from(has_problems);
    }

    /// Reports the failure of a file at once, unless it is the only file: then its failure is the outcome.
    ///
    /// # Errors
    /// If there is no point in going on.
    pub(crate) fn report(&mut self, failure: Failure) -> Outcome {
        match failure {
            Failure::Error(message) if self.files > 1 => {
                self.failed += 1;
                // The exit status tells it even if nobody reads this.
                _ = writeln!(io::stderr(), "vortex: {message}");
                Ok(())
            }
            Failure::Error(message) => {
                self.only = Some(Failure::Error(message));
                Ok(())
            }
            other => Err(other),
        }
    }

    /// The outcome for all files together.
    pub(crate) fn outcome(self) -> Outcome {
        match (self.only, self.failed) {
            (Some(failure), _) => Err(failure),
            (None, 0) => Ok(()),
            (None, failed) => Err(Failure::error(format!("{} with problems", counted(failed, "file")))),
        }
    }
}

/// Replaces line breaks by separators, so that tools get one line per error, and shows other control characters.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join("; ").replace(":;", ":").replace("caused by;", "caused by:");
    visible(&without_passwords(&line))
}

/// The message without names and passwords in URLs.
fn without_passwords(message: &str) -> String {
    let mut parts = message.split("://");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let server = part.split(['/', ' ', '\'', '"', '?', '#', ')']).next().unwrap_or_default();
        let from = server.rfind('@').map_or(0, |at| at + 1);
        kept.push_str("://");
        kept.push_str(&part[from..]);
    }
    kept
}

const RAISE_LIMIT: &str = "raise --memory-limit; in SQL, --mem-pool-type fair may do, too";
const FORMATS: &str = "formats are VORTEX, PARQUET, CSV, JSON and ARROW";

const OTHER: &str =
    "the file is damaged, cut short, or of another format: STORED AS in SQL, or --from, names it";
const TYPES: &str = "declare types that fit: CREATE EXTERNAL TABLE t (name TYPE, ...) STORED AS ... LOCATION '...', or convert --type";

/// What to do about errors of libraries, which do not tell.
const ADVICE: [(&str, &str); 23] = [
    (
        "getting credentials",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or AWS_SKIP_SIGNATURE=true for a public bucket",
    ),
    ("Range request not supported", "the server cannot send parts of a file; download the file first"),
    ("Failed to allocate additional", RAISE_LIMIT),
    ("Consider increasing the memory limit", RAISE_LIMIT),
    ("Additional allocation failed", RAISE_LIMIT),
    (
        "Expected JSON record to be an object, found Array",
        "a file that is one array is read by SQL, from a table with OPTIONS ('format.newline_delimited' 'false')",
    ),
    (
        "Expected 1 records, found",
        "if commas do not separate the fields: a table with OPTIONS ('format.delimiter' ';'), or convert --delimiter ';'",
    ),
    (
        "records, found",
        "OPTIONS ('format.truncated_rows' 'true') of a table fills what is missing at the ends of rows with NULL",
    ),
    ("invalid utf-8", "convert the file to UTF-8 first, as iconv does"),
    ("Format not explicitly set", FORMATS),
    ("Error while parsing value", TYPES),
    ("the type of the first lines, or the one given", TYPES),
    ("failed to parse ", TYPES),
    ("whilst decoding field", "a column of JSON needs values of one type"),
    ("Failed to parse Arrow file as either", OTHER),
    ("Invalid Parquet file", OTHER),
    ("Parquet file too small", OTHER),
    ("Parquet files are at least", OTHER),
    ("failed to fill whole buffer", "the file is damaged or cut short"),
    (
        "Error encountered while finalizing writes",
        "the place may not be writable, the disk full, or the file too large for a limit of the system",
    ),
    (
        "no registered file format with ext",
        "STORED AS names the format; of a compressed file, with OPTIONS ('format.compression' 'gzip')",
    ),
    (
        "Inserting into a ListingTable backed by a single file",
        "the table is a single file: let it be a folder to which INSERT adds files, or replace the file with COPY",
    ),
    ("Unable to find factory for", FORMATS),
];

/// A message with what the operating system says, unless it is told, and with advice.
fn in_full(error: &(dyn Error + 'static), mut message: String) -> String {
    let causes = successors(Some(error), |&cause| cause.source());
    let cause = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).last();
    let is_full = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::StorageFull);
    if let Some(cause) = cause.map(io::Error::to_string).filter(|cause| !message.contains(cause)) {
        message = format!("{message}: {cause}");
    }
    if is_full {
        return format!("{message}; free some space, or set TMPDIR if it is missing for temporary files");
    }
    match ADVICE.iter().find(|(about, _)| message.contains(about)) {
        Some((_, advice)) => format!("{message}; {advice}"),
        None => message,
    }
}

/// Whether a write to a closed pipe is the cause. A connection to an object store that breaks is something else.
fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if successors(Some(error), |&cause| cause.source()).any(|cause| cause.is::<object_store::Error>()) {
        return false;
    }
    successors(Some(error), |&cause| cause.source()).any(|cause| match cause.downcast_ref::<ArrowError>() {
        Some(ArrowError::IoError(_, error)) => is_closed(error),
        // Only the text of the cause is kept.
        Some(ArrowError::CsvError(message)) => message.contains("Broken pipe"),
        _ => cause.downcast_ref::<io::Error>().is_some_and(is_closed),
    })
}

/// What an error of DataFusion says, without classes that tell users nothing, and without naming a file twice in a row.
fn described(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Context(context, cause) => {
            let cause = described(cause);
            let rest = match cause.split_once(": ") {
                Some((place, rest)) if context.ends_with(place) => rest,
                _ => cause.as_str(),
            };
            format!("{context}\ncaused by\n{rest}")
        }
        DataFusionError::Shared(cause) => described(cause),
        DataFusionError::External(cause) => without_wrong_advice(cause.to_string()),
        DataFusionError::ObjectStore(cause) => cause.to_string(),
        other => without_wrong_advice(other.strip_backtrace()),
    }
}

/// The text of an error without the end that tells to do what does not help with files.
fn without_wrong_advice(mut text: String) -> String {
    for advice in [
        "To append to an existing file use StreamTable",
        "This issue was likely caused by a bug in DataFusion",
    ] {
        if let Some(at) = text.find(advice).filter(|_| ADVICE.iter().any(|(about, _)| text.contains(about))) {
            text.truncate(text[..at].trim_end_matches([' ', '.', '\n']).len());
        }
    }
    text
}

fn failure(error: &(dyn Error + 'static), message: String) -> Failure {
    if is_closed_pipe(error) { Failure::ClosedPipe } else { Failure::error(in_full(error, message)) }
}

/// Errors that tell users all they say.
macro_rules! failures_from {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                failure(&error, error.to_string())
            }
        }
    )*};
}

failures_from!(io::Error, vortex_core::Error, ArrowError, ParquetError, object_store::Error);

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        failure(&error, described(&error))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        if error.io_error_kind() == Some(io::ErrorKind::BrokenPipe) {
            return Failure::ClosedPipe;
        }
        Failure::error(error)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn errors_are_one_line_and_name_the_place_once() {
        let Failure::Error(message) = Failure::at("a.vortex", Failure::error("cut\n  short")) else {
            panic!()
        };
        assert_eq!(message, "a.vortex: cut; short");
        let Failure::Error(message) = Failure::at("a.vortex", Failure::error("a.vortex: cut")) else {
            panic!()
        };
        assert_eq!(message, "a.vortex: cut");
        for (place, message, is) in [
            ("a", "cannot read a", true),
            ("a", "no such file: a.", true),
            ("data", "'data': cut", true),
            ("data/", "data/b.vortex: cut", true),
            ("data", "metadata is cut", false),
            ("data", "/x/data.parquet: cut", false),
            ("data", "/x/data: cut", false),
        ] {
            assert_eq!(is_named(place, message), is, "{message}");
        }
        let absolute = std::env::current_dir().unwrap().join("a.vortex");
        assert!(is_named("a.vortex", &format!("{}: cut", absolute.display())));
    }

    #[test]
    fn errors_name_servers_without_passwords() {
        let Failure::Error(message) = Failure::error(
            "HEAD http://me:s@cret@host:1/a@b.csv and 'https://host/c@d', not s3://bucket/e@f",
        ) else {
            panic!()
        };
        assert_eq!(message, "HEAD http://host:1/a@b.csv and 'https://host/c@d', not s3://bucket/e@f");
    }

    #[test]
    fn errors_of_queries_name_the_file_once_and_not_their_class() {
        let core = vortex_core::Error::corrupt("cut short").at("/a b.vortex");
        let error = DataFusionError::External(Box::new(core)).context("opening /a b.vortex");
        let shared = DataFusionError::Shared(Arc::new(error)).context("planning");
        let Failure::Error(message) = Failure::from(shared) else { panic!() };
        assert_eq!(message, "planning; caused by: opening /a b.vortex; caused by: corrupt file: cut short");
        let error = DataFusionError::Plan("no table: t".into()).context("a statement");
        let Failure::Error(message) = Failure::from(error) else { panic!() };
        assert_eq!(message, "a statement; caused by: Error during planning: no table: t");
    }

    #[test]
    fn advice_is_about_files() {
        let message = |error: DataFusionError| match Failure::from(error) {
            Failure::Error(message) => message,
            other => panic!("{other:?}"),
        };
        let insert = "Inserting into a ListingTable backed by a single file is not supported. To append to an existing \
                      file use StreamTable, e.g. by using CREATE UNBOUNDED EXTERNAL TABLE";
        let insert = message(DataFusionError::Plan(insert.to_owned()));
        assert!(!insert.contains("StreamTable") && insert.contains("let it be a folder"), "{insert}");
        let arrow = message(DataFusionError::Internal(
            "Failed to parse Arrow file as either file or stream".to_owned(),
        ));
        assert!(arrow.contains("the file is damaged, cut short, or of another format"), "{arrow}");
        assert!(!arrow.contains("bug"), "{arrow}");
        let full = message(DataFusionError::IoError(io::ErrorKind::StorageFull.into()));
        assert!(full.ends_with("set TMPDIR if it is missing for temporary files"), "{full}");
        let ours = message(DataFusionError::Internal("no such partition".to_owned()));
        assert!(ours.contains("caused by a bug"), "{ours}");
    }

    #[test]
    fn a_closed_pipe_is_found_below_other_errors() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::from(DataFusionError::IoError(pipe())), Failure::ClosedPipe));
        assert!(matches!(Failure::from(ArrowError::from(pipe())), Failure::ClosedPipe));
        let csv =
            ArrowError::CsvError(pipe().to_string().replace("broken pipe", "Broken pipe (os error 32)"));
        assert!(matches!(
            Failure::from(DataFusionError::ArrowError(Box::new(csv), None)),
            Failure::ClosedPipe
        ));
        let ours = vortex_core::Error::External(Box::new(pipe())).at("column `a`");
        assert!(matches!(Failure::from(ours), Failure::ClosedPipe));
        assert!(matches!(Failure::from(io::Error::other("x")), Failure::Error(_)));
    }

    #[test]
    fn a_connection_to_a_store_that_breaks_is_no_closed_pipe() {
        let broken = || {
            let cause = Box::new(io::Error::from(io::ErrorKind::BrokenPipe));
            object_store::Error::Generic { store: "S3", source: cause }
        };
        assert!(matches!(Failure::from(broken()), Failure::Error(_)));
        let uploading = vortex_core::Error::write("s3://a/b.vortex", broken());
        assert!(matches!(Failure::from(uploading), Failure::Error(_)));
        let query = DataFusionError::ObjectStore(Box::new(broken())).context("writing");
        assert!(matches!(Failure::from(query), Failure::Error(_)));
    }
}
