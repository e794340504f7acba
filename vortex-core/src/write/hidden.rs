//! Decimals that no row shows: those under nulls, and items outside of lists.
//!
//! Arrow allows anything there, also values with more digits than their type has. Releases from 0.92 on do not read a
//! column that contains such a value, whether a row shows it or not.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanBufferBuilder, FixedSizeListArray, GenericListArray, MapArray,
    OffsetSizeTrait, PrimitiveArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowNativeType as _, ArrowNativeTypeOp as _, DataType, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DecimalType,
};

use crate::array::shown_items;
use crate::dtype::any_inner;
use crate::{Error, Result};

/// The same rows, with decimals that have no more digits than their type: zero where one has, but no row shows it.
/// `shown` tells which rows are not null because of what is around the array.
///
/// # Errors
/// If a row shows a decimal with more digits.
pub(super) fn fit_decimals(array: &ArrayRef, shown: Option<&NullBuffer>) -> Result<ArrayRef> {
    if !has_decimals(array.data_type()) {
        return Ok(Arc::clone(array));
    }
    let nulls = array.nulls().cloned();
    let shown = NullBuffer::union(shown, nulls.as_ref());
    Ok(match array.data_type() {
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let columns = columns.map(|column| fit_decimals(column, shown.as_ref()));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())?)
        }
        DataType::List(item) => {
            let (_, offsets, items, _) = array.as_list::<i32>().clone().into_parts();
            let (offsets, items) = fit_items(offsets, items, shown.as_ref())?;
            Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, items, nulls)?)
        }
        DataType::LargeList(item) => {
            let (_, offsets, items, _) = array.as_list::<i64>().clone().into_parts();
            let (offsets, items) = fit_items(offsets, items, shown.as_ref())?;
            Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, items, nulls)?)
        }
        DataType::Map(entries, sorted) => {
            let (_, offsets, items, _, _) = array.as_map().clone().into_parts();
            let (offsets, items) = fit_items(offsets, Arc::new(items), shown.as_ref())?;
            let items = items.as_struct().clone();
            Arc::new(MapArray::try_new(Arc::clone(entries), offsets, items, nulls, *sorted)?)
        }
        DataType::FixedSizeList(item, size) => {
            let shown = shown.map(|shown| shown.expand(size.as_usize()));
            let items = fit_decimals(array.as_fixed_size_list().values(), shown.as_ref())?;
            let (item, len) = (Arc::clone(item), array.len());
            Arc::new(FixedSizeListArray::try_new_with_length(item, *size, items, nulls, len)?)
        }
        DataType::Decimal32(precision, _) => fit::<Decimal32Type>(array, *precision, shown.as_ref())?,
        DataType::Decimal64(precision, _) => fit::<Decimal64Type>(array, *precision, shown.as_ref())?,
        DataType::Decimal128(precision, _) => fit::<Decimal128Type>(array, *precision, shown.as_ref())?,
        DataType::Decimal256(precision, _) => fit::<Decimal256Type>(array, *precision, shown.as_ref())?,
        _ => Arc::clone(array),
    })
}

fn has_decimals(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => true,
        other => any_inner(other, has_decimals),
    }
}

fn fit<T: DecimalType>(array: &ArrayRef, precision: u8, shown: Option<&NullBuffer>) -> Result<ArrayRef> {
    let bound = T::Native::usize_as(10).pow_checked(precision.into())?;
    let negative = bound.neg_checked()?;
    let fits = |value: T::Native| negative.is_lt(value) && value.is_lt(bound);
    let decimals = array.as_primitive::<T>();
    if decimals.values().iter().fold(true, |fit, value| fit & fits(*value)) {
        return Ok(Arc::clone(array));
    }
    let fitting = |(row, value): (usize, &T::Native)| {
        if fits(*value) {
            Ok(*value)
        } else if shown.is_some_and(|shown| shown.is_null(row)) {
            Ok(T::Native::default())
        } else {
            let data_type = array.data_type();
            Err(Error::invalid(format!("unscaled value {value:?} has more digits than {data_type}")))
        }
    };
    let values = decimals.values().iter().enumerate().map(fitting).collect::<Result<Vec<_>>>()?;
    let fitting = PrimitiveArray::<T>::try_new(values.into(), decimals.nulls().cloned())?;
    Ok(Arc::new(fitting.with_data_type(array.data_type().clone())))
}

