//! The writer of one file.

use arrow::array::{Array as _, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};

use super::chunk::{Body, Encoded, Job, Sharing, chunk_rows};
use super::columns::Columns;
use super::container::Container;
use super::dictionary::{Dictionary, is_text};
use super::encoder::Encoder;
use super::intake::Intake;
use super::narrow_keys::NarrowKeys;
use super::pending::{Pending, Pieces, value_bytes};
use super::storable::{carriers, check_batch};
use super::written::{Written, chunked};
use super::zone_table::{ZoneTable, shows_bounds};
use super::{ColumnSummary, DEFAULT_MIN_READER, WriteOptions, WriteSummary, ZONE_LEN};
use crate::array::restore::carry;
use crate::compress::Compressor;
use crate::dtype::DType;
use crate::dtype::stored::{first_reader, stored_schema};
use crate::error::ResultExt as _;
use crate::file::ARROW_SCHEMA_KEY;
use crate::io::Sink;
use crate::layout::dict_metadata;
use crate::stats::FieldStats;
use crate::wire::{WriteLayout, WriteNode, arrow_schema_to_bytes};
use crate::{Error, Release, Result};

/// Bytes of each column that are encoded together at least, whatever the budget.
const MIN_COLUMN_BYTES: usize = 64 << 10;

/// Writes one file, batch by batch.
///
/// Encoding runs as tasks of the current tokio runtime. A writer that is dropped before
/// [`finish`](Self::finish) leaves no file; one that failed refuses to go on.
#[derive(Debug)]
pub struct FileWriter {
    schema: SchemaRef,
    /// The types in which the columns are taken in.
    carriers: Vec<DataType>,
    dtype: DType,
    columns: Columns,
    options: WriteOptions,
    min_reader: Release,
    compressor: Compressor,
    narrow_keys: NarrowKeys,
    pending: Pending,
    encoder: Encoder,
    /// Encoded chunks per leaf, until there are enough to write them next to each other.
    waiting: Vec<Vec<Encoded>>,
    waiting_bytes: usize,
    container: Container<Box<dyn Sink>>,
    leaves: Vec<Written>,
    /// Nulls of each root field.
    null_counts: Vec<u64>,
    row_count: u64,
    /// Rows before those that are pending.
    encoded_rows: u64,
    /// Whether a call failed or was dropped midway.
    is_broken: bool,
}

impl FileWriter {
    /// Starts a file. Nothing is written yet.
    ///
    /// # Errors
    /// If a column has a type that Vortex, or the oldest release that must read the file, does
    /// not have; the error names both.
    pub fn try_new(sink: impl Sink, schema: SchemaRef, options: WriteOptions) -> Result<Self> {
        let (dtype, min_reader) = match options.min_reader {
            Some(release) => (stored_schema(&schema, release)?, release),
            None => {
                let dtype = stored_schema(&schema, Release::NEWEST)?;
                let min_reader = first_reader(&dtype).max(DEFAULT_MIN_READER);
                (dtype, min_reader)
            }
        };
        let fields = dtype.as_columns().cloned().ok_or_else(|| Error::invalid("a schema is a struct"))?;
        let columns = Columns::new(&fields);
        let carriers = carriers(&schema, &fields)?;
        let compressor = Compressor::new(options.level, min_reader);
        let leaf_count = columns.leaves.len();
        Ok(Self {
            narrow_keys: NarrowKeys::new(&schema),
            pending: Pending::new(leaf_count),
            encoder: Encoder::new(compressor.clone()),
            waiting: (0..leaf_count).map(|_| Vec::new()).collect(),
            waiting_bytes: 0,
            container: Container::new(Box::new(sink) as Box<dyn Sink>, &options),
            leaves: (0..leaf_count).map(|_| Written::default()).collect(),
            null_counts: vec![0; fields.len()],
            row_count: 0,
            encoded_rows: 0,
            is_broken: false,
            schema,
            carriers,
            dtype,
            columns,
            options,
            min_reader,
            compressor,
        })
    }

    /// The schema that batches must have.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The oldest release that will read the file.
    pub fn min_reader(&self) -> Release {
        self.min_reader
    }

