//! The processing of one split: fetch, filter, fetch, decode.
//!
//! ```text
//! admitted ──► filter columns there ──► filtered ──► other columns requested, if memory allows
//!                                                                     │
//!                              batches ◄── decoded ◄── all there ◄────┘
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::row::OwnedRow;

use super::aggregate::Totals;
use super::best_first::Best;
use super::filter::{Check, Payoffs};
use super::plan::{Plan, Split};
use super::{ScanMetrics, gather};
use crate::array::bytes::let_go;
use crate::array::decode_as;
use crate::error::ResultExt as _;
use crate::io::{Share, Urgency, Wish};
use crate::layout::SegmentSet;
use crate::limits::Work;
use crate::mask::Mask;
use crate::segments::{Lease, SegmentId, SegmentTable};
use crate::{Error, Result};

/// Approximately the bytes a remote store delivers in the time a request waits for its first byte.
const ROUND_TRIP_BYTES: u64 = 1 << 20;
/// Projected columns are requested before the filter is evaluated if their bytes are less than one part
/// in this many of the bytes requested anyway.
const SHARE_ASKED_EARLY: u64 = 32;
/// Number of parts of a split after which rows that exceed the limits are not filtered or counted in halves any more:
/// each part may take as long as the limits allow, and nothing else happens in between.
pub(super) const MAX_PARTS: usize = 64;
/// The same if rows are decoded, since all parts are held at once.
const MAX_PARTS_HELD: usize = 8;

/// A split that has been admitted: what it needs first has been requested.
pub(super) struct Admitted {
    pub(super) plan: Arc<Plan>,
    pub(super) payoffs: Arc<Payoffs>,
    pub(super) split: Split,
    /// Number of the split in the order in which splits are wanted.
    pub(super) number: u64,
    /// Conjuncts of the filter to evaluate.
    pub(super) checks: Vec<Check>,
    /// Whether projected columns are requested together with those of the filter.
    pub(super) eager: bool,
    pub(super) leases: Vec<Lease>,
}

/// A split whose live rows are known.
#[derive(Clone)]
pub(super) struct Filtered {
    plan: Arc<Plan>,
    payoffs: Arc<Payoffs>,
    pub(super) split: Split,
    number: u64,
    /// Conjuncts of the filter that were evaluated.
    pub(super) checks: Vec<Check>,
    /// Its best rows, if rows are read best first.
    pub(super) best: Best,
    /// Whether the projected columns have been requested. If rows are read best first, the filter may have
    /// tightened when the split is decoded, so they usually are requested only then.
    pub(super) asked: bool,
    /// Whether live rows are so few that they are fetched individually.
    single_rows: bool,
    /// Segments it uses, for later splits that may use them, too.
    pub(super) leases: Vec<Lease>,
}

/// A decoded split.
pub(super) struct Decoded {
    /// The live rows, in batches of at most the batch size.
    pub(super) batches: Vec<RecordBatch>,
    /// Segments it used.
    pub(super) leases: Vec<Lease>,
}

