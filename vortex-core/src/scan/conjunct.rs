//! The conjuncts of a filter, resolved against the columns that they read.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::ScanBuilder;
use super::column::Column;
use crate::error::ResultExt as _;
use crate::expr::{Expr, FieldPath};
use crate::{Error, Result};

/// The conjuncts of the filter of a scan, and the columns that they read.
///
/// # Errors
/// If a column does not exist or does not fit its constant, or if a dynamic filter or parts in turn are below an OR or
/// a NOT.
pub(super) fn resolve(scan: &ScanBuilder) -> Result<(Vec<Expr>, HashMap<FieldPath, Column>)> {
    let filter = scan.filter.clone().unwrap_or(Expr::Literal(Some(true)));
    let mut found = HashMap::new();
    let mut conjuncts = Vec::new();
    let all = filter.conjuncts();
    let mut read = HashSet::new();
    all.iter().for_each(|expr| add_read(expr, &mut read));
    for expr in &all {
        let parts = match expr {
            Expr::Dynamic(_) => &[],
            Expr::InTurn(parts) => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        if parts.iter().any(Expr::is_for_and_only) {
            return Err(Error::invalid(format!(
                "dynamic filters, and parts in turn, must be combined with others by AND only: {expr}"
            )));
        }
        for path in expr.columns().into_iter().chain(dynamic_columns(expr)) {
            if let Entry::Vacant(unknown) = found.entry(path) {
                let column = Column::resolve(scan.file.footer(), unknown.key())?;
                let reads_values = read.contains(unknown.key());
                unknown.insert(if reads_values { column } else { column.with_nulls_alone()? });
            }
        }
        conjuncts.push(fit_constants(expr.clone(), &found)?);
    }
    Ok((conjuncts, found))
}

/// Adds the columns of which an expression may need more than which of their rows are null.
fn add_read(expr: &Expr, read: &mut HashSet<FieldPath>) {
    match expr {
        Expr::Field(_, predicate) if predicate.is_null_test() => {}
        Expr::And(parts) | Expr::Or(parts) | Expr::InTurn(parts) => {
            parts.iter().for_each(|part| add_read(part, read));
        }
        Expr::Not(inner) => add_read(inner, read),
        other => read.extend(other.columns().into_iter().chain(dynamic_columns(other))),
    }
}

/// The columns that a conjunct may read, whatever it becomes.
pub(super) fn dynamic_columns(conjunct: &Expr) -> Vec<FieldPath> {
    match conjunct {
        Expr::Dynamic(filter) => filter.columns(),
        _ => Vec::new(),
    }
}

/// Gives constants the types of the columns that they are compared with.
pub(super) fn fit_constants(expr: Expr, columns: &HashMap<FieldPath, Column>) -> Result<Expr> {
    let all = |parts: Vec<Expr>| {
        parts.into_iter().map(|part| fit_constants(part, columns)).collect::<Result<Vec<_>>>()
    };
    Ok(match expr {
        Expr::Field(path, predicate) => match columns.get(&path) {
            Some(column) => {
                let fitted = predicate.coerce(&column.dtype).and_then(|predicate| {
                    predicate.check(&column.dtype)?;
                    Ok(predicate)
                });
                let fitted = fitted.at(|| format!("column `{path}`"))?;
                Expr::Field(path, fitted)
            }
            None => Expr::Field(path, predicate),
        },
        Expr::And(parts) => Expr::And(all(parts)?),
        Expr::Or(parts) => Expr::Or(all(parts)?),
        Expr::InTurn(parts) => Expr::InTurn(all(parts)?),
        Expr::Not(inner) => Expr::Not(Box::new(fit_constants(*inner, columns)?)),
        other => other,
    })
}
