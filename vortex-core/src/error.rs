//! Errors, grouped by what the caller can do about them.

use std::fmt;
use std::ops::Range;

use arrow::error::ArrowError;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation failed.
///
/// As text, it includes its causes, so that one line says everything. They are also its
/// [sources](std::error::Error::source), among which the error of a storage can be found by its type, so that a chain
/// of sources need not be printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file contradicts itself or the format. Retrying will not help.
    #[error("corrupt file: {0}")]
    Corrupt(Box<str>),
    /// The file is valid, but needs an encoding, layout, type or version that this build lacks.
    #[error("unsupported {kind} `{id}`{}", advice(.kind))]
    Unsupported {
        /// What is missing: `encoding`, `layout`, `extension type`, ...
        kind: &'static str,
        /// Its id, as the file spells it.
        id: Box<str>,
    },
    /// A limit of this reader was reached; see [`Limits`](crate::Limits).
    #[error("limit exceeded: {0}")]
    LimitExceeded(Box<str>),
    /// The request itself is invalid.
    #[error("invalid argument: {0}")]
    InvalidArgument(Box<str>),
    /// Reading from storage failed; see [`is_transient`](Error::is_transient).
    #[error("{} {object}: {source}", reading(.range))]
    Read {
        /// The file or object.
        object: Box<str>,
        /// The bytes requested; empty if the object could not be opened.
        range: Range<u64>,
        /// The error of the storage.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Writing to storage failed; see [`is_transient`](Error::is_transient).
    #[error("writing {object}: {source}")]
    Write {
        /// The file or object.
        object: Box<str>,
        /// The error of the storage.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An Arrow kernel returned an error; usually a type mismatch in the request.
    #[error("arrow: {0}")]
    Arrow(#[source] ArrowError),
    /// Something other than the file, its storage or Arrow failed: a predicate supplied by the caller, a
    /// runtime, a task, or a compression library.
    #[error("{0}")]
    External(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Bytes of a file are not available. They have been recorded as missing, and the caller fetches them and
    /// tries again: see [`Encoding::load_rows`](crate::encodings::Encoding::load_rows).
    #[error("bytes have not been fetched yet")]
    NotFetched,
    /// An error about a file.
    #[error("{file}: {source}")]
    InFile {
        /// The name of its source: a path or a URL.
        file: Box<str>,
        /// What happened there.
        source: Box<Error>,
    },
    /// An error together with the place where it happened.
    #[error("{place}: {source}")]
    At {
        /// Column, segment or byte range.
        place: Box<str>,
        /// What happened there.
        source: Box<Error>,
    },
}

impl Error {
    /// The file contradicts itself.
    pub fn corrupt(message: impl fmt::Display) -> Self {
        Error::Corrupt(message.to_string().into())
    }

    /// This build lacks something that the file needs.
    pub fn unsupported(kind: &'static str, id: impl fmt::Display) -> Self {
        Error::Unsupported { kind, id: id.to_string().into() }
    }

    /// The file requires more than [`Limits`](crate::Limits) allow.
    pub fn limit(message: impl fmt::Display) -> Self {
        Error::LimitExceeded(message.to_string().into())
    }

    /// The request is invalid.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Error::InvalidArgument(message.to_string().into())
    }

    /// Storage failed to deliver `range` of `object`.
    pub fn read(
        object: impl fmt::Display,
        range: Range<u64>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error::Read { object: object.to_string().into(), range, source: source.into() }
    }

    /// Storage failed to write bytes of `object`.
    pub fn write(
        object: impl fmt::Display,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error::Write { object: object.to_string().into(), source: source.into() }
    }

    /// Something other than the file, its storage or Arrow failed. Errors of this crate and of Arrow stay what they
    /// are.
    pub fn external(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        match source.into().downcast::<Error>() {
            Ok(error) => *error,
            Err(source) => match source.downcast::<ArrowError>() {
                Ok(error) => (*error).into(),
                Err(source) => Error::External(source),
            },
        }
    }

    /// Whether the same request may succeed later: storage did not answer in time, or failed in a way that does not say
    /// that it always will. Stores have repeated their requests by then. False if the object is missing, was replaced
    /// while it was read, or may not be accessed.
    pub fn is_transient(&self) -> bool {
        use object_store::Error as StoreError;
        use std::io::ErrorKind;

        let (Error::Read { source, .. } | Error::Write { source, .. }) = self.root() else { return false };
        if let Some(error) = source.downcast_ref::<StoreError>() {
            return matches!(error, StoreError::Generic { .. } | StoreError::JoinError { .. });
        }
        source.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(
                error.kind(),
                ErrorKind::TimedOut
                    | ErrorKind::Interrupted
                    | ErrorKind::WouldBlock
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::ConnectionReset
                    | ErrorKind::NotConnected
                    | ErrorKind::BrokenPipe
                    | ErrorKind::NetworkDown
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::HostUnreachable
                    | ErrorKind::ResourceBusy
                    | ErrorKind::StaleNetworkFileHandle
            )
        })
    }

    /// Whether there is no such file or object.
    pub fn is_not_found(&self) -> bool {
        let Error::Read { source, .. } = self.root() else { return false };
        let is_of_store = matches!(source.downcast_ref(), Some(object_store::Error::NotFound { .. }));
        is_of_store
            || source
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }

    /// Turns an invalid argument that comes from a file into the error that the file is corrupt.
    pub(crate) fn into_corrupt(self) -> Self {
        match self {
            Error::InvalidArgument(message) => Error::Corrupt(message),
            other => other,
        }
    }

    /// Adds the file that it is about, by the name of its source.
    #[must_use]
    pub fn in_file(self, name: impl fmt::Display) -> Self {
        Error::InFile { file: name.to_string().into(), source: Box::new(self) }
    }

    /// Adds where in a file it happened: a column, a byte range.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Error::At { place: place.to_string().into(), source: Box::new(self) }
    }

    /// The innermost error, without the places around it.
    pub fn root(&self) -> &Error {
        match self {
            Error::At { source, .. } | Error::InFile { source, .. } => source.root(),
            other => other,
        }
    }

    /// The name of the file that this is about, if it is known.
    pub fn file(&self) -> Option<&str> {
        match self {
            Error::InFile { file, .. } => Some(file),
            Error::At { source, .. } => source.file(),
            Error::Read { object, .. } | Error::Write { object, .. } => Some(object),
            _ => None,
        }
    }
}

