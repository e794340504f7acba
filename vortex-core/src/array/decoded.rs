//! A decoded chunk: an Arrow array with the interface of an encoded one.

use arrow::array::{Array as _, BooleanArray};
use arrow::datatypes::DataType;

use super::decimals::from_unscaled;
use super::restore::restore;
use super::row_bytes::reserved_bytes;
use super::{ArrayRef, EncodedArray, EncodedRef, Header, Pick, Validity, intervals, take_within};
use crate::Result;
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::limits::Limits;

/// An Arrow array as an [`EncodedArray`]: the fallback of every operation.
#[derive(Debug, Clone)]
pub struct Decoded {
    header: Header,
    array: ArrayRef,
}

impl Decoded {
    /// Wraps an array that presents `dtype`; the limits are those for copies of rows.
    pub fn new(dtype: DType, array: ArrayRef, limits: &Limits) -> Self {
        Self { header: Header::new("arrow", dtype, array.len(), limits), array }
    }

    /// The Arrow array.
    pub fn arrow(&self) -> &ArrayRef {
        &self.array
    }
}

impl EncodedArray for Decoded {
    fn header(&self) -> &Header {
        &self.header
    }

    fn buffer_bytes(&self) -> usize {
        self.array.get_array_memory_size()
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        restore(&self.array, to, self.limits())
    }

    fn validity(&self) -> Result<Validity> {
        Ok(Validity::from_nulls(self.array.logical_nulls()))
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let rows = match pick {
            Pick::Slice(rows) => self.array.slice(rows.start, rows.len()),
            Pick::Take(indices) => take_within(&self.array, indices, self.limits())?,
            Pick::Filter(mask) => match mask.few() {
                Some(few) => take_within(&self.array, &few, self.limits())?,
                None => {
                    // Arrow reserves this memory whether it will be used or not.
                    let reserved = reserved_bytes(self.array.data_type(), mask.true_count() as u64);
                    self.limits().count_bytes(reserved)?;
                    arrow::compute::filter(&self.array, &mask.to_filter())?
                }
            },
        };
        Ok(self.header.decoded(rows))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        intervals::matches(&self.array, predicate)
    }
}

/// The same values as Arrow type `to`; casts only if the types differ. What that takes counts for the work in progress,
/// but is not limited. Not for nested types, or text of views, that differ: Arrow's cast reserves any memory for these.
///
/// # Errors
/// If Arrow cannot cast between them.
pub fn present(array: ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(array);
    }
    if are_resized(array.data_type(), to) {
        return from_unscaled(&array, array.nulls().cloned(), to, &Limits::of_any_bytes());
    }
    let options = arrow::compute::CastOptions { safe: false, ..Default::default() };
    Ok(arrow::compute::cast_with_options(&array, to, &options)?)
}

