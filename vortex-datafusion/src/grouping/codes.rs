//! Codes of keys: small numbers, such that rows with the same code have the same key.
//!
//! | key | code of a row | of null |
//! |---|---|---|
//! | a dictionary | the index of its value | the number of values |
//! | integers, booleans, dates, times | the distance to the least value | the next power of two |

use std::sync::Arc;

use arrow::array::ArrowNativeTypeOp as _;
use arrow::array::{Array, ArrayRef, AsArray as _, PrimitiveArray, downcast_primitive_array};
use arrow::compute::{cast, max, min};
use arrow::datatypes::{ArrowNativeType as _, ArrowPrimitiveType, DataType, Int8Type, UInt32Type};

/// The greatest number of codes, also of those that combine the codes of several keys. The table of their groups stays
/// in the second cache.
pub(crate) const MAX_CODES: usize = 1 << 16;

/// The type of dictionaries whose indices are codes of these values.
pub(crate) fn coded(values: &DataType) -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt32), Box::new(values.clone()))
}

/// Whether keys of this type have codes if their values are close to each other.
pub(crate) fn has_distances(data_type: &DataType) -> bool {
    use DataType::{Boolean, Date32, Date64, Time32, Time64, Timestamp};
    let is_time = matches!(data_type, Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..));
    data_type.is_integer() || is_time || *data_type == Boolean
}

/// What the codes of a key mean.
#[derive(Debug, Clone)]
pub(super) enum Codes {
    /// Indices of values.
    Dictionary(ArrayRef),
    /// Distances to the first of these integers, up to the last.
    Distances(i64, i64),
}

impl Codes {
    /// Codes for some rows, and for those that have been given `known` ones; `None` if there would be too many.
    pub(super) fn covering(rows: &ArrayRef, known: Option<&Self>) -> Option<Self> {
        if let Some(dictionary) = rows.as_dictionary_opt::<UInt32Type>() {
            return Some(Self::Dictionary(Arc::clone(dictionary.values()))).filter(Self::are_few);
        }
        let covering = match (bounds(rows)?, known) {
            (Some((least, most)), Some(&Self::Distances(first, last))) => {
                Self::Distances(first.min(least), last.max(most))
            }
            (Some((least, most)), _) => Self::Distances(least, most),
            (None, Some(known)) => known.clone(),
            (None, None) => Self::Distances(0, 0),
        };
        Some(covering).filter(Self::are_few)
    }

    fn are_few(&self) -> bool {
        self.count() <= MAX_CODES
    }

    /// The code of null, which is greater than all others.
    fn null(&self) -> usize {
        match self {
            Self::Dictionary(values) => values.len(),
            // A power of two, so that a bit tells whether any distance is too great.
            Self::Distances(first, last) => {
                let distances =
                    usize::try_from(last.abs_diff(*first)).ok().and_then(|most| most.checked_add(1));
                distances.and_then(usize::checked_next_power_of_two).unwrap_or(usize::MAX)
            }
        }
    }

    /// The number of codes, that of null included.
    pub(super) fn count(&self) -> usize {
        self.null().saturating_add(1)
    }

    /// Adds the codes of rows, each multiplied by `stride`. Whether all rows have one; if not, what was added is
    /// undefined.
    #[must_use]
    pub(super) fn add(&self, rows: &ArrayRef, stride: u32, to: &mut [u32]) -> bool {
        #[expect(clippy::cast_possible_truncation, reason = "there are few, also of combined codes")]
        let null = self.null() as u32;
        match self {
            Self::Dictionary(values) => {
                let dictionary = rows.as_dictionary_opt::<UInt32Type>();
                let dictionary = dictionary.filter(|rows| are_same(rows.values(), values));
                if let Some(rows) = dictionary {
                    add(rows.keys(), |index| index, null, stride, to);
                }
                dictionary.is_some()
            }
            Self::Distances(first, _) if rows.data_type() == &DataType::Boolean => {
                let integers = cast(rows, &DataType::Int8);
                integers.is_ok_and(|rows| {
                    add_distances(rows.as_primitive::<Int8Type>(), *first, null, stride, to)
                })
            }
            Self::Distances(first, _) => downcast_primitive_array!(
                rows => add_distances(rows, *first, null, stride, to),
                _ => false
            ),
        }
    }
}

