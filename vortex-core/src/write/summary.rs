//! Summary of a written file.

use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;

use super::container::Tail;
use crate::file::{Footer, OpenOptions};
use crate::{Release, Result};

/// Summary of a written file.
#[derive(Debug)]
pub struct WriteSummary {
    pub(super) schema: SchemaRef,
    pub(super) row_count: u64,
    pub(super) columns: Vec<ColumnSummary>,
    pub(super) min_reader: Option<Release>,
    pub(super) tail: Tail,
}

/// Summary of a column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ColumnSummary {
    /// Bytes of the values as they were passed in.
    pub raw_bytes: u64,
    /// Bytes of its segments in the file, zone maps included.
    pub encoded_bytes: u64,
    /// Number of its segments.
    pub segment_count: u64,
}

impl WriteSummary {
    /// The schema that was written.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of rows.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Size of the file in bytes.
    pub fn file_size(&self) -> u64 {
        self.tail.start + self.tail.bytes.len() as u64
    }

    /// The summary of each column, in the order of the schema.
    pub fn columns(&self) -> &[ColumnSummary] {
        &self.columns
    }

    /// The oldest release that reads the file; `None` if none does, due to
    /// [segment compression](super::WriteOptions::with_segment_compression), or because the file has more than half a
    /// million columns or some million chunks. A larger [memory budget](super::WriteOptions::with_memory_budget) makes
    /// fewer chunks of many columns.
    pub fn min_reader(&self) -> Option<Release> {
        self.min_reader
    }

    /// The footer of the file, as if it had been opened: a newly written file can be scanned without
    /// reading its footer. With [checksums](OpenOptions::with_verify_checksums), what scans read is verified.
    ///
    /// # Errors
    /// If the file exceeds the limits set in `options`.
    pub fn footer(&self, options: &OpenOptions) -> Result<Arc<Footer>> {
        options.parse_end(Buffer::from(self.tail.bytes.clone()), self.file_size()).map(Arc::new)
    }
}