/// Whether decimals only change their width, or the one of the values in a dictionary. Arrow's cast panics if
/// a value exceeds the new width, even one under a null.
fn are_resized(from: &DataType, to: &DataType) -> bool {
    let digits = |data_type: &DataType| match data_type {
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => Some((*p, *s)),
        _ => None,
    };
    match (from, to) {
        (_, DataType::Dictionary(_, values)) => are_resized(from, values),
        (DataType::Decimal128(..) | DataType::Decimal256(..), _) => from != to && digits(from) == digits(to),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        AsArray as _, Decimal128Array, Decimal256Array, Int64Array, ListArray, StringViewArray, UInt64Array,
        new_empty_array,
    };
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::datatypes::{Decimal128Type, Field, i256};

    use super::*;
    use crate::dtype::PType;
    use crate::dtype::arrow::from_field;
    use crate::mask::Mask;

    fn decoded(dtype: DType, array: ArrayRef, limits: &Limits) -> EncodedRef {
        Arc::new(Decoded::new(dtype, array, limits))
    }

    #[test]
    fn empty_lists_of_huge_items_reserve_nothing() {
        let huge = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int64, true)), i32::MAX);
        let field = Arc::new(Field::new("item", huge.clone(), true));
        let lists =
            ListArray::new(field, OffsetBuffer::from_lengths([0, 0, 0]), new_empty_array(&huge), None);
        let dtype = from_field(&Field::new("l", lists.data_type().clone(), false)).unwrap();
        let array = decoded(dtype, Arc::new(lists), &Limits::default());
        assert!(array.take(&UInt64Array::from(vec![1])).is_err());
        assert!(array.filter(&Mask::from_indices(3, [1])).is_err());
        assert_eq!(array.slice(1..2).unwrap().len(), 1);
    }

    #[test]
    fn decimals_get_narrower_unless_a_valid_one_does_not_fit() {
        let nulls = Some(NullBuffer::from(vec![true, false]));
        let wide = |nulls| {
            let values = vec![i256::from_i128(7), i256::MAX];
            let decimals = Decimal256Array::new(values.into(), nulls);
            Arc::new(decimals.with_data_type(DataType::Decimal256(3, 2))) as ArrayRef
        };
        let narrow = present(wide(nulls.clone()), &DataType::Decimal128(3, 2)).unwrap();
        assert_eq!(narrow.as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>(), [Some(7), None]);
        assert!(present(wide(None), &DataType::Decimal128(3, 2)).is_err());

        let values = |nulls| {
            let decimals = Decimal128Array::new(vec![7, i128::MAX].into(), nulls);
            Arc::new(decimals.with_data_type(DataType::Decimal128(3, 2))) as ArrayRef
        };
        let packed = |of| DataType::Dictionary(Box::new(DataType::Int8), Box::new(of));
        for to in [DataType::Decimal32(3, 2), packed(DataType::Decimal64(3, 2))] {
            assert_eq!(present(values(nulls.clone()), &to).unwrap().logical_null_count(), 1, "{to}");
            assert!(present(values(None), &to).is_err(), "{to}");
        }
        assert!(present(values(None), &packed(DataType::Decimal128(3, 2))).is_ok());
    }

    #[test]
    fn a_long_list_cannot_be_taken_too_often() {
        let field = Arc::new(Field::new("item", DataType::Int64, false));
        let elements = Arc::new(Int64Array::from(vec![7; 1 << 16]));
        let lists = ListArray::new(field, OffsetBuffer::from_lengths([1 << 16, 0]), elements, None);
        let dtype = from_field(&Field::new("l", lists.data_type().clone(), false)).unwrap();
        let array = decoded(dtype, Arc::new(lists), &Limits::default());
        let often = |row: u64| UInt64Array::from(vec![row; 1 << 15]);
        assert!(array.take(&often(0)).is_err(), "16 GiB");
        assert_eq!(array.take(&often(1)).unwrap().len(), 1 << 15);
    }

    /// Lists with one item each, all of which are views of the same mebibyte.
    fn shared_text(rows: i32) -> EncodedRef {
        let long: ArrayRef = Arc::new(StringViewArray::from(vec!["x".repeat(1 << 20)]));
        let text = crate::array::take(&long, &UInt64Array::from(vec![0; rows as usize])).unwrap();
        let item = Arc::new(Field::new("item", DataType::Utf8View, true));
        let lists = ListArray::new(item, OffsetBuffer::new((0..=rows).collect()), text, None);
        let dtype = from_field(&Field::new("l", lists.data_type().clone(), false)).unwrap();
        decoded(dtype, Arc::new(lists), &Limits::default())
    }

    #[test]
    fn strings_in_lists_are_copied_out_of_views_within_the_limit() {
        let list = |item: DataType| Arc::new(Field::new("item", item, true));
        let all = shared_text(4096);
        for to in [
            DataType::List(list(DataType::Utf8)),
            DataType::List(list(DataType::LargeUtf8)),
            DataType::LargeList(list(DataType::Utf8)),
            DataType::ListView(list(DataType::Utf8)),
        ] {
            let error = all.decode(&to).unwrap_err();
            assert!(matches!(error, crate::Error::LimitExceeded(_)), "{to}: {error}");
            let few = all.slice(7..9).unwrap().decode(&to).unwrap();
            assert_eq!((few.len(), few.data_type()), (2, &to));
        }
    }

    #[test]
    fn strings_are_copied_out_of_views_within_the_limit() {
        let long = "a string of more than twelve bytes";
        let one = StringViewArray::from(vec![long]);
        let text = |array, limits| decoded(DType::Utf8(false), array, &limits);
        let often = text(Arc::new(one), Limits::default()).take(&UInt64Array::from(vec![0; 100]));
        let often = often.unwrap().decode(&DataType::Utf8View).unwrap();
        let within = |bytes| {
            let limits = Limits::new().with_max_decoded_bytes(bytes);
            text(Arc::clone(&often), limits).decode(&DataType::Utf8)
        };
        assert_eq!(within(100 * long.len() as u64).unwrap().len(), 100);
        assert!(within(100 * long.len() as u64 - 1).is_err());
    }

    #[test]
    fn lowered_limits_apply_to_copies() {
        let within = |limits| {
            let numbers = Arc::new(Int64Array::from(vec![7; 100]));
            decoded(DType::Primitive(PType::I64, false), numbers, &limits)
        };
        let array = within(Limits::default());
        let (all, mask) = (UInt64Array::from_iter_values(0..99), Mask::from_indices(100, 0..99));
        assert!(array.take(&all).is_ok() && array.filter(&mask).is_ok());
        let array = within(Limits::new().with_max_decoded_bytes(500));
        assert!(array.take(&all).is_err() && array.filter(&mask).is_err());
        let few = array.slice(0..50).unwrap();
        assert!(few.take(&UInt64Array::from(vec![0; 62])).is_ok());
        assert!(few.take(&UInt64Array::from(vec![0; 63])).is_err(), "slices keep the limits");
    }
}
