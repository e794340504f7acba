//! The writer of one file.

use std::ops::Range;

use arrow::array::{Array as _, RecordBatch};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::bloom_filters::FilterRows;
use super::chunk::{Job, Turn, chunks};
use super::columns::Columns;
use super::container::Container;
use super::dictionary::{DictionaryState, may_share_dictionary};
use super::encoder::Encoder;
use super::intake::Intake;
use super::narrow_keys::NarrowKeys;
use super::output::Output;
use super::pending::{Cut, PendingRows};
use super::storable::{arrow_schema, check_depth, check_names};
use super::{DEFAULT_MIN_READER, WriteOptions, WriteSummary};
use crate::bloom::BLOOM_FILTERS_KEY;
use crate::compress::Compressor;
use crate::dtype::DType;
use crate::dtype::stored::{first_reader, stored_schema};
use crate::file::ARROW_SCHEMA_KEY;
use crate::io::{Sink, runtime};
use crate::wire::dtype_tables;
use crate::{Error, Release, Result};

/// Minimum number of bytes of a column that are encoded together, regardless of the budget.
const MIN_COLUMN_BYTES: usize = 64 << 10;
/// Memory of a text dictionary: the amount that each may take in any case, and the maximum of any.
const DICTIONARY_BYTES: (usize, usize) = (64 << 10, 1 << 20);

/// Tables that releases accept in the type of a file, and in its layout tree.
const MAX_TABLES: usize = 1_000_000;

/// Writes one file, batch by batch.
///
/// Encoding runs in tasks of the current tokio runtime: `write`, `flush` and `finish` fail outside of a runtime, and
/// wait for tasks of the runtime on which rows were written, which must keep running until then. A writer that is
/// dropped before [`finish`](Self::finish) leaves no file behind; a writer that failed refuses further calls.
///
/// The same rows make the same chunks, but the order in which these lie in the file depends on which are encoded first:
/// two files of them may differ in their bytes.
#[derive(Debug)]
pub struct FileWriter {
    intake: Intake,
    /// The schema as the file contains it, if it does and keys do not become wider.
    arrow_schema: Option<Bytes>,
    dtype: DType,
    columns: Columns,
    options: WriteOptions,
    /// The oldest release for which encodings are chosen.
    min_reader: Release,
    /// Of what describes the columns.
    compressor: Compressor,
    narrow_keys: NarrowKeys,
    pending: PendingRows,
    encoder: Encoder,
    output: Output,
    /// Bytes that rows had in memory before their encoding started.
    started_bytes: u64,
    /// Null count of each root field.
    null_counts: Vec<u64>,
    row_count: u64,
    /// For each text column, the channel on which the job before its next rows reports how to continue.
    texts: Vec<Option<oneshot::Receiver<DictionaryState>>>,
    max_dictionary_bytes: usize,
    /// Whether a call failed, or its future was dropped before completion.
    is_broken: bool,
}

impl FileWriter {
    /// Starts a file. Nothing is written yet.
    ///
    /// # Errors
    /// If a column has a type that Vortex does not have, or that the oldest release which must read the
    /// file does not have; the error names both. If a [level](WriteOptions::with_column_level) is set for a column that
    /// does not exist, or a [Bloom filter](WriteOptions::with_bloom_filter) for one that does not exist or has a type
    /// without. If types nest deeper than readers accept, some 30 levels, or 18 of maps. If the metadata of the
    /// schema and of its fields is longer than readers accept.
    pub fn try_new(sink: impl Sink, schema: SchemaRef, options: WriteOptions) -> Result<Self> {
        let (dtype, min_reader) = match options.min_reader {
            Some(release) => (stored_schema(&schema, release)?, release),
            None => {
                let dtype = stored_schema(&schema, Release::NEWEST)?;
                let min_reader = first_reader(&dtype).max(DEFAULT_MIN_READER);
                (dtype, min_reader)
            }
        };
        let fields =
            dtype.as_columns().cloned().ok_or_else(|| Error::invalid("a schema must be a struct"))?;
        check_depth(&dtype)?;
        check_names(&fields, "")?;
        options.levels.check(&dtype)?;
        let columns = Columns::new(&fields, &options.levels, min_reader);
        let filters = FilterRows::of(&options.bloom_filters, &columns, &dtype)?;
        options.check_metadata()?;
        let intake = Intake::try_new(SchemaRef::clone(&schema), &fields)?;
        let arrow_schema = arrow_schema(&schema, &dtype)?;
        let compressor = Compressor::new(options.levels.level, min_reader);
        let leaf_count = columns.leaves.len();
        let texts = columns.leaves.iter().map(|leaf| may_share_dictionary(&leaf.dtype).then(new_text));
        let texts: Vec<_> = texts.collect();
        let text_count = texts.iter().flatten().count();
        // Few dictionaries reach their maximum size.
        let max_dictionary_bytes =
            (options.memory_budget / 2 / text_count.max(1)).clamp(DICTIONARY_BYTES.0, DICTIONARY_BYTES.1);
        Ok(Self {
            narrow_keys: NarrowKeys::new(&schema),
            pending: PendingRows::new(leaf_count),
            encoder: Encoder::new(),
            output: Output::new(Container::new(Box::new(sink), &options), leaf_count, filters),
            started_bytes: 0,
            null_counts: vec![0; fields.len()],
            row_count: 0,
            texts,
            max_dictionary_bytes,
            is_broken: false,
            intake,
            arrow_schema,
            dtype,
            columns,
            options,
            min_reader,
            compressor,
        })
    }

