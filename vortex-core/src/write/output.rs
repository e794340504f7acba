//! Encoded chunks on their way to the file, and what the file contains of each leaf.
//!
//! Chunks wait until they take a quarter of the memory budget, 16 MiB by default; those of one leaf are then written
//! next to each other, so that scans of it read long ranges. With groups of 64 MiB, the 17 queries of the bench suite
//! `points` issue a seventh fewer reads, but read 9 percent more bytes and take 11 percent longer: single rows of many
//! columns are further apart, and fewer reads have fewer streams.

use std::collections::BTreeMap;

use super::ColumnSummary;
use super::bloom_filters::FilterRows;
use super::chunk::{ColumnPart, Encoded};
use super::columns::Columns;
use super::container::Container;
use super::written::{Written, chunked, flat};
use super::zone_table::{ZoneTable, shows_bounds};
use crate::compress::Compressor;
use crate::dtype::DType;
use crate::error::ResultExt as _;
use crate::stats::FieldStats;
use crate::wire::{WriteLayout, WriteNode};
use crate::{Release, Result};

/// The output of a writer.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) container: Container,
    leaves: Vec<Written>,
    /// Encoded chunks per leaf, kept until there are enough to write them next to each other.
    waiting: Vec<Vec<Encoded>>,
    unwritten_bytes: usize,
    /// Bloom filters, by leaf.
    pub(super) filters: BTreeMap<usize, FilterRows>,
}

impl Output {
    pub(super) fn new(container: Container, leaf_count: usize, filters: BTreeMap<usize, FilterRows>) -> Self {
        let leaves = (0..leaf_count).map(|_| Written::default()).collect();
        let waiting = (0..leaf_count).map(|_| Vec::new()).collect();
        Self { container, leaves, waiting, unwritten_bytes: 0, filters }
    }

    /// Bytes of encoded chunks that are not written yet.
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    /// Bytes of dictionaries that may still grow.
    pub(super) fn dictionary_bytes(&self) -> usize {
        self.leaves.iter().map(|leaf| leaf.held_bytes).sum()
    }

    /// Takes a chunk. It is not written yet.
    pub(super) fn push(&mut self, mut chunk: Encoded) {
        if let Some(filters) = self.filters.get_mut(&chunk.leaf) {
            filters.add(std::mem::take(&mut chunk.hashes));
        }
        self.leaves[chunk.leaf].held_bytes = chunk.held_bytes;
        self.unwritten_bytes += chunk.encoded_bytes;
        self.waiting[chunk.leaf].push(chunk);
    }

    /// Writes the chunks that wait, column by column.
    ///
    /// # Errors
    /// If storage fails.
    pub(super) async fn write_waiting(&mut self, columns: &Columns) -> Result<()> {
        for (at, leaf) in columns.leaves.iter().enumerate() {
            for chunk in std::mem::take(&mut self.waiting[at]) {
                self.unwritten_bytes -= chunk.encoded_bytes;
                self.write_chunk(chunk, &leaf.dtype).await.at(|| format!("column `{}`", leaf.path))?;
            }
            if let Some(filters) = self.filters.get_mut(&at) {
                filters.write(&mut self.container, false).await?;
            }
        }
        Ok(())
    }

    async fn write_chunk(&mut self, encoded: Encoded, dtype: &DType) -> Result<()> {
        let at = encoded.leaf;
        for part in encoded.parts {
            match part {
                ColumnPart::Chunk(node, rows) => {
                    let segment = self.write_segment(at, &node).await?;
                    self.leaves[at].chunks.push(flat(rows as u64, segment));
                }
                ColumnPart::Codes(node, rows) => {
                    let segment = self.write_segment(at, &node).await?;
                    self.leaves[at].codes.push(flat(rows as u64, segment));
                }
                ColumnPart::Values { node, count, codes_ptype } => {
                    let segment = self.write_segment(at, &node).await?;
                    self.leaves[at].end_dictionary(flat(count, segment), codes_ptype);
                }
            }
        }
        let leaf = &mut self.leaves[at];
        leaf.add_zones(encoded.zones, dtype)?;
        leaf.summary.raw_bytes += encoded.sizes.raw as u64;
        Ok(())
    }

