//! Filter expressions, which a scan evaluates for every row.
//!
//! An [`Expr`] is boolean, with SQL's three-valued logic. Its leaves are [`Predicate`]s on one column, which
//! encodings can answer without decoding, and [`RowPredicate`]s supplied by the caller, which are evaluated
//! on decoded columns. A row passes if the whole expression is true.

mod column;
mod display;
mod dynamic;
mod eval;
mod in_list;
mod interval;
mod like;
mod lookup;
mod predicate;
mod rows;

use std::sync::Arc;

pub use column::{ColumnExpr, column};
pub use dynamic::{DynamicFilter, SharedFilter};
pub use eval::evaluate;
pub use in_list::InList;
pub(crate) use interval::{Interval, Intervals};
pub use like::Like;
pub(crate) use like::Pattern;
pub use predicate::{CompareOp, Predicate};
pub use rows::RowPredicate;

use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::{Error, Result};

/// A path of field names from the root: `["address", "city"]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(Arc<[Arc<str>]>);

impl FieldPath {
    /// A path from names, outermost first. The empty path is the root itself.
    pub fn new<S: Into<Arc<str>>>(names: impl IntoIterator<Item = S>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// Names, outermost first.
    pub fn names(&self) -> &[Arc<str>] {
        &self.0
    }

    /// The path of a field below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self::new(self.0.iter().cloned().chain([name.into()]))
    }

    /// The type of the field of a struct.
    ///
    /// # Errors
    /// If there is none; the error tells which fields there are.
    pub(crate) fn dtype_in<'a>(&self, root: &'a DType) -> Result<&'a DType> {
        self.names().iter().enumerate().try_fold(root, |dtype, (depth, name)| {
            let fields = dtype.as_struct();
            let field = fields.and_then(|fields| fields.dtypes().get(fields.position(name)?));
            field.ok_or_else(|| self.missing(depth, dtype))
        })
    }

    /// The error for a field that does not exist: `dtype`, which the first `depth` names lead to, has none of the next
    /// name. It lists the first fields there are.
    pub(crate) fn missing(&self, depth: usize, dtype: &DType) -> Error {
        const SHOWN: usize = 20;
        let around = Self::new(self.0[..depth].iter().cloned());
        let Some(fields) = dtype.as_struct() else {
            return Error::invalid(format!("no column `{self}`: `{around}` is {dtype}, without fields"));
        };
        let names: Vec<&str> = fields.names().iter().take(SHOWN).map(|name| &**name).collect();
        let more = match fields.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let place = if depth == 0 { String::new() } else { format!(" in `{around}`") };
        Error::invalid(format!("no column `{self}`; there are{place}: {}{more}", names.join(", ")))
    }
}

impl From<&str> for FieldPath {
    /// A top-level column; dots are part of the name.
    fn from(name: &str) -> Self {
        Self::new([name])
    }
}

impl From<&String> for FieldPath {
    /// A top-level column; dots are part of the name.
    fn from(name: &String) -> Self {
        name.as_str().into()
    }
}

impl From<String> for FieldPath {
    /// A top-level column; dots are part of the name.
    fn from(name: String) -> Self {
        name.as_str().into()
    }
}

impl<const N: usize> From<[&str; N]> for FieldPath {
    /// A field of structs, outermost name first.
    fn from(names: [&str; N]) -> Self {
        Self::new(names)
    }
}

/// A boolean expression over the columns of a file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Expr {
    /// True, false, or unknown for every row.
    Literal(Option<bool>),
    /// A predicate on one column.
    Field(FieldPath, Predicate),
    /// All of these; SQL's AND.
    And(Vec<Expr>),
    /// Any of these; SQL's OR.
    Or(Vec<Expr>),
    /// SQL's NOT: unknown stays unknown.
    Not(Box<Expr>),
    /// All of these, evaluated in this order: each only on rows for which those before it are true, since it may fail
    /// on others. False where one is unknown, so it is combined with other filters by AND only.
    InTurn(Vec<Expr>),
    /// Anything else, evaluated by the caller on decoded columns.
    Rows(Arc<dyn RowPredicate>),
    /// A dynamic filter, which tightens while the scan runs. Rows that it rejects may be dropped, but need not be: the
    /// caller that supplied it checks them again. It is combined with other filters by AND only.
    Dynamic(Arc<dyn DynamicFilter>),
}

