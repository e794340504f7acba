//! Rows of a file that a scan reads or leaves out, as table formats know them: deletion vectors,
//! results of an index.

use std::sync::Arc;

use vortex_core::scan::ScanBuilder;

/// Which rows of a file are read: an extension of its `PartitionedFile`.
///
/// Whoever adds one also answers for the statistics of the file: numbers of rows and sums of the whole
/// file are not those of some of its rows.
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
    /// These rows, counted from the start of the file; rising, none twice.
    pub fn only(rows: impl Into<Arc<[u64]>>) -> Self {
        Self { rows: rows.into(), are_read: true }
    }

    /// All rows but these, counted from the start of the file; rising, none twice.
    pub fn except(rows: impl Into<Arc<[u64]>>) -> Self {
        Self { rows: rows.into(), are_read: false }
    }

    /// The scan of these rows.
    pub(crate) fn apply(&self, scan: ScanBuilder) -> ScanBuilder {
        let rows = Arc::clone(&self.rows);
        if self.are_read { scan.with_row_indices(rows) } else { scan.with_excluded_rows(rows) }
    }
}
