//! The optimizer rules of this crate, and how a session gets them.
//!
//! DataFusion does not tell scans all that they need, and takes some of what they state too far. Without the
//! rules, results are the same, except where a filter is passed to another column of the same name, or rounds, or windows
//! are limited; but fewer rows are skipped, fewer statistics are used, and scans declare no order.
//!
//! | rule | what it does | see |
//! |---|---|---|
//! | [`WithholdOrders`], before all others | withholds orders that DataFusion would take too far | `withhold_orders.rs` |
//! | | holds back filters that would be passed to other columns | `misdirected_filters.rs` |
//! | [`KeepRanges`], before DataFusion's `EnsureRequirements` | keeps sorts above filters that round | `rounded_filters.rs` |
//! | | keeps limits of sorts above windows | `limited_windows.rs` |
//! | [`KeepLimits`], before DataFusion's `PushdownSort` | keeps orders from crossing limits of scans | `limited_scans.rs` |
//! | | keeps limits from cutting off rows of windows | `limited_windows.rs` |
//! | [`TellScans`], after all others | tells scans what the plan relies on, and which filters are wrong | `tell_scans.rs` |
//! | | answers sums, minima and maxima | `exact_statistics.rs` |
//! | | lets scans compute aggregations | `pushed_aggregates.rs` |
//! | | finds groups by codes | `coded_groups.rs` |
//! | | lets sorts compare what tells their partitions apart | `merged_sorts.rs` |

mod coded_groups;
mod exact_statistics;
mod limited_scans;
mod limited_windows;
mod merged_sorts;
mod misdirected_filters;
mod pushed_aggregates;
mod rounded_filters;
mod tell_scans;
mod withhold_orders;

use std::sync::Arc;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion_datasource::file_scan_config::FileScanConfig;
use datafusion_datasource::source::DataSourceExec;
use datafusion_physical_plan::repartition::RepartitionExec;
use datafusion_physical_plan::{ExecutionPlan, Partitioning};
use datafusion_session::Session;

use limited_scans::KeepLimits;
use rounded_filters::KeepRanges;
use tell_scans::TellScans;
use withhold_orders::WithholdOrders;

use crate::source::VortexSource;

/// A rule as DataFusion keeps it.
type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// A list of physical optimizer rules with those of this crate in their places, each once. [`register`], and
/// [`with_vortex`] if it is called last, place them in the list of a session by themselves; this is for engines that put the
/// list together elsewhere, or set it again:
///
/// ```
/// use datafusion::execution::session_state::SessionStateBuilder;
/// use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
/// use vortex_datafusion::optimizer_rules;
///
/// let of_engine = PhysicalOptimizer::new().rules;
/// let builder = SessionStateBuilder::new().with_physical_optimizer_rules(optimizer_rules(of_engine));
/// # let state = builder.build();
/// # assert_eq!(state.physical_optimizers().len(), PhysicalOptimizer::new().rules.len() + 4);
/// ```
///
/// | place | rule | what would be wrong elsewhere |
/// |---|---|---|
/// | the first | `vortex_withhold_orders` | rules before it may rely on orders that do not hold, and pass filters to other columns: queries return wrong rows |
/// | directly before DataFusion's `EnsureRequirements`, if there is one | `vortex_keep_ranges` | sorts are removed above filters such as `a / 10 = 6`; limits of sorts get below windows |
/// | directly before DataFusion's `PushdownSort`, if there is one | `vortex_keep_limits` | orders rearrange files below a limit, which then takes other rows; limits cut off rows of windows |
/// | the last | `vortex_tell_scans` | rules after it may pass filters to scans that drop rows, or make scans give up an order that a merge needs |
///
/// Rules that do not change what operators compute, such as those that divide a plan among machines, may follow the last.
/// Scans look for all of them in the session that plans them, as in a session that is [registered](crate::register).
///
/// [`register`]: crate::register
/// [`with_vortex`]: crate::VortexSessionExt::with_vortex
pub fn optimizer_rules(mut rules: Vec<Rule>) -> Vec<Rule> {
    place_among(&mut rules);
    rules.push(Arc::new(TellScans));
    rules
}

