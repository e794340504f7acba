//! SQL over files, those that real releases wrote and our own. One binary, a module per theme.

#[cfg(feature = "proto")]
mod codec;
mod counting;
mod distant;
mod files;
mod globs;
mod many_files;
mod metadata;
mod metrics;
mod open_files;
mod ordered;
mod partitions;
mod plans;
mod pushdown;
mod segment_cache;
mod selections;
mod tables;
mod tight_memory;
mod wide;
mod write;
mod zeros;
