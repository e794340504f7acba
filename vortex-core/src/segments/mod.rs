//! The segments of a file: where they are, how they are stored, and those that scans hold.
//!
//! Layouts know segments only by [`SegmentId`]. The [`SegmentTable`] of a file tells where they are and what
//! it takes to load their arrays; the [`Leases`] of an open file share their bytes among its scans, and its
//! [`TreeCache`] keeps the trees of arrays of which single rows are read.

pub(crate) mod checksums;
mod compression;
mod leases;
mod table;
mod tail;
mod trees;

pub use compression::SegmentCompression;
#[cfg(test)]
pub(crate) use leases::tests;
pub(crate) use leases::{Lease, Leases};
pub(crate) use table::{MAX_ALIGNMENT_EXPONENT, SegmentTable};
pub use table::{Segment, SegmentId};
pub(crate) use trees::TreeCache;
