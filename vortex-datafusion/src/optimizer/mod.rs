//! The optimizer rules of this crate, and how a session gets them.
//!
//! DataFusion does not tell scans all that they need, and takes some of what they state too far. Without the
//! rules, results are the same, except where a filter is passed to another column of the same name; but fewer
//! rows are skipped, fewer statistics are used, and scans declare no order.
//!
//! | rule | what it does | see |
//! |---|---|---|
//! | [`WithholdOrders`], before all others | withholds orders that DataFusion would take too far | `withhold_orders.rs` |
//! | | holds back filters that would be passed to other columns | `misdirected_filters.rs` |
//! | [`KeepLimits`], before DataFusion's `PushdownSort` | keeps orders from crossing limits of scans | `limited_scans.rs` |
//! | [`TellScans`], after all others | tells scans what the plan relies on, and which filters are wrong | `tell_scans.rs` |
//! | | answers sums, minima and maxima | `exact_statistics.rs` |
//! | | lets scans compute aggregations | `pushed_aggregates.rs` |

mod exact_statistics;
mod limited_scans;
mod misdirected_filters;
mod pushed_aggregates;
mod tell_scans;
mod withhold_orders;

use std::sync::Arc;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion_session::Session;

use limited_scans::KeepLimits;
use tell_scans::TellScans;
use withhold_orders::WithholdOrders;

/// Adds the rules, each once, if called again.
pub(crate) fn with_rules(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let is_other = |rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>| {
        ![TellScans::NAME, KeepLimits::NAME, WithholdOrders::NAME].contains(&rule.name())
    };
    let rules = &mut builder.physical_optimizers().get_or_insert_default().rules;
    rules.retain(is_other);
    if let Some(at) = rules.iter().position(|rule| rule.name() == KeepLimits::BEFORE) {
        rules.insert(at, Arc::new(KeepLimits));
    }
    rules.insert(0, Arc::new(WithholdOrders));
    let added = builder.physical_optimizer_rules().get_or_insert_default();
    added.retain(is_other);
    added.push(Arc::new(TellScans));
    builder
}

/// Whether the session has the rules: all of them, since `with_physical_optimizer_rules` of a builder leaves only the
/// last. Without `PushdownSort`, the one before it is not needed.
pub(crate) fn has_rules(session: &dyn Session) -> bool {
    let Some(state) = session.as_any().downcast_ref::<SessionState>() else { return false };
    let has = |name| state.physical_optimizers().iter().any(|rule| rule.name() == name);
    let keeps_limits = has(KeepLimits::NAME) || !has(KeepLimits::BEFORE);
    has(TellScans::NAME) && has(WithholdOrders::NAME) && keeps_limits
}

#[cfg(test)]
mod tests {
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
        let ours = |name: &&&str| [TellScans::NAME, KeepLimits::NAME, WithholdOrders::NAME].contains(*name);
        assert_eq!(names.iter().filter(ours).count(), 3);
        assert!(names.contains(&KeepLimits::BEFORE), "DataFusion has renamed the rule");
    }
}