/// Whether these are the values of the same dictionary. Batches share them, but those of a constant are made for each.
fn are_same(values: &ArrayRef, others: &ArrayRef) -> bool {
    let are_few = values.len() == 1 && others.len() == 1;
    values.to_data().ptr_eq(&others.to_data()) || (are_few && values == others)
}

/// Adds the distances of values to `first`. Whether all are less than `null`, a power of two.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "distances wrap around, each to another code"
)]
fn add_distances<T: ArrowPrimitiveType>(
    rows: &PrimitiveArray<T>,
    first: i64,
    null: u32,
    stride: u32,
    to: &mut [u32],
) -> bool {
    let (first, mut bits) = (T::Native::usize_as(first as usize), 0);
    // Narrow integers have negative distances to others of their type.
    let unsigned = usize::MAX >> (usize::BITS as usize - 8 * size_of::<T::Native>().min(size_of::<usize>()));
    let distance = |value: T::Native| {
        let distance = value.sub_wrapping(first).as_usize() & unsigned;
        bits |= distance;
        distance as u32
    };
    add(rows, distance, null, stride, to);
    bits < null as usize
}

/// Adds the code of each value, or `null`, times `stride`.
fn add<T: ArrowPrimitiveType>(
    rows: &PrimitiveArray<T>,
    mut code: impl FnMut(T::Native) -> u32,
    null: u32,
    stride: u32,
    to: &mut [u32],
) {
    let rows_and_codes = rows.values().iter().zip(to);
    match rows.nulls() {
        None => {
            rows_and_codes.for_each(|(value, to)| *to = to.wrapping_add(code(*value).wrapping_mul(stride)))
        }
        Some(nulls) => rows_and_codes.zip(nulls.iter()).for_each(|((value, to), is_valid)| {
            let code = if is_valid { code(*value) } else { null };
            *to = to.wrapping_add(code.wrapping_mul(stride));
        }),
    }
}

