//! Reading rows of a file: selecting columns and rows, and cutting them into batches.
//!
//! A [`ScanBuilder`] describes a scan, which is then run as an asynchronous [`BatchStream`] or a blocking
//! [`BatchReader`]. The rows are cut into splits. For each split, the scan requests the segments of the
//! filter's columns, evaluates the filter on encoded data, requests what is still needed of the projected
//! columns, and decodes the live rows. Fetching runs ahead of decoding as far as a budget of bytes
//! allows.

mod admission;
mod aggregate;
mod best_first;
mod bloom_filters;
mod column;
mod conjunct;
mod cursor;
mod decode;
mod fetch;
mod filter;
mod gather;
mod halves;
mod plan;
mod queue;
mod reader;
mod schema;
mod split;
mod stream;
mod tasks;
mod zone_maps;

use std::ops::Range;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;

pub use crate::array::aggregate::{Aggregate, Measures};
pub use aggregate::{Aggregates, Extremes, WantedAggregate, WantedAggregates};
pub use best_first::BestRows;
pub use reader::BatchReader;
pub use stream::BatchStream;

use self::column::Selected;
use self::plan::Plan;
use crate::expr::{Expr, FieldPath};
use crate::io::{MemoryPool, Scheduler};
pub use crate::metrics::{Counter, ScanMetrics};
pub use crate::row_ranges::RowRanges;
use crate::{Result, VortexFile};

/// Default number of rows per batch.
const DEFAULT_BATCH_SIZE: usize = 8192;

/// How rows requested by position are fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowAccess {
    /// In the way estimated to be cheaper. On local storage, this is individually where rows lie far apart. On remote
    /// storage, it is where segments would take longer to transfer, at the pace measured, than the few rounds of
    /// small reads: values of kilobytes, or a slow line.
    #[default]
    Cheapest,
    /// Each row individually, reading only the bytes that it needs. Each value takes a few reads, one after the other.
    /// On remote storage, those that lie close to each other are one request, as for segments. On local storage, a
    /// column has as many in flight as the [profile](crate::io::StorageProfile::concurrency) allows.
    Single,
    /// As part of the segments that contain them, which are read as a whole.
    Segments,
}

/// Describes a scan of a file.
///
/// ```
/// # use futures::TryStreamExt as _;
/// # use vortex_core::VortexFile;
/// # async fn example() -> vortex_core::Result<()> {
/// let file = VortexFile::open_path("lineitem.vortex").await?;
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
    selected: Selected,
    schema: Option<SchemaRef>,
    filter: Option<Expr>,
    rows: Option<RowRanges>,
    indices: Option<Arc<[u64]>>,
    excluded: Option<Arc<[u64]>>,
    row_access: RowAccess,
    row_numbers: Option<Arc<str>>,
    limit: Option<u64>,
    batch_size: usize,
    ordered: bool,
    late: bool,
    best_first: Option<(FieldPath, SortOptions)>,
    best_rows: Option<Arc<BestRows>>,
    prune: bool,
    scheduler: Option<Arc<Scheduler>>,
    memory_pool: Option<Arc<dyn MemoryPool>>,
    metrics: Arc<ScanMetrics>,
}

impl VortexFile {
    /// Starts building a scan.
    pub fn scan(&self) -> ScanBuilder {
        ScanBuilder::new(self.clone())
    }
}

impl ScanBuilder {
    fn new(file: VortexFile) -> Self {
        Self {
            file,
            selected: Selected::All,
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
            late: false,
            best_first: None,
            best_rows: None,
            prune: true,
            scheduler: None,
            memory_pool: None,
            metrics: Arc::default(),
        }
    }

