//! Selections of rows of a file that a scan reads or skips, as table formats use them: deletion vectors,
//! results of an index lookup.

use std::sync::Arc;

use vortex_core::scan::ScanBuilder;

/// The rows of a file to read; attach it to a `PartitionedFile` as an extension.
///
/// Row counts and sums of the whole file do not apply to some of its rows. Scans that
/// [`VortexFormat`](crate::VortexFormat) plans therefore state statistics as estimates; other callers that attach a
/// selection must adjust those of the scan.
///
/// # Errors
/// Reading the file fails if the rows are not in strictly ascending order, or beyond its end.
///
/// ```
/// # use datafusion::datasource::listing::PartitionedFile;
/// use vortex_datafusion::RowSelection;
///
/// let file = PartitionedFile::new("visits.vortex", 123_456);
/// let without_deleted = file.with_extension(RowSelection::except([17, 4711]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSelection {
    rows: Arc<[u64]>,
    are_read: bool,
}

impl RowSelection {
    /// Only these rows, counted from the start of the file, in strictly ascending order.
    pub fn only(rows: impl Into<Arc<[u64]>>) -> Self {
        Self { rows: rows.into(), are_read: true }
    }

    /// All rows except these, counted from the start of the file, in strictly ascending order.
    pub fn except(rows: impl Into<Arc<[u64]>>) -> Self {
        Self { rows: rows.into(), are_read: false }
    }

    /// The rows that are read or skipped.
    pub fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// Whether these are the rows that are read; otherwise, they are skipped.
    pub fn are_read(&self) -> bool {
        self.are_read
    }

    /// Restricts a scan to these rows.
    pub(crate) fn apply(&self, scan: ScanBuilder) -> ScanBuilder {
        let rows = Arc::clone(&self.rows);
        if self.are_read { scan.with_row_indices(rows) } else { scan.with_excluded_rows(rows) }
    }
}