/// Fetches what `request` asks for, repeatedly until it asks for nothing more.
pub(super) async fn fetch(
    plan: &Plan,
    urgency: Urgency,
    have: &mut SegmentSet<'_>,
    mut request: impl FnMut(&SegmentSet<'_>, &mut Vec<SegmentId>) -> Result<()>,
) -> Result<()> {
    loop {
        let want = wanted(have, &mut request)?;
        if want.is_empty() {
            return Ok(());
        }
        let memory = plan.memory.take_anyway(missing_bytes(plan, &want)?);
        let leases = lease(plan, &want, |_| urgency, memory)?;
        have.add(leases.iter().cloned());
        wait(plan, &leases).await?;
    }
}

/// The segments that `request` asks for, each of them once.
pub(super) fn wanted(
    have: &SegmentSet<'_>,
    request: impl FnOnce(&SegmentSet<'_>, &mut Vec<SegmentId>) -> Result<()>,
) -> Result<Vec<SegmentId>> {
    let mut want = Vec::new();
    request(have, &mut want)?;
    want.sort_unstable();
    want.dedup();
    Ok(want)
}

/// Total bytes of those segments that are not held yet.
pub(super) fn missing_bytes(plan: &Plan, ids: &[SegmentId]) -> Result<u64> {
    plan.file.leases().missing_bytes(ids, plan.table())
}

/// Leases segments and requests those that are not held yet; their bytes are charged to `memory`.
pub(super) fn lease(
    plan: &Plan,
    ids: &[SegmentId],
    urgency: impl Fn(SegmentId) -> Urgency,
    memory: Share,
) -> Result<Vec<Lease>> {
    let file = &plan.file;
    let ask = |missing: &[(SegmentId, Range<u64>)]| {
        let wish =
            |(id, range): &(SegmentId, Range<u64>)| Wish { range: range.clone(), urgency: urgency(*id) };
        plan.scheduler.request(file.source(), missing.iter().map(wish).collect(), &plan.metrics)
    };
    let leases = file.leases().lease(ids, plan.table(), memory, &plan.metrics, ask)?;
    ScanMetrics::raise(&plan.metrics.peak_bytes, plan.memory.peak());
    Ok(leases)
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

/// Total bytes of segments.
pub(super) fn byte_len(table: &SegmentTable, segments: &[SegmentId]) -> Result<u64> {
    segments.iter().map(|id| table.segment(*id).map(|segment| u64::from(segment.length))).sum()
}

/// What a split needs before its filter can be evaluated, or its rows decoded if there is no filter.
fn first_request(
    plan: &Plan,
    split: &Split,
    checks: &[Check],
    eager: bool,
    have: &SegmentSet<'_>,
    want: &mut Vec<SegmentId>,
) -> Result<()> {
    match &plan.best_first {
        Some(order) => order.column.request(&split.rows, have, want)?,
        None if eager || checks.is_empty() => request_projection(plan, split, have, want)?,
        None => {}
    }
    for path in checks.iter().flat_map(|check| &check.columns) {
        plan.filter_column(path)?.request(&split.rows, have, want)?;
    }
    Ok(())
}

/// The segments to request when a split is admitted, and whether these include the projected columns. On
/// remote storage, these are included if they take few bytes: requesting them later would cost a round
/// trip.
pub(super) fn first_wanted(
    plan: &Plan,
    split: &Split,
    checks: &[Check],
    eager: bool,
) -> Result<(bool, Vec<SegmentId>)> {
    let table = plan.table();
    let want = |eager| {
        wanted(&SegmentSet::new(table), |have, want| first_request(plan, split, checks, eager, have, want))
    };
    let first = want(eager)?;
    let waits = !eager && !checks.is_empty() && plan.best_first.is_none();
    if waits && plan.is_remote() {
        let all = want(true)?;
        let bytes = byte_len(table, &first)?;
        let more = byte_len(table, &all)?.saturating_sub(bytes);
        if more <= bytes.max(ROUND_TRIP_BYTES) / SHARE_ASKED_EARLY {
            return Ok((true, all));
        }
    }
    Ok((eager, first))
}

/// Requests what decoding the live rows of a split needs.
fn request_projection(
    plan: &Plan,
    split: &Split,
    have: &SegmentSet<'_>,
    want: &mut Vec<SegmentId>,
) -> Result<()> {
    let rows = live_range(split);
    plan.projection.iter().try_for_each(|column| column.request(&rows, have, want))
}

/// The range from the first to the last live row.
fn live_range(Split { rows, live }: &Split) -> Range<u64> {
    let span = live.span();
    rows.start + span.start as u64..rows.start + span.end as u64
}

/// Whether the live rows of a split are fetched individually.
fn reads_singly(plan: &Plan, split: &Split, want: &[SegmentId]) -> Result<bool> {
    let byte_len = byte_len(plan.table(), want)?;
    Ok(gather::pays(plan, split.live.true_count() as u64, byte_len))
}

impl Admitted {
    /// Whether the split has to be filtered before it is decoded.
    pub(super) fn needs_filter(&self) -> bool {
        !self.checks.is_empty() || self.plan.best_first.is_some()
    }

    /// Converts a split without a filter to evaluate, which can be decoded right away.
    pub(super) fn into_filtered(self) -> Filtered {
        Filtered {
            plan: self.plan,
            payoffs: self.payoffs,
            split: self.split,
            number: self.number,
            checks: Vec::new(),
            best: Best::default(),
            asked: true,
            single_rows: false,
            leases: self.leases,
        }
    }

    /// Evaluates the filter once its columns have arrived, and requests the other columns of live rows as
    /// far as memory allows.
    pub(super) async fn filter(self) -> Result<Filtered> {
        if !self.needs_filter() {
            return Ok(self.into_filtered());
        }
        let Admitted { plan, payoffs, mut split, number, checks, eager, leases } = self;
        let footer = Arc::clone(plan.file.footer());
        let mut have = SegmentSet::new(&footer.table);
        wait(&plan, &leases).await?;
        have.add(leases);
        let first = |have: &SegmentSet<'_>, want: &mut Vec<SegmentId>| {
            first_request(&plan, &split, &checks, eager, have, want)
        };
        fetch(&plan, Urgency::filter(number), &mut have, first).await?;

        let start = Instant::now();
        let live = payoffs.filter(&plan, &split, &checks, &have)?;
        let rejected = split.live.true_count() - live.true_count();
        ScanMetrics::add(&plan.metrics.rows_filtered, rejected as u64);
        ScanMetrics::add_since(&plan.metrics.filter_nanos, start);
        split.live = live;

        let best = match &plan.best_first {
            Some(order) => order.best_of(&split, &have)?,
            None => Best::default(),
        };
        let (mut asked, mut single_rows) = (false, false);
        if !split.live.is_none() && plan.best_first.is_none() {
            let want = wanted(&have, |have, want| request_projection(&plan, &split, have, want))?;
            single_rows = reads_singly(&plan, &split, &want)?;
            asked = single_rows;
            if !asked && let Some(memory) = plan.memory.take(missing_bytes(&plan, &want)?) {
                have.add(lease(&plan, &want, |_| Urgency::projection(number), memory)?);
                asked = true;
            }
        }
        let leases = have.leases().cloned().collect();
        Ok(Filtered { plan, payoffs, split, number, checks, best, asked, single_rows, leases })
    }
}

impl Filtered {
    /// Keeps the rows that come no later than `last`, if there are any, and returns the others, if there
    /// are any.
    pub(super) fn split_off_after(&mut self, last: &OwnedRow) -> Option<Self> {
        let mut others = self.clone();
        let wanted = others.best.take_until(last, self.split.live.len()).and(&self.split.live);
        others.split.live = self.split.live.without(&wanted);
        if wanted.is_none() || others.split.live.is_none() {
            return None;
        }
        self.split.live = wanted;
        Some(others)
    }

    /// Segments of the projected columns that are yet to be fetched.
    pub(super) fn missing(&self) -> Result<Vec<SegmentId>> {
        let mut have = SegmentSet::new(self.plan.table());
        have.add(self.leases.iter().cloned());
        wanted(&have, |have, want| request_projection(&self.plan, &self.split, have, want))
    }

    /// Requests the projected columns although no memory is available.
    pub(super) fn ask_anyway(&mut self) -> Result<()> {
        let memory = self.plan.memory.take_anyway(missing_bytes(&self.plan, &self.missing()?)?);
        Self::ask(vec![self], memory)
    }

    /// Requests the projected columns of splits all at once, so that they share reads.
    pub(super) fn ask(splits: Vec<&mut Self>, memory: Share) -> Result<()> {
        let Some(Self { plan, number, .. }) = splits.first() else { return Ok(()) };
        let missing = splits.iter().map(|split| split.missing()).collect::<Result<Vec<_>>>()?;
        let mut all = missing.concat();
        all.sort_unstable();
        all.dedup();
        let leases = lease(plan, &all, |_| Urgency::projection(*number), memory)?;
        for (split, missing) in splits.into_iter().zip(missing) {
            let held = |id| all.binary_search(id).ok().and_then(|at| leases.get(at).cloned());
            split.leases.extend(missing.iter().filter_map(held));
            split.asked = true;
        }
        Ok(())
    }

    /// Decodes the live rows once their columns have arrived.
    pub(super) async fn decode(self) -> Result<Decoded> {
        let Filtered { plan, payoffs, mut split, number, checks, asked, mut single_rows, leases, .. } = self;
        if !asked {
            // The filter may have tightened while this split was waiting.
            let mut have = SegmentSet::new(plan.table());
            have.add(leases.iter().cloned());
            split.live = payoffs.recheck(&plan, &split, &checks, &have)?;
            if split.live.is_none() {
                return Ok(Decoded { batches: Vec::new(), leases });
            }
            let want = wanted(&have, |have, want| request_projection(&plan, &split, have, want))?;
            single_rows = reads_singly(&plan, &split, &want)?;
        }
        if single_rows {
            let rows = split.live.indices().into_iter().map(|row| split.rows.start + row as u64);
            let rows: Arc<[u64]> = rows.collect();
            return Ok(Decoded { leases, ..gather::gather(plan, rows).await? });
        }
        let footer = Arc::clone(plan.file.footer());
        let mut have = SegmentSet::new(&footer.table);
        wait(&plan, &leases).await?;
        have.add(leases);
        fetch(&plan, Urgency::projection(number), &mut have, |have, want| {
            request_projection(&plan, &split, have, want)
        })
        .await?;
        let start = Instant::now();
        let batches = decode(&plan, &split, &have)?;
        ScanMetrics::add_since(&plan.metrics.decode_nanos, start);
        Ok(Decoded { batches, leases: have.leases().cloned().collect() })
    }
}

/// Decodes the live rows of the projected columns.
fn decode(plan: &Plan, split: &Split, have: &SegmentSet<'_>) -> Result<Vec<RecordBatch>> {
    let rows = live_range(split);
    let live: Mask = {
        let start = (rows.start - split.rows.start) as usize;
        split.live.slice(start..start + (rows.end - rows.start) as usize)
    };
    if let Some(totals) = &plan.totals {
        add_rows(plan, totals, rows, &live, have, &mut 0)?;
        return Ok(Vec::new());
    }
    let mut batches = Vec::new();
    let mut parts = Vec::new();
    decode_rows(plan, rows, &live, have, &mut parts)?;
    for batch in parts {
        let starts = (0..batch.num_rows()).step_by(plan.batch_size);
        batches.extend(starts.map(|start| batch.slice(start, plan.batch_size.min(batch.num_rows() - start))));
    }
    Ok(batches)
}

/// Adds rows to totals; in halves if they are larger than the limits allow, up to a number of `parts`.
fn add_rows(
    plan: &Plan,
    totals: &Totals,
    rows: Range<u64>,
    live: &Mask,
    have: &SegmentSet<'_>,
    parts: &mut usize,
) -> Result<()> {
    let half = (rows.end - rows.start) / 2;
    let added = totals.add(&plan.projection, live.true_count(), |column| {
        let array = column.read(&rows, have)?;
        if live.is_all() { Ok(array) } else { array.filter(live).at(|| column.place()) }
    });
    match added {
        Err(error) if half > 0 && *parts < MAX_PARTS && matches!(error.root(), Error::LimitExceeded(_)) => {
            let (middle, len) = (half as usize, live.len());
            add_rows(plan, totals, rows.start..rows.start + half, &live.slice(0..middle), have, parts)?;
            add_rows(plan, totals, rows.start + half..rows.end, &live.slice(middle..len), have, parts)
        }
        added => {
            *parts += 1;
            added
        }
    }
}

/// Decodes rows; in halves if they are larger than the limits allow, since not all files state how large their
/// rows are.
fn decode_rows(
    plan: &Plan,
    rows: Range<u64>,
    live: &Mask,
    have: &SegmentSet<'_>,
    parts: &mut Vec<RecordBatch>,
) -> Result<()> {
    let half = (rows.end - rows.start) / 2;
    match decode_batch(plan, &rows, live, have) {
        Ok(batch) => parts.push(batch),
        Err(error)
            if half > 0
                && parts.len() < MAX_PARTS_HELD
                && matches!(error.root(), Error::LimitExceeded(_)) =>
        {
            let (middle, len) = (half as usize, live.len());
            decode_rows(plan, rows.start..rows.start + half, &live.slice(0..middle), have, parts)?;
            decode_rows(plan, rows.start + half..rows.end, &live.slice(middle..len), have, parts)?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn decode_batch(plan: &Plan, rows: &Range<u64>, live: &Mask, have: &SegmentSet<'_>) -> Result<RecordBatch> {
    let len = live.true_count();
    let mut columns = Vec::with_capacity(plan.projection.len());
    for (column, field) in plan.projection.iter().zip(plan.schema.fields()) {
        let _work = Work::begin();
        let array = column.read(rows, have)?;
        let decode = || match live.is_all() {
            true => decode_as(array.as_ref(), field.data_type()),
            false => Ok(let_go(decode_as(array.filter(live)?.as_ref(), field.data_type())?)),
        };
        columns.push(decode().at(|| column.place())?);
    }
    if plan.numbers_rows {
        let numbers: UInt64Array = match live.is_all() {
            true => rows.clone().collect(),
            false => live.indices().into_iter().map(|row| rows.start + row as u64).collect(),
        };
        columns.push(Arc::new(numbers));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(len));
    Ok(RecordBatch::try_new_with_options(Arc::clone(&plan.schema), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{ArrayRef as ArrowRef, AsArray as _, BooleanArray, Int64Array, StringArray};
    use arrow::compute::{cast, concat_batches};
    use arrow::datatypes::DataType;
    use futures::TryStreamExt as _;

    use super::*;
    use crate::VortexFile;
    use crate::expr::{Expr, FieldPath, RowPredicate, column};
    use crate::file::OpenOptions;
    use crate::io::{MemoryFile, MemorySink};
    use crate::limits::Limits;
    use crate::write::{FileWriter, WriteOptions};

    async fn written(table: &RecordBatch, options: WriteOptions) -> MemorySink {
        let sink = MemorySink::new();
        let mut writer = FileWriter::try_new(sink.clone(), table.schema(), options).unwrap();
        writer.write(table).await.unwrap();
        writer.finish().await.unwrap();
        sink
    }

    /// Numbers, and words made of them.
    fn table(rows: i64, word: impl Fn(i64) -> String) -> RecordBatch {
        let numbers: ArrowRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|n| n * n % 1009)));
        let words: ArrowRef = Arc::new(StringArray::from_iter_values((0..rows).map(word)));
        RecordBatch::try_from_iter([("number", numbers), ("word", words)]).unwrap()
    }

    async fn open(sink: &MemorySink, max_decoded_bytes: u64) -> VortexFile {
        let limits = Limits::new().with_max_decoded_bytes(max_decoded_bytes);
        let source = Arc::new(MemoryFile::new(sink.bytes().unwrap()));
        OpenOptions::new().with_limits(limits).open(source).await.unwrap()
    }

    async fn rows(file: &VortexFile, filter: &Expr) -> Result<RecordBatch> {
        let stream = file.scan().with_filter(filter.clone()).into_stream()?;
        let schema = Arc::clone(stream.schema());
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        Ok(concat_batches(&schema, &batches)?)
    }

    #[tokio::test]
    async fn rows_larger_than_the_limit_are_filtered_and_counted_in_parts() {
        let table = table(40_000, |n| format!("{} is squared", n * n));
        let sink = written(&table, WriteOptions::new()).await;
        check_filters(&sink, 300_000, "%9%5 IS sq%").await;
    }

    /// Checks that filters have the same outcome whether or not rows exceed the limit.
    async fn check_filters(sink: &MemorySink, limit: u64, pattern: &str) {
        let (strict, lax) = (open(sink, limit).await, open(sink, 2 << 30).await);
        let filters = [
            column("word").ilike(pattern),
            column("word").is_in(["x"; 9]).or(column("number").lt(5)),
            Expr::Rows(Arc::new(Even::default())),
        ];
        for filter in filters {
            let (found, expected) = (rows(&strict, &filter).await, rows(&lax, &filter).await);
            let found = found.unwrap_or_else(|error| panic!("{filter}: {error}"));
            assert!(found == expected.unwrap(), "{filter}");
        }
        let found = strict.scan().aggregate().await.unwrap();
        assert_eq!(found, lax.scan().aggregate().await.unwrap());
    }

    /// Words that begin with an even digit, as the caller finds them.
    #[derive(Debug)]
    struct Even {
        columns: [FieldPath; 1],
        evaluated: AtomicUsize,
    }

    impl Default for Even {
        fn default() -> Self {
            Self { columns: ["word".into()], evaluated: AtomicUsize::new(0) }
        }
    }

    impl std::fmt::Display for Even {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("even")
        }
    }

    impl RowPredicate for Even {
        fn columns(&self) -> &[FieldPath] {
            &self.columns
        }

        fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
            self.evaluated.fetch_add(1, Ordering::SeqCst);
            let words = cast(batch.column(0), &DataType::Utf8)?;
            let is_even = |word: Option<&str>| Some(word?.as_bytes()[0] % 2 == 0);
            Ok(words.as_string::<i32>().iter().map(is_even).collect())
        }
    }

    #[tokio::test]
    async fn rows_beyond_the_limit_are_not_filtered_or_counted_in_any_number_of_parts() {
        let table = table(40_000, |n| format!("{} is squared ", n * n).repeat(10));
        let file = open(&written(&table, WriteOptions::new()).await, 100_000).await;
        let even = Arc::new(Even::default());
        let filters = [column("word").ilike("%9%5 IS sq%"), Expr::Rows(Arc::clone(&even) as _)];
        for filter in filters {
            // The words themselves could not be held in any case.
            let scan = file.scan().with_filter(filter.clone()).with_projection(["number"]);
            let found: Result<Vec<RecordBatch>> = scan.into_stream().unwrap().try_collect().await;
            let error = found.err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("exceed 100000 bytes")), "{filter}");
        }
        let evaluated = even.evaluated.load(Ordering::SeqCst);
        let most = file.scan().splits().unwrap().len() * (MAX_PARTS + 1);
        assert!((1..=most).contains(&evaluated), "{evaluated} parts");
        let error = file.scan().with_projection(["word"]).aggregate().await.unwrap_err();
        assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
    }
}
