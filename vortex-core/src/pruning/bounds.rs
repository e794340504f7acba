//! Evaluates a predicate on one column against its zone map.

use std::cmp::Ordering;

use arrow::buffer::BooleanBuffer;

use super::{Outcomes, RowBlocks};
use crate::Result;
use crate::dtype::DType;
use crate::expr::{CompareOp, InList, Like, Predicate};
use crate::layout::ZoneMap;
use crate::row_ranges::RowRanges;
use crate::scalar::Scalar;
use crate::stats::widen_zero;

/// What is known about the values in one zone.
struct Zone {
    min: Option<Scalar>,
    max: Option<Scalar>,
    rows: u64,
    nulls: Option<u64>,
    may_have_nan: bool,
}

impl Zone {
    fn has_no_values(&self) -> bool {
        self.nulls == Some(self.rows)
    }

    fn has_no_nulls(&self) -> bool {
        self.nulls == Some(0)
    }
}

/// The possible outcomes of a predicate for the rows of a zone.
#[derive(Clone, Copy, PartialEq)]
struct Outcome {
    may: bool,
    all: bool,
}

const UNKNOWN: Outcome = Outcome { may: true, all: false };
const NEVER: Outcome = Outcome { may: false, all: false };
const VACUOUS: Outcome = Outcome { may: false, all: true };

/// Evaluates a predicate per zone. Zones with none of `rows` are not looked at: of no row, anything holds.
pub(super) fn outcomes(predicate: &Predicate, map: &ZoneMap, rows: &RowRanges) -> Result<Outcomes> {
    // A predicate that does not fit the column fails when it is evaluated, not here.
    if predicate.check(&map.dtype).is_err() {
        return Ok(Outcomes::unknown(map.zone_count));
    }
    let mut outcomes = vec![VACUOUS; map.zone_count];
    let dtype = map.bound_dtype();
    for zone in RowBlocks::of_zones(map).holding(rows).take_while(|zone| *zone < map.zone_count) {
        outcomes[zone] = outcome(predicate, &read(map, &dtype, zone));
    }
    let (may, all): (Vec<bool>, Vec<bool>) =
        outcomes.iter().map(|outcome| (outcome.may, outcome.all)).unzip();
    Ok(Outcomes { may: BooleanBuffer::from(may), all: BooleanBuffer::from(all) })
}

/// Whether a zone may hold a value that matches a predicate which fits the column.
pub(crate) fn may_hold(predicate: &Predicate, map: &ZoneMap, zone: usize) -> bool {
    zone >= map.zone_count || outcome(predicate, &read(map, &map.bound_dtype(), zone)).may
}

/// What a zone map states of a zone; bounds are of type `dtype`.
fn read(map: &ZoneMap, dtype: &DType, zone: usize) -> Zone {
    let bound = |bound: Option<Scalar>, is_min: bool| {
        // A NaN bound provides no information.
        bound.filter(|bound| !bound.value().is_nan()).map(|bound| widen_zero(&bound, is_min))
    };
    let (min, max) = map.bounds_of(zone, dtype);
    let (min, max) = (bound(min, true), bound(max, false));
    let crossed = match (&min, &max) {
        (Some(min), Some(max)) => min.compare(max).is_none_or(Ordering::is_gt),
        _ => false,
    };
    let (min, max) = if crossed { (None, None) } else { (min, max) };
    Zone {
        min,
        max,
        rows: map.rows_of(zone),
        nulls: map.nulls_of(zone),
        may_have_nan: map.may_have_nan(zone),
    }
}

fn outcome(predicate: &Predicate, zone: &Zone) -> Outcome {
    match predicate {
        Predicate::IsNull => Outcome { may: !zone.has_no_nulls(), all: zone.has_no_values() },
        Predicate::IsNotNull => Outcome { may: !zone.has_no_values(), all: zone.has_no_nulls() },
        // Without constants, even a null is certainly not in the list.
        Predicate::In(list) if list.values().is_empty() && !list.has_null() => {
            Outcome { may: list.negated(), all: list.negated() }
        }
        _ if zone.has_no_values() => NEVER,
        Predicate::Compare(_, constant) if constant.is_null() => NEVER,
        // NaN is not covered by the bounds, and compares greater (or, if negative, less) than any value.
        _ if zone.may_have_nan => UNKNOWN,
        Predicate::Compare(op, constant) => compare(*op, constant, zone),
        Predicate::Between(low, high) => {
            if low.is_null() || high.is_null() {
                return UNKNOWN;
            }
            let (low, high) = (compare(CompareOp::GtEq, low, zone), compare(CompareOp::LtEq, high, zone));
            Outcome { may: low.may && high.may, all: low.all && high.all }
        }
        Predicate::In(list) => in_list(list, zone),
        Predicate::Like(like) => prefix(like, zone),
    }
}

