//! The Bloom filters of a column, on their way to the file: a group of them is written once it is complete.

use std::collections::{BTreeMap, BTreeSet};

use super::ZONE_LEN;
use super::columns::Columns;
use super::container::Container;
use crate::bloom::{Filter, GROUP_ZONES, StoredGroup, can_hash, index_to_bytes, stripes};
use crate::dtype::DType;
use crate::expr::FieldPath;
use crate::{Error, Result};

/// The Bloom filters of a column.
#[derive(Debug)]
pub(super) struct FilterRows {
    names: FieldPath,
    /// The number of rows of a zone that is not complete yet, and the hashes of their values.
    open: (usize, Vec<u64>),
    /// Filters of complete zones.
    zones: Vec<Filter>,
    /// The groups that were written.
    groups: Vec<StoredGroup>,
}

impl FilterRows {
    /// Those of the leaves that columns are, by the position of the leaf.
    ///
    /// # Errors
    /// If a column does not exist, or cannot have filters; `dtype` is that of the file.
    pub(super) fn of(
        wanted: &BTreeSet<FieldPath>,
        columns: &Columns,
        dtype: &DType,
    ) -> Result<BTreeMap<usize, Self>> {
        let of_column = |names: &FieldPath| {
            let found = names.dtype_in(dtype)?;
            let is_it = |at: &usize| columns.leaves[*at].names.as_ref() == Some(names);
            let at = (0..columns.leaves.len()).find(is_it).filter(|_| can_hash(found));
            let at = at.ok_or_else(|| {
                Error::unsupported(
                    "Bloom filter of",
                    format!(
                        "column `{names}` of type {found}: there are those of integers, decimals, dates, times, text, \
                         byte strings and UUIDs"
                    ),
                )
            })?;
            let (open, zones, groups) = Default::default();
            Ok((at, Self { names: names.clone(), open, zones, groups }))
        };
        wanted.iter().map(of_column).collect()
    }

    /// Adds the hashes of the values of further rows, with the number of these rows, per part of a zone.
    pub(super) fn add(&mut self, parts: Vec<(usize, Vec<u64>)>) {
        for (rows, hashes) in parts {
            self.open.0 += rows;
            self.open.1.extend(hashes);
            if self.open.0 == ZONE_LEN {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        let (_, hashes) = std::mem::take(&mut self.open);
        self.zones.push(Filter::of(hashes));
    }

    /// Writes the groups that are complete, and all that is left if there are no more rows.
    ///
    /// # Errors
    /// If storage fails.
    pub(super) async fn write(&mut self, container: &mut Container, is_end: bool) -> Result<()> {
        if is_end && self.open.0 > 0 {
            self.close();
        }
        while self.zones.len() >= GROUP_ZONES || (is_end && !self.zones.is_empty()) {
            let zones: Vec<Filter> = self.zones.drain(..self.zones.len().min(GROUP_ZONES)).collect();
            let (bytes, exponent) = stripes(&zones);
            let offset = container.unlisted(bytes.into()).await?;
            self.groups.push(StoredGroup { offset, exponent });
        }
        Ok(())
    }

    /// The entry of user metadata that tells where filters lie; none if there are none.
    pub(super) fn index(columns: &BTreeMap<usize, Self>) -> Option<Vec<u8>> {
        let groups = columns.values().map(|column| (&column.names, column.groups.as_slice()));
        (!columns.is_empty()).then(|| index_to_bytes(ZONE_LEN as u64, groups))
    }
}
