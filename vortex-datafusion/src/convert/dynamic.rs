//! Dynamic filters, which tighten while a query runs: top-k thresholds, keys of a join's build side.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_common::tree_node::TreeNode as _;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::utils::{collect_columns, split_conjunction};
use datafusion_physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};
use parking_lot::Mutex;
use vortex_core::dtype::DType;
use vortex_core::expr::{DynamicFilter, Expr, FieldPath};

use super::expr::branches;
use super::{Leaves, PhysicalPredicate, Translator, is_fallible, simplify};

/// Up to this many branches of a CASE are all evaluated on each row.
const FEW_BRANCHES: usize = 4;

/// A DataFusion expression whose meaning changes, translated to filters over one file. Parts that encodings
/// cannot answer, such as look-ups in the hash table of a join, are evaluated by DataFusion on decoded columns,
/// or left out: the operator that supplied the filter checks the rows again.
pub(crate) struct TranslatedFilter {
    expr: Arc<dyn PhysicalExpr>,
    columns: Vec<FieldPath>,
    schema: SchemaRef,
    dtype: DType,
    applied_to: AppliedTo,
    latest: Mutex<Option<(u64, Option<Expr>)>>,
}

/// To what a filter is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppliedTo {
    Statistics,
    /// Also to rows, but for parts that encodings cannot answer.
    EncodedRows,
    /// Also to rows, with those parts, if they can be evaluated on any row.
    AllRows,
}

impl TranslatedFilter {
    /// A filter from an expression over the physical schema of a file of type `dtype`.
    ///
    /// # Errors
    /// If it reads a column that the file lacks.
    pub(crate) fn try_new(
        expr: Arc<dyn PhysicalExpr>,
        schema: SchemaRef,
        dtype: DType,
        applied_to: AppliedTo,
    ) -> Result<Self> {
        let mut leaves = Leaves::default();
        leaves.rewrite(Arc::clone(&expr), &Translator::new(&schema, &dtype))?;
        let columns = leaves.paths().to_vec();
        Ok(Self { expr, columns, schema, dtype, applied_to, latest: Mutex::default() })
    }

    fn translate(&self) -> Option<Expr> {
        let now = snapshot_physical_expr(Arc::clone(&self.expr)).ok()?;
        // DataFusion 55 may leave columns of a projection above the scan in it, which are others than those of the
        // file. See `tests/it/upstream/filters.rs`: `keys_that_are_found_in_others_are_replaced_wrongly`.
        if !collect_columns(&now).is_subset(&collect_columns(&self.expr)) {
            return None;
        }
        let now = simplify(now, &self.schema).ok()?;
        self.parts(&now, &Translator::new(&self.schema, &self.dtype))
    }

    /// All that the scan can check of `expr`; `None` if that is nothing.
    fn parts(&self, expr: &Arc<dyn PhysicalExpr>, file: &Translator) -> Option<Expr> {
        let (mut answered, mut evaluated) = (Vec::new(), Vec::new());
        for part in split_conjunction(expr) {
            let (weaker, is_whole) = file.weaken(part);
            answered.extend(weaker);
            evaluated.extend(if is_whole { None } else { self.evaluated(part, file) });
        }
        let all = Expr::all(answered.into_iter().chain(evaluated));
        (!matches!(all, Expr::Literal(Some(true)))).then_some(all)
    }

    /// A part that encodings cannot answer as a filter that DataFusion evaluates, if it cannot fail: it is also
    /// evaluated on rows that other filters reject. Floating-point numbers are left to the operator, since sorts and
    /// joins differ in whether their zeros are equal.
    fn evaluated(&self, part: &Arc<dyn PhysicalExpr>, file: &Translator) -> Option<Expr> {
        if self.applied_to != AppliedTo::AllRows {
            return None;
        }
        // A key is in the table of one partition of a join. To look it up in a few tables is faster than to
        // compute its partition.
        let branches: Vec<_> = branches(part).into_iter().flatten().collect();
        if (1..=FEW_BRANCHES).contains(&branches.len()) {
            let any = branches.into_iter().map(|branch| self.parts(branch, file));
            return any.collect::<Option<Vec<_>>>().map(Expr::any);
        }
        let is_floating =
            |node: &Arc<dyn PhysicalExpr>| node.data_type(&self.schema).map(|of| of.is_floating());
        if is_fallible(part, &self.schema) || part.exists(is_floating).unwrap_or(true) {
            return None;
        }
        let expr = Expr::Rows(Arc::new(PhysicalPredicate::try_new(part, file).ok()?));
        expr.columns().iter().all(|column| self.columns.contains(column)).then_some(expr)
    }
}

