//! An optimizer rule that withholds orders of scans from plans that would take them too far.
//!
//! DataFusion 55 supposes that every cast between temporal types preserves the order. If rows are in the order
//! of timestamps, it therefore removes a sort by their times of day, and joins by merging what is not sorted:
//!
//! ```text
//! ts                   2026-01-01 07:00   2026-01-01 14:00   2026-01-02 04:00
//! CAST(ts AS TIME)     07:00              14:00              04:00
//! ```
//!
//! If a plan contains such a cast, the orders that its scans declare end at the first temporal column. This rule
//! runs before all others, which rely on what scans declare.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion};
use datafusion_datasource::source::DataSourceExec;
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, TryCastExpr};
use datafusion_physical_expr::utils::{collect_columns, split_conjunction};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::filter::FilterExec;

use crate::convert::cast_keeps_order;
use crate::ordering::without_temporal_orders;
use crate::source::VortexSource;

/// Withholds orders of temporal columns from plans that cast such columns in ways that change the order.
#[derive(Debug, Default)]
pub(crate) struct WithholdOrders;

impl WithholdOrders {
    pub(crate) const NAME: &'static str = "vortex_withhold_orders";
}

impl PhysicalOptimizerRule for WithholdOrders {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !plan.exists(reorders)? {
            return Ok(plan);
        }
        let withhold = |node: Arc<dyn ExecutionPlan>| {
            let scan = node.downcast_ref::<DataSourceExec>();
            let scan = scan.and_then(|scan| scan.downcast_to_file_source::<VortexSource>());
            Ok(match scan.and_then(|(config, _)| without_temporal_orders(config)) {
                Some(config) => Transformed::yes(DataSourceExec::from_data_source(config) as Arc<_>),
                None => Transformed::no(node),
            })
        };
        plan.transform_up(withhold).data()
    }

    fn name(&self) -> &str {
        Self::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether an expression of the operator casts temporal values in a way that changes their order. Of the
/// conjuncts of filters, only those that equate columns matter: then the order of one is that of the other.
fn reorders(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let inputs: Vec<_> = node.children().into_iter().map(|child| child.schema()).collect();
    let is_filter = node.is::<FilterExec>();
    let mut found = false;
    node.apply_expressions(&mut |expr| {
        for part in split_conjunction(expr) {
            found = found
                || ((!is_filter || equates_columns(part))
                    && part.exists(|part| Ok(is_reordering_cast(part, &inputs)))?);
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn equates_columns(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let Some(binary) = expr.downcast_ref::<BinaryExpr>() else { return false };
    let has_columns = |side| !collect_columns(side).is_empty();
    *binary.op() == Operator::Eq && has_columns(binary.left()) && has_columns(binary.right())
}

/// An expression of an operator with several inputs may refer to all of them: what cannot be known is supposed
/// to change the order.
fn is_reordering_cast(expr: &Arc<dyn PhysicalExpr>, inputs: &[Arc<Schema>]) -> bool {
    let (operand, to) = if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        (cast.expr(), cast.cast_type())
    } else if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
        (cast.expr(), cast.cast_type())
    } else {
        return false;
    };
    let from = match inputs {
        [input] => operand.data_type(input).ok(),
        _ => None,
    };
    to.is_temporal() && from.is_none_or(|from| from.is_temporal() && !cast_keeps_order(&from, to))
}
