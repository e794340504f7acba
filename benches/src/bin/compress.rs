//! How fast columns are written and read, and how small they become, column by column.
//!
//! ```sh
//! cargo run --release -p vortex-benches --bin compress -- default lineitem.parquet [lineitem.vortex] [l_tax ...]
//! ```
//!
//! The first argument is a level, or several separated by commas; a level may name the oldest release
//! that must read the file, as in `compact@0.36`. All columns of the Parquet file are measured, or only
//! those named. An argument that ends in `/` is a folder in which the file of each column is kept. Sizes
//! are compared with those in the Parquet file, and in a Vortex file of another writer.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::StreamExt as _;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use vortex_core::io::{MemoryFile, MemorySink};
use vortex_core::layout::LayoutRef;
use vortex_core::write::{FileWriter, WriteOptions};
use vortex_core::{Level, Release, VortexFile};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "compress LEVEL[@RELEASE][,...] FILE.parquet [OTHER.vortex] [FOLDER/] [COLUMN]...";
/// Rows per batch.
const BATCH_ROWS: usize = 8192;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parquet = arguments.iter().find(|argument| argument.ends_with(".parquet")).ok_or(USAGE)?;
    let other = arguments.iter().find(|argument| argument.ends_with(".vortex"));
    let kept = arguments.iter().find(|argument| argument.ends_with('/')).map(String::as_str);
    let is_file = |argument: &&String| [".parquet", ".vortex", "/"].iter().any(|end| argument.ends_with(end));
    let names: BTreeSet<&String> = arguments.iter().skip(1).filter(|argument| !is_file(argument)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let other = match other {
            Some(path) => column_sizes(&VortexFile::open_path(path).await?)?,
            None => BTreeMap::new(),
        };
        for level in arguments[0].split(',') {
            compare(level, parquet, &other, &names, kept).await?;
        }
        Ok(())
    })
}

/// Prints a table of all columns at one level.
async fn compare(
    level: &str,
    parquet: &str,
    other: &BTreeMap<String, u64>,
    names: &BTreeSet<&String>,
    kept: Option<&str>,
) -> Result<()> {
    let whole = level;
    let (level, reader) = level.split_once('@').unwrap_or((level, "newest"));
    let kind: Level = level.parse()?;
    println!(
        "\n{:28} {:>9} {:>7} {:>7} {:>10} {:>10} {:>10} {:>6}  encodings",
        level, "raw KB", "w MB/s", "r MB/s", "bytes", "parquet", "other", "ratio"
    );
    let metadata = ParquetRecordBatchReaderBuilder::try_new(File::open(parquet)?)?;
    let mut total = [0u64; 4];
    let mut times = [Duration::ZERO; 2];
    for (at, field) in metadata.schema().fields().iter().enumerate() {
        if !names.is_empty() && !names.contains(field.name()) {
            continue;
        }
        let groups = metadata.metadata().row_groups().iter();
        let in_parquet: i64 = groups.map(|group| group.column(at).compressed_size()).sum();
        let batches = read_column(parquet, at)?;
        let column = measure(&batches, kind, reader.parse()?).await?;
        if let Some(folder) = kept {
            std::fs::write(format!("{folder}{whole}.{}.vortex", field.name()), &column.file)?;
        }
        let sizes = [
            column.raw,
            column.encoded,
            u64::try_from(in_parquet)?,
            other.get(field.name()).copied().unwrap_or(0),
        ];
        total.iter_mut().zip(sizes).for_each(|(total, size)| *total += size);
        times[0] += column.write;
        times[1] += column.read;
        print_row(field.name(), sizes, [column.write, column.read], &column.encodings);
    }
    print_row("all", total, times, "");
    Ok(())
}

fn print_row(name: &str, sizes: [u64; 4], times: [Duration; 2], encodings: &str) {
    let [raw, encoded, parquet, other] = sizes;
    let speed = |time: Duration| raw as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{name:28} {:9} {:7.0} {:7.0} {encoded:10} {parquet:10} {other:10} {:6.2}  {encodings}",
        raw / 1000,
        speed(times[0]),
        speed(times[1]),
        encoded as f64 / parquet.max(1) as f64,
    );
}

