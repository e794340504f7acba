//! Integration tests of the reading core, in one binary.

mod compare;
mod files;
mod scan;
