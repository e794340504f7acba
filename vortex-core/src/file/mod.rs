//! The container format: the description of a file, and how it is opened.
//!
//! ```text
//! "VTXF" | segments ... | user metadata | dtype | layout | statistics | footer | postscript | EOF
//! ```
//!
//! Everything is located from the end: the last 8 bytes contain the length of the postscript before them,
//! and the postscript contains the positions of the rest. Opening reads the tail once, and a second time
//! only if the description does not fit into it; more often only if its parts lie far apart.

mod described;
mod description;
mod footer;
mod inspect;
pub(crate) mod open;
mod zone_maps;

pub(crate) use described::Described;
pub(crate) use footer::{ARROW_SCHEMA_KEY, MAX_SCHEMA_BYTES, VERSION_KEY};
pub use footer::{Footer, UserMetadata};
pub use inspect::{Examination, Part, examine};
pub use open::OpenOptions;

pub use crate::segments::{Segment, SegmentCompression, SegmentId};

/// The first and last bytes of a file.
pub(crate) const MAGIC: &[u8; 4] = b"VTXF";
/// The version of the container, next to the last bytes.
pub(crate) const VERSION: u16 = 1;
