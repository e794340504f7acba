//! Decimals: stored as integers, as narrow as the values allow.

use arrow::array::{Array as _, ArrayRef, ArrowPrimitiveType, AsArray as _, PrimitiveArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{Decimal128Type, Decimal256Type, i256};

use super::numbers::compress_as;
use super::scheme::{Context, Kind};
use super::{boolean, canonical, nested};
use crate::dtype::{DType, PType};
use crate::encodings::{constant, decimal, decimal_byte_parts, masked};
use crate::release::since;
use crate::scalar::Value;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// Compresses a column of decimals.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress(cx: &Context, array: &ArrayRef, dtype: &DType) -> Result<WriteNode> {
    if let Some(decimals) = array.as_primitive_opt::<Decimal128Type>() {
        let Some((low, high)) = range(decimals) else { return canonical::decimals(array) };
        return match (i64::try_from(low), i64::try_from(high)) {
            (Ok(low), Ok(high)) if can_be_parts(cx, dtype) => {
                parts(cx, dtype, decimals.values(), array.nulls(), (low, high))
            }
            _ => wide(cx, array, low == high, Value::Decimal(i256::from_i128(low))),
        };
    }
    let Some(decimals) = array.as_primitive_opt::<Decimal256Type>() else {
        return Err(Error::unsupported("decimal type to write", dtype));
    };
    let Some((low, high)) = range(decimals) else { return canonical::decimals(array) };
    match (low.to_i128(), high.to_i128()) {
        (Some(low), Some(high)) => {
            let valid = |row: usize| array.is_valid(row);
            let narrow = |(row, value): (usize, &i256)| match valid(row) {
                true => value.as_i128(),
                false => low,
            };
            let values: ScalarBuffer<i128> = decimals.values().iter().enumerate().map(narrow).collect();
            match (i64::try_from(low), i64::try_from(high)) {
                (Ok(low), Ok(high)) if can_be_parts(cx, dtype) => {
                    parts(cx, dtype, &values, array.nulls(), (low, high))
                }
                _ if low == high => wide(cx, array, true, Value::Decimal(i256::from_i128(low))),
                _ => {
                    let node = decimal::encode(4, values.into_inner());
                    Ok(node.children(nested::validity(cx, array.nulls())?))
                }
            }
        }
        _ => wide(cx, array, low == high, Value::Decimal(low)),
    }
}

/// The minimum and the maximum valid value.
fn range<T: ArrowPrimitiveType>(decimals: &PrimitiveArray<T>) -> Option<(T::Native, T::Native)>
where
    T::Native: Ord,
{
    if decimals.null_count() == 0 {
        let values = decimals.values();
        return values.iter().min().copied().zip(values.iter().max().copied());
    }
    let valid = || decimals.iter().flatten();
    valid().min().zip(valid().max())
}

/// Number of decimal digits that all fit the integer type.
fn digits(ptype: PType) -> u8 {
    match ptype {
        PType::I8 => 2,
        PType::I16 => 4,
        PType::I32 => 9,
        _ => 18,
    }
}

/// Number of digits that the integers must have room for, regardless of the values.
fn least_digits(cx: &Context, dtype: &DType) -> u8 {
    match dtype {
        DType::Decimal(decimal, _) if cx.reader() < since::NARROW_DECIMALS => decimal.precision(),
        _ => 0,
    }
}

/// Whether decimals that fit 64 bits can be stored as integers.
fn can_be_parts(cx: &Context, dtype: &DType) -> bool {
    least_digits(cx, dtype) <= digits(PType::I64)
}

/// Compresses decimals that fit 64 bits.
fn parts(
    cx: &Context,
    dtype: &DType,
    values: &ScalarBuffer<i128>,
    nulls: Option<&NullBuffer>,
    (low, high): (i64, i64),
) -> Result<WriteNode> {
    // Parts are signed.
    let least = least_digits(cx, dtype);
    let fits = |ptype: &PType| digits(*ptype) >= least && ptype.holds(low.into(), high.into());
    let ptype = [PType::I8, PType::I16, PType::I32].into_iter().find(fits).unwrap_or(PType::I64);
    // The cast is lossless for valid values.
    let part = compress_as(cx, ptype, values.iter().map(|value| *value as u64), nulls)?;
    Ok(decimal_byte_parts::encode(part, ptype))
}

/// Compresses decimals that exceed 64 bits, with the width of the Arrow type.
fn wide(cx: &Context, array: &ArrayRef, is_uniform: bool, value: Value) -> Result<WriteNode> {
    let validity = array.nulls().filter(|nulls| nulls.null_count() > 0);
    match validity {
        None if is_uniform => constant::encode(&value),
        Some(nulls) if is_uniform && cx.reads(Kind::Masked) => {
            Ok(masked::encode(constant::encode(&value)?, boolean::validity(cx, nulls)?))
        }
        _ => canonical::decimals(array).and_then(|node| Ok(node.children(nested::validity(cx, validity)?))),
    }
}
