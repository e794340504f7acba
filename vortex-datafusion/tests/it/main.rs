//! SQL over files, written by real releases and by this implementation. One binary, with a module per topic.

mod adapters;
mod aggregates;
mod bloom_filters;
mod chosen_files;
#[cfg(feature = "proto")]
mod codec;
mod concurrent;
mod counting;
mod differing_files;
mod distant;
mod expressions;
mod failed_writes;
mod files;
mod frames;
mod globs;
mod grouped;
mod many_files;
mod metadata;
mod metrics;
mod one_file;
mod open_files;
mod ordered;
mod overwrite;
mod partitions;
mod places;
mod plans;
mod providers;
mod pushdown;
mod replaced_files;
mod segment_cache;
mod selections;
mod sessions;
mod tables;
mod tight_memory;
#[cfg(feature = "cli")]
mod upstream;
mod visibility;
mod wide;
mod write;
mod zeros;
