//! Reads values from rows of Arrow arrays.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{self, Array as _, ArrayRef, AsArray as _, OffsetSizeTrait};
use arrow::datatypes::{
    ArrowNativeType as _, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};

use super::Value;
use crate::dtype::DType;
use crate::{Error, Result};

/// Bytes that the values of some rows take as scalars, which may be far more than in the array: a byte of a list
/// becomes a [`Value`].
pub(super) fn scalar_bytes(array: &dyn array::Array, rows: Range<usize>) -> usize {
    fn items<O: OffsetSizeTrait>(offsets: &[O], items: &ArrayRef, rows: &Range<usize>) -> usize {
        scalar_bytes(items.as_ref(), offsets[rows.start].as_usize()..offsets[rows.end].as_usize())
    }
    let contents = match array.data_type() {
        DataType::Utf8View => rows.clone().map(|row| array.as_string_view().value(row).len()).sum(),
        DataType::BinaryView => rows.clone().map(|row| array.as_binary_view().value(row).len()).sum(),
        DataType::Utf8 => text_bytes(array.as_string::<i32>().value_offsets(), &rows),
        DataType::LargeUtf8 => text_bytes(array.as_string::<i64>().value_offsets(), &rows),
        DataType::Binary => text_bytes(array.as_binary::<i32>().value_offsets(), &rows),
        DataType::LargeBinary => text_bytes(array.as_binary::<i64>().value_offsets(), &rows),
        DataType::FixedSizeBinary(width) => {
            rows.len().saturating_mul(width.as_usize()).saturating_mul(size_of::<Value>())
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            items(lists.value_offsets(), lists.values(), &rows)
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            items(lists.value_offsets(), lists.values(), &rows)
        }
        DataType::Map(..) => {
            let entries: ArrayRef = Arc::new(array.as_map().entries().clone());
            items(array.as_map().value_offsets(), &entries, &rows)
        }
        DataType::FixedSizeList(_, size) => {
            let size = size.as_usize();
            let lists = array.as_fixed_size_list();
            scalar_bytes(lists.values().as_ref(), rows.start * size..rows.end * size)
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns
                .fold(0usize, |sum, column| sum.saturating_add(scalar_bytes(column.as_ref(), rows.clone())))
        }
        _ => 0,
    };
    rows.len().saturating_mul(size_of::<Value>()).saturating_add(contents)
}

fn text_bytes<O: OffsetSizeTrait>(offsets: &[O], rows: &Range<usize>) -> usize {
    offsets[rows.end].as_usize() - offsets[rows.start].as_usize()
}

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
        DataType::Float16 => Value::F16(array.as_primitive::<Float16Type>().value(at)),
        DataType::Float32 => Value::F32(array.as_primitive::<Float32Type>().value(at)),
        DataType::Float64 => Value::F64(array.as_primitive::<Float64Type>().value(at)),
        _ => return extract_other(array, at, dtype),
    })
}

fn extract_other(array: &dyn array::Array, at: usize, dtype: &DType) -> Result<Value> {
    macro_rules! decimal {
        ($T:ty) => {
            Value::Decimal(i256::from_i128(array.as_primitive::<$T>().value(at).into()))
        };
    }
    let list = |items: ArrayRef, element: &DType| -> Result<Value> {
        let values =
            (0..items.len()).map(|at| extract(items.as_ref(), at, element)).collect::<Result<Vec<_>>>()?;
        Ok(Value::List(values.into()))
    };
    Ok(match (array.data_type(), dtype.storage()) {
        (DataType::Utf8, _) => Value::Utf8(array.as_string::<i32>().value(at).into()),
        (DataType::LargeUtf8, _) => Value::Utf8(array.as_string::<i64>().value(at).into()),
        (DataType::Utf8View, _) => Value::Utf8(array.as_string_view().value(at).into()),
        (DataType::Binary, _) => Value::Binary(array.as_binary::<i32>().value(at).into()),
        (DataType::LargeBinary, _) => Value::Binary(array.as_binary::<i64>().value(at).into()),
        (DataType::BinaryView, _) => Value::Binary(array.as_binary_view().value(at).into()),
        (DataType::Decimal32(..), _) => decimal!(Decimal32Type),
        (DataType::Decimal64(..), _) => decimal!(Decimal64Type),
        (DataType::Decimal128(..), _) => decimal!(Decimal128Type),
        (DataType::Decimal256(..), _) => Value::Decimal(array.as_primitive::<Decimal256Type>().value(at)),
        (DataType::Dictionary(..), _) => {
            // All keys of a dictionary are normalized at once.
            let row = array.slice(at, 1);
            let dictionary = row.as_any_dictionary();
            return extract(dictionary.values().as_ref(), dictionary.normalized_keys()[0], dtype);
        }
        // What the format lacks is stored as byte strings.
        (DataType::FixedSizeBinary(_), DType::Binary(_)) => {
            Value::Binary(array.as_fixed_size_binary().value(at).into())
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

#[cfg(test)]
mod tests {
    use arrow::array::{Int8Array, ListArray, StringViewArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn scalars_of_nested_rows_take_the_bytes_of_all_their_values() {
        let value = size_of::<Value>();
        let item = Arc::new(Field::new("item", DataType::Int8, false));
        let lists = OffsetBuffer::from_lengths([1, 0, 3]);
        let lists = ListArray::new(item, lists, Arc::new(Int8Array::from(vec![1, 2, 3, 4])), None);
        assert_eq!(scalar_bytes(&lists, 0..1), 2 * value);
        assert_eq!(scalar_bytes(&lists, 1..3), 5 * value);
        assert_eq!(scalar_bytes(&lists.slice(2, 1), 0..1), 4 * value);
        let texts = StringViewArray::from_iter_values(["", "a text that views do not hold", "b"]);
        assert_eq!(scalar_bytes(&texts, 1..3), 2 * value + 30);
        let both = StructArray::from(vec![
            (Arc::new(Field::new("lists", lists.data_type().clone(), false)), Arc::new(lists) as ArrayRef),
            (Arc::new(Field::new("texts", DataType::Utf8View, false)), Arc::new(texts) as _),
        ]);
        assert_eq!(scalar_bytes(&both, 0..1), 4 * value);
    }
}
