//! What is known of rows without reading them, and how far plans may rely on it.
//!
//! | module | of what | `Exact` are |
//! |---|---|---|
//! | [`footer`] | a file | row and null counts, sums, and all extremes that are not rounded or zeros of floats |
//! | [`kept`] | files between queries | the same |
//! | [`scan`] | a scan | row counts |
//! | `optimizer/exact_statistics.rs` | a scan that is only aggregated | the same as of its files |
//!
//! DataFusion 55 derives wrong answers from exact statistics of scans, so that they state estimates. From those of
//! files, which it uses to plan the scan, it derives none.
//!
//! Statistics must not hide an error: if reading a row may fail because the type of the table requires a cast, or has
//! no nulls, they are no answer.

mod footer;
pub(crate) mod kept;
pub(crate) mod scan;

pub use footer::statistics;
