//! SQL over files that real releases wrote. One binary, a module per theme.

mod distant;
mod files;
mod partitions;
mod plans;
mod pushdown;
mod tables;
