//! Rows of Arrow arrays that all have the same value.

use std::sync::Arc;

use arrow::array::{
    self, Array as _, ArrayRef, ArrowPrimitiveType, AsArray as _, BooleanArray, NullArray, PrimitiveArray,
    StructArray, UInt32Array, UnionArray, downcast_primitive_array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{ArrowNativeType as _, DataType, FieldRef, Fields, UnionFields, UnionMode};

use super::arrays::{array_of, flat_array};
use super::{Scalar, Value, shown};
use crate::dtype::{DType, StructType, UnionType};
use crate::kernels::runs::repeat_one;
use crate::kernels::views::repeat_view;
use crate::limits::Limits;
use crate::{Error, Result};

pub(super) fn mismatch(value: &Value, to: &DataType) -> Error {
    Error::invalid(format!("cannot represent {} as Arrow type {to}", shown(value, &DType::Null)))
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
pub(crate) fn null_rows(to: &DataType, len: usize, limits: &Limits) -> Result<ArrayRef> {
    if to == &DataType::Null {
        return Ok(Arc::new(NullArray::new(len)));
    }
    limits.count_rows(len, usize::try_from(null_bytes(to)).unwrap_or(usize::MAX))?;
    Ok(new_null_array(to, len))
}

/// An array of `len` rows with the same value.
///
/// # Errors
/// If `to` cannot represent it, or rows of nulls take more bytes than the limits allow.
pub(super) fn expand(
    value: &Value,
    dtype: &DType,
    to: &DataType,
    len: usize,
    limits: &Limits,
) -> Result<ArrayRef> {
    if let DataType::Dictionary(_, values) = to {
        let one = expand(value, dtype, values, len.min(1), limits)?;
        return repeat(&arrow::compute::cast(&one, to)?, len);
    }
    let storage = dtype.storage();
    match (value, to) {
        (Value::Null, _) => null_rows(to, len, limits),
        (Value::List(values), DataType::Struct(fields)) => match storage {
            DType::Struct(inner, _) if inner.len() == values.len() && fields.len() == values.len() => {
                structs(values, inner, fields, len, limits)
            }
            _ => Err(mismatch(value, to)),
        },
        (Value::List(values), _) => {
            let element = match storage {
                DType::List(element, _) | DType::FixedSizeList(element, _, _) => element.as_ref().clone(),
                DType::Map(map, _) => map.entry(),
                _ => return Err(mismatch(value, to)),
            };
            repeat(&one_list(values, &element, to)?, len)
        }
        (Value::Variant(inner), DataType::Struct(fields)) => variants(inner, fields, len, limits),
        (Value::Union(id, inner), DataType::Union(fields, UnionMode::Sparse)) => match storage {
            DType::Union(union, _) => {
                let selected = union.position(*id).ok_or_else(|| mismatch(value, to))?;
                unions(selected, inner, union, fields, len, limits)
            }
            _ => Err(mismatch(value, to)),
        },
        _ => match flat_array(&[value], to)? {
            Some(one) => repeat(&one, len),
            None => Err(mismatch(value, to)),
        },
    }
}

fn structs(
    values: &[Value],
    dtypes: &StructType,
    fields: &Fields,
    len: usize,
    limits: &Limits,
) -> Result<ArrayRef> {
    let columns = values.iter().zip(dtypes.dtypes()).zip(fields);
    let columns = columns.map(|((value, dtype), field)| expand(value, dtype, field.data_type(), len, limits));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, None, len)?))
}

fn variants(value: &Scalar, fields: &Fields, len: usize, limits: &Limits) -> Result<ArrayRef> {
    let (metadata, bytes) = crate::variant::encode(value)?;
    let columns = [metadata, bytes].into_iter().zip(fields).map(|(bytes, field)| {
        let value = Value::Binary(bytes.into());
        expand(&value, &DType::Binary(false), field.data_type(), len, limits)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, None, len)?))
}

/// Rows with a value of the variant at `selected`.
fn unions(
    selected: usize,
    value: &Value,
    union: &UnionType,
    fields: &UnionFields,
    len: usize,
    limits: &Limits,
) -> Result<ArrayRef> {
    let variants = union.variants().dtypes().iter().zip(fields.iter()).enumerate();
    let columns = variants.map(|(at, (dtype, (_, field)))| {
        let value = if at == selected { value } else { &Value::Null };
        expand(value, dtype, field.data_type(), len, limits)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let (id, _) = fields
        .iter()
        .nth(selected)
        .ok_or_else(|| Error::invalid(format!("variant {selected} of an Arrow union of {}", fields.len())))?;
    Ok(Arc::new(UnionArray::try_new(fields.clone(), vec![id; len].into(), None, columns)?))
}

/// An array of one row with a list of `values`.
fn one_list(values: &[Value], element: &DType, to: &DataType) -> Result<ArrayRef> {
    let items = |field: &FieldRef| array_of(values, element, field.data_type());
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

/// Repeats the row of `one` in all of `len` rows.
fn repeat(one: &ArrayRef, len: usize) -> Result<ArrayRef> {
    match len {
        0 => return Ok(one.slice(0, 0)),
        1 => return Ok(Arc::clone(one)),
        _ => {}
    }
    let repeated: Option<ArrayRef> = downcast_primitive_array! {
        one => Some(Arc::new(repeat_native(one, len))),
        DataType::Boolean => Some(Arc::new(repeat_bit(one.as_boolean(), len))),
        DataType::Utf8View => repeat_view(one.as_string_view(), len).map(|views| Arc::new(views) as _),
        DataType::BinaryView => repeat_view(one.as_binary_view(), len).map(|views| Arc::new(views) as _),
        _ => None,
    };
    match repeated {
        Some(repeated) => Ok(repeated),
        None => crate::array::take(one, &UInt32Array::from_value(0, len)),
    }
}

fn repeat_native<T: ArrowPrimitiveType>(one: &PrimitiveArray<T>, len: usize) -> PrimitiveArray<T> {
    let rows = repeat_one(one.value(0), len);
    let nulls = one.is_null(0).then(|| NullBuffer::new_null(len));
    PrimitiveArray::new(rows.into(), nulls).with_data_type(one.data_type().clone())
}

fn repeat_bit(one: &BooleanArray, len: usize) -> BooleanArray {
    let bits = if one.value(0) { BooleanBuffer::new_set(len) } else { BooleanBuffer::new_unset(len) };
    BooleanArray::new(bits, one.is_null(0).then(|| NullBuffer::new_null(len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::PType;
    use crate::dtype::arrow::data_type;

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
