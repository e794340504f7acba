//! The container: what describes a file, and how it is opened.
//!
//! ```text
//! "VTXF" | segments ... | user metadata | dtype | layout | statistics | footer | postscript | EOF
//! ```
//!
//! Everything is found from the end: the last 8 bytes say how long the postscript before them
//! is, the postscript says where the rest lies. Opening reads the tail once, and once more only
//! if the description does not fit into it.

pub(crate) mod checksums;
mod compression;
mod footer;
mod inspect;
mod kept;
mod open;
mod segments;
mod verify;

pub use compression::SegmentCompression;
pub(crate) use footer::ARROW_SCHEMA_KEY;
pub use footer::{Footer, Segment, UserMetadata};
pub use inspect::{Examination, Part, examine};
pub use open::{OpenOptions, VortexFile};
pub(crate) use segments::{Lease, TreeCache};
pub use verify::{Problem, Verification, verify};

/// Position of a segment in the file's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);
