//! Selections of rows of a file that a scan reads or skips, as table formats use them: deletion vectors,
//! results of an index lookup.

use std::sync::Arc;

use datafusion_common::{Result, plan_err};
use vortex_core::scan::ScanBuilder;

/// The rows of a file to read; attach it to a `PartitionedFile` as an extension.
///
/// Row counts and sums of the whole file do not apply to some of its rows. Scans that
/// [`VortexFormat`](crate::VortexFormat) plans therefore state statistics as estimates; other callers that attach a
/// selection must adjust those of the scan.
///
/// ```
/// # use datafusion::datasource::listing::PartitionedFile;
/// use vortex_datafusion::RowSelection;
///
/// # fn main() -> datafusion::common::Result<()> {
/// let file = PartitionedFile::new("visits.vortex", 123_456);
/// let without_deleted = file.with_extension(RowSelection::except([17, 4711])?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSelection {
    rows: Arc<[u64]>,
    is_except: bool,
}

impl RowSelection {
    /// Only these rows, counted from the start of the file, in strictly ascending order.
    ///
    /// # Errors
    /// If they are in another order. That they are beyond the end of the file is an error when it is read.
    pub fn only(rows: impl Into<Arc<[u64]>>) -> Result<Self> {
        Self::try_new(rows.into(), false)
    }

    /// All rows except these, counted from the start of the file, in strictly ascending order.
    ///
    /// # Errors
    /// As for [`only`](Self::only).
    pub fn except(rows: impl Into<Arc<[u64]>>) -> Result<Self> {
        Self::try_new(rows.into(), true)
    }

    fn try_new(rows: Arc<[u64]>, is_except: bool) -> Result<Self> {
        if let Some(at) = rows.windows(2).position(|pair| pair[0] >= pair[1]) {
            let (row, next) = (rows[at], rows[at + 1]);
            return plan_err!(
                "row {next} follows row {row} in a selection, whose rows must be in strictly ascending order: sort them, \
                 and leave out repeated ones"
            );
        }
        Ok(Self { rows, is_except })
    }

    /// The rows that are read or skipped.
    pub fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// Whether all rows are read except [`rows`](Self::rows), instead of only these.
    pub fn is_except(&self) -> bool {
        self.is_except
    }

    /// Restricts a scan to these rows.
    pub(crate) fn apply(&self, scan: ScanBuilder) -> ScanBuilder {
        let rows = Arc::clone(&self.rows);
        if self.is_except { scan.with_excluded_rows(rows) } else { scan.with_row_indices(rows) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_out_of_order_are_refused_when_they_are_selected() {
        for selection in [RowSelection::only([1, 5, 4]), RowSelection::except([1, 5, 5])] {
            let error = selection.unwrap_err().to_string();
            assert!(error.contains("follows row 5") && error.contains("ascending"), "{error}");
        }
        assert_eq!(RowSelection::only([]).unwrap().rows(), [0; 0]);
        let deleted = RowSelection::except(vec![0, 7, u64::MAX]).unwrap();
        assert!(deleted.is_except() && deleted.rows() == [0, 7, u64::MAX]);
    }
}
