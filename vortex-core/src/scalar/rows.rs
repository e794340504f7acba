//! Conversion of values to rows of Arrow arrays, and back.

use std::sync::Arc;

use arrow::array::{
    self, Array as _, ArrayRef as ArrowRef, AsArray as _, BinaryArray, BinaryViewArray, BooleanArray,
    Decimal32Array, Decimal64Array, Decimal128Array, Decimal256Array, Float16Array, Float32Array,
    Float64Array, LargeBinaryArray, LargeStringArray, NullArray, PrimitiveArray, StringArray,
    StringViewArray, StructArray, UInt32Array, UnionArray, new_null_array,
};
use arrow::buffer::{BooleanBuffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowNativeType as _, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, FieldRef, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, UnionMode, i256,
};

use super::Value;
use crate::dtype::DType;
use crate::kernels::runs::repeat_runs;
use crate::kernels::views::repeat_view;
use crate::limits::Limits;
use crate::{Error, Result};

fn mismatch(value: &Value, to: &DataType) -> Error {
    Error::invalid(format!("cannot represent {value:?} as Arrow type {to}"))
}

/// Number of bytes of a null row; fixed-size lists and structs have values below it, and a bit for each of
/// them.
fn null_bytes(to: &DataType) -> u64 {
    let sum = |sum: u64, field: &FieldRef| sum.saturating_add(null_bytes(field.data_type()));
    match to {
        DataType::Null => 1,
        DataType::FixedSizeBinary(size) => u64::try_from(*size).unwrap_or(0).saturating_add(1),
        DataType::FixedSizeList(item, size) => {
            null_bytes(item.data_type()).saturating_mul(u64::try_from(*size).unwrap_or(0)).saturating_add(1)
        }
        DataType::Struct(fields) => fields.iter().fold(1, sum),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field).fold(1, sum),
        other => other.primitive_width().unwrap_or(16) as u64,
    }
}

/// An array of `len` nulls.
///
/// # Errors
/// If it takes more bytes than the limits allow.
pub(crate) fn null_rows(to: &DataType, len: usize, limits: &Limits) -> Result<ArrowRef> {
    if to == &DataType::Null {
        return Ok(Arc::new(NullArray::new(len)));
    }
    limits.decoded_bytes(len, usize::try_from(null_bytes(to)).unwrap_or(usize::MAX))?;
    Ok(new_null_array(to, len))
}