/// The items between the first and the last offset, of which only those of lists that are shown matter, and
/// offsets into them.
fn fit_items<O: OffsetSizeTrait>(
    offsets: OffsetBuffer<O>,
    items: ArrayRef,
    lists: Option<&NullBuffer>,
) -> Result<(OffsetBuffer<O>, ArrayRef)> {
    let (offsets, items) = shown_items(offsets, items);
    let mut shown = BooleanBufferBuilder::new(items.len());
    for (row, ends) in offsets.windows(2).enumerate() {
        shown.append_n((ends[1] - ends[0]).as_usize(), lists.is_none_or(|lists| lists.is_valid(row)));
    }
    let shown = NullBuffer::new(shown.finish());
    let items = fit_decimals(&items, Some(&shown))?;
    Ok((offsets, items))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal32Array, Decimal64Array, Decimal128Array, Decimal256Array, ListArray};
    use arrow::datatypes::{Field, i256};

    use super::*;

    const TYPE: DataType = DataType::Decimal256(3, 2);

    /// 1, a value beyond 128 bits, 2; the second one is null if `is_null`.
    fn decimals(is_null: bool) -> ArrayRef {
        let values = vec![i256::ONE, i256::MAX, i256::from_i128(2)];
        let nulls = is_null.then(|| NullBuffer::from(vec![true, false, true]));
        Arc::new(Decimal256Array::new(values.into(), nulls).with_data_type(TYPE))
    }

    /// The values of decimals, whether they are null or not.
    fn values(array: &ArrayRef) -> Vec<i128> {
        array.as_primitive::<Decimal256Type>().values().iter().map(|value| value.to_i128().unwrap()).collect()
    }

    #[test]
    fn decimals_under_nulls_become_zero_if_they_are_too_large() {
        let fitting = fit_decimals(&decimals(true), None).unwrap();
        assert_eq!((values(&fitting), fitting.null_count()), (vec![1, 0, 2], 1));
        assert_eq!(fitting.data_type(), &TYPE);
        let error = fit_decimals(&decimals(false), None).unwrap_err().to_string();
        assert!(error.contains("more digits than Decimal256(3, 2)"), "{error}");
    }

    #[test]
    fn decimals_have_at_most_the_digits_of_their_type() {
        let fits = |value: i128, precision: u8| {
            let narrow = Decimal128Array::from(vec![value]).with_precision_and_scale(precision, 0).unwrap();
            let wide = Decimal256Array::from(vec![i256::from_i128(value)]);
            let wide = wide.with_precision_and_scale(precision, 0).unwrap();
            let fits = |array: ArrayRef| fit_decimals(&array, None).is_ok();
            assert_eq!(fits(Arc::new(narrow.clone())), fits(Arc::new(wide)));
            fits(Arc::new(narrow))
        };
        assert!(fits(999, 3) && fits(-999, 3) && !fits(1000, 3) && !fits(-1000, 3));
        let most = 10i128.pow(38) - 1;
        assert!(fits(most, 38) && fits(-most, 38) && !fits(most + 1, 38) && !fits(i128::MIN, 38));
    }

    #[test]
    fn narrow_decimals_have_at_most_the_digits_of_their_type() {
        let fits = |value: i32, precision: u8| {
            let narrow = Decimal32Array::from(vec![value]).with_precision_and_scale(precision, 0).unwrap();
            let wide = Decimal64Array::from(vec![i64::from(value)]).with_precision_and_scale(precision, 0);
            let fits = |array: ArrayRef| fit_decimals(&array, None).is_ok();
            assert_eq!(fits(Arc::new(narrow.clone())), fits(Arc::new(wide.unwrap())));
            fits(Arc::new(narrow))
        };
        assert!(fits(999, 3) && fits(-999, 3) && !fits(1000, 3) && !fits(-1000, 3));
        let most = 10i32.pow(9) - 1;
        assert!(fits(most, 9) && fits(-most, 9) && !fits(most + 1, 9) && !fits(i32::MIN, 9));
        let nulls = Some(NullBuffer::from(vec![true, false]));
        let hidden = Decimal64Array::new(vec![10i64.pow(18) - 1, 10i64.pow(18)].into(), nulls);
        let hidden = hidden.with_precision_and_scale(18, 0).unwrap();
        let fitting = fit_decimals(&(Arc::new(hidden) as ArrayRef), None).unwrap();
        assert_eq!(*fitting.as_primitive::<Decimal64Type>().values(), [10i64.pow(18) - 1, 0]);
    }

    #[test]
    fn rows_are_hidden_by_whatever_is_around_them() {
        let field = |name: &str| Arc::new(Field::new(name, TYPE, false));
        let nulls = || Some(NullBuffer::from(vec![true, false, true]));
        let structs = |nulls| StructArray::new(vec![field("d")].into(), vec![decimals(false)], nulls);
        let fixed = |nulls| FixedSizeListArray::new(field("item"), 1, decimals(false), nulls);
        let each = || OffsetBuffer::<i32>::from_lengths([1, 1, 1]);
        let lists = |nulls| ListArray::new(field("item"), each(), decimals(false), nulls);

        let fitting = fit_decimals(&(Arc::new(structs(nulls())) as ArrayRef), None).unwrap();
        assert_eq!(values(fitting.as_struct().column(0)), [1, 0, 2]);
        let fitting = fit_decimals(&(Arc::new(fixed(nulls())) as ArrayRef), None).unwrap();
        assert_eq!(values(fitting.as_fixed_size_list().values()), [1, 0, 2]);
        let fitting = fit_decimals(&(Arc::new(lists(nulls())) as ArrayRef), None).unwrap();
        assert_eq!(values(fitting.as_list::<i32>().values()), [1, 0, 2]);

        let last = fit_decimals(&(Arc::new(lists(None).slice(2, 1)) as ArrayRef), None).unwrap();
        assert_eq!(values(last.as_list::<i32>().values()), [2], "items of other rows do not matter");
        for shown in [Arc::new(structs(None)) as ArrayRef, Arc::new(fixed(None)), Arc::new(lists(None))] {
            assert!(fit_decimals(&shown, None).is_err(), "{}", shown.data_type());
        }
    }
}
