//! Predicates that the caller evaluates.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;

use super::{Expr, FieldPath};
use crate::Result;

/// A predicate over whole rows, supplied by the caller.
pub trait RowPredicate: Debug + Display + Send + Sync {
    /// The columns that it reads. The batch passed to `evaluate` has one column per path, in this order, in
    /// the type that decoding prefers.
    fn columns(&self) -> &[FieldPath];

    /// The Arrow schema that the batch must have, if the types that decoding prefers are not suitable.
    fn schema(&self) -> Option<SchemaRef> {
        None
    }

    /// Returns one outcome per row of the batch, which must depend only on that row.
    ///
    /// # Errors
    /// Any error that makes the query fail, as [`Error::External`](crate::Error::External).
    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray>;
}

impl Expr {
    /// A predicate over whole rows that a function evaluates, as [`RowPredicate`] describes it. Errors and EXPLAIN call
    /// it by its name.
    pub fn rows<P: Into<FieldPath>>(
        name: impl Into<Box<str>>,
        columns: impl IntoIterator<Item = P>,
        evaluate: impl Fn(&RecordBatch) -> Result<BooleanArray> + Send + Sync + 'static,
    ) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        Expr::Rows(Arc::new(RowFunction { name: name.into(), columns, evaluate }))
    }
}

/// A function as a predicate.
struct RowFunction<F> {
    name: Box<str>,
    columns: Box<[FieldPath]>,
    evaluate: F,
}

impl<F> Debug for RowFunction<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowFunction").field("name", &self.name).field("columns", &self.columns).finish()
    }
}

impl<F> Display for RowFunction<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<F: Fn(&RecordBatch) -> Result<BooleanArray> + Send + Sync> RowPredicate for RowFunction<F> {
    fn columns(&self) -> &[FieldPath] {
        &self.columns
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        (self.evaluate)(batch)
    }
}
