//! Limits on what a file may demand of its reader.

use crate::{Error, Result};

/// Limits on what a file may demand of its reader. Every count that a file claims is checked against them
/// before memory is reserved or time is spent.
///
/// The defaults open everything that real writers produce, 100,000 columns included.
///
/// ```
/// use vortex_core::Limits;
/// use vortex_core::file::OpenOptions;
///
/// let limits = Limits::new().with_max_columns(1000).with_max_decoded_bytes(64 << 20);
/// let options = OpenOptions::new().with_limits(limits);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Nesting of dtypes, layouts, array nodes and scalars; 64 by default.
    pub max_depth: u32,
    /// Nodes of one array tree or one scalar, counted with repetition; 1,000,000 by default.
    pub max_nodes: u32,
    /// Nodes of the layout tree, counted with repetition; 8,000,000 by default.
    pub max_layouts: u32,
    /// Fields of all structs of the file's dtype together; 1,000,000 by default.
    pub max_columns: u32,
    /// Rows of the file; 2^48 by default.
    pub max_rows: u64,
    /// Bytes that decoding one chunk of one column may produce; 2 GiB by default.
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
    /// The default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`max_depth`](Self::max_depth).
    #[must_use]
    pub fn with_max_depth(mut self, depth: u32) -> Self {
        self.max_depth = depth;
        self
    }

    /// Sets [`max_nodes`](Self::max_nodes).
    #[must_use]
    pub fn with_max_nodes(mut self, nodes: u32) -> Self {
        self.max_nodes = nodes;
        self
    }

    /// Sets [`max_layouts`](Self::max_layouts).
    #[must_use]
    pub fn with_max_layouts(mut self, layouts: u32) -> Self {
        self.max_layouts = layouts;
        self
    }

    /// Sets [`max_columns`](Self::max_columns).
    #[must_use]
    pub fn with_max_columns(mut self, columns: u32) -> Self {
        self.max_columns = columns;
        self
    }

    /// Sets [`max_rows`](Self::max_rows).
    #[must_use]
    pub fn with_max_rows(mut self, rows: u64) -> Self {
        self.max_rows = rows;
        self
    }

    /// Sets [`max_decoded_bytes`](Self::max_decoded_bytes).
    #[must_use]
    pub fn with_max_decoded_bytes(mut self, bytes: u64) -> Self {
        self.max_decoded_bytes = bytes;
        self
    }

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
