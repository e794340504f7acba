//! Filters that tighten while a query runs: top-k thresholds, keys of a join's build side.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::DynamicFilterTracking;
use datafusion_physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};
use parking_lot::Mutex;
use vortex_core::DType;
use vortex_core::expr::{DynamicFilter, Expr, FieldPath};

use super::{Leaves, Translator, simplify};

/// Whether any part of the expression may change while the query runs.
pub(crate) fn is_dynamic(expr: &Arc<dyn PhysicalExpr>) -> bool {
    DynamicFilterTracking::classify(expr).contains_dynamic_filter()
}

/// A DataFusion expression whose meaning changes, translated to filters over one file. The operator that
/// supplied it checks the rows again, so parts that the scan cannot answer are left out.
pub(crate) struct TighteningFilter {
    expr: Arc<dyn PhysicalExpr>,
    columns: Vec<FieldPath>,
    schema: SchemaRef,
    dtype: DType,
    /// Whether the filter may also be applied to rows.
    rows: bool,
    latest: Mutex<Option<(u64, Option<Expr>)>>,
}

impl TighteningFilter {
    /// A filter from an expression over the physical schema of a file of type `dtype`.
    ///
    /// # Errors
    /// If it reads a column that the file lacks.
    pub(crate) fn try_new(expr: Arc<dyn PhysicalExpr>, schema: SchemaRef, dtype: DType) -> Result<Self> {
        let mut leaves = Leaves::default();
        leaves.rewrite(Arc::clone(&expr), &Translator::new(&schema, &dtype))?;
        let columns = leaves.paths().to_vec();
        Ok(Self { expr, columns, schema, dtype, rows: false, latest: Mutex::default() })
    }

    /// Sets whether the filter may be applied to rows, not only to statistics.
    pub(crate) fn with_rows(self, rows: bool) -> Self {
        Self { rows, ..self }
    }

    fn translate(&self) -> Option<Expr> {
        let now = snapshot_physical_expr(Arc::clone(&self.expr)).ok()?;
        let now = simplify(now, &self.schema).ok()?;
        let weaker = Translator::new(&self.schema, &self.dtype).weaken(&now)?;
        (!matches!(weaker, Expr::Literal(Some(true)))).then_some(weaker)
    }
}

impl DynamicFilter for TighteningFilter {
    fn columns(&self) -> Vec<FieldPath> {
        self.columns.clone()
    }

    fn generation(&self) -> u64 {
        snapshot_generation(&self.expr)
    }

    fn current(&self) -> Option<Expr> {
        // Read before the snapshot: the next call then notices a change made in between.
        let generation = self.generation();
        let mut latest = self.latest.lock();
        match latest.as_ref() {
            Some((seen, filter)) if *seen == generation => filter.clone(),
            _ => {
                let filter = self.translate();
                *latest = Some((generation, filter.clone()));
                filter
            }
        }
    }

    fn checks_rows(&self) -> bool {
        self.rows
    }
}

impl fmt::Debug for TighteningFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TighteningFilter").field(&self.expr).finish()
    }
}

impl fmt::Display for TighteningFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expr)
    }
}

#[cfg(test)]
mod tests {
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::{DynamicFilterPhysicalExpr, binary, lit};

    use super::super::expr::tests::File;
    use super::*;

    #[test]
    fn the_filter_follows_its_source() {
        let file = File::sample();
        let source = Arc::new(DynamicFilterPhysicalExpr::new(vec![file.column("i")], lit(true)));
        let expr = Arc::clone(&source) as Arc<dyn PhysicalExpr>;
        let filter = TighteningFilter::try_new(expr, Arc::clone(&file.schema), file.dtype.clone()).unwrap();
        assert_eq!(filter.columns(), [FieldPath::from("i")]);
        assert!(filter.current().is_none());
        let before = filter.generation();
        let bound = binary(file.column("i"), Operator::Lt, lit(7i32), &file.schema).unwrap();
        source.update(bound).unwrap();
        assert_ne!(filter.generation(), before);
        assert_eq!(filter.current().unwrap().to_string(), "i < 7");
    }
}
