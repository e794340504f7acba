//! Evaluation of a filter on a split: which conjuncts, and in which order.
//!
//! Conjuncts are evaluated one after the other, each only on rows that are still live; those that have
//! rejected the most rows per unit of time go first. A dynamic filter is checked on rows only while it
//! rejects enough of them: the operator that created it checks the rows again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arrow::array::BooleanBufferBuilder;

use super::conjunct::fit_constants;
use super::halves::{MAX_PARTS, in_halves};
use super::plan::{Plan, Split};
use super::zone_maps::ZoneMaps;
use crate::Result;
use crate::array::EncodedRef;
use crate::error::ResultExt as _;
use crate::expr::{self, DynamicFilter, Expr, FieldPath};
use crate::layout::SegmentSet;
use crate::mask::Mask;
use crate::metrics::nanos_since;

/// Below this share of live rows, gathering them first is cheaper than evaluating all rows.
const NARROW_DENSITY: f64 = 0.3;

/// Rows after which the selectivity of a conjunct is considered known.
const MEASURED_ROWS: u64 = 64 << 10;
/// A dynamic filter that lets more than this share of rows pass is not checked on rows, except on one in
/// [`PROBE_EVERY`] splits, since it may have tightened.
const WORTHWHILE: f64 = 0.8;
const PROBE_EVERY: u64 = 16;
/// The same if the caller evaluates the filter, which is measured on some rows of a split only. A look-up in the
/// table of a join takes as long here as in the join, so that it pays only if nearly all rows are rejected: then
/// they need not be decoded, repartitioned and copied.
const WORTHWHILE_DECODED: f64 = 1.0 / 64.0;
const SAMPLE_ROWS: usize = 2 << 10;
/// Decoded rows that predicates of a split share may take this many bytes: only those of one predicate are limited
/// otherwise.
const MAX_SHARED: usize = 64 << 20;
const SAMPLE_EVERY: u64 = 8;

/// A conjunct of the filter to evaluate on a split.
#[derive(Debug, Clone)]
pub(super) struct Check {
    expr: Expr,
    pub(super) columns: Vec<FieldPath>,
    /// Index of the conjunct in the plan.
    at: usize,
    by: EvaluatedBy,
    /// Whether it has not paid so far, and is to be measured again.
    probe: bool,
}

/// What evaluates a part of a dynamic filter. Each part is measured on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvaluatedBy {
    /// Encodings; also the whole of any other conjunct.
    Encoding,
    /// The caller, on decoded columns.
    Caller,
}

impl EvaluatedBy {
    const BOTH: [Self; 2] = [EvaluatedBy::Encoding, EvaluatedBy::Caller];

    /// The part of a dynamic filter that this evaluates; true if it has none.
    fn part_of(self, filter: &Expr) -> Expr {
        let is_part = |conjunct: &Expr| conjunct.has_row_predicate() == (self == EvaluatedBy::Caller);
        Expr::all(filter.conjuncts().into_iter().filter(is_part))
    }
}

impl Check {
    /// The expression to evaluate: a dynamic filter may have tightened since the split was admitted.
    fn latest(&self, plan: &Plan) -> Expr {
        let Expr::Dynamic(filter) = &plan.conjuncts[self.at] else { return self.expr.clone() };
        let readable = |now: &Expr| now.columns().iter().all(|column| self.columns.contains(column));
        let now = filter.current().map(|now| self.by.part_of(&now)).filter(readable);
        now.and_then(|now| fit_constants(now, &plan.filter_columns).ok()).unwrap_or_else(|| self.expr.clone())
    }
}

/// Measurements of each conjunct of the filter, by [`EvaluatedBy`].
#[derive(Debug)]
pub(super) struct Payoffs(Vec<[Payoff; 2]>);

#[derive(Debug, Default)]
struct Payoff {
    rows: AtomicU64,
    passed: AtomicU64,
    nanos: AtomicU64,
    /// Splits on which a dynamic filter was not checked.
    skipped: AtomicU64,
}