/// An array of `len` rows with the same value.
pub(super) fn expand(value: &Value, dtype: &DType, to: &DataType, len: usize) -> Result<ArrowRef> {
    if let DataType::Dictionary(..) = to {
        let DataType::Dictionary(_, values) = to else { return Err(mismatch(value, to)) };
        let one = expand(value, dtype, values, len.min(1))?;
        let one = arrow::compute::cast(&one, to)?;
        return repeat(&one, len);
    }
    if *value == Value::Null {
        return null_rows(to, len, &Limits::default());
    }
    macro_rules! native {
        ($T:ty, $v:expr) => {{
            let values = repeat_runs(&[$v], std::iter::once(len), len);
            Arc::new(PrimitiveArray::<$T>::new(values.into(), None).with_data_type(to.clone()))
        }};
    }
    let storage = dtype.storage();
    Ok(match (value, to) {
        (Value::Bool(v), DataType::Boolean) => {
            let bits = if *v { BooleanBuffer::new_set(len) } else { BooleanBuffer::new_unset(len) };
            Arc::new(BooleanArray::new(bits, None))
        }
        (Value::Int(v), DataType::Int8) => native!(Int8Type, *v as i8),
        (Value::Int(v), DataType::Int16) => native!(Int16Type, *v as i16),
        (Value::Int(v), DataType::Int32) => native!(Int32Type, *v as i32),
        (Value::Int(v), DataType::Int64) => native!(Int64Type, *v),
        (Value::Int(v), DataType::Date32) => native!(Date32Type, *v as i32),
        (Value::Int(v), DataType::Date64) => native!(Date64Type, *v),
        (Value::Int(v), DataType::Time32(TimeUnit::Second)) => native!(Time32SecondType, *v as i32),
        (Value::Int(v), DataType::Time32(TimeUnit::Millisecond)) => native!(Time32MillisecondType, *v as i32),
        (Value::Int(v), DataType::Time64(TimeUnit::Microsecond)) => native!(Time64MicrosecondType, *v),
        (Value::Int(v), DataType::Time64(TimeUnit::Nanosecond)) => native!(Time64NanosecondType, *v),
        (Value::Int(v), DataType::Timestamp(TimeUnit::Second, _)) => native!(TimestampSecondType, *v),
        (Value::Int(v), DataType::Timestamp(TimeUnit::Millisecond, _)) => {
            native!(TimestampMillisecondType, *v)
        }
        (Value::Int(v), DataType::Timestamp(TimeUnit::Microsecond, _)) => {
            native!(TimestampMicrosecondType, *v)
        }
        (Value::Int(v), DataType::Timestamp(TimeUnit::Nanosecond, _)) => native!(TimestampNanosecondType, *v),
        (Value::UInt(v), DataType::UInt8) => native!(UInt8Type, *v as u8),
        (Value::UInt(v), DataType::UInt16) => native!(UInt16Type, *v as u16),
        (Value::UInt(v), DataType::UInt32) => native!(UInt32Type, *v as u32),
        (Value::UInt(v), DataType::UInt64) => native!(UInt64Type, *v),
        (Value::F16(v), DataType::Float16) => native!(Float16Type, *v),
        (Value::F32(v), DataType::Float32) => native!(Float32Type, *v),
        (Value::F64(v), DataType::Float64) => native!(Float64Type, *v),
        (Value::Decimal(v), DataType::Decimal32(..)) => {
            native!(
                Decimal32Type,
                v.to_i128().and_then(|v| i32::try_from(v).ok()).ok_or_else(|| mismatch(value, to))?
            )
        }
        (Value::Decimal(v), DataType::Decimal64(..)) => {
            native!(
                Decimal64Type,
                v.to_i128().and_then(|v| i64::try_from(v).ok()).ok_or_else(|| mismatch(value, to))?
            )
        }
        (Value::Decimal(v), DataType::Decimal128(..)) => {
            native!(Decimal128Type, v.to_i128().ok_or_else(|| mismatch(value, to))?)
        }
        (Value::Decimal(v), DataType::Decimal256(..)) => native!(Decimal256Type, *v),
        (Value::Utf8(text), DataType::Utf8View) => {
            repeat(&(Arc::new(StringViewArray::from(vec![&**text])) as ArrowRef), len)?
        }
        (Value::Utf8(text), DataType::Utf8) => {
            repeat(&(Arc::new(StringArray::from(vec![&**text])) as ArrowRef), len)?
        }
        (Value::Utf8(text), DataType::LargeUtf8) => {
            repeat(&(Arc::new(LargeStringArray::from(vec![&**text])) as ArrowRef), len)?
        }
        (Value::Binary(bytes), DataType::BinaryView) => {
            repeat(&(Arc::new(BinaryViewArray::from(vec![&**bytes])) as ArrowRef), len)?
        }
        (Value::Binary(bytes), DataType::Binary) => {
            repeat(&(Arc::new(BinaryArray::from(vec![&**bytes])) as ArrowRef), len)?
        }
        (Value::Binary(bytes), DataType::LargeBinary) => {
            repeat(&(Arc::new(LargeBinaryArray::from(vec![&**bytes])) as ArrowRef), len)?
        }
        (Value::Variant(inner), DataType::Struct(fields)) => {
            let (metadata, bytes) = crate::variant::encode(inner)?;
            let columns = [metadata, bytes].into_iter().zip(fields).map(|(bytes, field)| {
                let value = Value::Binary(bytes.into());
                expand(&value, &DType::Binary(false), field.data_type(), len)
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, None, len)?)
        }
        (Value::Union(id, inner), DataType::Union(fields, UnionMode::Sparse)) => {
            let DType::Union(union, _) = storage else { return Err(mismatch(value, to)) };
            let selected = union.type_ids.iter().position(|candidate| candidate == id);
            let selected = selected.ok_or_else(|| mismatch(value, to))?;
            let variants = union.variants.dtypes().iter().zip(fields.iter()).enumerate();
            let columns = variants.map(|(at, (dtype, (_, field)))| {
                let value = if at == selected { inner } else { &Value::Null };
                expand(value, dtype, field.data_type(), len)
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let (arrow_id, _) = fields.iter().nth(selected).ok_or_else(|| mismatch(value, to))?;
            let ids = vec![arrow_id; len].into();
            Arc::new(UnionArray::try_new(fields.clone(), ids, None, columns)?)
        }
        (Value::List(values), DataType::Struct(fields)) => {
            let DType::Struct(inner, _) = storage else { return Err(mismatch(value, to)) };
            if fields.len() != values.len() || inner.len() != values.len() {
                return Err(mismatch(value, to));
            }
            let columns = values
                .iter()
                .zip(inner.dtypes())
                .zip(fields)
                .map(|((value, dtype), field)| expand(value, dtype, field.data_type(), len))
                .collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, None, len)?)
        }
        (Value::List(values), _) => {
            let element = match storage {
                DType::List(element, _) | DType::FixedSizeList(element, _, _) => element.as_ref().clone(),
                DType::Map(map, _) => map.entry(),
                _ => return Err(mismatch(value, to)),
            };
            repeat(&one_list(values, &element, to)?, len)?
        }
        _ => return Err(mismatch(value, to)),
    })
}