fn compare(op: CompareOp, constant: &Scalar, zone: &Zone) -> Outcome {
    let order = |bound: &Option<Scalar>| bound.as_ref().and_then(|bound| bound.compare(constant));
    // How the minimum and maximum possible values compare to the constant.
    let (min, max) = (order(&zone.min), order(&zone.max));
    let no_nulls = zone.has_no_nulls();
    let (may, all) = match op {
        CompareOp::Eq => (
            min != Some(Ordering::Greater) && max != Some(Ordering::Less),
            min == Some(Ordering::Equal) && max == Some(Ordering::Equal),
        ),
        CompareOp::NotEq => (
            !(min == Some(Ordering::Equal) && max == Some(Ordering::Equal)),
            min == Some(Ordering::Greater) || max == Some(Ordering::Less),
        ),
        CompareOp::Lt | CompareOp::LtEq => {
            (min.is_none_or(|order| op.holds(order)), max.is_some_and(|order| op.holds(order)))
        }
        CompareOp::Gt | CompareOp::GtEq => {
            (max.is_none_or(|order| op.holds(order)), min.is_some_and(|order| op.holds(order)))
        }
    };
    Outcome { may, all: all && no_nulls }
}

fn in_list(list: &InList, zone: &Zone) -> Outcome {
    let (may, all) = list.within(zone.min.as_ref(), zone.max.as_ref());
    if !list.negated() {
        return Outcome { may, all: all && zone.has_no_nulls() };
    }
    // Rows are ruled out only if the zone has a single value that is in the list, or the list contains a
    // null.
    if list.has_null() || all { NEVER } else { UNKNOWN }
}

