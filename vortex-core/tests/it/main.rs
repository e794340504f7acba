//! Integration tests of the core, in one binary.

mod allocations;
mod anatomy;
mod best_first;
mod checksums;
mod compare;
mod custom;
mod dynamic;
mod faults;
mod files;
mod given;
mod ipc;
mod limits;
mod mutants;
mod mutations;
mod order;
mod pieces;
mod predicates;
mod random;
mod requests;
mod scan;
mod vast;
mod write;
mod write_faults;
mod write_memory;
mod write_shapes;
mod write_text;
