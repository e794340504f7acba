//! Long lists of values, as what excludes a file by its statistics.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_common::stats::Precision;
use datafusion_common::{ScalarValue, Statistics};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, InListExpr, Literal};
use datafusion_pruning::MAX_IN_LIST_SIZE;

use crate::convert::values_of;

/// A list of more values than DataFusion compares with statistics, one of which a column has to have.
pub(super) struct ListedValues {
    column: usize,
    /// Ascending, without nulls.
    values: Vec<ScalarValue>,
}

impl ListedValues {
    /// The values of a filter, if it is such a list. Numbers with two zeros and NaN are left to others.
    pub(super) fn of(filter: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        let list = filter.downcast_ref::<InListExpr>()?;
        let column = list.expr().downcast_ref::<Column>()?.index();
        let data_type = schema.fields().get(column)?.data_type();
        let is_short = list.list().len() <= MAX_IN_LIST_SIZE;
        if list.negated() || is_short || values_of(data_type).is_floating() || data_type.is_nested() {
            return None;
        }
        let value = |item: &Arc<dyn PhysicalExpr>| Some(item.downcast_ref::<Literal>()?.value().clone());
        let mut values = list.list().iter().map(value).collect::<Option<Vec<_>>>()?;
        values.retain(|value| !value.is_null());
        let first = values.first()?.clone();
        let is_comparable = values.iter().all(|value| value.partial_cmp(&first).is_some());
        values.sort_by(|left, right| left.partial_cmp(right).unwrap_or(Ordering::Equal));
        is_comparable.then_some(Self { column, values })
    }

    /// Whether none of the values is within the bounds of the column.
    pub(super) fn exclude(&self, statistics: &Statistics) -> bool {
        let Some(column) = statistics.column_statistics.get(self.column) else { return false };
        let (Precision::Exact(min), Precision::Exact(max)) = (&column.min_value, &column.max_value) else {
            return false;
        };
        let is_comparable = |bound: &ScalarValue| {
            !bound.is_null() && self.values.first().is_some_and(|value| value.partial_cmp(bound).is_some())
        };
        if !is_comparable(min) || !is_comparable(max) {
            return false;
        }
        let at = self.values.partition_point(|value| value < min);
        self.values.get(at).is_none_or(|next| next > max)
    }
}
