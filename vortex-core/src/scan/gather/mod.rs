//! Fetching few scattered rows, by reading only the bytes they need instead of whole segments.
//!
//! ```text
//! columns  |-- task --|-- task --|-- task --|    each: try, fetch what was missing, try again
//! ```
//!
//! Attempting to read rows of a layout reveals which bytes are missing: first the trees of arrays, then
//! offsets and codes, then the values these refer to. All columns of a task are attempted before anything
//! is fetched. Thus there are only as many rounds as a single column needs, and each round makes many
//! small reads at once. Of a file in memory, all bytes are available from the start. On local storage, small
//! reads are cheap. On remote storage, each round takes as long as an object store takes to answer, and a few
//! rows pay where segments are long or the line is slow.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array as _, RecordBatch, UInt64Array};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};

use super::RowAccess;
use super::decode::decode_column;
use super::fetch::{byte_len, fetch_ranges, lease, missing_bytes, wanted};
use super::plan::Plan;
use super::tasks::spawn;
use crate::array::pieces::Piece;
use crate::array::row_bytes::copied_bytes;
use crate::array::{ArrayRef, concat};
use crate::budget::Reservation;
use crate::io::{Urgency, runtime};
use crate::layout::{PieceSet, SegmentSet};
use crate::limits::Work;
use crate::segments::SegmentId;
use crate::{Error, Result};

/// Bytes of whole segments that take as long to read and decode as one individually fetched value.
const BYTES_PER_VALUE: u64 = 8 << 10;

/// If rows are requested by position, and are fewer than one in so many of the splits that hold them, they are fetched
/// individually even from short segments: to find them in splits takes time, too. Of the table of the benchmarks, one
/// row in 130 takes as long in either way for up to five columns, and half as long for all 105; one in 2,000 takes half
/// and a seventh. It is also faster if the operating system has to read from a disk.
const MIN_ROWS_PER_WANTED: u64 = 128;

/// Rounds that rows of remote storage take: for trees, for offsets or codes, and for values.
const ROUNDS: u64 = 3;

/// Reads of one value in all of these.
const READS_PER_VALUE: u64 = 2;

/// So many reads from remote storage cost as much as one more round. It is a price: they take no time if they are in
/// flight at once, but stores charge for them and limit them.
const READS_PER_ROUND: f64 = 16.0;

/// Maximum number of rows fetched together.
const ROWS_AT_ONCE: usize = 1024;

/// Tasks per worker of the runtime: while one waits for its reads, others can work.
const TASKS_PER_WORKER: usize = 16;

/// Bytes that a task may hold before it splits its work into halves; and the same while memory is refused,
/// which is more than the values of a thousand rows usually take: halves fetch everything again.
const MAX_HELD: u64 = 16 << 20;
const MAX_HELD_ANYWAY: u64 = 512 << 10;

/// Maximum number of attempts; a column that needs more is nested deeper than the limits allow.
const MAX_ROUNDS: usize = 4096;

/// So many rows that follow one that is fetched cost as much as a row elsewhere: their bytes are next to its own.
const ADJACENT_ROWS: u64 = 16;

/// How many rows at places of their own cost as much as rows in so many runs of adjacent ones.
pub(super) fn scattered(rows: usize, runs: usize) -> u64 {
    runs as u64 + (rows.saturating_sub(runs) as u64).div_ceil(ADJACENT_ROWS)
}

/// Whether fetching as much as [`scattered`] rows individually beats reading whole segments of this many bytes.
pub(super) fn pays(plan: &Plan, rows: u64, segment_bytes: u64) -> bool {
    let values = rows.saturating_mul(plan.projection.len() as u64);
    match plan.row_access {
        _ if values == 0 => false,
        RowAccess::Single => true,
        RowAccess::Segments => false,
        RowAccess::Cheapest if plan.is_remote() => pays_remotely(plan, values, segment_bytes),
        RowAccess::Cheapest => values.saturating_mul(BYTES_PER_VALUE) < segment_bytes,
    }
}

/// As [`pays`], of remote storage. Costs are in rounds, each of which takes the time to the first byte of a read.
fn pays_remotely(plan: &Plan, values: u64, segment_bytes: u64) -> bool {
    let source = plan.file.source();
    let profile = source.profile();
    let slots = profile.slots() as u64;
    let price = |reads: u64| reads as f64 / READS_PER_ROUND;

    let pieces = values.saturating_mul(READS_PER_VALUE);
    let rounds = ROUNDS.max(pieces.div_ceil(slots));
    let singly = rounds as f64 + price(pieces);

    let reads = segment_bytes.div_ceil(profile.max_read.max(1));
    let streams = reads.clamp(1, slots);
    let per_round = plan.scheduler.bytes_per_latency(source.as_ref()).max(1).saturating_mul(streams);
    let whole = 1.0 + segment_bytes as f64 / per_round as f64 + price(reads);

    singly < whole
}

