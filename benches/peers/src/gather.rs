//! Fetching a hundred rows by position from the 105-column table, without SQL.
//!
//! Each engine is used through its own interface, both with the file opened for each gather, and with the
//! file and its metadata kept open. Ours reads the file that the reference wrote, the same mapped into memory, and its
//! own file. Lance takes part if there is a Python that has it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use datafusion::parquet::file::metadata::PageIndexPolicy;
use futures::TryStreamExt;
use reference_vortex::VortexSessionDefault;
use reference_vortex::buffer::Buffer;
use reference_vortex::file::{OpenOptionsSessionExt, VortexFile};
use reference_vortex::io::session::RuntimeSessionExt;
use reference_vortex::scan::strict_sorted_buffer::StrictSortedBuffer;
use reference_vortex::session::VortexSession;
use vortex_core::io::LocalFile;

use crate::compare::{Answer, Order};
use crate::data::{DataSet, Format, Level, Scale, generate, mix};
use crate::lance::Lance;
use crate::report;

/// What to gather, from which data, and how often.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) data: PathBuf,
    pub(crate) scale: Scale,
    /// Number of rows per gather.
    pub(crate) rows: usize,
    pub(crate) iterations: usize,
    /// A Python with the package `pylance`.
    pub(crate) lance: Option<PathBuf>,
}

/// A way to fetch rows.
enum Source {
    Parquet(PathBuf),
    ParquetOpen(PathBuf, ArrowReaderMetadata),
    Reference(PathBuf, VortexSession, SchemaRef),
    ReferenceOpen(VortexFile, SchemaRef),
    Ours(PathBuf, Access, SchemaRef),
    OursOpen(vortex_core::VortexFile, Access, SchemaRef),
    Lance { process: Arc<Mutex<Lance>>, is_kept: bool, schema: SchemaRef },
}

/// What ours reads, and how.
#[derive(Clone, Copy)]
enum Access {
    Reads,
    Mapped,
    Own,
}

impl Gather {
    /// Runs all sources in turn; returns a Markdown table.
    pub(crate) async fn run(&self) -> Result<String> {
        let formats = [Format::Parquet, Format::Reference, Format::Ours(Level::Default)];
        generate(&self.data, DataSet::Analytics, &self.scale, &formats).await?;
        let sources = self.sources().await?;
        let mut times = vec![Vec::new(); sources.len()];
        for round in 0..=self.iterations {
            let rows = self.sample(round as u64);
            let mut expected: Option<Answer> = None;
            for i in 0..sources.len() {
                let i = (i + round) % sources.len();
                let (batch, time) = timed(&sources[i], &rows).await?;
                let answer = Answer::new(&[batch], Order::Total)?;
                if answer.row_count() != rows.len() {
                    return Err(DataFusionError::Execution(format!("{} rows", answer.row_count())));
                }
                match expected.as_ref().map(|expected| answer.difference(expected)) {
                    Some(Some(difference)) => return Err(DataFusionError::Execution(difference)),
                    Some(None) => {}
                    None => expected = Some(answer),
                }
                // The first round is a warm-up.
                if round > 0 {
                    times[i].push(time);
                }
            }
        }
        let cells = times.iter().map(|times: &Vec<Duration>| vec![report::time_cell(times)]);
        let rows: Vec<_> = sources.iter().map(|source| source.name().to_owned()).zip(cells).collect();
        let title = format!("Gather {} random rows of 105 columns", self.rows);
        Ok(report::times(&title, &["ms, median (least)".to_owned()], &rows))
    }

    async fn sources(&self) -> Result<Vec<Source>> {
        let [table] = &DataSet::Analytics.tables(&self.scale)[..] else {
            return Err(DataFusionError::Internal("the set has one table".into()));
        };
        let path = |format| table.location(&self.data, DataSet::Analytics, &self.scale, format);
        let (parquet, vortex, own) =
            (path(Format::Parquet), path(Format::Reference), path(Format::Ours(Level::Default)));
        let metadata = parquet_metadata(&File::open(&parquet)?)?;
        let schema = Arc::clone(metadata.schema());
        let session = VortexSession::default().with_tokio();
        let open = session.open_options().with_layout_reader_cache();
        let file = open.open_path(&vortex).await.map_err(external)?;
        let ours = open_ours(&vortex, Access::Reads).await?;
        let mapped = open_ours(&vortex, Access::Mapped).await?;
        let own_file = open_ours(&own, Access::Own).await?;
        let mut sources = Vec::new();
        if let Some(python) = &self.lance {
            let process = Lance::start(python, &parquet, &parquet.with_extension("lance"))?;
            let process = Arc::new(Mutex::new(process));
            let lance = |is_kept| Source::Lance {
                process: Arc::clone(&process),
                is_kept,
                schema: Arc::clone(&schema),
            };
            sources.extend([false, true].map(lance));
        }
        sources.extend([
            Source::Parquet(parquet.clone()),
            Source::Reference(vortex.clone(), session, Arc::clone(&schema)),
            Source::Ours(vortex.clone(), Access::Reads, Arc::clone(&schema)),
            Source::Ours(vortex, Access::Mapped, Arc::clone(&schema)),
            Source::Ours(own, Access::Own, Arc::clone(&schema)),
            Source::ParquetOpen(parquet, metadata),
            Source::ReferenceOpen(file, Arc::clone(&schema)),
            Source::OursOpen(ours, Access::Reads, Arc::clone(&schema)),
            Source::OursOpen(mapped, Access::Mapped, Arc::clone(&schema)),
            Source::OursOpen(own_file, Access::Own, schema),
        ]);
        Ok(sources)
    }