impl Payoff {
    fn note(&self, rows: usize, passed: usize, start: Instant) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.passed.fetch_add(passed as u64, Ordering::Relaxed);
        self.nanos.fetch_add(nanos_since(start), Ordering::Relaxed);
    }

    /// Rows rejected per nanosecond. Conjuncts not measured yet come first, or last if they are to be measured
    /// on few rows.
    fn rate(&self, by: EvaluatedBy) -> f64 {
        let rows = self.rows.load(Ordering::Relaxed);
        match by {
            EvaluatedBy::Encoding if rows < MEASURED_ROWS => return f64::INFINITY,
            EvaluatedBy::Caller if rows < SAMPLE_ROWS as u64 => return 0.0,
            _ => {}
        }
        let rejected = rows.saturating_sub(self.passed.load(Ordering::Relaxed));
        rejected as f64 / self.nanos.load(Ordering::Relaxed).max(1) as f64
    }

    /// Whether to evaluate a conjunct that need not be evaluated.
    fn pays(&self, by: EvaluatedBy) -> bool {
        let rows = self.rows.load(Ordering::Relaxed);
        let passed = self.passed.load(Ordering::Relaxed);
        let (measured, share) = match by {
            EvaluatedBy::Encoding => (MEASURED_ROWS, WORTHWHILE),
            EvaluatedBy::Caller => (SAMPLE_ROWS as u64, WORTHWHILE_DECODED),
        };
        rows < measured || passed as f64 <= rows as f64 * share
    }

    /// Whether a conjunct that does not pay is to be measured again on this split.
    fn is_probed(&self, by: EvaluatedBy) -> bool {
        let every = match by {
            EvaluatedBy::Encoding => PROBE_EVERY,
            EvaluatedBy::Caller => SAMPLE_EVERY,
        };
        self.skipped.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }

    /// Whether a part that the caller evaluates has to be measured first.
    fn is_due(&self, probe: bool) -> bool {
        if probe {
            // Rows that are close together are alike: what has been found elsewhere does not count.
            for count in [&self.rows, &self.passed, &self.nanos] {
                count.store(0, Ordering::Relaxed);
            }
        }
        self.rows.load(Ordering::Relaxed) < SAMPLE_ROWS as u64
    }
}

impl Payoffs {
    pub(super) fn new(plan: &Plan) -> Self {
        Self(plan.conjuncts.iter().map(|_| Default::default()).collect())
    }

    fn of(&self, at: usize, by: EvaluatedBy) -> &Payoff {
        &self.0[at][by as usize]
    }

    /// The conjuncts to evaluate on a split, in order: those that statistics do not decide.
    pub(super) fn checks(&self, plan: &Plan, zone_maps: &ZoneMaps, split: &Split) -> Vec<Check> {
        let mut checks = Vec::new();
        for at in zone_maps.open_conjuncts(split) {
            match &plan.conjuncts[at] {
                Expr::Dynamic(filter) if filter.checks_rows() => {
                    let check = |by| self.dynamic(plan, filter.as_ref(), at, by);
                    checks.extend(EvaluatedBy::BOTH.into_iter().filter_map(check));
                }
                Expr::Dynamic(_) => {}
                expr => checks.push(Check {
                    expr: expr.clone(),
                    columns: expr.columns(),
                    at,
                    by: EvaluatedBy::Encoding,
                    probe: false,
                }),
            }
        }
        // Other splits are being measured, so rates are read once.
        let rate = |check: &Check| self.of(check.at, check.by).rate(check.by);
        let mut rated: Vec<(f64, Check)> = checks.into_iter().map(|check| (rate(&check), check)).collect();
        rated.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        rated.into_iter().map(|(_, check)| check).collect()
    }

    /// A part of a dynamic filter, if it has that part and is worth evaluating.
    fn dynamic(&self, plan: &Plan, filter: &dyn DynamicFilter, at: usize, by: EvaluatedBy) -> Option<Check> {
        let Some(now) = filter.current() else {
            // If only the first rows of an order are wanted, there will be a threshold by the time that this
            // is evaluated.
            plan.best_first.as_ref()?;
            let (expr, columns) = (Expr::Literal(Some(true)), filter.columns());
            return Some(Check { expr, columns, at, by, probe: false });
        };
        let expr = by.part_of(&now);
        if matches!(expr, Expr::Literal(Some(true))) {
            return None;
        }
        let expr = fit_constants(expr, &plan.filter_columns).ok()?;
        let payoff = self.of(at, by);
        let probe = !payoff.pays(by);
        if probe && !payoff.is_probed(by) {
            return None;
        }
        Some(Check { columns: expr.columns(), expr, at, by, probe })
    }

