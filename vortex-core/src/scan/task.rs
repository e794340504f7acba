//! The work of one split: fetch, filter, fetch, decode.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{RecordBatch, RecordBatchOptions};

use super::column::Column;
use super::plan::{Plan, Split};
use super::{ScanMetrics, gather};
use crate::array::bytes::let_go;
use crate::array::{ArrayRef, decode_as};
use crate::error::ResultExt as _;
use crate::expr::{self, FieldPath};
use crate::file::{Footer, Lease, SegmentId};
use crate::layout::SegmentSet;
use crate::mask::Mask;
use crate::{Error, Result};

/// What became of a split.
pub(super) struct Outcome {
    /// The live rows; at most the batch size each.
    pub(super) batches: Vec<RecordBatch>,
    /// Whether a filter was evaluated.
    pub(super) filtered: bool,
    /// Segments it used, for splits that follow soon and may use them too.
    pub(super) leases: Vec<Lease>,
}

/// Fetches what `request` asks for, again and again until it asks for nothing more.
pub(super) async fn fetch(
    plan: &Plan,
    have: &mut SegmentSet<'_>,
    mut request: impl FnMut(&SegmentSet<'_>, &mut Vec<SegmentId>) -> Result<()>,
) -> Result<()> {
    loop {
        let mut want = Vec::new();
        request(have, &mut want)?;
        if want.is_empty() {
            return Ok(());
        }
        want.sort_unstable();
        want.dedup();
        let leases = lease(plan, &want)?;
        have.add(leases.iter().cloned());
        wait(plan, &leases).await?;
    }
}

/// Leases segments, asking storage for those that nobody holds.
pub(super) fn lease(plan: &Plan, ids: &[SegmentId]) -> Result<Vec<Lease>> {
    let file = &plan.file;
    file.segments().lease(ids, file.footer(), file.source(), &plan.scheduler, &plan.metrics)
}

async fn wait(plan: &Plan, leases: &[Lease]) -> Result<()> {
    if leases.iter().all(|lease| lease.bytes().is_some()) {
        return Ok(());
    }
    let start = Instant::now();
    for lease in leases {
        lease.wait().await?;
    }
    ScanMetrics::add_since(&plan.metrics.io_wait_nanos, start);
    Ok(())
}

/// Work for a split that has been admitted.
pub(super) struct Task {
    pub(super) plan: Arc<Plan>,
    pub(super) split: Split,
    /// Positions of the parts of the filter to evaluate.
    pub(super) conjuncts: Vec<usize>,
    /// Whether to fetch projected columns together with those of the filter.
    pub(super) eager: bool,
    /// Segments that were asked for when the split was admitted.
    pub(super) leases: Vec<Lease>,
}

/// Bytes of segments, each counted once.
pub(super) fn byte_len(footer: &Footer, mut segments: Vec<SegmentId>) -> Result<u64> {
    segments.sort_unstable();
    segments.dedup();
    segments.iter().map(|id| footer.segment(*id).map(|segment| u64::from(segment.length))).sum()
}

/// What a split needs before its filter can be evaluated, or its rows decoded if there is none.
pub(super) fn first_request(
    plan: &Plan,
    split: &Split,
    conjuncts: &[usize],
    eager: bool,
    have: &SegmentSet<'_>,
    want: &mut Vec<SegmentId>,
) -> Result<()> {
    if eager || conjuncts.is_empty() {
        request_projection(plan, &live_range(&split.rows, &split.live), have, want)?;
    }
    for path in filter_paths(plan, conjuncts) {
        plan.filter_columns[path].request(&split.rows, have, want)?;
    }
    Ok(())
}

fn request_projection(
    plan: &Plan,
    rows: &Range<u64>,
    have: &SegmentSet<'_>,
    want: &mut Vec<SegmentId>,
) -> Result<()> {
    plan.projection.iter().try_for_each(|column| column.request(rows, have, want))
}

fn filter_paths<'a>(plan: &'a Plan, conjuncts: &'a [usize]) -> impl Iterator<Item = &'a FieldPath> {
    conjuncts.iter().flat_map(|at| &plan.conjuncts[*at].columns)
}

/// From the first to the last live row.
fn live_range(rows: &Range<u64>, live: &Mask) -> Range<u64> {
    if live.is_all() {
        return rows.clone();
    }
    let runs = live.runs();
    match (runs.first(), runs.last()) {
        (Some(first), Some(last)) => rows.start + first.start as u64..rows.start + last.end as u64,
        _ => rows.start..rows.start,
    }
}

impl Task {
    /// Runs the task to its end. Bytes are awaited here; evaluating and decoding run as tasks
    /// of their own.
    pub(super) async fn run(self) -> Result<Outcome> {
        let Task { plan, mut split, conjuncts, eager, leases } = self;
        let filtered = !conjuncts.is_empty();
        let footer = Arc::clone(plan.file.footer());
        let mut held = leases;
        {
            let mut have = SegmentSet::new(&footer);
            have.add(held.iter().cloned());
            wait(&plan, &held).await?;
            fetch(&plan, &mut have, |have, want| first_request(&plan, &split, &conjuncts, eager, have, want))
                .await?;
            held = have.leases().cloned().collect();
        }
        if !conjuncts.is_empty() {
            split = filter_rows(Arc::clone(&plan), split, conjuncts, held.clone()).await?;
            if split.live.is_none() {
                return Ok(Outcome { batches: Vec::new(), filtered, leases: held });
            }
            let rows = live_range(&split.rows, &split.live);
            let mut have = SegmentSet::new(&footer);
            have.add(held.iter().cloned());
            let mut missing = Vec::new();
            request_projection(&plan, &rows, &have, &mut missing)?;
            if gather::pays(&plan, split.live.true_count() as u64, byte_len(&footer, missing)?) {
                let rows = split.live.indices().into_iter().map(|row| split.rows.start + row as u64);
                let batches = gather::gather(Arc::clone(&plan), rows.collect()).await?;
                return Ok(Outcome { batches, filtered, leases: held });
            }
            fetch(&plan, &mut have, |have, want| request_projection(&plan, &rows, have, want)).await?;
            held = have.leases().cloned().collect();
        }
        let segments = held.clone();
        let batches = spawn(move || {
            let start = Instant::now();
            let mut have = SegmentSet::new(plan.file.footer());
            have.add(segments);
            let batches = decode(&plan, &split, &have);
            ScanMetrics::add_since(&plan.metrics.decode_nanos, start);
            batches
        })
        .await?;
        Ok(Outcome { batches, filtered, leases: held })
    }
}

/// The split with the rows that pass the filter.
async fn filter_rows(
    plan: Arc<Plan>,
    split: Split,
    conjuncts: Vec<usize>,
    held: Vec<Lease>,
) -> Result<Split> {
    spawn(move || {
        let start = Instant::now();
        let mut have = SegmentSet::new(plan.file.footer());
        have.add(held);
        let live = filter(&plan, &split, &conjuncts, &have)?;
        let rejected = split.live.true_count() - live.true_count();
        ScanMetrics::add(&plan.metrics.rows_filtered, rejected as u64);
        ScanMetrics::add_since(&plan.metrics.filter_nanos, start);
        Ok(Split { live, ..split })
    })
    .await
}

/// Runs CPU work as a task of its own, which ends with its owner.
async fn spawn<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_future(async move { work() }).await
}

