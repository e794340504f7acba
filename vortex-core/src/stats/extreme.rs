//! The extremes of some rows, and their order.

use std::cmp::Ordering;

use super::Precision;
use crate::dtype::DType;
use crate::scalar::{Scalar, Value, compare_values};

/// The minimum or the maximum value of some rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Extreme {
    /// There are no values: all rows are null or NaN.
    #[default]
    Nothing,
    /// This value, or a bound if it is not exact.
    Bound { value: Value, exact: bool },
    /// There are values, but no bound that could be stored.
    Unbounded,
}

impl Extreme {
    pub(super) fn exact(value: Value) -> Self {
        Extreme::Bound { value, exact: true }
    }

    /// The bound, if there is one.
    pub(crate) fn bound(&self) -> Option<&Value> {
        match self {
            Extreme::Bound { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The more extreme of two; `wins` orders their values.
    pub(super) fn merge(self, other: Self, wins: Ordering) -> Self {
        match (self, other) {
            (Extreme::Nothing, any) | (any, Extreme::Nothing) => any,
            (Extreme::Unbounded, _) | (_, Extreme::Unbounded) => Extreme::Unbounded,
            (Extreme::Bound { value: a, exact }, Extreme::Bound { value: b, exact: other }) => {
                match compare_values(&a, &b) {
                    // If the bounds are equal and one is exact, the merged bound is exact, too.
                    Some(Ordering::Equal) => Extreme::Bound { value: a, exact: exact || other },
                    Some(order) if order == wins => Extreme::Bound { value: a, exact },
                    Some(_) => Extreme::Bound { value: b, exact: other },
                    None => Extreme::Unbounded,
                }
            }
        }
    }

    pub(super) fn precision(&self, dtype: &DType) -> Precision<Scalar> {
        let Extreme::Bound { value, exact } = self else { return Precision::Absent };
        match Scalar::try_new(dtype.clone(), value.clone()) {
            Ok(value) if *exact => Precision::Exact(value),
            Ok(value) => Precision::Inexact(value),
            Err(_) => Precision::Absent,
        }
    }
}

/// The order of values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Order {
    /// Unknown.
    Unknown,
    /// They are not sorted.
    Broken,
    /// They are ascending from the first to the last, strictly or not.
    Rising { strictly: bool, first: Value, last: Value },
}

impl Order {
    pub(super) fn merge(self, next: Self) -> Self {
        match (self, next) {
            (Order::Unknown, _) | (_, Order::Unknown) => Order::Unknown,
            (Order::Broken, _) | (_, Order::Broken) => Order::Broken,
            (
                Order::Rising { strictly: a, first, last: before },
                Order::Rising { strictly: b, first: after, last },
            ) => match compare_values(&before, &after) {
                Some(Ordering::Less) => Order::Rising { strictly: a && b, first, last },
                Some(Ordering::Equal) => Order::Rising { strictly: false, first, last },
                Some(Ordering::Greater) => Order::Broken,
                None => Order::Unknown,
            },
        }
    }
}
