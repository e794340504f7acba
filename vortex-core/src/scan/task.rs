//! The processing of one split: fetch, filter, fetch, decode.
//!
//! ```text
//! admitted ──► filter columns there ──► filtered ──► other columns requested, if memory allows
//!                                                                     │
//!                              batches ◄── decoded ◄── all there ◄────┘
//! ```

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::row::OwnedRow;

use super::best_first::Best;
use super::decode::{decode, live_range};
use super::fetch::{byte_len, fetch, lease, missing_bytes, wait, wanted};
use super::filter::{Check, Payoffs};
use super::gather;
use super::late::{LatePiece, LateRows};
use super::plan::{Plan, Split};
use super::request::{Requested, Wants};
use crate::Result;
use crate::io::Urgency;
use crate::layout::SegmentSet;
use crate::segments::{Lease, SegmentId};

/// Approximately the bytes a remote store delivers in the time a request waits for its first byte.
const ROUND_TRIP_BYTES: u64 = 1 << 20;
/// Projected columns are requested before the filter is evaluated if their bytes are less than one part
/// in this many of the bytes requested anyway.
const SHARE_ASKED_EARLY: u64 = 32;
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

/// A split whose live rows can be returned.
pub(super) struct DecodedSplit {
    /// The live rows, in batches of at most the batch size.
    pub(super) batches: Vec<RecordBatch>,
    /// The live rows instead, if they are decoded when they are taken.
    pub(super) late: Vec<LatePiece>,
    /// Segments it used.
    pub(super) leases: Vec<Lease>,
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

/// The segments to request when a split is admitted, in ascending order, and whether these include the
/// projected columns. On remote storage, these are included if they take few bytes: requesting them later
/// would cost a round trip.
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
    let mut columns = plan.projection.iter().enumerate().filter(|(at, _)| !split.known.has(*at));
    columns.try_for_each(|(_, column)| column.request(&rows, have, want))
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
        plan.metrics.rows_filtered.add(rejected as u64);
        plan.metrics.filter_nanos.add_since(start);
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
    /// The rows that come no later than `last`, and the others; `None` if there are none of either.
    pub(super) fn split_after(&self, last: &OwnedRow) -> Option<(Self, Self)> {
        let mut others = self.clone();
        let wanted = others.best.take_until(last, self.split.live.len()).and(&self.split.live);
        others.split.live = self.split.live.without(&wanted);
        if wanted.is_none() || others.split.live.is_none() {
            return None;
        }
        let mut first = self.clone();
        first.split.live = wanted;
        Some((first, others))
    }

    /// Segments of the projected columns that are yet to be fetched, in ascending order.
    pub(super) fn missing(&self) -> Result<Vec<SegmentId>> {
        let mut have = SegmentSet::new(self.plan.table());
        have.add(self.leases.iter().cloned());
        wanted(&have, |have, want| request_projection(&self.plan, &self.split, have, want))
    }

    /// The request for these segments of the projected columns; if it `must`, regardless of memory.
    pub(super) fn wants<'a>(&self, ids: &'a [SegmentId], must: bool) -> Wants<'a> {
        Wants { ids, urgency: Urgency::projection(self.number), most: u64::MAX, must }
    }

    /// Holds these segments, with which all projected columns have been requested.
    pub(super) fn hold(&mut self, requested: &Requested, ids: &[SegmentId]) {
        self.leases.extend(requested.of(ids));
        self.asked = true;
    }

    /// Decodes the live rows once their columns have arrived.
    pub(super) async fn decode(self) -> Result<DecodedSplit> {
        let Filtered { plan, payoffs, mut split, number, checks, asked, mut single_rows, leases, .. } = self;
        if !asked {
            // The filter may have tightened while this split was waiting.
            let mut have = SegmentSet::new(plan.table());
            have.add(leases.iter().cloned());
            split.live = payoffs.recheck(&plan, &split, &checks, &have)?;
            if split.live.is_none() {
                return Ok(DecodedSplit { batches: Vec::new(), late: Vec::new(), leases });
            }
            let want = wanted(&have, |have, want| request_projection(&plan, &split, have, want))?;
            single_rows = reads_singly(&plan, &split, &want)?;
        }
        if single_rows {
            let rows = split.live.indices().into_iter().map(|row| split.rows.start + row as u64);
            let rows: Arc<[u64]> = rows.collect();
            return Ok(DecodedSplit { leases, ..gather::gather(plan, rows).await? });
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
        let late = LateRows::read(&plan, &split, &have)?;
        let batches = if late.is_some() { Vec::new() } else { decode(&plan, &split, &have)? };
        plan.metrics.decode_nanos.add_since(start);
        let late = late.map(LateRows::into_pieces).unwrap_or_default();
        Ok(DecodedSplit { batches, late, leases: have.leases().cloned().collect() })
    }
}