/// The rows that a scan fetches individually, in the order of the file, in parts; empty if it reads
/// splits instead.
pub(super) fn parts(plan: &Plan, limit: u64) -> Result<VecDeque<Arc<[u64]>>> {
    let rows = plan.single_rows().unwrap_or_default();
    let rows = &rows[..rows.len().min(usize::try_from(limit).unwrap_or(usize::MAX))];
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(VecDeque::new()) };
    if !fetches_singly(plan, rows, &(*first..last + 1))? {
        return Ok(VecDeque::new());
    }
    Ok(rows.chunks(rows_at_once(plan)).map(Arc::from).collect())
}

/// Whether rows in a range are fetched individually.
fn fetches_singly(plan: &Plan, rows: &[u64], range: &Range<u64>) -> Result<bool> {
    let count = rows.len() as u64;
    let is_likely = pays(plan, count, plan.file.footer().file_size());
    if plan.row_access != RowAccess::Cheapest || plan.projection.is_empty() {
        return Ok(is_likely);
    }
    let must_read_whole = || plan.table().any_must_be_read_whole();
    if plan.is_remote() {
        return Ok(is_likely && !must_read_whole() && pays(plan, count, bytes_of_splits(plan, rows)?));
    }
    let splits = splits(plan, rows).count() as u64;
    let among = splits.saturating_mul(plan.split_step).min(plan.file.row_count());
    let are_few = count.saturating_mul(MIN_ROWS_PER_WANTED) < among && !must_read_whole();
    Ok(are_few || (is_likely && exceed_rows(plan, range, count)?))
}

/// The rows of each split that has some.
fn splits<'a>(plan: &Plan, rows: &'a [u64]) -> impl Iterator<Item = &'a [u64]> {
    let step = plan.split_step;
    rows.chunk_by(move |a, b| a / step == b / step)
}

/// Bytes of the segments that splits with these rows would read.
fn bytes_of_splits(plan: &Plan, rows: &[u64]) -> Result<u64> {
    let have = SegmentSet::new(plan.table());
    let mut segments = BTreeSet::new();
    for rows in splits(plan, rows) {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { continue };
        let range = *first..last + 1;
        for column in &plan.projection {
            segments.extend(wanted(&have, |have, want| column.request(&range, have, want))?);
        }
    }
    missing_bytes(plan, &Vec::from_iter(segments))
}

/// Number of rows fetched together; fewer if they take kilobytes, as in splits.
fn rows_at_once(plan: &Plan) -> usize {
    let of_split = usize::try_from(plan.split_step).unwrap_or(usize::MAX);
    ROWS_AT_ONCE.min(plan.batch_size).min(of_split)
}

