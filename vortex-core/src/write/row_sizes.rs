//! What waiting rows take.

use std::ops::{AddAssign, Sub, SubAssign};

/// Bytes of some rows of a leaf, counted in three ways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RowSizes {
    /// Of the values of all rows.
    pub(super) raw: usize,
    /// Of the rows as one array, without runs: as `raw`, but views share long text.
    pub(super) joined: usize,
    /// Of the arrays in which the rows wait.
    pub(super) waiting: usize,
}

impl RowSizes {
    /// The share of `rows` of the `all` rows that have these sizes, if all rows are equally long.
    pub(super) fn share(self, rows: usize, all: usize) -> Self {
        let share = |bytes: usize| (bytes as u128 * rows as u128 / all.max(1) as u128) as usize;
        Self { raw: share(self.raw), joined: share(self.joined), waiting: share(self.waiting) }
    }

    /// Bytes that the rows take in addition once they are one array: runs are expanded.
    pub(super) fn expansion(self) -> usize {
        self.joined.saturating_sub(self.waiting)
    }
}

impl AddAssign for RowSizes {
    fn add_assign(&mut self, more: Self) {
        self.raw += more.raw;
        self.joined += more.joined;
        self.waiting += more.waiting;
    }
}

impl SubAssign for RowSizes {
    fn sub_assign(&mut self, less: Self) {
        self.raw -= less.raw;
        self.joined -= less.joined;
        self.waiting -= less.waiting;
    }
}

impl Sub for RowSizes {
    type Output = Self;

    fn sub(mut self, less: Self) -> Self {
        self -= less;
        self
    }
}