    /// The rows of a split that are still live after filters that may have tightened.
    pub(super) fn recheck(
        &self,
        plan: &Plan,
        split: &Split,
        checks: &[Check],
        have: &SegmentSet<'_>,
    ) -> Result<Mask> {
        let dynamic = |check: &&Check| matches!(plan.conjuncts[check.at], Expr::Dynamic(_));
        let again = |check: &Check| Check { probe: false, ..check.clone() };
        let checks: Vec<Check> = checks.iter().filter(dynamic).map(again).collect();
        self.filter(plan, split, &checks, have)
    }

    /// The rows of a split that pass all checks.
    pub(super) fn filter(
        &self,
        plan: &Plan,
        split: &Split,
        checks: &[Check],
        have: &SegmentSet<'_>,
    ) -> Result<Mask> {
        let mut live = split.live.clone();
        let mut uses = HashMap::new();
        checks.iter().for_each(|check| count_uses(&check.expr, &mut uses));
        let mut columns = Columns { plan, split, have, uses, read: HashMap::new(), shared_bytes: 0 };
        for check in checks {
            let expr = check.latest(plan);
            // There is no threshold yet, which says nothing about what it will reject.
            if matches!(expr, Expr::Literal(Some(true))) {
                continue;
            }
            let payoff = self.of(check.at, check.by);
            if check.by == EvaluatedBy::Caller {
                if payoff.is_due(check.probe) && live.true_count() > SAMPLE_ROWS {
                    columns.passing(&expr, &live.limit(SAMPLE_ROWS), payoff)?;
                }
                if !payoff.pays(EvaluatedBy::Caller) {
                    continue;
                }
            }
            live = columns.passing(&expr, &live, payoff)?;
            if live.is_none() {
                break;
            }
        }
        Ok(live)
    }
}

/// The columns that the filter reads, of the rows of one split.
struct Columns<'a> {
    plan: &'a Plan,
    split: &'a Split,
    have: &'a SegmentSet<'a>,
    /// Number of predicates on values of each column.
    uses: HashMap<FieldPath, usize>,
    read: HashMap<FieldPath, EncodedRef>,
    /// Bytes of decoded rows in `read`.
    shared_bytes: usize,
}

impl Columns<'_> {
    /// The live rows that pass `expr`.
    fn passing(&mut self, expr: &Expr, live: &Mask, payoff: &Payoff) -> Result<Mask> {
        let start = Instant::now();
        let rows = self.split.rows.clone();
        let parts = in_halves(rows.clone(), live, MAX_PARTS, |part, live| {
            let skipped = (part.start - rows.start) as usize;
            Ok((skipped, self.passing_of(expr, part, live)?))
        })?;
        let passed = joined(live.len(), &parts);
        payoff.note(live.true_count(), passed.true_count(), start);
        Ok(passed)
    }

    /// The live ones of some rows of the split that pass `expr`.
    fn passing_of(&mut self, expr: &Expr, rows: &Range<u64>, live: &Mask) -> Result<Mask> {
        // If few rows are live, they are gathered first; otherwise all rows are evaluated in place. A predicate
        // of the caller is costly, and might fail on rows that the caller left out.
        let by_caller = expr.has_row_predicate();
        let narrow = !live.is_all() && (by_caller || live.density() < NARROW_DENSITY);
        let count = if narrow { live.true_count() } else { live.len() };
        let mut decoded: HashMap<FieldPath, EncodedRef> = HashMap::new();
        let mut column = |path: &FieldPath| -> Result<EncodedRef> {
            if let Some(array) = decoded.get(path) {
                return Ok(Arc::clone(array));
            }
            let array =
                if narrow { self.column(path, rows)?.filter(live)? } else { self.shared(path, rows)? };
            if !by_caller || !reads_again(expr, path) {
                return Ok(array);
            }
            // All predicates decode it.
            let array: EncodedRef = Arc::new(array.to_decoded()?);
            decoded.insert(path.clone(), Arc::clone(&array));
            Ok(array)
        };
        let outcome = expr::evaluate(expr, count, &mut column).at(|| expr.to_string())?;
        let outcome = Mask::from_predicate(&outcome);
        Ok(if narrow { live.refine(&outcome) } else { live.and(&outcome) })
    }

    /// Some rows of a column. If several predicates would decompress those of the split, they are decoded, and stay so
    /// until all have been evaluated.
    fn shared(&mut self, path: &FieldPath, rows: &Range<u64>) -> Result<EncodedRef> {
        let array = self.column(path, rows)?;
        let are_kept = *rows == self.split.rows && self.uses.get(path).is_some_and(|uses| *uses > 1);
        if !are_kept || !array.decompresses() {
            return Ok(array);
        }
        let decoded: EncodedRef = Arc::new(array.to_decoded()?);
        let bytes = self.shared_bytes.saturating_add(decoded.buffer_bytes());
        if bytes <= MAX_SHARED {
            self.shared_bytes = bytes;
            self.read.insert(path.clone(), Arc::clone(&decoded));
        }
        Ok(decoded)
    }

    /// Some rows of a column. A part of the split is read anew: the array of all rows takes all their segments, even
    /// if it is sliced.
    fn column(&mut self, path: &FieldPath, rows: &Range<u64>) -> Result<EncodedRef> {
        let column = self.plan.filter_column(path)?;
        if *rows != self.split.rows {
            return column.read(rows, self.have);
        }
        if let Some(array) = self.read.get(path) {
            return Ok(Arc::clone(array));
        }
        let array = column.read(rows, self.have)?;
        self.read.insert(path.clone(), Arc::clone(&array));
        Ok(array)
    }
}

