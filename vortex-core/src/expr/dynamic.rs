//! Filters that change while a scan runs.

use std::fmt::{self, Debug, Display};

use parking_lot::Mutex;

use super::{Expr, FieldPath};

/// A filter whose bounds tighten while the scan runs: top-k thresholds, join keys.
pub trait DynamicFilter: Debug + Display + Send + Sync {
    /// All columns that `current` may ever read, so that their statistics can be loaded in advance. They must not
    /// change while the scan runs.
    fn columns(&self) -> Vec<FieldPath>;

    /// A number that changes whenever `current` does. Cheap; called per split.
    fn generation(&self) -> u64;

    /// The filter as known now; `None` while nothing is known.
    fn current(&self) -> Option<Expr>;

    /// Whether the filter may be applied to rows, not only to statistics.
    fn checks_rows(&self) -> bool {
        true
    }
}

/// A dynamic filter that its owner [sets](Self::set) while scans run, for instance to the value of the worst of the
/// best rows that it has seen.
///
/// ```
/// use std::sync::Arc;
/// use vortex_core::expr::{Expr, SharedFilter, column};
///
/// let filter = Arc::new(SharedFilter::new(["price"]));
/// let expr = Expr::Dynamic(Arc::clone(&filter) as _);
/// // A scan with this filter returns all rows first, and then no more of those that are in vain.
/// filter.set(column("price").gt(100));
/// # assert_eq!(expr.to_string(), "price > 100");
/// ```
#[derive(Debug)]
pub struct SharedFilter {
    columns: Vec<FieldPath>,
    checks_rows: bool,
    current: Mutex<(u64, Option<Expr>)>,
}

impl SharedFilter {
    /// A filter of which nothing is known yet, but that it will read only these columns.
    pub fn new<P: Into<FieldPath>>(columns: impl IntoIterator<Item = P>) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        Self { columns, checks_rows: true, current: Mutex::default() }
    }

    /// A filter that is applied to statistics only: rows that its owner checks soon anyway are not checked twice.
    #[must_use]
    pub fn for_statistics(mut self) -> Self {
        self.checks_rows = false;
        self
    }

    /// Sets the filter. Rows that an earlier one rejects must not be wanted any more: scans may have dropped them.
    pub fn set(&self, filter: Expr) {
        let mut current = self.current.lock();
        *current = (current.0 + 1, Some(filter));
    }
}

impl Display for SharedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.current() {
            Some(expr) => Display::fmt(&expr, f),
            None => f.write_str("unknown"),
        }
    }
}

impl DynamicFilter for SharedFilter {
    fn columns(&self) -> Vec<FieldPath> {
        self.columns.clone()
    }

    fn generation(&self) -> u64 {
        self.current.lock().0
    }

    fn current(&self) -> Option<Expr> {
        self.current.lock().1.clone()
    }

    fn checks_rows(&self) -> bool {
        self.checks_rows
    }
}
