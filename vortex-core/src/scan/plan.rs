//! The plan of a scan, as plain data.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use super::aggregate::{Known, Totals};
use super::best_first::{BestFirst, BestRows};
use super::column::Column;
use super::conjunct;
use super::decode::live_range;
use super::{RowAccess, ScanBuilder, ScanMetrics, schema};
use crate::array::Measures;
use crate::budget::Budget;
use crate::expr::{Expr, FieldPath};
use crate::file::Footer;
use crate::io::Scheduler;
use crate::mask::Mask;
use crate::row_ranges::RowRanges;
use crate::segments::SegmentTable;
use crate::{Error, Result, VortexFile};

/// Target for the decoded bytes of a split.
const SPLIT_BYTES: u64 = 8 << 20;
/// Maximum number of rows of a split: enough to keep the cost per split small, and no more than the
/// chunks of common writers have, so that decoded rows need not be concatenated.
const MAX_SPLIT_ROWS: u64 = 64 << 10;
/// Splits are cut at multiples of this, the usual length of zones.
const MIN_SPLIT_ROWS: u64 = 8 << 10;
/// Decoded bytes above which splits are cut shorter than zones.
const MAX_SPLIT_BYTES: u64 = 32 << 20;
/// Maximum number of ranges in the list of splits of a scan of adjacent rows, or one more.
pub(super) const MAX_LISTED_SPLITS: u64 = 1 << 16;

/// Bytes of segments that one scan may hold or have in flight. On remote storage, much is requested
/// ahead, so that few large reads suffice.
const MEMORY_LOCAL: u64 = 32 << 20;
const MEMORY_REMOTE: u64 = 128 << 20;
/// The best rows may be anywhere in the file, and are fetched all at once.
const MEMORY_BEST: u64 = 256 << 20;

/// A scan, resolved against its file.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) file: VortexFile,
    /// Whether the file is on remote storage, as far as its source knows when the scan is planned.
    remote: bool,
    pub(super) schema: SchemaRef,
    pub(super) projection: Vec<Column>,
    /// The conjuncts of the filter.
    pub(super) conjuncts: Vec<Expr>,
    /// Columns of the filter, by path.
    pub(super) filter_columns: HashMap<FieldPath, Column>,
    pub(super) rows: RowRanges,
    /// The individual rows that the caller requested, all of them among `rows`.
    indices: Option<RowIndices>,
    /// Rows that are left out; of those asked for by position, they are gone already.
    excluded: Option<RowIndices>,
    pub(super) row_access: RowAccess,
    /// Whether batches end in a column of row numbers.
    pub(super) numbers_rows: bool,
    /// Rows per split; splits end at multiples of this.
    pub(super) split_step: u64,
    /// Approximate decoded size of the rows of a split.
    pub(super) split_bytes: u64,
    pub(super) limit: Option<u64>,
    pub(super) batch_size: usize,
    pub(super) ordered: bool,
    /// Whether the caller wants rows to be decoded when it takes them.
    late: bool,
    /// The order in which the best rows are read first.
    pub(super) best_first: Option<BestFirst>,
    /// Whether statistics may skip rows.
    pub(super) prune: bool,
    pub(super) scheduler: Arc<Scheduler>,
    /// The memory budget of this scan.
    pub(super) memory: Arc<Budget>,
    pub(super) metrics: Arc<ScanMetrics>,
    /// Aggregates that live rows are added to, instead of being returned.
    pub(super) totals: Option<Arc<Totals>>,
}

/// The rows processed by one task.
#[derive(Debug, Clone)]
pub(super) struct Split {
    pub(super) rows: Range<u64>,
    /// Rows requested and not ruled out, one bit per row of `rows`.
    pub(super) live: Mask,
    /// Columns that need not be read to aggregate the rows.
    pub(super) known: Known,
}

impl Split {
    /// Leaves out the rows before the first and after the last live one: whatever is read of them would be in vain.
    pub(super) fn narrow(&mut self) {
        let span = self.live.span();
        if span.len() < self.live.len() && !span.is_empty() {
            self.rows = live_range(self);
            self.live = self.live.slice(span);
        }
    }
}