    /// Distinct rows in ascending order; different ones in each round.
    fn sample(&self, round: u64) -> Vec<u64> {
        let hashes = (0..).map(|i| mix(round << 32 | i) % self.scale.events);
        let mut rows: Vec<u64> = Vec::new();
        for row in hashes {
            if rows.len() == self.rows.min(self.scale.events as usize) {
                break;
            }
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows.sort_unstable();
        rows
    }
}

async fn timed(source: &Source, rows: &[u64]) -> Result<(RecordBatch, Duration)> {
    if let Source::Lance { process, is_kept, schema } = source {
        return process.lock().unwrap_or_else(PoisonError::into_inner).take(*is_kept, rows, schema);
    }
    let start = Instant::now();
    let batch = source.fetch(rows).await?;
    Ok((batch, start.elapsed()))
}

impl Source {
    fn name(&self) -> &'static str {
        match self {
            Self::Parquet(_) => "parquet, opened each time",
            Self::ParquetOpen(..) => "parquet, kept open",
            Self::Reference(..) => "reference, opened each time",
            Self::ReferenceOpen(..) => "reference, kept open",
            Self::Lance { is_kept: false, .. } => "lance, opened each time",
            Self::Lance { .. } => "lance, kept open",
            Self::Ours(_, Access::Reads, _) => "ours, opened each time",
            Self::OursOpen(_, Access::Reads, _) => "ours, kept open",
            Self::Ours(_, Access::Mapped, _) => "ours, mapped each time",
            Self::OursOpen(_, Access::Mapped, _) => "ours, kept mapped",
            Self::Ours(_, Access::Own, _) => "ours on its own file, opened each time",
            Self::OursOpen(_, Access::Own, _) => "ours on its own file, kept open",
        }
    }

    /// Fetches rows; Lance does so in its process.
    async fn fetch(&self, rows: &[u64]) -> Result<RecordBatch> {
        match self {
            Self::Parquet(path) => {
                let file = File::open(path)?;
                let metadata = parquet_metadata(&file)?;
                fetch_parquet(file, metadata, rows)
            }
            Self::ParquetOpen(path, metadata) => fetch_parquet(File::open(path)?, metadata.clone(), rows),
            Self::Reference(path, session, schema) => {
                let file = session.open_options().open_path(path).await.map_err(external)?;
                fetch_reference(&file, schema, rows).await
            }
            Self::ReferenceOpen(file, schema) => fetch_reference(file, schema, rows).await,
            Self::Ours(path, access, schema) => {
                fetch_ours(&open_ours(path, *access).await?, schema, rows).await
            }
            Self::Lance { .. } => Err(DataFusionError::Internal("Lance measures by itself".into())),
            Self::OursOpen(file, _, schema) => fetch_ours(file, schema, rows).await,
        }
    }
}

fn parquet_metadata(file: &File) -> Result<ArrowReaderMetadata> {
    Ok(ArrowReaderMetadata::load(
        file,
        ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required),
    )?)
}

fn fetch_parquet(file: File, metadata: ArrowReaderMetadata, rows: &[u64]) -> Result<RecordBatch> {
    let total = metadata.metadata().file_metadata().num_rows() as usize;
    let ranges = rows.iter().map(|&row| row as usize..row as usize + 1);
    let selection = RowSelection::from_consecutive_ranges(ranges, total);
    let schema = Arc::clone(metadata.schema());
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
    let reader = builder.with_row_selection(selection).with_batch_size(rows.len()).build()?;
    let batches = reader.collect::<Result<Vec<_>, _>>()?;
    Ok(concat_batches(&schema, &batches)?)
}

async fn fetch_reference(file: &VortexFile, schema: &SchemaRef, rows: &[u64]) -> Result<RecordBatch> {
    let indices: Buffer<u64> = rows.iter().copied().collect();
    let indices = StrictSortedBuffer::try_new(indices).map_err(external)?;
    let scan = file.scan().map_err(external)?.with_row_indices(indices);
    let stream = scan.into_record_batch_stream(Arc::clone(schema)).map_err(external)?;
    let batches: Vec<RecordBatch> = stream.try_collect().await?;
    Ok(concat_batches(schema, &batches)?)
}

async fn open_ours(path: &Path, access: Access) -> Result<vortex_core::VortexFile> {
    let file = match access {
        Access::Reads | Access::Own => LocalFile::open(path),
        #[expect(unsafe_code, reason = "a mapped file must not change")]
        // SAFETY: nothing changes the file while it is measured.
        Access::Mapped => unsafe { LocalFile::map(path) },
    };
    let file = file.map_err(external)?;
    vortex_core::VortexFile::open(Arc::new(file)).await.map_err(external)
}

async fn fetch_ours(file: &vortex_core::VortexFile, schema: &SchemaRef, rows: &[u64]) -> Result<RecordBatch> {
    let scan = file.scan().with_schema(Arc::clone(schema)).with_row_indices(rows);
    let batches: Vec<RecordBatch> =
        scan.into_stream().map_err(external)?.try_collect().await.map_err(external)?;
    Ok(concat_batches(schema, &batches)?)
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