/// The mask of `len` rows that consists of these parts, each with the number of rows before it. No other rows pass.
fn joined(len: usize, parts: &[(usize, Mask)]) -> Mask {
    if let [(_, all)] = parts
        && all.len() == len
    {
        return all.clone();
    }
    let mut bits = BooleanBufferBuilder::new(len);
    for (start, part) in parts {
        bits.append_n(start - bits.len(), false);
        bits.append_buffer(&part.to_bits());
    }
    bits.append_n(len - bits.len(), false);
    Mask::from_bits(bits.finish())
}

/// Counts the predicates on values of each column.
fn count_uses(expr: &Expr, uses: &mut HashMap<FieldPath, usize>) {
    match expr {
        Expr::Field(_, predicate) if predicate.is_null_test() => {}
        Expr::And(parts) | Expr::Or(parts) => parts.iter().for_each(|part| count_uses(part, uses)),
        Expr::Not(inner) => count_uses(inner, uses),
        // Each part needs fewer rows than the one before.
        Expr::InTurn(_) => {}
        other => other.visit_columns(&mut |path| *uses.entry(path.clone()).or_default() += 1),
    }
}

fn reads_again(expr: &Expr, path: &FieldPath) -> bool {
    // Decoded ahead, a column would be decoded for all rows.
    if let Expr::InTurn(_) = expr {
        return false;
    }
    let mut uses = 0;
    expr.visit_columns(&mut |used| uses += usize::from(used == path));
    uses > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payoff(rows: u64, passed: u64, nanos: u64) -> Payoff {
        Payoff { rows: rows.into(), passed: passed.into(), nanos: nanos.into(), ..Payoff::default() }
    }

    #[test]
    fn what_rejects_more_rows_for_its_time_goes_first() {
        let cheap = payoff(100_000, 50_000, 1_000);
        let dear = payoff(100_000, 1_000, 1_000_000);
        let idle = payoff(100_000, 100_000, 1);
        let rate = |payoff: &Payoff| payoff.rate(EvaluatedBy::Encoding);
        assert!(rate(&cheap) > rate(&dear) && rate(&dear) > rate(&idle));
        assert!(rate(&payoff(10, 10, 1_000)) > rate(&cheap), "not measured yet");
    }

    #[test]
    fn a_dynamic_filter_that_rejects_nothing_is_probed_now_and_then() {
        let idle = payoff(1_000_000, 1_000_000, 1);
        assert!(!idle.pays(EvaluatedBy::Encoding));
        assert_eq!((0..64).filter(|_| idle.is_probed(EvaluatedBy::Encoding)).count(), 4);
        let half = payoff(1_000_000, 500_000, 1);
        assert!(half.pays(EvaluatedBy::Encoding) && !half.pays(EvaluatedBy::Caller));
    }
}