/// The least and the greatest of integers, if there are any; `None` if these rows have others.
fn bounds(rows: &ArrayRef) -> Option<Option<(i64, i64)>> {
    fn of<T: ArrowPrimitiveType>(rows: &PrimitiveArray<T>) -> Option<Option<(i64, i64)>> {
        let Some((least, most)) = min(rows).zip(max(rows)) else { return Some(None) };
        Some(Some((least.to_i64()?, most.to_i64()?)))
    }
    if *rows.data_type() == DataType::Boolean {
        return Some(Some((0, 1)));
    }
    if !has_distances(rows.data_type()) {
        return None;
    }
    downcast_primitive_array!(
        rows => of(rows),
        _ => None
    )
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Date32Array, DictionaryArray, Float64Array, Int8Array, Int16Array, Int64Array,
        StringViewArray, UInt8Array, UInt32Array, UInt64Array,
    };

    use super::*;

    /// What is covered by further codes if known ones do not, and codes of the rows.
    fn codes_of(rows: &dyn Array, known: Option<&Codes>) -> Option<(Vec<u32>, Codes)> {
        let rows = arrow::array::make_array(rows.to_data());
        let codes = Codes::covering(&rows, known)?;
        let mut to = vec![0; rows.len()];
        assert!(codes.add(&rows, 1, &mut to), "codes cover their rows");
        Some((to, codes))
    }

    fn integers(values: &[i64]) -> Int64Array {
        Int64Array::from(values.to_vec())
    }

    #[test]
    fn codes_of_integers_are_distances_and_that_of_null_is_the_last() {
        let (codes, of) = codes_of(&Int64Array::from(vec![Some(-3), None, Some(2), Some(-2)]), None).unwrap();
        assert_eq!((codes, of.count()), (vec![0, 8, 5, 1], 9));
        let (codes, of) = codes_of(&Date32Array::from(vec![20_000, 20_001]), None).unwrap();
        assert_eq!((codes, of.count()), (vec![0, 1], 3));
        let (codes, of) = codes_of(&BooleanArray::from(vec![Some(true), None, Some(false)]), None).unwrap();
        assert_eq!((codes, of.count()), (vec![1, 2, 0], 3));
        let (codes, _) = codes_of(&Int64Array::from(vec![None, None]), None).unwrap();
        assert_eq!(codes, [1, 1]);
    }

    #[test]
    fn all_integers_of_a_narrow_type_have_codes() {
        let (codes, of) =
            codes_of(&Int8Array::from(vec![Some(-128), None, Some(127), Some(0)]), None).unwrap();
        assert_eq!((codes, of.count()), (vec![0, 256, 255, 128], 257));
        let (codes, _) = codes_of(&UInt8Array::from(vec![255, 0]), None).unwrap();
        assert_eq!(codes, [255, 0]);
        let (codes, _) = codes_of(&Int16Array::from(vec![-16_384, 16_383]), None).unwrap();
        assert_eq!(codes, [0, 32_767]);
    }

    #[test]
    fn codes_cover_rows_between_their_bounds_only() {
        let (_, known) = codes_of(&integers(&[10, 20]), None).unwrap();
        let covers = |rows: ArrayRef| known.add(&rows, 1, &mut vec![0; rows.len()]);
        assert!(covers(Arc::new(integers(&[11, 19]))) && covers(Arc::new(Int64Array::from(vec![None]))));
        for other in [9, 26, i64::MIN, i64::MAX] {
            assert!(!covers(Arc::new(integers(&[10, other]))), "{other}");
        }
        assert!(!covers(Arc::new(UInt64Array::from(vec![u64::MAX]))));
        // What is below a null does not count.
        let nulls = vec![true, false].into();
        assert!(covers(Arc::new(Int64Array::new(vec![10, i64::MAX].into(), Some(nulls)))));
        let (codes, wider) = codes_of(&integers(&[9, 12]), Some(&known)).unwrap();
        assert!(codes == [0, 3] && wider.count() == 17);
        assert!(codes_of(&integers(&[1 << 20]), Some(&known)).is_none(), "too far away");
    }

    #[test]
    fn codes_of_a_dictionary_are_its_indices() {
        let values: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b"]));
        let rows = |keys: Vec<Option<u32>>, values: &ArrayRef| {
            DictionaryArray::new(UInt32Array::from(keys), Arc::clone(values))
        };
        let (codes, first) = codes_of(&rows(vec![Some(1), None, Some(0)], &values), None).unwrap();
        assert_eq!((codes, first.count()), (vec![1, 2, 0], 3));
        let constant = |value: &str| Arc::new(StringViewArray::from(vec![value])) as ArrayRef;
        let (_, one) = codes_of(&rows(vec![Some(0)], &constant("a")), None).unwrap();
        for (value, is_same) in [("a", true), ("b", false)] {
            let rows: ArrayRef = Arc::new(rows(vec![Some(0)], &constant(value)));
            assert_eq!(one.add(&rows, 1, &mut [0]), is_same);
        }
        let nothing: ArrayRef = Arc::new(StringViewArray::from(Vec::<&str>::new()));
        assert_eq!(codes_of(&rows(vec![None, None], &nothing), None).unwrap().0, [0, 0]);
        let others: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "c"]));
        for (values, is_same) in [(&values, true), (&others, false)] {
            let rows: ArrayRef = Arc::new(rows(vec![Some(0)], values));
            assert_eq!(first.add(&rows, 1, &mut [0]), is_same);
        }
    }

    #[test]
    fn what_is_too_far_apart_or_has_no_integers_has_no_codes() {
        let codes = |values: &[i64]| codes_of(&integers(values), None).map(|(codes, _)| codes);
        let most = MAX_CODES as i64;
        assert!(codes(&[0, most / 2 - 1]).is_some() && codes(&[0, most / 2]).is_none());
        assert!(codes(&[i64::MIN, i64::MAX]).is_none());
        assert_eq!(codes(&[i64::MAX, i64::MAX - 1]).unwrap(), [1, 0]);
        assert!(codes_of(&UInt64Array::from(vec![u64::MAX]), None).is_none());
        assert!(codes_of(&StringViewArray::from(vec!["a"]), None).is_none());
        assert!(codes_of(&Float64Array::from(vec![1.0]), None).is_none());
    }
}