/// An array of one row with a list of `values`.
fn one_list(values: &[Value], element: &DType, to: &DataType) -> Result<ArrowRef> {
    let items = |field: &arrow::datatypes::Field| -> Result<ArrowRef> {
        let rows = values
            .iter()
            .map(|value| expand(value, element, field.data_type(), 1))
            .collect::<Result<Vec<_>>>()?;
        let rows: Vec<&dyn array::Array> = rows.iter().map(AsRef::as_ref).collect();
        if rows.is_empty() {
            return Ok(array::new_empty_array(field.data_type()));
        }
        Ok(arrow::compute::concat(&rows)?)
    };
    Ok(match to {
        DataType::List(field) => Arc::new(array::ListArray::try_new(
            Arc::clone(field),
            OffsetBuffer::from_lengths([values.len()]),
            items(field)?,
            None,
        )?),
        DataType::LargeList(field) => Arc::new(array::LargeListArray::try_new(
            Arc::clone(field),
            OffsetBuffer::from_lengths([values.len()]),
            items(field)?,
            None,
        )?),
        DataType::FixedSizeBinary(16) => {
            let bytes = values
                .iter()
                .map(|value| match value {
                    Value::UInt(byte) => u8::try_from(*byte).map_err(|_| mismatch(value, to)),
                    other => Err(mismatch(other, to)),
                })
                .collect::<Result<Vec<u8>>>()?;
            Arc::new(array::FixedSizeBinaryArray::try_from_iter(std::iter::once(bytes))?)
        }
        DataType::FixedSizeList(field, size) => Arc::new(array::FixedSizeListArray::try_new_with_length(
            Arc::clone(field),
            *size,
            items(field)?,
            None,
            1,
        )?),
        DataType::Map(field, sorted) => Arc::new(array::MapArray::try_new(
            Arc::clone(field),
            OffsetBuffer::from_lengths([values.len()]),
            items(field)?.as_struct().clone(),
            None,
            *sorted,
        )?),
        DataType::ListView(field) => Arc::new(array::ListViewArray::try_new(
            Arc::clone(field),
            vec![0i32].into(),
            vec![i32::from_usize(values.len()).ok_or_else(|| Error::limit("list of 2^31 elements"))?].into(),
            items(field)?,
            None,
        )?),
        DataType::LargeListView(field) => Arc::new(array::LargeListViewArray::try_new(
            Arc::clone(field),
            vec![0i64].into(),
            vec![values.len() as i64].into(),
            items(field)?,
            None,
        )?),
        _ => return Err(Error::invalid(format!("cannot represent a list as Arrow type {to}"))),
    })
}

