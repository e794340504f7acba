//! Decimals, and integers that represent them, as decimals of any of Arrow's four widths.

use std::any::TypeId;
use std::sync::Arc;

use arrow::array::{ArrowNativeTypeOp, ArrowPrimitiveType, AsArray as _, PrimitiveArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType as ArrowDecimal,
    Int8Type, Int16Type, Int32Type, Int64Type, i256,
};

use super::{ArrayRef, present};
use crate::dtype::DecimalType;
use crate::kernels::resize::{Resize, are_within, is_within, resized};
use crate::limits::Limits;
use crate::{Error, Result};

/// Runs `$body` with `$S` bound to the Arrow type of the integers that represent decimals.
macro_rules! match_storage {
    ($data_type:expr, |$S:ident| $body:expr) => {
        match $data_type {
            DataType::Int8 => {
                type $S = Int8Type;
                $body
            }
            DataType::Int16 => {
                type $S = Int16Type;
                $body
            }
            DataType::Int32 => {
                type $S = Int32Type;
                $body
            }
            DataType::Int64 => {
                type $S = Int64Type;
                $body
            }
            DataType::Decimal128(..) => {
                type $S = Decimal128Type;
                $body
            }
            DataType::Decimal256(..) => {
                type $S = Decimal256Type;
                $body
            }
            other => Err(Error::corrupt(format!("decimals cannot be stored as {other}"))),
        }
    };
}

/// Converts unscaled values, which are signed integers or decimals of any scale, to decimals of type `to`.
///
/// # Errors
/// If a value that is not null has more digits than `to`, or they take more bytes than the limits allow.
pub(crate) fn from_unscaled(
    values: &ArrayRef,
    nulls: Option<NullBuffer>,
    to: &DataType,
    limits: &Limits,
) -> Result<ArrayRef> {
    if let Some(width) =
        to.primitive_width().filter(|width| values.data_type().primitive_width() != Some(*width))
    {
        limits.count_rows(values.len(), width)?;
    }
    match to {
        DataType::Dictionary(_, decoded) => present(from_unscaled(values, nulls, decoded, limits)?, to),
        DataType::Decimal32(digits, _) => {
            match_storage!(values.data_type(), |S| resize::<S, Decimal32Type>(
                values, nulls, to, *digits, limits
            ))
        }
        DataType::Decimal64(digits, _) => {
            match_storage!(values.data_type(), |S| resize::<S, Decimal64Type>(
                values, nulls, to, *digits, limits
            ))
        }
        DataType::Decimal128(digits, _) => {
            match_storage!(values.data_type(), |S| resize::<S, Decimal128Type>(
                values, nulls, to, *digits, limits
            ))
        }
        DataType::Decimal256(digits, _) => {
            match_storage!(values.data_type(), |S| resize::<S, Decimal256Type>(
                values, nulls, to, *digits, limits
            ))
        }
        other => Err(Error::invalid(format!("cannot convert decimals to Arrow type {other}"))),
    }
}

/// Whether an unscaled value has at most as many digits as decimals of a type.
pub(crate) fn has_digits_of(decimal: DecimalType, unscaled: i256) -> bool {
    beyond(decimal.precision()).is_none_or(|beyond| is_within(unscaled, beyond))
}

/// The least positive integer with more than `digits` digits; `None` if `N` cannot represent it, or any value is
/// accepted: release 0.56 wrote such of the most digits that there are.
fn beyond<N: ArrowNativeTypeOp>(digits: u8) -> Option<N> {
    let power = || N::usize_as(10).pow_checked(digits.into()).ok();
    (digits < DecimalType::MAX_PRECISION).then(power).flatten()
}

fn resize<S, T>(
    values: &ArrayRef,
    nulls: Option<NullBuffer>,
    to: &DataType,
    digits: u8,
    limits: &Limits,
) -> Result<ArrayRef>
where
    S: ArrowPrimitiveType<Native: Resize<T::Native>>,
    T: ArrowDecimal,
{
    let values = values.as_primitive::<S>().values();
    // Values of no more digits also fit the width.
    let beyond = beyond::<S::Native>(digits.min(T::MAX_PRECISION));
    let (mut resized, are_within) = if TypeId::of::<S::Native>() == TypeId::of::<T::Native>() {
        (values.inner().clone(), are_within(values, beyond))
    } else {
        let (resized, are_within) = resized::<S::Native, T::Native>(values, beyond);
        (Buffer::from_vec(resized), are_within)
    };
    if let Some(beyond) = beyond.filter(|_| !are_within) {
        let is_valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        if let Some(row) = (0..values.len()).find(|row| is_valid(*row) && !is_within(values[*row], beyond)) {
            let value = values[row];
            return Err(Error::corrupt(format!(
                "unscaled value {value:?} in row {row} has more digits than {to}"
            )));
        }
        // Those under nulls are arbitrary. Arrow's casts convert them, too, and panic if they have too many digits.
        limits.count::<T::Native>(values.len())?;
        let kept = resized.typed_data::<T::Native>().iter().zip(values);
        let kept = kept
            .map(|(resized, value)| if is_within(*value, beyond) { *resized } else { T::Native::default() });
        resized = Buffer::from_vec(kept.collect::<Vec<_>>());
    }
    let resized = ScalarBuffer::new(resized, 0, values.len());
    Ok(Arc::new(PrimitiveArray::<T>::try_new(resized, nulls)?.with_data_type(to.clone())))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, Decimal128Array, Decimal256Array};
    use arrow::compute::cast;

    use super::*;

    #[test]
    fn values_under_nulls_that_have_too_many_digits_are_zero() {
        let nulls = || Some(NullBuffer::from(vec![true, false]));
        let long: ArrayRef = Arc::new(Decimal256Array::from(vec![i256::from(100), i256::MAX]));
        let to = DataType::Decimal256(40, 10);
        let decoded = from_unscaled(&long, nulls(), &to, &Limits::default()).unwrap();
        assert_eq!(decoded.as_primitive::<Decimal256Type>().values(), &[i256::from(100), i256::ZERO]);
        // Arrow knows that no value of 40 digits can overflow these.
        assert_eq!(cast(&decoded, &DataType::Decimal128(38, 2)).unwrap().null_count(), 1);

        let short: ArrayRef = Arc::new(Decimal128Array::from(vec![-99_999, i128::MAX]));
        for to in [DataType::Decimal128(5, 2), DataType::Decimal64(5, 2), DataType::Decimal32(5, 2)] {
            let decoded = from_unscaled(&short, nulls(), &to, &Limits::default()).unwrap();
            assert_eq!(cast(&decoded, &DataType::Decimal64(10, 2)).unwrap().null_count(), 1);
            assert!(from_unscaled(&short, None, &to, &Limits::default()).is_err());
        }
    }
}
