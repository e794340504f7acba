//! Arrow arrays of several values.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, LargeBinaryArray, LargeStringArray, PrimitiveArray,
    StringArray, StringViewArray,
};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type, i256,
};

use super::Value;
use super::rows::{expand, mismatch};
use crate::array::concat;
use crate::dtype::DType;
use crate::limits::Limits;
use crate::{Error, Result};

/// An array of type `to` with a row for each of the values, which are of type `dtype`.
///
/// # Errors
/// If `to` cannot represent a value.
pub(crate) fn array_of<'a>(
    values: impl IntoIterator<Item = &'a Value>,
    dtype: &DType,
    to: &DataType,
) -> Result<ArrayRef> {
    let values: Vec<&Value> = values.into_iter().collect();
    if let Some(array) = flat_array(&values, to)? {
        return Ok(array);
    }
    let rows = values.iter().map(|value| expand(value, dtype, to, 1, &Limits::default()));
    concat(&rows.collect::<Result<Vec<_>>>()?, to, &Limits::of_any_bytes())
}

/// As [`array_of`], for booleans, numbers and strings; `None` if `to` is not a type of these.
pub(super) fn flat_array(values: &[&Value], to: &DataType) -> Result<Option<ArrayRef>> {
    macro_rules! rows {
        ($pattern:pat => $row:expr) => {{
            let rows = values.iter().map(|value| match value {
                Value::Null => Ok(None),
                $pattern => Ok(Some($row)),
                other => Err(mismatch(other, to)),
            });
            rows.collect::<Result<Vec<_>>>()?
        }};
    }
    macro_rules! native {
        ($T:ty, $pattern:pat => $row:expr) => {{
            let rows = rows!($pattern => $row);
            Arc::new(rows.into_iter().collect::<PrimitiveArray<$T>>().with_data_type(to.clone()))
        }};
    }
    let text = || Ok::<_, Error>(rows!(Value::Utf8(text) => &**text));
    let bytes = || Ok::<_, Error>(rows!(Value::Binary(bytes) => &**bytes));
    let array: ArrayRef = match to {
        DataType::Boolean => Arc::new(BooleanArray::from(rows!(Value::Bool(v) => *v))),
        DataType::Int8 => native!(Int8Type, Value::Int(v) => *v as i8),
        DataType::Int16 => native!(Int16Type, Value::Int(v) => *v as i16),
        DataType::Int32 => native!(Int32Type, Value::Int(v) => *v as i32),
        DataType::Int64 => native!(Int64Type, Value::Int(v) => *v),
        DataType::Date32 => native!(Date32Type, Value::Int(v) => *v as i32),
        DataType::Date64 => native!(Date64Type, Value::Int(v) => *v),
        DataType::Time32(TimeUnit::Second) => native!(Time32SecondType, Value::Int(v) => *v as i32),
        DataType::Time32(TimeUnit::Millisecond) => native!(Time32MillisecondType, Value::Int(v) => *v as i32),
        DataType::Time64(TimeUnit::Microsecond) => native!(Time64MicrosecondType, Value::Int(v) => *v),
        DataType::Time64(TimeUnit::Nanosecond) => native!(Time64NanosecondType, Value::Int(v) => *v),
        DataType::Timestamp(TimeUnit::Second, _) => native!(TimestampSecondType, Value::Int(v) => *v),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            native!(TimestampMillisecondType, Value::Int(v) => *v)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            native!(TimestampMicrosecondType, Value::Int(v) => *v)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => native!(TimestampNanosecondType, Value::Int(v) => *v),
        DataType::UInt8 => native!(UInt8Type, Value::UInt(v) => *v as u8),
        DataType::UInt16 => native!(UInt16Type, Value::UInt(v) => *v as u16),
        DataType::UInt32 => native!(UInt32Type, Value::UInt(v) => *v as u32),
        DataType::UInt64 => native!(UInt64Type, Value::UInt(v) => *v),
        DataType::Float16 => native!(Float16Type, Value::F16(v) => *v),
        DataType::Float32 => native!(Float32Type, Value::F32(v) => *v),
        DataType::Float64 => native!(Float64Type, Value::F64(v) => *v),
        DataType::Decimal32(..) => native!(Decimal32Type, Value::Decimal(v) => narrow::<i32>(*v, to)?),
        DataType::Decimal64(..) => native!(Decimal64Type, Value::Decimal(v) => narrow::<i64>(*v, to)?),
        DataType::Decimal128(..) => native!(Decimal128Type, Value::Decimal(v) => narrow::<i128>(*v, to)?),
        DataType::Decimal256(..) => native!(Decimal256Type, Value::Decimal(v) => *v),
        DataType::Utf8 => Arc::new(StringArray::from(short(text()?)?)),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(text()?)),
        // Builders of views allocate kilobytes even for a single short text.
        DataType::Utf8View => Arc::new(StringViewArray::from(text()?).gc()),
        DataType::Binary => Arc::new(BinaryArray::from(short(bytes()?)?)),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from(bytes()?)),
        DataType::BinaryView => Arc::new(bytes()?.into_iter().collect::<BinaryViewArray>().gc()),
        _ => return Ok(None),
    };
    Ok(Some(array))
}

/// The unscaled value in the width of `to`.
fn narrow<N: TryFrom<i128>>(unscaled: i256, to: &DataType) -> Result<N> {
    let narrow = unscaled.to_i128().and_then(|v| N::try_from(v).ok());
    narrow.ok_or_else(|| mismatch(&Value::Decimal(unscaled), to))
}

