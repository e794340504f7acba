//! Reads values from rows of Arrow arrays.

use std::sync::Arc;

use arrow::array::{
    self, Array as _, ArrayRef as ArrowRef, AsArray as _, BinaryArray, BinaryViewArray, Decimal32Array,
    Decimal64Array, Decimal128Array, Decimal256Array, Float16Array, Float32Array, Float64Array,
    LargeBinaryArray, LargeStringArray, StringArray, StringViewArray,
};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type, i256,
};

use super::Value;
use crate::dtype::DType;
use crate::{Error, Result};

/// The value in row `at` of an array that represents `dtype`.
pub(super) fn extract(array: &dyn array::Array, at: usize, dtype: &DType) -> Result<Value> {
    if at >= array.len() {
        return Err(Error::invalid(format!("row {at} of {}", array.len())));
    }
    if array.data_type() == &DataType::Null || array.is_null(at) {
        return Ok(Value::Null);
    }
    macro_rules! number {
        ($T:ty, $kind:ident, $wide:ty) => {
            Value::$kind(array.as_primitive::<$T>().value(at) as $wide)
        };
    }
    macro_rules! exact {
        ($A:ty, $kind:ident) => {
            Value::$kind(
                array
                    .as_any()
                    .downcast_ref::<$A>()
                    .ok_or_else(|| Error::invalid(format!("unexpected array of {}", array.data_type())))?
                    .value(at)
                    .into(),
            )
        };
    }
    Ok(match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(at)),
        DataType::Int8 => number!(Int8Type, Int, i64),
        DataType::Int16 => number!(Int16Type, Int, i64),
        DataType::Int32 => number!(Int32Type, Int, i64),
        DataType::Int64 => number!(Int64Type, Int, i64),
        DataType::UInt8 => number!(UInt8Type, UInt, u64),
        DataType::UInt16 => number!(UInt16Type, UInt, u64),
        DataType::UInt32 => number!(UInt32Type, UInt, u64),
        DataType::UInt64 => number!(UInt64Type, UInt, u64),
        DataType::Date32 => number!(Date32Type, Int, i64),
        DataType::Date64 => number!(Date64Type, Int, i64),
        DataType::Time32(TimeUnit::Second) => number!(Time32SecondType, Int, i64),
        DataType::Time32(_) => number!(Time32MillisecondType, Int, i64),
        DataType::Time64(TimeUnit::Microsecond) => number!(Time64MicrosecondType, Int, i64),
        DataType::Time64(_) => number!(Time64NanosecondType, Int, i64),
        DataType::Timestamp(TimeUnit::Second, _) => number!(TimestampSecondType, Int, i64),
        DataType::Timestamp(TimeUnit::Millisecond, _) => number!(TimestampMillisecondType, Int, i64),
        DataType::Timestamp(TimeUnit::Microsecond, _) => number!(TimestampMicrosecondType, Int, i64),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => number!(TimestampNanosecondType, Int, i64),
        DataType::Float16 => exact!(Float16Array, F16),
        DataType::Float32 => exact!(Float32Array, F32),
        DataType::Float64 => exact!(Float64Array, F64),
        _ => return extract_other(array, at, dtype),
    })
}

fn extract_other(array: &dyn array::Array, at: usize, dtype: &DType) -> Result<Value> {
    macro_rules! text {
        ($A:ty, $kind:ident) => {
            Value::$kind(array.as_any().downcast_ref::<$A>().map(|a| a.value(at)).unwrap_or_default().into())
        };
    }
    macro_rules! decimal {
        ($A:ty, $wide:expr) => {
            Value::Decimal(
                array.as_any().downcast_ref::<$A>().map(|a| $wide(a.value(at))).unwrap_or(i256::ZERO),
            )
        };
    }
    let list = |items: ArrowRef, element: &DType| -> Result<Value> {
        let values =
            (0..items.len()).map(|at| extract(items.as_ref(), at, element)).collect::<Result<Vec<_>>>()?;
        Ok(Value::List(values.into()))
    };
    Ok(match (array.data_type(), dtype.storage()) {
        (DataType::Utf8, _) => text!(StringArray, Utf8),
        (DataType::LargeUtf8, _) => text!(LargeStringArray, Utf8),
        (DataType::Utf8View, _) => text!(StringViewArray, Utf8),
        (DataType::Binary, _) => text!(BinaryArray, Binary),
        (DataType::LargeBinary, _) => text!(LargeBinaryArray, Binary),
        (DataType::BinaryView, _) => text!(BinaryViewArray, Binary),
        (DataType::Decimal32(..), _) => decimal!(Decimal32Array, |v: i32| i256::from_i128(v.into())),
        (DataType::Decimal64(..), _) => decimal!(Decimal64Array, |v: i64| i256::from_i128(v.into())),
        (DataType::Decimal128(..), _) => decimal!(Decimal128Array, i256::from_i128),
        (DataType::Decimal256(..), _) => decimal!(Decimal256Array, |v: i256| v),
        (DataType::Dictionary(..), _) => {
            // All keys of a dictionary are normalized at once.
            let row = array.slice(at, 1);
            let dictionary = row.as_any_dictionary();
            return extract(dictionary.values().as_ref(), dictionary.normalized_keys()[0], dtype);
        }
        (DataType::FixedSizeBinary(_), _) => {
            let bytes = array.as_fixed_size_binary().value(at);
            Value::List(bytes.iter().map(|byte| Value::UInt((*byte).into())).collect())
        }
        (DataType::List(_), DType::List(element, _)) => list(array.as_list::<i32>().value(at), element)?,
        (DataType::LargeList(_), DType::List(element, _)) => list(array.as_list::<i64>().value(at), element)?,
        (DataType::FixedSizeList(..), DType::FixedSizeList(element, _, _)) => {
            list(array.as_fixed_size_list().value(at), element)?
        }
        (DataType::Map(..), DType::Map(map, _)) => list(Arc::new(array.as_map().value(at)), &map.entry())?,
        (DataType::Struct(_), DType::Struct(fields, _))
            if fields.len() == array.as_struct().num_columns() =>
        {
            let columns = array.as_struct().columns().iter().zip(fields.dtypes());
            let values = columns
                .map(|(column, dtype)| extract(column.as_ref(), at, dtype))
                .collect::<Result<Vec<_>>>()?;
            Value::List(values.into())
        }
        (other, dtype) => {
            return Err(Error::invalid(format!("an array of {other} does not hold values of {dtype}")));
        }
    })
}
