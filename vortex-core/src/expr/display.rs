//! Expressions as text, for plans and errors.

use std::fmt;

use super::{CompareOp, Expr, FieldPath, Predicate};

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.names().iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            write!(f, "{dot}{name}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CompareOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CompareOp::Eq => "=",
            CompareOp::NotEq => "!=",
            CompareOp::Lt => "<",
            CompareOp::LtEq => "<=",
            CompareOp::Gt => ">",
            CompareOp::GtEq => ">=",
        })
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: bool| if negated { "NOT " } else { "" };
        match self {
            Predicate::Compare(op, constant) => write!(f, "{op} {constant}"),
            Predicate::Between(low, high) => write!(f, "BETWEEN {low} AND {high}"),
            Predicate::In(list) => {
                write!(f, "{}IN (", not(list.negated()))?;
                for (at, value) in list.values().iter().take(8).enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{value}")?;
                }
                match list.values().len().checked_sub(8) {
                    Some(more) if more > 0 => write!(f, ", {more} more")?,
                    _ => {}
                }
                f.write_str(if list.has_null() { ", null)" } else { ")" })
            }
            Predicate::Like(like) => {
                let i = if like.case_insensitive { "I" } else { "" };
                write!(f, "{}{i}LIKE {:?}", not(like.negated), like.pattern)
            }
            Predicate::IsNull => f.write_str("IS NULL"),
            Predicate::IsNotNull => f.write_str("IS NOT NULL"),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Expr], word: &str| {
            for (at, part) in parts.iter().enumerate() {
                if at > 0 {
                    write!(f, " {word} ")?;
                }
                match part {
                    Expr::And(_) | Expr::Or(_) | Expr::InTurn(_) => write!(f, "({part})")?,
                    other => write!(f, "{other}")?,
                }
            }
            Ok(())
        };
        match self {
            Expr::Literal(None) => f.write_str("null"),
            Expr::Literal(Some(value)) => write!(f, "{value}"),
            Expr::Field(path, predicate) => write!(f, "{path} {predicate}"),
            Expr::And(parts) | Expr::InTurn(parts) => joined(f, parts, "AND"),
            Expr::Or(parts) => joined(f, parts, "OR"),
            Expr::Not(inner) => write!(f, "NOT ({inner})"),
            Expr::Rows(predicate) => write!(f, "{predicate}"),
            Expr::Dynamic(filter) => write!(f, "{filter}"),
        }
    }
}
