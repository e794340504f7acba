//! Decimals, and integers that represent them, as decimals of any of Arrow's four widths.

use std::any::TypeId;
use std::sync::Arc;

use arrow::array::{ArrowPrimitiveType, AsArray as _, PrimitiveArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Int8Type, Int16Type, Int32Type,
    Int64Type, i256,
};

use super::{ArrowRef, present};
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
/// If a value that is not null does not fit the width of `to`.
pub(crate) fn from_unscaled(values: &ArrowRef, nulls: Option<NullBuffer>, to: &DataType) -> Result<ArrowRef> {
    match to {
        DataType::Dictionary(_, decoded) => present(from_unscaled(values, nulls, decoded)?, to),
        DataType::Decimal32(..) => {
            match_storage!(values.data_type(), |S| resize::<S, Decimal32Type>(values, nulls, to))
        }
        DataType::Decimal64(..) => {
            match_storage!(values.data_type(), |S| resize::<S, Decimal64Type>(values, nulls, to))
        }
        DataType::Decimal128(..) => {
            match_storage!(values.data_type(), |S| resize::<S, Decimal128Type>(values, nulls, to))
        }
        DataType::Decimal256(..) => {
            match_storage!(values.data_type(), |S| resize::<S, Decimal256Type>(values, nulls, to))
        }
        other => Err(Error::invalid(format!("cannot convert decimals to Arrow type {other}"))),
    }
}

fn resize<S, T>(values: &ArrowRef, nulls: Option<NullBuffer>, to: &DataType) -> Result<ArrowRef>
where
    S: ArrowPrimitiveType<Native: Resize<T::Native>>,
    T: ArrowPrimitiveType,
{
    let values = values.as_primitive::<S>().values();
    let resized = if TypeId::of::<S::Native>() == TypeId::of::<T::Native>() {
        ScalarBuffer::new(values.inner().clone(), 0, values.len())
    } else {
        if !S::Native::ALWAYS_FITS && !values.iter().fold(true, |fit, value| fit & value.fits()) {
            let is_valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            if let Some(row) = (0..values.len()).find(|row| is_valid(*row) && !values[*row].fits()) {
                return Err(Error::corrupt(format!("decimal {:?} in row {row} exceeds {to}", values[row])));
            }
        }
        let resized: Vec<T::Native> = values.iter().map(|value| value.wrap()).collect();
        ScalarBuffer::new(Buffer::from_vec(resized), 0, values.len())
    };
    Ok(Arc::new(PrimitiveArray::<T>::try_new(resized, nulls)?.with_data_type(to.clone())))
}

/// Converts integers of one width to another.
trait Resize<T>: Copy {
    /// Whether all values fit.
    const ALWAYS_FITS: bool;
    /// The value, which must fit.
    fn wrap(self) -> T;
    fn fits(self) -> bool;
}

macro_rules! resize_between {
    ($($S:ty => $($T:ty),*;)*) => {$($(
        impl Resize<$T> for $S {
            const ALWAYS_FITS: bool = size_of::<$T>() >= size_of::<$S>();

            fn wrap(self) -> $T {
                self as $T
            }

            fn fits(self) -> bool {
                self as $T as $S == self
            }
        }
    )*)*};
}

resize_between! {
    i8 => i32, i64, i128;
    i16 => i32, i64, i128;
    i32 => i32, i64, i128;
    i64 => i32, i64, i128;
    i128 => i32, i64, i128;
}

macro_rules! resize_with_i256 {
    ($($narrow:ty),*) => {$(
        impl Resize<i256> for $narrow {
            const ALWAYS_FITS: bool = true;

            fn wrap(self) -> i256 {
                i256::from_i128(i128::from(self))
            }

            fn fits(self) -> bool {
                true
            }
        }
    )*};
    (to $($narrow:ty),*) => {$(
        impl Resize<$narrow> for i256 {
            const ALWAYS_FITS: bool = false;

            fn wrap(self) -> $narrow {
                self.as_i128() as $narrow
            }

            fn fits(self) -> bool {
                self.to_i128().is_some_and(|value| <$narrow>::try_from(value).is_ok())
            }
        }
    )*};
}

resize_with_i256!(i8, i16, i32, i64, i128);
resize_with_i256!(to i32, i64, i128);

impl Resize<i256> for i256 {
    const ALWAYS_FITS: bool = true;

    fn wrap(self) -> i256 {
        self
    }

    fn fits(self) -> bool {
        true
    }
}
