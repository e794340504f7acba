//! The segments of a file: where they are, how they are stored, and those that scans hold.
//!
//! Layouts know segments only by [`SegmentId`]. The [`SegmentTable`] of a file tells where they are and what
//! it takes to load their arrays; the [`SegmentCache`] of an open file shares their bytes among its scans.

mod cache;
pub(crate) mod checksums;
mod compression;
mod table;
mod tail;

pub(crate) use cache::{Lease, SegmentCache, TreeCache};
pub use compression::SegmentCompression;
pub(crate) use table::{MAX_ALIGNMENT_EXPONENT, SegmentTable};
pub use table::{Segment, SegmentId};
