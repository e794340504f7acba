//! What is stated about some rows, compared with their values.

use std::cmp::Ordering;

use arrow::array::{Array as _, ArrayRef};

use super::Verification;
use crate::Result;
use crate::array::Aggregate;
use crate::dtype::DType;
use crate::layout::ZoneMap;
use crate::scalar::Scalar;
use crate::stats::compute::Summary;
use crate::stats::{FieldStats, is_float, widen_zero};

/// Properties of the values of some rows.
pub(super) struct Actual {
    summary: Summary,
    /// Aggregates of text, whose extremes the summary truncates.
    text: Option<Aggregate>,
}

impl Actual {
    pub(super) fn of(array: &ArrayRef, dtype: &DType) -> Result<Self> {
        let is_text = matches!(dtype.storage(), DType::Utf8(_) | DType::Binary(_));
        let text = if is_text { Some(Aggregate::of(array, dtype)?) } else { None };
        Ok(Self { summary: Summary::of(array, dtype), text })
    }

    pub(super) fn merge(self, next: Self) -> Self {
        let text = self.text.zip(next.text).map(|(text, next)| text.merge(next));
        Self { summary: self.summary.merge(next.summary), text }
    }

    pub(super) fn row_count(&self) -> u64 {
        self.summary.rows
    }

    /// The minimum and the maximum value, if there are any.
    fn extremes(&self, dtype: &DType) -> Option<(Scalar, Scalar)> {
        if let Some(text) = &self.text {
            return text.min.clone().zip(text.max.clone());
        }
        let scalar = |value| Scalar::try_new(dtype.with_nullable(true), value).ok();
        Some((scalar(self.summary.min.bound()?.clone())?, scalar(self.summary.max.bound()?.clone())?))
    }
}

/// Compares what is stated about the rows of one place with their values, and records what differs.
pub(super) struct Findings<'a> {
    place: String,
    summary: &'a Summary,
    /// The minimum and the maximum value, if there are any.
    extremes: Option<(Scalar, Scalar)>,
    dtype: &'a DType,
    found: &'a mut Verification,
}

impl<'a> Findings<'a> {
    pub(super) fn new(
        place: String,
        dtype: &'a DType,
        actual: &'a Actual,
        found: &'a mut Verification,
    ) -> Self {
        Self { place, summary: &actual.summary, extremes: actual.extremes(dtype), dtype, found }
    }

    /// Checks the statistics of a zone, which consists of these rows.
    pub(super) fn check_zone(mut self, map: &ZoneMap, zone: usize) {
        if zone >= map.zone_count {
            return;
        }
        self.found.checked_zones += 1;
        let nulls = map.null_count.as_ref().filter(|counts| counts.is_valid(zone));
        self.check_count("nulls", nulls.map(|counts| counts.value(zone)), self.summary.null_count);
        self.check_count("NaN values", map.nans_of(zone), self.summary.nan_count);
        let (min, max) = map.bounds_of(zone, &map.bound_dtype());
        self.check_bounds(min.as_ref(), max.as_ref());
        if map.is_exact {
            self.check_exact(min.as_ref(), max.as_ref());
        }
        self.check_sum(map.sum_of(zone).as_ref());
    }

    /// Checks the statistics of a column of the file, which consists of these rows.
    pub(super) fn check_statistics(mut self, stated: &FieldStats) {
        let summary = self.summary;
        let is_float = is_float(self.dtype);
        self.check_count("nulls", stated.null_count, summary.null_count);
        if is_float {
            self.check_count("NaN values", stated.nan_count, summary.nan_count);
        }
        self.check_bounds(stated.min.value(), stated.max.value());
        self.check_exact(stated.min.exact(), stated.max.exact());
        self.check_sum(stated.sum.as_ref());
        let (unsorted, not_strictly) = summary.contradicts_order();
        if (stated.is_sorted == Some(true) && unsorted)
            || (stated.is_strict_sorted == Some(true) && not_strictly)
        {
            self.found.report(&self.place, "values are not sorted as stated");
        }
        let differ = self.extremes.as_ref().is_some_and(|(min, max)| {
            widen_zero(min, true).compare(&widen_zero(max, true)).is_some_and(Ordering::is_ne)
        });
        let some_null = summary.null_count > 0 && summary.null_count < summary.rows;
        if stated.is_constant == Some(true) && (differ || some_null) {
            self.found.report(&self.place, "values are not all equal as stated");
        }
    }

    fn check_count(&mut self, what: &str, stated: Option<u64>, actual: u64) {
        if let Some(stated) = stated.filter(|stated| *stated != actual) {
            self.found.report(&self.place, format!("{actual} {what}, its statistics say {stated}"));
        }
    }