/// Whether the segments of the projected columns that contain a range of rows take longer to read than `count` of
/// the rows individually. There may be any number of segments, so that they are counted column by column.
fn exceed_rows(plan: &Plan, range: &Range<u64>, count: u64) -> Result<bool> {
    let have = SegmentSet::new(plan.table());
    let mut segments = BTreeSet::new();
    let mut bytes = 0;
    for column in &plan.projection {
        let mut want = wanted(&have, |have, want| column.request(range, have, want))?;
        want.retain(|id| segments.insert(*id));
        bytes += byte_len(plan.table(), &want)?;
        if pays(plan, count, bytes) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fetches rows, given as ascending positions from the start of the file; none if they are added to totals.
pub(super) async fn gather(plan: Arc<Plan>, rows: Arc<[u64]>) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    for rows in rows.chunks(rows_at_once(&plan)) {
        let batch = gather_batch(&plan, rows.into()).await?;
        match &plan.totals {
            Some(totals) => totals.add_batch(&plan.projection, &batch)?,
            None => batches.push(batch),
        }
    }
    Ok(batches)
}

async fn gather_batch(plan: &Arc<Plan>, rows: Arc<[u64]>) -> Result<RecordBatch> {
    let workers = runtime()?.metrics().num_workers();
    let count = plan.projection.len();
    let per_task = count.div_ceil(workers * TASKS_PER_WORKER).max(1);
    let tasks = (0..count).step_by(per_task).map(|first| {
        let columns = first..(first + per_task).min(count);
        let all = Portion { columns, rows: Arc::clone(&rows), held: 0, twice: None };
        spawn(fetch_portion(Arc::clone(plan), all))
    });
    let columns: Vec<Vec<ArrayRef>> =
        futures::stream::iter(tasks).buffered(workers * TASKS_PER_WORKER).try_collect().await?;
    let mut columns: Vec<ArrayRef> = columns.into_iter().flatten().collect();
    if plan.numbers_rows {
        columns.push(Arc::new(UInt64Array::from(rows.to_vec())));
    }
    plan.batch(columns, rows.len())
}

/// Some of the rows of some projected columns.
struct Portion {
    columns: Range<usize>,
    rows: Arc<[u64]>,
    /// Bytes of the rows before these that are held until both are joined.
    held: u64,
    /// The bytes that twice as many rows of the same columns would have taken, if it was too much.
    twice: Option<u64>,
}

impl Portion {
    fn is_divisible(&self) -> bool {
        self.columns.len() > 1 || self.rows.len() > 1
    }

    /// Whether half of the rows, or of the columns, may take fewer bytes than these. Of segments that are only read as
    /// a whole, parts of rows take about as much: they would fetch the same again and again.
    fn shrinks(&self, bytes: u64) -> bool {
        let is_as_much = self.twice.is_some_and(|twice| (twice / 4 * 3..=twice).contains(&bytes));
        self.columns.len() > 1 || !is_as_much
    }
}

/// Fetches a portion; in halves, if this takes too much at once.
fn fetch_portion(plan: Arc<Plan>, portion: Portion) -> BoxFuture<'static, Result<Vec<ArrayRef>>> {
    async move {
        match fetch_at_once(&plan, &portion).await? {
            Fetched::All(fetched) if portion.held > 0 => {
                let bytes = portion.held.saturating_add(held_bytes(&fetched));
                plan.table().limits.count_bytes(bytes)?;
                Ok(fetched)
            }
            Fetched::All(fetched) => Ok(fetched),
            Fetched::ExceedsLimits => fetch_halves(plan, portion, None).await,
            Fetched::TooMuch(bytes) => fetch_halves(plan, portion, Some(bytes)).await,
        }
    }
    .boxed()
}

/// The outcome of fetching a portion at once.
enum Fetched {
    All(Vec<ArrayRef>),
    /// It exceeds the limits; its halves may not.
    ExceedsLimits,
    /// It would take so many bytes, more than a task may hold; its halves may take less.
    TooMuch(u64),
}

/// As [`fetch_portion`], but not in halves.
async fn fetch_at_once(plan: &Plan, portion: &Portion) -> Result<Fetched> {
    let (columns, rows) = (&portion.columns, &portion.rows);
    let mut have = PieceSet::new(plan.table(), plan.file.trees());
    match plan.file.source().contents() {
        Some(contents) => have = have.with_contents(contents.into()),
        None if plan.is_remote() => have.add_pieces([plan.table().tail.piece()]),
        None => {}
    }
    let mut decoded: Vec<Option<ArrayRef>> = vec![None; columns.len()];
    let (mut reservations, mut held, mut in_vain) = (Vec::new(), 0, 0);
    for _ in 0..MAX_ROUNDS {
        match attempt_all(plan, columns, rows, &have, &mut decoded, &mut in_vain) {
            Err(error) if portion.is_divisible() && matches!(error.root(), Error::LimitExceeded(_)) => {
                return Ok(Fetched::ExceedsLimits);
            }
            attempted => attempted?,
        }
        let (ranges, whole) = have.take_missing();
        if ranges.is_empty() && whole.is_empty() {
            break;
        }
        let range_bytes = ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let bytes = range_bytes + missing_bytes(plan, &whole)?;
        held += range_bytes + byte_len(plan.table(), &whole)?;
        let granted = plan.memory.take(bytes);
        let most = if granted.is_some() { MAX_HELD } else { MAX_HELD_ANYWAY };
        if held > most && portion.is_divisible() && portion.shrinks(held) {
            return Ok(Fetched::TooMuch(held));
        }
        let mut memory = granted.unwrap_or_else(|| plan.memory.take_anyway(bytes));
        reservations.push(memory.split(range_bytes));
        fetch_round(plan, &ranges, &whole, memory, &mut have).await?;
    }
    let decoded: Option<Vec<ArrayRef>> = decoded.into_iter().collect();
    decoded.map(Fetched::All).ok_or_else(|| Error::corrupt("reading a row does not terminate"))
}

