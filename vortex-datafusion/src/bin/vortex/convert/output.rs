//! The output of conversions: one file, a series of parts, or standard output.
//!
//! ```text
//! rows ──> Output ──> .out.parquet.tmp-4711-0 ── rename ──> out.parquet
//!              ├────> Vortex, by the writer of the core, which does the same
//!              └────> parts of an object, which appears when all are there
//! ```

use std::fs::File;
use std::io::{BufWriter, Stdout, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use vortex_core::io::{LocalSink, ObjectSink, Sink};
use vortex_core::write::{FileWriter, WriteOptions};
use vortex_datafusion::RowOrder;

use super::destination::Destination;
use super::encoder::Encoder;
use super::partial::Partial;
use crate::failure::{Failure, Outcome};
use crate::formats::Format;

/// How each file is written.
pub(super) struct Form {
    pub(super) format: Format,
    pub(super) schema: SchemaRef,
    pub(super) options: WriteOptions,
    /// The order in which its rows are supposed to be, if they are in any.
    pub(super) order: Option<RowOrder>,
}

/// One output.
enum Output {
    Vortex(Box<FileWriter>, Option<RowOrder>),
    File { encoder: Encoder<Counting>, partial: Partial, written: Arc<AtomicU64> },
    Object { encoder: Encoder<Encoded>, encoded: Encoded, sink: ObjectSink, written: u64 },
    Stdout(Encoder<BufWriter<Stdout>>),
}

impl Output {
    /// Starts an output, which may replace a local file unless it is new.
    fn create(destination: &Destination, is_new: bool, form: &Form) -> Outcome<Self> {
        match (form.format, destination) {
            (Format::Vortex, Destination::Stdout) => Self::vortex(form, StandardOutput),
            (Format::Vortex, Destination::Local(path)) if is_new => {
                Self::vortex(form, LocalSink::create_new(path)?)
            }
            (Format::Vortex, Destination::Local(path)) => Self::vortex(form, LocalSink::create(path)?),
            (Format::Vortex, Destination::Object { store, path, .. }) => {
                Self::vortex(form, ObjectSink::new(Arc::clone(store), path.clone()))
            }
            (format, Destination::Stdout) => {
                let out = BufWriter::with_capacity(64 << 10, std::io::stdout());
                Ok(Self::Stdout(Encoder::stream(format, &form.schema, out)?))
            }
            (_, Destination::Local(path)) => {
                let partial = if is_new { Partial::create_new(path)? } else { Partial::create(path)? };
                let written = Arc::<AtomicU64>::default();
                let out = BufWriter::with_capacity(1 << 20, partial.file()?);
                let out = Counting { out, written: Arc::clone(&written) };
                Ok(Self::File { encoder: Self::encoder(form, path, out)?, partial, written })
            }
            (_, Destination::Object { store, path, .. }) => {
                let encoded = Encoded::default();
                let encoder = Self::encoder(form, Path::new(path.as_ref()), encoded.clone())?;
                let sink = ObjectSink::new(Arc::clone(store), path.clone());
                Ok(Self::Object { encoder, encoded, sink, written: 0 })
            }
        }
    }

    fn vortex(form: &Form, sink: impl Sink + 'static) -> Outcome<Self> {
        let writer = FileWriter::try_new(sink, SchemaRef::clone(&form.schema), form.options.clone())?;
        Ok(Self::Vortex(Box::new(writer), form.order.clone()))
    }

    /// The encoder of a file with this path.
    fn encoder<W: Write + Send>(form: &Form, path: &Path, out: W) -> Outcome<Encoder<W>> {
        // The extension of streams, which some readers go by.
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("arrows")) {
            Encoder::stream(form.format, &form.schema, out)
        } else {
            Encoder::file(form.format, &form.schema, out)
        }
    }

    /// Writes a batch.
    async fn write(&mut self, batch: &RecordBatch) -> Outcome {
        match self {
            Self::Vortex(writer, order) => {
                if let Some(order) = order {
                    order.shorten_to(batch);
                }
                Ok(writer.write(batch).await?)
            }
            Self::File { encoder, .. } => encoder.write(batch),
            Self::Object { encoder, encoded, sink, written } => {
                encoder.write(batch)?;
                let bytes = encoded.take();
                if !bytes.is_empty() {
                    *written += bytes.len() as u64;
                    sink.write(bytes).await?;
                }
                Ok(())
            }
            Self::Stdout(encoder) => encoder.write(batch),
        }
    }

    /// Whether the file would have about this many bytes if it ended now.
    async fn reaches(&mut self, bytes: u64) -> Outcome<bool> {
        Ok(match self {
            Self::Vortex(writer, _) => writer.reaches(bytes).await?,
            Self::File { written, encoder, .. } => {
                written.load(Ordering::Relaxed) + encoder.pending_bytes() >= bytes
            }
            Self::Object { written, encoder, .. } => *written + encoder.pending_bytes() >= bytes,
            Self::Stdout(_) => false,
        })
    }

    /// Writes the end of the format; a file gets its final name.
    async fn finish(self) -> Outcome {
        match self {
            Self::Vortex(mut writer, order) => {
                if let Some(order) = order {
                    order.record(&mut writer)?;
                }
                writer.finish().await?;
                Ok(())
            }
            Self::File { encoder, partial, .. } => {
                encoder.finish()?;
                partial.complete()
            }
            Self::Object { encoder, encoded, mut sink, .. } => {
                encoder.finish()?;
                sink.write(encoded.take()).await?;
                Ok(sink.finish().await?)
            }
            Self::Stdout(encoder) => encoder.finish(),
        }
    }
}