/// LIKE with a literal prefix selects a range of strings.
fn prefix(like: &Like, zone: &Zone) -> Outcome {
    if like.negated || like.case_insensitive {
        return UNKNOWN;
    }
    let literal_len = like.pattern.find(['%', '_', '\\']).unwrap_or(like.pattern.len());
    let prefix = &like.pattern.as_bytes()[..literal_len];
    let cut = |bound: &Option<Scalar>| {
        let bytes = bound.as_ref()?.as_bytes()?;
        Some(bytes[..bytes.len().min(prefix.len())].cmp(prefix))
    };
    // All values lie within the bounds, so their prefixes do, too.
    let below = cut(&zone.max) == Some(Ordering::Less);
    let above = cut(&zone.min) == Some(Ordering::Greater);
    Outcome { may: !below && !above, all: false }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int32Array, StringViewArray, UInt64Array};

    use super::*;
    use crate::dtype::{DType, PType};
    use crate::scalar::Value;

    fn ints() -> ZoneMap {
        ZoneMap {
            dtype: DType::Primitive(PType::I32, true),
            zone_len: 10,
            row_count: 40,
            zone_count: 4,
            min: Some(Arc::new(Int32Array::from(vec![Some(0), Some(10), Some(5), None]))),
            max: Some(Arc::new(Int32Array::from(vec![Some(9), Some(19), Some(5), None]))),
            null_count: Some(UInt64Array::from(vec![0, 3, 0, 10])),
            nan_count: None,
            sum: None,
            is_exact: true,
        }
    }

    fn all_rows() -> RowRanges {
        (0..40).into()
    }

    fn int(value: i64) -> Scalar {
        Scalar::try_new(DType::Primitive(PType::I32, true), Value::Int(value)).unwrap()
    }

    fn bits(bits: &BooleanBuffer) -> Vec<bool> {
        bits.iter().collect()
    }

    #[test]
    fn comparisons_follow_the_bounds() {
        let map = ints();
        let check = |op, value, may: [bool; 4], all: [bool; 4]| {
            let found = outcomes(&Predicate::Compare(op, int(value)), &map, &all_rows()).unwrap();
            assert_eq!((bits(&found.may), bits(&found.all)), (may.to_vec(), all.to_vec()), "{op} {value}");
        };
        let no = [false; 4];
        check(CompareOp::Eq, 5, [true, false, true, false], [false, false, true, false]);
        check(CompareOp::NotEq, 5, [true, true, false, false], no);
        check(CompareOp::Lt, 10, [true, false, true, false], [true, false, true, false]);
        check(CompareOp::LtEq, 10, [true, true, true, false], [true, false, true, false]);
        check(CompareOp::Gt, 9, [false, true, false, false], no);
        check(CompareOp::GtEq, 0, [true, true, true, false], [true, false, true, false]);
    }

    #[test]
    fn of_zones_without_rows_of_interest_anything_holds() {
        let never = Predicate::Compare(CompareOp::Gt, int(100));
        let rows = RowRanges::new([8..15, 17..18]);
        let found = outcomes(&never, &ints(), &rows).unwrap();
        assert_eq!((bits(&found.may), bits(&found.all)), (vec![false; 4], vec![false, false, true, true]));
        let always = Predicate::Compare(CompareOp::Lt, int(100));
        let found = outcomes(&always, &ints(), &rows).unwrap();
        assert_eq!(bits(&found.may), [true, true, false, false]);
        assert_eq!(bits(&found.all), [true, false, true, true], "there are nulls");
    }

    #[test]
    fn null_counts_answer_null_tests() {
        let nulls = outcomes(&Predicate::IsNull, &ints(), &all_rows()).unwrap();
        assert_eq!(
            (bits(&nulls.may), bits(&nulls.all)),
            (vec![false, true, false, true], vec![false, false, false, true])
        );
    }

    #[test]
    fn bounds_of_floats_need_a_nan_count_of_zero() {
        let map = ZoneMap {
            dtype: DType::Primitive(PType::F64, false),
            zone_len: 10,
            row_count: 30,
            zone_count: 3,
            min: Some(Arc::new(Float64Array::from(vec![1.0, 1.0, 0.0]))),
            max: Some(Arc::new(Float64Array::from(vec![2.0, 2.0, 0.0]))),
            null_count: None,
            nan_count: Some(UInt64Array::from(vec![Some(0), Some(1), Some(0)])),
            sum: None,
            is_exact: true,
        };
        let float = |v| Scalar::try_new(DType::Primitive(PType::F64, false), Value::F64(v)).unwrap();
        let above = outcomes(&Predicate::Compare(CompareOp::Gt, float(5.0)), &map, &all_rows()).unwrap();
        assert_eq!(bits(&above.may), [false, true, false]);
        let minus_zero = outcomes(&Predicate::Compare(CompareOp::Lt, float(0.0)), &map, &all_rows()).unwrap();
        assert_eq!(bits(&minus_zero.may), [false, true, true], "the zone of zeros may hold -0.0");
    }

    #[test]
    fn a_like_prefix_is_a_range() {
        let map = ZoneMap {
            dtype: DType::Utf8(false),
            min: Some(Arc::new(StringViewArray::from(vec!["apple", "b", "bananas", "c"]))),
            max: Some(Arc::new(StringViewArray::from(vec!["az", "bz", "bb", "d"]))),
            ..ints()
        };
        let like = Like::new("ba%");
        assert_eq!(
            bits(&outcomes(&Predicate::Like(like), &map, &all_rows()).unwrap().may),
            [false, true, true, false]
        );
    }

    #[test]
    fn lists_match_where_any_value_may() {
        let list = |values: &[i64], negated| {
            Predicate::In(Arc::new(InList::new(values.iter().map(|v| int(*v))).with_negated(negated)))
        };
        assert_eq!(
            bits(&outcomes(&list(&[5, 100], false), &ints(), &all_rows()).unwrap().may),
            [true, false, true, false]
        );
        assert_eq!(
            bits(&outcomes(&list(&[5, 100], true), &ints(), &all_rows()).unwrap().may),
            [true, true, false, false]
        );
        for negated in [false, true] {
            let empty = outcomes(&list(&[], negated), &ints(), &all_rows()).unwrap();
            assert_eq!(bits(&empty.may), [negated; 4], "even nulls are not in an empty list");
            assert_eq!(bits(&empty.all), [negated; 4]);
        }
    }
}
