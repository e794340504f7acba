//! What a scan takes over from the plan above it.

mod filter;
mod sort;

pub(crate) use filter::Filters;
pub(crate) use sort::{BestFirst, Sorted, sorted};