    /// Rows taken so far.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Bytes held in memory: rows that wait, are being encoded, or are on their way to storage.
    pub fn buffered_bytes(&self) -> usize {
        self.pending.bytes()
            + self.encoder.buffered_bytes()
            + self.waiting_bytes
            + self.container.sink().buffered_bytes()
    }

    /// Bytes of the file so far.
    pub fn bytes_written(&self) -> u64 {
        self.container.position()
    }

    /// Appends rows. Waits for earlier rows to be encoded and written where memory asks for it.
    ///
    /// # Errors
    /// If the batch has another schema, or nulls where the schema has none: the writer is as it
    /// was and can go on. If encoding or storage fails: the file is lost, and later calls fail.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check_sound()?;
        check_batch(batch, &self.schema)?;
        self.is_broken = true;
        self.narrow_keys.see(batch)?;
        for batch in Intake::new(batch) {
            let rows = batch.num_rows();
            for (nulls, column) in self.null_counts.iter_mut().zip(batch.columns()) {
                *nulls += column.logical_null_count() as u64;
            }
            let columns = batch.columns().iter().zip(&self.carriers).map(|(column, to)| carry(column, to));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            self.pending.push(rows, self.columns.take_apart(&columns));
            self.row_count += rows as u64;
            while let Some(rows) = self.group_rows() {
                self.start_group(rows).await?;
            }
        }
        self.is_broken = false;
        Ok(())
    }

    /// Encodes and writes all rows taken so far, and waits for that. Frees memory at the cost
    /// of shorter chunks.
    ///
    /// # Errors
    /// If encoding or storage fails.
    pub async fn flush(&mut self) -> Result<()> {
        self.check_sound()?;
        self.is_broken = true;
        if self.pending.rows() > 0 {
            self.start_group(self.pending.rows()).await?;
        }
        while self.encoder.is_busy() {
            self.encoder.wait().await?;
        }
        self.collect();
        self.write_waiting().await?;
        self.is_broken = false;
        Ok(())
    }

    /// Writes the rest and completes the file.
    ///
    /// # Errors
    /// If encoding or storage fails; there is no file then.
    pub async fn finish(mut self) -> Result<WriteSummary> {
        match self.complete().await {
            Ok(summary) => Ok(summary),
            Err(error) => {
                self.give_up().await;
                Err(error)
            }
        }
    }

    /// Gives up and waits until nothing remains of the file. Dropping the writer does the same
    /// without waiting.
    ///
    /// # Errors
    /// If storage fails to remove what has been written.
    pub async fn abort(mut self) -> Result<()> {
        self.container.abort().await
    }

    async fn give_up(&mut self) {
        if let Err(error) = self.container.abort().await {
            tracing::warn!(%error, "parts of a file that failed stay behind");
        }
    }

    async fn complete(&mut self) -> Result<WriteSummary> {
        self.flush().await?;
        let (layout, statistics) = (self.write_zone_maps().await?, self.statistics());
        let mut metadata = self.options.metadata.clone();
        let schema = self.narrow_keys.widened(&self.schema);
        // Readers would show the types that decoding prefers.
        if crate::dtype::arrow::schema(&self.dtype)? != schema {
            metadata.push((ARROW_SCHEMA_KEY.into(), arrow_schema_to_bytes(&schema)?.into()));
        }
        let tail = self.container.finish(&self.dtype, &layout, &statistics, &metadata).await?;
        Ok(WriteSummary {
            schema,
            row_count: self.row_count,
            columns: self.column_summaries(),
            min_reader: self.min_reader,
            tail,
        })
    }

    fn check_sound(&self) -> Result<()> {
        if self.is_broken {
            return Err(Error::invalid("the writer failed before, or a call of it was dropped midway"));
        }
        Ok(())
    }

    /// How many of the pending rows make a group, if there are enough: a power of two zones, so
    /// that chunks line up from group to group; less than a zone if already that is too much.
    fn group_rows(&self) -> Option<usize> {
        let (rows, bytes) = (self.pending.rows(), self.pending.bytes());
        if bytes < self.group_bytes() || rows == 0 {
            return None;
        }
        Some(match rows / ZONE_LEN {
            0 => rows,
            zones => ZONE_LEN << zones.ilog2(),
        })
    }

    /// Bytes that make a group: a third of the budget gathers, while the group before is at work.
    fn group_bytes(&self) -> usize {
        (self.options.memory_budget / 3).max(self.leaves.len() * MIN_COLUMN_BYTES)
    }

    /// Puts the next `rows` pending rows to work, once there is memory for them.
    async fn start_group(&mut self, rows: usize) -> Result<()> {
        let zone_offset = (self.encoded_rows % ZONE_LEN as u64) as usize;
        let cut = self.pending.cut(rows);
        self.encoded_rows += rows as u64;
        let leaves = cut.into_iter().enumerate();
        let jobs: Vec<Job> =
            leaves.flat_map(|(at, pieces)| self.jobs(at, pieces, rows, zone_offset)).collect();
        let bytes: usize = jobs.iter().map(|job| job.bytes).sum();
        // While this group is at work, the next one gathers.
        let room = self.options.memory_budget.saturating_sub(self.group_bytes() + bytes);
        while self.encoder.is_busy() && self.buffered_bytes() - self.pending.bytes() > room {
            self.encoder.wait().await?;
            self.collect();
            self.write_if_enough().await?;
        }
        self.encoder.start(jobs)?;
        // Few bytes are encoded already.
        self.collect();
        self.write_if_enough().await
    }

    /// Cuts the rows of a group into chunks of one leaf.
    fn jobs(&self, at: usize, pieces: Pieces, rows: usize, zone_offset: usize) -> Vec<Job> {
        let (leaf, written) = (&self.columns.leaves[at], &self.leaves[at]);
        let bytes: usize = pieces.iter().map(value_bytes).sum();
        let step = chunk_rows(rows, bytes, written.encoded_row_bytes());
        let dictionary = match written.dictionary {
            _ if step >= rows || !is_text(&leaf.dtype) => Sharing::Never,
            None => Sharing::IfSmaller,
            Some(true) => Sharing::Again,
            Some(false) => Sharing::Never,
        };
        let len_of_job = if dictionary == Sharing::Never { step } else { rows };
        let job = |start| {
            let len = len_of_job.min(rows - start);
            Job {
                leaf: at,
                dtype: leaf.dtype.clone(),
                path: leaf.path.clone(),
                pieces: pieces.clone(),
                start,
                len,
                step,
                bytes: (bytes as u128 * len as u128 / rows as u128) as usize,
                zone_offset: leaf.is_visible.then_some((zone_offset + start) % ZONE_LEN),
                dictionary,
            }
        };
        (0..rows).step_by(len_of_job).map(job).collect()
    }

    /// Takes the groups that are encoded.
    fn collect(&mut self) {
        while let Some(chunks) = self.encoder.take_group() {
            for chunk in chunks {
                if chunk.rows > chunk.step {
                    self.leaves[chunk.leaf].dictionary = Some(matches!(chunk.body, Body::Dictionary(_)));
                }
                self.waiting_bytes += chunk.encoded_bytes;
                self.waiting[chunk.leaf].push(chunk);
            }
        }
    }

    async fn write_if_enough(&mut self) -> Result<()> {
        if self.waiting_bytes >= self.options.memory_budget / 4 {
            self.write_waiting().await?;
        }
        Ok(())
    }

    /// Writes the encoded chunks, column by column.
    async fn write_waiting(&mut self) -> Result<()> {
        for at in 0..self.leaves.len() {
            for encoded in std::mem::take(&mut self.waiting[at]) {
                self.waiting_bytes -= encoded.encoded_bytes;
                self.write_encoded(encoded)
                    .await
                    .at(|| format!("column `{}`", self.columns.leaves[at].path))?;
            }
        }
        Ok(())
    }

    async fn write_encoded(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded { leaf: at, rows, step, raw_bytes, body, zones, .. } = encoded;
        let (chunks, shared) = match body {
            Body::Chunks(chunks) => (chunks, None),
            Body::Dictionary(dictionary) => {
                let Dictionary { values, value_count, codes, codes_ptype } = dictionary;
                (codes, Some((values, value_count as u64, codes_ptype)))
            }
        };
        let mut layouts = Vec::with_capacity(chunks.len());
        for (start, chunk) in (0..rows).step_by(step).zip(&chunks) {
            let segment = self.write_segment(at, chunk).await?;
            layouts.push(WriteLayout::flat(step.min(rows - start) as u64, segment));
        }
        if let Some((values, value_count, codes_ptype)) = shared {
            let segment = self.write_segment(at, &values).await?;
            let children = vec![WriteLayout::flat(value_count, segment), chunked(rows as u64, layouts)];
            let layout = WriteLayout::new("vortex.dict", rows as u64, children);
            layouts = vec![layout.metadata(dict_metadata(codes_ptype))];
        }
        let leaf = &mut self.leaves[at];
        leaf.chunks.extend(layouts);
        leaf.add_zones(zones, &self.columns.leaves[at].dtype)?;
        leaf.rows += rows as u64;
        leaf.summary.raw_bytes += raw_bytes as u64;
        Ok(())
    }

    async fn write_segment(&mut self, at: usize, node: &WriteNode) -> Result<u32> {
        let (segment, length) = self.container.segment(node).await?;
        self.leaves[at].summary.encoded_bytes += u64::from(length);
        self.leaves[at].summary.segment_count += 1;
        Ok(segment)
    }

    /// Writes the zone tables, and gives the layout of the file.
    async fn write_zone_maps(&mut self) -> Result<WriteLayout> {
        let mut layouts = Vec::with_capacity(self.leaves.len());
        for (at, leaf) in self.columns.leaves.iter().enumerate() {
            let written = &mut self.leaves[at];
            if let Some(last) = written.open.take() {
                written.close(last, &leaf.dtype)?;
            }
            let data = chunked(self.row_count, std::mem::take(&mut written.chunks));
            // The statistics of the file say of a single zone what a zone map would.
            if !leaf.is_visible || written.zones.len() < 2 {
                layouts.push(data);
                continue;
            }
            let place = || format!("zone map of column `{}`", leaf.path);
            let zones = std::mem::take(&mut written.zones);
            let table = ZoneTable::new(zones, &leaf.dtype, self.min_reader, &self.compressor);
            let table = table.at(place)?;
            let (segment, length) = self.container.segment(&table.table).await.at(place)?;
            written.summary.encoded_bytes += u64::from(length);
            written.summary.segment_count += 1;
            let zones = WriteLayout::flat(table.zone_count, segment);
            let zoned = WriteLayout::new(table.id, self.row_count, vec![data, zones]);
            layouts.push(zoned.metadata(table.metadata));
        }
        Ok(self.columns.layout(self.row_count, layouts))
    }

    /// Statistics of the root fields.
    fn statistics(&self) -> Vec<FieldStats> {
        let raw_bytes = self.column_summaries();
        let counted = self.null_counts.iter().zip(&raw_bytes).map(|(nulls, summary)| FieldStats {
            null_count: Some(*nulls),
            uncompressed_size: Some(summary.raw_bytes),
            ..FieldStats::default()
        });
        let mut fields: Vec<FieldStats> = counted.collect();
        for (leaf, written) in self.columns.leaves.iter().zip(&self.leaves) {
            if let (true, Some(whole)) = (leaf.is_root, &written.whole) {
                let stats = &mut fields[leaf.root];
                *stats = whole.to_field_stats(&leaf.dtype, stats.uncompressed_size.unwrap_or_default());
                if !shows_bounds(&leaf.dtype, self.min_reader) {
                    (stats.min, stats.max) = Default::default();
                }
            }
        }
        fields
    }

    fn column_summaries(&self) -> Vec<ColumnSummary> {
        let mut columns = vec![ColumnSummary::default(); self.null_counts.len()];
        for (leaf, written) in self.columns.leaves.iter().zip(&self.leaves) {
            let column = &mut columns[leaf.root];
            column.raw_bytes += written.summary.raw_bytes;
            column.encoded_bytes += written.summary.encoded_bytes;
            column.segment_count += written.summary.segment_count;
        }
        columns
    }
}
