//! Aggregates of whole zones, where the zone map contains them: then the rows need not be read.

use std::cmp::Ordering;
use std::ops::Range;

use super::ZoneMap;
use crate::array::{Aggregate, Measures, has_sum, integer};
use crate::scalar::{Scalar, Value};
use crate::stats::is_float;

impl ZoneMap {
    /// The aggregates of all rows of some zones. `None` if the map does not contain all that is wanted, or only bounds,
    /// or contradicts itself.
    pub(crate) fn aggregate(&self, mut zones: Range<usize>, measures: Measures) -> Option<Aggregate> {
        let none = Aggregate::empty(&self.dtype).only(measures);
        zones.try_fold(none, |before, zone| Some(before.merge(self.of_zone(zone, measures)?)))
    }

    fn of_zone(&self, zone: usize, measures: Measures) -> Option<Aggregate> {
        let row_count = self.rows_of(zone);
        let null_count = self.nulls_of(zone)?;
        let nan_count = if is_float(&self.dtype) { self.nans_of(zone)? } else { 0 };
        let has_values = row_count.checked_sub(null_count)?.checked_sub(nan_count)? > 0;
        let mut found = Aggregate::empty(&self.dtype).only(measures);
        (found.row_count, found.null_count, found.nan_count) = (row_count, null_count, nan_count);
        if measures.has_extremes() && self.dtype.is_scalar() && has_values {
            let bounds = self.is_exact.then(|| self.bounds_of(zone, &self.bound_dtype()));
            let (min, max) = bounds.and_then(|(min, max)| Some((extreme(min)?, extreme(max)?)))?;
            if min.compare(&max) == Some(Ordering::Greater) {
                return None;
            }
            (found.min, found.max) = (measures.min.then_some(min), measures.max.then_some(max));
        }
        if measures.sum && has_sum(&self.dtype) && has_values {
            found.sum = Some(integer(self.sum_of(zone)?.value())?);
        }
        Some(found)
    }
}

/// A bound that is a value of its zone. Writers take both zeros of floats for equal.
fn extreme(bound: Option<Scalar>) -> Option<Scalar> {
    let is_zero = match bound.as_ref()?.value() {
        Value::F16(value) => *value == half::f16::ZERO,
        Value::F32(value) => *value == 0.0,
        Value::F64(value) => *value == 0.0,
        _ => false,
    };
    bound.filter(|_| !is_zero)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int8Array, Int64Array, UInt64Array};
    use arrow::datatypes::i256;

    use super::*;
    use crate::dtype::{DType, PType};

    /// Zones of ten rows: of 1 to 5 and a null, of nulls, of unknown sum, of unknown extremes.
    fn numbers() -> ZoneMap {
        ZoneMap {
            dtype: DType::Primitive(PType::I8, true),
            zone_len: 10,
            row_count: 38,
            zone_count: 4,
            min: Some(Arc::new(Int8Array::from(vec![Some(1), None, Some(-7), None]))),
            max: Some(Arc::new(Int8Array::from(vec![Some(5), None, Some(9), None]))),
            null_count: Some(UInt64Array::from(vec![1, 10, 0, 0])),
            nan_count: None,
            sum: Some(Arc::new(Int64Array::from(vec![Some(25), None, None, Some(1000)]))),
            is_exact: true,
        }
    }

    fn extremes(found: &Aggregate) -> (Option<i128>, Option<i128>) {
        let number = |extreme: &Option<Scalar>| extreme.as_ref().and_then(Scalar::as_i128);
        (number(&found.min), number(&found.max))
    }

    #[test]
    fn whole_zones_give_what_they_state() {
        let (map, all) = (numbers(), Measures::ALL);
        let found = map.aggregate(0..2, all).unwrap();
        assert_eq!((found.row_count, found.null_count, found.sum), (20, 11, Some(i256::from(25))));
        assert_eq!(extremes(&found), (Some(1), Some(5)));
        assert_eq!(map.aggregate(0..3, all), None, "a sum is unknown");
        let found = map.aggregate(0..3, Measures::COUNTS.with_extremes()).unwrap();
        assert_eq!((extremes(&found), found.sum), ((Some(-7), Some(9)), None));
        assert_eq!(map.aggregate(3..4, Measures::COUNTS.with_extremes()), None);
        let found = map.aggregate(3..4, Measures::COUNTS.with_sum()).unwrap();
        assert_eq!((found.row_count, extremes(&found), found.sum), (8, (None, None), Some(i256::from(1000))));
    }

    #[test]
    fn bounds_that_are_no_values_are_no_extremes() {
        let map = ZoneMap { is_exact: false, ..numbers() };
        assert_eq!(map.aggregate(0..1, Measures::ALL), None);
        assert!(map.aggregate(0..1, Measures::COUNTS.with_sum()).is_some());
    }

    #[test]
    fn contradictions_are_no_answers() {
        let swapped = ZoneMap { min: numbers().max, max: numbers().min, ..numbers() };
        assert_eq!(swapped.aggregate(0..1, Measures::ALL), None);
        let crowded = ZoneMap { null_count: Some(UInt64Array::from(vec![11; 4])), ..numbers() };
        assert_eq!(crowded.aggregate(0..1, Measures::COUNTS), None);
        let uncounted = ZoneMap { null_count: None, ..numbers() };
        assert_eq!(uncounted.aggregate(0..1, Measures::COUNTS), None);
    }

    #[test]
    fn floats_need_a_count_of_nan_and_bounds_of_one_sign() {
        let map = ZoneMap {
            dtype: DType::Primitive(PType::F64, false),
            min: Some(Arc::new(Float64Array::from(vec![1.0, 0.0, 2.0, 1.0]))),
            max: Some(Arc::new(Float64Array::from(vec![2.0, 3.0, 2.5, -0.0]))),
            nan_count: Some(UInt64Array::from(vec![Some(0), Some(0), None, Some(1)])),
            ..numbers()
        };
        let found = map.aggregate(0..1, Measures::ALL).unwrap();
        assert_eq!(found.max.unwrap().value(), &Value::F64(2.0));
        for zone in 1..4 {
            assert_eq!(map.aggregate(zone..zone + 1, Measures::ALL), None, "{zone}");
        }
    }
}