/// Attempts to decode the columns that are not decoded yet. What is missing for that is noted by `have`, and `in_vain`
/// grows by the bytes that were decoded until something was missing, which are limited, too: a file could make rounds
/// decode more and more, of which each repeats the one before.
fn attempt_all(
    plan: &Plan,
    columns: &Range<usize>,
    rows: &[u64],
    have: &PieceSet<'_>,
    decoded: &mut [Option<ArrayRef>],
    in_vain: &mut usize,
) -> Result<()> {
    let start = Instant::now();
    for (at, decoded) in columns.clone().zip(decoded).filter(|(_, decoded)| decoded.is_none()) {
        let (work, spared) = (Work::begin(), have.spared_bytes());
        match read_column(plan, at, rows, have) {
            Ok(column) => *decoded = Some(column),
            Err(error) if matches!(error.root(), Error::NotFetched) => {
                let repeated = work.byte_len().saturating_sub(have.spared_bytes() - spared);
                *in_vain = in_vain.saturating_add(repeated);
                if *in_vain as u64 > plan.table().limits.max_decoded_bytes {
                    return Err(Error::limit("rows that are decoded again in each of many rounds"));
                }
            }
            Err(error) => return Err(error),
        }
    }
    plan.metrics.decode_nanos.add_since(start);
    Ok(())
}

/// Fetches ranges of the file, and whole segments, which are charged to `memory`.
async fn fetch_round(
    plan: &Plan,
    ranges: &[Range<u64>],
    whole: &[SegmentId],
    memory: Reservation,
    have: &mut PieceSet<'_>,
) -> Result<()> {
    plan.metrics.peak_bytes.raise(plan.memory.peak());
    let start = Instant::now();
    // Both are under way at the same time.
    let leases =
        if whole.is_empty() { Vec::new() } else { lease(plan, whole, |_| Urgency::projection(0), memory)? };
    let pieces = fetch_ranges(plan, ranges, Urgency::projection(0)).await?;
    have.add_pieces(ranges.iter().zip(pieces).map(|(range, bytes)| Piece { start: range.start, bytes }));
    for lease in &leases {
        lease.wait().await?;
    }
    have.add(leases);
    plan.metrics.io_wait_nanos.add_since(start);
    Ok(())
}

/// As [`fetch_portion`], but in halves, to hold less memory at a time than the `bytes` of all, if these are known.
async fn fetch_halves(plan: Arc<Plan>, portion: Portion, bytes: Option<u64>) -> Result<Vec<ArrayRef>> {
    let Portion { columns, rows, held, .. } = portion;
    if columns.len() > 1 {
        let middle = columns.start + columns.len() / 2;
        let of = |columns| Portion { columns, rows: Arc::clone(&rows), held, twice: None };
        let mut all = fetch_portion(Arc::clone(&plan), of(columns.start..middle)).await?;
        all.append(&mut fetch_portion(plan, of(middle..columns.end)).await?);
        return Ok(all);
    }
    let (first, second) = rows.split_at(rows.len() / 2);
    let half =
        |rows: &[u64], held| Portion { columns: columns.clone(), rows: rows.into(), held, twice: bytes };
    let before = fetch_portion(Arc::clone(&plan), half(first, held)).await?;
    let held = held.saturating_add(held_bytes(&before));
    let after = fetch_portion(Arc::clone(&plan), half(second, held)).await?;
    let halves = before.into_iter().zip(after);
    let joined = halves.map(|(before, after)| {
        let to = before.data_type().clone();
        concat(&[before, after], &to, &plan.table().limits)
    });
    joined.collect()
}

/// Bytes that arrays hold, at most: rows of views may share them.
fn held_bytes(columns: &[ArrayRef]) -> u64 {
    let of_column = |column: &ArrayRef| copied_bytes(column).min(column.get_array_memory_size() as u64);
    columns.iter().map(of_column).fold(0, u64::saturating_add)
}

fn read_column(plan: &Plan, at: usize, rows: &[u64], have: &PieceSet<'_>) -> Result<ArrayRef> {
    let among = rows.first().copied().unwrap_or(0)..rows.last().map_or(0, |last| last + 1);
    decode_column(plan, at, &among, plan.projection[at].read_rows(rows, have)?.as_ref(), true)
}

#[cfg(test)]
mod tests;
