//! Construction of filters in Rust: `column("price").gt(100)`.

use std::sync::Arc;

use super::{CompareOp, Expr, FieldPath, InList, Like, Predicate};
use crate::scalar::Scalar;

/// A column to be compared with values; created by [`column()`].
#[derive(Debug, Clone)]
pub struct ColumnExpr(FieldPath);

/// The column at a path, for building filters. A name stands for a top-level column, an array of names for a
/// field of structs.
///
/// Values have the column's type, or are converted to it when the scan starts: `7` can be compared with a
/// column of any numeric type.
///
/// ```
/// use vortex_core::expr::{Expr, column};
///
/// let cheap = Expr::all([column("price").lt(100), column("name").like("%tea%")]);
/// let near = column(["address", "zip"]).between(1000, 1999).or(column("pickup").is_null());
/// assert_eq!(cheap.to_string(), r#"price < 100 AND name LIKE "%tea%""#);
/// assert_eq!(near.to_string(), "address.zip BETWEEN 1000 AND 1999 OR pickup IS NULL");
/// ```
pub fn column(path: impl Into<FieldPath>) -> ColumnExpr {
    ColumnExpr(path.into())
}

impl ColumnExpr {
    fn is(self, predicate: Predicate) -> Expr {
        Expr::Field(self.0, predicate)
    }

    fn compare(self, op: CompareOp, value: impl Into<Scalar>) -> Expr {
        self.is(Predicate::Compare(op, value.into()))
    }

    /// `column = value`.
    pub fn eq(self, value: impl Into<Scalar>) -> Expr {
        self.compare(CompareOp::Eq, value)
    }

    /// `column <> value`.
    pub fn not_eq(self, value: impl Into<Scalar>) -> Expr {
        self.compare(CompareOp::NotEq, value)
    }

    /// `column < value`.
    pub fn lt(self, value: impl Into<Scalar>) -> Expr {
        self.compare(CompareOp::Lt, value)
    }

    /// `column <= value`.
    pub fn lt_eq(self, value: impl Into<Scalar>) -> Expr {
        self.compare(CompareOp::LtEq, value)
    }

    /// `column > value`.
    pub fn gt(self, value: impl Into<Scalar>) -> Expr {
        self.compare(CompareOp::Gt, value)
    }

    /// `column >= value`.
    pub fn gt_eq(self, value: impl Into<Scalar>) -> Expr {
        self.compare(CompareOp::GtEq, value)
    }

    /// `column BETWEEN low AND high`, both included.
    pub fn between(self, low: impl Into<Scalar>, high: impl Into<Scalar>) -> Expr {
        self.is(Predicate::Between(low.into(), high.into()))
    }

    /// `column IN (values)`.
    pub fn is_in<V: Into<Scalar>>(self, values: impl IntoIterator<Item = V>) -> Expr {
        self.is(Predicate::In(Arc::new(InList::new(values.into_iter().map(Into::into)))))
    }

    /// `column NOT IN (values)`.
    pub fn not_in<V: Into<Scalar>>(self, values: impl IntoIterator<Item = V>) -> Expr {
        self.is(Predicate::In(Arc::new(InList::new(values.into_iter().map(Into::into)).with_negated(true))))
    }

    /// `column LIKE pattern`: `%` matches any characters, `_` matches any one character, `\` escapes.
    pub fn like(self, pattern: impl Into<Arc<str>>) -> Expr {
        self.is(Predicate::Like(Like::new(pattern)))
    }

    /// `column NOT LIKE pattern`.
    pub fn not_like(self, pattern: impl Into<Arc<str>>) -> Expr {
        self.is(Predicate::Like(Like::new(pattern).with_negated(true)))
    }

    /// `column ILIKE pattern`: as [`like`](Self::like), whatever the case of letters.
    pub fn ilike(self, pattern: impl Into<Arc<str>>) -> Expr {
        self.is(Predicate::Like(Like::new(pattern).with_case_insensitive(true)))
    }

    /// `column NOT ILIKE pattern`.
    pub fn not_ilike(self, pattern: impl Into<Arc<str>>) -> Expr {
        self.is(Predicate::Like(Like::new(pattern).with_negated(true).with_case_insensitive(true)))
    }

    /// `column IS NULL`.
    pub fn is_null(self) -> Expr {
        self.is(Predicate::IsNull)
    }

    /// `column IS NOT NULL`.
    pub fn is_not_null(self) -> Expr {
        self.is(Predicate::IsNotNull)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_read_like_sql() {
        let shown = |expr: Expr| expr.to_string();
        assert_eq!(shown(column("a").not_in([1, 2])), "a NOT IN (1, 2)");
        assert_eq!(shown(column("a").not_like("x%")), r#"a NOT LIKE "x%""#);
        assert_eq!(shown(column("a").ilike("x%")), r#"a ILIKE "x%""#);
        assert_eq!(shown(column("a").not_ilike("x%")), r#"a NOT ILIKE "x%""#);
        let either = column("a").eq(1).or(column("b").eq(2));
        assert_eq!(shown(either.clone().and(column("c").is_null())), "(a = 1 OR b = 2) AND c IS NULL");
        assert_eq!(shown(!either), "NOT (a = 1 OR b = 2)");
    }
}