/// Places all but the last rule.
fn place_among(rules: &mut Vec<Rule>) {
    rules.retain(is_other);
    let others: [(&str, Rule); 2] =
        [(KeepRanges::BEFORE, Arc::new(KeepRanges)), (KeepLimits::BEFORE, Arc::new(KeepLimits))];
    for (before, own) in others {
        if let Some(at) = rules.iter().position(|rule| rule.name() == before) {
            rules.insert(at, own);
        }
    }
    rules.insert(0, Arc::new(WithholdOrders));
}

const NAMES: [&str; 4] = [WithholdOrders::NAME, KeepRanges::NAME, KeepLimits::NAME, TellScans::NAME];

fn is_other(rule: &Rule) -> bool {
    !NAMES.contains(&rule.name())
}

/// Adds the rules, each once, if called again. Those that are added to a builder one by one come after its list.
pub(crate) fn with_rules(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    place_among(&mut builder.physical_optimizers().get_or_insert_default().rules);
    let added = builder.physical_optimizer_rules().get_or_insert_default();
    added.retain(is_other);
    added.push(Arc::new(TellScans));
    builder
}

/// Whether the session has the rules: all of them, since `with_physical_optimizer_rules` of a builder leaves only the
/// last. Those before rules that the session does not have are not needed.
pub(crate) fn has_rules(session: &dyn Session) -> bool {
    let Some(state) = session.as_any().downcast_ref::<SessionState>() else { return false };
    let has = |name| state.physical_optimizers().iter().any(|rule| rule.name() == name);
    let is_kept = |name, before| has(name) || !has(before);
    has(TellScans::NAME)
        && has(WithholdOrders::NAME)
        && is_kept(KeepRanges::NAME, KeepRanges::BEFORE)
        && is_kept(KeepLimits::NAME, KeepLimits::BEFORE)
}

/// The scan, perhaps with its batches dealt out to more partitions.
fn scan_of(node: &Arc<dyn ExecutionPlan>) -> Option<(&FileScanConfig, &VortexSource)> {
    let scan = dealt(node).map_or(node, RepartitionExec::input);
    scan.downcast_ref::<DataSourceExec>()?.downcast_to_file_source()
}

/// The node, if it deals batches out to more partitions.
fn dealt(node: &Arc<dyn ExecutionPlan>) -> Option<&RepartitionExec> {
    let dealt = node.downcast_ref::<RepartitionExec>()?;
    matches!(dealt.partitioning(), Partitioning::RoundRobinBatch(_)).then_some(dealt)
}

#[cfg(test)]
mod tests {
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::{VortexSessionExt as _, register};

    #[test]
    fn registering_again_adds_no_rule_twice() {
        let twice = SessionStateBuilder::new().with_default_features().with_vortex().with_vortex();
        let context = SessionContext::new_with_state(twice.build());
        register(&context).unwrap();
        let state = context.state();
        assert!(has_rules(&state));
        let names: Vec<_> = state.physical_optimizers().iter().map(|rule| rule.name()).collect();
        assert_eq!((names.first(), names.last()), (Some(&WithholdOrders::NAME), Some(&TellScans::NAME)));
        assert_eq!(names.iter().filter(|name| NAMES.contains(name)).count(), NAMES.len());
        for before in [KeepRanges::BEFORE, KeepLimits::BEFORE] {
            assert!(names.contains(&before), "DataFusion has renamed the rule {before}");
        }
    }

    #[test]
    fn a_list_of_rules_gets_those_of_this_crate_in_their_places() {
        let of_engine = PhysicalOptimizer::new().rules;
        let once = optimizer_rules(of_engine.clone());
        let names = |rules: &[Rule]| rules.iter().map(|rule| rule.name().to_owned()).collect::<Vec<_>>();
        let placed = names(&once);
        assert_eq!(placed.len(), of_engine.len() + NAMES.len());
        for (own, before) in [(KeepRanges::NAME, KeepRanges::BEFORE), (KeepLimits::NAME, KeepLimits::BEFORE)]
        {
            let at = placed.iter().position(|name| name == own).unwrap();
            assert_eq!(placed[at + 1], before);
        }
        assert_eq!((&*placed[0], &**placed.last().unwrap()), (WithholdOrders::NAME, TellScans::NAME));
        assert_eq!(names(&optimizer_rules(once.clone())), placed);
        let with = |rules| SessionStateBuilder::new().with_physical_optimizer_rules(rules).build();
        assert!(has_rules(&with(once)) && !has_rules(&with(of_engine)));
        assert_eq!(names(&optimizer_rules(Vec::new())), [WithholdOrders::NAME, TellScans::NAME]);
    }
}