/// Runs work that waits as a task of its own, which ends with its owner.
pub(super) async fn spawn_future<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(work);
    match tasks.join_next().await {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => Err(Error::External("the runtime is shutting down".into())),
    }
}

/// Evaluates parts of the filter one after the other, each only on rows still live.
fn filter(plan: &Plan, split: &Split, conjuncts: &[usize], have: &SegmentSet<'_>) -> Result<Mask> {
    let mut live = split.live.clone();
    let mut arrays: HashMap<FieldPath, ArrayRef> = HashMap::new();
    for at in conjuncts {
        let conjunct = &plan.conjuncts[*at];
        // Few live rows are gathered first; many are evaluated where they are.
        let narrow = !live.is_all() && live.density() < NARROW_DENSITY;
        let rows = if narrow { live.true_count() } else { live.len() };
        let mut column = |path: &FieldPath| -> Result<ArrayRef> {
            let array = match arrays.get(path) {
                Some(array) => Arc::clone(array),
                None => {
                    let array = plan.filter_columns[path].read(&split.rows, have)?;
                    arrays.insert(path.clone(), Arc::clone(&array));
                    array
                }
            };
            if narrow { array.filter(&live) } else { Ok(array) }
        };
        let place = || conjunct.expr.to_string();
        let outcome = Mask::from_predicate(&expr::evaluate(&conjunct.expr, rows, &mut column).at(place)?);
        live = if narrow { live.refine(&outcome) } else { live.and(&outcome) };
        if live.is_none() {
            break;
        }
    }
    Ok(live)
}

/// Below this share of live rows, gathering them first is cheaper than evaluating all.
const NARROW_DENSITY: f64 = 0.3;

/// Decodes the live rows of the projected columns.
fn decode(plan: &Plan, split: &Split, have: &SegmentSet<'_>) -> Result<Vec<RecordBatch>> {
    let rows = live_range(&split.rows, &split.live);
    let live = {
        let start = (rows.start - split.rows.start) as usize;
        split.live.slice(start..start + (rows.end - rows.start) as usize)
    };
    let len = live.true_count();
    let mut columns = Vec::with_capacity(plan.projection.len());
    for (column, field) in plan.projection.iter().zip(plan.schema.fields()) {
        let decode = |column: &Column| {
            let mut array = column.read(&rows, have)?;
            if live.is_all() {
                return decode_as(array.as_ref(), field.data_type());
            }
            array = array.filter(&live)?;
            Ok(let_go(decode_as(array.as_ref(), field.data_type())?))
        };
        columns.push(decode(column).at(|| format!("column `{}`", column.path))?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(len));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&plan.schema), columns, &options)?;
    let starts = (0..len).step_by(plan.batch_size);
    Ok(starts.map(|start| batch.slice(start, plan.batch_size.min(len - start))).collect())
}