impl Plan {
    /// Whether the caller requested individual rows.
    pub(super) fn picks_rows(&self) -> bool {
        self.indices.is_some()
    }

    /// Whether all rows of the file are wanted.
    pub(super) fn reads_all_rows(&self) -> bool {
        let all = 0..self.file.row_count();
        self.conjuncts.is_empty()
            && self.indices.is_none()
            && self.excluded.is_none()
            && self.rows == all.into()
    }

    /// Whether statistics of zones may save reading some of several splits.
    pub(super) fn has_several_splits(&self) -> bool {
        self.file.row_count() > self.split_step && !self.picks_rows()
    }

    /// The columns of the file that are aggregated, and what is wanted of each.
    pub(super) fn wanted_columns(&self) -> impl Iterator<Item = (&Column, Measures)> {
        let wanted = self.totals.iter().flat_map(|totals| totals.wanted(self));
        let is_of_file = |column: &Column| column.position_in_file(self.file.footer()).is_some();
        wanted.filter_map(move |(column, measures, _)| is_of_file(column).then_some((column, measures)))
    }

    /// Whether batches may be much smaller than splits.
    pub(super) fn is_selective(&self) -> bool {
        let has_gaps = || self.rows.iter().count() as u64 > self.split_count();
        !self.conjuncts.is_empty() || self.indices.is_some() || self.excluded.is_some() || has_gaps()
    }

    /// Whether rows are decoded when they are taken. Of the best rows, few are; row numbers are not stored.
    pub(super) fn decodes_late(&self) -> bool {
        let has_columns = !self.projection.is_empty() && !self.numbers_rows;
        self.late && has_columns && self.best_first.is_none() && self.totals.is_none()
    }

    /// Whether the file is on remote storage.
    pub(super) fn is_remote(&self) -> bool {
        self.remote
    }

    /// As many of the rows of a split that pass its filter as the limit allows of all splits. A dynamic filter may
    /// still reject some of them, and others are wanted then.
    pub(super) fn within_limit(&self, live: Mask) -> Mask {
        let may_reject = |conjunct: &Expr| matches!(conjunct, Expr::Dynamic(_));
        match self.limit {
            Some(limit) if self.best_first.is_none() && !self.conjuncts.iter().any(may_reject) => {
                live.limit(usize::try_from(limit).unwrap_or(usize::MAX))
            }
            _ => live,
        }
    }

    /// Whether the wanted rows may be found long before the end.
    pub(super) fn stops_early(&self) -> bool {
        self.best_first.is_some() || (self.limit.is_some() && !self.conjuncts.is_empty())
    }

    /// Whether projected columns are requested only of as many rows as the limit allows, in the order in which their
    /// splits are filtered: on remote storage, many splits are filtered at once.
    pub(super) fn requests_within_limit(&self) -> bool {
        self.remote && self.stops_early() && self.best_first.is_none()
    }

    /// The segments of the file.
    pub(super) fn table(&self) -> &SegmentTable {
        &self.file.footer().table
    }

    /// A batch of `len` rows, whose columns are those of the schema.
    pub(super) fn batch(&self, columns: Vec<ArrayRef>, len: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(len));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// A column that the filter reads.
    ///
    /// # Errors
    /// If a dynamic filter did not declare the column.
    pub(super) fn filter_column(&self, path: &FieldPath) -> Result<&Column> {
        let undeclared = || Error::invalid(format!("a filter reads `{path}`, which it has not declared"));
        self.filter_columns.get(path).ok_or_else(undeclared)
    }

    /// The individual rows that the caller requested, unless there is a filter to evaluate as well.
    pub(super) fn single_rows(&self) -> Option<&[u64]> {
        self.indices.as_deref().filter(|_| self.conjuncts.is_empty())
    }