impl From<ArrowError> for Error {
    /// An error of this crate that passed through Arrow comes out unchanged.
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(source) => Error::external(source),
            error => Error::Arrow(error),
        }
    }
}

/// Describes the attempted operation on a file.
fn reading(range: &Range<u64>) -> String {
    if range.is_empty() {
        "opening".to_owned()
    } else {
        format!("reading bytes {}..{} of", range.start, range.end)
    }
}

/// Tells what to do about a missing encoding or layout. This build knows all that releases have introduced.
fn advice(kind: &str) -> &'static str {
    match kind {
        "encoding" | "layout" => " (not known to this build; register it, or select other columns)",
        _ => "",
    }
}

/// Adds a place to the error of a result.
pub(crate) trait ResultExt<T> {
    /// Adds where the error happened; `place` is called only on errors.
    fn at<P: fmt::Display>(self, place: impl FnOnce() -> P) -> Result<T>;
}

impl<T> ResultExt<T> for Result<T> {
    fn at<P: fmt::Display>(self, place: impl FnOnce() -> P) -> Result<T> {
        self.map_err(|error| match error {
            // This happens all the time, and the place is never reported.
            Error::NotFetched => Error::NotFetched,
            error => error.at(place()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn errors_of_this_crate_come_out_of_arrow_and_of_streams_as_they_went_in() {
        let through_arrow = ArrowError::ExternalError(Box::new(Error::corrupt("cut").at("a.vortex")));
        let twice = ArrowError::ExternalError(Box::new(through_arrow));
        let error = Error::from(twice);
        assert!(matches!(error.root(), Error::Corrupt(_)), "{error:?}");
        assert_eq!(error.to_string(), Error::corrupt("cut").at("a.vortex").to_string());
        let compute = Error::external(ArrowError::ComputeError("no".into()));
        assert!(matches!(compute, Error::Arrow(ArrowError::ComputeError(_))));
        assert!(matches!(Error::external("no rows"), Error::External(_)));
    }

    #[test]
    fn what_may_succeed_later_is_told_from_what_will_not() {
        let io = |kind: ErrorKind| Error::read("a", 0..8, std::io::Error::from(kind)).at("column `b`");
        assert!(io(ErrorKind::TimedOut).is_transient());
        assert!(!io(ErrorKind::NotFound).is_transient());
        let busy = object_store::Error::Generic { store: "S3", source: "503".into() };
        assert!(Error::write("a", busy).is_transient());
        let gone = object_store::Error::NotFound { path: "a".into(), source: "404".into() };
        let gone = Error::read("a", 0..0, gone).at("column `b`");
        assert!(!gone.is_transient() && gone.is_not_found());
        assert!(io(ErrorKind::NotFound).is_not_found() && !io(ErrorKind::TimedOut).is_not_found());
        assert!(!Error::corrupt("cut").is_transient());
    }

    #[test]
    fn errors_know_their_file_through_all_places() {
        let damaged = Error::corrupt("cut").at("column `a`").in_file("a.vortex").at("row 3");
        assert_eq!(damaged.file(), Some("a.vortex"));
        assert!(matches!(damaged.root(), Error::Corrupt(_)));
        assert_eq!(Error::read("b.vortex", 0..8, "gone").at("column `a`").file(), Some("b.vortex"));
        assert_eq!(Error::write("c.vortex", "full").file(), Some("c.vortex"));
        assert_eq!(Error::corrupt("cut").at("column `a`").file(), None);
    }
}
