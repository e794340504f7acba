//! Chains of ANDs or ORs, which may be thousands of operands long.
//!
//! ```text
//! DataFusion    ((a OR b) OR c) OR d       as deep as it is long
//! operands      a, b, c, d                 taken apart without recursion
//! balanced      (a OR b) OR (c OR d)       as deep as its logarithm
//! ```

use std::sync::Arc;

use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::BinaryExpr;

/// The operator and the operands of a chain of ANDs or of ORs, in their order; `None` for other expressions.
pub(crate) fn chain(expr: &Arc<dyn PhysicalExpr>) -> Option<(Operator, Vec<&Arc<dyn PhysicalExpr>>)> {
    let op = *expr.downcast_ref::<BinaryExpr>()?.op();
    if !matches!(op, Operator::And | Operator::Or) {
        return None;
    }
    let (mut operands, mut waiting) = (Vec::new(), vec![expr]);
    while let Some(next) = waiting.pop() {
        match next.downcast_ref::<BinaryExpr>().filter(|binary| *binary.op() == op) {
            Some(binary) => waiting.extend([binary.right(), binary.left()]),
            None => operands.push(next),
        }
    }
    Some((op, operands))
}

/// The same filter as a tree of little depth, for code of DataFusion that recurses. Its evaluation may differ: an
/// operand that fails may be evaluated where the original would have stopped before it.
pub(crate) fn balanced(filter: &Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    let Some((op, operands)) = chain(filter) else { return Arc::clone(filter) };
    let operands: Vec<_> = operands.into_iter().map(balanced).collect();
    joined(op, &operands)
}

/// A chain of these operands, of which there is at least one, as a tree of little depth.
pub(super) fn joined(op: Operator, operands: &[Arc<dyn PhysicalExpr>]) -> Arc<dyn PhysicalExpr> {
    if let [one] = operands {
        return Arc::clone(one);
    }
    let (left, right) = operands.split_at(operands.len() / 2);
    Arc::new(BinaryExpr::new(joined(op, left), op, joined(op, right)))
}

#[cfg(test)]
pub(crate) mod tests {
    use datafusion_physical_expr::expressions::lit;

    use super::*;

    /// Operands in a chain as DataFusion plans it.
    pub(crate) fn chained(
        op: Operator,
        operands: impl IntoIterator<Item = Arc<dyn PhysicalExpr>>,
    ) -> Arc<dyn PhysicalExpr> {
        operands.into_iter().reduce(|left, right| Arc::new(BinaryExpr::new(left, op, right))).unwrap()
    }

    fn depth(expr: &Arc<dyn PhysicalExpr>) -> usize {
        expr.children().into_iter().map(depth).max().map_or(0, |below| below + 1)
    }

    fn numbers(count: i32) -> impl Iterator<Item = Arc<dyn PhysicalExpr>> {
        (0..count).map(lit)
    }

    #[test]
    fn a_chain_ends_at_other_operators() {
        let pairs = (0..3).map(|_| chained(Operator::And, numbers(2)));
        let any = chained(Operator::Or, pairs);
        let (op, operands) = chain(&any).unwrap();
        assert_eq!((op, operands.len()), (Operator::Or, 3));
        let (op, operands) = chain(operands[0]).unwrap();
        assert_eq!((op, operands.len()), (Operator::And, 2));
        assert!(chain(operands[0]).is_none());
        assert!(chain(&chained(Operator::Plus, numbers(2))).is_none());
    }

    #[test]
    fn a_balanced_chain_has_the_same_operands_and_little_depth() {
        let any = chained(Operator::Or, numbers(300));
        let flat = balanced(&any);
        assert_eq!((depth(&any), depth(&flat)), (299, 9));
        assert_eq!(chain(&flat), chain(&any));
    }
}
