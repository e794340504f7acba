//! Integration tests of the core, in one binary.

mod allocations;
mod anatomy;
mod best_first;
mod compare;
mod dynamic;
mod faults;
mod files;
mod ipc;
mod mutations;
mod order;
mod predicates;
mod random;
mod requests;
mod scan;
mod vast;
mod write;
mod write_faults;
mod write_memory;
mod write_shapes;