    /// The schema that batches must have.
    pub fn schema(&self) -> &SchemaRef {
        self.intake.schema()
    }

    /// The oldest release that will read the file, as will all later ones; `None` if
    /// [segment compression](WriteOptions::with_segment_compression) keeps all of them from it, or if there are half a
    /// million columns. Whether the file will also have more chunks than they accept, a million, only
    /// [its summary](WriteSummary::min_reader) tells.
    pub fn min_reader(&self) -> Option<Release> {
        let is_plain = self.options.segment_compression.is_none();
        (is_plain && dtype_tables(&self.dtype) <= MAX_TABLES).then_some(self.min_reader)
    }

    /// Number of rows taken so far.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Bytes held in memory: rows that are waiting, being encoded, or on their way to storage.
    pub fn buffered_bytes(&self) -> usize {
        self.unwritten_bytes() + self.output.container.sink().buffered_bytes()
    }

    /// Bytes that [`flush`](Self::flush) writes out, and that the
    /// [budget](WriteOptions::with_memory_budget) is for: all but those on their way to storage, which a sink limits by
    /// itself.
    pub fn unwritten_bytes(&self) -> usize {
        self.pending.bytes() + self.bytes_at_work() + self.output.dictionary_bytes()
    }

    /// Bytes of chunks that are being encoded, or waiting to be written.
    fn bytes_at_work(&self) -> usize {
        self.encoder.buffered_bytes() + self.output.unwritten_bytes()
    }