/// Strings, provided that offsets of 32 bits can address them.
fn short<V: AsRef<[u8]>>(rows: Vec<Option<V>>) -> Result<Vec<Option<V>>> {
    let bytes = rows.iter().flatten().fold(0, |sum: usize, row| sum.saturating_add(row.as_ref().len()));
    match i32::try_from(bytes) {
        Ok(_) => Ok(rows),
        Err(_) => Err(Error::limit(format!("strings of {bytes} bytes in one array, {} allowed", i32::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Array as _;
    use arrow::datatypes::Field;

    use super::*;
    use crate::dtype::{DecimalType, PType};
    use crate::scalar::Scalar;

    #[test]
    fn values_become_rows_of_every_type_that_represents_them() {
        let int = Value::Int;
        let text = |v: &str| Value::Utf8(v.into());
        let bytes = |v: &[u8]| Value::Binary(v.into());
        let decimal = |v| Value::Decimal(i256::from_i128(v));
        let list = |values: &[Value]| Value::List(values.into());
        let (date, number) = (DType::Primitive(PType::I32, true), DType::Primitive(PType::I64, true));
        let byte = DType::Primitive(PType::U8, false);
        let texts = [text("short"), text("longer than twelve bytes")];
        let strings = [bytes(b""), bytes(b"longer than twelve bytes")];
        let decimals = [decimal(-12), decimal(34)];
        let of_texts = |to| (DType::Utf8(true), texts.clone(), to);
        let of_strings = |to| (DType::Binary(true), strings.clone(), to);
        let of_decimals =
            |to| (DType::Decimal(DecimalType::try_new(5, 2).unwrap(), true), decimals.clone(), to);
        let keys = Box::new(DataType::Int8);
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let cases = [
            (DType::Bool(true), [Value::Bool(true), Value::Bool(false)], DataType::Boolean),
            (date, [int(-1), int(i64::from(i32::MAX))], DataType::Date32),
            (number.clone(), [int(0), int(i64::MIN)], DataType::Timestamp(TimeUnit::Microsecond, None)),
            of_texts(DataType::Utf8),
            of_texts(DataType::LargeUtf8),
            of_texts(DataType::Utf8View),
            of_texts(DataType::Dictionary(keys, Box::new(DataType::Utf8))),
            of_strings(DataType::Binary),
            of_strings(DataType::LargeBinary),
            of_strings(DataType::BinaryView),
            of_decimals(DataType::Decimal32(5, 2)),
            of_decimals(DataType::Decimal64(5, 2)),
            of_decimals(DataType::Decimal128(5, 2)),
            of_decimals(DataType::Decimal256(5, 2)),
            (
                DType::FixedSizeList(Arc::new(byte), 16, true),
                [7, 8].map(|v| list(&std::array::from_fn::<_, 16, _>(|_| Value::UInt(v)))),
                DataType::FixedSizeBinary(16),
            ),
            (
                DType::List(Arc::new(number), true),
                [list(&[int(1), Value::Null]), list(&[])],
                DataType::List(item),
            ),
        ];
        for (dtype, [first, last], to) in cases {
            let values = [first, Value::Null, last];
            let array = array_of(&values, &dtype, &to).unwrap();
            assert_eq!((array.data_type(), array.len()), (&to, 3));
            for (row, value) in values.iter().enumerate() {
                let found = Scalar::from_arrow(array.as_ref(), row, &dtype).unwrap();
                assert_eq!(found.value(), value, "row {row} of {to}");
            }
            assert_eq!(array_of(&values[..0], &dtype, &to).unwrap().data_type(), &to);
        }
    }

    #[test]
    fn more_rows_than_a_dictionary_has_keys_share_values() {
        let to = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8View));
        let texts: Vec<Value> = (0..300).map(|at| Value::Utf8((at % 128).to_string().into())).collect();
        let found = array_of(&texts, &DType::Utf8(true), &to).unwrap();
        assert_eq!((found.data_type(), found.len()), (&to, 300));
        assert_eq!(Scalar::from_arrow(found.as_ref(), 299, &DType::Utf8(true)).unwrap().value(), &texts[299]);
        let others: Vec<Value> = (0..300).map(|at| Value::Utf8(at.to_string().into())).collect();
        assert!(array_of(&others, &DType::Utf8(true), &to).is_err());
    }

    #[test]
    fn a_value_that_the_type_cannot_represent_is_an_error() {
        let dtype = DType::Primitive(PType::I64, true);
        let refused = |values: &[Value], to| array_of(values, &dtype, &to).is_err();
        assert!(refused(&[Value::Int(1), Value::UInt(1)], DataType::Int64));
        assert!(refused(&[Value::Int(1)], DataType::Utf8View));
        assert!(refused(&[Value::Int(1)], DataType::FixedSizeBinary(1)));
        assert!(refused(&[Value::Decimal(i256::from_i128(1 << 40))], DataType::Decimal32(9, 0)));
        assert!(refused(&[Value::Decimal(i256::MAX)], DataType::Decimal128(38, 0)));
    }

    #[test]
    fn text_takes_little_more_than_its_bytes() {
        let text = Value::Utf8("longer than twelve bytes".into());
        let array = array_of([&text], &DType::Utf8(false), &DataType::Utf8View).unwrap();
        assert!(array.get_buffer_memory_size() < 100, "{} bytes", array.get_buffer_memory_size());
    }
}
