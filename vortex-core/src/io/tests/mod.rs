//! Tests of how several parts of this module work together.

mod hedging;
mod kept_blocks;
mod local_store;
mod scheduler;
mod throttling;
