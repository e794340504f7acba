//! Reading rows of a file: which columns, which rows, in what pieces.
//!
//! A [`ScanBuilder`] describes a scan; it ends in an asynchronous [`BatchStream`] or in a
//! blocking [`BatchReader`]. The rows are cut into splits. For each split the scan asks for the
//! segments of the filter's columns, evaluates the filter on encoded data, asks for what is
//! still needed of the projected columns, and decodes the live rows. Fetching runs ahead of
//! decoding as far as a budget of bytes allows.

mod admission;
mod aggregate;
mod at_work;
mod best_first;
mod column;
mod cursor;
mod filter;
mod gather;
mod metrics;
mod plan;
mod reader;
mod recent;
mod stream;
mod task;
mod zone_maps;

use std::ops::Range;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;

pub use aggregate::Aggregates;
pub use metrics::ScanMetrics;
pub use reader::BatchReader;
pub use stream::BatchStream;

use crate::Result;
use crate::expr::{Expr, FieldPath};
use crate::file::VortexFile;
use crate::io::{MemoryPool, Scheduler};

/// Rows per batch, if nothing else is said.
const DEFAULT_BATCH_SIZE: usize = 8192;

/// How rows asked for by position are fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowAccess {
    /// As seems cheaper: by themselves where they lie far apart and small reads cost little.
    #[default]
    Cheapest,
    /// Each row by itself, from only the bytes that it needs.
    Single,
    /// With the segments they lie in, as a whole.
    Segments,
}

/// Describes a scan of a file.
///
/// ```
/// # use std::sync::Arc;
/// # use futures::TryStreamExt as _;
/// # use vortex_core::{VortexFile, io::LocalFile};
/// # async fn example() -> vortex_core::Result<()> {
/// let file = VortexFile::open(Arc::new(LocalFile::open("lineitem.vortex")?)).await?;
/// let batches = file
///     .scan()
///     .with_projection(["l_orderkey", "l_comment"])
///     .with_limit(100)
///     .into_stream()?
///     .try_collect::<Vec<_>>()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ScanBuilder {
    file: VortexFile,
    projection: Option<Vec<FieldPath>>,
    schema: Option<SchemaRef>,
    filter: Option<Expr>,
    rows: Option<Range<u64>>,
    indices: Option<Arc<[u64]>>,
    excluded: Option<Arc<[u64]>>,
    row_access: RowAccess,
    row_numbers: Option<Arc<str>>,
    limit: Option<u64>,
    batch_size: usize,
    ordered: bool,
    best_first: Option<(FieldPath, SortOptions)>,
    prune: bool,
    scheduler: Option<Arc<Scheduler>>,
    memory_pool: Option<Arc<dyn MemoryPool>>,
    metrics: Arc<ScanMetrics>,
}

impl ScanBuilder {
    pub(crate) fn new(file: VortexFile) -> Self {
        Self {
            file,
            projection: None,
            schema: None,
            filter: None,
            rows: None,
            indices: None,
            excluded: None,
            row_access: RowAccess::default(),
            row_numbers: None,
            limit: None,
            batch_size: DEFAULT_BATCH_SIZE,
            ordered: true,
            best_first: None,
            prune: true,
            scheduler: None,
            memory_pool: None,
            metrics: Arc::default(),
        }
    }

