//! The parts of a plan that a scan takes over.

mod filter;
mod sort;

pub(crate) use filter::Filters;
pub(crate) use sort::{BestFirst, Sorted, sorted};