/// A file that counts the bytes written to it.
struct Counting {
    out: BufWriter<File>,
    written: Arc<AtomicU64>,
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = self.out.write(bytes)?;
        self.written.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Bytes that an encoder has written, and that are yet to be uploaded.
#[derive(Clone, Default)]
struct Encoded(Arc<Mutex<Vec<u8>>>);

impl Encoded {
    fn take(&self) -> Bytes {
        std::mem::take(&mut *self.0.lock()).into()
    }
}

impl Write for Encoded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Standard output, which has no final name to withhold: whatever is written is visible.
#[derive(Debug)]
struct StandardOutput;

impl StandardOutput {
    fn failed(error: std::io::Error) -> vortex_core::Error {
        vortex_core::Error::External(Box::new(error))
    }
}

#[async_trait]
impl Sink for StandardOutput {
    fn name(&self) -> &str {
        "standard output"
    }

    async fn write(&mut self, bytes: Bytes) -> vortex_core::Result<()> {
        std::io::stdout().write_all(&bytes).map_err(Self::failed)
    }

    async fn finish(&mut self) -> vortex_core::Result<()> {
        std::io::stdout().flush().map_err(Self::failed)
    }

    async fn abort(&mut self) -> vortex_core::Result<()> {
        Ok(())
    }
}

/// The files that rows are written to: one, or parts of about the same size in a folder.
pub(super) struct Outputs {
    target: Target,
    form: Form,
    open: Option<(Destination, Output)>,
    /// Complete parts.
    done: Vec<Destination>,
}

/// The destination of the rows of one stream.
#[derive(Debug, Clone)]
pub(super) enum Target {
    One(Destination),
    Parts { folder: Destination, bytes: u64 },
}

impl Outputs {
    /// Starts writing. A file is created even if there are no rows.
    pub(super) async fn create(target: Target, form: Form) -> Outcome<Self> {
        let mut outputs = Self { target, form, open: None, done: Vec::new() };
        outputs.start().await?;
        Ok(outputs)
    }

    async fn start(&mut self) -> Outcome {
        let (place, is_new) = match &self.target {
            Target::One(place) => (place.clone(), false),
            Target::Parts { folder, .. } => {
                let extension = self.form.format.extension();
                let part = folder.join(Path::new(&format!("part-{:05}.{extension}", self.done.len())));
                if part.exists().await? {
                    return Err(Failure::error(format!("{part}: already exists")));
                }
                (part, true)
            }
        };
        let output = Output::create(&place, is_new, &self.form);
        let output = output.map_err(|failure| Failure::at(&place, failure))?;
        self.open = Some((place, output));
        Ok(())
    }

    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Outcome {
        if self.open.is_none() {
            self.start().await?;
        }
        let Some((place, output)) = &mut self.open else { return Ok(()) };
        output.write(batch).await.map_err(|failure| Failure::at(&place, failure))?;
        let Target::Parts { bytes, .. } = &self.target else { return Ok(()) };
        if output.reaches(*bytes).await.map_err(|failure| Failure::at(&place, failure))? {
            self.complete().await
        } else {
            Ok(())
        }
    }

