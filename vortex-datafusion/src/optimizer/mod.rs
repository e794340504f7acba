//! The optimizer rules of this crate, and how a session gets them.
//!
//! DataFusion does not tell scans all that they need, and takes some of what they state too far. Without the
//! rules, queries are slower, and can return wrong rows: see [`register`](crate::register#without-the-rules).

mod coded_groups;
mod exact_statistics;
mod limited_scans;
mod limited_windows;
mod merged_sorts;
mod misdirected_filters;
mod pushed_aggregates;
mod rounded_filters;
mod tell_scans;
pub(crate) mod unordered;
mod withhold_orders;

use std::sync::Arc;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_datasource::file_scan_config::FileScanConfig;
use datafusion_datasource::source::DataSourceExec;
use datafusion_physical_plan::repartition::RepartitionExec;
use datafusion_physical_plan::{ExecutionPlan, Partitioning, replace_children_if_necessary};
use datafusion_session::Session;

use crate::source::VortexSource;

/// Changes a plan for one purpose.
type Pass = fn(Arc<dyn ExecutionPlan>, &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>>;

/// The passes of one place among the rules of DataFusion.
#[derive(Debug, Clone, Copy)]
struct OwnRule {
    name: &'static str,
    place: Place,
    /// In the order in which they run.
    passes: &'static [Pass],
    keeps_schema: bool,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    First,
    /// Directly before the rule of this name, if there is one.
    Before(&'static str),
    Last,
}

/// In the order of their places. The documentation of [`optimizer_rules`] names them, too.
static RULES: [OwnRule; 5] = [
    OwnRule {
        name: "vortex_first",
        place: Place::First,
        passes: &[
            // Orders that DataFusion would take too far.
            |plan, _| withhold_orders::withhold(plan),
            // Filters that would be passed to other columns.
            |plan, _| misdirected_filters::hold_back(plan),
        ],
        keeps_schema: true,
    },
    OwnRule {
        name: "vortex_before_requirements",
        place: Place::Before("EnsureRequirements"),
        passes: &[
            // Orders of build sides, which joins do not have.
            |plan, _| withhold_orders::withhold_build_sides(plan),
            // Sorts stay above filters that round.
            |plan, _| rounded_filters::with_null_tests(plan),
            // Limits of sorts stay above windows, joins and offsets.
            limited_windows::hold_limits_above,
        ],
        keeps_schema: true,
    },
    OwnRule {
        name: "vortex_before_window_limits",
        place: Place::Before("LimitPushPastWindows"),
        // Orders are told again.
        passes: &[|plan, _| unordered::without_temporary(plan)],
        keeps_schema: true,
    },
    OwnRule {
        name: "vortex_before_pushdown_sort",
        place: Place::Before("PushdownSort"),
        passes: &[
            // Orders do not cross limits of scans.
            |plan, _| limited_scans::add_limits_above(plan),
            // Limits do not cut off rows of windows.
            |plan, _| limited_windows::with_all_rows(plan),
        ],
        keeps_schema: true,
    },
    OwnRule {
        name: "vortex_last",
        place: Place::Last,
        passes: &[
            |plan, _| unordered::without_temporary(plan),
            |plan, _| misdirected_filters::release(plan),
            // What the plan relies on, and which filters are wrong; scans also compute what they can.
            tell_scans::complete,
        ],
        // A value that is known may not be NULL, unlike the one that is computed.
        keeps_schema: false,
    },
];

impl PhysicalOptimizerRule for OwnRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.passes.iter().try_fold(plan, |plan, pass| pass(plan, config))
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        self.keeps_schema
    }
}

/// A rule as DataFusion keeps it.
type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// A list of physical optimizer rules with those of this crate in their places, each once. [`register`], and
/// [`with_vortex`] if it is called last, place them in the list of a session by themselves; this is for engines that
/// put the list together elsewhere, or set it again:
///
/// ```
/// use datafusion::execution::session_state::SessionStateBuilder;
/// use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
/// use vortex_datafusion::optimizer_rules;
///
/// let of_engine = PhysicalOptimizer::new().rules;
/// let builder = SessionStateBuilder::new().with_physical_optimizer_rules(optimizer_rules(of_engine));
/// # let state = builder.build();
/// # assert_eq!(state.physical_optimizers().len(), PhysicalOptimizer::new().rules.len() + 5);
/// ```
///
/// | place | rule | what would be wrong elsewhere |
/// |---|---|---|
/// | the first | `vortex_first` | rules before it may rely on orders that do not hold, and pass filters to other columns: queries return wrong rows |
/// | directly before DataFusion's `EnsureRequirements`, if there is one | `vortex_before_requirements` | sorts are removed above joins, and above filters such as `a / 10 = 6`; limits of sorts get below windows |
/// | directly before DataFusion's `LimitPushPastWindows`, if there is one | `vortex_before_window_limits` | sorts and limits that the rule before has kept hinder other rules |
/// | directly before DataFusion's `PushdownSort`, if there is one | `vortex_before_pushdown_sort` | orders rearrange files below a limit, which then takes other rows; limits cut off rows of windows |
/// | the last | `vortex_last` | rules after it may pass filters to scans that drop rows, or make scans give up an order that a merge needs |
///
/// Rules that do not change what operators compute, such as those that divide a plan among machines, may follow the
/// last. Scans look for all of them in the session that plans them, as in a session that is
/// [registered](crate::register).
///
/// [`register`]: crate::register
/// [`with_vortex`]: crate::VortexSessionExt::with_vortex
pub fn optimizer_rules(mut rules: Vec<Rule>) -> Vec<Rule> {
    place_among(&mut rules, &RULES);
    rules
}