impl std::ops::Not for Expr {
    type Output = Self;

    fn not(self) -> Self {
        Expr::Not(Box::new(self))
    }
}

impl Expr {
    /// `column op value`.
    pub fn compare(path: impl Into<FieldPath>, op: CompareOp, value: Scalar) -> Self {
        Expr::Field(path.into(), Predicate::Compare(op, value))
    }

    /// The conjunction of `exprs`, flattened; true if there are none.
    pub fn all(exprs: impl IntoIterator<Item = Expr>) -> Self {
        let mut flat = Vec::new();
        for expr in exprs {
            match expr {
                Expr::And(inner) => flat.extend(inner),
                Expr::Literal(Some(true)) => {}
                other => flat.push(other),
            }
        }
        match flat.len() {
            0 => Expr::Literal(Some(true)),
            1 => flat.remove(0),
            _ => Expr::And(flat),
        }
    }

    /// The disjunction of `exprs`, flattened; false if there are none.
    pub fn any(exprs: impl IntoIterator<Item = Expr>) -> Self {
        let mut flat = Vec::new();
        for expr in exprs {
            match expr {
                Expr::Or(inner) => flat.extend(inner),
                Expr::Literal(Some(false)) => {}
                other => flat.push(other),
            }
        }
        match flat.len() {
            0 => Expr::Literal(Some(false)),
            1 => flat.remove(0),
            _ => Expr::Or(flat),
        }
    }

    /// This and another expression.
    #[must_use]
    pub fn and(self, other: Expr) -> Self {
        Self::all([self, other])
    }

    /// This or another expression.
    #[must_use]
    pub fn or(self, other: Expr) -> Self {
        Self::any([self, other])
    }

    /// The parts that must all hold.
    pub fn conjuncts(&self) -> Vec<Expr> {
        match self {
            Expr::And(parts) => parts.iter().flat_map(Expr::conjuncts).collect(),
            Expr::Literal(Some(true)) => Vec::new(),
            other => vec![other.clone()],
        }
    }

    /// Visits the columns that the expression reads, once per occurrence, but not those of dynamic filters.
    pub(crate) fn visit_columns(&self, visit: &mut dyn FnMut(&FieldPath)) {
        match self {
            Expr::Literal(_) | Expr::Dynamic(_) => {}
            Expr::Field(path, _) => visit(path),
            Expr::And(parts) | Expr::Or(parts) | Expr::InTurn(parts) => {
                parts.iter().for_each(|part| part.visit_columns(visit));
            }
            Expr::Not(inner) => inner.visit_columns(visit),
            Expr::Rows(predicate) => predicate.columns().iter().for_each(visit),
        }
    }

    /// Whether the expression contains a dynamic filter.
    pub(crate) fn has_dynamic_filter(&self) -> bool {
        self.contains(&|part| matches!(part, Expr::Dynamic(_)))
    }

    /// Whether a part of the expression must be combined with others by AND only.
    pub(crate) fn is_for_and_only(&self) -> bool {
        self.contains(&|part| matches!(part, Expr::Dynamic(_) | Expr::InTurn(_)))
    }

    /// Whether the caller evaluates a part of the expression.
    pub(crate) fn has_row_predicate(&self) -> bool {
        self.contains(&|part| match part {
            Expr::Rows(_) => true,
            Expr::Dynamic(filter) => filter.current().is_some_and(|now| now.has_row_predicate()),
            _ => false,
        })
    }

    /// Whether the expression or a part of it is such a one; what dynamic filters are now is no part of them.
    fn contains(&self, is: &dyn Fn(&Expr) -> bool) -> bool {
        is(self)
            || match self {
                Expr::And(parts) | Expr::Or(parts) | Expr::InTurn(parts) => {
                    parts.iter().any(|part| part.contains(is))
                }
                Expr::Not(inner) => inner.contains(is),
                Expr::Literal(_) | Expr::Field(..) | Expr::Rows(_) | Expr::Dynamic(_) => false,
            }
    }

    /// The distinct columns that the expression reads, in order of first use, without those that its dynamic filters
    /// may read: see [`DynamicFilter::columns`].
    pub fn columns(&self) -> Vec<FieldPath> {
        let mut columns = Vec::new();
        self.visit_columns(&mut |path| {
            if !columns.contains(path) {
                columns.push(path.clone());
            }
        });
        columns
    }
}
