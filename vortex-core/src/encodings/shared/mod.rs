//! What several encodings have in common.

pub(super) mod any_keys;
pub(super) mod block_rows;
pub(crate) mod coded_text;
#[cfg(test)]
pub(crate) mod conformance;
pub(super) mod integer_predicate;
pub(super) mod offsets;
pub(super) mod part_cache;
pub(crate) mod patches;
#[cfg(test)]
mod properties;
pub(super) mod valid_rows;