    pub(super) fn new(scan: &ScanBuilder) -> Result<Self> {
        let footer = scan.file.footer();
        let projection = scan.selected.columns(footer)?;
        let schema = schema::of_batches(scan, &projection)?;
        let (conjuncts, filter_columns) = conjunct::resolve(scan)?;
        let rows = row_ranges(scan)?;
        let (indices, excluded) = row_indices(scan, &rows)?;
        let best_first = best_first(scan, &conjuncts)?;
        let scheduler = scan.scheduler.clone().unwrap_or_else(Scheduler::shared);
        let remote = scan.file.source().profile().remote;
        let (budget, pool) = (scheduler.budget(), scan.memory_pool.clone());
        let memory = match (remote, scan.best_first.is_some()) {
            (false, _) => budget.share(MEMORY_LOCAL, pool),
            (true, false) => budget.share(MEMORY_REMOTE, pool),
            // Who wants the best rows takes all of them at once, so that this scan does not stand still.
            (true, true) => budget.part(MEMORY_BEST, pool),
        };
        let (split_step, split_bytes) = split_step(projection.iter().chain(filter_columns.values()), footer);
        Ok(Self {
            file: scan.file.clone(),
            remote,
            schema,
            split_step,
            split_bytes,
            projection,
            conjuncts,
            filter_columns,
            rows,
            indices,
            excluded,
            row_access: scan.row_access,
            numbers_rows: scan.row_numbers.is_some(),
            limit: scan.limit,
            batch_size: scan.batch_size,
            // Best first does not preserve the order of rows.
            ordered: scan.ordered && best_first.is_none(),
            late: scan.late,
            best_first,
            prune: scan.prune,
            scheduler,
            memory,
            metrics: Arc::clone(&scan.metrics),
            totals: None,
        })
    }

    /// The row ranges to process one by one. Neighbouring splits are joined if there would be more than about
    /// [`MAX_LISTED_SPLITS`]: a few bytes of a file can claim any number of rows.
    pub(super) fn split_rows(&self) -> Vec<Range<u64>> {
        let count = self.rows.count_steps(&self.rows.bounds(), self.split_step);
        let step = self.split_step.saturating_mul(count.div_ceil(MAX_LISTED_SPLITS).max(1));
        let next = |row: u64| self.rows.step_from(row, step);
        std::iter::successors(next(0), |rows| next(rows.end)).collect()
    }

    /// The first split at or after `row` with requested rows. Splits are made one at a time, since a file
    /// may claim more of them than fit into memory.
    pub(super) fn split_from(&self, row: u64) -> Option<Split> {
        let start = self.split_start(self.requested_from(row)?).max(row);
        let rows = self.rows.step_from(start, self.split_step)?;
        let len = (rows.end - rows.start) as usize;
        let mask = |indices: &[u64]| {
            Mask::from_indices(len, indices.iter().map(|index| (index - rows.start) as usize))
        };
        let live = match within(&self.indices, &rows) {
            Some(indices) => mask(indices),
            None => self.rows.mask(&rows),
        };
        let live = match within(&self.excluded, &rows) {
            None | Some([]) => live,
            Some(excluded) => live.without(&mask(excluded)),
        };
        Some(Split { rows, live, known: Known::default() })
    }

    /// The first requested row at or after `row`.
    pub(super) fn requested_from(&self, row: u64) -> Option<u64> {
        match &self.indices {
            Some(indices) => indices.get(indices.partition_point(|index| *index < row)).copied(),
            None => self.rows.at_or_after(row).map(|range| range.start.max(row)),
        }
    }

    /// The start of the split that holds `row`; at most `row`, if the scan leaves it out.
    pub(super) fn split_start(&self, row: u64) -> u64 {
        let start = row / self.split_step * self.split_step;
        self.rows.at_or_after(start).map_or(start, |range| range.start.max(start)).min(row)
    }

    /// The number of splits with requested rows.
    pub(super) fn split_count(&self) -> u64 {
        self.count_splits(&self.rows.bounds())
    }

    /// The number of splits with requested rows in a range that starts and ends at split boundaries.
    pub(super) fn count_splits(&self, rows: &Range<u64>) -> u64 {
        match within(&self.indices, rows) {
            Some(indices) => {
                indices.chunk_by(|a, b| a / self.split_step == b / self.split_step).count() as u64
            }
            None => self.rows.count_steps(rows, self.split_step),
        }
    }

