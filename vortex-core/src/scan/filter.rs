//! Evaluation of a filter on a split: which conjuncts, and in which order.
//!
//! Conjuncts are evaluated one after the other, each only on rows that are still live; those that have
//! rejected the most rows per unit of time go first. A dynamic filter is checked on rows only while it
//! rejects enough of them: the operator that created it checks the rows again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::ScanMetrics;
use super::plan::{Plan, Split, fit_constants};
use super::zone_maps::ZoneMaps;
use crate::Result;
use crate::array::ArrayRef;
use crate::error::ResultExt as _;
use crate::expr::{self, Expr, FieldPath};
use crate::layout::SegmentSet;
use crate::mask::Mask;

/// Below this share of live rows, gathering them first is cheaper than evaluating all rows.
const NARROW_DENSITY: f64 = 0.3;

/// Rows after which the selectivity of a conjunct is considered known.
const MEASURED_ROWS: u64 = 64 << 10;
/// A dynamic filter that lets more than this share of rows pass is not checked on rows ...
const WORTHWHILE: f64 = 0.8;
/// ... except on one in this many splits, since it may have tightened.
const PROBE_EVERY: u64 = 16;

/// A conjunct of the filter to evaluate on a split.
#[derive(Debug, Clone)]
pub(super) struct Check {
    expr: Expr,
    pub(super) columns: Vec<FieldPath>,
    /// Index of the conjunct in the plan.
    at: usize,
}

impl Check {
    /// The expression to evaluate: a dynamic filter may have tightened since the split was admitted.
    fn latest(&self, plan: &Plan) -> Expr {
        let Expr::Dynamic(filter) = &plan.conjuncts[self.at].expr else { return self.expr.clone() };
        let readable = |now: &Expr| now.columns().iter().all(|column| self.columns.contains(column));
        let now = filter.current().filter(readable);
        now.and_then(|now| fit_constants(now, &plan.filter_columns).ok()).unwrap_or_else(|| self.expr.clone())
    }
}

/// Measurements of each conjunct of the filter.
#[derive(Debug)]
pub(super) struct Payoffs(Vec<Payoff>);

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
        ScanMetrics::add_since(&self.nanos, start);
    }

    /// Rows rejected per nanosecond; conjuncts not measured yet come first.
    fn rate(&self) -> f64 {
        let rows = self.rows.load(Ordering::Relaxed);
        if rows < MEASURED_ROWS {
            return f64::INFINITY;
        }
        let rejected = rows.saturating_sub(self.passed.load(Ordering::Relaxed));
        rejected as f64 / self.nanos.load(Ordering::Relaxed).max(1) as f64
    }

    /// Whether to evaluate a conjunct whose evaluation is optional.
    fn worthwhile(&self) -> bool {
        let rows = self.rows.load(Ordering::Relaxed);
        let passed = self.passed.load(Ordering::Relaxed);
        rows < MEASURED_ROWS
            || passed as f64 <= rows as f64 * WORTHWHILE
            || self.skipped.fetch_add(1, Ordering::Relaxed) % PROBE_EVERY == PROBE_EVERY - 1
    }
}

impl Payoffs {
    pub(super) fn new(plan: &Plan) -> Self {
        Self(plan.conjuncts.iter().map(|_| Payoff::default()).collect())
    }

    /// The conjuncts to evaluate on a split, in order: those that statistics do not decide.
    pub(super) fn checks(&self, plan: &Plan, zone_maps: &ZoneMaps, split: &Split) -> Vec<Check> {
        let mut checks: Vec<Check> = zone_maps
            .open_conjuncts(split)
            .into_iter()
            .filter_map(|at| {
                let conjunct = &plan.conjuncts[at];
                let Expr::Dynamic(filter) = &conjunct.expr else {
                    return Some(Check {
                        expr: conjunct.expr.clone(),
                        columns: conjunct.columns.clone(),
                        at,
                    });
                };
                if !filter.checks_rows() {
                    return None;
                }
                match filter.current() {
                    Some(expr) => {
                        let expr = fit_constants(expr, &plan.filter_columns).ok()?;
                        self.0[at].worthwhile().then(|| Check { columns: expr.columns(), expr, at })
                    }
                    // If only the first rows of an order are wanted, there will be a threshold by the
                    // time that this is evaluated.
                    None => plan.best_first.as_ref().map(|_| Check {
                        expr: Expr::Literal(Some(true)),
                        columns: filter.columns(),
                        at,
                    }),
                }
            })
            .collect();
        checks.sort_by(|a, b| self.0[b.at].rate().total_cmp(&self.0[a.at].rate()));
        checks
    }

    /// The rows of a split that are still live after filters that may have tightened.
    pub(super) fn recheck(
        &self,
        plan: &Plan,
        split: &Split,
        checks: &[Check],
        have: &SegmentSet<'_>,
    ) -> Result<Mask> {
        let dynamic = |check: &&Check| matches!(plan.conjuncts[check.at].expr, Expr::Dynamic(_));
        let checks: Vec<Check> = checks.iter().filter(dynamic).cloned().collect();
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
        let mut arrays: HashMap<FieldPath, ArrayRef> = HashMap::new();
        for check in checks {
            let start = Instant::now();
            let expr = check.latest(plan);
            // There is no threshold yet, which says nothing about what it will reject.
            if matches!(expr, Expr::Literal(Some(true))) {
                continue;
            }
            // If few rows are live, they are gathered first; otherwise all rows are evaluated in place. A
            // predicate of the caller might fail on rows that the caller left out.
            let may_fail = plan.leaves_rows_out() && expr.has_row_predicate();
            let narrow = !live.is_all() && (may_fail || live.density() < NARROW_DENSITY);
            let rows = if narrow { live.true_count() } else { live.len() };
            let mut column = |path: &FieldPath| -> Result<ArrayRef> {
                let array = match arrays.get(path) {
                    Some(array) => std::sync::Arc::clone(array),
                    None => {
                        let array = plan.filter_columns[path].read(&split.rows, have)?;
                        arrays.insert(path.clone(), std::sync::Arc::clone(&array));
                        array
                    }
                };
                if narrow { array.filter(&live) } else { Ok(array) }
            };
            let place = || expr.to_string();
            let outcome = Mask::from_predicate(&expr::evaluate(&expr, rows, &mut column).at(place)?);
            let before = live.true_count();
            live = if narrow { live.refine(&outcome) } else { live.and(&outcome) };
            self.0[check.at].note(before, live.true_count(), start);
            if live.is_none() {
                break;
            }
        }
        Ok(live)
    }
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
        assert!(cheap.rate() > dear.rate() && dear.rate() > idle.rate());
        assert!(payoff(10, 10, 1_000).rate() > cheap.rate(), "not measured yet");
    }

    #[test]
    fn a_dynamic_filter_that_rejects_nothing_is_probed_now_and_then() {
        let idle = payoff(1_000_000, 1_000_000, 1);
        let checked = (0..64).filter(|_| idle.worthwhile()).count();
        assert_eq!(checked, 4);
        assert!(payoff(1_000_000, 500_000, 1).worthwhile());
    }
}