    async fn write_segment(&mut self, at: usize, node: &WriteNode) -> Result<u32> {
        let (segment, length) = self.container.segment(node).await?;
        self.leaves[at].summary.encoded_bytes += u64::from(length);
        self.leaves[at].summary.segment_count += 1;
        Ok(segment)
    }

    /// Writes the Bloom filters that are left, after all rows; returns the entry of user metadata that tells where all
    /// of them lie, if there are any.
    ///
    /// # Errors
    /// If storage fails.
    pub(super) async fn write_bloom_filters(&mut self) -> Result<Option<Vec<u8>>> {
        for filters in self.filters.values_mut() {
            filters.write(&mut self.container, true).await?;
        }
        Ok(FilterRows::index(&self.filters))
    }

    /// Writes the zone tables, after all rows; returns the layout of each leaf. Only then is the last zone part of
    /// [`summaries`](Self::summaries) and [`statistics`](Self::statistics).
    ///
    /// # Errors
    /// If encoding or storage fails.
    pub(super) async fn write_zone_tables(
        &mut self,
        columns: &Columns,
        row_count: u64,
        min_reader: Release,
        compressor: &Compressor,
    ) -> Result<Vec<WriteLayout>> {
        let mut layouts = Vec::with_capacity(self.leaves.len());
        for (leaf, written) in columns.leaves.iter().zip(&mut self.leaves) {
            if let Some(last) = written.open.take() {
                written.close(last, &leaf.dtype)?;
            }
            let data = chunked(std::mem::take(&mut written.chunks));
            // For a single zone, the statistics of the file contain the same as a zone table.
            if !leaf.is_visible || written.zones.len() < 2 {
                layouts.push(data);
                continue;
            }
            let place = || format!("zone table of column `{}`", leaf.path);
            let zones = std::mem::take(&mut written.zones);
            let table = ZoneTable::new(zones, &leaf.dtype, min_reader, compressor).at(place)?;
            let (segment, length) = self.container.segment(&table.table).await.at(place)?;
            written.summary.encoded_bytes += u64::from(length);
            written.summary.segment_count += 1;
            let zones = flat(table.zone_count, segment);
            layouts.push(WriteLayout::new(table.id, row_count, vec![data, zones]).metadata(table.metadata));
        }
        Ok(layouts)
    }

    /// Statistics of the root fields, given their summaries and null counts.
    pub(super) fn statistics(
        &self,
        columns: &Columns,
        summaries: &[ColumnSummary],
        null_counts: &[u64],
        min_reader: Release,
    ) -> Vec<FieldStats> {
        let counted = null_counts.iter().zip(summaries).map(|(nulls, column)| FieldStats {
            null_count: Some(*nulls),
            uncompressed_size: Some(column.raw_bytes),
            ..FieldStats::default()
        });
        let mut fields: Vec<FieldStats> = counted.collect();
        for (leaf, written) in columns.leaves.iter().zip(&self.leaves) {
            if let (true, Some(whole)) = (leaf.is_root, &written.whole) {
                let stats = &mut fields[leaf.root];
                *stats = whole.to_field_stats(&leaf.dtype, stats.uncompressed_size.unwrap_or_default());
                if !shows_bounds(&leaf.dtype, min_reader) {
                    (stats.min, stats.max) = Default::default();
                }
            }
        }
        fields
    }

    /// What was written of each of so many root fields.
    pub(super) fn summaries(&self, columns: &Columns, field_count: usize) -> Vec<ColumnSummary> {
        let mut summaries = vec![ColumnSummary::default(); field_count];
        for (leaf, written) in columns.leaves.iter().zip(&self.leaves) {
            let column = &mut summaries[leaf.root];
            column.raw_bytes += written.summary.raw_bytes;
            column.encoded_bytes += written.summary.encoded_bytes;
            column.segment_count += written.summary.segment_count;
        }
        summaries
    }
}