    async fn complete(&mut self) -> Outcome {
        let Some((place, output)) = self.open.take() else { return Ok(()) };
        output.finish().await.map_err(|failure| Failure::at(&place, failure))?;
        self.done.push(place);
        Ok(())
    }

    /// Completes the last file.
    pub(super) async fn finish(mut self) -> Outcome {
        self.complete().await?;
        self.done.clear();
        Ok(())
    }
}

impl Drop for Outputs {
    /// Removes the complete parts of an output that was not finished.
    fn drop(&mut self) {
        self.done.iter().for_each(Destination::remove);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use datafusion::execution::object_store::ObjectStoreRegistry as _;
    use futures::TryStreamExt as _;
    use object_store::memory::InMemory;
    use object_store::path::Path as StorePath;
    use object_store::{ObjectStore, ObjectStoreExt as _};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use url::Url;

    use super::*;
    use crate::stores::Stores;

    fn batch(rows: i64) -> RecordBatch {
        let column = Arc::new(Int64Array::from_iter_values(0..rows));
        RecordBatch::try_from_iter([("a", column as _)]).unwrap()
    }

    fn form(format: Format, batch: &RecordBatch) -> Form {
        Form { format, schema: batch.schema(), options: WriteOptions::default(), order: None }
    }

    async fn bucket(name: &str) -> (Arc<InMemory>, Destination) {
        let (stores, memory) = (Stores::uncounted(), Arc::new(InMemory::new()));
        stores.register_store(&Url::parse("gs://bucket").unwrap(), Arc::clone(&memory) as _);
        let place = Destination::find(Path::new(&format!("gs://bucket/{name}")), &stores).await.unwrap();
        (memory, place)
    }

    async fn contents(store: &InMemory, name: &str) -> Bytes {
        store.get(&StorePath::parse(name).unwrap()).await.unwrap().bytes().await.unwrap()
    }

    #[tokio::test]
    async fn an_object_of_any_format_appears_when_it_is_complete() {
        let rows = batch(100);
        for format in [Format::Vortex, Format::Parquet, Format::Csv] {
            let (store, place) = bucket("a%20b/out").await;
            let mut outputs = Outputs::create(Target::One(place), form(format, &rows)).await.unwrap();
            outputs.write(&rows).await.unwrap();
            assert!(store.head(&"a b/out".into()).await.is_err());
            outputs.finish().await.unwrap();
            let bytes = contents(&store, "a b/out").await;
            match format {
                Format::Csv => assert!(bytes.starts_with(b"a\n0\n1\n") && bytes.ends_with(b"\n99\n")),
                Format::Parquet => {
                    let read = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
                    let read = read.collect::<Result<Vec<_>, _>>().unwrap();
                    assert_eq!(read, std::slice::from_ref(&rows));
                }
                _ => {
                    let read = vortex_core::VortexFile::open_bytes(bytes).unwrap();
                    assert_eq!(read.row_count(), 100);
                }
            }
        }
    }

    #[tokio::test]
    async fn parts_of_an_output_that_is_not_finished_are_removed_from_a_bucket() {
        let rows = batch(1000);
        let (store, folder) = bucket("out/").await;
        let list = || async { store.list(None).map_ok(|it| it.location.to_string()).try_collect().await };
        let target = Target::Parts { folder, bytes: 1000 };
        let mut outputs = Outputs::create(target.clone(), form(Format::Csv, &rows)).await.unwrap();
        for _ in 0..2 {
            outputs.write(&rows).await.unwrap();
        }
        let written: Vec<String> = list().await.unwrap();
        assert_eq!(written, ["out/part-00000.csv", "out/part-00001.csv"]);
        drop(outputs);
        while !list().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }

        // A part that is there already is neither replaced nor removed.
        store.put(&"out/part-00001.csv".into(), "mine".into()).await.unwrap();
        let mut outputs = Outputs::create(target, form(Format::Csv, &rows)).await.unwrap();
        outputs.write(&rows).await.unwrap();
        let Err(Failure::Error(message)) = outputs.write(&rows).await else { panic!("replaced a part") };
        assert_eq!(message, "gs://bucket/out/part-00001.csv: already exists");
        drop(outputs);
        while list().await.unwrap().len() > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(contents(&store, "out/part-00001.csv").await, "mine");
    }
}
