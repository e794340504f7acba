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
    /// The filter of a zone that is not complete yet, and its rows.
    open: Option<(usize, Filter)>,
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
            Ok((at, Self { names: names.clone(), open: None, zones: Vec::new(), groups: Vec::new() }))
        };
        wanted.iter().map(of_column).collect()
    }

    /// Adds filters of further rows, with the number of rows of each, and writes what is complete.
    ///
    /// # Errors
    /// If storage fails.
    pub(super) async fn add(&mut self, parts: Vec<(usize, Filter)>, container: &mut Container) -> Result<()> {
        for (rows, filter) in parts {
            let (rows, filter) = match self.open.take() {
                Some((before, open)) => (before + rows, open.merge(&filter)),
                None => (rows, filter),
            };
            if rows < ZONE_LEN {
                self.open = Some((rows, filter));
                continue;
            }
            self.zones.push(filter);
            if self.zones.len() == GROUP_ZONES {
                self.write(container).await?;
            }
        }
        Ok(())
    }

    /// Writes the filters that are left.
    ///
    /// # Errors
    /// If storage fails.
    pub(super) async fn finish(&mut self, container: &mut Container) -> Result<()> {
        self.zones.extend(self.open.take().map(|(_, filter)| filter));
        if self.zones.is_empty() { Ok(()) } else { self.write(container).await }
    }

    async fn write(&mut self, container: &mut Container) -> Result<()> {
        let (bytes, exponent) = stripes(&std::mem::take(&mut self.zones));
        let offset = container.unlisted(bytes.into()).await?;
        self.groups.push(StoredGroup { offset, exponent });
        Ok(())
    }

    /// The entry of user metadata that tells where filters lie; none if there are none.
    pub(super) fn index(columns: &BTreeMap<usize, Self>) -> Option<Vec<u8>> {
        let groups = columns.values().map(|column| (&column.names, column.groups.as_slice()));
        (!columns.is_empty()).then(|| index_to_bytes(ZONE_LEN as u64, groups))
    }
}
