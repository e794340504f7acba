//! Aggregates of the rows of a scan: counts, extremes and sums, computed without building batches.

mod extremes;
mod known;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use futures::TryStreamExt as _;
use parking_lot::Mutex;

pub use self::extremes::Extremes;
pub(super) use self::extremes::leading_splits;
pub(super) use self::known::Known;
use super::column::Column;
use super::decode::live_range;
use super::halves::{MAX_PARTS, in_halves};
use super::plan::{Plan, Split};
use super::zone_maps::ZoneMaps;
use super::{BatchStream, ScanBuilder, ScanMetrics};
use crate::array::{Aggregate, Measures};
use crate::dtype::arrow::data_type;
use crate::error::ResultExt as _;
use crate::expr::Expr;
use crate::layout::SegmentSet;
use crate::limits::Work;
use crate::mask::Mask;
use crate::{Error, Result};

/// Aggregates of the rows of a scan.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Aggregates {
    /// Number of rows, if these are counted.
    pub row_count: u64,
    /// One per projected column.
    pub columns: Vec<Aggregate>,
}

/// What [`aggregate_only`](ScanBuilder::aggregate_only) computes: the less, the more can be answered by statistics.
#[derive(Debug)]
pub struct WantedAggregates {
    /// Whether rows are counted, also those that change nothing else.
    pub row_count: bool,
    /// One per projected column.
    pub columns: Vec<WantedAggregate>,
}

/// What is wanted of a column.
#[derive(Debug)]
pub struct WantedAggregate {
    /// What is computed. The rest is `None`, or a lower number.
    pub measures: Measures,
    /// The extremes found so far, also by scans of other files that share it: this scan finds none that lie between
    /// them, so that the results must be merged.
    pub extremes: Arc<Extremes>,
}

impl WantedAggregates {
    /// What is wanted of each projected column, and the number of rows if they are counted.
    pub fn new<W: Into<WantedAggregate>>(row_count: bool, columns: impl IntoIterator<Item = W>) -> Self {
        Self { row_count, columns: columns.into_iter().map(Into::into).collect() }
    }
}

impl From<Measures> for WantedAggregate {
    /// The measures of one file alone.
    fn from(measures: Measures) -> Self {
        Self { measures, extremes: Arc::default() }
    }
}

/// Aggregates that splits add to, in any order.
#[derive(Debug)]
pub(super) struct Totals {
    wanted: WantedAggregates,
    found: Mutex<Aggregates>,
    metrics: Arc<ScanMetrics>,
}

impl Totals {
    fn new(plan: &Plan, wanted: WantedAggregates) -> Self {
        let columns = plan.projection.iter().map(|column| Aggregate::empty(&column.dtype)).collect();
        let found = Mutex::new(Aggregates { row_count: 0, columns });
        Self { wanted, found, metrics: Arc::clone(&plan.metrics) }
    }

    /// The projected columns, what is wanted of each, and which extremes have been found so far.
    pub(super) fn wanted<'a>(
        &'a self,
        plan: &'a Plan,
    ) -> impl Iterator<Item = (&'a Column, Measures, &'a Extremes)> {
        let columns = plan.projection.iter().zip(&self.wanted.columns);
        columns.map(|(column, wanted)| (column, wanted.measures, wanted.extremes.as_ref()))
    }

    /// Leaves out the rows of a split that change nothing. If statistics state all that is wanted of it, that is added,
    /// and no row is left. Returns the number of rows left out. If the filter is `decided`, all live rows pass it.
    pub(super) fn answer(&self, plan: &Plan, zone_maps: &ZoneMaps, split: &mut Split, decided: bool) -> u64 {
        if !plan.prune {
            return 0;
        }
        let all_pass = decided && split.live.is_all();
        // The zones of a file with a single split are not read: its footer states as much.
        let is_file = split.rows == (0..plan.file.row_count());
        let (known, mut live) = if is_file {
            (Known::of_file(plan, self, all_pass), split.live.clone())
        } else {
            Known::of_rows(plan, self, zone_maps, &split.rows, all_pass)
        };
        let is_complete = known.is_complete();
        split.known = known;
        if is_complete && all_pass {
            self.add_rows(split.live.len() as u64, &split.known);
            live = Mask::none(split.live.len());
        } else if self.wanted.row_count {
            return 0;
        } else if is_complete {
            live = Mask::none(split.live.len());
        }
        let before = split.live.true_count();
        split.live = split.live.and(&live);
        (before - split.live.true_count()) as u64
    }

    /// Adds the live rows of a split.
    pub(super) fn add_split(&self, plan: &Plan, split: &Split, have: &SegmentSet<'_>) -> Result<()> {
        let (rows, live) = (live_range(split), split.live.slice(split.live.span()));
        in_halves(rows, &live, MAX_PARTS, |rows, live| {
            // Of the others, the aggregates are known.
            let columns = plan.projection.iter().enumerate().filter(|(at, _)| !split.known.has(*at));
            let found = columns.map(|(at, column)| {
                let _work = Work::begin();
                Ok((at, column.read_live(rows, live, have)?.aggregate().at(|| column.place())?))
            });
            self.merge(live.true_count() as u64, found.collect::<Result<Vec<_>>>()?);
            Ok(())
        })?;
        self.add_known(&split.known);
        Ok(())
    }

    /// Adds the columns of a split whose aggregates are known. Its rows are counted where the others are added.
    fn add_known(&self, known: &Known) {
        let columns = (0..self.wanted.columns.len()).filter_map(|at| Some((at, known.get(at)?.clone())));
        self.merge(0, columns.collect());
    }

    /// Adds this many rows, whose aggregates are all known.
    pub(super) fn add_rows(&self, rows: u64, known: &Known) {
        self.merge(rows, Vec::new());
        self.add_known(known);
    }

    /// Adds decoded rows.
    pub(super) fn add_batch(&self, projection: &[Column], batch: &RecordBatch) -> Result<()> {
        let columns = projection.iter().zip(batch.columns()).enumerate();
        let found = columns.map(|(at, (of, column))| Ok((at, Aggregate::of(column, &of.dtype)?)));
        self.merge(batch.num_rows() as u64, found.collect::<Result<_>>()?);
        Ok(())
    }

    /// Adds rows, and what was found of columns, each with its position.
    fn merge(&self, rows: u64, found: Vec<(usize, Aggregate)>) {
        self.metrics.rows_produced.add(rows);
        let mut totals = self.found.lock();
        totals.row_count += rows;
        for (at, found) in found {
            self.wanted.columns[at].extremes.add(&found);
            totals.columns[at] = totals.columns[at].clone().merge(found);
        }
    }

    /// What was asked for.
    fn result(&self) -> Aggregates {
        let found = self.found.lock();
        let columns = found.columns.iter().zip(&self.wanted.columns);
        let columns = columns.map(|(found, wanted)| found.clone().only(wanted.measures)).collect();
        Aggregates { row_count: found.row_count, columns }
    }
}

