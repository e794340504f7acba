//! The conjuncts of the filter of a scan, in the order in which they may be evaluated.
//!
//! ```text
//! in the query    a  AND  b!  AND  c  AND  d!  AND  e
//! in the scan     a,  c,  e,  InTurn(a, b!, c, d!)          ! may fail for some rows
//! ```
//!
//! A scan evaluates conjuncts in any order, and on all rows that none of the others has rejected yet. SQL lets `b <> 0
//! AND a / b > 1` protect its division, so conjuncts that may fail must not be evaluated on rows that those before them
//! reject. They become one conjunct, together with all before the last of them, which is evaluated in turn: each part
//! only on rows that passed the parts before it. Conjuncts that cannot fail are also there on their own, since they can
//! skip data.

use vortex_core::expr::Expr;

use crate::convert::fuse_bounds;

/// How a conjunct is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evaluation {
    /// On encodings, where possible. It cannot fail.
    Native,
    /// By DataFusion on decoded columns. It cannot fail.
    Decoded,
    /// By DataFusion on decoded columns, which may fail for some rows.
    Fallible,
}

/// Conjuncts of one scan.
#[derive(Debug, Default)]
pub(super) struct Conjuncts {
    native: Vec<Expr>,
    decoded: Vec<Expr>,
    /// All of them, in the order of the query.
    all: Vec<Expr>,
    /// How many there are up to the last one that may fail.
    in_turn: usize,
}

impl Conjuncts {
    /// Adds the next conjunct of the query.
    pub(super) fn push(&mut self, conjunct: Expr, evaluation: Evaluation) {
        self.all.push(conjunct.clone());
        match evaluation {
            Evaluation::Native => self.native.push(conjunct),
            Evaluation::Decoded => self.decoded.push(conjunct),
            Evaluation::Fallible => self.in_turn = self.all.len(),
        }
    }

    /// What the scan evaluates.
    pub(super) fn finish(mut self) -> Vec<Expr> {
        let mut conjuncts = fuse_bounds(self.native);
        conjuncts.extend(self.decoded);
        if self.in_turn > 0 {
            self.all.truncate(self.in_turn);
            conjuncts.push(Expr::InTurn(self.all));
        }
        conjuncts
    }
}

#[cfg(test)]
mod tests {
    use vortex_core::expr::column;

    use super::*;

    /// What is evaluated of conjuncts on columns of these names, each in its own way.
    fn finished(conjuncts: &[(&str, Evaluation)]) -> Vec<String> {
        let mut all = Conjuncts::default();
        for (name, evaluation) in conjuncts {
            all.push(column(*name).gt(0), *evaluation);
        }
        all.finish().iter().map(Expr::to_string).collect()
    }

    #[test]
    fn a_conjunct_that_may_fail_is_evaluated_after_those_before_it() {
        use Evaluation::{Decoded, Fallible, Native};
        let all = [("a", Native), ("b", Fallible), ("c", Decoded), ("d", Fallible), ("e", Native)];
        let expected = ["a > 0", "e > 0", "c > 0", "a > 0 AND b > 0 AND c > 0 AND d > 0"];
        assert_eq!(finished(&all), expected);
        assert_eq!(finished(&[("a", Decoded), ("b", Native)]), ["b > 0", "a > 0"]);
        assert!(finished(&[]).is_empty());
    }
}