    /// Number of bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.output.container.position()
    }

    /// Whether a file of the rows taken so far has about this many bytes, for callers that start another file
    /// then. Rows that are not encoded yet are expected to shrink as much as the others, and [flushed](Self::flush)
    /// if they are the larger part and might be enough.
    ///
    /// # Errors
    /// If encoding or storage fails, or has failed.
    pub async fn reaches(&mut self, bytes: u64) -> Result<bool> {
        self.check_sound()?;
        let (done, rest) = self.done_and_rest();
        if rest >= bytes && rest > done {
            self.flush().await?;
        }
        let (done, rest) = self.done_and_rest();
        let held =
            self.output.unwritten_bytes() + self.encoder.encoded_bytes() + self.output.dictionary_bytes();
        let encoded = u128::from(self.output.container.position()) + held as u128;
        let shrunk = (u128::from(rest) * encoded).checked_div(done.into()).unwrap_or_default();
        Ok(encoded + shrunk >= u128::from(bytes))
    }

    /// Bytes that rows had before they were encoded, and bytes of rows that are not encoded yet.
    fn done_and_rest(&self) -> (u64, u64) {
        let encoding = self.encoder.unencoded_bytes() as u64;
        (self.started_bytes.saturating_sub(encoding), self.pending.row_bytes() as u64 + encoding)
    }

    /// Appends rows. Waits for earlier rows to be encoded and written if memory requires it.
    ///
    /// # Errors
    /// If the batch does not match the schema, or has nulls in a column that is not nullable: the writer is
    /// unchanged and can be used further. If encoding or storage fails, or a decimal has more digits than its type: the
    /// file is lost, and later calls fail.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check_sound()?;
        let portions = self.intake.portions(batch)?;
        self.is_broken = true;
        self.narrow_keys.see(batch)?;
        for rows in portions {
            let columns = self.intake.carry(&rows)?;
            // Runs and dictionaries are searched for nulls as a whole, even those of a few rows; these are neither.
            for (nulls, column) in self.null_counts.iter_mut().zip(&columns) {
                *nulls += column.logical_null_count() as u64;
            }
            self.pending.push(self.columns.take_apart(&columns))?;
            self.row_count += rows.num_rows() as u64;
            let due = self.pending.cut_due(self.pending_limit())?;
            if !due.is_empty() {
                self.start(due, false).await?;
            }
            self.keep_to_budget().await?;
        }
        self.is_broken = false;
        Ok(())
    }

    /// Lets chunks be encoded and written that exceed the budget together with the rows that are collected: the minimum
    /// of these may be more than their part of it. If they are more than all of the budget, with dictionaries, waiting
    /// would save little.
    async fn keep_to_budget(&mut self) -> Result<()> {
        if self.pending_limit() + self.output.dictionary_bytes() > self.options.memory_budget {
            return Ok(());
        }
        while self.unwritten_bytes() > self.options.memory_budget {
            if self.encoder.is_busy() {
                self.encoder.wait().await?;
                self.collect();
                self.write_if_enough().await?;
            } else if self.output.unwritten_bytes() > 0 {
                self.output.write_waiting(&self.columns).await?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Encodes and writes all rows taken so far, and waits until that is done. Frees memory at the cost
    /// of shorter chunks.
    ///
    /// # Errors
    /// If encoding or storage fails.
    pub async fn flush(&mut self) -> Result<()> {
        self.check_sound()?;
        self.is_broken = true;
        let rest = self.pending.cut_all();
        self.start(rest, true).await?;
        while self.encoder.is_busy() {
            self.encoder.wait().await?;
        }
        self.collect();
        self.output.write_waiting(&self.columns).await?;
        self.is_broken = false;
        Ok(())
    }

    /// Adds an entry of user metadata that is known only now; see [`WriteOptions::with_user_metadata`].
    ///
    /// # Errors
    /// As [`WriteOptions::with_user_metadata`]; the writer is unchanged and can be used further.
    pub fn set_user_metadata(&mut self, key: &str, value: impl Into<Bytes>) -> Result<()> {
        let options = self.options.clone().with_user_metadata(key, value)?;
        options.check_metadata()?;
        self.options = options;
        Ok(())
    }

    /// Writes the rest and completes the file.
    ///
    /// # Errors
    /// If encoding or storage fails; no file is created then. Only if the folder of a local file cannot be synced,
    /// the file is there but might not survive a crash of the system.
    pub async fn finish(mut self) -> Result<WriteSummary> {
        match self.complete().await {
            Ok(summary) => Ok(summary),
            Err(error) => {
                self.give_up().await;
                Err(error)
            }
        }
    }

    /// Aborts the file and waits until nothing of it remains. Dropping the writer does the same without
    /// waiting.
    ///
    /// # Errors
    /// If storage fails to remove what has been written.
    pub async fn abort(mut self) -> Result<()> {
        self.output.container.abort().await
    }

    /// Removes what has been written after an error, which matters more than one of the removal.
    pub(super) async fn give_up(&mut self) {
        if let Err(error) = self.output.container.abort().await {
            tracing::warn!(%error, "failed to remove the parts of a failed file");
        }
    }

    async fn complete(&mut self) -> Result<WriteSummary> {
        self.flush().await?;
        let (columns, min_reader) = (&self.columns, self.min_reader);
        let filters = self.output.write_bloom_filters().await?;
        let layouts =
            self.output.write_zone_tables(columns, self.row_count, min_reader, &self.compressor).await?;
        let layout = columns.layout(self.row_count, layouts);
        let summaries = self.output.summaries(columns, self.null_counts.len());
        let statistics = self.output.statistics(columns, &summaries, &self.null_counts, min_reader);
        let mut metadata = self.options.metadata.clone();
        let schema = self.narrow_keys.widened(self.intake.schema());
        let arrow_schema = if schema == *self.intake.schema() {
            self.arrow_schema.take()
        } else {
            arrow_schema(&schema, &self.dtype)?
        };
        metadata.extend(arrow_schema.map(|bytes| (ARROW_SCHEMA_KEY.into(), bytes)));
        metadata.extend(filters.map(|bytes| (BLOOM_FILTERS_KEY.into(), bytes.into())));
        let tail = self.output.container.finish(&self.dtype, &layout, &statistics, &metadata).await?;
        let min_reader = self.min_reader().filter(|_| layout.node_count() <= MAX_TABLES);
        Ok(WriteSummary { schema, row_count: self.row_count, columns: summaries, min_reader, tail })
    }

    fn check_sound(&self) -> Result<()> {
        if self.is_broken {
            return Err(Error::invalid(
                "the writer failed earlier, or one of its futures was dropped before completing",
            ));
        }
        runtime().map(drop)
    }

    /// Limit of the bytes of collected rows: a third of the budget, while other rows are being encoded.
    fn pending_limit(&self) -> usize {
        (self.options.memory_budget / 3).max(self.columns.leaves.len() * MIN_COLUMN_BYTES)
    }

    /// Starts encoding rows once there is memory for them. After the last rows, nothing is held back.
    async fn start(&mut self, cuts: Vec<Cut>, are_last: bool) -> Result<()> {
        let bytes: usize = cuts.iter().map(|cut| cut.sizes.waiting).sum();
        let jobs: Vec<Job> = cuts.into_iter().flat_map(|cut| self.jobs(cut, are_last)).collect();
        // Leave room to collect the next rows while these are being encoded.
        let room = self.options.memory_budget.saturating_sub(self.pending_limit() + bytes);
        while self.encoder.is_busy() && self.bytes_at_work() + self.output.dictionary_bytes() > room {
            self.encoder.wait().await?;
            self.collect();
            self.write_if_enough().await?;
        }
        self.started_bytes += bytes as u64;
        self.encoder.start(jobs)?;
        // If there are few bytes, they have been encoded on the spot.
        self.collect();
        self.write_if_enough().await
    }

    /// Cuts rows of a leaf into chunks. Those of text are encoded one after the other, in a single job.
    fn jobs(&mut self, cut: Cut, is_last: bool) -> Vec<Job> {
        let leaf = &self.columns.leaves[cut.leaf];
        let chunks = chunks(&cut.pieces, cut.rows, cut.sizes);
        let job = |chunks: Vec<Range<usize>>, turn| Job {
            leaf: cut.leaf,
            dtype: leaf.dtype.clone(),
            path: leaf.path.clone(),
            compressor: Compressor::new(leaf.levels.clone(), self.min_reader),
            pieces: cut.pieces.clone(),
            sizes: cut.sizes.share(chunks.iter().map(Range::len).sum(), cut.rows),
            first_row: cut.first_row + chunks.first().map_or(0, |chunk| chunk.start as u64),
            chunks,
            has_zones: leaf.is_visible,
            has_filters: self.output.filters.contains_key(&cut.leaf),
            turn,
        };
        let Some(before) = self.texts[cut.leaf].take() else {
            return chunks.into_iter().map(|chunk| job(vec![chunk], None)).collect();
        };
        let (next, after) = oneshot::channel();
        self.texts[cut.leaf] = Some(after);
        let max_dictionary_bytes = self.max_dictionary_bytes;
        vec![job(chunks, Some(Turn { before, next, is_last, max_dictionary_bytes }))]
    }

    /// Takes the groups that are completely encoded.
    fn collect(&mut self) {
        while let Some(chunks) = self.encoder.take_group() {
            chunks.into_iter().for_each(|chunk| self.output.push(chunk));
        }
    }

    async fn write_if_enough(&mut self) -> Result<()> {
        if self.output.unwritten_bytes() >= self.options.memory_budget / 4 {
            self.output.write_waiting(&self.columns).await?;
        }
        Ok(())
    }
}

/// The initial state of a text column.
fn new_text() -> oneshot::Receiver<DictionaryState> {
    let (next, text) = oneshot::channel();
    // Sending cannot fail: the receiver still exists.
    let _ = next.send(DictionaryState::New);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray, StructArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use futures::TryStreamExt as _;

    use super::*;
    use crate::io::MemorySink;
    use crate::kernels::random;
    use crate::layout::LayoutRef;
    use crate::{Level, VortexFile};

    const ROWS: usize = 50_000;

    /// A column that climbs by random steps.
    fn climbing(seed: u64) -> ArrayRef {
        let mut next = random(seed);
        let mut sum = 0;
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(|_| {
            sum += (next() % 1000) as i64;
            sum
        })))
    }

    /// A column of a few hundred sentences.
    fn sentences() -> ArrayRef {
        let mut next = random(7);
        let sentence = |at: u64| format!("customer {} wants parcel {} at the back door", at * 7919, at % 13);
        Arc::new(StringArray::from_iter_values((0..ROWS).map(|_| sentence(next() % 500))))
    }

    /// Ids of the layouts of a column and of the encodings in its chunks.
    async fn ids(file: &VortexFile, column: &LayoutRef) -> BTreeSet<String> {
        let (mut ids, mut open) = (BTreeSet::new(), vec![Arc::clone(column)]);
        while let Some(layout) = open.pop() {
            ids.insert(layout.id().to_owned());
            for segment in layout.segments() {
                let encodings = file.array_encodings(segment).await.unwrap();
                ids.extend(encodings.into_iter().map(|(_, id)| id.to_string()));
            }
            let children = layout.children().unwrap().into_iter();
            open.extend(children.filter(|(name, _)| name != "zones").map(|(_, child)| child));
        }
        ids
    }

    #[tokio::test]
    async fn columns_and_fields_are_compressed_at_their_own_levels() {
        let inner = [("x", climbing(1)), ("y", climbing(2))]
            .map(|(name, column)| (Arc::new(Field::new(name, column.data_type().clone(), false)), column));
        let columns: [(&str, ArrayRef); 4] = [
            ("plain", climbing(3)),
            ("small", climbing(4)),
            ("text", sentences()),
            ("pair", Arc::new(StructArray::from(inner.to_vec()))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let options = WriteOptions::new()
            .with_column_level("small", Level::Compact)
            .with_column_level("text", Level::Compact)
            .with_column_level(["pair", "y"], Level::Fast)
            .with_column_level("pair", Level::Compact)
            .with_level(Level::Fast);
        let sink = MemorySink::new();
        let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), options).unwrap();
        writer.write(&batch).await.unwrap();
        writer.finish().await.unwrap();
        let file = VortexFile::open_bytes(sink.bytes().unwrap()).unwrap();

        let columns: Vec<LayoutRef> = (0..4).map(|at| file.footer().column_layout(at).unwrap()).collect();
        let field = |at| columns[3].field(at).unwrap().unwrap();
        for (column, is_compact) in [
            (&columns[0], false),
            (&columns[1], true),
            (&columns[2], true),
            (&field(0), true),
            (&field(1), false),
        ] {
            let ids = ids(&file, column).await;
            let is_slow = |id: &String| ["vortex.pco", "vortex.zstd", "vortex.onpair"].contains(&id.as_str());
            assert_eq!(ids.iter().any(is_slow), is_compact, "{ids:?}");
        }
        assert!(ids(&file, &columns[2]).await.contains("vortex.dict"), "a shared dictionary");
        let scan = file.scan().with_schema(batch.schema());
        let found: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
        assert_eq!(arrow::compute::concat_batches(&batch.schema(), &found).unwrap(), batch);
    }

    #[test]
    fn a_level_for_a_column_that_does_not_exist_is_refused() {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let options = WriteOptions::new().with_column_level("b", Level::Fast);
        let error = FileWriter::try_new(MemorySink::new(), schema, options).unwrap_err().to_string();
        assert!(error.contains("no column `b`; there are: a"), "{error}");
    }

    #[test]
    fn no_release_is_named_as_a_reader_of_more_types_than_they_accept() {
        let min_reader = |fields: usize| {
            let fields = (0..fields).map(|at| Field::new(at.to_string(), DataType::Int8, false)).collect();
            let items = DataType::new_list(DataType::Struct(fields), false);
            let schema = Schema::new(vec![Field::new("a", items, false)]);
            let writer = FileWriter::try_new(MemorySink::new(), Arc::new(schema), WriteOptions::new());
            writer.unwrap().min_reader()
        };
        // The root, the list and its structs are types as well.
        assert!(min_reader(MAX_TABLES / 2 - 3).is_some());
        assert_eq!(min_reader(MAX_TABLES / 2 - 2), None);
    }
}
