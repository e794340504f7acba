//! Integers in as few bits as most of them need.

pub(crate) mod patches;
