//! What can go wrong, sorted by what the caller can do about it.

use std::fmt;
use std::ops::Range;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file contradicts itself or the format. Retrying will not help.
    #[error("corrupt file: {0}")]
    Corrupt(Box<str>),
    /// Valid, but needs an encoding, layout, type or version this build lacks.
    #[error("unsupported {kind} `{id}`{}", advice(.kind, .id))]
    Unsupported {
        /// What is missing: `encoding`, `layout`, `extension type`, ...
        kind: &'static str,
        /// Its id, as the file spells it.
        id: Box<str>,
    },
    /// A limit of this reader was reached; see [`Limits`](crate::Limits).
    #[error("limit exceeded: {0}")]
    LimitExceeded(Box<str>),
    /// The request itself cannot work.
    #[error("invalid argument: {0}")]
    InvalidArgument(Box<str>),
    /// Storage failed; the source says whether a retry makes sense.
    #[error("{} {object}: {source}", reading(.range))]
    Read {
        /// The file or object.
        object: Box<str>,
        /// The bytes asked for; none if the object could not be opened.
        range: Range<u64>,
        /// What storage said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Storage did not take what was written; the source says whether a retry makes sense.
    #[error("writing {object}: {source}")]
    Write {
        /// The file or object.
        object: Box<str>,
        /// What storage said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An Arrow kernel refused; usually a type mismatch in the request.
    #[error("arrow: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// A predicate supplied by the caller failed.
    #[error("{0}")]
    External(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Bytes of a file are not at hand. They have been asked for, and whoever fetches them tries
    /// again: see [`Encoding::load_rows`](crate::encodings::Encoding::load_rows).
    #[error("bytes are not fetched yet")]
    NotFetched,
    /// An error together with the place it happened at.
    #[error("{place}: {source}")]
    At {
        /// File, column or byte range.
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

    /// This build lacks something the file needs.
    pub fn unsupported(kind: &'static str, id: impl fmt::Display) -> Self {
        Error::Unsupported { kind, id: id.to_string().into() }
    }

    /// The file wants more than [`Limits`](crate::Limits) allow.
    pub fn limit(message: impl fmt::Display) -> Self {
        Error::LimitExceeded(message.to_string().into())
    }

    /// The request cannot work.
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

    /// Storage failed to take bytes of `object`.
    pub fn write(
        object: impl fmt::Display,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error::Write { object: object.to_string().into(), source: source.into() }
    }

    /// An argument that cannot work, where it comes from a file: that is corrupt.
    pub(crate) fn in_file(self) -> Self {
        match self {
            Error::InvalidArgument(message) => Error::Corrupt(message),
            other => other,
        }
    }

    /// Adds where it happened: a file, a column, a byte range.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Error::At { place: place.to_string().into(), source: Box::new(self) }
    }

    /// The innermost error, without the places around it.
    pub fn root(&self) -> &Error {
        match self {
            Error::At { source, .. } => source.root(),
            other => other,
        }
    }
}

/// What was tried with a file.
fn reading(range: &Range<u64>) -> String {
    if range.is_empty() {
        "opening".to_owned()
    } else {
        format!("reading bytes {}..{} of", range.start, range.end)
    }
}

/// Says since which release an id exists, where that is known.
fn advice(kind: &str, id: &str) -> String {
    match (kind, crate::encodings::first_release(id)) {
        ("encoding" | "layout", Some(release)) => {
            format!(" (written since release {release}, not known to this build)")
        }
        ("encoding" | "layout", None) => {
            " (not known to this build; register it, or select other columns)".to_owned()
        }
        _ => String::new(),
    }
}

/// Adds a place to the error of a result.
pub(crate) trait ResultExt<T> {
    /// Adds where the error happened; `place` runs only on errors.
    fn at<P: fmt::Display>(self, place: impl FnOnce() -> P) -> Result<T>;
}

impl<T> ResultExt<T> for Result<T> {
    fn at<P: fmt::Display>(self, place: impl FnOnce() -> P) -> Result<T> {
        self.map_err(|error| match error {
            // Happens all the time, and nobody reads where.
            Error::NotFetched => Error::NotFetched,
            error => error.at(place()),
        })
    }
}