impl DynamicFilter for TranslatedFilter {
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
        self.applied_to != AppliedTo::Statistics
    }
}

impl fmt::Debug for TranslatedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TranslatedFilter").field(&self.expr).finish()
    }
}

impl fmt::Display for TranslatedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expr)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::{DynamicFilterPhysicalExpr, binary, case, lit};
    use vortex_core::dtype::arrow::from_schema;

    use super::super::expr::tests::File;
    use super::*;

    #[test]
    fn the_filter_follows_its_source() {
        let file = File::sample();
        let source = Arc::new(DynamicFilterPhysicalExpr::new(vec![file.column("i")], lit(true)));
        let expr = Arc::clone(&source) as Arc<dyn PhysicalExpr>;
        let (schema, dtype) = (Arc::clone(&file.schema), file.dtype.clone());
        let filter = TranslatedFilter::try_new(expr, schema, dtype, AppliedTo::Statistics).unwrap();
        assert_eq!(filter.columns(), [FieldPath::from("i")]);
        assert!(filter.current().is_none());
        let before = filter.generation();
        let bound = binary(file.column("i"), Operator::Lt, lit(7i32), &file.schema).unwrap();
        source.update(bound).unwrap();
        assert_ne!(filter.generation(), before);
        assert_eq!(filter.current().unwrap().to_string(), "i < 7");
    }

    /// What remains of `expr` as the filter of a join or a sort.
    fn shown(file: &File, expr: Arc<dyn PhysicalExpr>, evaluates: bool) -> Option<String> {
        let columns = collect_columns(&expr).into_iter();
        let columns = columns.map(|column| Arc::new(column) as Arc<dyn PhysicalExpr>).collect();
        let source = Arc::new(DynamicFilterPhysicalExpr::new(columns, expr));
        let applied = if evaluates { AppliedTo::AllRows } else { AppliedTo::EncodedRows };
        let (schema, dtype) = (Arc::clone(&file.schema), file.dtype.clone());
        let filter = TranslatedFilter::try_new(source, schema, dtype, applied).unwrap();
        filter.current().map(|now| now.to_string())
    }

    #[test]
    fn what_encodings_cannot_answer_is_evaluated_on_rows_if_it_cannot_fail() {
        let file = File::sample();
        let of = |left, op, right: i32| binary(left, op, lit(right), &file.schema).unwrap();
        let next = of(file.column("i"), Operator::Plus, 1);
        let quotient = binary(lit(100i32), Operator::Divide, file.column("i"), &file.schema).unwrap();
        let bound = of(file.column("i"), Operator::Gt, 3);
        let both =
            binary(Arc::clone(&bound), Operator::And, of(next, Operator::Lt, 9), &file.schema).unwrap();
        assert_eq!(shown(&file, Arc::clone(&both), true).unwrap(), "i > 3 AND i@0 + 1 < 9");
        assert_eq!(shown(&file, both, false).unwrap(), "i > 3");
        assert_eq!(shown(&file, of(quotient, Operator::Lt, 9), true), None, "i may be 0");
    }

    #[test]
    fn the_branches_of_a_join_are_evaluated_only_if_encodings_do_not_answer_them() {
        let file = File::sample();
        let of = |left, op, right: i32| binary(left, op, lit(right), &file.schema).unwrap();
        let low = of(file.column("i"), Operator::Lt, 3);
        let next = of(of(file.column("i"), Operator::Plus, 1), Operator::Gt, 9);
        let choose = |branch: &Arc<dyn PhysicalExpr>, count: usize| {
            let when =
                (1..count).map(|at| (of(file.column("i"), Operator::Eq, at as i32), Arc::clone(branch)));
            case(None, when.collect(), Some(Arc::clone(&low))).unwrap()
        };
        assert_eq!(shown(&file, choose(&low, 2), true).unwrap(), "i < 3 OR i < 3");
        assert_eq!(shown(&file, choose(&next, 2), true).unwrap(), "i@0 + 1 > 9 OR i < 3");
        assert!(shown(&file, choose(&next, 5), true).unwrap().starts_with("CASE WHEN"));
        assert_eq!(shown(&file, choose(&next, 2), false), None);
    }

    #[test]
    fn numbers_with_two_zeros_are_left_to_the_operator() {
        let schema = Arc::new(Schema::new(vec![Field::new("f", DataType::Float64, true)]));
        let file = File { dtype: from_schema(&schema).unwrap(), schema };
        let next = binary(file.column("f"), Operator::Plus, lit(1.0), &file.schema).unwrap();
        let below = binary(next, Operator::Lt, lit(9.0), &file.schema).unwrap();
        assert_eq!(shown(&file, below, true), None);
    }
}