    /// Checks bounds against the values. NaN bounds provide no information and are ignored.
    fn check_bounds(&mut self, min: Option<&Scalar>, max: Option<&Scalar>) {
        let Some((least, greatest)) = &self.extremes else {
            let has_no_value = self.summary.rows > 0 && self.summary.null_count == self.summary.rows;
            if let Some(bound) = min.or(max).filter(|_| has_no_value) {
                self.found.report(&self.place, format!("{bound} is stated as a bound of nulls only"));
            }
            return;
        };
        let stated = |bound: Option<&Scalar>, low: bool| {
            bound.map(|bound| widen_zero(bound, low)).filter(|bound| !bound.value().is_nan())
        };
        if let Some(min) = stated(min, true)
            && least.compare(&min).is_some_and(Ordering::is_lt)
        {
            self.found.report(&self.place, format!("{least} lies below the stated minimum {min}"));
        }
        if let Some(max) = stated(max, false)
            && greatest.compare(&max).is_some_and(Ordering::is_gt)
        {
            self.found.report(&self.place, format!("{greatest} lies above the stated maximum {max}"));
        }
    }

    /// Sums of floats depend on the order of additions.
    fn check_sum(&mut self, stated: Option<&Scalar>) {
        let Some(stated) = stated.filter(|_| !is_float(self.dtype)) else { return };
        let what = match (self.summary.sum(self.dtype), self.summary.total()) {
            (Some(sum), _) if sum.value() != stated.value() => format!("the sum is {sum}, not {stated}"),
            (None, Some(sum)) => format!("the sum is {sum}, which its type cannot hold, not {stated}"),
            _ => return,
        };
        self.found.report(&self.place, what);
    }

    /// Checks that bounds stated as exact are actual extremes.
    fn check_exact(&mut self, min: Option<&Scalar>, max: Option<&Scalar>) {
        let Some((least, greatest)) = &self.extremes else { return };
        for (what, stated, value) in [("minimum", min, least), ("maximum", max, greatest)] {
            let Some(stated) = stated else { continue };
            let same = widen_zero(stated, true).compare(&widen_zero(value, true));
            if !stated.value().is_nan() && same.is_some_and(Ordering::is_ne) {
                self.found.report(&self.place, format!("the {what} is {value}, not {stated}"));
            }
        }
    }
}

/// Checks what is stated about rows that cannot be null.
pub(super) fn check_no_nulls(place: &str, stated: &FieldStats, found: &mut Verification) {
    if let Some(nulls @ 1..) = stated.null_count {
        found.report(place, format!("0 nulls, its statistics say {nulls}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, Int64Array};

    use super::*;
    use crate::dtype::PType;
    use crate::scalar::Value;
    use crate::stats::Precision;

    #[test]
    fn a_sum_that_does_not_fit_its_type_cannot_be_stated() {
        let (dtype, sums) = (DType::Primitive(PType::I64, false), DType::Primitive(PType::I64, true));
        let stated = |sum| {
            let sum = Scalar::try_new(sums.clone(), Value::Int(sum)).unwrap();
            FieldStats { sum: Some(sum), ..FieldStats::default() }
        };
        for (rows, sum, problems) in [
            (vec![i64::MAX, 1], i64::MIN, 1),
            (vec![i64::MAX, 1, -1], i64::MAX, 0),
            (vec![1, 2], 4, 1),
            (vec![1, 2], 3, 0),
        ] {
            let rows: ArrayRef = Arc::new(Int64Array::from(rows));
            let (actual, mut found) = (Actual::of(&rows, &dtype).unwrap(), Verification::default());
            Findings::new("column `a`".into(), &dtype, &actual, &mut found).check_statistics(&stated(sum));
            assert_eq!(found.problems.len(), problems, "{:?}", found.problems);
        }
    }

    #[test]
    fn rows_that_cannot_be_null_have_no_nulls() {
        for (nulls, problems) in [(None, 0), (Some(0), 0), (Some(1), 1)] {
            let (stated, mut found) =
                (FieldStats { null_count: nulls, ..FieldStats::default() }, Verification::default());
            check_no_nulls("column `a`", &stated, &mut found);
            assert_eq!(found.problems.len(), problems, "{:?}", found.problems);
        }
    }

    #[test]
    fn nulls_have_no_bounds() {
        let dtype = DType::Primitive(PType::I32, true);
        let five = Scalar::try_new(dtype.clone(), Value::Int(5)).unwrap();
        let stated = FieldStats { max: Precision::Exact(five), ..FieldStats::default() };
        for (rows, problems) in [(vec![None, None], 1), (vec![None, Some(5)], 0), (vec![], 0)] {
            let rows: ArrayRef = Arc::new(Int32Array::from(rows));
            let (actual, mut found) = (Actual::of(&rows, &dtype).unwrap(), Verification::default());
            Findings::new("column `a`".into(), &dtype, &actual, &mut found).check_statistics(&stated);
            assert_eq!(found.problems.len(), problems, "{:?}", found.problems);
        }
    }
}
