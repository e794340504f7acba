//! Plain functions over slices: the loops that decoding spends its time in.
//!
//! Each file has a safe door that does the checking, and a naive twin in its tests.

pub(crate) mod fsst;
pub(crate) mod gather;
pub(crate) mod needle;
pub(crate) mod onpair;
pub(crate) mod views;
