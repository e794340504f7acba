//! What a scan takes over from the plan above it.

mod filter;

pub(crate) use filter::Filters;