    /// The columns to read, in this order; nested fields by their path. All by default.
    #[must_use]
    pub fn with_projection<P: Into<FieldPath>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.projection = Some(paths.into_iter().map(Into::into).collect());
        self
    }

    /// The schema of the batches: one field per projected column, none for row numbers. Types may be any that
    /// [present](crate::dtype::arrow::presents) the stored type; they are decoded directly.
    /// Types that the format lacks may be asked for where they are what is stored: durations
    /// where integers are, see [`decode_as`](crate::array::decode_as).
    #[must_use]
    pub fn with_schema(mut self, schema: SchemaRef) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Only rows for which this is true. Parts joined by AND may run in any order.
    #[must_use]
    pub fn with_filter(mut self, filter: Expr) -> Self {
        self.filter = Some(match self.filter {
            Some(before) => Expr::all([before, filter]),
            None => filter,
        });
        self
    }

    /// Only rows of this range, counted from the start of the file.
    #[must_use]
    pub fn with_row_range(mut self, rows: Range<u64>) -> Self {
        self.rows = Some(rows);
        self
    }

    /// Only these rows, counted from the start of the file; rising, none twice.
    #[must_use]
    pub fn with_row_indices(mut self, indices: impl Into<Arc<[u64]>>) -> Self {
        self.indices = Some(indices.into());
        self
    }

    /// None of these rows, counted from the start of the file; rising, none twice. For rows that are
    /// recorded as deleted.
    #[must_use]
    pub fn with_excluded_rows(mut self, indices: impl Into<Arc<[u64]>>) -> Self {
        self.excluded = Some(indices.into());
        self
    }

    /// How rows asked for by position are fetched. Changes what is read, never a result.
    #[must_use]
    pub fn with_row_access(mut self, access: RowAccess) -> Self {
        self.row_access = access;
        self
    }

    /// Adds a last column of this name: the number of each row, `UInt64`, counted from the start of the
    /// file whatever filters and ranges leave out.
    #[must_use]
    pub fn with_row_numbers(mut self, name: impl Into<Arc<str>>) -> Self {
        self.row_numbers = Some(name.into());
        self
    }

    /// At most this many rows, after filtering.
    #[must_use]
    pub fn with_limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Most rows per batch.
    #[must_use]
    pub fn with_batch_size(mut self, rows: usize) -> Self {
        self.batch_size = rows.max(1);
        self
    }

    /// Whether batches come in the order of the file (the default), or as they are ready.
    #[must_use]
    pub fn with_ordered(mut self, ordered: bool) -> Self {
        self.ordered = ordered;
        self
    }

    /// Reads those rows first that, by statistics, come first in the order of this column. Rows
    /// come in no order then, but whoever looks for the first of them finds them early, and
    /// with a [dynamic filter](Expr::Dynamic) the rest is not read.
    #[must_use]
    pub fn with_best_first(mut self, path: impl Into<FieldPath>, options: SortOptions) -> Self {
        self.best_first = Some((path.into(), options));
        self
    }

    /// Whether rows are skipped by statistics (the default).
    #[must_use]
    pub fn with_pruning(mut self, prune: bool) -> Self {
        self.prune = prune;
        self
    }

    /// Who else is charged for the memory of the scan. While that pool refuses, the scan goes on
    /// with one split at a time.
    #[must_use]
    pub fn with_memory_pool(mut self, pool: Arc<dyn MemoryPool>) -> Self {
        self.memory_pool = Some(pool);
        self
    }

    /// Who issues the reads; the one of the process by default.
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: Arc<Scheduler>) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    /// Where to count what the scan does.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<ScanMetrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// The counters of the scan.
    pub fn metrics(&self) -> &Arc<ScanMetrics> {
        &self.metrics
    }

    /// The row ranges that the scan will work on one by one; several together where there are
    /// very many. Cutting a file at these is free of double work.
    ///
    /// # Errors
    /// If a column does not exist or its layout is broken.
    pub fn splits(&self) -> Result<Vec<Range<u64>>> {
        Ok(plan::Plan::new(self)?.split_rows())
    }

    /// Starts the scan. Runs on the current tokio runtime; dropping the stream stops it.
    ///
    /// # Errors
    /// If columns, schema and filter do not fit the file.
    pub fn into_stream(self) -> Result<BatchStream> {
        BatchStream::start(plan::Plan::new(&self)?)
    }

    /// Starts the scan on threads of its own, for callers without a runtime.
    ///
    /// # Errors
    /// If columns, schema and filter do not fit the file.
    pub fn into_reader(self) -> Result<BatchReader> {
        BatchReader::start(self)
    }
}
