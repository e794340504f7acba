//! The output of conversions: one file, a series of parts, or standard output.
//!
//! ```text
//! rows ──> Output ──> .out.parquet.tmp-4711-0 ── rename ──> out.parquet
//!              └────> Vortex, by the writer of the core, which does the same
//! ```

use std::fs::File;
use std::io::{BufWriter, Stdout, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use vortex_core::io::{LocalSink, Sink};
use vortex_core::write::{FileWriter, WriteOptions};
use vortex_datafusion::RowOrder;

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

/// Where an output goes.
#[derive(Debug, Clone, Copy)]
enum Destination<'a> {
    Stdout,
    /// A file, which may replace another one.
    File(&'a Path),
    /// A file where there is none.
    NewFile(&'a Path),
}

/// One output.
enum Output {
    Vortex(Box<FileWriter>, Option<RowOrder>),
    File { encoder: Encoder<Counting>, partial: Partial, written: Arc<AtomicU64> },
    Stdout(Encoder<BufWriter<Stdout>>),
}

impl Output {
    /// Starts an output.
    fn create(destination: Destination<'_>, form: &Form) -> Outcome<Self> {
        match (form.format, destination) {
            (Format::Vortex, Destination::Stdout) => Self::vortex(form, StandardOutput),
            (Format::Vortex, Destination::File(path)) => Self::vortex(form, LocalSink::create(path)?),
            (Format::Vortex, Destination::NewFile(path)) => Self::vortex(form, LocalSink::create_new(path)?),
            (format, Destination::Stdout) => {
                let out = BufWriter::with_capacity(64 << 10, std::io::stdout());
                Ok(Self::Stdout(Encoder::stream(format, &form.schema, out)?))
            }
            (_, Destination::File(path)) => Self::file(form, path, Partial::create(path)?),
            (_, Destination::NewFile(path)) => Self::file(form, path, Partial::create_new(path)?),
        }
    }

    fn vortex(form: &Form, sink: impl Sink + 'static) -> Outcome<Self> {
        let writer = FileWriter::try_new(sink, SchemaRef::clone(&form.schema), form.options.clone())?;
        Ok(Self::Vortex(Box::new(writer), form.order.clone()))
    }

    fn file(form: &Form, path: &Path, partial: Partial) -> Outcome<Self> {
        let written = Arc::<AtomicU64>::default();
        let out = BufWriter::with_capacity(1 << 20, partial.file()?);
        let out = Counting { out, written: Arc::clone(&written) };
        // The extension of streams, which some readers go by.
        let encoder = match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("arrows"))
        {
            true => Encoder::stream(form.format, &form.schema, out)?,
            false => Encoder::file(form.format, &form.schema, out)?,
        };
        Ok(Self::File { encoder, partial, written })
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

/// The files that rows are written to: one path, or parts of about the same size in a folder.
pub(super) struct Outputs {
    target: Target,
    form: Form,
    open: Option<(PathBuf, Output)>,
    /// Complete parts.
    done: Vec<PathBuf>,
}

/// The destination of the rows of one stream.
#[derive(Debug, Clone)]
pub(super) enum Target {
    One(PathBuf),
    Parts { folder: PathBuf, bytes: u64 },
}

impl Outputs {
    /// Starts writing. A file is created even if there are no rows.
    pub(super) fn create(target: Target, form: Form) -> Outcome<Self> {
        let mut outputs = Self { target, form, open: None, done: Vec::new() };
        outputs.start()?;
        Ok(outputs)
    }

    fn start(&mut self) -> Outcome {
        let part;
        let (path, destination) = match &self.target {
            Target::One(path) if path == Path::new("-") => (path, Destination::Stdout),
            Target::One(path) => (path, Destination::File(path)),
            Target::Parts { folder, .. } => {
                let extension = self.form.format.extension();
                part = folder.join(format!("part-{:05}.{extension}", self.done.len()));
                if part.exists() {
                    return Err(Failure::error(format!("{}: already exists", part.display())));
                }
                (&part, Destination::NewFile(&part))
            }
        };
        let output = Output::create(destination, &self.form);
        let output = output.map_err(|failure| Failure::at(path.display(), failure))?;
        self.open = Some((path.clone(), output));
        Ok(())
    }

    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Outcome {
        if self.open.is_none() {
            self.start()?;
        }
        let Some((path, output)) = &mut self.open else { return Ok(()) };
        output.write(batch).await.map_err(|failure| Failure::at(path.display(), failure))?;
        let Target::Parts { bytes, .. } = &self.target else { return Ok(()) };
        match output.reaches(*bytes).await.map_err(|failure| Failure::at(path.display(), failure))? {
            true => self.complete().await,
            false => Ok(()),
        }
    }

    async fn complete(&mut self) -> Outcome {
        let Some((path, output)) = self.open.take() else { return Ok(()) };
        output.finish().await.map_err(|failure| Failure::at(path.display(), failure))?;
        self.done.push(path);
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
        for path in &self.done {
            let _ = std::fs::remove_file(path);
        }
    }
}
