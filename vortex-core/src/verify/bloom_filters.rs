//! Whether Bloom filters hold all values of their zones. That they hold others as well is their nature.

use arrow::array::ArrayRef;
use bytes::Bytes;

use super::column::Column;
use super::{Verification, unless_storage};
use crate::bloom::{ColumnFilters, GROUP_ZONES, hashes_of};
use crate::io::read_exact;
use crate::{Result, VortexFile};

/// Compares the Bloom filters of a column with its values, which are given in the order of the rows.
pub(super) struct FilterCheck<'a> {
    file: &'a VortexFile,
    column: &'a Column,
    filters: &'a ColumnFilters,
    /// The first row that was not checked.
    row: u64,
    /// The group of filters of this row, unless it is corrupt.
    group: Option<Bytes>,
    /// The last zone that was found to lack a value.
    lacking: Option<usize>,
}

impl<'a> FilterCheck<'a> {
    /// Of a column, if it has filters.
    pub(super) fn new(file: &'a VortexFile, column: &'a Column) -> Option<Self> {
        let filters =
            file.footer().bloom_filters().get(&column.path).filter(|_| column.can_have_bloom_filter())?;
        Some(Self { file, column, filters, row: 0, group: None, lacking: None })
    }

    /// Checks the next rows.
    ///
    /// # Errors
    /// If storage fails, or values have no hashes.
    pub(super) async fn check(&mut self, rows: &ArrayRef, found: &mut Verification) -> Result<()> {
        let zone_len = self.filters.zone_len();
        let mut start = 0;
        while start < rows.len() {
            let in_zone = self.row % zone_len;
            // There are at most some millions of zones.
            let zone = (self.row / zone_len) as usize;
            if in_zone == 0 && zone.is_multiple_of(GROUP_ZONES) {
                self.group = self.read_group(zone / GROUP_ZONES, found).await?;
            }
            let len = usize::try_from(zone_len - in_zone).unwrap_or(usize::MAX).min(rows.len() - start);
            if let Some(group) = &self.group {
                let hashes = hashes_of(&rows.slice(start, len), &self.column.dtype)?;
                let is_complete = hashes.iter().all(|hash| self.filters.may_hold(zone, *hash, group));
                if !is_complete && self.lacking != Some(zone) {
                    self.lacking = Some(zone);
                    let place = format!("Bloom filter of zone {zone} of column `{}`", self.column.path);
                    found.report(place, "lacks a value");
                }
            }
            start += len;
            self.row += len as u64;
        }
        Ok(())
    }

    /// Reads a group of filters, unless it is corrupt, which is a problem of the file.
    async fn read_group(&self, at: usize, found: &mut Verification) -> Result<Option<Bytes>> {
        let Some(range) = self.filters.groups().nth(at) else { return Ok(None) };
        let bytes = read_exact(self.file.source().as_ref(), range).await?;
        match self.filters.check_group(at, &bytes) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) => {
                found.report(format!("column `{}`", self.column.path), unless_storage(error)?);
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};

    use crate::bloom::{BLOOM_FILTERS_KEY, Filter, stripes};
    use crate::file::OpenOptions;
    use crate::given::{opened, written};
    use crate::io::MemoryFile;
    use crate::segments::checksums::checksum;
    use crate::verify::verify;
    use crate::write::WriteOptions;

    /// A file of three zones of text, with Bloom filters.
    async fn bytes() -> Vec<u8> {
        let words =
            StringViewArray::from_iter((0..20_000).map(|row| (row % 3 > 0).then(|| format!("word {row}"))));
        let rows = RecordBatch::try_from_iter([("word", Arc::new(words) as _)]).unwrap();
        written([rows], WriteOptions::new().with_bloom_filter("word")).await.to_vec()
    }

    /// Where the filters lie.
    async fn group(bytes: &[u8]) -> Range<usize> {
        let file = opened(bytes.to_vec()).await;
        let range =
            file.footer().bloom_filters().iter().flat_map(|(_, filters)| filters.groups()).next().unwrap();
        range.start as usize..range.end as usize
    }

    async fn problems(bytes: Vec<u8>) -> Vec<String> {
        let found = verify(Arc::new(MemoryFile::new(bytes)), &OpenOptions::new()).await.unwrap();
        found.problems.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn filters_hold_the_values_of_their_zones() {
        let mut bytes = bytes().await;
        assert_eq!(problems(bytes.clone()).await, [""; 0]);
        let group = group(&bytes).await;
        // As many blocks, but of other values.
        let other = Filter::of((0..5400).map(|value: u64| value << 50 | value).collect());
        let (others, _) = stripes(&[other.clone(), other.clone(), other]);
        bytes[group].copy_from_slice(&others);
        let lacks = |zone| format!("Bloom filter of zone {zone} of column `word`: lacks a value");
        assert_eq!(problems(bytes).await, [lacks(0), lacks(1), lacks(2)]);
    }

    #[tokio::test]
    async fn filters_that_differ_from_their_checksums_are_a_problem() {
        let mut bytes = bytes().await;
        let group = group(&bytes).await;
        bytes[group.start + 1000] ^= 1;
        let expected = "column `word`: corrupt file: Bloom filters of zones 0..3 differ from their checksum";
        assert_eq!(problems(bytes).await, [expected]);
    }

    #[tokio::test]
    async fn filters_of_no_column_or_of_one_without_hashes_are_a_problem() {
        let (floats, ints) = (Float64Array::from(vec![1.0; 9000]), Int64Array::from_iter_values(0..9000));
        let rows = [("int", Arc::new(ints) as ArrayRef), ("flt", Arc::new(floats) as _)];
        let rows = RecordBatch::try_from_iter(rows).unwrap();
        let bytes = written([rows], WriteOptions::new().with_bloom_filter("int")).await.to_vec();
        let file = opened(bytes.clone()).await;
        let entry =
            file.footer().user_metadata().iter().find(|entry| *entry.key == *BLOOM_FILTERS_KEY).unwrap();
        let range = entry.range.start as usize..entry.range.end as usize - 4;
        for name in [b"flt", b"non"] {
            let mut bytes = bytes.clone();
            let at = bytes[range.clone()].windows(3).position(|part| part == b"int").unwrap();
            bytes[range.start + at..][..3].copy_from_slice(name);
            let checksum = checksum(&bytes[range.clone()]) as u32;
            bytes[range.end..][..4].copy_from_slice(&checksum.to_le_bytes());
            let name = std::str::from_utf8(name).unwrap();
            let expected = format!("Bloom filters: no column `{name}`, or none whose values have hashes");
            assert_eq!(problems(bytes).await, [expected]);
        }
    }

    #[tokio::test]
    async fn filters_that_readers_leave_unused_are_a_problem() {
        let mut bytes = bytes().await;
        let file = opened(bytes.clone()).await;
        let entry =
            file.footer().user_metadata().iter().find(|entry| *entry.key == *BLOOM_FILTERS_KEY).unwrap();
        bytes[entry.range.start as usize] = 0xff;
        assert_eq!(problems(bytes).await, ["Bloom filters: corrupt file: Bloom filters do not fit the file"]);
    }
}
