//! Integration tests of the reading core, in one binary.

mod allocations;
mod anatomy;
mod compare;
mod faults;
mod files;
mod ipc;
mod mutations;
mod scan;
mod vast;