fn repeat(one: &ArrowRef, len: usize) -> Result<ArrowRef> {
    match len {
        0 => Ok(one.slice(0, 0)),
        1 => Ok(Arc::clone(one)),
        _ => {
            let views: Option<ArrowRef> = match one.data_type() {
                DataType::Utf8View => {
                    repeat_view(one.as_string_view(), len).map(|views| Arc::new(views) as _)
                }
                DataType::BinaryView => {
                    repeat_view(one.as_binary_view(), len).map(|views| Arc::new(views) as _)
                }
                _ => None,
            };
            match views {
                Some(views) => Ok(views),
                None => crate::array::take(one, &UInt32Array::from_value(0, len)),
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::PType;
    use crate::dtype::arrow::data_type;
    use crate::scalar::Scalar;

    #[test]
    fn values_round_trip_through_arrow() {
        let list = DType::List(Arc::new(DType::Utf8(true)), false);
        let cases = [
            (DType::Primitive(PType::I64, false), Value::Int(i64::MIN)),
            (DType::Primitive(PType::F32, false), Value::F32(-0.0)),
            (DType::Utf8(false), Value::Utf8("a string longer than twelve bytes".into())),
            (DType::Bool(true), Value::Null),
            (list, Value::List(vec![Value::Utf8("x".into()), Value::Null].into())),
        ];
        for (dtype, value) in cases {
            let scalar = Scalar::try_new(dtype.clone(), value).unwrap();
            let rows = scalar.to_arrow(&data_type(&dtype).unwrap(), 3).unwrap();
            assert_eq!(rows.len(), 3);
            assert_eq!(Scalar::from_arrow(rows.as_ref(), 2, &dtype).unwrap(), scalar);
        }
    }

    #[test]
    fn nulls_below_lists_of_fixed_size_are_counted() {
        let list = |item, size| DataType::FixedSizeList(Arc::new(array_field(item)), size);
        let limits = Limits::new().with_max_decoded_bytes(1 << 20);
        for to in [list(DataType::Null, 1 << 10), list(list(DataType::Int8, 1 << 5), 1 << 5)] {
            assert_eq!(null_rows(&to, 10, &limits).unwrap().len(), 10);
            assert!(null_rows(&to, 1 << 11, &limits).is_err(), "{to}");
        }
        assert!(null_rows(&DataType::FixedSizeBinary(i32::MAX), 1, &limits).is_err());
        assert!(null_rows(&list(list(DataType::Int64, i32::MAX), i32::MAX), 1, &limits).is_err());
        assert_eq!(null_rows(&DataType::Null, 1 << 40, &limits).unwrap().len(), 1 << 40);
    }

    fn array_field(of: DataType) -> arrow::datatypes::Field {
        arrow::datatypes::Field::new("item", of, true)
    }

    #[test]
    fn a_null_list_of_too_many_elements_is_refused() {
        let item = std::sync::Arc::new(arrow::datatypes::Field::new("item", DataType::Int64, true));
        let number = DType::Primitive(PType::I64, true);
        let null = Scalar::null(&DType::FixedSizeList(Arc::new(number), u32::MAX >> 1, true));
        assert!(null.to_arrow(&DataType::FixedSizeList(item, i32::MAX), 1).is_err());
    }
}