    /// The number of requested rows.
    pub(super) fn count_rows(&self, rows: &Range<u64>) -> u64 {
        match within(&self.indices, rows) {
            Some(indices) => indices.len() as u64,
            None => self.rows.within(rows).map(|part| part.end - part.start).sum(),
        }
    }
}

fn row_ranges(scan: &ScanBuilder) -> Result<RowRanges> {
    let row_count = scan.file.row_count();
    let Some(rows) = &scan.rows else { return Ok((0..row_count).into()) };
    match rows.iter().find(|range| range.end > row_count) {
        None => Ok(rows.clone()),
        Some(Range { start, end }) => {
            Err(Error::invalid(format!("rows {start}..{end} are not in 0..{row_count}")))
        }
    }
}

/// Ascending row numbers.
type RowIndices = Arc<[u64]>;

/// The rows that are read and the rows that are left out, if the scan names them individually.
fn row_indices(scan: &ScanBuilder, rows: &RowRanges) -> Result<(Option<RowIndices>, Option<RowIndices>)> {
    let row_count = scan.file.row_count();
    for indices in scan.indices.iter().chain(&scan.excluded) {
        if let Some(pair) = indices.windows(2).find(|pair| pair[0] >= pair[1]) {
            let (row, next) = (pair[0], pair[1]);
            return Err(Error::invalid(format!(
                "row {next} follows row {row}: row indices must be in strictly ascending order"
            )));
        }
        if let Some(last) = indices.last().filter(|last| **last >= row_count) {
            return Err(Error::invalid(format!("row {last} of a file of {row_count} rows")));
        }
    }
    let Some(indices) = &scan.indices else { return Ok((None, scan.excluded.clone())) };
    if scan.excluded.is_none() && *rows == (0..row_count).into() {
        return Ok((Some(Arc::clone(indices)), None));
    }
    let excluded = scan.excluded.as_deref().unwrap_or_default();
    let kept = rows.iter().flat_map(|rows| within(&scan.indices, &rows).unwrap_or_default());
    let kept = kept.copied().filter(|index| excluded.binary_search(index).is_err());
    Ok((Some(kept.collect()), None))
}

fn best_first(scan: &ScanBuilder, conjuncts: &[Expr]) -> Result<Option<BestFirst>> {
    let Some((path, options)) = &scan.best_first else { return Ok(None) };
    let is_dynamic = conjuncts.iter().any(|conjunct| matches!(conjunct, Expr::Dynamic(_)));
    let found = if is_dynamic {
        scan.best_rows.clone().unwrap_or_default()
    } else {
        // No row is better left for later.
        Arc::new(BestRows::new(0))
    };
    Ok(BestFirst::new(Column::resolve(scan.file.footer(), path)?, *options, found))
}

/// Those of some indices, if there are any, that lie within rows.
fn within<'a>(indices: &'a Option<RowIndices>, rows: &Range<u64>) -> Option<&'a [u64]> {
    let indices = indices.as_ref()?;
    let first = indices.partition_point(|index| *index < rows.start);
    let last = indices.partition_point(|index| *index < rows.end).max(first);
    Some(&indices[first..last])
}

/// Rows per split, and their decoded bytes. Splits are multiples of the zone length, so that they end
/// where chunks usually do; they are shorter than a zone only if rows take kilobytes.
fn split_step<'a>(columns: impl Iterator<Item = &'a Column>, footer: &Footer) -> (u64, u64) {
    let row_bytes = columns.fold(0u64, |sum, column| sum.saturating_add(column.row_bytes(footer))).max(1);
    let target = (SPLIT_BYTES / row_bytes).clamp(MIN_SPLIT_ROWS, MAX_SPLIT_ROWS);
    // A power of two times the zone length divides the chunk lengths of common writers.
    let mut step = MIN_SPLIT_ROWS << (target / MIN_SPLIT_ROWS).ilog2();
    while step > 1 && step.saturating_mul(row_bytes) > MAX_SPLIT_BYTES {
        step /= 2;
    }
    (step, step.saturating_mul(row_bytes))
}