fn read_column(path: &str, at: usize) -> Result<Vec<RecordBatch>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.with_batch_size(BATCH_ROWS);
    let mask = ProjectionMask::roots(reader.parquet_schema(), [at]);
    Ok(reader.with_projection(mask).build()?.collect::<std::result::Result<_, _>>()?)
}

/// The CPU time of this thread if the system provides it, otherwise wall-clock time.
struct Clock(Option<Duration>, Instant);

impl Clock {
    fn start() -> Self {
        Self(working(), Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.zip(working()).map_or_else(|| self.1.elapsed(), |(start, now)| now - start)
    }
}

fn working() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

struct Measured {
    raw: u64,
    encoded: u64,
    write: Duration,
    read: Duration,
    encodings: String,
    file: Bytes,
}

async fn measure(batches: &[RecordBatch], level: Level, reader: Release) -> Result<Measured> {
    let options = WriteOptions::new().with_level(level).with_min_reader(reader);
    let sink = MemorySink::new();
    let start = Clock::start();
    let mut writer = FileWriter::try_new(sink.clone(), batches[0].schema(), options)?;
    for batch in batches {
        writer.write(batch).await?;
    }
    let summary = writer.finish().await?;
    let write = start.elapsed();

    let bytes = sink.bytes().ok_or("nothing was written")?;
    let file = VortexFile::open(Arc::new(MemoryFile::new(bytes.clone()))).await?;
    let start = Clock::start();
    let mut stream = file.scan().into_stream()?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows() as u64;
    }
    let read = start.elapsed();
    assert_eq!(rows, summary.row_count());
    let column = &summary.columns()[0];
    let (raw, encoded) = (column.raw_bytes, column.encoded_bytes);
    Ok(Measured { raw, encoded, write, read, encodings: encodings(&file).await?, file: bytes })
}

/// The encodings of the chunks, with their numbers.
async fn encodings(file: &VortexFile) -> Result<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut leaves = Vec::new();
    for (_, column) in file.footer().layout().children()? {
        flat(&column, &mut leaves)?;
    }
    for leaf in leaves {
        for segment in leaf.segments() {
            let mut text = String::new();
            let mut last = 0;
            for (depth, id) in file.array_encodings(segment).await? {
                let name = id.rsplit('.').next().unwrap_or_default();
                match depth {
                    0 => {}
                    depth if depth > last => text.push('('),
                    depth => {
                        text.extend(std::iter::repeat_n(')', last - depth));
                        text.push(' ');
                    }
                }
                text.push_str(name);
                last = depth;
            }
            text.extend(std::iter::repeat_n(')', last));
            *counts.entry(text).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(counts.iter().take(3).map(|(text, count)| format!("{count}x {text}")).collect::<Vec<_>>().join(", "))
}

/// Collects the descendants that hold values.
fn flat(layout: &LayoutRef, out: &mut Vec<LayoutRef>) -> Result<()> {
    let children = layout.children()?;
    if children.is_empty() {
        out.push(Arc::clone(layout));
    }
    for (_, child) in children {
        if layout.zones().is_none_or(|zones| !Arc::ptr_eq(zones.table(), &child)) {
            flat(&child, out)?;
        }
    }
    Ok(())
}

/// Total bytes of the segments of each column.
fn column_sizes(file: &VortexFile) -> Result<BTreeMap<String, u64>> {
    let mut sizes = BTreeMap::new();
    for (name, column) in file.footer().layout().children()? {
        let segments = column.all_segments()?;
        let lengths = segments.into_iter().filter_map(|id| file.footer().segment(id).ok());
        sizes.insert(name, lengths.map(|segment| u64::from(segment.length)).sum());
    }
    Ok(sizes)
}