/// Puts rules of this crate in their places, each once.
fn place_among(rules: &mut Vec<Rule>, added: &[OwnRule]) {
    rules.retain(|rule| RULES.iter().all(|own| own.name != rule.name()));
    for own in added {
        let at = match own.place {
            Place::First => Some(0),
            Place::Before(other) => rules.iter().position(|rule| rule.name() == other),
            Place::Last => Some(rules.len()),
        };
        if let Some(at) = at {
            rules.insert(at, Arc::new(*own));
        }
    }
}

/// Adds the rules, each once, if called again. Those that are added to a builder one by one come after its list.
pub(crate) fn with_rules(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let [listed @ .., last] = &RULES;
    place_among(&mut builder.physical_optimizers().get_or_insert_default().rules, listed);
    place_among(builder.physical_optimizer_rules().get_or_insert_default(), std::slice::from_ref(last));
    builder
}

/// Whether the session has the rules: all of them, since `with_physical_optimizer_rules` of a builder leaves only the
/// last. Those before rules that the session does not have are not needed.
pub(crate) fn has_rules(session: &dyn Session) -> bool {
    let Some(state) = session.as_any().downcast_ref::<SessionState>() else { return false };
    let has = |name| state.physical_optimizers().iter().any(|rule| rule.name() == name);
    RULES.iter().all(|own| has(own.name) || matches!(own.place, Place::Before(other) if !has(other)))
}

/// The node, if it is a scan of Vortex files.
fn vortex_scan(node: &Arc<dyn ExecutionPlan>) -> Option<(&FileScanConfig, &VortexSource)> {
    node.downcast_ref::<DataSourceExec>()?.downcast_to_file_source()
}

/// The scan, perhaps with its batches dealt out to more partitions.
fn dealt_scan(node: &Arc<dyn ExecutionPlan>) -> Option<(&FileScanConfig, &VortexSource)> {
    vortex_scan(dealt(node).map_or(node, RepartitionExec::input))
}

/// The node, if it deals batches out to more partitions.
fn dealt(node: &Arc<dyn ExecutionPlan>) -> Option<&RepartitionExec> {
    let dealt = node.downcast_ref::<RepartitionExec>()?;
    matches!(dealt.partitioning(), Partitioning::RoundRobinBatch(_)).then_some(dealt)
}

/// The node with what `change` makes of each of its children, which are numbered.
fn with_children(
    node: &Arc<dyn ExecutionPlan>,
    change: impl Fn(usize, Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let children = node.children().into_iter().cloned().enumerate();
    let changed = children.map(|(at, child)| change(at, child)).collect::<Result<_>>()?;
    replace_children_if_necessary(Arc::clone(node), changed)
}

#[cfg(test)]
mod tests {
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::{VortexSessionExt as _, register};

    fn names(rules: &[Rule]) -> Vec<String> {
        rules.iter().map(|rule| rule.name().to_owned()).collect()
    }

    #[test]
    fn registering_again_adds_no_rule_twice() {
        let twice = SessionStateBuilder::new().with_default_features().with_vortex().with_vortex();
        let context = SessionContext::new_with_state(twice.build());
        register(&context).unwrap();
        let state = context.state();
        assert!(has_rules(&state));
        assert_eq!(
            names(state.physical_optimizers()),
            names(&optimizer_rules(PhysicalOptimizer::new().rules))
        );
    }

    #[test]
    fn a_list_of_rules_gets_those_of_this_crate_in_their_places() {
        let of_engine = PhysicalOptimizer::new().rules;
        let once = optimizer_rules(of_engine.clone());
        let placed = names(&once);
        assert_eq!(placed.len(), of_engine.len() + RULES.len());
        for own in &RULES {
            let at = placed.iter().position(|name| name == own.name).unwrap();
            match own.place {
                Place::First => assert_eq!(at, 0),
                Place::Before(other) => {
                    assert_eq!(placed[at + 1], other, "DataFusion has renamed the rule {other}");
                }
                Place::Last => assert_eq!(at, placed.len() - 1),
            }
        }
        assert_eq!(names(&optimizer_rules(once.clone())), placed);
        let with = |rules| SessionStateBuilder::new().with_physical_optimizer_rules(rules).build();
        assert!(has_rules(&with(once)) && !has_rules(&with(of_engine)));
        assert_eq!(names(&optimizer_rules(Vec::new())), ["vortex_first", "vortex_last"]);
    }
}
