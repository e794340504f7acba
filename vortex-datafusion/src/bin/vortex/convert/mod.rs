//! `vortex convert`: a Vortex file in another format.
//!
//! ```text
//! scan ── batches ──> Sink ──> out.parquet.partial-4711 ── rename ──> out.parquet
//! ```
//!
//! Batches are written as they are decoded, so memory does not grow with the file. The output has a
//! temporary name until it is complete: whoever sees the final name sees the whole file.

mod partial;
mod sink;

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use futures::TryStreamExt as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vortex_core::VortexFile;

use crate::failure::{Failure, Outcome};
use crate::stores::Stores;
use partial::Partial;
use sink::Sink;

/// Arguments of `vortex convert`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The Vortex file: a path, or a URL (s3://, gs://, az://, https://).
    input: String,
    /// The file to write; `-` is standard output.
    output: PathBuf,
    /// The format to write; the extension of the output says it by default.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<Format>,
    /// Only these columns, in this order.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// At most this many rows.
    #[arg(long, value_name = "ROWS")]
    limit: Option<u64>,
}

/// A format to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Arrow IPC: a file, or a stream on standard output.
    Arrow,
    /// Parquet, compressed with zstd.
    Parquet,
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    Json,
    /// Vortex; not written yet.
    Vortex,
}

impl Format {
    fn of(arguments: &Arguments) -> Outcome<Self> {
        let extension = arguments.output.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let format = match (arguments.to, extension.as_str()) {
            (Some(format), _) => format,
            (None, "arrow" | "arrows" | "ipc" | "feather") => Self::Arrow,
            (None, "parquet" | "pq") => Self::Parquet,
            (None, "csv") => Self::Csv,
            (None, "json" | "jsonl" | "ndjson") => Self::Json,
            (None, "vortex" | "vtx") => Self::Vortex,
            (None, _) => {
                let output = arguments.output.display();
                return Err(Failure::Usage(format!(
                    "{output}: which format? Say it with --to, or by the extension"
                )));
            }
        };
        match format {
            Self::Vortex => {
                Err(Failure::error("writing Vortex files is not supported yet; only reading them is"))
            }
            format => Ok(format),
        }
    }
}

/// Converts the file, unless interrupted.
pub(crate) async fn run(arguments: Arguments) -> Outcome {
    let format = Format::of(&arguments)?;
    if arguments.output.to_string_lossy().contains("://") {
        let output = arguments.output.display();
        return Err(Failure::Usage(format!("{output}: output goes to a local file or to `-`")));
    }
    tokio::select! {
        outcome = convert(&arguments, format) => outcome,
        // Dropping the conversion removes what was written so far.
        _ = tokio::signal::ctrl_c() => Err(Failure::error("interrupted; nothing was written")),
    }
}

async fn convert(arguments: &Arguments, format: Format) -> Outcome {
    let place = &arguments.input;
    let stores = Stores::new(Arc::new(InstrumentedObjectStoreRegistry::new()));
    let source = stores.open(place).await?;
    let file = VortexFile::open(source).await.map_err(|error| Failure::at(place, error))?;
    if arguments.output == Path::new("-") {
        let out = std::io::BufWriter::with_capacity(64 << 10, std::io::stdout());
        return copy(arguments, &file, format, out, true).await;
    }
    if same_file(place, &arguments.output) {
        return Err(Failure::Usage(format!("{place}: is the input and the output")));
    }
    let partial = Partial::create(&arguments.output)?;
    let out = std::io::BufWriter::with_capacity(1 << 20, partial.file()?);
    copy(arguments, &file, format, out, false).await?;
    partial.complete()
}

/// Copies the rows of a file into a writer.
async fn copy<W: Write + Send>(
    arguments: &Arguments,
    file: &VortexFile,
    format: Format,
    out: W,
    as_stream: bool,
) -> Outcome {
    let in_input = |error: vortex_core::Error| Failure::at(&arguments.input, error);
    let in_output = |failure: Failure| Failure::at(arguments.output.display(), failure);
    let mut scan = file.scan();
    if let Some(names) = &arguments.columns {
        scan = scan.with_projection(names.iter().map(String::as_str));
    }
    if let Some(rows) = arguments.limit {
        scan = scan.with_limit(rows);
    }
    let mut batches = scan.into_stream().map_err(in_input)?;
    let mut sink = Sink::open(format, batches.schema(), out, as_stream).map_err(in_output)?;
    let progress = progress(file.row_count().min(arguments.limit.unwrap_or(u64::MAX)));
    while let Some(batch) = batches.try_next().await.map_err(in_input)? {
        sink.write(&batch).map_err(in_output)?;
        progress.inc(batch.num_rows() as u64);
    }
    progress.finish_and_clear();
    sink.finish().map_err(in_output)
}

/// A bar over the rows, where someone can see it.
fn progress(rows: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(rows), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} rows, {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn same_file(input: &str, output: &Path) -> bool {
    match (Path::new(input).canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) => input == output,
        _ => false,
    }
}