    /// Sets the columns to read, in this order; nested fields by their path. By default, all columns are
    /// read.
    ///
    /// ```
    /// # use vortex_core::VortexFile;
    /// # async fn example(file: VortexFile) -> vortex_core::Result<()> {
    /// use vortex_core::expr::FieldPath;
    ///
    /// let names = file.scan().with_projection(["name", "email"]).into_stream()?;
    ///
    /// // The second column of the batches is called `city`. No other field of `address` is read.
    /// let paths = [FieldPath::from("name"), FieldPath::from(["address", "city"])];
    /// let cities = file.scan().with_projection(paths).into_stream()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_projection<P: Into<FieldPath>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.selected = Selected::Paths(paths.into_iter().map(Into::into).collect());
        self
    }

    /// Reads only field `at` of the root, although others may have the same name.
    pub(crate) fn with_root_field(mut self, at: usize) -> Self {
        self.selected = Selected::RootField(at);
        self
    }

    /// Sets the schema of the batches, with one field per projected column and none for row numbers. Its
    /// types may be any that [present](crate::dtype::arrow::presents) the stored types; columns are decoded
    /// directly to them. Types that the format lacks may be requested for the types they are stored as, such
    /// as durations for integers; see [`decode_as`](crate::array::decode_as). By default, the fields of
    /// [`VortexFile::schema`].
    #[must_use]
    pub fn with_schema(mut self, schema: SchemaRef) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Selects only rows for which this is true, and each filter that was set before. Conjuncts may be evaluated in any
    /// order.
    #[must_use]
    pub fn with_filter(mut self, filter: Expr) -> Self {
        self.filter = Some(match self.filter {
            Some(before) => Expr::all([before, filter]),
            None => filter,
        });
        self
    }

    /// Selects only these rows: a range, counted from the start of the file, or several; replaces what was set before.
    /// Of ranges, positions and excluded rows, each restricts what the others select.
    #[must_use]
    pub fn with_row_ranges(mut self, rows: impl Into<RowRanges>) -> Self {
        self.rows = Some(rows.into());
        self
    }

    /// Selects only these rows, counted from the start of the file, in strictly ascending order; replaces what was set
    /// before.
    #[must_use]
    pub fn with_row_indices(mut self, indices: impl Into<Arc<[u64]>>) -> Self {
        self.indices = Some(indices.into());
        self
    }

    /// Excludes these rows, counted from the start of the file, in strictly ascending order; for rows that
    /// are recorded as deleted. Replaces what was set before.
    #[must_use]
    pub fn with_excluded_rows(mut self, indices: impl Into<Arc<[u64]>>) -> Self {
        self.excluded = Some(indices.into());
        self
    }

    /// Sets how rows requested by position are fetched; [`RowAccess::Cheapest`] by default. Affects what is
    /// read, but never the result.
    #[must_use]
    pub fn with_row_access(mut self, access: RowAccess) -> Self {
        self.row_access = access;
        self
    }

    /// Adds a last column of this name: the number of each row, `UInt64`, counted from the start of the file,
    /// regardless of filters and ranges.
    #[must_use]
    pub fn with_row_numbers(mut self, name: impl Into<Arc<str>>) -> Self {
        self.row_numbers = Some(name.into());
        self
    }

    /// Returns at most this many rows, after filtering; all by default.
    #[must_use]
    pub fn with_limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Sets the maximum number of rows per batch; 8,192 by default.
    #[must_use]
    pub fn with_batch_size(mut self, rows: usize) -> Self {
        self.batch_size = rows.max(1);
        self
    }

    /// Sets whether batches are returned in the order of the file (the default), or as they become ready.
    #[must_use]
    pub fn with_ordered(mut self, ordered: bool) -> Self {
        self.ordered = ordered;
        self
    }

    /// Sets whether rows are decoded where they are taken from the stream, a few batches at a time, instead of ahead by
    /// tasks. The consumer then finds them in the cache of its processor, but nothing is decoded in the background: for
    /// callers that take the rows of as many scans at once as there are processors. Off by default. Splits of which few
    /// rows are wanted, or which take about as long to decode in parts as at once, are decoded ahead in any case.
    #[must_use]
    pub fn with_late_decoding(mut self, late: bool) -> Self {
        self.late = late;
        self
    }

    /// First reads the rows that, according to statistics, come first in the order of this column. Rows
    /// are then returned unordered, but a caller that looks for the first of them finds them early, and
    /// with a [dynamic filter](Expr::Dynamic) the rest is not read.
    #[must_use]
    pub fn with_best_first(mut self, path: impl Into<FieldPath>, options: SortOptions) -> Self {
        self.best_first = Some((path.into(), options));
        self
    }

    /// Sets how many of the best rows are wanted, and shares the best ones with the scans of other files
    /// that are read one after the other; by default, it is assumed that 10 are wanted of this file. Has an
    /// effect only if [`with_best_first`](Self::with_best_first) is set, too, and a dynamic filter.
    #[must_use]
    pub fn with_best_rows(mut self, rows: Arc<BestRows>) -> Self {
        self.best_rows = Some(rows);
        self
    }

    /// Sets whether rows are skipped because of statistics (the default).
    #[must_use]
    pub fn with_pruning(mut self, prune: bool) -> Self {
        self.prune = prune;
        self
    }

    /// Also charges the memory of the scan to this pool: segments of up to about 32 MiB; on remote storage 128 MiB, or
    /// 256 MiB if the [best rows](Self::with_best_first) come first. While the pool refuses, the scan continues with
    /// one split at a time. By default, only the scan's own limit and that of the [scheduler](Self::with_scheduler)
    /// apply; a scan leaves as much of the latter free as it takes, unless the best rows come first. A segment that
    /// other scans need, too, is charged once, to the pool of the scan that asked for it first, until the last of them
    /// has read it.
    #[must_use]
    pub fn with_memory_pool(mut self, pool: Arc<dyn MemoryPool>) -> Self {
        self.memory_pool = Some(pool);
        self
    }

    /// Sets the scheduler that issues the reads, except those of single rows of local files; by default, the
    /// [scheduler of the process](Scheduler::shared).
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: Arc<Scheduler>) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    /// Sets the counters that the scan updates.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<ScanMetrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// The counters of the scan.
    pub fn metrics(&self) -> &Arc<ScanMetrics> {
        &self.metrics
    }

    /// The row ranges that the scan processes one by one; if there are very many, several are joined into
    /// one. Partition a scan at these boundaries: within a range, work would be done twice. Neighbouring ranges often
    /// share chunks of columns, which are fetched once by scans that need them at about the same time.
    ///
    /// # Errors
    /// As [`into_stream`](Self::into_stream).
    pub fn splits(&self) -> Result<Vec<Range<u64>>> {
        Ok(self.plan()?.split_rows())
    }

    /// Prepares the scan. It starts with the first poll of the stream, in tasks of the tokio runtime that polls it, on
    /// which it has to be polled further. Polled outside of one, the stream returns an error; use
    /// [`into_reader`](Self::into_reader) there. Dropping the stream stops it.
    ///
    /// # Errors
    /// If the scan does not fit the file: columns, schema or filter; rows beyond its end; indices or
    /// excluded rows not in ascending order; or if a [dynamic filter](Expr::Dynamic) is below an OR or a
    /// NOT.
    pub fn into_stream(self) -> Result<BatchStream> {
        BatchStream::start(self.plan()?)
    }

    fn plan(&self) -> Result<Plan> {
        Plan::new(self).map_err(|error| error.in_file(self.file.source().name()))
    }

    /// Starts the scan on a thread of its own, for callers without a runtime. This thread filters and decodes, so that
    /// a scan uses one core; only reads of local files that have to wait for the disk take other threads. To decode
    /// on all cores, poll [`into_stream`](Self::into_stream) on a runtime of several threads, or read
    /// [row ranges](Self::splits) with several readers.
    ///
    /// # Errors
    /// As [`into_stream`](Self::into_stream), or if no thread can be started.
    pub fn into_reader(self) -> Result<BatchReader> {
        BatchReader::start(self)
    }
}
