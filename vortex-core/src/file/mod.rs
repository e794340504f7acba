//! The container format: the description of a file, and how it is opened.
//!
//! ```text
//! "VTXF" | segments ... | user metadata | dtype | layout | statistics | footer | postscript | EOF
//! ```
//!
//! Everything is located from the end: the last 8 bytes contain the length of the postscript before them,
//! and the postscript contains the positions of the rest. Opening reads the tail once, and a second time
//! only if the description does not fit into it; more often only if its parts lie far apart.

pub(crate) mod checksums;
mod compression;
mod description;
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

/// The first and last bytes of a file.
pub(crate) const MAGIC: &[u8; 4] = b"VTXF";
/// The version of the container, next to the last bytes.
pub(crate) const VERSION: u16 = 1;
/// Maximum number of entries of user metadata.
pub(crate) const MAX_USER_METADATA: usize = 16;
/// Maximum length of the key of an entry, in bytes.
pub(crate) const MAX_USER_KEY_LEN: usize = 64;

/// Index of a segment in the file's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);