impl ScanBuilder {
    /// Counts rows, and computes the null counts, extremes and sums of the projected columns: from statistics of the
    /// file or of its zones where these contain all that is wanted of a column and all rows that they describe pass
    /// the filter, otherwise from the rows, on encoded data where possible. Without
    /// [pruning](Self::with_pruning), all rows are read. The order of rows does not matter, so
    /// [`with_ordered`](Self::with_ordered) and [`with_best_first`](Self::with_best_first) are ignored; so are
    /// [`with_schema`](Self::with_schema) and [`with_row_numbers`](Self::with_row_numbers), since values have the types
    /// of the file.
    ///
    /// ```
    /// # use vortex_core::VortexFile;
    /// # async fn example() -> vortex_core::Result<()> {
    /// use vortex_core::expr::column;
    ///
    /// let file = VortexFile::open_path("lineitem.vortex").await?;
    /// let by_air = file.scan().with_filter(column("l_shipmode").eq("AIR"));
    /// let found = by_air.with_projection(["l_linenumber", "l_comment"]).aggregate().await?;
    /// println!("{} rows, the line numbers add up to {:?}", found.row_count, found.columns[0].sum);
    /// if let Some(first) = &found.columns[1].min {
    ///     println!("the first comment is {first}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If columns and filter do not fit the file, if the scan has a limit or a
    /// [dynamic filter](Expr::Dynamic), since the totals would depend on which rows these leave, or if reading
    /// fails.
    pub async fn aggregate(self) -> Result<Aggregates> {
        self.total(None).await
    }

    /// As [`aggregate`](Self::aggregate), but computes only what is wanted.
    ///
    /// If only extremes are wanted, the zones that may hold them are read first, and those that cannot change them are
    /// not read.
    ///
    /// ```
    /// # use vortex_core::VortexFile;
    /// # async fn example(file: VortexFile) -> vortex_core::Result<()> {
    /// use vortex_core::scan::{Measures, WantedAggregates};
    ///
    /// let wanted = WantedAggregates::new(false, [Measures::MAX]);
    /// let found = file.scan().with_projection(["l_shipdate"]).aggregate_only(wanted).await?;
    /// println!("the last one is of {:?}", found.columns[0].max);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`aggregate`](Self::aggregate), or if there are more or fewer columns than are projected.
    pub async fn aggregate_only(self, wanted: WantedAggregates) -> Result<Aggregates> {
        self.total(Some(wanted)).await
    }

    /// Computes what is wanted; all of each column by default.
    async fn total(self, wanted: Option<WantedAggregates>) -> Result<Aggregates> {
        if self.limit.is_some() {
            return Err(Error::invalid("aggregate() does not support a row limit"));
        }
        if self.filter.as_ref().is_some_and(Expr::has_dynamic_filter) {
            return Err(Error::invalid("aggregate() does not support dynamic filters"));
        }
        let mut plan =
            Self { schema: None, best_first: None, row_numbers: None, ordered: false, ..self }.plan()?;
        let fields = plan.projection.iter().map(|column| {
            Ok(Field::new(column.path.to_string(), data_type(&column.dtype)?, column.dtype.is_nullable()))
        });
        plan.schema = Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?));
        let column_count = plan.projection.len();
        let wanted = wanted.unwrap_or_else(|| WantedAggregates::new(true, vec![Measures::ALL; column_count]));
        if wanted.columns.len() != column_count {
            let of = wanted.columns.len();
            return Err(Error::invalid(format!(
                "aggregates of {of} columns are wanted, but {column_count} are projected"
            )));
        }
        let counts_rows = wanted.row_count;
        let totals = Arc::new(Totals::new(&plan, wanted));
        plan.totals = Some(Arc::clone(&totals));
        if plan.prune {
            let reads_all_rows = plan.reads_all_rows();
            let known = Known::of_file(&plan, &totals, reads_all_rows);
            if known.is_complete() && (reads_all_rows || !counts_rows) {
                plan.metrics.rows_answered.add(plan.rows.row_count());
                if reads_all_rows {
                    totals.add_rows(plan.file.row_count(), &known);
                }
                return Ok(totals.result());
            }
        }
        let rest: Vec<RecordBatch> = BatchStream::start(plan)?.try_collect().await?;
        debug_assert!(rest.is_empty(), "rows are counted, not handed out");
        Ok(totals.result())
    }
}
