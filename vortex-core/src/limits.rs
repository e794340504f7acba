//! Limits on what a file may demand of its reader.

use crate::{Error, Result};

/// Limits on what a file may demand of its reader. Every count that a file claims is checked against them
/// before memory is reserved or time is spent.
///
/// The defaults open everything that real writers produce, 100,000 columns included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Nesting of dtypes, layouts, array nodes and scalars.
    pub max_depth: u32,
    /// Nodes of one array tree or one scalar, counted with repetition.
    pub max_nodes: u32,
    /// Nodes of the layout tree, counted with repetition.
    pub max_layouts: u32,
    /// Fields of all structs of the file's dtype together.
    pub max_columns: u32,
    /// Rows of the file.
    pub max_rows: u64,
    /// Bytes that decoding one chunk of one column may produce.
    pub max_decoded_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_depth: 64,
            max_nodes: 1_000_000,
            max_layouts: 8_000_000,
            max_columns: 1_000_000,
            max_rows: 1 << 48,
            max_decoded_bytes: 2 << 30,
        }
    }
}

impl Limits {
    /// Checks that `rows` values of `bytes_per_row` may be decoded, and returns the byte count.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`] if not.
    pub fn decoded_bytes(&self, rows: usize, bytes_per_row: usize) -> Result<usize> {
        rows.checked_mul(bytes_per_row).filter(|bytes| *bytes as u64 <= self.max_decoded_bytes).ok_or_else(
            || {
                Error::limit(format!(
                    "{rows} rows of {bytes_per_row} bytes exceed {} bytes per decoded chunk",
                    self.max_decoded_bytes
                ))
            },
        )
    }
}
